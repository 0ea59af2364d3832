"""Tables with a column of paths and a column of labels: CSV, TSV and Parquet."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._files import read_csv
from hcep.datasets.image_dataset import DatasetError, ImageDataset, canonical_split, choose_splits
from hcep.datasets.layouts.listing import LayoutOptions, absent_error, column_error
from hcep.errors import HCEPError, near_matches, quote, quoted, reason_of

LOOKS_FOR = "a .csv, .tsv or .parquet file with a path and a label column"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".parquet")
#: Also read if they exist.
SPLIT_COLUMN, ID_COLUMN = "split", "id"
#: Tables of groups; columns that may hold their images, besides `ID_COLUMN`; this group is the folder of a photo.
GROUP_TABLES, IMAGE_COLUMNS, FOLDER = (".csv", ".parquet"), ("image", "file", "path", "file_name", "filename"), "folder"

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
    absent = [files[row] for row in rows if not os.path.isfile(source.parent / files[row])]
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
    header, *rows = read_csv(source, DatasetError, delimiter) or [[]]
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _read_parquet(source: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source) as file:
            table = file.read(columns=[f.name for f in file.schema_arrow if not pa.types.is_nested(f.type)])
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{str(source)!r} cannot be read as a table: {reason_of(error)}") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _paths(columns: Columns, column: str, source: Path) -> list[str]:
    if column not in columns:
        raise column_error("path_column", column, columns, source)
    values = columns[column]
    wrong = [(row, value) for row, value in enumerate(values, start=1) if not isinstance(value, str) or not value]
    if wrong:
        raise DatasetError(
            f"path_column={quote(column)} of {str(source)!r} must hold file paths; {len(wrong):,} of {len(values):,} "
            f"rows do not: row {wrong[0][0]} has {quoted([wrong[0][1]])}"
        )
    return list(values)


def label_text(value: Any) -> str | None:
    """A cell as a label: None if it is empty; "3" for 3, and for the 3.0 that it becomes in a column with gaps."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def group_values(
    table: Path | None, column: str, ids: Sequence[Any], option: str = "--group", missing: str | None = None
) -> NDArray[Any]:
    """The group of each image (see `find_groups`)."""
    return find_groups(table, column, option, missing)(list(map(str, ids)))


def find_groups(
    table: Path | None, column: str, option: str = "--group", missing: str | None = None
) -> Callable[[Sequence[str]], NDArray[Any]]:
    """A function from ids of images to their groups: a column of a table, matched by ids, or by row if it has none.

    Parameters
    ----------
    table : a .csv or .parquet file, if there is one
    column : a column of the table; "folder" for the folder of each photo; or another .csv or .parquet table with a
        column of ids and one of groups
    option : what errors call the column
    missing : the group of images without a row; if it is None, they are an error
    """
    if Path(column).suffix in GROUP_TABLES:
        table = Path(column)
        others = [name for name in read_columns(table) if name not in (ID_COLUMN, *IMAGE_COLUMNS)]
        if len(others) != 1:
            raise HCEPError(f"{option}: {table} must have the column id and one of groups; it has {quoted(others, 9)}")
        column = others[0]
    if table is None or table.suffix not in GROUP_TABLES:
        if column == FOLDER:
            return lambda keys: np.array([str(Path(key).parent) for key in keys])
        raise HCEPError(f"{option} {column}: there is no table with this column; give a .csv or .parquet file")
    columns = read_columns(table)
    if column not in columns:
        raise HCEPError(f"{option}: {table} has no column {quote(column)}.{near_matches(column, columns)}")
    values = list(map(str, columns[column]))
    known = {name: list(map(str, columns[name])) for name in (ID_COLUMN, *IMAGE_COLUMNS) if name in columns}

    def matched(keys: Sequence[str]) -> NDArray[Any]:
        forms = {form for key in keys for form in (key, Path(key).name)}
        ids = next((of for name, of in known.items() if name == ID_COLUMN or not forms.isdisjoint(of)), None)
        if ids is None:
            if len(values) != len(keys):
                raise HCEPError(
                    f"{option}: {table} has {len(values):,} rows for {len(keys):,} images and no column `id`"
                )
            return np.array(values)
        by_id = dict(zip(ids, values, strict=True))
        names = [key if key in by_id else Path(key).name for key in keys]
        absent = next((name for name in names if not by_id.get(name)), None)
        if absent is not None and missing is None:
            raise HCEPError(f"{option}: {table} has no group for image {quote(absent)}; give every photo a group")
        return np.array([by_id.get(name, missing) for name in names])

    return matched
