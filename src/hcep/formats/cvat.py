"""CVAT for images 1.1: tags of images, and boxes in pixels, as XML."""

from pathlib import Path
from xml.etree.ElementTree import Element

from hcep.errors import DatasetError, quote
from hcep.formats.annotations import Annotations, PhotoLabels, annotations_of
from hcep.formats.xml_files import parse_xml


def read_annotations(source: Path) -> Annotations:
    """The labels of boxes, and the tags of images without boxes; the subset of an image is its split."""
    root = parse_xml(source)
    if root.find("track") is not None:
        raise DatasetError(f"{str(source)!r} has tracks of a video; export the task as 'CVAT for images'")
    return annotations_of(_photo(source, image) for image in root.iter("image"))


def _photo(source: Path, image: Element) -> PhotoLabels:
    name = image.get("name", "")
    try:
        width, height = float(image.get("width", "")), float(image.get("height", ""))
        boxes = []
        for box in image.iter("box"):
            left, top, right, bottom = (float(box.get(side, "")) for side in ("xtl", "ytl", "xbr", "ybr"))
            shares = (left / width, top / height, (right - left) / width, (bottom - top) / height)
            boxes.append(([box.get("label")], shares))
    except (ValueError, ZeroDivisionError):
        raise DatasetError(f"{str(source)!r}: the size or a box of image {quote(name)} is not a number") from None
    return PhotoLabels(name, [tag.get("label") for tag in image.iter("tag")], boxes, image.get("subset"))
