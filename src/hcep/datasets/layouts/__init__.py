"""Labelled images wherever they are: the layouts datasets are published in, in the order they are tried."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hcep.datasets.image_dataset import DatasetError, ImageDataset
from hcep.datasets.layouts import cifar, folders, imagenet, table
from hcep.datasets.layouts.listing import OWN_LABEL, LayoutOptions
from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.errors import near_matches, quoted


class Layout(NamedTuple):
    """How a layout is recognised and read, and the files that make it, for messages."""

    looks_for: str
    detect: Callable[[Path], bool]
    read: Callable[[Path, LayoutOptions], ImageDataset]


#: The particular ones first: any of them but CIFAR is an image folder too.
LAYOUTS = {
    "cifar": Layout(cifar.LOOKS_FOR, cifar.detect, cifar.read),
    "tiny_imagenet": Layout(folders.TINY_LOOKS_FOR, folders.detect_tiny, folders.read_tiny),
    "imagenet": Layout(imagenet.LOOKS_FOR, imagenet.detect, imagenet.read),
    "imagenette": Layout(folders.IMAGENETTE_LOOKS_FOR, folders.detect_imagenette, folders.read_imagenette),
    "table": Layout(table.LOOKS_FOR, table.detect, table.read),
    "folder": Layout(folders.LOOKS_FOR, folders.detect, folders.read),
}
ONE_LABEL = ("folder", "imagenet", "tiny_imagenet")


def read_images(
    source: str | os.PathLike[str],
    *,
    layout: str | None = None,
    split: str | None = None,
    path_column: str = "path",
    label_column: str | None = OWN_LABEL,
) -> ImageDataset:
    """List the images of a dataset; none is opened.

    Parameters
    ----------
    source : a folder, or a .csv, .tsv or .parquet file
    layout : {"folder", "table", "cifar", "imagenet", "imagenette", "tiny_imagenet"}, optional
        How the dataset is laid out; found out from its files when left out.
    split : read only this split (``"validation"`` and ``"valid"`` are ``"val"``)
    path_column, label_column : columns of a table. The label column also chooses among the labels of datasets that have
        several: ``"fine_labels"`` (default) or ``"coarse_labels"`` of CIFAR-100, ``"noisy_labels_5"`` and the like of
        ImageNette. None for images without labels.

    Images are in the order of the table or, of folders, split by split and sorted by path.

    >>> from hcep.datasets import read_images, write_sample
    >>> read_images(write_sample("sample") / "photos")
    ImageDataset(2 images, 2 classes, layout 'folder', no splits)
    """
    place = Path(source)
    if not place.exists():
        siblings = os.listdir(place.parent) if place.parent.is_dir() else []
        raise DatasetError(f"no file or folder at {str(place)!r}.{near_matches(place.name, siblings)}")
    name = layout or next((name for name, known in LAYOUTS.items() if known.detect(place)), None)
    if name is None:
        tried = "\n".join(f"  {name}: {known.looks_for}" for name, known in LAYOUTS.items())
        raise DatasetError(f"no images and no known layout in {str(place)!r}; looked for\n{tried}")
    if name not in LAYOUTS:
        raise DatasetError(f"unknown layout {name!r}; there are {quoted(LAYOUTS, 10)}.{near_matches(name, LAYOUTS)}")
    if name in ONE_LABEL and label_column not in (OWN_LABEL, None):
        raise DatasetError(
            f"label_column={label_column!r}: the {name} layout has one label per image and no columns; leave "
            "label_column out"
        )
    dataset = LAYOUTS[name].read(place, LayoutOptions(split, path_column, label_column))
    if not len(dataset):
        raise DatasetError(
            f"no images in {str(place)!r} as a {name!r} layout; images are files that end in {' '.join(IMAGE_SUFFIXES)}"
        )
    return replace(dataset, layout=name, labels=dataset.labels if label_column is not None else [None] * len(dataset))
