"""Read labelled images in any of the layouts in which datasets are published."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hcep.datasets.image_dataset import DatasetError, ImageDataset, choose_splits
from hcep.datasets.layouts import annotations, folders, imagenet, table
from hcep.datasets.layouts.listing import OWN_LABEL, LayoutOptions
from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.errors import near_matches, quote, quoted
from hcep.formats import why_unknown


class Layout(NamedTuple):
    """How to recognise and read a layout."""

    detect: Callable[[Path], bool]
    read: Callable[[Path, LayoutOptions], ImageDataset]


#: In the order in which they are tried: the special ones first, as they are image folders, too.
LAYOUTS = {
    "tiny_imagenet": Layout(folders.detect_tiny, folders.read_tiny),
    "imagenet": Layout(imagenet.detect, imagenet.read),
    "annotations": Layout(annotations.detect, annotations.read),
    "table": Layout(table.detect, table.read),
    "folder": Layout(folders.detect, folders.read),
}


def read_images(
    source: str | os.PathLike[str],
    *,
    layout: str | None = None,
    split: str | None = None,
    path_column: str = "path",
    label_column: str | None = OWN_LABEL,
    boxes: str | None = None,
    unlabelled: bool = False,
) -> ImageDataset:
    """List the images of a dataset, without opening them.

    Parameters
    ----------
    source : a folder, a .csv, .tsv or .parquet file, a file of another tool (see `hcep.formats`), or one photo
    layout : {"folder", "table", "annotations", "imagenet", "tiny_imagenet"}, optional
        How the dataset is laid out; recognised by its files by default.
    split : read only this split; ``"validation"`` and ``"valid"`` mean ``"val"``
    path_column, label_column : columns of a table; without a label column (None), images have no labels
    boxes : which boxes of MegaDetector results to read: categories and the least confidence, as in
        ``"animal,person:0.5"``. By default animals, with the confidence that the file recommends, or 0.2.
    unlabelled : whether to keep images of annotation files that have no label although others have one, or several

    Images are in the order of the table, or, for folders, split by split and sorted by path.

    >>> from hcep.datasets import read_images
    >>> from hcep.datasets.sample_data import write_sample
    >>> read_images(write_sample("sample") / "photos")
    ImageDataset(70 images, 5 classes, layout 'folder', train 50, val 20)
    """
    place = Path(source)
    if not place.exists():
        siblings = os.listdir(place.parent) if place.parent.is_dir() else []
        raise DatasetError(f"no file or folder at {str(place)!r}.{near_matches(place.name, siblings)}")
    if layout is None and place.is_file() and place.suffix.lower() in IMAGE_SUFFIXES:
        choose_splits([], split, place)
        return ImageDataset(place.parent, [place.name], [place.name], [None], [None], layout="photo")
    name = layout or next((name for name, known in LAYOUTS.items() if known.detect(place)), None)
    if name is None and (reason := why_unknown(place)):
        raise DatasetError(reason)
    if name is None:
        if place.is_dir():
            raise DatasetError(
                f"no images in {str(place)!r} and no known layout; put photos into one subfolder per class, or give a "
                "table or annotations of photos"
            )
        raise DatasetError(
            f"{str(place)!r} has no known layout; give a photo, a folder with one subfolder of photos per class, or a "
            ".csv, .tsv or .parquet table with the columns `path` and `label`"
        )
    if name not in LAYOUTS:
        raise DatasetError(
            f"unknown layout {quote(name)}; there are {quoted(LAYOUTS, 10)}.{near_matches(name, LAYOUTS)}"
        )
    if name != "table" and label_column not in (OWN_LABEL, None):
        raise DatasetError(
            f"label_column={quote(label_column)}: the {name} layout has one label per image and no columns; leave out "
            "label_column"
        )
    dataset = LAYOUTS[name].read(place, LayoutOptions(split, path_column, label_column, boxes, unlabelled))
    if not len(dataset):
        raise DatasetError(
            f"no images in {str(place)!r}, read as layout {quote(name)}; images end in {' '.join(IMAGE_SUFFIXES)}"
        )
    return replace(dataset, layout=name, labels=dataset.labels if label_column is not None else [None] * len(dataset))
