"""List folders of images; and the options of a reader."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcep.datasets.image_dataset import DatasetError, ImageDataset
from hcep.embeddings.images import IMAGE_SUFFIXES, storable
from hcep.errors import near_matches, quote, quoted

#: The label column that means a layout's own labels; in a table, the name of the column.
OWN_LABEL = "label"


class LayoutOptions(NamedTuple):
    """The options of `read_images`."""

    split: str | None = None
    path_column: str = "path"
    label_column: str | None = OWN_LABEL
    boxes: str | None = None
    unlabelled: bool = False


def is_image(name: str) -> bool:
    """Whether a file name is that of an image; hidden files, such as macOS leaves behind, are not."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def image_files(folder: Path) -> list[str]:
    """Paths of the images below a folder, relative to it and sorted; links are followed, but not in circles."""
    return sorted(_walk(folder, "", ()))


def holds_images(folder: Path) -> bool:
    """Whether there is an image anywhere below a folder."""
    return any(True for _ in _walk(folder, "", ()))


def has_flat_images(folder: Path) -> bool:
    """Whether there is an image directly in a folder."""
    return folder.is_dir() and any(is_image(entry.name) for entry in _entries(folder))


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones."""
    return [entry.name for entry in _entries(folder) if _is_folder(entry) and not entry.name.startswith(".")]


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    stat = folder.stat()
    here = (stat.st_dev, stat.st_ino)
    if here in above:
        return
    for entry in _entries(folder):
        if _is_folder(entry):
            if not entry.name.startswith("."):
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", (*above, here))
        elif is_image(entry.name):  # broken links, too: opening them reports the reason
            yield prefix + entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; with the name of an image it is listed, and then skipped with the reason
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def list_splits(
    source: Path, folders: Iterable[tuple[str | None, str]], label: Callable[[Any, list[str]], Sequence[str | None]]
) -> ImageDataset:
    """The images of splits and their folders; `label` returns the labels of a split's files."""
    files, labels, splits = list[str](), list[str | None](), list[str | None]()
    for split, folder in folders:
        names = image_files(source / folder)
        files += [f"{folder}/{name}".lstrip("/") for name in names]
        labels += label(split, names)
        splits += [split] * len(names)
    return ImageDataset(source, files, files, labels, splits)


def class_of(file: str) -> str | None:
    """The first folder of a relative path."""
    first, slash, _ = file.partition("/")
    return storable(first) if slash else None


def column_error(kind: str, column: str, columns: Iterable[str], source: Path) -> DatasetError:
    """The error for an option, `kind`, that names a column which a table does not have."""
    known = list(columns)
    return DatasetError(
        f"{kind}={quote(column)} is not a column of {str(source)!r}, which has {quoted(known, 10)}."
        f"{near_matches(column, known)} Name the column with {kind}=."
    )


def match_annotations(images: Sequence[str], annotated: Mapping[str, str], source: Path, folder: Path) -> list[str]:
    """The label of each image of a folder, from an annotation file, `source`, which must list exactly these."""
    present = set(images)
    absent = [name for name in annotated if name not in present]
    if absent:
        raise absent_error(absent, len(annotated), source, folder)
    unlisted = [name for name in images if name not in annotated]
    if unlisted:
        raise DatasetError(
            f"{len(unlisted):,} of {len(images):,} images in {str(folder)!r} have no label in {str(source)!r}: "
            + quoted(unlisted)
        )
    return [annotated[name] for name in images]


def absent_error(absent: Sequence[str], n_listed: int, source: Path, folder: Path) -> DatasetError:
    """The error for files that a source lists but a folder does not have."""
    return DatasetError(
        f"{len(absent):,} of {n_listed:,} files listed in {str(source)!r} are not in {str(folder)!r}: {quoted(absent)}"
    )
