"""Tiny-ImageNet-200 as published: train/<wnid>/images/, val/images/ with val_annotations.txt, test/images/."""

from __future__ import annotations

from pathlib import Path

from hcep.datasets.layouts.listing import (
    DatasetError,
    Listing,
    Request,
    check_own_label,
    choose_splits,
    list_splits,
    match_annotations,
    read_lines,
)
from hcep.errors import quoted

LOOKS_FOR = "wnids.txt, train/<wnid>/images/, val/images/ and val/val_annotations.txt"
WNIDS, WORDS, ANNOTATIONS = "wnids.txt", "words.txt", "val_annotations.txt"


def detect(source: Path) -> bool:
    """Whether the list of classes and a split's folder of images are there."""
    return (source / WNIDS).is_file() and any(_available(source))


def read(source: Path, request: Request) -> Listing:
    """List the images; labels are WordNet ids, the published test split has none."""
    if not detect(source):
        raise DatasetError(f"{str(source)!r} is not Tiny-ImageNet: looked for {LOOKS_FOR}")
    check_own_label(request, "tiny_imagenet")
    wnids = read_lines(source / WNIDS)
    folders = [(split, split) for split in choose_splits(_available(source), request.split, source)]
    return list_splits(
        source, folders, lambda split, found: _labels(source, split, found, wnids), _words(source, wnids)
    )


def _available(source: Path) -> list[str]:
    train = ["train"] if (source / "train").is_dir() else []
    return train + [split for split in ("val", "test") if (source / split / "images").is_dir()]


def _labels(source: Path, split: str, files: list[str], wnids: list[str]) -> list[str] | list[None]:
    if split == "test":
        return [None] * len(files)
    labels = [f.split("/")[0] for f in files] if split == "train" else _annotated(source / "val", files)
    unknown = sorted(set(labels).difference(wnids))
    if unknown:
        raise DatasetError(f"{len(unknown):,} classes of {split} are not in {str(source / WNIDS)!r}: {quoted(unknown)}")
    return labels


def _annotated(folder: Path, files: list[str]) -> list[str]:
    source = folder / ANNOTATIONS
    if not source.is_file():
        raise DatasetError(f"the labels of val are missing: no file {str(source)!r}")
    annotated = {}
    for line in read_lines(source):
        name, *fields = line.split("\t")  # then the box: x, y, x, y
        if not fields:
            raise DatasetError(f"{str(source)!r} must have lines of name, class and box apart by tabs, got {line!r}")
        annotated[name] = fields[0]
    return match_annotations([f.removeprefix("images/") for f in files], annotated, source, folder / "images")


def _words(source: Path, wnids: list[str]) -> dict[str, str]:
    """Names of the classes from words.txt, which has those of all of WordNet."""
    if not (source / WORDS).is_file():
        return {}
    wanted = set(wnids)
    pairs = (line.partition("\t") for line in read_lines(source / WORDS))
    return {wnid: words.split(",")[0].strip() for wnid, _, words in pairs if wnid in wanted}
