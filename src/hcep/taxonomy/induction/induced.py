"""What every way to induce a hierarchy takes (class names) and returns (a hierarchy and its problems)."""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import Any

from hcep._files import regular, write_text
from hcep.errors import HierarchyError, quote, quoted
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import singular, tidy
from hcep.taxonomy.llm.endpoint import Usage

EMPHASIS = "*_`~ \t"
QUOTES = "\"'“”‘’«»"
#: What may follow a name on its line: an explanation after a dash, a colon or an arrow, or in brackets.
TRAILING = re.compile(r"\s+[-–—]+\s+.*$|\s*[:;]\s.*$|\s*[(\[].*$|\s*(?:→|=>|->).*$")
EXPLANATION = re.compile(r"\s*:\s.*$|\s+[-–—]+\s+.*$")


@dataclass(frozen=True)
class Fault:
    """One problem of an answer: its kind, a message, and the names it concerns.

    Kinds: ``missing``, ``renamed``, ``repeated``, ``invented``, ``leaf-as-group``, ``cycle``, ``flat``, ``empty``,
    ``unreadable``, ``truncated``, ``too-long``, ``no-answer``.
    """

    kind: str
    message: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False)
class Induced:
    """An induced hierarchy, which always has every class as a leaf.

    Attributes
    ----------
    complete : whether every class was placed
    missing : the classes that were not placed; they are children of the root
    problems : what was wrong and could not be corrected by asking again
    rounds : number of answers from the language model
    usage : calls and tokens of this run
    transcript : every question with its answer and its problems
    """

    hierarchy: Hierarchy
    complete: bool
    missing: tuple[str, ...]
    problems: tuple[Fault, ...] = ()
    rounds: int = 0
    usage: Usage | None = None
    transcript: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"incomplete, {len(self.missing):,} classes not placed"
        return f"Induced({self.hierarchy!r}, {state}, {len(self.problems):,} problems)"

    def summary(self) -> str:
        """What is missing and wrong, one line each; empty if nothing is."""
        missing = [f"not placed, left under the root: {quoted(self.missing, 10)}"] if self.missing else []
        return "\n".join([*missing, *(str(fault) for fault in self.problems if fault.kind != "missing")])

    def save_transcript(self, path: str | Path) -> None:
        """Write the conversation as readable JSON."""
        write_text(path, json.dumps(list(self.transcript), indent=2, ensure_ascii=False) + "\n")

    def record(self) -> dict[str, Any]:
        """The result as JSON can hold it."""
        problems = [{"kind": fault.kind, "message": fault.message} for fault in self.problems]
        usage = None if self.usage is None else asdict(self.usage)
        known = {"complete": self.complete, "missing": self.missing, "problems": problems, "rounds": self.rounds}
        return {**known, "usage": usage, "n_synsets": len(self.hierarchy), "depth": self.hierarchy.depth}


def hierarchy_of_paths(paths: Mapping[str, Sequence[str]], leaves: Sequence[str], root: str) -> Hierarchy:
    """The tree in which each leaf hangs at the end of its path of groups, or from the root if it has no path.

    "pet" below "mammal" and "pet" below "bird" are two groups; the second is called "pet (bird)". Case does not matter.
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
    """The first of some names that is not taken; the last one is a template for a number from 2 on."""
    *plain, numbered = names
    return next(name for name in chain(plain, map(numbered.format, count(2))) if name not in taken)


class LeafNames:
    """The class names in their order, which finds the class that a label means."""

    def __init__(self, leaves: Iterable[str], root: str) -> None:
        names = [leaves] if isinstance(leaves, str) else list(leaves)
        if any(not isinstance(name, str) or not name.strip() for name in names) or isinstance(leaves, str):
            raise HierarchyError(f"leaves must be a list of class names, none of them empty; got {quoted(names, 3)}")
        if not isinstance(root, str) or not root.strip():
            raise HierarchyError(f"root must be a name, got {quote(root)}")
        self.leaves, self.root = tuple(map(str, names)), root
        self._exact = {tidy(leaf): leaf for leaf in self.leaves}
        if len(self._exact) < len(self.leaves):
            repeated = [leaf for leaf, n in Counter(map(tidy, self.leaves)).items() if n > 1]
            raise HierarchyError(f"leaves has repeated names: {quoted(repeated)}; give each class once")
        if len(self.leaves) < 2:
            raise HierarchyError(f"leaves must have at least two classes; got {quote(names)}")
        if tidy(root) in self._exact:
            raise HierarchyError(f"root {quote(root)} is also one of the leaves; choose another root")
        forms = Counter(map(normal_form, self.leaves))
        self._alike = {form: leaf for leaf in self.leaves if forms[form := normal_form(leaf)] == 1}
        self.exact, self.alike = cache(self._find_exact), cache(self._find_alike)

    def _find_exact(self, label: str) -> str | None:
        """The leaf that a label spells exactly, apart from emphasis, quotes or an explanation after it."""
        return next((self._exact[text] for text in _readings(label) if text in self._exact), None)

    def _find_alike(self, label: str) -> str | None:
        """The one leaf that differs from a label only in case, spacing, punctuation or number."""
        return next((self._alike[form] for form in map(normal_form, _readings(label)) if form in self._alike), None)

    def near(self, label: str, among: Iterable[str]) -> str | None:
        """The closest of some leaves to a label, if one is close."""
        by_form = {normal_form(leaf): leaf for leaf in among}
        close = get_close_matches(normal_form(label), by_form, n=1, cutoff=0.75)
        return by_form[close[0]] if close else None


def read_names(path: str | PathLike[str]) -> list[str]:
    """Read class names from a JSON list of strings, or from a text file with one name per line."""
    place, is_json = repr(str(path)), str(path).lower().endswith(".json")
    try:
        content = regular(path).read_text(encoding="utf-8-sig")
        names = json.loads(content) if is_json else [line.strip() for line in content.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise HierarchyError(f"cannot read names from {place}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise HierarchyError(f"{place} must contain a JSON list of names")
    if not names:
        raise HierarchyError(f"{place} has no names; expected {'a JSON list of them' if is_json else 'one per line'}")
    return names


def clean_label(label: str) -> str:
    """A label without emphasis, quotes, and the punctuation that ends a line of JSON or of an outline."""
    return tidy(label).strip(EMPHASIS).rstrip(":,{[" + EMPHASIS).strip(EMPHASIS + QUOTES + ":")


def group_label(label: str) -> str:
    """The name of a group, without an explanation after a colon or dash."""
    return clean_label(EXPLANATION.sub("", tidy(label))) or clean_label(label)


def normal_form(label: str) -> str:
    """A label without case, punctuation and plural, for comparison."""
    words = re.sub(r"[\W_]+", " ", label.casefold()).split()
    return " ".join([*words[:-1], singular(words[-1])]) if words else ""


def _readings(label: str) -> Iterator[str]:
    """What a label may mean, the literal meaning first."""
    yield tidy(label)
    cleaned = clean_label(label)
    with suppress(ValueError, RecursionError):
        yield tidy(str(json.loads(label.strip(" ,"))))
    yield cleaned
    with suppress(ValueError):
        yield tidy(str(json.loads(f'"{cleaned}"')))
    yield clean_label(TRAILING.sub("", tidy(label)))
