"""What every way of inducing a hierarchy returns: the hierarchy, and what is known against it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hcep.errors import quoted
from hcep.hierarchy.graph import Hierarchy
from hcep.llm.answer import Usage


@dataclass(frozen=True)
class Problem:
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
    hierarchy : Hierarchy
        Classes that found no place hang straight from the root.
    complete : bool
        Whether every class found a place.
    missing : tuple of str
        The classes that did not.
    problems : tuple of Problem
        What was wrong and could not be put right by asking again.
    rounds : int
        Answers a language model gave.
    usage : Usage or None
        Calls, tokens and cost of this run.
    transcript : tuple of mappings
        Every question with its answer and what was wrong with it.
    evidence : mapping of (parent, child) to Evidence
        From text only.
    """

    hierarchy: Hierarchy
    complete: bool
    missing: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    rounds: int = 0
    usage: Usage | None = None
    transcript: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[tuple[str, str], Evidence] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"incomplete, {len(self.missing):,} classes not placed"
        return f"Induced({self.hierarchy!r}, {state}, {len(self.problems):,} problems)"

    def summary(self) -> str:
        """What is missing and wrong, one line each; empty where nothing is."""
        lines = []
        if self.missing:
            lines.append(f"not placed, left under the root: {quoted(self.missing, 10)}")
        lines += [str(problem) for problem in self.problems if problem.kind != "missing"]
        return "\n".join(lines)

    def save_transcript(self, path: str | Path) -> None:
        """Write the conversation as readable JSON."""
        text = json.dumps(list(self.transcript), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")


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
                ids[key] = _free_id(group, above, taken)
                taken.add(ids[key])
                edges.append((above, ids[key]))
        edges.append((ids[key], leaf))
    return Hierarchy.from_edges(edges, root=root)


def _free_id(group: str, above: str, taken: set[str]) -> str:
    name = group if group not in taken else f"{group} ({above})"
    number = 2
    while name in taken:
        name = f"{group} ({above}, {number})"
        number += 1
    return name
