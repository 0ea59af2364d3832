"""Embeddings in files: one table of formats to read and write. Nothing in a file is executed."""

import os
import re
import zipfile
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep._files import json_keys, regular, replacing
from hcep.embeddings.torch_file import read_torch_file
from hcep.embeddings.vectors import (
    COLUMNS,
    MANIFEST,
    MAX_DIMS,
    OF_SPLIT,
    Embeddings,
    StoreError,
    absent,
    find_names,
    memory_limit,
    named_labels,
)
from hcep.errors import HCEPError, MissingExtraError, quote, quoted, reason_of

if TYPE_CHECKING:
    from hcep.embeddings.store.embedding_store import EmbeddingStore

#: A file that unpacks to more bytes than this is refused before it is read.
MAX_BYTES = 1 << 36
#: The longest header of an array, as NumPy's own limit.
MAX_HEADER = 10_000
#: Arrays of an ``.npz`` file that name the classes which integer labels count, the preferred one first.
CLASS_NAMES = ("wnids", "label_names", "class_names")

_HUB_FILE = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet", re.ASCII)


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether there is an embedding store at the path."""
    return Path(path, MANIFEST).is_file()


def is_embeddings(path: str | os.PathLike[str]) -> bool:
    """Whether `read_embeddings` reads the path; a table without numbers is a list of images instead."""
    place = Path(path)
    kind = _kind(place)
    if kind in LISTS:
        from hcep.embeddings.tables import has_vectors

        return has_vectors(place)
    return kind is not None or is_store(place)


def read_embeddings(
    path: "EmbeddingStore | str | os.PathLike[str]",
    split: str | None = None,
    *,
    default_split: str | None = None,
    vectors: str | None = None,
    label: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    in_memory: int | None = None,
) -> Embeddings:
    """Read the embeddings of a store, a file of arrays or a table.

    Parameters
    ----------
    path : an embedding store, opened or by its folder; an ``.npy`` file (which is memory-mapped), ``.npz``,
        ``.parquet``, ``.csv`` or ``.tsv``, ``.pt`` or ``.pth`` (tensors; torch is not needed), ``.json`` written by
        ``bioclip embed``, ``.tar`` (a WebDataset shard with ``.npy`` vectors); or a folder of Hugging Face's datasets,
        clip-retrieval or LanceDB (which needs the package pylance)
    split : read only this split
    default_split : the split to read if `split` is None and the data has it
    vectors : name of the array, key or column with the vectors, if it is not a usual one. In a table it may stand for
        several columns: ``"a,b,c"``, ``"f*"`` or ``"f0:f511"``.
    label : name of the array, key or column with the labels, if it is not a usual one. In an ``.npz`` file it may be an
        array of names of the classes that integer labels count; by default an array or metadata of the file under a
        usual name, and without any, the integers become text.
    labels : a file of labels, one per vector (``.npy``, ``.txt``, ``.csv`` or ``.tsv``), used instead of the data's own
    in_memory : if a store has more images than this, its vectors stay on disk: ``Embeddings.X`` is then the store

    >>> import numpy as np
    >>> from hcep.embeddings import Embeddings, read_embeddings, write_embeddings
    >>> X = np.eye(2, dtype=np.float32)
    >>> write_embeddings("pets.npz", Embeddings(X, labels=np.array(["cat", "dog"])))
    >>> read_embeddings("pets.npz").labels
    array(['cat', 'dog'], dtype='<U3')
    """
    if not isinstance(path, str | os.PathLike) or is_store(path):
        return _read_store(path, split, default_split, in_memory)
    source = Path(path)
    embeddings = _read_file(source, vectors, label if labels is None else None)
    if labels is not None:
        embeddings = replace(embeddings, labels=read_labels(Path(labels), label))
    _check_shapes(source, embeddings)
    known = [] if embeddings.splits is None else embeddings.splits.tolist()
    if split and embeddings.splits is None:
        raise HCEPError(
            f"{str(source)!r} has no splits, so none of its images is in split {quote(split)}; "
            "give data with that split, or leave out the split to use all images"
        )
    wanted = split or (default_split if default_split in known else None)
    if wanted is None:
        return embeddings
    if wanted not in known:
        raise HCEPError(
            f"no image of {str(source)!r} is in split {quote(wanted)}; there are {quoted(sorted(set(known)))}"
        )
    return embeddings.take(np.asarray(embeddings.splits) == wanted, source=f"{source}{OF_SPLIT}{wanted}")


def _read_store(path: Any, split: str | None, default_split: str | None, in_memory: int | None) -> Embeddings:
    from hcep.embeddings.store.embedding_store import EmbeddingStore

    store = path if isinstance(path, EmbeddingStore) else EmbeddingStore(path)
    wanted = split or (default_split if default_split and default_split in store.splits.tolist() else None)
    part = store.select(splits=wanted) if wanted else store
    source = str(store.folder) + (f"{OF_SPLIT}{wanted}" if wanted else "")
    if in_memory is not None and len(part) > in_memory:
        return Embeddings(part, part.labels, encoder=store.encoder, source=source)
    columns: dict[str, Any] = part.columns(*COLUMNS, "content_hashes")
    return Embeddings(part.to_numpy(np.float32), **columns, encoder=store.encoder, source=source)


def _read_file(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    kind = _kind(source)
    if kind is None:
        what = "no embeddings at" if source.exists() else "there is no file or folder"
        raise StoreError(
            f"{what} {str(source)!r}: expected a store made by `hcep encode`, a "
            f"{', '.join(k for k in READERS if k != 'folder')} file, or a folder of Hugging Face's datasets, "
            "clip-retrieval or LanceDB"
        )
    size = 0 if kind in (".npy", "folder") else source.stat().st_size
    if size > memory_limit():
        raise StoreError(
            f"{str(source)!r} has {size:,} bytes, more than half of this machine's memory, and would be read whole; "
            "write the vectors as .npy, which is not read into memory, and pass --labels FILE, or split the file"
        )
    try:
        return replace(READERS[kind](source, vectors, label), source=str(source))
    except (StoreError, MissingExtraError):
        raise
    except MemoryError:
        raise StoreError(f"cannot read {str(source)!r}: it needs more memory than is available") from None
    except Exception as error:  # damaged bytes make NumPy, Arrow and zlib raise almost anything
        raise StoreError(f"cannot read {str(source)!r}: {reason_of(error)}") from error


def _kind(source: Path) -> str | None:
    """The key in `READERS` of an existing file or folder, if it has one."""
    if source.is_dir():
        saved = any((source / name).is_file() for name in ("dataset_dict.json", "state.json"))
        saved = saved or (source / "img_emb").is_dir() or source.suffix == ".lance" or any(source.glob("*.lance"))
        return "folder" if saved or hub_files(source) else None
    kind = source.suffix.lower()
    if kind == ".json" and not json_keys(source) >= {"model", "embeddings"}:
        return None
    return kind if kind in READERS and source.is_file() else None


def hub_files(source: Path) -> list[tuple[str, Path]]:
    """Splits and files of a dataset in the hub's layout, as in ``data/train-00000-of-00002.parquet``."""
    files = [file for folder in (source, source / "data") for file in sorted(folder.glob("*.parquet"))]
    matches = [(_HUB_FILE.fullmatch(file.name), file) for file in files]
    return [(match[1], file) for match, file in matches if match]


def _check_shapes(source: Path, embeddings: Embeddings) -> None:
    X = embeddings.X
    if X.ndim != 2 or X.dtype.kind != "f" or not 0 < X.shape[1] <= MAX_DIMS:
        raise StoreError(
            f"{str(source)!r}: vectors must be floats of shape (n_images, n_dims), got {X.dtype} of shape {X.shape}"
        )
    for name, values in embeddings.columns.items():
        if values.shape != (len(X),):
            raise StoreError(f"{str(source)!r}: {len(X):,} vectors, but {name} have shape {values.shape}")


# -- one reader per format ---------------------------------------------------------------------------------------------


def _read_npy(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    with source.open("rb") as file:
        _, shape, _ = _npy_header(file)
    # An array without elements cannot be mapped.
    return Embeddings(np.load(source, mmap_mode="r" if np.prod(shape) else None, allow_pickle=False))


def _read_npz(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    with zipfile.ZipFile(source) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        by_names = label in CLASS_NAMES
        named = label if by_names else next((name for name in CLASS_NAMES if name in present), None)
        names = _require_vectors(source, {"vectors": vectors, "labels": None if by_names else label}, present)
        parts: dict[str, Any] = {part: array_of_npz(source, archive, name) for part, name in names.items()}
        if named is not None and named not in present:
            raise absent(source, named, present)
        class_names = None if named is None else array_of_npz(source, archive, named).tolist()
    if "paths" in parts and parts["paths"].dtype.kind not in "US":
        del parts["paths"]  # `images` may hold pixels instead of paths
    labels = parts.get("labels")
    counted = labels is not None and labels.dtype.kind in "iu"
    if named is not None and _name_images(class_names, labels, len(parts["vectors"]), by_names):
        labels, names["labels"], counted = np.array(class_names, dtype=np.str_), named, False
    parts["labels"] = named_labels(source, labels, class_names)
    text: dict[str, Any] = {part: _without_empty(parts.get(part)) for part in COLUMNS}
    others = [name for name in CLASS_NAMES if name in present and name != named]
    by_name = f", named by {quote(named)}" if counted and named else ""
    read_as = (
        f"{source.name}: vectors from array {quote(names['vectors'])}, labels from array {quote(names.get('labels'))}"
    )
    is_choice = others and named is not None and (by_name or names.get("labels") == named)
    note = f"{read_as}{by_name}; --labels {others[0]} takes other names" if is_choice else ""
    return Embeddings(parts["vectors"], **text, notes=(note,) if note else ())


def _name_images(names: Any, labels: NDArray[Any] | None, n_images: int, requested: bool) -> bool:
    """Whether an array of names has one per image, rather than one per class that integer labels count."""
    if labels is None:
        return len(names) == n_images
    if labels.dtype.kind not in "iu":
        return requested
    # Names of images go with the labels: images with equal labels have equal names.
    pairs = set(zip(labels.tolist(), names, strict=True)) if len(names) == n_images else ()
    return 0 < len(pairs) == len(set(labels.tolist())) < n_images


def _read_torch(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    """A tensor, a pair of vectors and labels, or a dict of tensors and lists."""
    content = read_torch_file(source)
    if isinstance(content, list | tuple) and len(content) == 2:
        content = dict(zip(("vectors", "labels"), content, strict=True))
    if not isinstance(content, dict):
        return Embeddings(np.asarray(content))
    names = _require_vectors(source, {"vectors": vectors, "labels": label}, [str(key) for key in content])
    parts: dict[str, Any] = {part: np.asarray(content[name]) for part, name in names.items()}
    parts["labels"] = named_labels(source, parts.get("labels"), None)
    text = {part: values for part in COLUMNS if (values := parts.get(part)) is not None}
    for part, values in text.items():
        if values.dtype.kind not in "iuU":
            raise StoreError(f"{str(source)!r}: {part} must be text or whole numbers, got {values.dtype}")
    return Embeddings(parts["vectors"], **{part: values.astype(np.str_) for part, values in text.items()})


def _read_table(source: Path, vectors: str | None, label: str | None) -> Embeddings:
    from hcep.embeddings import tables  # loads pyarrow

    return tables.read_table(source, vectors, label)


#: Readers by the file name's suffix; "folder" is a folder of Hugging Face's datasets, clip-retrieval or LanceDB.
READERS: dict[str, Callable[[Path, str | None, str | None], Embeddings]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_table,
    ".csv": _read_table,
    ".tsv": _read_table,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".json": _read_table,
    ".tar": _read_table,
    "folder": _read_table,
}
#: Tables that may list images instead of having vectors.
LISTS = (".parquet", ".csv", ".tsv")


def _require_vectors(source: Path, requested: dict[str, str | None], present: Sequence[str]) -> dict[str, str]:
    names = find_names(source, requested, present)
    if "vectors" not in names:
        raise StoreError(
            f"{str(source)!r} has no vectors under a known name, only {quoted(present, 20)}; "
            "name them with vectors=... (--vectors NAME)"
        )
    return names


def _npy_header(file: Any) -> tuple[int, tuple[int, ...], np.dtype[Any]]:
    """Length of the header in bytes, shape and dtype of an array in the .npy format."""
    version = np.lib.format.read_magic(file)
    start = file.tell()
    n_bytes = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if n_bytes > MAX_HEADER:  # reading it would allocate as much as a damaged file claims
        raise ValueError(f"its header claims {n_bytes:,} bytes")
    file.seek(start)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return file.tell(), shape, dtype


def array_of_npz(source: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of an .npz file; its claimed size is compared with the archive's before memory is allocated."""
    info = archive.getinfo(f"{name}.npy")
    try:
        with archive.open(info) as file:
            length, shape, dtype = _npy_header(file)
        n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not dtype.hasobject and (n_bytes + length != info.file_size or n_bytes > MAX_BYTES):
            raise ValueError(f"shape {shape} does not match {info.file_size:,} bytes")
        with archive.open(info) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"cannot read {quote(name)} in {str(source)!r}: {error}") from None
    return array


def _without_empty(values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Text with None for empty values: .npz files have no other way to say that a value is missing."""
    if values is None:
        return None
    text = values.astype(np.str_)
    return np.array([value or None for value in text.tolist()], dtype=object) if (text == "").any() else text


def label_array_in(path: str | os.PathLike[str], classes: Container[str]) -> str | None:
    """The array of an ``.npz`` file whose class names are all among the classes, if there is one."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        present = [name for name in CLASS_NAMES if f"{name}.npy" in archive.namelist()]
        arrays = {name: array_of_npz(Path(path), archive, name).tolist() for name in present}
    return next((name for name, names in arrays.items() if all(str(one) in classes for one in names)), None)


def read_labels(path: str | os.PathLike[str], column: str | None = None) -> NDArray[Any]:
    """Labels from a file of their own, one per vector and in the same order.

    Parameters
    ----------
    path : ``.npy`` (text or integers), ``.txt`` (one per line), ``.csv`` or ``.tsv``
    column : column of a table; by default one with a usual name, or the only one
    """
    source, kind = Path(path), Path(path).suffix.lower()
    try:
        regular(source)
        if kind in (".csv", ".tsv"):
            from hcep.embeddings.tables import label_column

            return label_column(source, column)
        if kind == ".txt":
            lines = [line.strip() for line in source.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")]
            if "" in lines:
                raise StoreError(f"{str(source)!r}: line {lines.index('') + 1} is empty; give one label per line")
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
    except (OSError, ValueError) as error:  # a UnicodeError and Arrow's errors about content are ValueErrors
        raise StoreError(f"cannot read {str(source)!r}: {reason_of(error)}") from None
    raise StoreError(f"{str(source)!r}: expected labels in a .npy, .txt, .csv or .tsv file")


# -- writing -----------------------------------------------------------------------------------------------------------


def write_embeddings(path: str | os.PathLike[str], embeddings: Embeddings) -> None:
    """Write embeddings to an ``.npy`` (vectors only), ``.npz`` or ``.parquet`` file; the file appears when it is whole.

    Arrays of an ``.npz`` file are called vectors, labels, ids, paths and splits, and a missing value is an empty text.
    Columns of a Parquet file are called embedding, label, id, path and split; Hugging Face's datasets can load it.
    """
    target = Path(path)
    if target.suffix not in WRITERS:
        raise StoreError(f"{str(target)!r}: expected a .npy, .npz or .parquet file")
    with replacing(target, StoreError) as partial:
        WRITERS[target.suffix](partial, np.ascontiguousarray(embeddings.X), embeddings.columns)


def _write_npy(target: Path, X: NDArray[Any], columns: dict[str, NDArray[Any]]) -> None:
    with target.open("wb") as file:  # a path would get the suffix .npy once more
        np.save(file, X)


def _write_npz(target: Path, X: NDArray[Any], columns: dict[str, NDArray[Any]]) -> None:
    text: dict[str, Any] = {
        name: np.array(["" if value is None else str(value) for value in values.tolist()], dtype=np.str_)
        for name, values in columns.items()
    }
    with target.open("wb") as file:
        np.savez(file, vectors=X, **text)


def _write_parquet(target: Path, X: NDArray[Any], columns: dict[str, NDArray[Any]]) -> None:
    from hcep.embeddings.tables import write_parquet

    write_parquet(target, X, columns)


WRITERS = {".npy": _write_npy, ".npz": _write_npz, ".parquet": _write_parquet}
