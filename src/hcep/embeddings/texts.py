"""Embedded texts in files: vectors by the name of what each text describes."""

import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.files import CLASS_NAMES, array_of_npz, is_embeddings, read_embeddings
from hcep.embeddings.vectors import USUAL_NAMES, StoreError, absent, find_names, named_labels
from hcep.errors import HCEPError, counted, near_matches, quote, quoted

#: How to say which arrays or columns of a file are meant.
HOW = "name the array or column of the vectors and that of the names: --vocabulary FILE:VECTORS,NAMES"


class TextVectors(NamedTuple):
    """Names, the vector of each, (n_texts, n_dims), and a sentence that says how the file was read."""

    names: tuple[str, ...]
    vectors: NDArray[Any]
    note: str


def text_place(place: str | os.PathLike[str]) -> tuple[Path, str | None, str | None]:
    """The file, the array of the vectors and the array of their names in ``FILE[:VECTORS[,NAMES]]``.

    >>> text_place("clip.npz:text_photo,wnids")[1:]
    ('text_photo', 'wnids')
    >>> text_place("clip.npz")[1:]
    (None, None)
    """
    text = os.fspath(place)
    start = len(text) - len(Path(text).name)  # a colon further left belongs to a folder or a drive
    file, _, arrays = text[start:].partition(":")
    if not arrays or Path(text).exists():
        return Path(text), None, None
    vectors, _, names = arrays.rpartition(",") if "," in arrays else (arrays, "", "")
    return Path(text[:start] + file), vectors, names or None


def is_embedded(place: str | os.PathLike[str]) -> bool:
    """Whether ``FILE[:VECTORS[,NAMES]]`` has vectors of texts, rather than texts alone."""
    file, vectors, _ = text_place(place)
    return vectors is not None or file.suffix == ".npz" or is_embeddings(file)


def read_text_vectors(place: str | os.PathLike[str], n_dims: int | None = None) -> TextVectors:
    """Read texts that another program embedded, from any file that `read_embeddings` reads.

    Parameters
    ----------
    place : the file; or ``FILE:VECTORS`` or ``FILE:VECTORS,NAMES``, with the array, key or column of the vectors and
        that of their names. By default vectors have a usual name. Names are ``VECTORS_names``, ``phrases``, labels or
        class names.
    n_dims : the number of dimensions that vectors must have

    >>> import numpy as np
    >>> np.savez("clip.npz", text_photo=np.eye(2), class_names=np.array(["cat", "dog"]))
    >>> read_text_vectors("clip.npz:text_photo").names
    ('cat', 'dog')
    """
    file, array, named_by = text_place(place)
    if not file.is_file():
        raise HCEPError(f"cannot read texts from {str(file)!r}: No such file")
    notes: tuple[str, ...] = ()
    if file.suffix == ".npz":
        array, named_by, names, vectors = _of_npz(file, array, named_by)
    else:
        try:
            table = read_embeddings(file, vectors=array, label=named_by)
        except StoreError as error:
            raise HCEPError(f"{error}. For texts, {HOW}") from None
        if table.labels is None or any(name is None for name in table.labels.tolist()):
            raise HCEPError(f"{file}: a vector has no name; {HOW}")
        names, vectors, notes = table.labels, table.X, table.notes
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or names.shape != vectors.shape[:1]:
        found = f"{vectors.dtype} of shape {vectors.shape}, and names of shape {names.shape}"
        raise HCEPError(f"{file}: expected vectors of shape (n_texts, n_dims) and a name for each, got {found}; {HOW}")
    if n_dims not in (None, vectors.shape[1]):
        raise HCEPError(
            f"{file}: the embeddings have {vectors.shape[1]:,} dimensions, the model {n_dims:,}; "
            "embed the texts with the text tower of the model's encoder"
        )
    read_as = f", vectors from {quote(array)}, names from {quote(named_by)}" if array and named_by else ""
    note = next(iter(notes), f"{file.name}: {counted(len(names), 'text')}{read_as}")
    return TextVectors(tuple(map(str, names.tolist())), vectors, note)


def texts_of_class(places: Iterable[str | os.PathLike[str]], name: str, n_dims: int) -> NDArray[Any]:
    """The vectors of all texts in files that have this name, (n_texts, n_dims); HCEPError if there are none."""
    files = [read_text_vectors(place, n_dims) for place in places]
    vectors = [vector for file in files for own, vector in zip(file.names, file.vectors, strict=True) if own == name]
    if not vectors:
        near = near_matches(name, {own for file in files for own in file.names})
        raise HCEPError(f"--vocabulary: there is no text of {quote(name)}.{near}")
    return np.stack(vectors)


def _of_npz(file: Path, array: str | None, named_by: str | None) -> tuple[str, str, NDArray[Any], NDArray[Any]]:
    """The arrays of the vectors and of their names: their names and their content."""
    try:
        with zipfile.ZipFile(file) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist()]
            vectors = array or find_names(file, {}, present).get("vectors")
            if vectors is None:
                raise HCEPError(f"{file} has no array 'embeddings'; its arrays are {quoted(present, 20)}; {HOW}")
            usual = (f"{vectors}_names", "phrases", "names", *USUAL_NAMES["labels"], *CLASS_NAMES)
            candidates = [named_by] if named_by else [name for name in usual if name in present]
            missing = next((name for name in (vectors, *candidates) if name not in present), None)
            if missing is not None:
                raise absent(file, missing, present)
            content = {name: array_of_npz(file, archive, name) for name in (vectors, *candidates)}
    except HCEPError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise HCEPError(f"cannot read texts from {str(file)!r}: {error}") from None
    # An array of another length names other vectors, such as the images beside the texts.
    shape = content[vectors].shape[:1]
    kinds = {name: "Uiu" if name in USUAL_NAMES["labels"] else "U" for name in candidates}
    fits = [name for name in candidates if content[name].dtype.kind in kinds[name] and content[name].shape == shape]
    if not fits:
        n_rows = f"{len(content[vectors]):,} vectors in {quote(vectors)}"
        raise HCEPError(f"{file} has no list of names for the {n_rows}; its arrays are {quoted(present, 20)}; {HOW}")
    classes = next((content[name] for name in CLASS_NAMES if name in content), None)
    return vectors, fits[0], named_labels(file, content[fits[0]], classes), content[vectors]
