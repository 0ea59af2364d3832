"""What is odd about a collection of photos, in a sentence each with a count: it is read all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hcep.datasets.image_dataset import ImageDataset
from hcep.datasets.layouts.class_folders import split_folders
from hcep.datasets.layouts.listing import holds_images, subfolders
from hcep.embeddings import EmbeddingStore
from hcep.errors import quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.formats.source import counted


def folder_notes(dataset: ImageDataset) -> Iterator[str]:
    """Class folders without an image, and images outside of any class folder."""
    if dataset.layout in ("folder", "imagenette"):
        empty = list(empty_folders(dataset.root))
        if empty:
            yield f"{counted(len(empty), 'class folder')} without an image: {quoted(empty)}"
    outside = [file for file, label in zip(dataset.files, dataset.labels, strict=True) if label is None]
    if outside and len(outside) < len(dataset):
        yield f"{counted(len(outside), 'image')} without a class: {quoted(outside)}"


def empty_folders(root: Path) -> Iterator[str]:
    """Folders where a class's images would be and are none, relative to the dataset's."""
    for place in split_folders(root) or [""]:
        for name in subfolders(root / place):
            if not holds_images(root / place / name):
                yield f"{place}/{name}".lstrip("/")


def copy_notes(store: EmbeddingStore) -> Iterator[str]:
    """Images that are there again under another class: at least one of the two labels is wrong."""
    seen: dict[str, tuple[str, str]] = {}
    copies = []
    for digest, label, image in zip(
        store.content_hashes.tolist(), store.labels.tolist(), store.ids.tolist(), strict=True
    ):
        if digest is None or label is None:
            continue
        first_label, first = seen.setdefault(digest, (label, image))
        if label != first_label:
            copies.append(f"{image} = {first}")
    if copies:
        yield f"{counted(len(copies), 'image')} also there under another class: {quoted(copies)}"


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
