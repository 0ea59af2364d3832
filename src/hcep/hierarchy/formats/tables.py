"""Tables (CSV, TSV, a workbook, JSON records): rows of parent, child[, name of the child], or a column per level.

Level columns have a row per class, as in iNaturalist's categories. Breadcrumbs, depths and codes in a column are
recognised, too.
"""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hcep.errors import HierarchyError, counted, cut, quote, quoted
from hcep.hierarchy.columns import Cells, Columns
from hcep.hierarchy.edges import find_cycles, longest_levels, with_lone_tops
from hcep.hierarchy.formats import Format, breadcrumbs, table_file as words
from hcep.hierarchy.formats.draft import Draft
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_file import DELIMITERS, Row, Table, read_table
from hcep.hierarchy.formats.table_rows import edge_table, level_table
from hcep.hierarchy.formats.table_shape import Shape, ShapeFinder, chosen_columns, column_of
from hcep.hierarchy.formats.writing import detail_losses
from hcep.hierarchy.graph import Hierarchy

#: Names of a column with the depth of each row.
DEPTHS = ("level", "depth", "ebene", "tier", "niveau", "nivel", "stufe", "indent", "hierarchy level", "lvl")
DEPTH = re.compile(r"(?:level|tier|ebene|niveau|nivel|stufe|lvl|l)?[ _-]?(\d{1,4})", re.IGNORECASE)
#: A column with more different cells than this has no ranks.
MAX_RANKS = 100
NO_COLUMNS = Columns({})
#: Most titles of level columns in the sentence about a table.
MAX_TITLES = 12
YES_NO = {"yes": True, "true": True, "no": False, "false": False}
Titles = Sequence[str] | None
Option = str | None


def read(
    source: Source,
    *,
    levels: Titles = None,
    leaf: Option = None,
    name: Option = None,
    parent: Option = None,
    child: Option = None,
    header: str | bool | None = None,
    blank: Option = None,
    delimiter: Option = None,
    sheet: Option = None,
) -> Hierarchy:
    """Read a table, and report what it was read as and how to have it read differently.

    Parameters
    ----------
    levels : level columns by name or number, from the highest to the lowest
    leaf, name : columns with the ids and the display names of the classes
    parent, child : columns of an edge list
    header : "yes" or "no"
    blank : an empty cell of level columns means the cell "above", or to "skip" the level
    delimiter : a character, or tab, comma, semicolon or pipe
    sheet : of a workbook

    Notes
    -----
    Format "levels" reads only level columns, also from a JSON list of records (or one under ``"categories"``). By
    default these are the biological ranks among the columns, with ``name`` as the lowest if there is no ``species``; or
    ``level1, level2, ...``; or ``supercategory`` and ``name`` (COCO). In iNaturalist's file, ``image_dir_name`` is the
    leaf and ``common_name`` the name.
    """
    has_levels = source.format == "levels" and parent is None
    is_json = has_levels and source.data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    table = records_table(source, source.json()) if is_json else read_table(source, delimiter, sheet)
    if not table.rows:
        raise source.fail("has no rows; expected parent, child[, name]")
    if has_levels and levels is None and not words.known_levels(table.rows[0][1]):
        raise source.fail(
            f"none of the columns {quoted(table.rows[0][1], 9)} is known as a level; pass levels=[highest, ...] "
            "(-O levels=highest,... on the command line)"
        )
    has_header = YES_NO.get(header.casefold()) if isinstance(header, str) else header
    if header is not None and has_header is None:
        raise source.fail(f"header must be yes or no, got {quote(header)}")
    if has_levels or levels is not None or leaf is not None or (name is not None and parent is None):
        return from_levels(source, table, levels, leaf=leaf, name=name, blank=blank)
    if parent is None and child is None and not words.is_edge_header(table.rows[0][1]) and not _names_parents(table):
        steps = _depth_column(table)
        paths = breadcrumbs.in_table(source, table, codes=steps is None)
        if paths is not None:
            return paths
        if steps is not None:
            return _from_depths(source, table, steps)
    return from_table(source, table, _shape(source, table, parent, child, has_header), blank)


def records_table(source: Source, data: Any) -> Table:
    """A list of JSON records, or an object with one under ``"categories"``, as a table."""
    listed = data.get("categories") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not listed or not all(isinstance(record, dict) for record in listed):
        raise source.fail('expected a list of records such as {"kingdom": "Animalia", ..., "name": "Felis catus"}')
    columns = list(dict.fromkeys(column for record in listed for column in record))
    words.refuse_wide(source, Table([(0, columns)]))
    values = [[record.get(column, []) for column in columns] for record in listed]  # several parents are a list
    cells = [[";".join(map(str, v)) if isinstance(v, list) else "" if v is None else str(v) for v in r] for r in values]
    return Table([(0, columns), *((i + 1, row) for i, row in enumerate(cells))])


def from_table(source: Source, table: Table, shape: Shape | None = None, blank: str | None = None) -> Hierarchy:
    """The hierarchy of a table, an edge list or level columns."""
    shape = shape or _shape(source, table)
    return _levels(source, shape, table, blank=blank) if shape.kind == "levels" else _edges(source, shape)


def _shape(
    source: Source, table: Table, parent: Option = None, child: Option = None, header: bool | None = None
) -> Shape:
    if parent is None and child is None:
        if table.width == 1:
            raise source.fail(
                "has one column: expected parent, child[, name], or a column per level; are its cells separated by a "
                "mark other than ',', ';', '|' or a tab (-O delimiter=...), or is it a list of classes "
                "(-O format=outline)?"
            )
        return ShapeFinder(source, table, header).shape()
    if parent is None or child is None:
        raise source.fail("pass parent= and child= together")
    names = table.rows[0][1]
    is_header = header if header is not None else {parent, child} <= set(names) or not (parent + child).isdecimal()
    names = [*names, *[""] * (table.width - len(names))] if is_header else table.numbered
    pair = chosen_columns(source, names, (parent, child))
    rank = next(
        (i for i, title in enumerate(names) if i not in pair and words.plain(title) in words.RANK_COLUMNS), None
    )
    rest = [i for i in range(len(names)) if i not in (*pair, rank)]
    other = [i for i in rest if names[i].casefold() == "name" or len(rest) == 1]
    return Shape("edges", names, table.rows[is_header:], (*pair, *other[:1]), rank=rank)


def is_clearly(source: Source, table: Table, mark: str) -> bool:
    """Whether lines split at a mark are a table: parents that are also children, or at least three levels."""
    try:
        shape = ShapeFinder(source, table).shape()
    except HierarchyError:
        return False
    first, second, *_ = map(set, zip(*(shape.cells(cells) for _, cells in shape.rows), strict=True))
    return bool(first & second) if shape.kind == "edges" else mark == "," and len(shape.columns) > 2


def edge_rows(source: Source) -> list[Row] | None:
    """The unchecked rows of an edge list as (parent, child[, name]); None if the table is not an edge list."""
    table = read_table(source)
    if not table.rows or table.width < 2:
        return None
    if not words.is_edge_header(table.rows[0][1]) and breadcrumbs.column_of_paths(table) is not None:
        return None
    shape = _shape(source, table)
    if shape.kind == "levels" and len(shape.columns) > 2:
        return None
    edges = [(line, shape.cells(cells)) for line, cells in shape.rows]
    return [(line, edge[: 2 + bool(edge[2:] and edge[2])]) for line, edge in edges]


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write a table with the columns of the one that the hierarchy was read from, or else an edge list."""
    for synset in hierarchy:
        for text in (synset, hierarchy.name(synset), hierarchy.ranks.get(synset, synset)):
            if text != text.strip() or not text:
                raise HierarchyError(
                    f"{format} cannot hold {quote(text)} of concept {quote(synset)}: a cell cannot be empty or have "
                    "spaces at its ends; rename it, or write .json"
                )
        if synset.startswith("#"):
            raise HierarchyError(
                f"{format} cannot hold concept {quote(synset)}: its line would be a comment; write .json"
            )
    columns = hierarchy.columns
    with suppress(HierarchyError):  # `level_losses` reports it
        if columns and columns.titles("level"):
            return _with_levels(hierarchy, columns, format)
    text = _text(edge_table(hierarchy, columns or NO_COLUMNS), format)
    same = columns is None or _has_edges(hierarchy, text, format)
    return text if same else _text(edge_table(hierarchy, NO_COLUMNS), format)


def level_losses(hierarchy: Hierarchy, format: Format, text: str) -> tuple[str, ...] | None:
    """What a table that `write` made of a hierarchy from level columns does not keep; None for one from another file.

    If level columns cannot hold the hierarchy, the first sentence says why, and the others what an edge list loses.
    """
    columns = hierarchy.columns
    if columns is None or not columns.titles("level"):
        return None
    rows = list(csv.reader(io.StringIO(text), delimiter=DELIMITERS[format.name]))
    if rows[0] != list(columns.roles):
        why = "its empty cells would be misread"
        try:
            level_table(hierarchy, columns)
        except HierarchyError as error:
            why = str(error)
        return (f"{format.name}: written as parent and child, because {why}", *detail_losses(format, hierarchy))
    plain, options = _read_again(text, format.name), _level_options(columns)
    is_plain = _has_rows(plain, columns, rows)
    again = plain if is_plain else _read_again(text, format.name, **options)
    assert again is not None  # `write` has read it
    names = {again.name(s) for s in again}
    merged = [name for s in hierarchy for _, name in hierarchy.merged(s) if name not in names]
    renamed = [s for s in hierarchy.leaves if s not in again]
    pairs = ", ".join(f"{quote(s)} is {quote(hierarchy.name(s))}" for s in renamed[:3])
    named = {option: [value] if isinstance(value, str) else value for option, value in options.items()}
    needed = "".join(f" -O {option}={','.join(titles)}" for option, titles in named.items())
    classes = counted(len(renamed), "class")
    losses = {
        f"the names merged into other concepts are lost ({quoted(merged)})": merged,
        f"{classes} with another label, the name in its cell: {pairs}; relabel the images": renamed,
        f"read it with{needed}": not is_plain,
    }
    return tuple(f"{format.name}: {sentence}" for sentence, is_lost in losses.items() if is_lost)


def _with_levels(hierarchy: Hierarchy, columns: Columns, format: str) -> str:
    """The table with the level columns of the file; reading it gives a hierarchy with the same rows."""
    rows = level_table(hierarchy, columns)
    text = _text(rows, format)
    if not _has_rows(_read_again(text, format, **_level_options(columns)), columns, rows):
        raise HierarchyError("its empty cells would be misread")
    return text


def _has_rows(hierarchy: Hierarchy | None, columns: Columns, rows: list[list[str]]) -> bool:
    """Whether a hierarchy that was read has these columns, with the same meaning, and these rows in any order."""
    own = None if hierarchy is None else hierarchy.columns
    if hierarchy is None or own is None or list(own.roles.items()) != list(columns.roles.items()):
        return False
    return sorted(level_table(hierarchy, own)) == sorted(rows)


def _level_options(columns: Columns) -> dict[str, Any]:
    """The options that name the level columns, and those of ids and names of classes."""
    beside = {option: columns.titles(option)[0] for option in ("leaf", "name") if columns.titles(option)}
    return {"levels": columns.titles("level"), **beside}


def _read_again(text: str, format: str, **options: Any) -> Hierarchy | None:
    try:
        return read(Source("table", text.encode(), format), **options)
    except HierarchyError:
        return None


def _has_edges(hierarchy: Hierarchy, text: str, format: str) -> bool:
    """Whether reading a table gives the concepts, edges and names of a hierarchy."""
    again = _read_again(text, format)
    parts = [(h.ids, h.edges, [h.name(s) for s in h]) for h in (hierarchy, again) if h is not None]
    return parts[0] == parts[-1] and again is not None


def _text(rows: Sequence[Sequence[str]], format: str) -> str:
    lines = io.StringIO()
    csv.writer(lines, delimiter=DELIMITERS[format]).writerows(rows)
    return lines.getvalue()


def _edges(source: Source, shape: Shape) -> Hierarchy:
    rows = [(line, shape.cells(cells)) for line, cells in shape.rows]
    children = {cells[1] for _, cells in rows}
    parents = {cells[0] for _, cells in rows if cells[0]}
    known, has_header = children | parents, words.is_edge_header(shape.names)
    none = {cell for cell in parents - children if cell.casefold() in words.NO_PARENT}
    marker = none if len(none) == 1 and len(parents) > 1 and not has_header else set()
    own = [cells[1] for _, cells in rows if cells[0] == cells[1]]
    # Tables with ids may have the root as its own parent.
    all_above = all(parent for _, (parent, *_) in rows)
    top = set(own) if len(own) == 1 and len(parents) > 1 and all_above and not has_header else set()
    edges, names = [], dict[str, str]()
    above, n_above, n_split = "", 0, 0
    lone: list[str] = []  # at the top, without children
    repeats = any(a[1][0] == b[1][0] != "" for a, b in pairwise(rows))
    roots_given = any(not parent and child in parents for _, (parent, child, *_) in rows)
    for line, (parent, child, *rest) in rows:
        if not child:
            raise source.fail(f"expected parent, child[, name]; got {quote([parent, child, *rest])}", line)
        if not parent and child not in parents and parents:  # not a root: a merged cell
            if repeats and roots_given:
                lone.append(child)
            elif not above or repeats:
                raise source.fail(
                    f"{quote(child)} has no parent and no children; add its parent, or remove the row", line
                )
            else:
                parent, n_above = above, n_above + 1
        if parent == child and child not in top:
            raise source.fail(f"concept {quote(child)} is its own parent; correct it, or leave it empty", line)
        above = parent
        several = [part.strip() for part in re.split(r"[;|]", parent)]
        split = parent not in children and len(several) > 1 and all(part in known for part in several)
        n_split += split
        edges += [(p, child) for p in (several if split else [parent]) if p and p not in marker and child not in top]
        if rest and rest[0] and names.setdefault(child, rest[0]) != rest[0]:
            message = f"concept {quote(child)} has two names, {quote(names[child])} and {quote(rest[0])}"
            raise source.fail(f"{message}; keep one of them, or give each meaning its own id", line)
    if not edges:
        raise source.fail("has no edges; expected rows of parent, child[, name]")
    columns = f"edge list, parent in {quote(shape.titles[0])}, child in {quote(shape.titles[1])}"
    source.understood = columns + (f", name in {quote(shape.titles[2])}" if len(shape.titles) > 2 else "")
    if not shape.known:
        source.otherwise = "inferred from its cells; if the columns are levels, pass -O levels=HIGHEST,...,LOWEST"
    remarks = {
        f"its own parent and therefore the root: {quoted(top)}": top,
        f"several parents in one cell: {counted(n_split, 'row')}": n_split,
        f"no parent: {quoted(marker)}": marker,
        f"empty cells filled from the row above: {counted(n_above, 'row')}": n_above,
        f"at the top and without children: {quoted(lone)}": lone,
    }
    source.notes += [*shape.notes, *(note for note, things in remarks.items() if things)]
    cells_of: dict[str, list[Cells]] = {}
    if {*shape.roles.values()} > {"parent", "child"}:
        for (_, cells), (_, (_, child, *_)) in zip(shape.rows, rows, strict=True):
            cells_of.setdefault(child, []).append(shape.cells_beside(cells))
    hierarchy = Hierarchy.from_edges(with_lone_tops(edges, lone), names)
    with_cells = {child: rows for child, rows in cells_of.items() if any(rows)}
    hierarchy = hierarchy.with_columns(shape.table_columns(with_cells))
    if shape.rank is None:
        return hierarchy
    ranks = {row[1]: cell for (_, row), cell in zip(rows, column_of(shape.rows, shape.rank), strict=True)}
    return with_rank_cells(source, hierarchy, ranks, shape.names[shape.rank])


def with_rank_cells(source: Source, hierarchy: Hierarchy, cells: dict[str, str], title: str) -> Hierarchy:
    """The hierarchy with the ranks of an edge list or of records, by concept, unless their texts cannot be ranks.

    Ranks have an order: a genus is never above a family, nor below another genus. Cells without one are something else,
    such as how common a species is.
    """
    ranks = {s: cell for s, cell in cells.items() if s in hierarchy and cell.casefold() not in words.NO_RANK}
    ranks = ranks if len(set(ranks.values())) <= MAX_RANKS else {}
    above: dict[str, set[str]] = {}  # the nearest ranks above each concept
    for synset in hierarchy:
        parents = hierarchy.parents(synset)
        above[synset] = {r for p in parents for r in ([ranks[p]] if p in ranks else above[p])}
    pairs = list(dict.fromkeys((upper, rank) for s, rank in ranks.items() for upper in above[s]))
    cycle = next(find_cycles(pairs), None)
    if cycle:
        source.notes.append(
            f"column {quote(title)} not used as ranks: {quote(cycle[0])} occurs both above and below {quote(cycle[-1])}"
        )
        return hierarchy
    names = list(dict.fromkeys(ranks.values()))
    upper_of = {rank: [names.index(upper) for upper, lower in pairs if lower == rank] for rank in names}
    order = dict(zip(names, longest_levels(names, list(upper_of.values())), strict=True))
    return hierarchy.with_ranks(dict(sorted(ranks.items(), key=lambda pair: order[pair[1]])))


def _names_parents(table: Table) -> bool:
    """Whether the header names a column of parents, some of which also appear in another column."""
    columns = [{cells[i] for _, cells in table.rows[1:] if i < len(cells)} - {""} for i in range(table.width)]
    parents = words.parent_columns(table.rows[0][1])
    return any(columns[p] & columns[c] for p in parents for c in range(table.width) if c not in parents)


def _depth_column(table: Table) -> int | None:
    """The column with the depth of each row, such as 1, 2, 3, 3, 2, 3."""
    for column in [i for i, name in enumerate(table.rows[0][1]) if words.plain(name) in DEPTHS]:
        cells = [DEPTH.fullmatch(cells[column] if len(cells) > column else "") for _, cells in table.rows[1:]]
        depths = [int(cell[1]) for cell in cells if cell]
        rises = len(set(depths)) > 1 and min(depths) == depths[0] and all(b <= a + 1 for a, b in pairwise(depths))
        if all(cells) and rises:
            return column
    return None


def _from_depths(source: Source, table: Table, column: int) -> Hierarchy:
    (_, titles), *rows = table.rows
    title_words = {i: set(words.plain(title).split()) for i, title in enumerate(titles) if i != column}
    named = [i for i in title_words if title_words[i] & {"name", "title", "label", "description"}]
    others = [i for i in title_words if not title_words[i] & {"id", "code", "key"}]
    label = (named or others or list(title_words))[0]
    draft = Draft(source, "qualify")
    above: dict[int, int] = {}
    for line, cells in rows:
        depth = int(re.sub(r"\D", "", cells[column]))
        above[depth] = draft.add(cells[label] if len(cells) > label else "", above.get(depth - 1), line=line)
    source.understood = f"outline, depth in {quote(titles[column])}, name in {quote(titles[label])}"
    source.otherwise = "if that is not a depth, pass -O levels=HIGHEST,...,LOWEST or -O parent=COLUMN -O child=COLUMN"
    return draft.hierarchy()


def from_levels(source: Source, table: Table, levels: Titles = None, **options: str | None) -> Hierarchy:
    """Read a table whose levels are known by name or given; `options` are leaf, name and blank of `read`."""
    names = table.rows[0][1]
    if levels is None:
        return _levels(source, ShapeFinder(source, table, True).shape(), table, **options)
    wanted = [levels] if isinstance(levels, str) else list(levels)
    if all(column.isdecimal() for column in wanted) and not set(wanted) <= set(names):
        names = table.numbered  # numbers: there is no header
    chosen = chosen_columns(source, names, wanted)
    rows = table.rows[names is table.rows[0][1] :]
    return _levels(source, Shape("levels", list(names), rows, chosen), table, **options)


def _levels(
    source: Source, shape: Shape, table: Table, leaf: Option = None, name: Option = None, blank: Option = None
) -> Hierarchy:
    id_column, name_column = (chosen_columns(source, shape.names, [c])[0] if c else None for c in (leaf, name))
    draft = Draft(source, "qualify")
    seen: set[tuple[object, ...]] = set()
    n_again = 0
    columns: dict[int, set[int]] = {}  # the levels at which each branch appears
    cells_of: dict[int, list[Cells]] = {}  # the cells of each branch that are not levels
    shape = replace(shape, leaf=id_column, name=name_column)
    for (line, cells), path in zip(shape.rows, _completed(source, shape, blank), strict=True):
        own = [cells[c] if c is not None and c < len(cells) else "" for c in (id_column, name_column)]
        labels, levels = [cell for cell in path if cell], [i for i, cell in enumerate(path) if cell]
        if not labels:
            raise source.fail(f"a row has no value in any of the levels {quoted(shape.titles, 9)}", line)
        dated = [cell for cell in labels if cell in table.dates]
        if dated:
            raise source.fail(
                f"cell {table.dates[dated[0]]} contains a date, {dated[0]}; Excel turns names such as MARCH1 into "
                "dates: write the name again in a cell formatted as text"
            )
        beside = shape.cells_beside(cells)
        key = (*labels, *own, *beside.items())
        parent = None
        for label, level in zip(labels[:-1], levels[:-1], strict=True):
            parent = draft.add(label, parent, line=line, same=True)
            columns.setdefault(parent, set()).add(level)
        display = own[1] or (labels[-1] if leaf else None)
        last = draft.add(own[0] if leaf else labels[-1], parent, name=display, line=line, same=True)
        columns.setdefault(last, set()).add(levels[-1])
        cells_of.setdefault(last, []).extend([] if key in seen else [beside])
        n_again += key in seen
        seen.add(key)
    more = len(shape.titles) - MAX_TITLES
    titles = [*map(cut, shape.titles[:MAX_TITLES]), *([f"{more:,} more"] if more > 0 else [])]
    source.understood = f"level columns {' > '.join(titles)}"
    if not shape.known:
        source.otherwise = "inferred from its cells; if it is an edge list, pass -O parent=COLUMN -O child=COLUMN"
    source.notes += [*shape.notes, *([f"skipped: {counted(n_again, 'row')} repeated"] if n_again else [])]
    hierarchy = draft.hierarchy(_ranks_of(shape, table, columns))
    rows = {draft.ids[branch]: rows for branch, rows in cells_of.items()}
    # A class has a row in any case; only rows of other concepts, and cells beside the levels, are worth noting.
    rows = {s: rows for s, rows in rows.items() if any(rows) or not hierarchy.is_leaf(s)}
    return hierarchy.with_columns(shape.table_columns(rows))


def _ranks_of(shape: Shape, table: Table, columns: dict[int, set[int]]) -> dict[int, str]:
    """The rank of each branch, the highest first: the title of its level column.

    A column without a title gives no rank, nor does one whose title says what its cells are (a name, a label), nor two
    columns in which the same concept appears.
    """
    untitled = set(table.numbered)
    titles = {
        i: title
        for i, title in enumerate(shape.titles)
        if title not in untitled and not set(words.plain(title).split()) & (words.IDENTITY | words.ABOUT)
    }
    single = sorted((min(levels), branch) for branch, levels in columns.items() if len(levels) == 1)
    return {branch: titles[level] for level, branch in single if level in titles}


def _completed(source: Source, shape: Shape, blank: str | None) -> list[list[str]]:
    """The level cells of every row, with empty cells filled from above if that is their meaning.

    Merged cells leave empty cells on the left of a row, which mean the cell above. An empty cell between two others is
    a level that the row does not have, as in biology, unless every such cell could also be a merged one: then the table
    is refused.
    """
    if blank not in (None, "above", "skip"):
        raise source.fail(f"blank must be 'above' or 'skip', got {quote(blank)}")
    rows = [shape.cells(cells) for _, cells in shape.rows]
    if blank == "skip":
        return rows
    is_biology = len({words.plain(title) for title in shape.titles} & set(words.RANKS)) > 1
    filled: list[list[str]] = []
    # Line and column of each empty cell inside a row, and whether the cells before it equal those above.
    between: list[tuple[int, int, bool]] = []
    last = [""] * len(shape.columns)
    for (line, _), cells in zip(shape.rows, rows, strict=True):
        start = next((i for i, cell in enumerate(cells) if cell), len(cells))
        end = max((i + 1 for i, cell in enumerate(cells) if cell), default=0)
        if start and start < end and not all(last[:start]) and not filled:
            raise source.fail(f"column {quote(shape.titles[0])} is empty, and there is no row above; fill it in", line)
        cells = [*last[:start], *cells[start:]] if start < end else cells
        for i in range(start, end):
            if not cells[i]:
                same = bool(last[i]) and last[:i] == cells[:i]
                between.append((line, i, same))
                cells[i] = last[i] if blank == "above" and same else ""
        filled.append(cells)
        last = cells
    either = "the same as in the row above, or {}? pass blank= (-O blank=above or -O blank=skip on the command line)"
    # A first column that repeats cells in some rows and is empty in others may lack cells.
    empty = [i for i, cells in enumerate(rows) if not cells[0] and any(cells[1:])]
    repeats = [i for i in range(1, len(rows)) if rows[i][0] and rows[i][0] == rows[i - 1][0]]
    if empty and repeats and blank is None:
        column, other = quote(shape.titles[0]), shape.rows[repeats[0]][0]
        message = f"column {column} is empty here and repeats its cell in line {other:,}: {either.format('missing')}"
        raise source.fail(message, shape.rows[empty[0]][0])
    if between and blank is None and not is_biology and all(same for *_, same in between):
        line, at, _ = between[0]
        raise source.fail(f"column {quote(shape.titles[at])} is empty: {either.format('no such level')}", line)
    n_above = sum(new != old for new, old in zip(filled, rows, strict=True))
    n_skipped = len(between) if blank is None else 0
    source.notes += [f"empty cells filled from the row above: {counted(n_above, 'row')}"] if n_above else []
    source.notes += [f"skipped: {counted(n_skipped, 'empty cell')} between levels"] if n_skipped else []
    return filled
