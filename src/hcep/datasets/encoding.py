"""Folders of photos into embeddings: listed, encoded into a store, read again."""

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._files import cache_folder
from hcep.datasets import layouts
from hcep.datasets.image_dataset import DatasetError, ImageDataset
from hcep.datasets.layouts import read_images
from hcep.datasets.photo_checks import copy_notes, folder_notes
from hcep.embeddings import (
    Embeddings,
    EmbeddingStore,
    Encoder,
    EncodeReport,
    encode_to_store,
    is_store,
    load_encoder,
    read_embeddings,
)
from hcep.embeddings.encoders import DEFAULT
from hcep.embeddings.images import content_hash
from hcep.embeddings.reading import is_embeddings


def encode_images(
    images: ImageDataset | str | os.PathLike[str],
    encoder: Encoder | str | None,
    store: str | os.PathLike[str],
    *,
    preprocessing: Any = None,
    device: str | None = None,
    **options: Any,
) -> EncodeReport:
    """Encode a dataset of images into a store; run it again to resume, or to add what is new.

    Parameters
    ----------
    images : what `read_images` takes or gave. Images that are not files (CIFAR's) are first written below the store.
    encoder : loaded, or a name; None is the built-in one
    store : of the store; made where it does not exist
    preprocessing, device : of an encoder given by name, see `load_encoder`
    **options : of `encode_to_store`
    """
    dataset = images if isinstance(images, ImageDataset) else read_images(images)
    named = encoder or DEFAULT
    model = load_encoder(named, preprocessing=preprocessing, device=device) if isinstance(named, str) else named
    return encode_to_store(dataset.export(Path(store, "images")), model, store, **options)


def embeddings_of(
    data: str | os.PathLike[str],
    split: str | None = None,
    *,
    default_split: str | None = None,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
    in_memory: int | None = None,
    on_labels: Callable[[NDArray[np.str_]], object] | None = None,
    ready: Path | None = None,
    **columns: Any,
) -> Embeddings:
    """Embeddings of a store, a file, a table, or a folder of photos.

    Parameters
    ----------
    data : what `read_embeddings` takes, or what `read_images` takes with an encoder
    split, default_split : see `read_embeddings`
    encoder, preprocessing : for photos: see `encode_images`
    store : where vectors of photos are kept, for the next time; in the user's cache by default
    progress : show a bar while photos are encoded
    in_memory : see `read_embeddings`
    on_labels : called with the labels of photos, to refuse them, before any is encoded
    ready : a store that may have these very photos, such as a model's own; it is only read
    **columns
        ``vectors``, ``label`` and ``labels`` of `read_embeddings`.
    """
    of_images = encoder is not None and _lists_images(Path(data))
    if not of_images and (is_embeddings(data) or not Path(data).exists() or any(columns.values())):
        found = read_embeddings(data, split, default_split=default_split, in_memory=in_memory, **columns)
        of = found.X if isinstance(found.X, EmbeddingStore) else EmbeddingStore(data) if is_store(data) else None
        return found if of is None else replace(found, notes=(*found.notes, *copy_notes(of)))
    dataset = read_images(data)
    part = split or (default_split if default_split in dataset.splits else None)
    listed = dataset if part is None else dataset.split(part)  # refused now, not after hours of encoding
    if on_labels is not None:
        on_labels(Embeddings(listed, np.array(listed.labels, dtype=object), None, None, str(data)).y)
    named = encoder or DEFAULT
    model = load_encoder(named, preprocessing=preprocessing) if isinstance(named, str) else named
    home, name = Path(data).resolve(), model.fingerprint
    digest = sha256(f"{home} {name}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    place = Path(store) if store is not None else cache_folder("stores", f"{home.name}-{digest}")
    if ready is not None and _has_all(ready, dataset, model):
        place = ready
    else:
        encode_images(dataset, model, place, progress=progress, remove_vanished=True)
    found = read_embeddings(place, split, default_split=default_split, in_memory=in_memory)
    notes = (*folder_notes(dataset), *copy_notes(EmbeddingStore(place)))
    return replace(found, source=found.source.replace(str(place), str(data), 1), notes=notes)


def _has_all(store: Path, dataset: ImageDataset, encoder: Encoder) -> bool:
    """Whether a store of the encoder holds the images of a dataset as they are now, by content, and no other."""
    own = EmbeddingStore(store) if is_store(store) and dataset.pixels is None else None
    if own is None or own.encoder.fingerprint != encoder.fingerprint or len(own) != len(dataset):
        return False
    columns = (own.ids, own.labels, own.splits, own.content_hashes)
    known = {key: rest for key, *rest in zip(*(column.tolist() for column in columns), strict=True)}
    return all(known.get(one.id) == [one.label, one.split, content_hash(one.path)] for one in dataset)


def _lists_images(table: Path) -> bool:
    """Whether a table has the paths of images in it, besides whatever numbers."""
    try:
        return layouts.table.detect(table) and bool(read_images(table))
    except DatasetError:
        return False
