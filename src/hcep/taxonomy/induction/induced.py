"""What every way of inducing a hierarchy takes and returns: names of classes; the hierarchy, and what is against it."""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import Any

from hcep._files import write_text
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import singular, tidy
from hcep.taxonomy.llm import Usage

EMPHASIS = "*_`~ \t"
QUOTES = "\"'“”‘’«»"
#: What may follow a name on its line: an explanation after a dash or colon, or in brackets.
TRAILING = re.compile(r"\s+[-–—]+\s+.*$|\s*[:;]\s.*$|\s*[(\[].*$|\s*(?:→|=>|->).*$")
EXPLANATION = re.compile(r"\s*:\s.*$|\s+[-–—]+\s+.*$")


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
    hierarchy, complete, missing : whether every class found a place; those that did not hang straight from the root
    problems : what was wrong and could not be put right by asking again
    rounds, usage : answers a language model gave; calls, tokens and cost of this run
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
        problems = [{"kind": fault.kind, "message": fault.message} for fault in self.problems]
        usage = None if self.usage is None else asdict(self.usage)
        known = {"complete": self.complete, "missing": self.missing, "problems": problems, "rounds": self.rounds}
        return {**known, "usage": usage, "n_synsets": len(self.hierarchy), "depth": self.hierarchy.depth}


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


class LeafNames:
    """Leaves in their order, found by what a label says."""

    def __init__(self, leaves: Iterable[str], root: str) -> None:
        given = [leaves] if isinstance(leaves, str) else list(leaves)
        if any(not isinstance(leaf, str) or not leaf.strip() for leaf in given) or isinstance(leaves, str):
            raise HierarchyError(f"leaves must be a list of class names, none of them empty; got {quoted(given, 3)}")
        if not isinstance(root, str) or not root.strip():
            raise HierarchyError(f"root must be a name, got {root!r}")
        self.leaves, self.root = tuple(map(str, given)), root
        self._exact = {tidy(leaf): leaf for leaf in self.leaves}
        if len(self._exact) < len(self.leaves):
            repeated = [leaf for leaf, n in Counter(map(tidy, self.leaves)).items() if n > 1]
            raise HierarchyError(f"leaves has names twice: {quoted(repeated)}; give each class once")
        if len(self.leaves) < 2:
            raise HierarchyError(f"leaves must hold at least two classes to build a hierarchy above; got {given!r}")
        if tidy(root) in self._exact:
            raise HierarchyError(f"root {root!r} is also one of the leaves; name another root")
        forms = Counter(map(normal_form, self.leaves))
        self._alike = {form: leaf for leaf in self.leaves if forms[form := normal_form(leaf)] == 1}
        self.exact, self.alike = cache(self._find_exact), cache(self._find_alike)

    def _find_exact(self, label: str) -> str | None:
        """The leaf that a label spells exactly, emphasis, quotes or an explanation behind it aside."""
        return next((self._exact[text] for text in _readings(label) if text in self._exact), None)

    def _find_alike(self, label: str) -> str | None:
        """The one leaf that differs in case, spacing, punctuation or number alone."""
        return next((self._alike[form] for form in map(normal_form, _readings(label)) if form in self._alike), None)

    def near(self, label: str, among: Iterable[str]) -> str | None:
        """The closest of some leaves to a label, if any is close."""
        by_form = {normal_form(leaf): leaf for leaf in among}
        close = get_close_matches(normal_form(label), by_form, n=1, cutoff=0.75)
        return by_form[close[0]] if close else None


def read_names(path: str | PathLike[str]) -> list[str]:
    """Class names of a file: a JSON list of strings, or one per line, blank lines left out."""
    place, is_json = repr(str(path)), str(path).lower().endswith(".json")
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
        names = json.loads(content) if is_json else [line.strip() for line in content.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise HierarchyError(f"cannot read names from {place}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise HierarchyError(f"{place} must hold a JSON list of names")
    if not names:
        raise HierarchyError(f"{place} holds no names; expected {'a JSON list of them' if is_json else 'one per line'}")
    return names


def clean_label(label: str) -> str:
    """A label without emphasis, quotes and what JSON or an outline ends a line with, its spaces single."""
    return tidy(label).strip(EMPHASIS).rstrip(":,{[" + EMPHASIS).strip(EMPHASIS + QUOTES + ":")


def group_label(label: str) -> str:
    """The name of a group, an explanation after a colon or dash left out."""
    return clean_label(EXPLANATION.sub("", tidy(label))) or clean_label(label)


def normal_form(label: str) -> str:
    """A label without case, punctuation and plural, to compare."""
    words = re.sub(r"[\W_]+", " ", label.casefold()).split()
    return " ".join([*words[:-1], singular(words[-1])]) if words else ""


def _readings(label: str) -> Iterator[str]:
    """What a label may mean, literally first."""
    yield tidy(label)
    cleaned = clean_label(label)
    with suppress(ValueError, RecursionError):
        yield tidy(str(json.loads(label.strip(" ,"))))
    yield cleaned
    with suppress(ValueError):
        yield tidy(str(json.loads(f'"{cleaned}"')))
    yield clean_label(TRAILING.sub("", tidy(label)))
