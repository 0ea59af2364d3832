"""What every way of inducing a hierarchy returns: the hierarchy, and what is known against it."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from hcep._files import write_text
from hcep.errors import quoted
from hcep.hierarchy.graph import Hierarchy
from hcep.llm.answer import Usage


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an answer or a corpus: what kind, the names it concerns, in words.

    Kinds: ``missing``, ``renamed``, ``repeated``, ``invented``, ``leaf-as-group``, ``cycle``, ``flat``, ``empty``,
    ``unreadable``, ``truncated``, ``too-long``, ``no-answer``, ``name``.
    """

    kind: str
    message: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Evidence:
    """Why an edge is there: how often a text says so, and one sentence that does."""

    count: int
    patterns: tuple[str, ...]
    example: str


@dataclass(frozen=True, eq=False)
class Induced:
    """An induced hierarchy. It always holds every class as a leaf; `complete` tells whether it may be trusted to.

    Attributes
    ----------
    hierarchy : classes that found no place hang straight from the root
    complete : whether every class found a place
    missing : the classes that did not
    problems : what was wrong and could not be put right by asking again
    rounds : answers a language model gave
    usage : calls, tokens and cost of this run
    transcript : every question with its answer and what was wrong with it
    evidence : of each (parent, child), from text only
    """

    hierarchy: Hierarchy
    complete: bool
    missing: tuple[str, ...]
    problems: tuple[Fault, ...] = ()
    rounds: int = 0
    usage: Usage | None = None
    transcript: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[tuple[str, str], Evidence] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"incomplete, {len(self.missing):,} classes not placed"
        return f"Induced({self.hierarchy!r}, {state}, {len(self.problems):,} problems)"

    def summary(self) -> str:
        """What is missing and wrong, one line each; empty where nothing is."""
        missing = [f"not placed, left under the root: {quoted(self.missing, 10)}"] if self.missing else []
        return "\n".join([*missing, *(str(fault) for fault in self.problems if fault.kind != "missing")])

    def save_transcript(self, path: str | Path) -> None:
        """Write the conversation as readable JSON."""
        write_text(path, json.dumps(list(self.transcript), indent=2, ensure_ascii=False) + "\n")

    def save_evidence(self, path: str | Path) -> None:
        """Write why each edge is there as readable JSON."""
        rows = [{"parent": parent, "child": child, **asdict(why)} for (parent, child), why in self.evidence.items()]
        write_text(path, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")

    def record(self) -> dict[str, Any]:
        """What a program wants to know of the result, as JSON can hold it."""
        return {
            "complete": self.complete,
            "missing": self.missing,
            "problems": [{"kind": fault.kind, "message": fault.message} for fault in self.problems],
            "rounds": self.rounds,
            "usage": None if self.usage is None else asdict(self.usage),
            "n_synsets": len(self.hierarchy),
            "depth": self.hierarchy.depth,
        }


def hierarchy_of_paths(paths: Mapping[str, Sequence[str]], leaves: Sequence[str], root: str) -> Hierarchy:
    """The tree in which each leaf hangs at the end of its path of groups; a leaf without a path, from the root.

    A group is the same synset only along the same path: "pet" under "mammal" and "pet" under "bird" are two, the
    second called "pet (bird)". Case makes no difference between groups.
    """
    taken = {root, *leaves}
    ids: dict[tuple[str, ...], str] = {(): root}
    edges: list[tuple[str, str]] = []
    for leaf in leaves:
        key: tuple[str, ...] = ()
        for group in paths.get(leaf, ()):
            above, key = ids[key], (*key, group.casefold())
            if key not in ids:
                ids[key] = free_name(taken, group, f"{group} ({above})", f"{group} ({above}, {{}})")
                taken.add(ids[key])
                edges.append((above, ids[key]))
        edges.append((ids[key], leaf))
    return Hierarchy.from_edges(edges, root=root)


def free_name(taken: Container[str], *names: str) -> str:
    """The first of some names that is not taken; the last has a place for a number, 2 and so on."""
    *plain, numbered = names
    return next(name for name in chain(plain, map(numbered.format, count(2))) if name not in taken)
