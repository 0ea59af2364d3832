"""Labelled vectors: what a file, a store or a program knows of images and their embeddings."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError, near_matches, quote, quoted

#: The file that makes a folder an embedding store.
MANIFEST = "manifest.json"
#: Most dimensions of a vector.
MAX_DIMS = 1 << 20
#: The part of a source's name that precedes the split.
OF_SPLIT = ", split "


def memory_limit() -> int:
    """The most bytes of vectors that are read into memory at once: half of this machine's memory."""
    if not hasattr(os, "sysconf"):  # on Windows
        return 1 << 33
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


#: Names of arrays, keys and columns that are looked for, by what they hold.
USUAL_NAMES = {
    "vectors": ("embeddings", "embedding", "vectors", "vector", "image_embeds", "features", "X"),
    "labels": ("labels", "label", "y", "class", "target", "category"),
    "ids": ("ids", "id", "image_id"),
    "paths": ("paths", "path", "file_name", "filename", "images"),
    "splits": ("splits", "split"),
}
#: The columns of text beside the vectors.
COLUMNS = ("labels", "ids", "paths", "splits")


class StoreError(HCEPError):
    """An embedding store or a file of embeddings is damaged, is something else, or does not fit the request."""


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of images, with what is known of each image.

    Attributes
    ----------
    X : (n_images, n_dims) array, or an `EmbeddingStore` whose vectors stay on disk
    labels, ids, paths, splits : (n_images,) arrays of str, or None if unknown; object arrays with None if only some
        images have a value
    content_hashes : (n_images,) SHA-256 of the photos' files, or None if unknown
    encoder : name, fingerprint and preprocessing of the encoder, if known
    source : the file, store or folder, and the split
    notes : sentences for the user, such as which columns of a table were read as vectors
    """

    X: Any
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    paths: NDArray[Any] | None = None
    splits: NDArray[Any] | None = None
    content_hashes: NDArray[Any] | None = None
    encoder: EncoderRecord | None = None
    source: str = "the embeddings"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    @property
    def on_disk(self) -> bool:
        """Whether X is a store, to be read in batches."""
        return hasattr(self.X, "batches")

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Labels, ids, paths and splits, those that are known."""
        return {name: values for name in COLUMNS if (values := getattr(self, name)) is not None}

    @property
    def image_ids(self) -> NDArray[Any]:
        """(n_images,) str: the ids, otherwise the paths, otherwise the row numbers."""
        if self.ids is not None:
            return self.ids
        if self.on_disk:
            return np.asarray(self.X.ids)
        return np.arange(len(self)).astype(str) if self.paths is None else self.paths

    @property
    def y(self) -> NDArray[np.str_]:
        """(n_images,) labels; an error if any is missing."""
        return require_labels(self.labels, len(self), self.source, self.notes)

    @cached_property
    def hashes(self) -> list[str]:
        """What identifies each image from run to run: the SHA-256 of the photo, or of the vector as float32."""
        photos = self.X.content_hashes if self.on_disk else self.content_hashes
        known = photos.tolist() if photos is not None else [None] * len(self)
        vectors = (x for X, _ in self.X.batches() for x in X) if self.on_disk else self.X
        return [digest or vector_hash(x) for digest, x in zip(known, vectors, strict=True)]

    def take(self, rows: Any, **changes: Any) -> "Embeddings":
        """These rows, with other fields replaced; images keep their ids, even if these are row numbers."""
        parts: dict[str, Any] = {**self.columns, "ids": self.image_ids}
        if self.content_hashes is not None:
            parts["content_hashes"] = self.content_hashes
        return replace(self, X=self.X[rows], **{name: values[rows] for name, values in parts.items()}, **changes)


def require_labels(
    labels: NDArray[Any] | None, n_images: int, source: str, notes: Sequence[str] = ()
) -> NDArray[np.str_]:
    """Labels as an array of str; HCEPError if images have none."""
    n_missing = n_images if labels is None else int(np.sum(labels == None))  # noqa: E711 - element by element
    if labels is None or n_missing:
        which = "" if n_missing == n_images else f"{n_missing:,} of {n_images:,} "
        read = f" ({'; '.join(notes)})" if notes else ""
        raise HCEPError(
            f"{source}: {which}images have no labels; give a store or file with one label per image, or --labels{read}"
        )
    return np.asarray(labels, dtype=str)


def vector_hash(x: NDArray[Any]) -> str:
    """SHA-256 of an embedding's numbers as little-endian float32."""
    return sha256(np.ascontiguousarray(x, dtype="<f4").tobytes()).hexdigest()


def find_names(source: Path, requested: dict[str, str | None], present: Sequence[str]) -> dict[str, str]:
    """The array, key or column that holds each part: the requested one, otherwise one with a usual name.

    Parameters
    ----------
    requested : names by part, as of `USUAL_NAMES`; StoreError if one is not there
    present : the names in the file
    """
    by_name = {name.lower(): name for name in reversed(present)}
    names = {}
    for part, usual in USUAL_NAMES.items():
        own = requested.get(part)
        if own is not None and own not in present:
            raise absent(source, own, present)
        name = own or next((by_name[name.lower()] for name in usual if name.lower() in by_name), None)
        if name:
            names[part] = name
    return names


def absent(source: Path, name: str, present: Iterable[str]) -> StoreError:
    """The error for a requested array, key or column that a file does not have."""
    names = list(present)
    return StoreError(f"{str(source)!r} has no {quote(name)}, only {quoted(names, 20)}.{near_matches(name, names)}")


def named_labels(source: Path, labels: Any, class_names: Any) -> Any:
    """Labels as text: integers become the names of their classes, if there are names."""
    if labels is None or labels.dtype.kind not in "iu":
        return labels
    if class_names is None:
        return labels.astype(np.str_)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
        raise StoreError(
            f"{str(source)!r}: labels go from {labels.min()} to {labels.max()}, but there are {len(class_names):,} "
            "class names"
        )
    return np.asarray(class_names, dtype=np.str_)[labels]
