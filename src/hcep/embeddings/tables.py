"""Embeddings in tables: CSV, Parquet, or the Arrow files of a folder saved by Hugging Face's datasets.

A table has its vectors in one column of lists or in one column per dimension. `read_table` decides which columns hold
the vectors and which one the labels, and says so in a note.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep.embeddings import other_tables
from hcep.embeddings.files import MAX_BYTES, hub_files
from hcep.embeddings.vectors import USUAL_NAMES, Embeddings, StoreError, absent, find_names, named_labels
from hcep.errors import csv_problem, quote, quoted, reason_of

#: Most bytes that NumPy may need for a column of text.
MAX_TEXT_BYTES = 1 << 32
#: A Parquet file that unpacks to more bytes than this, and to this many times its own size, is refused.
BOMB_BYTES, BOMB_RATIO = 1 << 29, 200
#: Delimiters that a text table may have.
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
#: Most characters of a line in a text table.
MAX_LINE = 1 << 24
_ARROW_FILE = re.compile(r"[\w.-]+\.arrow", re.ASCII)


class _Table(NamedTuple):
    """A table whose columns are read on demand, in chunks that are never all in memory."""

    path: Path
    schema: pa.Schema
    n_rows: int
    chunks: Callable[[str], Iterable[Any]]

    def error(self, problem: str) -> StoreError:
        return StoreError(f"{str(self.path)!r}: {problem}")

    def kind(self, name: str) -> pa.DataType:
        if len(self.schema.get_all_field_indices(name)) > 1:
            raise self.error(f"several columns are named {quote(name)}; rename all but one of them")
        return self.schema.field(name).type

    def column(self, name: str) -> Any:
        return pa.chunked_array(list(self.chunks(name)), self.kind(name))

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers as floats, (n_rows,)."""
        column = self.column(name)
        if not _is_number(column.type):
            raise self.error(f"column {quote(name)} must hold numbers, not {column.type}")
        if column.null_count:
            row = column.is_null().to_pylist().index(True) + 1
            raise self.error(f"column {quote(name)} has missing values, the first in row {row}")
        values: NDArray[Any] = column.to_numpy()
        return values if values.dtype.kind == "f" else values.astype(np.float64)

    def vectors(self, name: str) -> NDArray[Any]:
        """A column of lists as one array (n_rows, n_dims), filled chunk by chunk."""
        kind = self.kind(name)
        if not _is_list_of_floats(kind):
            raise self.error(f"column {quote(name)} must hold lists of floats, not {kind}")
        X: NDArray[Any] = np.empty((0, 1), kind.value_type.to_pandas_dtype())
        start = 0
        for chunk in filter(len, self.chunks(name)):
            values = chunk.flatten()
            if chunk.null_count or values.null_count:
                raise self.error(f"column {quote(name)} has missing values")
            fixed = pa.types.is_fixed_size_list(kind)
            lengths = {kind.list_size} if fixed else set(chunk.value_lengths().unique().to_pylist())
            lengths |= {X.shape[1]} if start else set()
            if len(lengths) > 1:
                raise self.error(f"column {quote(name)} holds vectors of {min(lengths)} and {max(lengths)} numbers")
            if start == 0:
                X = np.empty((self.n_rows, *lengths), X.dtype)
            X[start : start + len(chunk)] = values.to_numpy(zero_copy_only=False).reshape(len(chunk), -1)
            start += len(chunk)
        return X

    def texts(self, name: str) -> NDArray[Any]:
        """A column of strings, with None for empty cells, or of integers, which stay integers."""
        column = self.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_integer(column.type) and not column.null_count:
            return np.asarray(column.to_numpy())
        if not _is_text(column.type):
            raise self.error(
                f"expected a column of text or whole numbers without missing values, not {column.type} ({quote(name)})"
            )
        # NumPy gives every cell as much room as the longest one needs, which may be gigabytes.
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if 4 * longest * len(column) > MAX_TEXT_BYTES:
            raise self.error(f"a cell of column {quote(name)} has {longest:,} bytes, too long for a name")
        values: NDArray[Any] = np.array([value or None for value in column.to_pylist()], dtype=object)
        return values.astype(np.str_) if all(value is not None for value in values) else values


def read_table(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    """Read a table; parameters are those of `read_embeddings`."""
    if source.is_dir() or source.suffix.lower() != ".parquet":
        table = _in_memory(source, _read_whole(source, label))
        return _embeddings(table, vectors, label)
    with pq.ParquetFile(source) as file:
        _refuse_bomb(source, file)

        def chunks(name: str) -> Iterable[Any]:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group, columns=[name]).column(name).chunks

        table = _Table(source, file.schema_arrow, file.metadata.num_rows, chunks)
        return _embeddings(table, vectors, label)


def _read_whole(source: Path, label: str | None) -> pa.Table:
    """A table that is read at once, by what the file or folder looks like."""
    if source.suffix.lower() in DELIMITERS and source.is_file():
        return _read_csv(source, label)
    if source.is_file():
        return (other_tables.read_bioclip if source.suffix.lower() == ".json" else other_tables.read_webdataset)(source)
    if (source / "img_emb").is_dir():
        return other_tables.read_clip_retrieval(source)
    is_lance = source.suffix == ".lance" or any(source.glob("*.lance"))
    return other_tables.read_lance(source) if is_lance else _read_dataset_folder(source)


def _in_memory(source: Path, table: pa.Table) -> _Table:
    return _Table(source, table.schema, table.num_rows, lambda name: table.column(name).chunks)


def write_parquet(target: Path, X: NDArray[Any], columns: dict[str, NDArray[Any]]) -> None:
    """Write vectors and columns of text as a Parquet file."""
    text = {name.removesuffix("s"): pa.array(values.tolist(), pa.string()) for name, values in columns.items()}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    # Rows of a group are decoded together: keep them near 16 MB.
    rows = max(1, (1 << 24) // max(1, X.itemsize * X.shape[1]))
    table = pa.table({**text, "embedding": vectors})
    pq.write_table(table, target, row_group_size=rows, use_dictionary=list(text))


def has_vectors(source: Path) -> bool:
    """Whether a table has columns that can be vectors; a table that lists images has none."""
    try:
        is_csv = source.suffix.lower() in DELIMITERS
        # The first block of a CSV file is enough.
        schema = arrow_csv.open_csv(source, *csv_options(source, None)).schema if is_csv else pq.read_schema(source)
        table = _Table(source, schema, 0, lambda name: ())
        return bool(_vector_columns(table, None, set(_other_columns(table, None).values())))
    except (StoreError, OSError, pa.ArrowException):
        return False


def label_column(source: Path, column: str | None) -> NDArray[Any]:
    """The labels in a CSV or TSV file; see `read_labels`."""
    try:
        table = _in_memory(source, _read_csv(source, column))
    except pa.ArrowException as error:
        raise StoreError(f"cannot read {str(source)!r}: {reason_of(error)}") from None
    present = table.schema.names
    name = find_names(source, {"labels": column}, present).get("labels") or (present[0] if len(present) == 1 else None)
    if name is None:
        raise table.error(f"which column has the labels? The columns are {quoted(present, 10)}; pass --labels")
    labels = table.texts(name)
    if None in labels.tolist():
        raise table.error(f"column {quote(name)} has empty cells; give one label per vector")
    return labels.astype(np.str_)


# -- which column is what ----------------------------------------------------------------------------------------------


def _embeddings(table: _Table, vectors: str | None, label: str | None) -> Embeddings:
    names = _other_columns(table, label)
    dimensions = _vector_columns(table, vectors, set(names.values()))
    used = (*dimensions, *names.values())
    texts = [name for name in table.schema.names if _is_text(table.kind(name)) and name not in used]
    if "labels" not in names and len(texts) == 1:
        names["labels"] = texts.pop()
    columns: dict[str, Any] = {part: table.texts(name) for part, name in names.items()}
    if "labels" in names:
        class_names = _class_names(table.schema, names["labels"])
        columns["labels"] = named_labels(table.path, columns["labels"], class_names)
        if label is None:
            _refuse_fractions(table, names["labels"], columns["labels"])
    if len(dimensions) == 1:
        X, read = table.vectors(dimensions[0]), f"column {quote(dimensions[0])}"
    else:
        X = np.column_stack([table.numbers(name) for name in dimensions])
        read = f"{len(dimensions):,} columns {quote(dimensions[0])} … {quote(dimensions[-1])}"
    labelled = f"labels from column {quote(names['labels'])}" if "labels" in names else "no labels"
    if texts and "labels" not in names:
        labelled += f" (pass --labels to choose among {quoted(texts)})"
    rest = [name for name in table.schema.names if name not in (*dimensions, *names.values(), *texts)]
    ignored = f"; ignored {quoted(rest)}" if rest else ""
    note = f"{table.path.name}: {table.n_rows:,} vectors from {read}, {labelled}{ignored}"
    return Embeddings(X, **columns, notes=(note,))


def _refuse_fractions(table: _Table, name: str, labels: NDArray[Any]) -> None:
    """Refuse a column with a usual name that holds measurements or coordinates instead of labels."""
    numbers = [_as_float(str(value)) for value in set(labels.tolist()) - {None}]
    if None not in numbers and any(number % 1 for number in numbers if number):
        raise table.error(
            f"expected a column of text or whole numbers without missing values, not fractions ({quote(name)}); "
            "name the right columns with --labels and --vectors"
        )


def _other_columns(table: _Table, label: str | None) -> dict[str, str]:
    """The column of each part except the vectors."""
    names = find_names(table.path, {"labels": label}, table.schema.names)
    names.pop("vectors", None)
    # A column called `images` may hold the pictures themselves.
    if "paths" in names and not _is_text(table.kind(names["paths"])):
        del names["paths"]
    return names


def _vector_columns(table: _Table, requested: str | None, used: set[str]) -> list[str]:
    names = table.schema.names
    if requested is not None:
        return _requested_columns(table.path, names, requested)
    usual = [name for name in USUAL_NAMES["vectors"] if name in names]
    lists = [name for name in names if _is_list_of_floats(table.kind(name))]
    if usual or len(lists) == 1:
        return [*usual, *lists][:1]
    numbers = [name for name in names if name not in used and _is_number(table.kind(name))]
    series = _series(numbers)
    if len(series) > 1 and 2 * len(series[1]) >= len(series[0]):
        both = " and ".join(f"{quote(one[0])} … {quote(one[-1])}" for one in series[:2])
        raise table.error(f"columns {both} both look like vectors; choose with --vectors, such as 'f*'")
    floats = [name for name in numbers if pa.types.is_floating(table.kind(name))]
    columns = series[0] if series and len(series[0]) > len(floats) // 2 else floats
    if len(columns) < 2:
        raise StoreError(
            f"{str(table.path)!r} has no vectors under a known name, only {quoted(names, 20)}; it needs a column of "
            "lists of floats, or one column of numbers per dimension: name them with vectors=... (--vectors), such as "
            "'f*'"
        )
    return columns


def _requested_columns(source: Path, names: list[str], requested: str) -> list[str]:
    if requested in names:
        return [requested]
    first, colon, last = requested.partition(":")
    if colon and first in names and last in names:
        return names[names.index(first) : names.index(last) + 1]
    patterns = [part.strip() for part in requested.split(",")]
    columns = [name for pattern in patterns for name in names if fnmatchcase(name, pattern)]
    unmatched = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if unmatched:
        raise absent(source, unmatched[0], names)
    return list(dict.fromkeys(columns))


def _series(names: list[str]) -> list[list[str]]:
    """Series of numbered columns without a gap, such as f0, f1, f2, the longest first."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            groups.setdefault(match[1], []).append((int(match[2]), name))
    whole = [g for g in groups.values() if len(g) > 1 and [n for n, _ in g] == list(range(g[0][0], g[0][0] + len(g)))]
    return sorted(([name for _, name in group] for group in whole), key=len, reverse=True)


def _class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """Names of a ClassLabel column, if Hugging Face's datasets wrote them into the file."""
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_text(kind: pa.DataType) -> bool:
    return (kind.value_type if pa.types.is_dictionary(kind) else kind) in (pa.string(), pa.large_string())


def _is_list_of_floats(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


# -- files -------------------------------------------------------------------------------------------------------------


def _refuse_bomb(source: Path, file: pq.ParquetFile) -> None:
    """Refuse, by its headers alone, a file that unpacks to too much, or to absurdly more than its size."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(max(chunk.total_uncompressed_size, 4 * chunk.num_values) for chunk in chunks)
    if size > MAX_BYTES or size > max(BOMB_BYTES, BOMB_RATIO * source.stat().st_size):
        raise StoreError(f"{str(source)!r} unpacks to {size:,} bytes; split it, or write it without compression")


def _read_csv(source: Path, label: str | None) -> pa.Table:
    """A CSV or TSV file, with or without a header; columns of labels, ids and the like stay text, "007" too."""
    return arrow_csv.read_csv(source, *csv_options(source, label))


def csv_options(source: Path, label: str | None) -> tuple[Any, Any, Any]:
    """Encoding, delimiter, header and decimal mark of a CSV file, from its first two lines."""
    with source.open("rb") as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with source.open(encoding=encoding, newline="") as text:
        try:
            lines = [text.readline(MAX_LINE), text.readline(MAX_LINE)]
        except UnicodeError as error:
            raise StoreError(f"cannot read {str(source)!r} as text: {error}") from None
    delimiter = max(DELIMITERS[source.suffix.lower()], key=lines[0].count)
    try:
        first, second = (next(csv.reader([line], delimiter=delimiter), []) for line in lines)
    except csv.Error as error:
        raise StoreError(f"{str(source)!r}: {csv_problem(error)}") from None
    header = first if _is_header(first) else [f"column{i}" for i in range(1, len(first) + 1)]
    usual = {name.lower() for part, known in USUAL_NAMES.items() if part != "vectors" for name in known}
    as_text = {name: pa.string() for name in header if name.lower() in usual or name == label}
    comma = delimiter == ";" and any(re.fullmatch(r"-?\d+,\d+(e-?\d+)?", cell.strip(), re.I) for cell in second)
    return (
        arrow_csv.ReadOptions(
            column_names=None if header is first else header, encoding=encoding.removesuffix("-sig"), block_size=1 << 24
        ),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(column_types=as_text, decimal_point="," if comma else "."),
    )


def _is_header(cells: list[str]) -> bool:
    """Whether a first line names columns: it has no numbers, except those that only count."""
    numbers = [cell for cell in cells if _as_float(cell) is not None]
    counts = [int(cell) for cell in numbers if cell.isdecimal() and len(cell) < 10]
    return len(counts) == len(numbers) and counts in (list(range(len(counts))), list(range(1, len(counts) + 1)))


def _as_float(cell: str) -> float | None:
    try:
        return float(cell.replace(",", "."))
    except ValueError:
        return None


def _read_dataset_folder(source: Path) -> pa.Table:
    """The rows of a folder of Hugging Face's datasets, split after split."""
    listing = source / "dataset_dict.json"
    if listing.is_file():
        splits = _strings(listing, "splits")
        outside = [split for split in splits if not split or Path(split).name != split]
        if outside:
            raise StoreError(f"{str(listing)!r} names the split {quote(outside[0])}, which is not a folder beside it")
        return pa.concat_tables([_with_split(_read_arrow(source / split), split) for split in splits])
    if (source / "state.json").is_file():
        return _read_arrow(source)
    return pa.concat_tables([_with_split(pq.read_table(file), split) for split, file in hub_files(source)])


def _with_split(table: pa.Table, split: str) -> pa.Table:
    if "split" in table.column_names:
        return table
    return table.append_column("split", pa.array([split] * table.num_rows, pa.string()))


def _read_arrow(folder: Path) -> pa.Table:
    state = folder / "state.json"
    files = _strings(state, "_data_files")
    outside = [file for file in files if not _ARROW_FILE.fullmatch(file)]
    if outside or not files:
        raise StoreError(f"{str(state)!r} must list Arrow files beside it, got {quoted(outside or files)}")
    tables = []
    for file in files:
        mapped = pa.memory_map(str(folder / file))
        try:
            tables.append(pa.ipc.open_stream(mapped).read_all())
        except pa.ArrowInvalid:
            tables.append(pa.ipc.open_file(mapped).read_all())
    return pa.concat_tables(tables)


def _strings(file: Path, key: str) -> list[str]:
    """The strings in a list of a JSON file, or the ``filename`` of each object in the list."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))[key]
        return [str(entry["filename"] if isinstance(entry, dict) else entry) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{str(file)!r} is damaged: expected a list {quote(key)} ({type(error).__name__})") from None
