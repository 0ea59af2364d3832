"""Breadcrumbs: one line per category with everything above it, as shops publish them (``Animals > Birds``)."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hcep.errors import counted, quote
from hcep.hierarchy.edges import with_lone_tops
from hcep.hierarchy.formats.draft import Draft
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_file import Table
from hcep.hierarchy.graph import Hierarchy

#: What separates categories, the most reliable first.
SEPARATORS = (">", "»", "›", "→", "::", "|", "-->", "->", "=>", "/", "\\")
#: An id at the start of a line: of a shop (``gid://... : ``), a number (``537 - ``), or cells before a tab.
ID = re.compile(
    r"(?:(\w++://[^\s,]++|\d++|[A-Za-z]{0,4}[-_]?\d[\w.-]*+)(?:\s++:\s++|\s++[-–]\s++|\s*+,\s*+)|([^\t>]++)\t\s*+)(?=\S)"
)

#: The directory that a listing starts in.
TOPS = (".", "./", "/", "\\")
#: Codes with dots, and the mark that means them.
CODE, CODES = re.compile(r"\d+(\.\d+)+"), "1.1"
#: Ids that look like paths but are not: /m/0dv5r.
KNOWLEDGE_ID = re.compile(r"/[a-z]{1,2}/[0-9a-z_]+")
Line = tuple[int, str]


def read(source: Source, *, separator: str | None = None) -> Hierarchy:
    """Read lines of categories, from the highest to the lowest; lines that start with ``#`` are comments."""
    lines = [(i + 1, line.strip()) for i, line in enumerate(source.lines())]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    mark = separator or find_separator([line for _, line in lines])
    if mark is None:
        marks = "', '".join(SEPARATORS)
        raise source.fail(f"has no '{marks}' between categories in most lines; pass separator= (-O separator=...)")
    return from_lines(source, lines, mark)


def find_separator(lines: Sequence[str], marks: Sequence[str] = SEPARATORS) -> str | None:
    """The mark that makes most lines paths, several of which start alike; None if there is none."""
    longest_first = sorted(marks, key=len, reverse=True)  # an arrow contains its point
    marked = [mark for mark in longest_first if sum(mark in line for line in lines) > 1]
    bare = [_without_id(line)[1] for line in lines if line.strip() not in TOPS] if marked else []
    for mark in marked:
        paths = [_parts(line, mark) for line in bare]
        deep = [path for path in paths if len(path) > 1 and any(c.isalpha() for c in "".join(path))]  # not dates
        starts = Counter(path[0] for path in paths if path)
        again = sum(starts[path[0]] > 1 for path in deep)
        # Lines of the highest level have no mark; nearly all others do, and they share their start.
        if len(deep) > 1 and 2 * again >= len(deep) and 10 * len(deep) >= 9 * (len(paths) - len(starts)):
            return mark if all(paths) and 3 * len(deep) >= len(paths) else None
    return None


def column_of_paths(table: Table) -> tuple[int, str] | None:
    """The column of a table whose cells are breadcrumbs, and their separator."""
    for column in range(table.width):
        cells = [cells[column] for _, cells in table.rows if len(cells) > column and cells[column]]
        if 2 * len(cells) < len(table.rows) or any("://" in c or KNOWLEDGE_ID.fullmatch(c) for c in cells):
            continue
        # Paths such as flare.vis.axis: everything above each path has a row, too.
        above = {cell.rpartition(".")[0] for cell in cells if "." in cell}
        if len(above) > 1 and above <= set(cells) and not any(" " in cell for cell in above):
            beside = ["".join(row[:column] + row[column + 1 :]) for _, row in table.rows[1:]]
            named = sum(any(map(str.isalpha, text)) for text in beside) >= 0.9 * len(beside)
            return column, CODES if named or any(map(CODE.fullmatch, cells)) else "."
        mark = find_separator(cells[1:]) if len(cells) > 2 and ID.match(cells[0]) is None else find_separator(cells)
        if mark in SEPARATORS[:9] or (mark and sum(mark in cell for cell in cells) >= 0.9 * len(cells) - 1):
            return column, str(mark)
        listed = [cell for cell in cells if ";" in cell]  # lineages such as k__Bacteria; p__Firmicutes
        if len(listed) >= max(2, 0.9 * len(cells) - 1) and find_separator(listed, (";",)):
            return column, ";"
    return None


def _coded(source: Source, table: Table, column: int) -> Hierarchy:
    """The hierarchy of codes such as 1.1.2, which include the codes above; names are in another column."""
    first = "".join(table.rows[0][1][column : column + 1])
    titled = not any(map(str.isdigit, first)) and not any(c[column].startswith(f"{first}.") for _, c in table.rows[1:])
    titles = table.rows[0][1] if titled else []
    header = [*titles, *table.numbered[len(titles) :]]
    rows = [(line, cells) for line, cells in table.rows[titled:] if column < len(cells) and cells[column]]
    twice = [line for (line, a), (_, b) in pairwise(sorted(rows, key=lambda r: r[1][column])) if a[column] == b[column]]
    if twice:
        raise source.fail("its code appears twice; remove one of them", twice[0])
    other = [i for i in range(table.width) if i != column]
    named = sorted(other, key=lambda i: -len({cells[i] for _, cells in rows if i < len(cells)}))[:1]
    texts = {cells[column]: cells[named[0]] if named and named[0] < len(cells) else "" for _, cells in rows}
    edges = [(code.rpartition(".")[0], code) for code in texts if "." in code]
    tops = [code for code in texts if "." not in code]
    source.understood = f"codes in column {quote(header[column])}" + (
        f", name in {quote(header[named[0]])}" if named else ""
    )
    return Hierarchy.from_edges(with_lone_tops(edges, tops), {code: text for code, text in texts.items() if text})


def in_table(source: Source, table: Table, codes: bool = True) -> Hierarchy | None:
    """The hierarchy of a column of breadcrumbs or codes; None if a table has no such column."""
    match = column_of_paths(table)
    if match is None or (match[1] == CODES and not codes):
        return None
    column, mark = match
    if mark == CODES:
        return _coded(source, table, column)
    rows = [(line, cells) for line, cells in table.rows if len(cells) > column and cells[column]]
    title = rows[0][1][column]
    starts = {_parts(cells[column], mark)[0] for _, cells in rows[1:]}
    is_header = len(_parts(title, mark)) == 1 and title not in starts
    rows = rows[is_header:]
    whole = [i for i in range(min(len(cells) for _, cells in rows)) if i != column]
    unique = [i for i in whole if len({cells[i] for _, cells in rows}) == len(rows)]
    name = f"column {quote(title)}" if is_header else f"column {column + 1}"
    lines = [(line, f"{cells[unique[0]]}\t{cells[column]}" if unique else cells[column]) for line, cells in rows]
    return from_lines(source, lines, mark, name, bool(unique))


def from_lines(
    source: Source, lines: Sequence[Line], mark: str, where: str = "", has_ids: bool | None = None
) -> Hierarchy:
    """The hierarchy of lines of breadcrumbs."""
    lines = [(number, line) for number, line in lines if line.strip() not in TOPS]
    split = [line.partition("\t")[::2] if has_ids else _without_id(line) for _, line in lines]
    without = [number for (number, _), (identity, _) in zip(lines, split, strict=True) if not identity]
    numbered = not without if has_ids is None else has_ids
    if without and has_ids is None and 2 * len(without) < len(lines):
        raise source.fail("has no id at the start, although other lines do; add one, or remove the others", without[0])
    paths = [_parts(rest if numbered else line, mark) for (_, line), (_, rest) in zip(lines, split, strict=True)]
    steps: dict[tuple[int, str], int] = {}  # a number for every start of a path
    ends_at = [(_numbers(path, steps) or [0])[-1] for path in paths]
    pairs = {(end, identity) for end, (identity, _) in zip(ends_at, split, strict=True)} if numbered else set()
    known = dict(pairs)
    if len(known) < len(pairs):
        known = {}
        source.notes.append("ids ignored because one path has several")
    ends = [{path[end] for path in paths if path} for end in (0, -1)]
    if all(len(path) == 2 and all(path) for path in paths) and ends[0] & ends[1] and not known:
        source.understood = f"edges, parent {mark} child"
        return Hierarchy.from_edges(paths)
    draft = Draft(source, "qualify")
    n_again = len(ends_at) - len(set(ends_at))
    for (number, line), path in zip(lines, paths, strict=True):
        if not path or not all(path):
            raise source.fail(
                f"expected categories separated by {quote(mark)}, none of them empty; got {quote(line)}", number
            )
        parent = None
        for label, step in zip(path, _numbers(path, steps), strict=True):
            identity = known.get(step)
            own: Any = {"name": label, "has_id": True} if identity is not None else {}
            parent = draft.add(label if identity is None else identity, parent, line=number, same=True, **own)
    source.understood = f"breadcrumbs separated by {quote(mark)}{f' in {where}' if where else ''}"
    source.understood += ", with ids" if known else ""
    source.otherwise = "if the lines are not paths, pass -O format=outline" if not where else ""
    source.notes += [f"skipped: {counted(n_again, 'line')} repeated"] if n_again else []
    return draft.hierarchy()


def _numbers(path: Sequence[str], steps: dict[tuple[int, str], int]) -> list[int]:
    """The number of every start of a path, from the first category to all of them; new starts are added to `steps`."""
    numbers = [0]
    for label in path:
        numbers.append(steps.setdefault((numbers[-1], label), len(steps) + 1))
    return numbers[1:]


def _without_id(line: str) -> tuple[str, str]:
    match = ID.match(line)
    return (match[1] or match[2].strip(), line[match.end() :]) if match else ("", line)


def _parts(line: str, mark: str) -> list[str]:
    cut = line.strip().strip(mark) if len(mark) == 1 else line
    parts = [part.strip() for part in cut.split(mark)]
    return [part for part in parts if part not in ("", ".")] if mark in ("/", "\\") else parts
