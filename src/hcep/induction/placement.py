"""An untrusted outline against the classes it should place: where each leaf hangs, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from hcep.errors import quoted
from hcep.induction.induced import Fault, Induced, hierarchy_of_paths
from hcep.induction.leaf_names import LeafNames, clean_label, group_label
from hcep.induction.outline import Entry, read_outline

#: Characters that are read of an answer; the rest is cut off and said so.
MAX_ANSWER = 200_000
#: Invented labels that are compared with every missing leaf; an answer may invent thousands.
MAX_COMPARED = 100
#: Kinds that the tree cannot be rid of without guessing: worth asking again for.
BLOCKING = frozenset({"missing", "renamed", "repeated", "leaf-as-group", "cycle", "flat", "empty", "unreadable"})
FLAT = Fault("flat", "there are no categories between the root and the leaves; add some")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where an answer puts the leaves.

    Attributes
    ----------
    paths : mapping of leaf to tuple of str
        The groups above each leaf that is spelled exactly, outermost first, the root left out.
    guesses : mapping of leaf to tuple of str
        The same for leaves spelled otherwise (case, spacing, plural) but unmistakably.
    problems : tuple of Fault
    """

    paths: Mapping[str, Path]
    guesses: Mapping[str, Path]
    problems: tuple[Fault, ...]

    @property
    def usable(self) -> bool:
        """Whether nothing is left to ask about."""
        return not any(problem.kind in BLOCKING for problem in self.problems)


def read_answer(text: str, leaves: Iterable[str], *, root: str = "entity") -> Induced:
    r"""Read the answer of a language model that no one asks again: the tree in it, and what is wrong with it.

    Parameters
    ----------
    text : str
        A numbered, bulleted, indented or drawn outline or nested JSON, in code fences or not, with or without
        sentences around it.
    leaves : iterable of str
        The classes. Those that the text does not place hang from the root.

    Examples
    --------
    >>> from hcep.induction import read_answer
    >>> found = read_answer("Sure!\n1. Animals\n1.1 cat\n1.2 Dogs\n1.3 unicorn\n2. car", ["cat", "dog", "car"])
    >>> found.hierarchy.print_tree()
    entity
    ├── Animals
    │   ├── cat
    │   └── dog
    └── car
    >>> print(found.summary())
    you wrote 'Dogs'; the leaf is spelled 'dog', exactly so
    not in the list, left out: 'unicorn'
    """
    names = LeafNames(leaves, root)
    placement = place(text, names)
    paths = {**placement.guesses, **placement.paths}
    return assembled(paths, names, placement.problems)


def assembled(paths: Mapping[str, Path], names: LeafNames, problems: tuple[Fault, ...]) -> Induced:
    """The result that the paths make, whatever is missing hung from the root."""
    missing = tuple(leaf for leaf in names.leaves if leaf not in paths)
    tree = hierarchy_of_paths(paths, names.leaves, names.root)
    flat = len(names.leaves) > 2 and tree.depth == 1
    if flat and not missing and not any(problem.kind == "flat" for problem in problems):
        problems = (*problems, FLAT)
    return Induced(tree, not missing and not flat, missing, problems)


def place(text: str, names: LeafNames) -> Placement:
    """Find a place for every leaf in an answer; never raises for what the answer says."""
    too_long = len(text) > MAX_ANSWER
    entries = read_outline(text[:MAX_ANSWER], lambda label: names.exact(label) is not None)
    first = _unreadable(text, entries)
    if too_long:
        first.append(Fault("too-long", f"the answer has {len(text):,} characters; read the first {MAX_ANSWER:,}"))
    found = _Found(entries, names)
    problems = [*first, *found.problems()]
    return Placement(found.paths, found.guesses, tuple(problems))


def _unreadable(text: str, entries: list[Entry]) -> list[Fault]:
    if not text.strip():
        return [Fault("empty", "the answer is empty; write the outline")]
    if not entries:
        start = " ".join(text.split())[:60]
        return [Fault("unreadable", f"no outline found in the answer, which starts {start!r}; write one entry a line")]
    return []


class _Found:
    """The entries of one answer sorted into leaves, groups and inventions."""

    def __init__(self, entries: list[Entry], names: LeafNames) -> None:
        self.entries, self.names = entries, names
        self.leaf_of = [names.exact(entry.label) for entry in entries]
        self.paths: dict[str, Path] = {}
        self.guesses: dict[str, Path] = {}
        self.repeated: dict[str, int] = {}
        self.cycles: dict[tuple[str, str], None] = {}
        self._above: dict[tuple[str, str], None] = {}  # group pairs, upper first, as the leaves so far need them
        self._written: dict[str, str] = {}
        self._n_below = [0] * len(entries)
        for entry in entries:
            if entry.parent >= 0:
                self._n_below[entry.parent] += 1
        self._place_exact()
        self._place_alike()

    def _place_exact(self) -> None:
        for i, leaf in enumerate(self.leaf_of):
            if leaf is None:
                continue
            if leaf not in self.paths:
                self.paths[leaf] = self._path_to(i)
            elif not self._is_own_group(i):
                self.repeated[leaf] = self.repeated.get(leaf, 1) + 1

    def _place_alike(self) -> None:
        for i, entry in enumerate(self.entries):
            leaf = None if self.leaf_of[i] or self._n_below[i] else self.names.alike(entry.label)
            if leaf is not None and leaf not in self.paths and leaf not in self.guesses:
                self.guesses[leaf] = self._path_to(i)
                self._written[leaf] = clean_label(entry.label)

    def _is_own_group(self, i: int) -> bool:
        """Whether a leaf stands right under its own name, a group that holds it."""
        parent = self.entries[i].parent
        return parent >= 0 and self.leaf_of[parent] == self.leaf_of[i]

    def _path_to(self, i: int) -> Path:
        """The groups above an entry, without the root, leaves, and what would turn the order of two groups round."""
        path: list[str] = []
        at = self.entries[i].parent
        while at >= 0:
            if self.leaf_of[at] is None:
                path.append(group_label(self.entries[at].label))
            at = self.entries[at].parent
        groups: list[str] = []
        for group in path[::-1]:
            key = group.casefold()
            clash = next((g for g in groups if self._contradict(g.casefold(), key)), None)
            if clash is not None:
                self.cycles[clash, group] = None
            elif group and key != self.names.root.casefold():
                groups.append(group)
        self._above.update(dict.fromkeys(combinations([group.casefold() for group in groups], 2)))
        return tuple(groups)

    def _contradict(self, above: str, below: str) -> bool:
        return above == below or below == self.names.root.casefold() or (below, above) in self._above

    def problems(self) -> list[Fault]:
        found = [
            *self._renamed(),
            *self._as_groups(),
            *(
                Fault("repeated", f"{leaf!r} stands there {n} times; keep one", (leaf,))
                for leaf, n in self.repeated.items()
            ),
            *(Fault("cycle", _cycle_message(a, b), (a, b)) for a, b in self.cycles),
        ]
        missing = [leaf for leaf in self.names.leaves if leaf not in self.paths and leaf not in self.guesses]
        if missing:
            found.append(Fault("missing", f"these leaves are missing: {quoted(missing, 200)}", tuple(missing)))
        grouped = any(self.paths.values()) or any(self.guesses.values())
        if not missing and not grouped and len(self.names.leaves) > 2:
            found.append(FLAT)
        invented = self._invented()
        if invented:
            found.append(Fault("invented", f"not in the list, left out: {quoted(invented, 20)}", tuple(invented)))
        return found

    def _renamed(self) -> list[Fault]:
        problems = []
        for leaf, written in self._written.items():
            message = f"you wrote {written!r}; the leaf is spelled {leaf!r}, exactly so"
            problems.append(Fault("renamed", message, (written, leaf)))
        absent = [leaf for leaf in self.names.leaves if leaf not in self.paths and leaf not in self.guesses]
        for label in self._invented()[:MAX_COMPARED]:
            meant = self.names.near(label, absent)
            if meant is not None:
                message = f"you wrote {label!r}; if that means the leaf {meant!r}, write {meant!r}"
                problems.append(Fault("renamed", message, (label, meant)))
        return problems

    def _as_groups(self) -> list[Fault]:
        """Leaves with other leaves below them."""
        holding = [
            self.leaf_of[entry.parent]
            for entry, leaf in zip(self.entries, self.leaf_of, strict=True)
            if leaf is not None and entry.parent >= 0 and self.leaf_of[entry.parent] not in (None, leaf)
        ]
        message = "{!r} is a leaf and has leaves below it; put them beside it, under a category"
        return [Fault("leaf-as-group", message.format(leaf), (leaf,)) for leaf in dict.fromkeys(holding) if leaf]

    def _invented(self) -> list[str]:
        """Labels with nothing below them that are no leaf, however spelled; and the groups that hold only such."""
        kept = [leaf is not None for leaf in self.leaf_of]
        for i in range(len(self.entries) - 1, -1, -1):
            alike = not self._n_below[i] and self.names.alike(self.entries[i].label) in self.guesses
            kept[i] = kept[i] or alike
            if kept[i] and self.entries[i].parent >= 0:
                kept[self.entries[i].parent] = True
        labels = [clean_label(entry.label) for entry, keep in zip(self.entries, kept, strict=True) if not keep]
        return [label for label in dict.fromkeys(labels) if label and label.casefold() != self.names.root.casefold()]


def _cycle_message(above: str, below: str) -> str:
    if above.casefold() == below.casefold():
        return f"the category {above!r} stands below itself; use it once on a branch"
    return f"{above!r} stands above {below!r} and elsewhere below it; decide for one"
