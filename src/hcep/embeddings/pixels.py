"""From a photo to the numbers that a network takes, and from a box to its pixels.

This module imports nothing of HCEP, because exported models carry a copy of it.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

#: A box is cropped as a square with sides this many times its longer side, so that nothing of it is cut off later.
CONTEXT = 1.2


def area_of(box: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels of a box with its context, as left, top, right and bottom: a square if the image has room for it.

    The box is left, top, width and height, as shares of the image's width and height.
    """
    x, y, w, h = box[0] * size[0], box[1] * size[1], box[2] * size[0], box[3] * size[1]
    side = max(1.0, CONTEXT * max(w, h))
    area = []
    for middle, length in ((x + w / 2, size[0]), (y + h / 2, size[1])):
        n_pixels = min(round(side), length)
        start = min(max(0, round(middle - n_pixels / 2)), length - n_pixels)
        area.append((start, start + n_pixels))
    return area[0][0], area[1][0], area[0][1], area[1][1]


def preprocessed(
    image: Image.Image,
    *,
    size: tuple[int, int],
    resize: str,
    edge: int | None,
    crop_square: bool,
    interpolation: str,
    rescale: float,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    fill: tuple[int, int, int],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """An RGB image as a (3, height, width) array; `hcep.embeddings.preprocessing` explains the parameters."""
    if resize == "shortest":
        # Cut a strip to its middle, where the crop is: scaling 1 x 80,000,000 pixels would fill the memory.
        reach = 4 * min(image.size)
        image = centre(image, (min(image.height, reach), min(image.width, reach)))
    new_size = resized_size(*image.size, size=size, resize=resize, edge=edge, crop_square=crop_square)
    resized = image.resize(new_size, Image.Resampling[interpolation.upper()])
    pixels = np.array(np.asarray(centre(resized, size, fill)).transpose(2, 0, 1), np.float32, order="C")
    pixels *= np.float32(rescale)
    pixels -= np.asarray(mean, np.float32)[:, None, None]
    pixels /= np.asarray(std, np.float32)[:, None, None]
    return pixels


def resized_size(
    width: int, height: int, *, size: tuple[int, int], resize: str, edge: int | None, crop_square: bool
) -> tuple[int, int]:
    """The width and height that an image is scaled to before it is cropped or padded to `size`."""
    if not crop_square and width == height:
        return size[1], size[0]
    if resize == "squash":
        return (size[1], size[0]) if edge is None else (edge, edge)
    wanted = size[0] if edge is None else edge
    if resize == "longest":
        longer = max(width, height)
        return max(1, round(wanted * width / longer)), max(1, round(wanted * height / longer))
    # The longer side is truncated, not rounded, as in torchvision and transformers.
    shorter = min(width, height)
    return int(wanted * width / shorter), int(wanted * height / shorter)


def offset(have: int, want: int) -> int:
    """Where the central `want` pixels start; an odd pixel goes to the same side as in torchvision and open_clip."""
    return round((have - want) / 2) if have >= want else -((want - have) // 2)


def centre(image: Image.Image, size: tuple[int, int], fill: tuple[int, int, int] = (0, 0, 0)) -> Image.Image:
    """The middle of an image, with height and width `size`, padded where the image is smaller."""
    height, width = size
    if image.size == (width, height):
        return image
    left, top = offset(image.width, width), offset(image.height, height)
    if left >= 0 and top >= 0:
        return image.crop((left, top, left + width, top + height))
    canvas = Image.new("RGB", (width, height), tuple(fill))
    canvas.paste(image, (-left, -top))
    return canvas
