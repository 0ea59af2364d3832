"""Embeddings in other people's files, in and out; nothing in them is executed."""

import hashlib
import os
import zipfile
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from hcep._files import replacing
from hcep.embeddings import tables
from hcep.embeddings.store.manifest import MAX_DIMS, StoreError
from hcep.embeddings.torch_file import read_torch_file
from hcep.errors import quoted

#: A file that unpacks to more than this is refused before it is read.
MAX_BYTES = 1 << 36
#: So is a Parquet file that unpacks to more than this and than so many times its own size.
BOMB_BYTES, BOMB_RATIO = 1 << 29, 200

_SEALED_ROWS = 4096
#: Arrays of an ``.npz`` that name the classes which its integer labels count.
LABEL_NAMES = ("wnids", "label_names", "class_names")
WRITTEN = (".npy", ".npz", ".parquet")
SUFFIXES = (*WRITTEN, ".csv", ".tsv", ".pt", ".pth")


@dataclass(frozen=True)
class EmbeddingArrays:
    """Vectors and what is known of their images, as arrays.

    Attributes
    ----------
    vectors : (n_images, n_dims) float array
    labels, ids, paths, splits : (n_images,) str, or None; an object array with None where some images have no value
    note : what columns or arrays were taken for, in one sentence; '' where there was no choice
    """

    vectors: NDArray[Any]
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    paths: NDArray[Any] | None = None
    splits: NDArray[Any] | None = None
    note: str = ""

    def __len__(self) -> int:
        return len(self.vectors)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays beside the vectors that are there."""
        return {name: values for name in tables.TEXTS if (values := getattr(self, name)) is not None}


def read_arrays(
    path: str | os.PathLike[str],
    *,
    names: Mapping[str, str] | None = None,
    label_names: Sequence[str] | str | None = None,
    labels: str | os.PathLike[str] | None = None,
) -> EmbeddingArrays:
    """Read embeddings from a file or folder; nothing in it is executed.

    Parameters
    ----------
    path : ``.npy`` (memory-mapped), ``.npz``, ``.parquet``, ``.csv``, ``.tsv``, ``.pt`` and ``.pth`` files (plain
        tensors, which torch is not needed for), or a folder that Hugging Face's datasets saved
    names : what the arrays, keys or columns are called, for any of vectors, labels, ids, paths, splits. Without it, the
        usual names are tried. Vectors may be several columns of a table: ``"a,b,c"``, ``"f*"`` or ``"f0:f511"``.
    label_names : names of the classes that integer labels count; a string is the ``.npz`` array that has them. A table
        that Hugging Face's datasets wrote brings its own. Without names, the integers become text.
    labels : a file of labels, one per vector: ``.npy``, ``.txt`` or ``.csv``; they come before the file's own

    >>> import numpy as np
    >>> from hcep.embeddings.arrays import EmbeddingArrays, read_arrays, write_arrays
    >>> X = np.eye(2, dtype=np.float32)
    >>> write_arrays("pets.npz", EmbeddingArrays(X, labels=np.array(["cat", "dog"])))
    >>> read_arrays("pets.npz").labels
    array(['cat', 'dog'], dtype='<U3')
    """
    source = Path(path)
    of_folder = source.is_dir() and tables.is_dataset_folder(source)
    if not of_folder and source.suffix.lower() not in SUFFIXES:
        raise StoreError(f"{str(source)!r}: expected a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    unknown = set(names or {}) - tables.USUAL_NAMES.keys()
    if unknown:
        raise StoreError(f"names has the unknown key {min(unknown)!r}; expected {quoted(tables.USUAL_NAMES)}")
    given = dict(names or {})
    column = given.pop("labels", None) if labels is not None else None
    try:
        arrays = _read(source, "folder" if of_folder else source.suffix.lower(), given, label_names)
    except FileNotFoundError as error:
        raise StoreError(f"no file at {str(error.filename or source)!r}") from None
    except StoreError:
        raise
    except MemoryError:
        raise StoreError(f"cannot read {str(source)!r}: it takes more memory than there is") from None
    except Exception as error:  # what NumPy, Arrow and zlib answer hostile bytes with is anything
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise StoreError(f"cannot read {str(source)!r}: {reason}") from error
    if labels is not None:
        arrays = replace(arrays, labels=tables.read_labels(Path(labels), column))
    X = arrays.vectors
    if X.ndim != 2 or X.dtype.kind != "f" or not 0 < X.shape[1] <= MAX_DIMS:
        raise StoreError(
            f"{str(source)!r}: vectors must be floats of shape (n_images, n_dims), got {X.dtype} of shape {X.shape}"
        )
    for name, values in arrays.columns().items():
        if values.shape != (len(X),):
            raise StoreError(f"{str(source)!r}: {len(X):,} vectors, but {name} have shape {values.shape}")
    return arrays


def _read(source: Path, kind: str, names: dict[str, str], label_names: Any) -> EmbeddingArrays:
    if kind == ".npy":
        return EmbeddingArrays(map_npy(source))
    if kind == ".npz":
        return _read_npz(source, names, label_names)
    if kind in (".pt", ".pth"):
        return _read_torch(source, names, label_names)
    if kind == ".parquet":
        with pq.ParquetFile(source) as file:
            refuse_bomb(source, file)
            groups = range(file.num_row_groups)
            columns = tables.Columns(
                file.schema_arrow,
                file.metadata.num_rows,
                lambda name: (c for i in groups for c in file.read_row_group(i, columns=[name]).column(name).chunks),
            )
            return EmbeddingArrays(**tables.table_parts(source, columns, names, label_names))
    table = tables.read_dataset_folder(source) if kind == "folder" else tables.read_csv(source, names)
    columns = tables.Columns(table.schema, table.num_rows, lambda name: table.column(name).chunks)
    return EmbeddingArrays(**tables.table_parts(source, columns, names, label_names))


def write_arrays(path: str | os.PathLike[str], arrays: EmbeddingArrays) -> None:
    """Write embeddings to a ``.npy`` (vectors only), ``.npz`` or ``.parquet`` file, atomically.

    Arrays are called vectors, labels, ids, paths and splits in a ``.npz``; columns embedding, label, id, path and split
    in Parquet, which Hugging Face's datasets loads as it is. A missing value is empty text in a ``.npz``.
    """
    target = Path(path)
    if target.suffix not in WRITTEN:
        raise StoreError(f"{str(target)!r}: expected a .npy, .npz or .parquet file")
    X, text = np.ascontiguousarray(arrays.vectors), arrays.columns()
    with replacing(target, StoreError) as partial:
        if target.suffix == ".npy":
            write_npy_in_pieces(partial, X.shape, X.dtype, [X])
        elif target.suffix == ".npz":
            named: dict[str, Any] = {
                name: np.array(["" if value is None else str(value) for value in values.tolist()], dtype=np.str_)
                for name, values in text.items()
            }
            with partial.open("wb") as file:
                np.savez(file, vectors=X, **named)
        else:
            columns = {name.removesuffix("s"): pa.array(values.tolist(), pa.string()) for name, values in text.items()}
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
            # Rows of a group are decoded together: keep them near 16 MB.
            rows = max(1, (1 << 24) // max(1, X.itemsize * X.shape[1]))
            table = pa.table({**columns, "embedding": vectors})
            pq.write_table(table, partial, row_group_size=rows, use_dictionary=list(columns))


def _find(source: Path, names: dict[str, str], known: list[str]) -> dict[str, str]:
    found = tables.named_parts(source, names, known)
    if "vectors" not in found:
        raise StoreError(
            f"{str(source)!r} has no vectors under a usual name, only {quoted(known, 20)}; say "
            'names={"vectors": ...} (--vectors NAME); labels, ids, paths and splits are taken where they are named'
        )
    return found


def map_npy(path: Path) -> NDArray[Any]:
    """Memory-map an array, read-only; one without elements is read instead, as nothing cannot be mapped."""
    try:
        with path.open("rb") as file:
            _, shape, _ = _header(file)
        array: NDArray[Any] = np.load(path, mmap_mode="r" if np.prod(shape) else None, allow_pickle=False)
    except (ValueError, OverflowError, SyntaxError, EOFError, MemoryError) as error:
        raise StoreError(f"cannot read {str(path)!r}: {error}") from None
    return array


def write_npy_in_pieces(
    path: Path, shape: tuple[int, int], dtype: DTypeLike, pieces: Iterable[NDArray[Any]], sealed: bool = False
) -> None:
    """Write a ``.npy`` file of rows that come in pieces, never held together.

    Where it is `sealed`, the SHA-256 of the rows follows them, where no reader of the array looks.
    """
    digest = hashlib.sha256()
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for rows in pieces:
            data = np.ascontiguousarray(rows, dtype=dtype).data
            file.write(data)
            if sealed and data.nbytes:
                digest.update(data)
        if sealed:
            file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())


def is_sealed(path: Path, array: NDArray[Any]) -> bool:
    """Whether the rows of a sealed file are those that were written; all of them are read for it."""
    digest = hashlib.sha256()
    for start in range(0, len(array), _SEALED_ROWS):
        digest.update(np.ascontiguousarray(array[start : start + _SEALED_ROWS]).data)
    with path.open("rb") as file:
        file.seek(-digest.digest_size, os.SEEK_END)
        return file.read() == digest.digest()


def _header(file: Any) -> tuple[int, tuple[int, ...], np.dtype[Any]]:
    """Bytes of the header, shape and dtype of an array in the .npy format."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return file.tell(), shape, dtype


def usual_label_names(path: str | os.PathLike[str]) -> str | None:
    """The array of an ``.npz`` that names the classes which its integer labels count, by its usual names."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = set(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None
    return next((name for name in LABEL_NAMES if f"{name}.npy" in present), None)


def _read_npz(source: Path, names: dict[str, str], label_names: Sequence[str] | str | None) -> EmbeddingArrays:
    called, asked = None, names.get("labels") in LABEL_NAMES
    with zipfile.ZipFile(source) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        if asked:
            names, label_names = {part: name for part, name in names.items() if part != "labels"}, names["labels"]
        found = _find(source, names, present)
        parts: dict[str, Any] = {part: _member(source, archive, name) for part, name in found.items()}
        if "paths" not in names and "paths" in parts and parts["paths"].dtype.kind not in "US":
            del parts["paths"]  # `images` that are pixels, not paths
        if isinstance(label_names, str):
            if label_names not in present:
                raise tables.absent(source, label_names, present)
            called, label_names = label_names, _member(source, archive, label_names).tolist()
            labels = parts.get("labels")
            counted = labels.tolist() if labels is not None and labels.dtype.kind in "iu" else None
            if _is_per_image(label_names, counted, len(parts["vectors"])) if counted or labels is None else asked:
                parts["labels"], found["labels"] = np.array(label_names, dtype=np.str_), called
            elif counted:
                found["names"] = called
    parts["labels"] = tables.as_labels(source, parts.get("labels"), label_names)
    text: dict[str, Any] = {part: _with_missing(parts.get(part)) for part in tables.TEXTS}
    others = [name for name in LABEL_NAMES if name in present and name != called]
    as_names = f", as named in {called!r}" if "names" in found else ""
    taken = f"{source.name}: vectors of array {found['vectors']!r}, labels of array {found.get('labels')!r}{as_names}"
    note = f"{taken}; --labels {others[0]} takes other names" if others and called in found.values() else ""
    return EmbeddingArrays(parts["vectors"], **text, note=note)


def _is_per_image(names: Sequence[Any], labels: list[int] | None, n_images: int) -> bool:
    """Whether names are of the images, not of the classes that labels count: equal labels have equal names."""
    if labels is None or len(names) != n_images:
        return len(names) == n_images
    return len(set(zip(labels, names, strict=True))) == len(set(labels)) < n_images


def label_array_in(path: str | os.PathLike[str], known: Container[str]) -> str | None:
    """The array of an ``.npz`` with names of classes that are all known, if there is one."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        named = {n: _member(Path(path), archive, n) for n in LABEL_NAMES if f"{n}.npy" in archive.namelist()}
    return next((name for name, values in named.items() if all(str(one) in known for one in values.tolist())), None)


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
    if values is None:
        return None
    text = values.astype(np.str_)
    return np.array([one or None for one in text.tolist()], dtype=object) if (text == "").any() else text


def refuse_bomb(source: Path, file: pq.ParquetFile) -> None:
    """Raise, by the headers alone, where a file unpacks to more than we take, or to absurdly more than it is."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(max(chunk.total_uncompressed_size, 4 * chunk.num_values) for chunk in chunks)
    if size > MAX_BYTES or size > max(BOMB_BYTES, BOMB_RATIO * source.stat().st_size):
        raise StoreError(f"{str(source)!r} unpacks to {size:,} bytes; split it, or write it without compression")


def _read_torch(source: Path, names: dict[str, str], label_names: Any) -> EmbeddingArrays:
    """A tensor, a pair of vectors and labels, or a dict of tensors and lists."""
    content = read_torch_file(source)
    if isinstance(content, (list, tuple)) and len(content) == 2:
        content = dict(zip(("vectors", "labels"), content, strict=True))
    if not isinstance(content, dict):
        return EmbeddingArrays(np.asarray(content))
    found = _find(source, names, [str(key) for key in content])
    parts: dict[str, Any] = {part: np.asarray(content[name]) for part, name in found.items()}
    parts["labels"] = tables.as_labels(source, parts.get("labels"), label_names)
    for part in tables.TEXTS:
        if parts.get(part) is not None:
            if parts[part].dtype.kind not in "iuU":
                raise StoreError(f"{str(source)!r}: {part} must be text or whole numbers, got {parts[part].dtype}")
            parts[part] = parts[part].astype(np.str_)
    return EmbeddingArrays(**parts)
