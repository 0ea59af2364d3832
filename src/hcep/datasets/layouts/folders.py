"""Folders of images: one per class, perhaps within one per split; also Tiny-ImageNet."""

from pathlib import Path

from hcep._files import read_lines
from hcep.datasets.image_dataset import SPLIT_NAMES, DatasetError, ImageDataset, canonical_split, choose_splits
from hcep.datasets.layouts import listing
from hcep.datasets.layouts.listing import LayoutOptions
from hcep.errors import quote, quoted

TINY_LOOKS_FOR = "wnids.txt, train/<wnid>/images/, val/images/ and val/val_annotations.txt"
WNIDS, ANNOTATIONS = "wnids.txt", "val_annotations.txt"


def detect(source: Path) -> bool:
    return source.is_dir() and listing.holds_images(source)


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """List the images; the label is the first folder below the split, or None for an image outside of folders."""
    if not source.is_dir():
        raise DatasetError(f"layout 'folder' needs a folder, got the file {str(source)!r}")
    folders = split_folders(source)
    wanted = choose_splits(map(canonical_split, folders), options.split, source)
    chosen = [(split, folder) for folder in folders if (split := canonical_split(folder)) in wanted]
    return listing.list_splits(source, chosen or [(None, "")], lambda _, files: [listing.class_of(f) for f in files])


def split_folders(source: Path) -> list[str]:
    """Names of the subfolders that are splits; empty if the subfolders are classes.

    Subfolders are splits if all that hold images have the names of splits, because a class may be called "train", too.
    """
    filled = [name for name in listing.subfolders(source) if listing.holds_images(source / name)]
    splits = [name for name in filled if name.lower() in SPLIT_NAMES]
    others = [name for name in filled if name.lower() not in SPLIT_NAMES]
    if others and len({canonical_split(name) for name in splits}) > 1:
        raise DatasetError(
            f"{str(source)!r} has the splits {quoted(splits)} beside {quoted(others)}, so its folders cannot be "
            "read as splits or as classes; move the images that belong to no split elsewhere"
        )
    if others or listing.has_flat_images(source):
        return []
    # train first, then val and test, whatever their exact names
    order = list(dict.fromkeys(SPLIT_NAMES.values()))
    return sorted(splits, key=lambda name: (order.index(canonical_split(name)), name))


def detect_tiny(source: Path) -> bool:
    """Whether there are Tiny-ImageNet's list of classes and the images of a split."""
    return (source / WNIDS).is_file() and any(_tiny_splits(source))


def read_tiny(source: Path, options: LayoutOptions) -> ImageDataset:
    """List the images; labels are WordNet ids, and the test split has none."""
    if not detect_tiny(source):
        raise DatasetError(f"{str(source)!r} is not Tiny-ImageNet: looked for {TINY_LOOKS_FOR}")
    wnids = read_lines(source / WNIDS, DatasetError)
    folders = [(split, split) for split in choose_splits(_tiny_splits(source), options.split, source)]

    def labels(split: str, files: list[str]) -> list[str] | list[None]:
        if split == "test":
            return [None] * len(files)
        classes = [f.split("/")[0] for f in files] if split == "train" else _annotated(source / "val", files)
        unknown = sorted(set(classes).difference(wnids))
        if unknown:
            where = str(source / WNIDS)
            raise DatasetError(f"{len(unknown):,} classes of {split} are not in {where!r}: {quoted(unknown)}")
        return classes

    return listing.list_splits(source, folders, labels)


def _tiny_splits(source: Path) -> list[str]:
    train = ["train"] if (source / "train").is_dir() else []
    return train + [split for split in ("val", "test") if (source / split / "images").is_dir()]


def _annotated(folder: Path, files: list[str]) -> list[str]:
    source = folder / ANNOTATIONS
    if not source.is_file():
        raise DatasetError(f"the labels of val are missing: there is no file {str(source)!r}")
    annotated = {}
    for line in read_lines(source, DatasetError):
        name, *fields = line.split("\t")  # then the box: x, y, x, y
        if not fields:
            raise DatasetError(
                f"{str(source)!r} must have lines of name, class and box separated by tabs, got {quote(line)}"
            )
        annotated[name] = fields[0]
    images = [f.removeprefix("images/") for f in files]
    return listing.match_annotations(images, annotated, source, folder / "images")
