"""Find image files, or the boxes that annotations name, before anything heavy is loaded."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.embeddings.images import ImageItem


def find_images(
    patterns: Iterable[str | PathLike[str]], unused: list[tuple[str, str]] | None = None
) -> list[Path | ImageItem]:
    """Image files: files as they are, all images below folders, and the matches of globs.

    The images or boxes of a file with annotations, such as MegaDetector's results, take its place; `unused` gets the
    names of those that cannot be used, with the reason. Raises HCEPError for a pattern that leads to no file.
    """
    files: list[Path | ImageItem] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.suffix.lower() in (".json", ".xml") and place.is_file():
            from hcep.datasets import read_images

            dataset = read_images(place, layout="annotations", unlabelled=True)
            files += dataset
            if unused is not None:
                unused += dataset.unused
            continue
        if place.is_dir():
            from hcep.datasets.layouts.listing import image_files

            matches = [place / name for name in image_files(place)]
        elif glob.has_magic(str(pattern)) and not place.exists():
            matches = sorted(map(Path, glob.glob(str(pattern), recursive=True)))
        else:
            matches = [place] if place.exists() else []
        if not matches:
            below = " or below it" if place.is_dir() else ""
            raise HCEPError(
                f"no image at {str(pattern)!r}{below}{'' if place.suffix else ', which is not a model folder either'}"
            )
        files += matches
    return files


def refuse_no_images(files: list[Path | ImageItem]) -> None:
    """Raise HCEPError if no file has an image's suffix and the first is not an image, before a model is loaded."""
    from hcep.embeddings.images import IMAGE_SUFFIXES, ImageItem, ImageProblem, open_image

    paths = [file.path if isinstance(file, ImageItem) else file for file in files]
    if any(path.suffix.lower() in IMAGE_SUFFIXES for path in paths):
        return
    try:
        open_image(paths[0])
    except ImageProblem as problem:
        raise HCEPError(f"{paths[0]}: {problem.reason}; for embeddings use `hcep predict`") from None
