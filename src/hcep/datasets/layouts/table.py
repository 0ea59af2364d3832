"""Tables with a column of paths and a column of labels: CSV, TSV and Parquet."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcep.datasets.image_dataset import DatasetError, ImageDataset, canonical_split, choose_splits
from hcep.datasets.layouts.listing import LayoutOptions, absent_error, column_error
from hcep.errors import quoted

LOOKS_FOR = "a .csv, .tsv or .parquet file with a path and a label column"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".parquet")
#: Also read if they exist.
SPLIT_COLUMN, ID_COLUMN = "split", "id"

Columns = Mapping[str, Sequence[Any]]


def detect(source: Path) -> bool:
    """Whether the file has the suffix of a table."""
    return source.is_file() and source.suffix.lower() in SUFFIXES


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """List the rows in their order; paths are relative to the table's folder."""
    if not detect(source):
        raise DatasetError(f"layout 'table' needs {LOOKS_FOR}, got {str(source)!r}")
    columns = read_columns(source)
    files = _paths(columns, options.path_column, source)
    column = options.label_column
    if column is not None and column not in columns:
        raise column_error("label_column", column, columns, source)
    labels = [None] * len(files) if column is None else [label_text(value) for value in columns[column]]
    named = [label_text(value) for value in columns.get(SPLIT_COLUMN, [None] * len(files))]
    splits = [None if name is None else canonical_split(name) for name in named]
    ids = [str(value) for value in columns.get(ID_COLUMN, files)]
    wanted = [] if options.split is None else choose_splits(splits, options.split, source)
    rows = [row for row in range(len(files)) if not wanted or splits[row] in wanted]
    absent = [files[row] for row in rows if not (source.parent / files[row]).is_file()]
    if absent:
        raise absent_error(absent, len(rows), source, source.parent)
    parts: list[Any] = [[column[row] for row in rows] for column in (files, ids, labels, splits)]
    return ImageDataset(source.parent, *parts)


def read_columns(source: Path) -> Columns:
    """The columns of a table by name; values of a text file stay text, so that "007" stays "007"."""
    suffix = source.suffix.lower()
    columns = _read_text(source, DELIMITERS[suffix]) if suffix in DELIMITERS else _read_parquet(source)
    if not any(len(values) for values in columns.values()):
        raise DatasetError(f"{str(source)!r} has no rows")
    return columns


def _read_text(source: Path, delimiter: str) -> Columns:
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row] or [[]]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{str(source)!r} cannot be read as a table: {error}") from None
    ragged = [i for i, row in enumerate(rows, start=1) if len(row) != len(header)]
    if ragged:
        raise DatasetError(
            f"{len(ragged):,} of {len(rows):,} rows of {str(source)!r} do not have the header's {len(header)} fields: "
            f"row {ragged[0]} is {rows[ragged[0] - 1]!r}"
        )
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _read_parquet(source: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source) as file:
            table = file.read(columns=[f.name for f in file.schema_arrow if not pa.types.is_nested(f.type)])
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{str(source)!r} cannot be read as a table: {error}") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _paths(columns: Columns, column: str, source: Path) -> list[str]:
    if column not in columns:
        raise column_error("path_column", column, columns, source)
    values = columns[column]
    wrong = [(row, value) for row, value in enumerate(values, start=1) if not isinstance(value, str) or not value]
    if wrong:
        raise DatasetError(
            f"path_column={column!r} of {str(source)!r} must hold file paths; {len(wrong):,} of {len(values):,} rows "
            f"do not: row {wrong[0][0]} has {quoted([wrong[0][1]])}"
        )
    return list(values)


def label_text(value: Any) -> str | None:
    """A cell as a label: None if it is empty; "3" for 3, and for the 3.0 that it becomes in a column with gaps."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
