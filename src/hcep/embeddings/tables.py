"""Embeddings in tables of other people: which columns are vectors, which one the labels, in a sentence that says so.

A table is CSV, Parquet, or the Arrow files of a folder that Hugging Face's datasets saved; it has a column of lists, or
a column per dimension.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep.embeddings.store.manifest import StoreError
from hcep.errors import near_matches, quoted

#: Of a column of text as NumPy holds it.
MAX_TEXT_BYTES = 1 << 32

#: Names under which a file's parts are looked for when none is given.
USUAL_NAMES = {
    "vectors": ("embeddings", "embedding", "vectors", "vector", "image_embeds", "features", "X"),
    "labels": ("labels", "label", "y", "class", "target", "category"),
    "ids": ("ids", "id", "image_id"),
    "paths": ("paths", "path", "file_name", "filename", "images"),
    "splits": ("splits", "split"),
}
#: Those beside the vectors.
TEXTS = ("labels", "ids", "paths", "splits")
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
_NUMBERED = re.compile(r"(.*?)(\d+)")
_ARROW_FILE = re.compile(r"[\w.-]+\.arrow", re.ASCII)
_HUB_FILE = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet", re.ASCII)


def absent(source: Path, name: str, known: Iterable[str]) -> StoreError:
    """The error about a part that was asked for by name and is not there."""
    names = list(known)
    return StoreError(f"{str(source)!r} has no {name!r}, only {quoted(names, 20)}.{near_matches(name, names)}")


class Columns(NamedTuple):
    """A table whose columns are read when they are needed, by name and in pieces that are never held together."""

    schema: pa.Schema
    n_rows: int
    chunks: Callable[[str], Iterable[Any]]

    def column(self, name: str) -> Any:
        return pa.chunked_array(list(self.chunks(name)), self.schema.field(name).type)


def table_parts(source: Path, table: Columns, names: dict[str, str], label_names: Any) -> dict[str, Any]:
    """The parts of a table by name, as arrays, with a ``note``: a sentence of what was taken for what.

    `names` and `label_names` are those of `read_arrays`; `source` is the file, for messages.
    """
    schema = table.schema
    found = _other_columns(source, schema, names)
    vectors = _vector_columns(source, schema, names.get("vectors"), set(found.values()))
    taken = (*vectors, *found.values())
    texts = [name for name in schema.names if _is_text(schema.field(name).type) and name not in taken]
    if "labels" not in found and len(texts) == 1:
        found["labels"] = texts.pop()
    parts: dict[str, Any] = {part: text_column(source, table.column(name), name) for part, name in found.items()}
    label = found.get("labels")
    if label:
        labels = parts["labels"] = as_labels(source, parts["labels"], label_names or class_names(schema, label))
        numbers = [_as_float(str(one)) for one in set(labels.tolist()) - {None}]
        if "labels" not in names and None not in numbers and any(number % 1 for number in numbers if number):
            raise StoreError(  # measurements or coordinates
                f"{str(source)!r}: expected a column of text or whole numbers without gaps, not fractions ({label!r}); "
                "say --labels, and --vectors, with the columns that are meant"
            )
    if len(vectors) == 1:
        parts["vectors"] = stacked(source, table, vectors[0])
        columns = f"column {vectors[0]!r}"
    else:
        parts["vectors"] = np.column_stack([_numbers(source, table.column(name), name) for name in vectors])
        columns = f"{len(vectors):,} columns {vectors[0]!r} … {vectors[-1]!r}"
    labelled = f"labels of column {label!r}" if label else "no labels"
    if texts and not label:
        labelled += f" (--labels says which of {quoted(texts)} has them)"
    rest = [name for name in schema.names if name not in (*vectors, *found.values(), *texts)]
    left = f"; left out {quoted(rest)}" if rest else ""
    return parts | {"note": f"{source.name}: {table.n_rows:,} vectors of {columns}, {labelled}{left}"}


def named_parts(source: Path, names: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """The array, key or column of each part that is there, by the name that was given or a usual one."""
    by_name = {name.lower(): name for name in reversed(known)}
    found = {}
    for part, usual in USUAL_NAMES.items():
        asked = names.get(part)
        if asked is not None and asked not in known:
            raise absent(source, asked, known)
        match = asked or next((by_name[name.lower()] for name in usual if name.lower() in by_name), None)
        if match:
            found[part] = match
    return found


def _other_columns(source: Path, schema: pa.Schema, names: dict[str, str]) -> dict[str, str]:
    """The column of each part but the vectors."""
    found = named_parts(source, {part: name for part, name in names.items() if part != "vectors"}, schema.names)
    found.pop("vectors", None)
    # A column of images that holds the pictures themselves is no column of paths.
    if "paths" in found and "paths" not in names and not _is_text(schema.field(found["paths"]).type):
        del found["paths"]
    return found


def _vector_columns(source: Path, schema: pa.Schema, asked: str | None, taken: set[str]) -> list[str]:
    names = schema.names
    if asked is not None:
        return _asked_columns(source, names, asked)
    usual = [name for name in USUAL_NAMES["vectors"] if name in names]
    lists = [name for name in names if is_list_of_floats(schema.field(name).type)]
    if usual or len(lists) == 1:
        return [*usual, *lists][:1]
    numbers = [name for name in names if name not in taken and _is_number(schema.field(name).type)]
    series = _series(numbers)
    if len(series) > 1 and 2 * len(series[1]) >= len(series[0]):
        both = " and ".join(f"{one[0]!r} … {one[-1]!r}" for one in series[:2])
        raise StoreError(f"{str(source)!r}: columns {both} both look like vectors; say which, as in --vectors 'f*'")
    floats = [name for name in numbers if pa.types.is_floating(schema.field(name).type)]
    found = series[0] if series and len(series[0]) > len(floats) // 2 else floats
    if len(found) < 2:
        raise StoreError(
            f"{str(source)!r} has no vectors under a usual name, only {quoted(names, 20)}; needed is a column of lists "
            "of floats, or a column of numbers per dimension: say --vectors (names={\"vectors\": ...}), such as 'f*'"
        )
    return found


def _asked_columns(source: Path, names: list[str], asked: str) -> list[str]:
    if asked in names:
        return [asked]
    first, colon, last = asked.partition(":")
    if colon and first in names and last in names:
        return names[names.index(first) : names.index(last) + 1]
    wanted = [part.strip() for part in asked.split(",")]
    found = [name for part in wanted for name in names if fnmatchcase(name, part)]
    unknown = [part for part in wanted if not any(fnmatchcase(name, part) for name in names)]
    if unknown:
        raise absent(source, unknown[0], names)
    return list(dict.fromkeys(found))


def _series(names: list[str]) -> list[list[str]]:
    """Runs of columns that are numbered through, such as f0, f1, f2, the longest first."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            groups.setdefault(match[1], []).append((int(match[2]), name))
    through = [g for g in groups.values() if len(g) > 1 and [n for n, _ in g] == list(range(g[0][0], g[0][0] + len(g)))]
    return sorted(([name for _, name in group] for group in through), key=len, reverse=True)


def has_vectors(source: Path) -> bool:
    """Whether a table has columns that would be taken for vectors; a table that lists images has none."""
    try:
        is_csv = source.suffix.lower() in DELIMITERS
        # Of a CSV file the first block is enough.
        schema = arrow_csv.open_csv(source, *_csv_options(source, {})).schema if is_csv else pq.read_schema(source)
        return bool(_vector_columns(source, schema, None, set(_other_columns(source, schema, {}).values())))
    except (StoreError, OSError, pa.ArrowException):
        return False


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_text(kind: pa.DataType) -> bool:
    return (kind.value_type if pa.types.is_dictionary(kind) else kind) in (pa.string(), pa.large_string())


def is_list_of_floats(kind: pa.DataType) -> bool:
    """Whether a column of this type holds vectors."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _numbers(source: Path, column: Any, name: str) -> NDArray[Any]:
    if not _is_number(column.type):
        raise StoreError(f"{str(source)!r}: column {name!r} must hold numbers, not {column.type}")
    if column.null_count:
        row = column.is_null().to_pylist().index(True) + 1
        raise StoreError(f"{str(source)!r}: column {name!r} has missing values, the first in row {row}")
    values: NDArray[Any] = column.to_numpy()
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def stacked(source: Path, table: Columns, name: str) -> NDArray[Any]:
    """A column of lists as one array (n_rows, n_dims), filled chunk by chunk."""
    kind = table.schema.field(name).type
    if not is_list_of_floats(kind):
        raise StoreError(f"{str(source)!r}: column {name!r} must hold lists of floats, not {kind}")
    X: NDArray[Any] = np.empty((0, 1), kind.value_type.to_pandas_dtype())
    start = 0
    for chunk in filter(len, table.chunks(name)):
        values = chunk.flatten()
        if chunk.null_count or values.null_count:
            raise StoreError(f"{str(source)!r}: column {name!r} has missing values")
        fixed = pa.types.is_fixed_size_list(kind)
        lengths = {kind.list_size} if fixed else set(chunk.value_lengths().unique().to_pylist())
        lengths |= {X.shape[1]} if start else set()
        if len(lengths) > 1:
            raise StoreError(
                f"{str(source)!r}: column {name!r} holds vectors of {min(lengths)} and {max(lengths)} numbers"
            )
        if start == 0:
            X = np.empty((table.n_rows, *lengths), X.dtype)
        X[start : start + len(chunk)] = values.to_numpy(zero_copy_only=False).reshape(len(chunk), -1)
        start += len(chunk)
    return X


def text_column(source: Path, column: Any, name: str) -> NDArray[Any]:
    """A column of strings, or of integers, as they are; None where a cell is empty."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        # NumPy gives every cell the room of the longest, which may take gigabytes.
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if 4 * longest * len(column) > MAX_TEXT_BYTES:
            raise StoreError(f"{str(source)!r}: a cell of column {name!r} has {longest:,} bytes, too long for a name")
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    if not _is_text(column.type):
        raise StoreError(
            f"{str(source)!r}: expected a column of text or whole numbers without gaps, not {column.type} ({name!r})"
        )
    values: NDArray[Any] = np.array([value or None for value in column.to_pylist()], dtype=object)
    return values.astype(np.str_) if all(value is not None for value in values) else values


def class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """Names of a ClassLabel column, where Hugging Face's datasets left them in the file."""
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def as_labels(source: Path, labels: Any, names: Any) -> Any:
    """Labels as text: integers through the names of their classes, where there are names."""
    if labels is None or labels.dtype.kind not in "iu":
        return labels
    if names is None:
        return labels.astype(np.str_)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise StoreError(
            f"{str(source)!r}: labels go from {labels.min()} to {labels.max()}, but there are {len(names):,} names"
        )
    return np.asarray(names, dtype=np.str_)[labels]


def read_csv(source: Path, names: dict[str, str]) -> pa.Table:
    """A CSV or TSV file, with or without a header; columns that hold labels and the like stay text, "007" too."""
    return arrow_csv.read_csv(source, *_csv_options(source, names))


def _csv_options(source: Path, names: dict[str, str]) -> tuple[Any, Any, Any]:
    """Encoding, delimiter, header and decimal mark of a CSV file, by its first two lines."""
    with source.open("rb") as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with source.open(encoding=encoding, newline="") as text:
        try:
            lines = [text.readline(), text.readline()]
        except UnicodeError as error:
            raise StoreError(f"cannot read {str(source)!r} as text: {error}") from None
    delimiter = max(DELIMITERS[source.suffix.lower()], key=lines[0].count)
    first, second = (next(csv.reader([line], delimiter=delimiter), []) for line in lines)
    header = first if _is_header(first) else [f"column{i}" for i in range(1, len(first) + 1)]
    usual = {name.lower() for part, known in USUAL_NAMES.items() if part != "vectors" for name in known}
    own = {name for part, name in names.items() if part != "vectors"}
    as_text = {name: pa.string() for name in header if name.lower() in usual or name in own}
    comma = delimiter == ";" and any(re.fullmatch(r"-?\d+,\d+(e-?\d+)?", cell.strip(), re.I) for cell in second)
    return (
        arrow_csv.ReadOptions(
            column_names=None if header is first else header, encoding=encoding.removesuffix("-sig"), block_size=1 << 24
        ),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(column_types=as_text, decimal_point="," if comma else "."),
    )


def _is_header(cells: list[str]) -> bool:
    """Whether a first line names columns: no numbers in it, but for those that only count."""
    numbers = [cell for cell in cells if _as_float(cell) is not None]
    counts = [int(cell) for cell in numbers if cell.isdecimal()]
    return len(counts) == len(numbers) and counts in (list(range(len(counts))), list(range(1, len(counts) + 1)))


def _as_float(cell: str) -> float | None:
    try:
        return float(cell.replace(",", "."))
    except ValueError:
        return None


def is_dataset_folder(source: Path) -> bool:
    """Whether a folder is a dataset of Hugging Face's: saved to disk (Arrow), or as the hub has it (Parquet)."""
    return any((source / name).is_file() for name in ("dataset_dict.json", "state.json")) or bool(_hub_files(source))


def read_dataset_folder(source: Path) -> pa.Table:
    """The rows of a folder of Hugging Face's datasets, splits one after the other; nothing is imported or executed."""
    listed = source / "dataset_dict.json"
    if listed.is_file():
        splits = _strings(listed, "splits")
        strange = [split for split in splits if not split or Path(split).name != split]
        if strange:
            raise StoreError(f"{str(listed)!r} names the split {strange[0]!r}, which is no folder beside it")
        return pa.concat_tables([_with_split(_read_arrow(source / split), split) for split in splits])
    if (source / "state.json").is_file():
        return _read_arrow(source)
    return pa.concat_tables([_with_split(pq.read_table(file), split) for split, file in _hub_files(source)])


def _hub_files(source: Path) -> list[tuple[str, Path]]:
    """Splits and their files, as in ``data/train-00000-of-00002.parquet``."""
    files = [file for folder in (source, source / "data") for file in sorted(folder.glob("*.parquet"))]
    named = [(_HUB_FILE.fullmatch(file.name), file) for file in files]
    return [(match[1], file) for match, file in named if match]


def _with_split(table: pa.Table, split: str) -> pa.Table:
    if "split" in table.column_names:
        return table
    return table.append_column("split", pa.array([split] * table.num_rows, pa.string()))


def _read_arrow(folder: Path) -> pa.Table:
    state = folder / "state.json"
    files = _strings(state, "_data_files")
    strange = [file for file in files if not _ARROW_FILE.fullmatch(file)]
    if strange or not files:
        raise StoreError(f"{str(state)!r} must list Arrow files beside it, got {quoted(strange or files)}")
    tables = []
    for file in files:
        mapped = pa.memory_map(str(folder / file))
        try:
            tables.append(pa.ipc.open_stream(mapped).read_all())
        except pa.ArrowInvalid:
            tables.append(pa.ipc.open_file(mapped).read_all())
    return pa.concat_tables(tables)


def _strings(file: Path, key: str) -> list[str]:
    """The list of strings under a key of a JSON file, or of the ``filename`` of the objects there."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))[key]
        return [str(entry["filename"] if isinstance(entry, dict) else entry) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{str(file)!r} is damaged: expected a list {key!r} ({type(error).__name__})") from None


def read_labels(path: str | Path, column: str | None = None) -> NDArray[Any]:
    """Labels of a file of their own, one per vector and in the same order.

    path : ``.npy`` (text or integers), ``.txt`` (one per line), ``.csv`` or ``.tsv`` (`column`, else a usual name, else
        the only column)
    """
    source, kind = Path(path), Path(path).suffix.lower()
    try:
        if kind in DELIMITERS:
            return _label_column(source, column)
        if kind == ".txt":
            lines = [line.strip() for line in source.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")]
            if "" in lines:
                raise StoreError(f"{str(source)!r}: line {lines.index('') + 1} is empty; one label per line is needed")
            return np.array(lines)
        if kind == ".npy":
            values = np.load(source, allow_pickle=False)
            if values.ndim == 1 and values.dtype.kind in "iuUS":
                return np.asarray(values, dtype=np.str_)
            raise StoreError(
                f"{str(source)!r}: labels must be text or whole numbers of shape (n_images,), got {values.dtype} "
                f"of shape {values.shape}"
            )
    except StoreError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:  # a UnicodeError is a ValueError
        raise StoreError(f"cannot read {str(source)!r}: {str(error).partition(chr(10))[0][:200]}") from None
    raise StoreError(f"{str(source)!r}: expected labels in a .npy, .txt, .csv or .tsv file")


def _label_column(source: Path, column: str | None) -> NDArray[Any]:
    names = {"labels": column} if column else {}
    table = read_csv(source, names)
    known = table.column_names
    chosen = named_parts(source, names, known).get("labels") or (known[0] if len(known) == 1 else None)
    if chosen is None:
        raise StoreError(f"{str(source)!r}: which column has the labels? It has {quoted(known, 10)}; say --labels")
    values = text_column(source, table.column(chosen), chosen)
    if None in values.tolist():
        raise StoreError(f"{str(source)!r}: column {chosen!r} has empty cells; one label per vector is needed")
    return values.astype(np.str_)
