"""Photos to embeddings: list a folder, encode it into a store, read the store, and note what looks wrong."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep._files import cache_folder
from hcep.datasets import layouts
from hcep.datasets.image_dataset import DatasetError, ImageDataset
from hcep.datasets.layouts import read_images
from hcep.datasets.layouts.folders import split_folders
from hcep.datasets.layouts.listing import holds_images, subfolders
from hcep.embeddings import Embeddings, EmbeddingStore, Encoder, encode_to_store, load_encoder
from hcep.embeddings.encoders import DEFAULT
from hcep.embeddings.files import is_embeddings, is_store, read_embeddings
from hcep.embeddings.images import content_hash, not_used
from hcep.embeddings.vectors import require_labels
from hcep.errors import counted, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.embeddings.store.encoding import EncodeReport


def encode_images(
    images: ImageDataset | str | os.PathLike[str],
    encoder: Encoder | str | None,
    store: str | os.PathLike[str],
    *,
    preprocessing: Any = None,
    device: str | None = None,
    **options: Any,
) -> "EncodeReport":
    """Encode a dataset of images into a store; run the command again to resume, or to add new images.

    Parameters
    ----------
    images : a dataset, or what `read_images` reads
    encoder : an encoder or its name; the built-in one by default
    store : folder of the store; created if needed
    preprocessing, device : for an encoder given by name, see `load_encoder`
    **options : options of `encode_to_store`
    """
    dataset = images if isinstance(images, ImageDataset) else read_images(images)
    model = _loaded(encoder, preprocessing=preprocessing, device=device)
    return encode_to_store(dataset, model, store, **options)


def _loaded(encoder: Encoder | str | None, **options: Any) -> Encoder:
    return load_encoder(encoder or DEFAULT, **options) if isinstance(encoder, str | None) else encoder


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
    boxes: str | None = None,
    unlabelled: bool = False,
    **columns: Any,
) -> Embeddings:
    """Embeddings of a store, a file, a table, or a folder of photos, which is encoded first.

    Parameters
    ----------
    data : what `read_embeddings` reads, or what `read_images` reads
    split, default_split, in_memory : see `read_embeddings`
    encoder, preprocessing : for photos, see `encode_images`. An encoder makes a table with paths a list of photos.
    store : folder of the store for the photos' vectors; by default one in the user's cache. What it holds of other
        photos or of another encoder is removed.
    progress : show a progress bar while photos are encoded
    on_labels : called with the labels of photos before any is encoded, to refuse them
    ready : a store that may already hold exactly these photos, such as a model's own; it is only read
    boxes, unlabelled : which boxes and images of annotation files to read, see `read_images`
    **columns : ``vectors``, ``label`` and ``labels`` of `read_embeddings`
    """
    lists_images = encoder is not None and _lists_images(Path(data))
    if not lists_images and (is_embeddings(data) or not Path(data).exists() or any(columns.values())):
        opened = EmbeddingStore(data) if is_store(data) else None
        source = data if opened is None else opened
        embeddings = read_embeddings(source, split, default_split=default_split, in_memory=in_memory, **columns)
        return embeddings if opened is None else replace(embeddings, notes=(*embeddings.notes, *copy_notes(opened)))
    dataset = read_images(data, boxes=boxes, unlabelled=unlabelled)
    part = split or (default_split if default_split in dataset.splits else None)
    wanted = dataset if part is None else dataset.split(part)  # an error now, not after hours of encoding
    if on_labels is not None:
        on_labels(require_labels(np.array(wanted.labels, dtype=object), len(wanted), str(data)))
    model = _loaded(encoder, preprocessing=preprocessing)
    home = Path(data).resolve()
    digest = sha256(f"{home} {model.fingerprint}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    place = Path(store) if store is not None else cache_folder("stores", f"{home.name}-{digest}")
    unused = [*dataset.unused]
    if ready is not None and _has_all(ready, dataset, model):
        place = ready
    else:
        is_same = not is_store(place) or EmbeddingStore(place).encoder.fingerprint == model.fingerprint
        report = encode_images(dataset, model, place, progress=progress, remove_others=True, resume=is_same)
        unused += [(image.id, image.reason) for image in report.skipped]
    opened = EmbeddingStore(place)
    embeddings = read_embeddings(opened, split, default_split=default_split, in_memory=in_memory)
    what = "boxes" if any(dataset.boxes) else "files"
    ids, reasons = [name for name, _ in unused], [reason for _, reason in unused]
    left_out = not_used(reasons, len(dataset) + len(dataset.unused), what, ids)
    notes = (*folder_notes(dataset), *copy_notes(opened), *([left_out] if left_out else []))
    return replace(embeddings, source=embeddings.source.replace(str(place), str(data), 1), notes=notes)


def _has_all(store: Path, dataset: ImageDataset, encoder: Encoder) -> bool:
    """Whether a store of the encoder holds exactly the images of a dataset, with the same content, label and split."""
    own = EmbeddingStore(store) if is_store(store) else None
    if own is None or own.encoder.fingerprint != encoder.fingerprint or len(own) != len(dataset):
        return False
    columns = (own.ids, own.labels, own.splits, own.content_hashes)
    known = {key: rest for key, *rest in zip(*(column.tolist() for column in columns), strict=True)}
    return all(known.get(item.id) == [item.label, item.split, content_hash(item.path, item.box)] for item in dataset)


def _lists_images(table: Path) -> bool:
    """Whether a table has the paths of images, whatever numbers it has."""
    try:
        return layouts.table.detect(table) and bool(read_images(table))
    except DatasetError:
        return False


def folder_notes(dataset: ImageDataset) -> Iterator[str]:
    """Notes on class folders without images, and on images outside of any class folder."""
    if dataset.layout == "folder":
        root = dataset.root
        places = [f"{place}/{name}" for place in split_folders(root) or ["."] for name in subfolders(root / place)]
        empty = [place.removeprefix("./") for place in places if not holds_images(root / place)]
        if empty:
            yield f"{counted(len(empty), 'class folder')} without an image: {quoted(empty)}"
    if dataset.layout == "annotations":  # labels are left out there, or not needed
        return
    outside = [file for file, label in zip(dataset.files, dataset.labels, strict=True) if label is None]
    if outside and len(outside) < len(dataset):
        yield f"{counted(len(outside), 'image')} without a class: {quoted(outside)}"


def copy_notes(store: EmbeddingStore) -> Iterator[str]:
    """A note on images that occur under two classes: at least one of the two labels is wrong."""
    # 16 of the hash's 64 digits, as numbers, so that millions of images need little memory.
    hashes, labels = np.zeros(len(store), np.uint64), np.zeros(len(store), np.int64)
    known: dict[str | None, int] = {None: -1}
    for rows, digests, names in store.column_blocks("content_hash", "label"):
        hashes[rows] = [0 if digest is None else int(digest[:16], 16) for digest in digests.to_pylist()]
        labels[rows] = [known.setdefault(name, len(known)) for name in names.to_pylist()]
    order = np.argsort(hashes, kind="stable")
    order = order[(hashes[order] > 0) & (labels[order] >= 0)]
    starts = np.flatnonzero(np.diff(hashes[order], prepend=0) > 0) if len(order) else order
    first = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
    again = np.flatnonzero(labels[order] != labels[first])
    if len(again):
        copies = [f"{store.ids[order[i]]} = {store.ids[first[i]]}" for i in again[np.argsort(order[again])][:5]]
        more = f" and {len(again) - 5:,} more" if len(again) > 5 else ""
        yield f"{counted(len(again), 'image')} also found under another class: {quoted(copies)}{more}"


def tree_notes(labels: Iterable[str | None], hierarchy: Hierarchy) -> Iterator[str]:
    """Notes on images whose class is not in the hierarchy, and on its classes without images."""
    present = [label for label in labels if label is not None]
    outside = [label for label in present if label not in hierarchy]
    if outside:
        classes = sorted(set(outside))
        yield (
            f"{counted(len(outside), 'image')} of {counted(len(classes), 'class')} that the hierarchy does not have: "
            + quoted(classes)
        )
    known = {label for label in present if label in hierarchy}
    # A class may be an inner concept: its descendants then need no images.
    covered = known | {leaf for label in known for leaf in hierarchy.descendants(label)}
    without = [leaf for leaf in hierarchy.leaves if leaf not in covered]
    if without:
        yield f"{counted(len(without), 'class')} of the hierarchy without an image: {quoted(without)}"
