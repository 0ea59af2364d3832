"""Level columns: a row per class, a column per level, as taxonomies are kept (iNaturalist's categories among them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcep.errors import quoted
from hcep.hierarchy.formats.column_names import RANKS, known_levels, plain
from hcep.hierarchy.formats.draft import Draft
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.table_file import Row, Table, read_table
from hcep.hierarchy.formats.table_shape import Shape, chosen_columns, find_shape
from hcep.hierarchy.graph import Hierarchy

Columns = Sequence[str]


def read(
    source: Source,
    *,
    levels: Columns | None = None,
    leaf: str | None = None,
    name: str | None = None,
    blank: str | None = None,
    delimiter: str | None = None,
    sheet: str | None = None,
) -> Hierarchy:
    """Read level columns from a CSV, a TSV, a workbook, or a JSON list of records (also under ``"categories"``).

    Parameters
    ----------
    levels : columns from the highest level to the lowest; by default the biological ranks among the columns, with
        ``name`` as the lowest where there is no ``species``; or ``level1, level2, ...``; or ``supercategory`` and
        ``name`` (COCO)
    leaf : column with the ids of the classes, such as iNaturalist's ``image_dir_name``; the lowest level by default
    name : column with the display names of the classes, such as ``common_name``
    blank : {"above", "skip"}; what an empty cell means: the same as in the row above, or no such level
    delimiter : what cells are apart by
    sheet : of a workbook
    """
    is_json = source.data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    table = records_table(source, source.json()) if is_json else read_table(source, delimiter, sheet)
    if levels is None and not known_levels(table.rows[0][1]):
        raise source.fail(
            f"none of the columns {quoted(table.rows[0][1], 9)} is known as a level; pass levels=[highest, ...] "
            "(-O levels=highest,... on the command line)"
        )
    return from_table(source, table, levels, leaf=leaf, name=name, blank=blank)


def records_table(source: Source, data: Any) -> Table:
    """A list of JSON records, or an object with one under ``"categories"``, as a table."""
    listed = data.get("categories") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not listed or not all(isinstance(record, dict) for record in listed):
        raise source.fail('expected a list of records such as {"kingdom": "Animalia", ..., "name": "Felis catus"}')
    columns = list(dict.fromkeys(column for record in listed for column in record))
    values = [[record.get(column, []) for column in columns] for record in listed]  # of several parents a list
    cells = [[";".join(map(str, v)) if isinstance(v, list) else "" if v is None else str(v) for v in r] for r in values]
    return Table([(0, columns), *((i + 1, row) for i, row in enumerate(cells))])


def from_table(source: Source, table: Table, levels: Columns | None = None, **told: str | None) -> Hierarchy:
    """Read the rows of a table whose levels are known by name or given; `told` are leaf, name and blank of `read`."""
    names = table.rows[0][1]
    if levels is None:
        return build(source, find_shape(source, table, header=True), table, **told)
    wanted = [levels] if isinstance(levels, str) else list(levels)
    if all(column.isdecimal() for column in wanted) and not set(wanted) <= set(names):
        names = [f"column {i + 1}" for i in range(table.width)]  # given by number: there is no header
    chosen = chosen_columns(source, names, wanted)
    rows = table.rows[names is table.rows[0][1] :]
    return build(source, Shape("levels", list(names), rows, chosen), table, **told)


def build(
    source: Source,
    shape: Shape,
    table: Table,
    *,
    leaf: str | None = None,
    name: str | None = None,
    blank: str | None = None,
) -> Hierarchy:
    """The hierarchy of level columns."""
    id_column, name_column = (chosen_columns(source, shape.names, [c])[0] if c else None for c in (leaf, name))
    draft = Draft(source, "qualify")
    seen: set[tuple[str, ...]] = set()
    n_again = 0
    rows = _completed(source, shape, blank)
    for (line, cells), path in zip(shape.rows, rows, strict=True):
        own = [cells[c] if c is not None and c < len(cells) else "" for c in (id_column, name_column)]
        labels = [cell for cell in path if cell]
        if not labels:
            raise source.fail(f"a row without a value in any of the levels {quoted(shape.titles, 9)}", line)
        dated = [cell for cell in labels if cell in table.dates]
        if dated:
            raise source.fail(
                f"cell {table.dates[dated[0]]} holds a date, {dated[0]}; Excel makes dates of names such as MARCH1: "
                "write the name again in a cell formatted as text"
            )
        n_again += (*labels, *own) in seen
        seen.add((*labels, *own))
        parent = None
        for label in labels[:-1]:
            parent = draft.add(label, parent, line=line, same=True)
        shown = own[1] or (labels[-1] if leaf else None)
        draft.add(own[0] if leaf else labels[-1], parent, name=shown, line=line, same=True)
    source.understood = f"level columns {' > '.join(shape.titles)}"
    if not shape.known:
        source.otherwise = "taken so by its cells; if it is an edge list, pass -O parent=COLUMN -O child=COLUMN"
    source.notes += [*shape.notes, *([f"passed over: {counted(n_again, 'row')} given twice"] if n_again else [])]
    return draft.hierarchy()


def _completed(source: Source, shape: Shape, blank: str | None) -> list[list[str]]:
    """The level cells of every row, blanks filled from above where they mean that.

    Cells that were merged leave blanks on the left of a row: as above. A blank between two cells is a level that the
    row does not have, as in biology, unless every such blank could as well be merged; that is not guessed.
    """
    if blank not in (None, "above", "skip"):
        raise source.fail(f"blank must be 'above' or 'skip', got {blank!r}")
    rows = [shape.cells(cells) for _, cells in shape.rows]
    if blank == "skip":
        return rows
    is_biology = len({plain(title) for title in shape.titles} & set(RANKS)) > 1
    filled: list[list[str]] = []
    between: list[tuple[Row, int, bool]] = []  # blanks inside a row, and whether the row above has the same before it
    last = [""] * len(shape.columns)
    for row, cells in zip(shape.rows, rows, strict=True):
        start = next((i for i, cell in enumerate(cells) if cell), len(cells))
        end = max((i + 1 for i, cell in enumerate(cells) if cell), default=0)
        if start and start < end and not all(last[:start]) and not filled:
            told = f"column {shape.titles[0]!r} is empty, and there is no row above to take it from; fill it in"
            raise source.fail(told, row[0])
        cells = [*last[:start], *cells[start:]] if start < end else cells
        for i in range(start, end):
            if not cells[i]:
                same = bool(last[i]) and last[:i] == cells[:i]
                between.append((row, i, same))
                cells[i] = last[i] if blank == "above" and same else ""
        filled.append(cells)
        last = cells
    _refuse_mixed(source, shape, rows, blank)
    if between and blank is None and not is_biology and all(same for *_, same in between):
        (line, _), column, _ = between[0]
        raise source.fail(
            f"column {shape.titles[column]!r} is empty: the same as in the row above, or no such level? pass blank= "
            "(-O blank=above or -O blank=skip on the command line)",
            line,
        )
    n_above = sum(new != old for new, old in zip(filled, rows, strict=True))
    n_skipped = len(between) if blank is None else 0
    source.notes += [f"empty cells read as in the row above: {counted(n_above, 'row')}"] if n_above else []
    source.notes += [f"passed over: {counted(n_skipped, 'empty cell')} between levels"] if n_skipped else []
    return filled


def _refuse_mixed(source: Source, shape: Shape, rows: list[list[str]], blank: str | None) -> None:
    """A first column that repeats its cells in some rows and leaves them empty in others may have cells missing."""
    first = [cells[0] for cells in rows]
    below = [any(cells[1:]) for cells in rows]
    empty = [i for i, cell in enumerate(first) if not cell and below[i]]
    repeats = [i for i in range(1, len(first)) if first[i] and first[i] == first[i - 1]]
    if empty and repeats and blank is None:
        raise source.fail(
            f"column {shape.titles[0]!r} is empty here and repeats its cell in line {shape.rows[repeats[0]][0]:,}: the "
            "same as in the row above, or missing? pass blank= (-O blank=above or -O blank=skip on the command line)",
            shape.rows[empty[0]][0],
        )
