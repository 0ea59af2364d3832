"""What is odd about a collection of photos, in a sentence each with a count: it is read all the same."""

import os
from collections.abc import Iterable, Iterator

import numpy as np

from hcep.datasets.image_dataset import ImageDataset
from hcep.datasets.layouts import read_images
from hcep.datasets.layouts.folders import split_folders
from hcep.datasets.layouts.listing import holds_images, subfolders
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.formats.source import counted


def folder_notes(dataset: ImageDataset) -> Iterator[str]:
    """Class folders without an image, and images outside of any class folder."""
    if dataset.layout in ("folder", "imagenette"):
        root = dataset.root
        places = [f"{place}/{name}" for place in split_folders(root) or ["."] for name in subfolders(root / place)]
        empty = [place.removeprefix("./") for place in places if not holds_images(root / place)]
        if empty:
            yield f"{counted(len(empty), 'class folder')} without an image: {quoted(empty)}"
    outside = [file for file, label in zip(dataset.files, dataset.labels, strict=True) if label is None]
    if outside and len(outside) < len(dataset):
        yield f"{counted(len(outside), 'image')} without a class: {quoted(outside)}"


def copy_notes(store: EmbeddingStore) -> Iterator[str]:
    """Images that are there again under another class: at least one of the two labels is wrong."""
    # 16 of the hash's 64 digits, as numbers: a store of millions of images is gone through in little memory.
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
        yield f"{counted(len(again), 'image')} also there under another class: {quoted(copies)}{more}"


def refuse_out_of_step(store: EmbeddingStore, images: str | os.PathLike[str]) -> None:
    """Raise when a folder has other images or classes than the store that was made of it."""
    stored = dict(zip(store.ids.tolist(), store.labels.tolist(), strict=True))
    listed = {item.id: item.label for item in read_images(images)}
    known = stored.keys() | {image.id for image in store.skipped}
    counts = {
        "new": [key for key in listed if key not in known],
        "gone": [key for key in stored if key not in listed],
        "in another class": [key for key in stored if key in listed and listed[key] != stored[key]],
    }
    told = [f"{len(keys):,} {what} ({quoted(keys, 2)})" for what, keys in counts.items() if keys]
    if told:
        raise HCEPError(
            f"{str(store.folder)!r} is out of step with {str(images)!r}: {', '.join(told)}; run `hcep encode` again"
        )


def tree_notes(labels: Iterable[str | None], hierarchy: Hierarchy) -> Iterator[str]:
    """Images whose class is not in the tree, and classes of the tree that have no image."""
    present = [label for label in labels if label is not None]
    outside = [label for label in present if label not in hierarchy]
    if outside:
        classes = sorted(set(outside))
        yield (
            f"{counted(len(outside), 'image')} of {counted(len(classes), 'class')} that the hierarchy does not have: "
            + quoted(classes)
        )
    known = {label for label in present if label in hierarchy}
    # A class may be an inner concept, too: then its descendants are not missed.
    covered = known | {leaf for label in known for leaf in hierarchy.descendants(label)}
    without = [leaf for leaf in hierarchy.leaves if leaf not in covered]
    if without:
        yield f"{counted(len(without), 'class')} of the hierarchy without an image: {quoted(without)}"
