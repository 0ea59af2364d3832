"""A hierarchy that is read branch by branch, where a label may appear in several places; and folder trees."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from hcep.errors import HierarchyError, counted, near_matches, quote, quoted
from hcep.hierarchy.edges import MAX_DEPTH, virtual_root
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.graph import Hierarchy

Repeated = Literal["raise", "merge", "qualify"]
MAX_DIRECTORIES = 1_000_000
#: Labels above a concept that its id may have: ids of long equal branches would be far longer than the file.
MAX_QUALIFIERS = 20


@dataclass
class Branch:
    """One concept of a draft: its label, its line, whether the label is an id, its depth, and its parents."""

    label: str
    line: int | None
    has_id: bool
    depth: int = 0  # on the path by which it was added
    name: str | None = None
    parents: list[int] = field(default_factory=list)


class Draft:
    """Collects branches; `repeated` says what a label that appears in several places means.

    "raise": an error; "merge": one concept with several parents; "qualify": several concepts, whose ids start with the
    labels of their parents (``"bird/crane"`` and ``"machine/crane"``).
    """

    def __init__(self, source: Source, repeated: Repeated = "raise") -> None:
        if repeated not in get_args(Repeated):
            close = near_matches(repeated, get_args(Repeated))
            raise HierarchyError(f"repeated must be 'raise', 'merge' or 'qualify', got {quote(repeated)}.{close}")
        self.source, self.repeated = source, repeated
        self.branches: list[Branch] = []
        self._first: dict[str, int] = {}
        self._below: dict[tuple[int | None, str], int] = {}
        self._edges: set[tuple[int, int]] = set()
        self.ignored: dict[str, None] = {}  # fields of records that are not read

    def add(
        self,
        label: str,
        parent: int | None,
        *,
        name: str | None = None,
        line: int | None = None,
        has_id: bool = False,
        same: bool = False,
    ) -> int:
        """Add a branch below `parent` (None: at the top) and return its number.

        With `has_id` the label is an id from the file, which means the same concept wherever it appears. With `same` a
        label that appears again below the same parent is the same concept, as in rows of level columns.
        """
        if not label:
            raise self.source.fail("a concept has no name; give it one", line)
        first = self._first.get(label)
        known = self._below.get((parent, label)) if same else None
        merged = first is not None and (self.repeated == "merge" or (has_id and self.branches[first].has_id))
        known = first if known is None and merged else known
        if known is None:
            self._refuse_repeated(label, parent, line)
            known = len(self.branches)
            depth = 0 if parent is None else self.branches[parent].depth + 1
            if depth > MAX_DEPTH:
                raise self.source.fail(f"concept {quote(label)} is more than {MAX_DEPTH:,} levels deep", line)
            self.branches.append(Branch(label, line, has_id, depth))
            self._first.setdefault(label, known)
        branch = self.branches[known]
        self._below.setdefault((parent, label), known)
        if parent is not None and (parent, known) not in self._edges:
            self._edges.add((parent, known))
            branch.parents.append(parent)
        if name is not None and branch.name not in (None, name):
            raise self.source.fail(
                f"{quote(branch.label)} has two names, {quote(branch.name)} and {quote(name)}; keep one", line
            )
        branch.name = branch.name if name is None else name
        return known

    def hierarchy(self, ranks: Mapping[int, str] | None = None) -> Hierarchy:
        """The finished hierarchy, with the ranks of some branches; several roots are joined under a virtual one."""
        if len(self.branches) < 2:
            what = "no concept" if not self.branches else f"a single concept, {quote(self.branches[0].label)}"
            raise self.source.fail(f"has {what}; expected a root with concepts below it")
        ids = self.ids
        apart = {synset: b.label for synset, b in zip(ids, self.branches, strict=True) if synset != b.label}
        if apart:
            what = counted(len(set(apart.values())), "name")
            self.source.notes.append(
                f"told apart by the concepts above them: {what} in several places, as {quoted(apart, 2)}"
            )
        names = {synset: b.name or b.label for synset, b in zip(ids, self.branches, strict=True)}
        joined = sum(not b.parents for b in self.branches) > 1
        # First the first parents, which come before their children: ids then appear in the order of the file.
        top = [virtual_root(set(ids))] * joined
        above = [[ids[p] for p in b.parents] or top for b in self.branches]
        edges = [(p, synset) for synset, parents in zip(ids, above, strict=True) for p in parents[:1]]
        edges += [(p, synset) for synset, parents in zip(ids, above, strict=True) for p in parents[1:]]
        return Hierarchy.from_edges(edges, names).with_ranks({ids[i]: rank for i, rank in (ranks or {}).items()})

    def _refuse_repeated(self, label: str, parent: int | None, line: int | None) -> None:
        again = self._below.get((parent, label))
        met = again if again is not None or self.repeated != "raise" else self._first.get(label)
        if met is None:
            return
        first = self.branches[met]
        at = "" if first.line is None else f" (line {first.line:,})"
        if again is not None:
            raise self.source.fail(f"{quote(label)} appears twice {self._place(parent)}{at}; remove one of them", line)
        above = first.parents[0] if first.parents else None
        raise self.source.fail(
            f"{quote(label)} appears {self._place(parent)} and {self._place(above)}{at}; pass repeated='merge' for one "
            "concept with both parents, or repeated='qualify' for two concepts (-O repeated=merge, "
            "-O repeated=qualify on the command line)",
            line,
        )

    def _place(self, parent: int | None) -> str:
        return "at the top" if parent is None else f"below {quote(self.branches[parent].label)}"

    @cached_property
    def ids(self) -> list[str]:
        """Labels that mean one concept as they are; others with as many labels above as they need to be unique."""
        ids = [b.label for b in self.branches]
        top = list(range(len(ids)))  # the highest branch whose label is in each id
        inner = {parent for b in self.branches for parent in b.parents}
        n_leaves = Counter(b.label for i, b in enumerate(self.branches) if i not in inner)
        n_above = 0
        while True:
            times = Counter(ids)
            # A class with the name of a group above it keeps its name, which the labels of images have.
            shared = [
                i
                for i, synset in enumerate(ids)
                if times[synset] > 1 and (i in inner or n_leaves[self.branches[i].label] > 1 or top[i] != i)
            ]
            if not shared:
                return ids
            rising = [i for i in shared if self.branches[top[i]].parents and n_above < MAX_QUALIFIERS]
            n_above += 1
            for i in rising:
                top[i] = self.branches[top[i]].parents[0]
                ids[i] = f"{self.branches[top[i]].label}/{ids[i]}"
            if not rising:  # labels that contain slashes, or long equal branches: only a number makes them unique
                for k, i in enumerate(shared):
                    ids[i] += f" ({k + 1})"


def read_folder(source: Source, *, repeated: Repeated = "raise") -> Hierarchy:
    """Read the folders below a place, sorted by name; files and hidden folders are skipped.

    A folder that a link reaches again is one concept with two parents; a link to a folder above is skipped.
    """
    source.understood = "folder tree"
    top = source.place.resolve()
    draft = Draft(source, repeated)
    known: dict[tuple[int, int], int] = {}
    n_loops = 0
    waiting: list[tuple[Path, int | None, frozenset[tuple[int, int]]]] = [
        (top, None, frozenset())
    ]  # the folders above it
    while waiting:
        path, parent, above = waiting.pop()
        status = path.stat()
        real = (status.st_dev, status.st_ino)
        if real in above:
            n_loops += 1
            continue
        if real in known:
            parents = draft.branches[known[real]].parents
            parents += [parent] if parent is not None and parent not in parents else []
            continue
        known[real] = draft.add(path.name or str(path), parent)
        if len(known) > MAX_DIRECTORIES:
            raise source.fail(f"has more than {MAX_DIRECTORIES:,} directories; give the one that holds the classes")
        try:
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        except OSError as error:
            raise HierarchyError(f"cannot read the directory {str(path)!r}: {error.strerror}") from None
        waiting += [(path / name, known[real], above | {real}) for name in reversed(names)]
    if n_loops:
        source.notes.append(f"skipped: {counted(n_loops, 'link')} to a directory above")
    return draft.hierarchy()
