"""Outlines as language models write them: numbered, bulleted, indented, drawn, or as JSON, amid whatever else they say.

Nothing here raises on a bad text: what cannot be read as an entry is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Characters of a label; an entry this long is a sentence.
MAX_LABEL = 100
#: Levels of nesting; deeper is no taxonomy.
MAX_DEPTH = 50

THINKING = "</think>"
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"(#{1,6})\s+(.*)")
NUMBERED = re.compile(r"(\d+(?:\.\d+)+)[.):]?\s+(.*)")
LISTED = re.compile(r"(?:[-*+•◦▪‣·–—]|\d+[.):]|[A-Za-z][.)]|\(\w\)|[ivxIVX]+[.)])\s+(.*)")
DRAWN = re.compile(r"[\s│├└─|`+\\'-]*(?:├|└|\|--|`--|\+--|\\--)[─\-]*\s*(.*)")
INLINE_DOTTED = re.compile(r"\s(?=\d+(?:\.\d+)+[.):]?\s)")
INLINE_NUMBER = re.compile(r"\s(?=\d+(?:\.\d+)+[.):]?\s|\d+[.):]\s)")
#: The words under which JSON trees keep their names and what is below them.
NAME_KEYS = ("name", "label", "category", "concept", "title", "id")
BELOW_KEYS = ("children", "subcategories", "items", "leaves", "members", "nodes", "subtypes")

IsLeaf = Callable[[str], bool]


@dataclass(frozen=True)
class Entry:
    """One entry of an outline and the position of the entry it stands under, -1 at the top."""

    label: str
    parent: int


def read_outline(text: str, is_leaf: IsLeaf) -> list[Entry]:
    """The entries of the outline in a text, parents before children.

    Parameters
    ----------
    is_leaf : whether a label spells a known leaf: such a line is never taken for numbering, a sentence or a list
    """
    said = without_thinking(text)
    readings = []
    for part in (*sorted(FENCE.findall(said), key=len, reverse=True)[:3], said):
        readings += [_from_json(part), _from_lines(part, is_leaf)]
    # The reading that makes sense of the most leaves; of equals the first.
    return max(readings, key=lambda entries: (len({e.label for e in entries if is_leaf(e.label)}), bool(entries)))


def without_thinking(text: str) -> str:
    """What a reasoning model says after it has talked to itself."""
    return text.partition(THINKING)[2] if text.lstrip().startswith("<think") else text


# -- JSON ----------------------------------------------------------------------------------------------------------


def _from_json(text: str) -> list[Entry]:
    start = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=len(text))
    try:
        tree, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return []
    entries: list[Entry] = []
    _add_json(tree, -1, 0, entries)
    return entries


def _add_json(tree: Any, parent: int, depth: int, entries: list[Entry]) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(tree, str):
        entries.append(Entry(tree, parent))
    elif isinstance(tree, list):
        for item in tree:
            _add_json(item, parent, depth + 1, entries)
    elif isinstance(tree, dict):
        name = next((tree[key] for key in NAME_KEYS if isinstance(tree.get(key), str)), None)
        if name is not None:
            entries.append(Entry(name, parent))
            at = len(entries) - 1
            for key in BELOW_KEYS:
                _add_json(tree.get(key), at, depth + 1, entries)
            return
        for label, below in tree.items():
            entries.append(Entry(label, parent))
            _add_json(below, len(entries) - 1, depth + 1, entries)


# -- lines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A line taken apart: `rank` orders depth, whatever the style it is said in."""

    label: str
    column: int
    major: int | None  # of a heading or a dotted number, which say their depth themselves
    marked: bool


def _from_lines(text: str, is_leaf: IsLeaf) -> list[Entry]:
    lines = [_take_apart(raw, is_leaf) for raw in _separate(text, is_leaf)]
    any_marked = any(line.marked for line in lines)
    entries: list[Entry] = []
    open_entries: list[tuple[tuple[int, int], int]] = []  # rank and position, outermost first
    major = 0
    for line in lines:
        if not _is_entry(line, any_marked, is_leaf):
            continue
        if line.major is not None:
            major = line.major
        rank = (major, 0 if line.major is not None else 1 + line.column)
        while open_entries and open_entries[-1][0] >= rank:
            open_entries.pop()
        del open_entries[MAX_DEPTH:]
        parent = open_entries[-1][1] if open_entries else -1
        open_entries.append((rank, len(entries)))
        _add_line(line.label, parent, entries, is_leaf)
    return entries


def _separate(text: str, is_leaf: IsLeaf) -> Iterator[str]:
    """The lines; one that runs through several numbers (``1. animal 1.1 cat``) is several."""
    for raw in text.splitlines():
        line = raw.expandtabs(4).rstrip()
        if not line.strip():
            continue
        starts_numbered = re.match(r"\s*\d+(?:\.\d+)*[.):]?\s", line)
        runs_on = starts_numbered and INLINE_DOTTED.search(line.lstrip())
        if runs_on and not is_leaf(_take_apart(line, is_leaf).label):
            yield from INLINE_NUMBER.split(line)
        else:
            yield line


def _take_apart(line: str, is_leaf: IsLeaf) -> _Line:
    text = line.strip()
    column = len(line) - len(line.lstrip())
    if is_leaf(text):
        return _Line(text, column, None, False)
    drawn = DRAWN.fullmatch(line)
    if drawn:
        return _Line(drawn[1], drawn.start(1), None, True)
    heading = HEADING.fullmatch(text)
    if heading:
        return _Line(re.sub(r"^\d+(?:\.\d+)*[.):]?\s+", "", heading[2]), column, len(heading[1]), True)
    # Emphasis may stand around number and name together.
    bare = text.lstrip("*_ ") if re.match(r"[*_]{1,3}\d", text) else text
    numbered = NUMBERED.fullmatch(bare)
    if numbered:
        return _Line(numbered[2], column, 6 + len(numbered[1].split(".")), True)
    listed = LISTED.fullmatch(bare)
    if not listed:
        return _Line(text, column, None, False)
    inner = NUMBERED.fullmatch(listed[1])  # "- 1.1 cat" says its depth twice; the number is the surer
    if inner:
        return _Line(inner[2], column, 6 + len(inner[1].split(".")), True)
    if re.match(r"\d+[.):]\s", bare) and column == 0:
        return _Line(listed[1], column, 7, True)
    return _Line(listed[1], column, None, True)


def _is_entry(line: _Line, any_marked: bool, is_leaf: IsLeaf) -> bool:
    label = line.label.strip()
    if is_leaf(label):
        return True
    if not label or len(label) > MAX_LABEL or label.startswith(("<", "```", "~~~", "{", "}", "[", "]", "---", "===")):
        return False
    if line.marked:
        return True
    sentence = label.endswith((".", "!", "?", ":", ",")) or len(label.split()) > 6
    return not sentence and (line.column > 0 or not any_marked)


def _add_line(label: str, parent: int, entries: list[Entry], is_leaf: IsLeaf) -> None:
    """Add an entry; leaves listed on its own line (``felines: cat, lion``) stand under it."""
    group, colon, listed = label.partition(":")
    names = [name.strip() for name in re.split(r"[,;]", listed)]
    if not is_leaf(label) and colon and any(is_leaf(name) for name in names):
        entries.append(Entry(group.strip(), parent))
        at = len(entries) - 1
        entries.extend(Entry(name, at) for name in names if name)
        return
    entries.append(Entry(label.strip(), parent))
