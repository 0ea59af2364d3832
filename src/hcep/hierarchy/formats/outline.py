"""Outlines: one concept per line, indented, bulleted or numbered 1. / 1.1 / 1.1.1."""

import json
import re
from collections.abc import Iterator

from hcep.errors import cut, quote
from hcep.hierarchy.formats import breadcrumbs, nested, newick, tables
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_file import HEADER_WORDS, Table, plain, read_table
from hcep.hierarchy.formats.writing import labels, outline_order
from hcep.hierarchy.graph import Hierarchy

BULLET = re.compile(r"[-*+•]\s+")
NUMBER = re.compile(r"(\d{1,9}(?:\.\d{1,9})++[.)]?|\d{1,9}[.)])\s+")
BARE = re.compile(r"(\d{1,9})\s+")  # of the highest level, if others have dots
HEADING = re.compile(r"(#{1,6})\s+")
RULE = re.compile(r"(?:```.*|-{3,}|={3,}|\*{3,}|_{3,})")  # code fences and horizontal rules
RUN = re.compile(r"^([*+.~=>-])\1*(?=\s*\w)")
INDENT = re.compile(r"(?:[\s│├└─╰┃┣┗━]|[|+`]--+|\|(?=\s))*+")  # also the characters of a drawn tree

Key = int | tuple[int, ...]
Line = tuple[int, Key, Key, str]  # line number, position, position of the parent, label
TITLE = ()


def read(source: Source, *, repeated: Repeated = "raise", header: str | None = None) -> Hierarchy:
    """Read an outline; `repeated` is as for `Draft`, `header` (yes or no) says whether the first line is a title.

    If a line is numbered with dots (1.1), numbers give the depth; otherwise the indentation does, below the last
    Markdown heading. Bullets, emphasis and the characters of drawn trees are ignored. A label in double quotes is a
    JSON string, so that it can contain anything.
    """
    other = _not_an_outline(source)
    if other is not None:
        return other
    source.understood = "outline"
    draft = Draft(source, repeated)
    at: dict[Key, int] = {}  # the branch at each position
    numbered = [(i + 1, line) for i, line in enumerate(source.lines()) if line.strip()]
    entries = [(number, line) for number, line in numbered if not RULE.fullmatch(line.strip())]
    # Lines whose depth is a run of marks (``** cat``, ``--cat``) get as many spaces instead.
    runs = [match for _, line in entries if (match := RUN.match(line))]
    one_mark = len({match[1] for match in runs}) == 1 and not any(line[0].isspace() for _, line in entries)
    if any("." in _number(line).rstrip(".)") for _, line in entries):
        lines = list(_numbered(source, entries))
    elif one_mark and 3 * len(runs) >= len(entries) and any(len(match[0]) > 1 for match in runs):
        indented = [(n, RUN.sub(lambda match: " " * len(match[0]), line, count=1)) for n, line in entries]
        lines = list(_indented(source, indented))
    else:
        lines = list(_indented(source, entries))
    words = [set(plain(label).split()) <= HEADER_WORDS for *_, label in lines]
    # A flat list may start with the name of its column, if no other line could be one.
    flat = len(lines) > 2 and {key for _, key, *_ in lines} == {0}
    if header == "yes" or (header is None and flat and words[0] and not any(words[1:])):
        source.notes.append(
            f"line {lines[0][0]:,} read as a header, {quote(lines[0][3])}; pass -O header=no if it is a class"
        )
        lines = lines[1:]
    for number, key, above, label in lines:
        at[key] = draft.add(label, at.get(above), line=number)
    hierarchy = draft.hierarchy()
    source.otherwise = source.otherwise if hierarchy.depth == 1 else ""
    return hierarchy


def _not_an_outline(source: Source) -> Hierarchy | None:
    """Read text that is not an outline: JSON, a Newick tree, breadcrumbs, a table; None if it may be an outline."""
    start, end = (text := source.text().strip())[0], text[-1]
    if start + end in ("{}", "[]"):
        return nested.read_json(source)
    if start + end == "(;" or text[:6].upper() == "#NEXUS":
        return newick.read(source)
    lines = [(i + 1, line) for i, line in enumerate(source.lines()) if line.strip() and not line.startswith("#")]
    barred = [(n, line.strip().strip("|")) for n, line in lines if line.strip()[0] + line.strip()[-1] == "||"]
    if len(barred) == len(lines) > 2:  # a Markdown table, whose second row has dashes
        rows = [(n, [cell.strip() for cell in line.split("|")]) for n, line in barred if set(line) - set("|-: ")]
        return tables.from_table(source, Table(rows, marked=len(rows) < len(barred)))
    marked = [line for _, line in lines if line[0].isspace() or BULLET.match(line) or INDENT.match(line)[0]]  # type: ignore[index]
    if marked or any("." in _number(line) for _, line in lines):
        return None
    mark = breadcrumbs.find_separator([line for _, line in lines])
    if mark:
        ends = [(n, parts) for n, line in lines if len(parts := line.rsplit(None, 1)) > 1 and parts[1].isdecimal()]
        if len(lines) == len(ends) == len({parts[1] for _, parts in ends}) > 2:  # as lists of classes have
            source.notes.append("skipped: the number at the end of every line")
            lines = [(n, parts[0]) for n, parts in ends]
        return breadcrumbs.from_lines(source, lines, mark)
    if len(lines) > 1 and sum("\t" in line.strip() for _, line in lines) >= 0.9 * len(lines):
        return tables.from_table(source, read_table(source, "tab"))
    source.otherwise = (
        "if the lines are paths, pass -O format=breadcrumbs -O separator=MARK; if they are rows of a table, "
        "-O format=csv"
    )
    for mark in (";", ",", " "):
        n_cells = {line.strip().count(mark) for _, line in lines}
        if len(lines) > 1 and len(n_cells) == 1 and n_cells != {0}:
            table = Table([(n, [cell.strip() for cell in line.split(mark)]) for n, line in lines])
            # Names may contain spaces and commas, so cells must be repeated for the lines to be a table.
            if mark == ";" or tables.is_clearly(source, table, mark):
                return tables.from_table(source, table)
    return None


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write bullets; a concept with several parents appears below each, what is below it only once."""
    # The label itself if it is read back unchanged, otherwise a JSON string.
    label = labels(hierarchy)
    for synset, text in label.items():
        if not text.isprintable() or _label(Source("", b""), 0, f"- {text}") != text:
            label[synset] = json.dumps(text)
    return "".join(f"{'  ' * depth}- {label[synset]}\n" for depth, synset, _, _ in outline_order(hierarchy))


def _numbered(source: Source, lines: list[tuple[int, str]]) -> Iterator[Line]:
    # The first line may have no number: the root.
    titled = not _number(lines[0][1]) and not _number(lines[0][1], BARE)
    if titled:
        yield lines[0][0], TITLE, -1, _label(source, *lines[0])
    seen: set[tuple[int, ...]] = {TITLE}
    for number, line in lines[titled:]:
        text = _number(line) or _number(line, BARE)
        if not text:
            raise source.fail(f"expected a number at the start, as in other lines; got {quote(line.strip())}", number)
        place = tuple(int(part) for part in text.rstrip(".)").split("."))
        if place in seen:
            raise source.fail(f"number {cut(text)} appears twice; correct the numbering", number)
        if place[:-1] not in seen:
            raise source.fail(f"number {cut(text)} has no {cut('.'.join(map(str, place[:-1])))} before it", number)
        seen.add(place)
        yield number, place, place[:-1], _label(source, number, line.strip()[len(text) :])


def _indented(source: Source, lines: list[tuple[int, str]]) -> Iterator[Line]:
    stack: list[int] = []  # the indentation of each open level
    heading: list[int] = []  # the marks of each open heading
    kind = ""
    for number, line in lines:
        marks = HEADING.match(line)
        if marks:
            heading = [n for n in heading if n < len(marks[1])]
            yield number, len(heading), len(heading) - 1, _label(source, number, line[marks.end() :])
            heading.append(len(marks[1]))
            stack = []
            continue
        indent = INDENT.match(line)[0]  # type: ignore[index] # it matches the empty string
        own = " and ".join(sorted({"tabs" if c == "\t" else "spaces" for c in indent}))
        if " and " in own or (own and kind and own != kind):
            raise source.fail("indented with both tabs and spaces; use one of them", number)
        kind = kind or own
        while stack and stack[-1] > len(indent):
            last = stack.pop()
            if not stack or stack[-1] < len(indent):
                known = ", ".join(map(str, [*stack[-2:], last]))
                raise source.fail(f"indented by {len(indent)}, but the lines above by {known}; align it", number)
        if not stack or stack[-1] < len(indent):
            stack.append(len(indent))
        depth = len(heading) + len(stack) - 1
        yield number, depth, depth - 1, _label(source, number, line[len(indent) :])


def _number(line: str, pattern: re.Pattern[str] = NUMBER) -> str:
    match = pattern.match(line.strip())
    return match[1] if match else ""


def _label(source: Source, number: int, text: str) -> str:
    """A line without the marks of an outline."""
    text = text.strip()
    mark = BULLET.match(text) or NUMBER.match(text)
    text = text[mark.end() :] if mark else text
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            raise source.fail(f"a label in double quotes must be a JSON string, got {cut(text)}", number) from None
    for around in ("**", "__", "`"):
        if text.startswith(around) and text.endswith(around) and len(text) > 2 * len(around):
            text = text[len(around) : -len(around)]
    return text.strip()
