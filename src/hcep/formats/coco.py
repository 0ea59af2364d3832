"""COCO and COCO Camera Traps: labels of images, and boxes in pixels."""

from pathlib import Path

from msgspec import Struct

from hcep.errors import DatasetError, quote
from hcep.formats import decode
from hcep.formats.annotations import Annotations, PhotoLabels, annotations_of

#: Names of the category that camera traps have for images with nothing in them.
EMPTY = ("empty", "blank")


class _Image(Struct):
    id: int | str
    file_name: str
    width: float | None = None
    height: float | None = None
    split: str | None = None


class _Annotation(Struct):
    image_id: int | str
    category_id: int | str | None = None
    bbox: list[float] | None = None


class _Category(Struct):
    id: int | str
    name: str


class _File(Struct):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


def read_annotations(source: Path) -> Annotations:
    """The labels of boxes, and those of images without boxes; empty images are left out."""
    content: _File = decode(source, _File, "COCO annotations")
    names = {str(category.id): category.name for category in content.categories}
    images = {str(image.id): image for image in content.images}
    for known, listed, what in ((images, content.images, "images"), (names, content.categories, "categories")):
        if len(known) < len(listed):
            raise DatasetError(f"{str(source)!r} has several {what} with the same id; ids must be unique")
    by_image: dict[str, list[_Annotation]] = {}
    for one in content.annotations:
        if str(one.image_id) not in images:
            raise DatasetError(f"{str(source)!r} has an annotation of image {quote(one.image_id)}, which is not listed")
        if one.category_id is not None and str(one.category_id) not in names:
            raise DatasetError(
                f"{str(source)!r} has an annotation of category {quote(one.category_id)}, which is not listed"
            )
        by_image.setdefault(str(one.image_id), []).append(one)
    return annotations_of(_photo(source, one, by_image.get(key, []), names) for key, one in images.items())


def _photo(source: Path, image: _Image, annotations: list[_Annotation], names: dict[str, str]) -> PhotoLabels:
    labels = [names.get(str(one.category_id)) for one in annotations]
    if labels and all(label and label.lower() in EMPTY for label in labels):
        return PhotoLabels(image.file_name, reason="empty")
    if any(one.bbox for one in annotations) and not (image.width and image.height):
        raise DatasetError(f"{str(source)!r}: image {quote(image.file_name)} has boxes but no width and height")
    size = 2 * [image.width or 1.0, image.height or 1.0]
    boxes = [
        ([label], [number / length for number, length in zip(one.bbox, size, strict=False)])
        for label, one in zip(labels, annotations, strict=True)
        if one.bbox
    ]
    return PhotoLabels(image.file_name, labels, boxes, image.split)
