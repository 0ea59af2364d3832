"""Find image files before anything heavy is loaded."""

import glob
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from hcep.errors import HCEPError


def find_images(patterns: Iterable[str | PathLike[str]]) -> list[Path]:
    """Image files: files as they are, all images below folders, and the matches of globs.

    Raises HCEPError for a pattern that leads to no file.
    """
    from hcep.embeddings.images import IMAGE_SUFFIXES

    files: list[Path] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.is_dir():
            matches = sorted(file for file in place.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        elif glob.has_magic(str(pattern)) and not place.exists():
            matches = sorted(map(Path, glob.glob(str(pattern), recursive=True)))
        else:
            matches = [place] if place.exists() else []
        if not matches:
            below = " or below it" if place.is_dir() else ""
            raise HCEPError(f"no image at {str(pattern)!r}{below}{'' if place.suffix else ', and no model'}")
        files += matches
    return files


def refuse_no_images(files: list[Path]) -> None:
    """Raise HCEPError if no file has an image's suffix and the first is not an image, before a model is loaded."""
    from hcep.embeddings.images import IMAGE_SUFFIXES, ImageProblem, open_image

    if any(file.suffix.lower() in IMAGE_SUFFIXES for file in files):
        return
    try:
        open_image(files[0])
    except ImageProblem as problem:
        raise HCEPError(f"{files[0]}: {problem.reason}; for embeddings use `hcep predict`") from None
