"""Which images are meant: files, folders, globs; found out before anything heavy is loaded."""

import glob
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from hcep.errors import HCEPError


def find_images(patterns: Iterable[str | PathLike[str]]) -> list[Path]:
    """The files that are meant: files as they are, images below folders, matches of globs; each must mean some."""
    from hcep.embeddings.images import IMAGE_SUFFIXES

    files: list[Path] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.is_dir():
            found = sorted(f for f in place.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES)
        elif glob.has_magic(str(pattern)) and not place.exists():
            found = sorted(Path(f) for f in glob.glob(str(pattern), recursive=True))
        else:
            found = [place] if place.exists() else []
        if not found:
            below = " (nor below it)" if place.is_dir() else ""
            raise HCEPError(f"no image at {str(pattern)!r}{below}{'' if place.suffix else ', and no model'}")
        files += found
    return files


def refuse_no_images(files: list[Path]) -> None:
    """Refuse files of which none is called like an image and the first is none: before a model is loaded."""
    from hcep.embeddings.images import IMAGE_SUFFIXES, ImageProblem, open_image

    if any(file.suffix.lower() in IMAGE_SUFFIXES for file in files):
        return
    try:
        open_image(files[0])
    except ImageProblem as problem:
        raise HCEPError(f"{files[0]}: {problem.reason}; `hcep predict` takes embeddings") from None
