"""Open image files, whatever their state: the result is an RGB picture, or one short reason why not."""

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from hcep.embeddings.pixels import area_of
from hcep.errors import HCEPError, quoted

MAX_PIXELS = 89_478_485
"""Pillow's own limit for a suspected decompression bomb, a quarter of a GiB of RGB."""

#: Suffixes of image files in folders.
IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".heic", ".heif", ".hif", ".avif"),
)
#: Formats in the container that phones use, by its brand, and how to install what reads them.
_PHONE_FORMATS = {
    **dict.fromkeys(("heic", "heix", "heim", "heis", "hevc", "mif1", "msf1"), "HEIC (pip install 'hcep[photos]')"),
    **dict.fromkeys(("avif", "avis"), "AVIF (pip install 'pillow>=11.3')"),
}
# Raster formats only: of Pillow's others, EPS starts Ghostscript and some read further files.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "PPM", "JPEG2000", "MPO", "ICO", "TGA", "AVIF")
_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_ORIENTATION = 0x0112
_TURNS = ["FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90"]
_UPRIGHT = {orientation: Image.Transpose[turn] for orientation, turn in enumerate(_TURNS, start=2)}


#: Left, top, width and height of a part of an image, as shares of its width and height.
Box = tuple[float, float, float, float]


class ImageProblem(HCEPError):  # noqa: N818 - a fact about a file, to be listed; not an error of the program
    """An image file that cannot be used.

    Attributes
    ----------
    reason : what is wrong with it, in a few words and without the path
    path : '' if it is not known
    """

    def __init__(self, reason: str, path: str | os.PathLike[str] = "") -> None:
        self.reason = reason
        self.path = os.fspath(path)
        super().__init__(f"{self.path}: {reason}" if self.path else reason)


@dataclass(frozen=True)
class ImageItem:
    """One image file of a dataset, or a part of it.

    Parameters
    ----------
    path : path of the file
    label : its class, if known
    id : unique name of the image, which stays the same from run to run; the path by default. A path relative to the
        images' folder survives a move of the folder.
    split : such as "train" or "val"
    box : the part of the image that is meant; all of it by default
    """

    path: Path
    label: str | None = None
    id: str = ""
    split: str | None = None
    box: Box | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "id", storable(self.id or str(self.path)))


def storable(text: str) -> str:
    r"""Text that UTF-8 can hold: bytes of a file name that are not UTF-8 become escapes such as ``\xff``."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which no file name decodes to
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def open_image(
    path: str | os.PathLike[str],
    *,
    box: Box | None = None,
    max_pixels: int = MAX_PIXELS,
    shorter_side: int | None = None,
) -> Image.Image:
    """Open an image file as upright 8-bit RGB, fully decoded; any bad file raises `ImageProblem`.

    EXIF orientation is applied. The first frame of an animation is used. Transparent pixels are laid over white, 16-bit
    grey is scaled to 8 bits, and CMYK is converted without colour management.

    Parameters
    ----------
    box : a part of the upright image, which is cropped with some context
    max_pixels : larger images are refused by their header, before anything is decoded. Pillow always refuses more than
        twice its ``Image.MAX_IMAGE_PIXELS``.
    shorter_side : how many pixels of the shorter side will be used. A JPEG that is at least four times as large is then
        decoded at a half, quarter or eighth of its size, but never below twice that: several times faster, with nearly
        the same result.
    """
    _check_file(path)
    try:
        with _opened(path) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageProblem(f"too large: {width:,} x {height:,} pixels, at most {max_pixels:,} in all", path)
            left, top, right, bottom = (0, 0, width, height) if box is None else area_of(box, image.size)
            scale = 1.0 if shorter_side is None else 2 * shorter_side / min(right - left, bottom - top)
            if image.format in ("JPEG", "MPO") and scale < 1:
                # No mode, so that CMYK and grey are converted later.
                image.draft(None, (round(width * scale), round(height * scale)))
            image.load()
            upright, turned = _as_rgb(image), None
            with suppress(Exception):  # a picture with damaged metadata is still good
                turned = _UPRIGHT.get(int(image.getexif().get(_ORIENTATION, 1)))
            upright = upright if turned is None else upright.transpose(turned)
            return upright if box is None else upright.crop(area_of(box, upright.size))
    except ImageProblem:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageProblem(f"too large: {error}", path) from error
    except UnidentifiedImageError as error:
        raise ImageProblem("not an image or not in a format that can be read", path) from error
    except Exception as error:
        # Pillow's decoders raise anything from OSError to struct.error and MemoryError for a damaged file.
        raise ImageProblem(_in_one_line(error), path) from error


def not_used(reasons: Iterable[str], n_files: int, what: str = "files", names: Iterable[str] = ()) -> str:
    """A sentence such as "3 of 225 files not used: 2 HEIC (pip install ...), 1 truncated"; empty without reasons.

    Up to three of the `names` follow, unless the files have been named before.
    """
    kinds = Counter(re.sub(r" \(\d[^)]*\)|^image file is ", "", reason) for reason in reasons)
    listed = ", ".join(f"{n:,} {kind}" for kind, n in kinds.most_common())
    which = f"; {what}: {named}" if (named := quoted(names, 3)) else ""
    return f"{kinds.total():,} of {n_files:,} {what} not used: {listed}{which}" if kinds else ""


def small_jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    """A JPEG of at most `side` pixels on each side; the image itself is not changed."""
    small, data = image.copy(), BytesIO()
    small.thumbnail((side, side))
    small.save(data, "JPEG", quality=quality)
    return data.getvalue()


def content_hash(path: str | os.PathLike[str], box: Box | None = None) -> str:
    """SHA-256 of a file, or of a box in it, in hexadecimal; `ImageProblem` if the file cannot be read or is empty."""
    _check_file(path)
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return digest if box is None else hashlib.sha256(f"{digest} {box}".encode()).hexdigest()
    except OSError as error:
        raise ImageProblem(_in_one_line(error), path) from error


def _opened(path: str | os.PathLike[str]) -> Image.Image:
    """The image, not decoded yet; the reader of HEIC is loaded when the first such file comes."""
    try:
        return Image.open(path, formats=_formats())
    except UnidentifiedImageError:
        with open(path, "rb") as file:
            head = file.read(12)
        reason = _PHONE_FORMATS.get(head[8:].decode("latin-1")) if head[4:8] == b"ftyp" else None
        if reason is None:
            raise
        if reason.startswith("HEIC") and _has_heif():
            return Image.open(path, formats=["HEIF"])
        raise ImageProblem(reason, path) from None


@cache
def _formats() -> tuple[str, ...]:
    """The formats that this Pillow supports; it fails if another one is named."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@cache
def _has_heif() -> bool:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def _check_file(path: str | os.PathLike[str]) -> None:
    """Refuse everything except a regular file that is not empty; opening a pipe, for example, could wait forever."""
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise ImageProblem("broken symlink" if Path(path).is_symlink() else "no such file", path) from error
    except (OSError, ValueError) as error:
        raise ImageProblem(_in_one_line(error), path) from error
    if not stat.S_ISREG(status.st_mode):
        raise ImageProblem("is a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file", path)
    if status.st_size == 0:
        raise ImageProblem("empty file", path)


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is unknown")
    if image.mode in _SIXTEEN_BIT:
        # convert() would clip at 255 instead of scaling.
        high_byte = np.clip(np.asarray(image).astype(np.int64) // 256, 0, 255)
        return Image.fromarray(high_byte.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return image.convert("RGB")


def _in_one_line(error: Exception) -> str:
    message = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return message.splitlines()[0][:200].rstrip(".")
