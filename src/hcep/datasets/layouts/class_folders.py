"""Image folders: one folder per class, perhaps inside one folder per split."""

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
    class_of,
    has_flat_images,
    holds_images,
    image_files,
    list_splits,
    subfolders,
)
from hcep.errors import quoted

LOOKS_FOR = "a folder with one subfolder of images per class, perhaps below train/, val/ and test/"


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
    chosen = [(split, folder) for folder in folders if (split := canonical_split(folder)) in wanted]
    return list_splits(source, chosen, lambda split, files: [class_of(f) for f in files])


def split_folders(source: Path) -> list[str]:
    """Names of the subfolders that are splits; empty when the subfolders are classes.

    A subfolder is a split when every subfolder that holds images has the name of one, so that a class may be called
    "train". Raises DatasetError: training and evaluation splits beside another folder of images: it could be either.
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
