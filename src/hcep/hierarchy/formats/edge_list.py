"""Tables, CSV, TSV or a workbook: rows of parent, child[, name of the child], or level columns, or breadcrumbs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import pairwise

from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.edges import with_lone_tops
from hcep.hierarchy.formats import breadcrumbs, levels as level_columns
from hcep.hierarchy.formats.column_names import NO_PARENT, is_edge_header, parent_columns, plain
from hcep.hierarchy.formats.draft import Draft
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.table_file import DELIMITERS, Row, Table, read_table
from hcep.hierarchy.formats.table_shape import Shape, chosen_columns, find_shape
from hcep.hierarchy.graph import Hierarchy

HEADER = ("parent", "child", "name")
#: Names of a column that says how deep a row is.
DEPTHS = ("level", "depth", "ebene", "tier", "niveau", "nivel", "stufe", "indent", "hierarchy level", "lvl")
DEPTH = re.compile(r"(?:level|tier|ebene|niveau|nivel|stufe|lvl|l)?[ _-]?(\d+)", re.IGNORECASE)
YES_NO = {"yes": True, "true": True, "no": False, "false": False}


def read(
    source: Source,
    *,
    levels: Sequence[str] | None = None,
    leaf: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    child: str | None = None,
    header: str | bool | None = None,
    blank: str | None = None,
    delimiter: str | None = None,
    sheet: str | None = None,
) -> Hierarchy:
    """Read a table for what it is; what was decided, and how to say otherwise, is told.

    Parameters
    ----------
    levels : columns of levels from the highest to the lowest, by name or number
    leaf, name : columns with the ids and the display names of the classes of level columns
    parent, child : columns of an edge list, by name or number
    header : "yes" or "no"; whether the first row has the names of the columns
    blank : {"above", "skip"}; what an empty cell of level columns means
    delimiter : what cells are apart by: a character, or tab, comma, semicolon, pipe
    sheet : of a workbook
    """
    table = read_table(source, delimiter, sheet)
    if not table.rows:
        raise source.fail("holds no rows; expected parent, child[, name]")
    told = YES_NO.get(header.casefold()) if isinstance(header, str) else header
    if header is not None and told is None:
        raise source.fail(f"header must be yes or no, got {header!r}")
    if levels is not None or leaf is not None or (name is not None and parent is None):
        return level_columns.from_table(source, table, levels, leaf=leaf, name=name, blank=blank)
    if parent is None and child is None and not is_edge_header(table.rows[0][1]) and not _names_parents(table):
        steps = depth_column(table)
        paths = breadcrumbs.in_table(source, table, codes=steps is None)
        if paths is not None:
            return paths
        if steps is not None:
            return _from_depths(source, table, steps)
    return from_table(source, table, table_shape(source, table, parent, child, told), blank)


def from_table(source: Source, table: Table, shape: Shape | None = None, blank: str | None = None) -> Hierarchy:
    """The hierarchy of a table, an edge list or level columns."""
    shape = shape or table_shape(source, table)
    if shape.kind == "levels":
        return level_columns.build(source, shape, table, blank=blank)
    return _from_edges(source, shape)


def is_clearly(source: Source, table: Table, mark: str) -> bool:
    """Whether lines cut at a mark are a table: parents that come again as children, or three levels at least."""
    try:
        shape = find_shape(source, table)
    except HierarchyError:
        return False
    first, second = (
        set(column) for column in list(zip(*(shape.cells(cells) for _, cells in shape.rows), strict=True))[:2]
    )
    return bool(first & second) if shape.kind == "edges" else mark == "," and len(shape.columns) > 2


def _names_parents(table: Table) -> bool:
    """Whether the header names a column of parents, of which some come again in another."""
    columns = [{cells[i] for _, cells in table.rows[1:] if i < len(cells)} - {""} for i in range(table.width)]
    parents = parent_columns(table.rows[0][1])
    return any(columns[p] & columns[c] for p in parents for c in range(table.width) if c not in parents)


def depth_column(table: Table) -> int | None:
    """The column that says how deep each row is, counted from the first row's on: level 1, 2, 3, 3, 2, 3."""
    for column, name in enumerate(table.rows[0][1]):
        if plain(name) in DEPTHS:
            cells = [DEPTH.fullmatch(cells[column] if len(cells) > column else "") for _, cells in table.rows[1:]]
            if all(cells):
                depths = [int(cell[1]) for cell in cells if cell]
                if len(set(depths)) > 1 and min(depths) == depths[0] and all(b <= a + 1 for a, b in pairwise(depths)):
                    return column
    return None


def _from_depths(source: Source, table: Table, column: int) -> Hierarchy:
    header, *rows = table.rows
    others = [i for i in range(len(header[1])) if i != column]
    named = [i for i in others if set(plain(header[1][i]).split()) & {"name", "title", "label", "description"}]
    worded = [i for i in others if not set(plain(header[1][i]).split()) & {"id", "code", "key"}]
    label = (named or worded or others)[0]
    draft = Draft(source, "qualify")
    above: dict[int, int] = {}
    for line, cells in rows:
        depth = int(re.sub(r"\D", "", cells[column]))
        above[depth] = draft.add(cells[label] if len(cells) > label else "", above.get(depth - 1), line=line)
    titles = header[1]
    source.understood = f"outline, depth in {titles[column]!r}, name in {titles[label]!r}"
    source.otherwise = "if that is no depth, pass -O levels=HIGHEST,...,LOWEST or -O parent=COLUMN -O child=COLUMN"
    return draft.hierarchy()


def table_shape(
    source: Source, table: Table, parent: str | None = None, child: str | None = None, header: bool | None = None
) -> Shape:
    """What a table is taken for."""
    if parent is None and child is None:
        if table.width == 1:
            raise source.fail(
                "has one column: expected parent, child[, name], or a column per level; are its cells apart by another "
                "mark than ',', ';', '|' or a tab (-O delimiter=...), or is it a list of classes (--format outline)?"
            )
        return find_shape(source, table, header=header)
    if parent is None or child is None:
        raise source.fail("pass parent= and child= together, a column each")
    names = table.rows[0][1]
    is_header = header if header is not None else {parent, child} <= set(names) or not (parent + child).isdecimal()
    names = [*names, *[""] * (table.width - len(names))]
    names = names if is_header else [f"column {i + 1}" for i in range(table.width)]
    pair = chosen_columns(source, names, (parent, child))
    other = [i for i, title in enumerate(names) if i not in pair and (title.casefold() == "name" or table.width == 3)]
    return Shape("edges", names, table.rows[is_header:], (*pair, *other[:1]), True, bool(is_header))


def edge_rows(source: Source) -> list[Row] | None:
    """The rows of an edge list as (parent, child[, name]), not yet known to be sound; None where it is none."""
    table = read_table(source)
    if not table.rows or table.width < 2:
        return None
    if not is_edge_header(table.rows[0][1]) and breadcrumbs.column_of_paths(table) is not None:
        return None
    shape = table_shape(source, table)
    if shape.kind == "levels" and len(shape.columns) > 2:
        return None
    edges = [(line, shape.cells(cells)) for line, cells in shape.rows]
    return [(line, edge[: 2 + bool(edge[2:] and edge[2])]) for line, edge in edges]


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


def _from_edges(source: Source, shape: Shape) -> Hierarchy:
    rows = [(line, shape.cells(cells)) for line, cells in shape.rows]
    children = {cells[1] for _, cells in rows}
    parents = {cells[0] for _, cells in rows if cells[0]}
    none = {cell for cell in parents - children if cell.casefold() in NO_PARENT}
    marker = none if len(none) == 1 and len(parents) > 1 and not is_edge_header(shape.names) else set()
    known = children | parents
    own = [cells[1] for _, cells in rows if cells[0] == cells[1]]
    # Tables with ids give the root as its own parent.
    all_above = all(parent for _, (parent, *_) in rows)
    top = set(own) if len(own) == 1 and len(parents) > 1 and all_above and not is_edge_header(shape.names) else set()
    edges, names = [], dict[str, str]()
    above, n_above, n_split = "", 0, 0
    lone: list[str] = []  # at the top, with nothing below
    repeats = any(a[1][0] == b[1][0] != "" for a, b in pairwise(rows))
    roots_given = any(not parent and child in parents for _, (parent, child, *_) in rows)
    for line, (parent, child, *rest) in rows:
        if not child:
            raise source.fail(f"expected parent, child[, name]; got {[parent, child, *rest]!r}", line)
        if not parent and child not in parents and parents:  # of a root it would be no row: a merged cell
            if repeats and roots_given:
                lone.append(child)
            elif not above or repeats:
                raise source.fail(f"{child!r} has no parent and is none; fill in its parent, or remove the row", line)
            else:
                parent, n_above = above, n_above + 1
        if parent == child and child not in top:
            raise source.fail(f"synset {child!r} is its own parent; write another, or leave it out", line)
        above = parent
        several = [part.strip() for part in re.split(r"[;|]", parent)]
        split = parent not in children and len(several) > 1 and all(part in known for part in several)
        n_split += split
        edges += [(p, child) for p in (several if split else [parent]) if p and p not in marker and child not in top]
        if rest and rest[0] and names.setdefault(child, rest[0]) != rest[0]:
            told = f"synset {child!r} is given two names, {names[child]!r} and {rest[0]!r}"
            raise source.fail(f"{told}; keep one of them, or give the two meanings ids of their own", line)
    if not edges:
        raise source.fail("holds no edges; expected rows of parent, child[, name]")
    columns = f"edge list, parent in {shape.titles[0]!r}, child in {shape.titles[1]!r}"
    source.understood = columns + (f", name in {shape.titles[2]!r}" if len(shape.titles) > 2 else "")
    if not shape.known:
        source.otherwise = "taken so by its cells; if the columns are levels, pass -O levels=HIGHEST,...,LOWEST"
    source.notes += shape.notes
    source.notes += [f"its own parent, so the root: {quoted(top)}"] if top else []
    source.notes += [f"several parents in one cell: {counted(n_split, 'row')}"] if n_split else []
    source.notes += [f"no parent: {quoted(marker)}"] if marker else []
    source.notes += [f"empty cells read as in the row above: {counted(n_above, 'row')}"] if n_above else []
    source.notes += [f"at the top with nothing below: {quoted(lone)}"] if lone else []
    return Hierarchy.from_edges(with_lone_tops(edges, lone), names)


def _refuse_altered(synset: str, name: str, format: str) -> None:
    for text in (synset, name):
        if text != text.strip() or not text:
            raise HierarchyError(
                f"{format} cannot hold {text!r} of synset {synset!r}: a cell is not empty and has no blanks at its "
                "ends; rename it, or write .json"
            )
    if synset.startswith("#"):
        raise HierarchyError(f"{format} cannot hold synset {synset!r}: its line would be a comment; write .json")
