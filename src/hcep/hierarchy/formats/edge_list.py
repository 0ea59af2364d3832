"""Edge lists, CSV or TSV: a row of parent, child[, name of the child]."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from hcep.errors import HierarchyError
from hcep.hierarchy.formats import levels as level_columns
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.graph import Hierarchy

DELIMITERS = {"csv": ",", "tsv": "\t"}
HEADER = ("parent", "child", "name")
#: What the two columns are called elsewhere: parent first, child second.
HEADERS = (HEADER[:2], ("source", "target"), ("superclass", "class"), ("superclass", "subclass"))


def read(
    source: Source, *, levels: Sequence[str] | None = None, leaf: str | None = None, name: str | None = None
) -> Hierarchy:
    """Read an edge list, or level columns where the header or `levels` says so.

    A first row that says ``parent, child`` is a header, as is ``source, target``, ``superclass, class`` or
    ``superclass, subclass``; one the other way round (``child, parent``) swaps the columns. Lines that start with ``#``
    are comments. A row without a parent names a root.
    """
    rows = list(table(source, DELIMITERS[source.format]))
    if not rows:
        raise source.fail("holds no rows; expected parent, child[, name]")
    wants_levels = levels is not None or leaf is not None or name is not None
    if wants_levels or has_levels(rows[0][1]):
        return level_columns.from_table(source, rows, levels, leaf, name)
    edges, names = _edges(source, rows)
    if not edges:
        raise source.fail("holds no edges; expected rows of parent, child[, name]")
    return Hierarchy.from_edges(edges, names)


def write(hierarchy: Hierarchy, format: str) -> str:
    """Children in index order, each with its first parent first: reading back gives the same DAG."""
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter=DELIMITERS[format])
    writer.writerow(HEADER)
    for synset in hierarchy:
        _refuse_altered(synset, hierarchy.name(synset), format)
    if hierarchy.name(hierarchy.root) != hierarchy.root:
        writer.writerow(("", hierarchy.root, hierarchy.name(hierarchy.root)))
    for child in hierarchy.ids[1:]:
        writer.writerows((parent, child, hierarchy.name(child)) for parent in hierarchy.parents(child))
    return lines.getvalue()


def header_order(cells: Sequence[str]) -> tuple[int, int] | None:
    """Where the parent and the child stand, as a first row says; None where it is no header."""
    first = tuple(cell.lower() for cell in cells[:2])
    if first in HEADERS:
        return 0, 1
    return (1, 0) if first[::-1] in HEADERS else None


def has_levels(cells: Sequence[str]) -> bool:
    """Whether a first row is the header of level columns; ``superclass, class, name`` is that of an edge list."""
    is_edges = len(cells) <= len(HEADER) and header_order(cells) is not None
    return not is_edges and bool(level_columns.known_levels(cells))


def table(source: Source, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold something, with the line each ends on; cells without the blanks around them."""
    rows = csv.reader(io.StringIO(source.text(), newline=""), delimiter=delimiter, strict=True)
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield rows.line_num, cells
    except csv.Error as error:
        raise source.fail(f"is not a table: {error}", rows.line_num) from None


def _edges(source: Source, rows: list[tuple[int, list[str]]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    order = header_order(rows[0][1])
    above, below = order or (0, 1)
    edges, names = [], []
    for line, cells in rows[order is not None :]:
        if len(cells) not in (2, 3) or not cells[below]:
            raise source.fail(f"expected parent, child[, name]; got {cells!r}", line)
        parent, child = cells[above], cells[below]
        if parent:
            edges.append((parent, child))
        if len(cells) == 3 and cells[2]:
            names.append((child, cells[2]))
    return edges, names


def _refuse_altered(synset: str, name: str, format: str) -> None:
    for text in (synset, name):
        if text != text.strip() or not text:
            raise HierarchyError(
                f"{format} cannot hold {text!r} of synset {synset!r}: a cell is not empty and has no blanks at its "
                "ends; rename it, or write .json"
            )
    if synset.startswith("#"):
        raise HierarchyError(f"{format} cannot hold synset {synset!r}: its line would be a comment; write .json")
