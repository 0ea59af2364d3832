"""Embeddings in other people's files: .npy, .npz (never pickled) and Hugging Face style Parquet, in and out."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from hcep._files import replacing
from hcep.embeddings.store.manifest import MAX_DIMS, StoreError
from hcep.errors import near_matches, quoted

#: A file that unpacks to more than this is refused before it is read.
MAX_BYTES = 1 << 36

#: Names under which a file's parts are looked for when none is given.
USUAL_NAMES = {
    "vectors": ("embeddings", "embedding", "vectors", "vector", "image_embeds", "features", "X"),
    "labels": ("labels", "label", "y"),
    "ids": ("ids", "id"),
    "paths": ("paths", "path", "file_name", "images"),
    "splits": ("splits", "split"),
}
#: Arrays of an ``.npz`` that name the classes which its integer labels count.
LABEL_NAMES = ("wnids", "label_names", "class_names")
SUFFIXES = (".npy", ".npz", ".parquet")


@dataclass(frozen=True)
class EmbeddingArrays:
    """Vectors and what is known of their images, as arrays.

    Attributes
    ----------
    vectors : (n_images, n_dims) float array
    labels, ids, paths, splits : (n_images,) array of str, or None
        An object array with None where some images have no value.
    """

    vectors: NDArray[Any]
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    paths: NDArray[Any] | None = None
    splits: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays beside the vectors that are there."""
        found = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: values for name, values in found.items() if values is not None}


def read_arrays(
    path: str | os.PathLike[str],
    *,
    names: Mapping[str, str] | None = None,
    label_names: Sequence[str] | str | None = None,
) -> EmbeddingArrays:
    """Read embeddings from a ``.npy``, ``.npz`` or ``.parquet`` file; nothing in it is executed.

    Parameters
    ----------
    path : path
        A ``.npy`` file is memory-mapped.
    names : mapping, optional
        What the arrays or columns are called, for any of vectors, labels, ids, paths, splits. Without it, the usual
        names are tried.
    label_names : sequence of str, or str, optional
        Names of the classes that integer labels count; a string is the ``.npz`` array that has them. A Parquet file
        that Hugging Face's datasets wrote brings its own, and an ``.npz`` may have them as wnids, label_names or
        class_names. Without names, the integers become text.

    Raises
    ------
    StoreError
        Not such a file, pickled or truncated content, no vectors under the name, rows that do not match.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep.embeddings.arrays import EmbeddingArrays, read_arrays, write_arrays
    >>> X = np.eye(2, dtype=np.float32)
    >>> write_arrays("pets.npz", EmbeddingArrays(X, labels=np.array(["cat", "dog"])))
    >>> read_arrays("pets.npz").labels
    array(['cat', 'dog'], dtype='<U3')
    """
    source = Path(path)
    if source.suffix not in SUFFIXES:
        raise StoreError(f"{str(source)!r}: expected a .npy, .npz or .parquet file")
    unknown = set(names or {}) - USUAL_NAMES.keys()
    if unknown:
        raise StoreError(f"names has the unknown key {min(unknown)!r}; expected {quoted(USUAL_NAMES)}")
    try:
        arrays = _READERS[source.suffix](source, dict(names or {}), label_names)
    except FileNotFoundError:
        raise StoreError(f"no file at {str(source)!r}") from None
    except (OSError, zipfile.BadZipFile, EOFError, pa.ArrowException) as error:
        raise StoreError(f"cannot read {str(source)!r}: {str(error).partition(chr(10))[0][:200]}") from None
    return _checked(source, arrays)


def write_arrays(path: str | os.PathLike[str], arrays: EmbeddingArrays) -> None:
    """Write embeddings to a ``.npy`` (vectors only), ``.npz`` or ``.parquet`` file, atomically.

    Arrays are called vectors, labels, ids, paths and splits in a ``.npz``; columns embedding, label, id, path and split
    in Parquet, which Hugging Face's datasets loads as it is. A missing value is empty text in a ``.npz``.

    Raises
    ------
    StoreError
        The suffix is none of the three, or the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in _WRITERS:
        raise StoreError(f"{str(target)!r}: expected a .npy, .npz or .parquet file")
    with replacing(target, StoreError) as partial:
        _WRITERS[target.suffix](partial, arrays)


def _checked(source: Path, arrays: EmbeddingArrays) -> EmbeddingArrays:
    X = arrays.vectors
    if X.ndim != 2 or X.dtype.kind != "f" or not 0 < X.shape[1] <= MAX_DIMS:
        raise StoreError(
            f"{str(source)!r}: vectors must be floats of shape (n_images, n_dims), got {X.dtype} of shape {X.shape}"
        )
    for name, values in arrays.columns().items():
        if values.shape != (len(X),):
            raise StoreError(f"{str(source)!r}: {len(X):,} vectors, but {name} have shape {values.shape}")
    return arrays


def _find(source: Path, names: dict[str, str], present: Iterable[str]) -> dict[str, str]:
    """Which of the names that are present holds which part."""
    known = list(present)
    found = {}
    for part, usual in USUAL_NAMES.items():
        asked = names.get(part)
        if asked is not None and asked not in known:
            raise _absent(source, asked, known)
        match = asked or next((name for name in usual if name in known), None)
        if match:
            found[part] = match
    if "vectors" not in found:
        raise StoreError(
            f'{str(source)!r} has no vectors under a usual name, only {quoted(known, 20)}; say names={{"vectors": ...}}'
        )
    return found


def _absent(source: Path, name: str, known: list[str]) -> StoreError:
    return StoreError(f"{str(source)!r} has no {name!r}, only {quoted(known, 20)}." + near_matches(name, known))


def _as_labels(source: Path, labels: NDArray[Any] | None, names: Sequence[str] | None) -> NDArray[Any] | None:
    """Labels as text: integers through the names of their classes, where there are names."""
    if labels is None or labels.dtype.kind not in "iu":
        return labels
    if names is None:
        return labels.astype(np.str_)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise StoreError(
            f"{str(source)!r}: labels go from {labels.min()} to {labels.max()}, but there are {len(names):,} names"
        )
    named: NDArray[Any] = np.asarray(names, dtype=np.str_)[labels]
    return named


# -- .npy and .npz ---------------------------------------------------------------------------------------


def map_npy(path: Path) -> NDArray[Any]:
    """Memory-map an array, read-only; one without elements is read instead, as nothing cannot be mapped."""
    try:
        with path.open("rb") as file:
            _, shape, _ = _header(file)
        array: NDArray[Any] = np.load(path, mmap_mode="r" if np.prod(shape) else None, allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"cannot read {str(path)!r}: {error}") from None
    return array


def write_npy_in_pieces(path: Path, shape: tuple[int, int], dtype: DTypeLike, pieces: Iterable[NDArray[Any]]) -> None:
    """Write a ``.npy`` file of rows that come in pieces, never held together."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for rows in pieces:
            file.write(np.ascontiguousarray(rows, dtype=dtype).data)
        file.flush()
        os.fsync(file.fileno())


def _header(file: Any) -> tuple[int, tuple[int, ...], np.dtype[Any]]:
    """Bytes of the header, shape and dtype of an array in the .npy format."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return file.tell(), shape, dtype


def _read_npy(source: Path, names: dict[str, str], label_names: Any) -> EmbeddingArrays:
    return EmbeddingArrays(map_npy(source))


def _read_npz(source: Path, names: dict[str, str], label_names: Sequence[str] | str | None) -> EmbeddingArrays:
    with zipfile.ZipFile(source) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        found = _find(source, names, present)
        parts = {part: _member(source, archive, name) for part, name in found.items()}
        if "paths" not in names and "paths" in parts and parts["paths"].dtype.kind not in "US":
            del parts["paths"]  # `images` that are pixels, not paths
        if label_names is None:
            label_names = next((name for name in LABEL_NAMES if name in present), None)
        if isinstance(label_names, str):
            if label_names not in present:
                raise _absent(source, label_names, present)
            label_names = _member(source, archive, label_names).tolist()
    labels = _as_labels(source, parts.pop("labels", None), label_names)
    vectors = parts.pop("vectors")
    return EmbeddingArrays(vectors, *(_with_missing(a) for a in (labels, *map(parts.get, ("ids", "paths", "splits")))))


def _member(source: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of a .npz, its claimed size checked against the archive's before memory is set aside for it."""
    info = archive.getinfo(f"{name}.npy")
    try:
        with archive.open(info) as file:
            length, shape, dtype = _header(file)
        n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not dtype.hasobject and (n_bytes + length != info.file_size or n_bytes > MAX_BYTES):
            raise ValueError(f"shape {shape} does not fit {info.file_size:,} bytes")
        with archive.open(info) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"cannot read {name!r} in {str(source)!r}: {error}") from None
    return array


def _with_missing(values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Text with None where it is empty."""
    if values is None:
        return None
    text = values.astype(np.str_)
    empty = text == ""
    if not empty.any():
        return text
    found = text.astype(object)
    found[empty] = None
    return found


def _write_npy(path: Path, arrays: EmbeddingArrays) -> None:
    write_npy_in_pieces(path, arrays.vectors.shape, arrays.vectors.dtype, [arrays.vectors])


def _write_npz(path: Path, arrays: EmbeddingArrays) -> None:
    text: dict[str, Any] = {name: _without_missing(values) for name, values in arrays.columns().items()}
    with path.open("wb") as file:
        np.savez(file, vectors=arrays.vectors, **text)


def _without_missing(values: NDArray[Any]) -> NDArray[np.str_]:
    return np.array(["" if value is None else str(value) for value in values.tolist()], dtype=np.str_)


# -- Parquet ---------------------------------------------------------------------------------------------


def _read_parquet(source: Path, names: dict[str, str], label_names: Sequence[str] | None) -> EmbeddingArrays:
    with pq.ParquetFile(source) as file:
        found = _find(source, names, file.schema_arrow.names)
        size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
        if size > MAX_BYTES:
            raise StoreError(f"{str(source)!r} unpacks to {size:,} bytes; split it")
        features = _class_names(file.schema_arrow, found.get("labels", ""))
        columns = file.read(columns=[name for part, name in found.items() if part != "vectors"])
        vectors = _vectors(source, file, found["vectors"])
    text: dict[str, NDArray[Any] | None] = {
        part: _text(source, columns.column(name)) for part, name in found.items() if part != "vectors"
    }
    text["labels"] = _as_labels(source, text.get("labels"), label_names or features)
    return EmbeddingArrays(vectors, **text)


def _vectors(source: Path, file: pq.ParquetFile, name: str) -> NDArray[Any]:
    """A column of lists as one array, filled row group by row group."""
    kind = file.schema_arrow.field(name).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise StoreError(f"{str(source)!r}: column {name!r} must hold lists of floats, not {kind}")
    X: NDArray[Any] = np.empty((0, 1), kind.value_type.to_pandas_dtype())
    start = 0
    for i in range(file.num_row_groups):
        for chunk in filter(len, file.read_row_group(i, columns=[name]).column(name).chunks):
            rows = _rectangular(source, chunk, name)
            if start == 0:
                X = np.empty((file.metadata.num_rows, rows.shape[1]), rows.dtype)
            if rows.shape[1] != X.shape[1]:
                raise StoreError(
                    f"{str(source)!r}: column {name!r} holds vectors of {rows.shape[1]} and {X.shape[1]} numbers"
                )
            X[start : start + len(rows)] = rows
            start += len(rows)
    return X


def _rectangular(source: Path, chunk: Any, name: str) -> NDArray[Any]:
    values = chunk.flatten()
    if chunk.null_count or values.null_count:
        raise StoreError(f"{str(source)!r}: column {name!r} has missing values")
    if not pa.types.is_fixed_size_list(chunk.type):
        lengths = np.unique(chunk.value_lengths().to_numpy())
        if len(lengths) > 1:
            raise StoreError(
                f"{str(source)!r}: column {name!r} holds vectors of {lengths[0]} and {lengths[-1]} numbers"
            )
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(chunk), -1)


def _text(source: Path, column: Any) -> NDArray[Any]:
    """A column of strings, or of integers, as they are."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise StoreError(f"{str(source)!r}: expected a column of text or whole numbers without gaps, not {column.type}")
    values: NDArray[Any] = np.array(column.to_pylist(), dtype=object)
    return values if column.null_count else values.astype(np.str_)


def _class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """Names of a ClassLabel column, where Hugging Face's datasets left them in the file."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        names = info["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _write_parquet(path: Path, arrays: EmbeddingArrays) -> None:
    X = np.ascontiguousarray(arrays.vectors)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    text = {name.removesuffix("s"): pa.array(values.tolist(), pa.string()) for name, values in arrays.columns().items()}
    # Rows of a group are decoded together: keep them near 16 MB.
    rows = max(1, (1 << 24) // max(1, X.itemsize * X.shape[1]))
    pq.write_table(pa.table({**text, "embedding": vector}), path, row_group_size=rows, use_dictionary=list(text))


_READERS: dict[str, Callable[..., EmbeddingArrays]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
_WRITERS: dict[str, Callable[[Path, EmbeddingArrays], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}
