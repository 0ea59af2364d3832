"""Image folders: one folder a class, perhaps inside one folder a split."""

from __future__ import annotations

from pathlib import Path

from hcep.datasets.layouts.listing import (
    SPLIT_NAMES,
    DatasetError,
    Listing,
    Request,
    canonical_split,
    check_own_label,
    choose_splits,
    has_flat_images,
    holds_images,
    image_files,
    printable,
    subfolders,
)
from hcep.errors import quoted

LOOKS_FOR = "a folder with one subfolder of images a class, perhaps below train/, val/ and test/"


def detect(source: Path) -> bool:
    """Whether there is any image below the folder."""
    return source.is_dir() and holds_images(source)


def read(source: Path, request: Request) -> Listing:
    """List the images; the label is the first folder below the split, and there is none for images without a folder."""
    if not source.is_dir():
        raise DatasetError(f"layout 'folder' needs a folder, got the file {str(source)!r}")
    check_own_label(request, "folder")
    folders = split_folders(source)
    wanted = choose_splits(map(canonical_split, folders), request.split, source)
    if not folders:
        files = image_files(source)
        return Listing(source, files, [class_of(f) for f in files], [None] * len(files))
    return list_splits(source, [f for f in folders if canonical_split(f) in wanted])


def list_splits(source: Path, folders: list[str]) -> Listing:
    """The images of some split folders, labelled by the folder below the split."""
    files, labels, splits = [], [], []
    for folder in folders:
        found = image_files(source / folder)
        files += [f"{folder}/{f}" for f in found]
        labels += [class_of(f) for f in found]
        splits += [canonical_split(folder)] * len(found)
    return Listing(source, files, labels, splits)


def split_folders(source: Path) -> list[str]:
    """Names of the subfolders that are splits; empty when the subfolders are classes.

    A subfolder is a split when every subfolder that holds images has the name of one, so that a class may be called
    "train".

    Raises
    ------
    DatasetError
        Training and evaluation splits beside another folder of images: it could be either.
    """
    filled = [name for name in subfolders(source) if holds_images(source / name)]
    splits = [name for name in filled if name.lower() in SPLIT_NAMES]
    others = [name for name in filled if name.lower() not in SPLIT_NAMES]
    if others and len({canonical_split(name) for name in splits}) > 1:
        raise DatasetError(
            f"{str(source)!r} has the splits {quoted(splits)} beside {quoted(others)}: neither splits nor classes; "
            "move the images that belong to no split elsewhere"
        )
    if others or has_flat_images(source):
        return []
    # train first, then val and test, whatever they are called
    order = list(dict.fromkeys(SPLIT_NAMES.values()))
    return sorted(splits, key=lambda name: (order.index(canonical_split(name)), name))


def class_of(file: str) -> str | None:
    """The first folder of a relative path."""
    first, slash, _ = file.partition("/")
    return printable(first) if slash else None
