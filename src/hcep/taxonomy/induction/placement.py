"""Find the outline in a language model's answer, and where it puts the classes.

Outlines may be numbered, bulleted, indented, drawn or JSON, with any text around them. In contrast to the file format
`outline`, which refuses what it cannot read exactly, nothing here raises: lines that cannot be read are skipped, and
every problem is reported.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from hcep.errors import quote, quoted
from hcep.taxonomy.induction.induced import Fault, Induced, LeafNames, clean_label, group_label, hierarchy_of_paths

#: Characters of an answer that are read, and of a label; a longer label is a sentence.
MAX_ANSWER, MAX_LABEL = 200_000, 100
#: Maximum levels of nesting.
MAX_DEPTH = 50
#: Invented labels that are compared with the missing leaves; an answer may invent thousands.
MAX_COMPARED = 100
#: Kinds of problems that cannot be corrected without guessing, so the model is asked again.
BLOCKING = frozenset({"missing", "renamed", "repeated", "leaf-as-group", "cycle", "flat", "empty", "unreadable"})
FLAT = Fault("flat", "there are no categories between the root and the leaves; add some")

THINKING = "</think>"
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"(#{1,6})\s+(?:\d+(?:\.\d+)*[.):]?\s+)?(.*)")
NUMBERED = re.compile(r"(\d+(?:\.\d+)+)[.):]?\s+(.*)")
LISTED = re.compile(r"(?:[-*+•◦▪‣·–—]|\d+[.):]|[A-Za-z][.)]|\(\w\)|[ivxIVX]+[.)])\s+(.*)")
DRAWN = re.compile(r"[\s│├└─|`+\\'-]*(?:├|└|\|--|`--|\+--|\\--)[─\-]*\s*(.*)")
INLINE_DOTTED = re.compile(r"\s(?=\d+(?:\.\d+)+[.):]?\s)")
INLINE_NUMBER = re.compile(r"\s(?=\d+(?:\.\d+)+[.):]?\s|\d+[.):]\s)")
#: Keys under which JSON trees have a node's name, and its children.
NAME_KEYS = ("name", "label", "category", "concept", "title", "id")
BELOW_KEYS = ("children", "subcategories", "items", "leaves", "members", "nodes", "subtypes")

IsLeaf = Callable[[str], bool]
Groups = tuple[str, ...]


class OutlineEntry(NamedTuple):
    """One entry of an outline and the position of the entry above it, -1 at the top."""

    label: str
    parent: int


class _Line(NamedTuple):
    """The parts of a line; `major` is the depth that a heading or a dotted number gives by itself."""

    label: str
    column: int
    major: int | None = None
    marked: bool = True


def read_outline(text: str, is_leaf: IsLeaf) -> list[OutlineEntry]:
    """The entries of the outline in a text, parents before children; a line that spells a leaf is always an entry."""
    answer = without_thinking(text)
    readings = []
    for part in (*sorted(FENCE.findall(answer), key=len, reverse=True)[:3], answer):
        readings += [_from_json(part), _from_lines(part, is_leaf)]
    # The reading that has the most leaves; of equals the first.
    return max(readings, key=lambda entries: (len({e.label for e in entries if is_leaf(e.label)}), bool(entries)))


def without_thinking(text: str) -> str:
    """What a reasoning model answers after it has finished thinking."""
    return text.partition(THINKING)[2] if text.lstrip().startswith("<think") else text


def _from_json(text: str) -> list[OutlineEntry]:
    start = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=len(text))
    try:
        whole, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return []
    entries: list[OutlineEntry] = []
    waiting: list[tuple[str | None, Any, int, int]] = [(None, whole, -1, 0)]  # label, what is below, parent, depth
    while waiting:
        label, tree, parent, depth = waiting.pop()
        if label is not None:
            entries.append(OutlineEntry(label, parent))
            parent = len(entries) - 1
        pairs: list[tuple[str | None, Any]] = []
        if isinstance(tree, str):
            pairs = [(tree, None)]
        elif isinstance(tree, list):
            pairs = [(None, item) for item in tree]
        elif isinstance(tree, dict):
            name = next((tree[key] for key in NAME_KEYS if isinstance(tree.get(key), str)), None)
            listed = [value if isinstance(value := tree.get(key), list) else [value] for key in BELOW_KEYS]
            pairs = list(tree.items()) if name is None else [(name, [item for several in listed for item in several])]
        waiting += [(*pair, parent, depth + 1) for pair in reversed(pairs) if depth <= MAX_DEPTH]
    return entries


def _from_lines(text: str, is_leaf: IsLeaf) -> list[OutlineEntry]:
    lines = [_take_apart(raw, is_leaf) for raw in _separate(text, is_leaf)]
    any_marked = any(line.marked for line in lines)
    entries: list[OutlineEntry] = []
    open_entries: list[tuple[tuple[int, int], int]] = []  # rank and position, outermost first
    major = 0
    for line in lines:
        if not _is_entry(line, any_marked, is_leaf):
            continue
        major = major if line.major is None else line.major
        rank = (major, 1 + line.column if line.major is None else 0)
        while open_entries and open_entries[-1][0] >= rank:
            open_entries.pop()
        del open_entries[MAX_DEPTH:]
        parent = open_entries[-1][1] if open_entries else -1
        open_entries.append((rank, len(entries)))
        # Leaves on the line of their group, as in ``felines: cat, lion``, are below it.
        group, _, listed = line.label.partition(":")
        names = [name.strip() for name in re.split(r"[,;]", listed)]
        if is_leaf(line.label) or not any(map(is_leaf, names)):
            group, names = line.label, []
        entries.append(OutlineEntry(group.strip(), parent))
        entries += [OutlineEntry(name, open_entries[-1][1]) for name in names if name]
    return entries


def _separate(text: str, is_leaf: IsLeaf) -> Iterator[str]:
    """The lines; a line with several numbers, as in ``1. animal 1.1 cat``, is split."""
    for raw in text.splitlines():
        line = raw.expandtabs(4).rstrip()
        starts_numbered = re.match(r"\s*\d+(?:\.\d+)*[.):]?\s", line)
        runs_on = starts_numbered and INLINE_DOTTED.search(line.lstrip())
        if runs_on and not is_leaf(_take_apart(line, is_leaf).label):
            yield from INLINE_NUMBER.split(line)
        elif line:
            yield line


def _take_apart(line: str, is_leaf: IsLeaf) -> _Line:
    text, column = line.strip(), len(line) - len(line.lstrip())
    if is_leaf(text):
        return _Line(text, column, marked=False)
    if drawn := DRAWN.fullmatch(line):
        return _Line(drawn[1], drawn.start(1))
    if heading := HEADING.fullmatch(text):
        return _Line(heading[2], column, len(heading[1]))
    # Emphasis may surround the number and the name together.
    bare = text.lstrip("*_ ") if re.match(r"[*_]{1,3}\d", text) else text
    listed = LISTED.fullmatch(bare)
    # "- 1.1 cat" gives its depth twice; the number is more reliable.
    numbered = NUMBERED.fullmatch(bare) or (listed and NUMBERED.fullmatch(listed[1]))
    if numbered:
        return _Line(numbered[2], column, 6 + len(numbered[1].split(".")))
    if not listed:
        return _Line(text, column, marked=False)
    return _Line(listed[1], column, 7 if column == 0 and re.match(r"\d+[.):]\s", bare) else None)


def _is_entry(line: _Line, any_marked: bool, is_leaf: IsLeaf) -> bool:
    label = line.label.strip()
    if is_leaf(label):
        return True
    if not label or len(label) > MAX_LABEL or label.startswith(("<", "```", "~~~", "{", "}", "[", "]", "---", "===")):
        return False
    sentence = label.endswith((".", "!", "?", ":", ",")) or len(label.split()) > 6
    return line.marked or (not sentence and (line.column > 0 or not any_marked))


def read_answer(text: str, leaves: Iterable[str], *, root: str = "entity") -> Induced:
    """Read the hierarchy in a language model's answer, and report the answer's problems.

    The answer is a numbered, bulleted, indented or drawn outline, or nested JSON, with or without code fences and text
    around it. Classes that it does not place become children of the root.
    """
    names = LeafNames(leaves, root)
    placement = Placement(text, names)
    return assembled(placement.placed, names, placement.problems)


def assembled(paths: Mapping[str, Groups], names: LeafNames, problems: tuple[Fault, ...]) -> Induced:
    """The result of the paths; missing leaves become children of the root."""
    missing = tuple(leaf for leaf in names.leaves if leaf not in paths)
    tree = hierarchy_of_paths(paths, names.leaves, names.root)
    flat = len(names.leaves) > 2 and tree.depth == 1
    if flat and not missing and FLAT not in problems:
        problems = (*problems, FLAT)
    return Induced(tree, not missing and not flat, missing, problems)


class Placement:
    """Where an answer puts the leaves: the groups above each, outermost first and without the root; and its problems.

    `paths` has the leaves that are spelled exactly, `guesses` those that are spelled differently but unmistakably.
    """

    def __init__(self, text: str, names: LeafNames, *, truncated: bool = False) -> None:
        self.entries = read_outline(text[:MAX_ANSWER], lambda label: names.exact(label) is not None)
        self.names = names
        self.leaf_of = [names.exact(entry.label) for entry in self.entries]
        self.has_below = {entry.parent for entry in self.entries}
        self.paths: dict[str, Groups] = {}
        self.guesses: dict[str, Groups] = {}
        self._n_times: dict[str, int] = {}
        self._cycles: dict[tuple[str, str], None] = {}
        self._above: set[tuple[str, str]] = set()  # pairs of groups, upper first, on the paths so far
        self._written: dict[str, str] = {}
        for i, leaf in enumerate(self.leaf_of):
            if leaf is not None and leaf not in self.paths:
                self.paths[leaf] = self._path_to(i)
            elif leaf is not None and self._leaf_above(i) != leaf:  # a group may hold the leaf of the same name
                self._n_times[leaf] = self._n_times.get(leaf, 1) + 1
        for i, entry in enumerate(self.entries):
            like = None if self.leaf_of[i] or i in self.has_below else names.alike(entry.label)
            if like is not None and like not in self.paths and like not in self.guesses:
                self.guesses[like] = self._path_to(i)
                self._written[like] = clean_label(entry.label)
        start = " ".join(text.split())[:60]
        unreadable = f"there is no outline in the answer, which starts with {quote(start)}; write one entry per line"
        too_long = f"the answer has {len(text):,} characters; only the first {MAX_ANSWER:,} are read"
        checks = (
            (truncated, "truncated", "the answer was cut off at the token limit (max_tokens)"),
            (not start, "empty", "the answer is empty; write the outline"),
            (start and not self.entries, "unreadable", unreadable),
            (len(text) > MAX_ANSWER, "too-long", too_long),
        )
        self.problems = (*(Fault(kind, message) for fails, kind, message in checks if fails), *self._faults())

    @property
    def placed(self) -> dict[str, Groups]:
        """The paths of all leaves that have a place, guessed or not."""
        return {**self.guesses, **self.paths}

    @property
    def n_blocking(self) -> int:
        """How many faults are worth asking again for; 0 where nothing is left to ask about."""
        return sum(fault.kind in BLOCKING for fault in self.problems)

    def _leaf_above(self, i: int) -> str | None:
        parent = self.entries[i].parent
        return self.leaf_of[parent] if parent >= 0 else None

    def _path_to(self, i: int) -> Groups:
        """The groups above an entry, without the root, leaves, and groups that would reverse an earlier order."""
        path: list[str] = []
        at = self.entries[i].parent
        while at >= 0:
            if self.leaf_of[at] is None:
                path.append(group_label(self.entries[at].label))
            at = self.entries[at].parent
        root = self.names.root.casefold()
        groups: list[str] = []
        for group in path[::-1]:
            key = group.casefold()
            clash = next((g for g in groups if key in (g.casefold(), root) or (key, g.casefold()) in self._above), None)
            if clash is not None:
                self._cycles[clash, group] = None
            elif group and key != root:
                groups.append(group)
        self._above.update(combinations([group.casefold() for group in groups], 2))
        return tuple(groups)

    def _faults(self) -> list[Fault]:
        """All problems, the certain ones first."""
        placed = self.placed
        missing = [leaf for leaf in self.names.leaves if leaf not in placed]
        invented = self._invented()
        renamed = [(written, leaf, "the leaf must be spelled exactly {!r}") for leaf, written in self._written.items()]
        for label in invented[:MAX_COMPARED]:
            if meant := self.names.near(label, missing):
                renamed.append((label, meant, "if that means the leaf {0!r}, write {0!r}"))
        holding = dict.fromkeys(
            above for i, leaf in enumerate(self.leaf_of) if leaf and (above := self._leaf_above(i)) and above != leaf
        )
        as_group = "{!r} is a leaf and has leaves below it; put them beside it, under a category"
        left_out = f"not in the list, and left out: {quoted(invented, 20)}"
        again = "the category {!r} appears below itself; use it once on a branch"
        both = "{!r} stands above {!r} and elsewhere below it; choose one of the two"
        return [
            *(Fault("renamed", f"you wrote {quote(a)}; {advice.format(b)}", (a, b)) for a, b, advice in renamed),
            *(Fault("leaf-as-group", as_group.format(leaf), (leaf,)) for leaf in holding),
            *(Fault("repeated", f"{quote(a)} occurs {n} times; keep one", (a,)) for a, n in self._n_times.items()),
            *(
                Fault("cycle", (again if a.casefold() == b.casefold() else both).format(a, b), (a, b))
                for a, b in self._cycles
            ),
            *(
                [Fault("missing", f"these leaves are missing: {quoted(missing, 200)}", tuple(missing))]
                if missing
                else []
            ),
            *([FLAT] if not missing and not any(placed.values()) and len(self.names.leaves) > 2 else []),
            *([Fault("invented", left_out, tuple(invented))] if invented else []),
        ]

    def _invented(self) -> list[str]:
        """Labels without children that are not a leaf in any spelling, and groups that have nothing else below."""
        kept = [leaf is not None for leaf in self.leaf_of]
        for i in range(len(self.entries) - 1, -1, -1):
            alike = i not in self.has_below and self.names.alike(self.entries[i].label) in self.guesses
            kept[i] = kept[i] or alike
            if kept[i] and self.entries[i].parent >= 0:
                kept[self.entries[i].parent] = True
        labels = [clean_label(entry.label) for entry, keep in zip(self.entries, kept, strict=True) if not keep]
        return [label for label in dict.fromkeys(labels) if label and label.casefold() != self.names.root.casefold()]
