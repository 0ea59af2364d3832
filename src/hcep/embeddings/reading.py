"""Embeddings wherever they are: a store, or a file of arrays."""

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.arrays import SUFFIXES, read_arrays, usual_label_names
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.manifest import MANIFEST
from hcep.embeddings.tables import DELIMITERS, has_vectors, is_dataset_folder
from hcep.errors import HCEPError, quoted

#: What stands between the place and the split in the name of a source.
OF_SPLIT = ", split "


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of images with what is known of them.

    Attributes
    ----------
    X : (n_images, n_dims) array, or EmbeddingStore where they stay on disk
    labels : (n_images,) array or None
    known_ids : (n_images,) array of str, or None where X, which stays on disk, has them
    encoder : where it is known
    source : what they were read from, with the split
    notes : what a reader wants to know: what the columns of a table were taken for, what is odd about photos
    photo_hashes : (n_images,) array or None; SHA-256 of the photos' files, None where they are not known
    """

    X: Any
    labels: NDArray[Any] | None
    known_ids: NDArray[Any] | None
    encoder: EncoderRecord | None
    source: str
    notes: tuple[str, ...] = ()
    photo_hashes: NDArray[Any] | None = None

    @property
    def ids(self) -> NDArray[Any]:
        """(n_images,) array of str."""
        return np.asarray(self.X.ids if self.known_ids is None else self.known_ids)

    @cached_property
    def hashes(self) -> list[str]:
        """What images are known by from run to run: the SHA-256 of the photo, or of the vector as float32."""
        on_disk = isinstance(self.X, EmbeddingStore)
        photos = self.X.content_hashes if on_disk else self.photo_hashes
        known = photos.tolist() if photos is not None else [None] * len(self.X)
        vectors = (x for X, _ in self.X.batches() for x in X) if on_disk else self.X
        return [one or vector_hash(x) for one, x in zip(known, vectors, strict=True)]

    @property
    def y(self) -> NDArray[np.str_]:
        """Labels, all of them there."""
        n_without = len(self.X) if self.labels is None else int(np.sum(self.labels == None))  # noqa: E711 - of each
        if self.labels is None or n_without:
            which = "" if n_without == len(self.X) else f"{n_without:,} of {len(self.X):,} "
            read = f" ({'; '.join(self.notes)})" if self.notes else ""
            raise HCEPError(
                f"{self.source}: {which}images have no labels; give a store or file with one label per image, or "
                f"--labels{read}"
            )
        return np.asarray(self.labels, dtype=str)


def vector_hash(x: NDArray[Any]) -> str:
    """SHA-256 of an embedding's numbers as little-endian float32."""
    return sha256(np.ascontiguousarray(x, dtype="<f4").tobytes()).hexdigest()


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether there is an embedding store at the path."""
    return Path(path, MANIFEST).is_file()


def is_embeddings(path: str | os.PathLike[str]) -> bool:
    """Whether `read_embeddings` would take the path; a table is taken for a list of images where it has no numbers."""
    place = Path(path)
    if place.is_dir():
        return is_store(place) or is_dataset_folder(place)
    kind = place.suffix.lower() if place.is_file() else ""
    return has_vectors(place) if kind in (*DELIMITERS, ".parquet") else kind in SUFFIXES


def read_embeddings(
    path: EmbeddingStore | str | os.PathLike[str],
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
    path : a store that `encode_to_store` made, or what `read_arrays` takes
    split : only images of this split
    default_split : the split where none is said and the data has it
    vectors, label : what the arrays, keys or columns of vectors and labels are called, see `read_arrays`
    labels : a file of labels, one per vector
    in_memory : vectors of a store with more images than this are not read: `Embeddings.X` is the store
    """

    def source(wanted: str | None) -> str:
        place = path.folder if isinstance(path, EmbeddingStore) else path
        return str(place) if wanted is None else f"{place}{OF_SPLIT}{wanted}"

    if isinstance(path, EmbeddingStore) or is_store(path):
        store = path if isinstance(path, EmbeddingStore) else EmbeddingStore(path)
        wanted = split or (default_split if default_split in store.splits.tolist() else None)
        chosen = store.select(splits=wanted) if wanted else store
        if in_memory is not None and len(chosen) > in_memory:
            return Embeddings(chosen, chosen.labels, None, store.encoder, source(wanted))
        X, hashes = chosen.to_numpy(np.float32), chosen.content_hashes
        return Embeddings(X, chosen.labels, chosen.ids, store.encoder, source(wanted), photo_hashes=hashes)
    if not Path(path).exists() or not (is_dataset_folder(Path(path)) or Path(path).suffix.lower() in SUFFIXES):
        raise HCEPError(
            f"no embeddings at {str(path)!r}: expected a store made by `hcep encode`, a {', '.join(SUFFIXES)} file, or "
            "a folder that Hugging Face's datasets saved"
        )
    names = {part: name for part, name in (("vectors", vectors), ("labels", label)) if name is not None}
    arrays = read_arrays(path, names=names, label_names=usual_label_names(path), labels=labels)
    known = [] if arrays.splits is None else arrays.splits.tolist()
    if split and arrays.splits is None:
        raise HCEPError(
            f"{str(path)!r} has no splits, so no image of it is in split {split!r}; "
            "give data with that split, or, where all images will do, name no split"
        )
    wanted = split or (default_split if default_split in known else None)
    if wanted is not None and wanted not in known:
        raise HCEPError(f"no image of {str(path)!r} is in split {wanted!r}; there are {quoted(sorted(set(known)))}")
    rows = slice(None) if wanted is None else np.asarray(arrays.splits) == wanted
    ids = arrays.ids if arrays.ids is not None else arrays.paths
    ids = np.arange(len(arrays)).astype(str) if ids is None else ids
    given = None if arrays.labels is None else arrays.labels[rows]
    notes = (arrays.note,) if arrays.note else ()
    return Embeddings(arrays.vectors[rows], given, ids[rows], None, source(wanted), notes)
