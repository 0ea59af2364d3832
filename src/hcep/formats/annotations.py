"""What annotation files say of images: labels and boxes, whatever the tool that wrote them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hcep._checks import is_number
from hcep.embeddings.images import Box

OUTSIDE, SEVERAL, UNLABELLED = "box outside its image", "several labels", "without a label"
Labels = Iterable[str | None]


class PhotoLabels(NamedTuple):
    """What a file says of one image.

    Attributes
    ----------
    file : as the annotations name it
    labels : of the whole image, for images without boxes
    boxes : the labels of each box, and its left, top, width and height as shares of the image; None for a box that is
        not wanted
    reason : why the image cannot be used, if so
    """

    file: str
    labels: Labels = ()
    boxes: Sequence[tuple[Labels, Sequence[float]] | None] = ()
    split: str | None = None
    reason: str = ""


class Region(NamedTuple):
    """An image or a box in it, with its label; `number` is that of the box, from 1 on, and 0 for the whole image."""

    file: str
    number: int = 0
    label: str | None = None
    box: Box | None = None
    split: str | None = None

    @property
    def id(self) -> str:
        return f"{self.file}#{self.number}" if self.number else self.file


class Annotations(NamedTuple):
    """What a file says.

    Attributes
    ----------
    regions : the images and boxes that can be used
    unused : names of those that cannot, with the reason
    left_out : ids of regions that nothing can be learned from, with the reason: without a label although others have
        one, or with several
    """

    regions: list[Region]
    unused: list[tuple[str, str]]
    left_out: dict[str, str]


def annotations_of(photos: Iterable[PhotoLabels]) -> Annotations:
    """The images and boxes, with their label if they have a single one."""
    regions, unused, left_out = list[Region](), list[tuple[str, str]](), dict[str, str]()
    for photo in photos:
        for number, part in enumerate(photo.boxes, start=1) if photo.boxes else [(0, (photo.labels, None))]:
            if part is None:
                continue
            names, box = {label for label in part[0] if label}, part[1]
            label = names.pop() if len(names) == 1 else None
            region = Region(photo.file, number, label, _clipped(box), photo.split)
            is_outside = number > 0 and region.box is None
            if photo.reason or is_outside:
                unused.append((region.id, photo.reason or OUTSIDE))
                continue
            regions.append(region)
            if label is None:
                left_out[region.id] = SEVERAL if names else UNLABELLED
    has_labels = any(region.label for region in regions)
    left_out = {key: reason for key, reason in left_out.items() if has_labels or reason == SEVERAL}
    return Annotations(regions, unused, left_out)


def _clipped(box: object) -> Box | None:
    """The part of a box that lies in the image; None if there is none."""
    if not isinstance(box, list | tuple) or len(box) != 4:
        return None
    if not all(is_number(side) and abs(side) < math.inf for side in box):
        return None
    x, y, w, h = box
    left, top, right, bottom = max(0.0, x), max(0.0, y), min(1.0, x + w), min(1.0, y + h)
    return (left, top, right - left, bottom - top) if left < right and top < bottom else None
