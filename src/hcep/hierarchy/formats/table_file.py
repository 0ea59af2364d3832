"""Read the cells of a table, from text with any delimiter or from a workbook; and the meaning of column names."""

import csv
import datetime
import io
import re
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from hcep._checks import require
from hcep.errors import csv_problem, quote, quoted
from hcep.hierarchy.formats.source import MAX_BYTES, Source

DELIMITERS = {"csv": ",", "tsv": "\t"}
NAMED = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
#: Most columns of a table, and most cells of a workbook, also empty ones between others.
MAX_COLUMNS, MAX_CELLS = 200, 1_000_000
#: Lines that are examined to find the delimiter.
N_SNIFFED = 500

_WORDS = {
    name: tuple(text.split())
    for name, text in tomllib.loads(Path(__file__).with_name("column_names.toml").read_text("utf-8")).items()
}
RANKS, OTHER_RANKS = _WORDS["ranks"], [_WORDS[f"{language}_ranks"] for language in ("german", "french", "spanish")]
HEADER_WORDS = frozenset(_WORDS["header"]).union(RANKS, *OTHER_RANKS)
IDENTITY, ABOUT, NAME_ORDER = frozenset(_WORDS["identity"]), frozenset(_WORDS["about"]), _WORDS["names"]
NAMES, KEYS = frozenset(NAME_ORDER) - {"species"}, frozenset(("id", "ids", "key", "code"))
LOWEST, REST, SUMS = frozenset(_WORDS["lowest"]), frozenset(_WORDS["rest"]), frozenset(_WORDS["sums"])
#: Words in the name of a column of common names, and titles of a level below which these name nothing further.
VERNACULAR, SPECIES = frozenset(_WORDS["vernacular"]), frozenset(_WORDS["species"])
#: Words in the name of a column that make it a level, even if it has as many different cells as the one above.
LEVEL_WORDS = HEADER_WORDS - IDENTITY - ABOUT - {"parent", "child", "source", "target", "coarse", "fine"}
#: Names of a column with the rank of each concept, and the cells that stand for no rank.
RANK_COLUMNS = ("rank", "taxon rank", "taxonrank", "taxonomic rank")
NO_RANK = frozenset(("", "no rank", "norank", "unranked", "clade"))
NUMBERED = re.compile(
    r"(level|tier|niveau|nivel|ebene|stufe|layer|category|cat|kategorie|categoria|l|lvl)[ _-]?(\d{1,4})"
)
PARENT = re.compile(
    r"parents?\b.*|.*\bparent|source|superclass|broader|hypernym|subclass of|sub class of|is a|supertype"
)
CHILD = ("child", "target", "subclass", "class", "narrower", "hyponym", "child id", "id", "node", "concept", "term")
NO_PARENT = frozenset(("0", "-1", "-", "null", "none", "na", "n/a", "nan", "\\n"))
#: Pairs of column names, parent first, that are a header whatever the rows below.
EDGES = (("parent", "child"), ("source", "target"), ("from", "to"), ("superclass", "class"), ("superclass", "subclass"))
NUMERIC = re.compile(r"[-+]?\d[\d.,  ]*%?")

Row = tuple[int, list[str]]


@dataclass
class Table:
    """The rows that are not empty, each with its last line (in a workbook: its row); cells without outer spaces."""

    rows: list[Row]
    marked: bool = False  # whether the first row is formatted as a header, as by bold type
    dates: dict[str, str] = field(default_factory=dict)  # the cells of a workbook that contain a date, by their text

    @property
    def width(self) -> int:
        return max((len(cells) for _, cells in self.rows), default=0)

    @property
    def numbered(self) -> list[str]:
        """The names of columns without titles."""
        return [f"column {i + 1}" for i in range(self.width)]


def read_table(source: Source, delimiter: str | None = None, sheet: str | None = None) -> Table:
    """Read a table, without empty columns on its left, a title above it, and comments (``#``)."""
    if source.data.startswith(b"\xd0\xcf\x11\xe0"):
        raise source.fail("is an old Excel workbook (.xls); save it as .xlsx or .csv")
    if source.data.startswith(b"PK\x03\x04"):
        table = _workbook(source, sheet)
    else:
        table = Table(list(_text_rows(source, NAMED.get(delimiter or "", delimiter))))
    rows = [(line, cells) for line, cells in table.rows if not cells[0].startswith("#")]
    n_left = min((next(i for i, cell in enumerate(cells) if cell) for _, cells in rows), default=0)
    for _, cells in rows:
        while not cells[-1]:
            cells.pop()
        del cells[:n_left]
    table.rows = _without_title(source, rows)
    refuse_wide(source, table)
    return table


def refuse_wide(source: Source, table: Table) -> None:
    """Refuse more columns than tables of concepts have: every column is compared with every other."""
    if table.width > MAX_COLUMNS:
        line = next(line for line, cells in table.rows if len(cells) > MAX_COLUMNS)
        raise source.fail(
            f"has {table.width:,} cells in a row, more than {MAX_COLUMNS}; keep the columns you need", line
        )


def _without_title(source: Source, rows: list[Row]) -> list[Row]:
    """The rows without a title above the table; a note below it is refused, since it could be a class."""
    if len(rows) < 3 or max(len(cells) for _, cells in rows) < 2:
        return rows
    (line, first), (following, second) = rows[:2]
    again = any(first[0] in cells for _, cells in rows[1:])
    titles = [is_header_word(cell) or plain(cell) in ABOUT for cell in second]
    grouped = 0 < sum(map(bool, first)) < len(second) > 2 and all(titles)
    if not again and ((len(first) == 1 and second[0] and (following > line + 1 or len(second) > 1)) or grouped):
        source.notes.append(f"skipped: the title {quote(next(filter(None, first)))} in line {line:,}")
        second += first[len(second) :]  # a column whose only title is there
        return _without_title(source, rows[1:])
    alone = [line for line, cells in rows if sum(map(bool, cells)) == 1]
    (above, _), (last, cells) = rows[-2:]
    if alone == [last] and last > above + 1:
        raise source.fail(f"{quote(cells[-1])} stands alone below the table, after an empty row; remove it", last)
    return rows


def _text_rows(source: Source, delimiter: str | None) -> Iterator[Row]:
    text = source.text()
    excel = re.match(r"sep=(.)\r?\n", text)  # how Excel names the delimiter
    if excel:
        text = "\n" + text[excel.end() :]
    if delimiter in (None, "\t") and "\t|\t" in text.partition("\n")[0]:  # as NCBI and Open Tree write
        text = re.sub(r"\t\|(?:\t|(?=\r?$))", "\t", text, flags=re.MULTILINE)
    mark = delimiter or (excel[1] if excel else _delimiter(source, text))
    if len(mark) != 1:
        raise source.fail(f"delimiter must be one character, or tab, comma, semicolon or pipe; got {quote(mark)}")
    rows = csv.reader(source.short(io.StringIO(text, newline="")), delimiter=mark, strict=True)
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield rows.line_num, cells
    except csv.Error as error:
        raise source.fail(csv_problem(error), rows.line_num) from None


def _delimiter(source: Source, text: str) -> str:
    """The delimiter that splits the rows into the most even table; the format's own if none does."""
    usual = DELIMITERS.get(source.format, ",")
    lines = [line for line in text.splitlines()[: 2 * N_SNIFFED] if line.strip() and not line.startswith("#")]
    if any(mark in line for mark in ";\t|" for line in lines):  # then commas between digits are decimal commas
        lines = [re.sub(r"(?<=\d),(?=\d)", ".", line) for line in lines]
    evenness: dict[str, float] = {}
    for mark in (usual, *(m for m in (",", ";", "\t", "|") if m != usual)):
        # A title or a note around the table has no delimiter; nearly all other lines must agree.
        widths = Counter[int]()
        with suppress(csv.Error):  # reading all rows reports it
            widths.update(len(row) for row in csv.reader(lines[:N_SNIFFED], delimiter=mark) if row)
        width, n = max(((w, n) for w, n in widths.items() if w > 1), key=lambda pair: pair[1], default=(1, 0))
        evenness[mark] = n / max(1, widths.total()) if width > 1 else 0.0
    best = max(evenness, key=lambda mark: evenness[mark])
    rivals = [mark for mark, share in evenness.items() if share == evenness[best] == 1.0 and len(lines) > 2]
    if len(rivals) > 1:
        raise source.fail(
            f"its cells may be separated by {quoted(rivals)}: each splits every line in the same way; pass delimiter= "
            "(-O delimiter=semicolon on the command line)"
        )
    return best if evenness[best] > 0 else usual


def _workbook(source: Source, sheet: str | None) -> Table:
    openpyxl = require("openpyxl", "formats", "reading .xlsx")
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as packed:
            n_bytes = sum(part.file_size for part in packed.infolist())
            if n_bytes > 2 * MAX_BYTES:
                raise source.fail(f"expands to {n_bytes:,} bytes; save the sheet you need as .csv")
            parts = [_Part(packed.read(name), openpyxl.utils.range_boundaries) for name in packed.namelist()]
        _refuse_cells(source, max(part.n_cells for part in parts))
        book = openpyxl.load_workbook(io.BytesIO(source.data), data_only=True)
        _refuse_cells(source, max(page.max_row * page.max_column for page in book.worksheets))
        has_formulas = any(part.has_formulas for part in parts)
        formulas = openpyxl.load_workbook(io.BytesIO(source.data)) if has_formulas else book
    except Exception as error:
        if str(error).startswith(source.name):
            raise
        raise source.fail(f"is not a workbook that can be read ({error}); save it as .xlsx or .csv") from None
    filled = [page for page in book.worksheets if page.max_row and any(map(any, page.iter_rows(values_only=True)))]
    sheets = {page.title: page for page in filled}
    if sheet is not None and sheet not in sheets:
        raise source.fail(f"has no sheet {quote(sheet)} with cells in it; there are {quoted(sheets)}")
    tables = [name for name, page in sheets.items() if page.max_column > 1 and page.max_row > 2] or list(sheets)
    if sheet is None and len(tables) != 1:
        what = f"has several sheets, {quoted(tables)}; choose with sheet=" if tables else "is empty; expected a table"
        raise source.fail(what + (" (-O sheet=NAME on the command line)" if tables else ""))
    chosen = sheet or tables[0]
    if len(sheets) > 1:
        source.notes.append(f"read: sheet {quote(chosen)}")
    page = sheets[chosen]
    grid = {cells[0].row: list(cells) for cells in page.iter_rows()}
    rows = {row: [_cell(source, cell, formulas[chosen]) for cell in cells] for row, cells in grid.items()}
    for merged in page.merged_cells.ranges:
        for row in range(merged.min_row + 1, merged.max_row + 1):
            rows[row][merged.min_col - 1] = rows[merged.min_row][merged.min_col - 1]
    written = [[cell for cell in cells if cell.value is not None] for r, cells in grid.items() if any(rows[r])]
    bold = [all(cell.font.bold for cell in cells) for cells in written]
    dated = [c for cells in grid.values() for c in cells if isinstance(c.value, datetime.date | datetime.time)]
    dates = {_cell(source, c, None): c.coordinate for c in dated}
    marked = bold[:1] == [True] and not all(bold)
    return Table([(row, cells) for row, cells in rows.items() if any(cells)], marked, dates)


class _Part:
    """A part of a workbook: how many rows and cells its XML would make, with every cell of a range; any formulas."""

    def __init__(self, content: bytes, boundaries: Callable[[str], Sequence[int]]) -> None:
        self.n_cells, self.has_formulas, self.boundaries = 0, False, boundaries
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self.count
        with suppress(expat.ExpatError):  # a picture, or XML that openpyxl refuses
            parser.Parse(content, True)

    def count(self, name: str, attributes: dict[str, str]) -> None:
        kind = name.rpartition(" ")[2]
        self.has_formulas |= kind == "f"
        self.n_cells += kind in ("row", "c")
        if kind in ("mergeCell", "hyperlink") and "ref" in attributes:
            first, top, last, bottom = self.boundaries(attributes["ref"])
            self.n_cells += (last - first + 1) * (bottom - top + 1)


def _refuse_cells(source: Source, n_cells: int) -> None:
    if n_cells > MAX_CELLS:
        more = f"more than {MAX_CELLS:,}, with the empty ones between others"
        raise source.fail(f"has a sheet of {n_cells:,} cells, {more}; save the part you need as .csv")


def _cell(source: Source, cell: Any, formulas: Any) -> str:
    value = cell.value
    if value is None:
        formula = formulas.cell(cell.row, cell.column).value
        if isinstance(formula, str) and formula.startswith("="):
            raise source.fail(
                f"cell {cell.coordinate} contains a formula without its value; open the file in Excel and save it"
            )
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).split())


def plain(name: str) -> str:
    """The name of a column in lower case and without signs: ``Parent_ID`` is "parent id"."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[\W_]+", " ", spaced).casefold().split())


def known_levels(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that are levels by their names, the highest first; none if there are fewer than two."""
    present = {plain(column): column for column in columns}
    squeezed = {key.replace(" ", ""): column for key, column in present.items()}
    chains = [[squeezed[rank] for rank in ranks if rank in squeezed] for ranks in (RANKS, *OTHER_RANKS)]
    ranks = max(chains, key=len)
    if not ranks:
        numbers = [(match[1], int(match[2]), present[match[0]]) for m in present if (match := NUMBERED.fullmatch(m))]
        stem = Counter(stem for stem, _, _ in numbers).most_common(1)[0][0] if numbers else ""
        ranks = [column for word, _, column in sorted(numbers) if word == stem]
    if "name" in present and ranks and not SPECIES & set(squeezed):
        ranks = [*ranks, present["name"]]
    if len(ranks) >= 2:
        return tuple(ranks)
    return (present["supercategory"], present["name"]) if {"supercategory", "name"} <= set(present) else ()


def is_header_word(cell: str) -> bool:
    """Whether a cell looks like the name of a column."""
    name = plain(cell)
    return bool(NUMBERED.fullmatch(name) or PARENT.fullmatch(name) or set(name.split()) & HEADER_WORDS)


def is_identity(title: str) -> bool:
    """Whether the name of a column says that it has names or ids, such as "Common name"."""
    return bool({*plain(title).split()} & IDENTITY)


def parent_columns(names: Sequence[str]) -> list[int]:
    """The columns that have parents, by their names; "source" does so only beside "target"."""
    known = list(map(plain, names))
    return [i for i, n in enumerate(known) if PARENT.fullmatch(n) and (n != "source" or "target" in known)]


def is_edge_header(cells: Sequence[str]) -> bool:
    """Whether a first row is the header of an edge list, whatever the rows below."""
    return any(tuple(map(plain, order)) in EDGES for order in (cells[:2], cells[1::-1]))
