"""What a layout is asked for, and how folders of images are listed."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcep.datasets.image_dataset import DatasetError, ImageDataset
from hcep.embeddings.images import IMAGE_SUFFIXES, storable
from hcep.errors import near_matches, quoted

#: The label a layout gives by itself, and the column of a table that is read when no other is named.
OWN_LABEL = "label"


class LayoutOptions(NamedTuple):
    """What was asked of `read_images`."""

    split: str | None = None
    path_column: str = "path"
    label_column: str | None = OWN_LABEL


def is_image(name: str) -> bool:
    """Whether a file name looks like an image's; hidden files (and the twins macOS leaves behind) do not."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def image_files(folder: Path) -> list[str]:
    """Images below a folder, relative to it, sorted; links to folders are followed, but not in circles."""
    return sorted(_walk(folder, "", ()))


def holds_images(folder: Path) -> bool:
    """Whether there is an image anywhere below a folder."""
    return any(True for _ in _walk(folder, "", ()))


def has_flat_images(folder: Path) -> bool:
    """Whether there is an image directly in a folder."""
    return folder.is_dir() and any(is_image(entry.name) for entry in _entries(folder))


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, hidden ones left out."""
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
        elif is_image(entry.name):  # a broken link too: whoever opens it reports it
            yield prefix + entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: listed where it has an image's name, and then skipped with the reason
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def list_splits(
    source: Path, folders: Iterable[tuple[str | None, str]], label: Callable[[Any, list[str]], Sequence[str | None]]
) -> ImageDataset:
    """The images of pairs of a split and its folder; `label` gives the labels of a split's files, relative to that."""
    files, labels, splits = list[str](), list[str | None](), list[str | None]()
    for split, folder in folders:
        found = image_files(source / folder)
        files += [f"{folder}/{f}".lstrip("/") for f in found]
        labels += label(split, found)
        splits += [split] * len(found)
    return ImageDataset(source, files, files, labels, splits)


def class_of(file: str) -> str | None:
    """The first folder of a relative path."""
    first, slash, _ = file.partition("/")
    return storable(first) if slash else None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{str(path)!r} is not UTF-8 text: {error}") from None
    return [line for line in map(str.strip, text.splitlines()) if line]


def column_error(kind: str, column: str, columns: Iterable[str], source: Path) -> DatasetError:
    """The option `kind` names a column that a table does not have: say which there are."""
    known = list(columns)
    return DatasetError(
        f"{kind}={column!r} is not a column of {str(source)!r}, which has {quoted(known, 10)}."
        f"{near_matches(column, known)} Name the column with {kind}=."
    )


def match_annotations(images: Sequence[str], annotated: Mapping[str, str], source: Path, folder: Path) -> list[str]:
    """The label of each image file of a folder, from an annotation file, `source`, that must list exactly these."""
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
    """Count the files of a folder that are listed in a source but not there."""
    return DatasetError(
        f"{len(absent):,} of {n_listed:,} files listed in {str(source)!r} are not in {str(folder)!r}: {quoted(absent)}"
    )
