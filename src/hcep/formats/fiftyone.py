"""Folders that FiftyOne exports: a whole dataset (``samples.json``), or images with their labels (``labels.json``)."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.errors import DatasetError, quoted
from hcep.formats import decode
from hcep.formats.annotations import Annotations, PhotoLabels, annotations_of

#: The field with the true labels, by FiftyOne's own convention.
GROUND_TRUTH = "ground_truth"
SPLITS = ("train", "training", "val", "valid", "validation", "test")
KINDS = ("Classification", "Detections")


class _Samples(Struct):
    samples: list[dict[str, Any]]


class _Labels(Struct):
    labels: dict[str, Any]
    classes: list[str] | None = None


def read_annotations(source: Path) -> Annotations:
    """The labels of images or boxes; the tag of a sample that names a split is its split."""
    if (source / "samples.json").is_file():
        samples = decode(source / "samples.json", _Samples, "a FiftyOne dataset").samples
        name = _label_field(source, samples)
        return annotations_of(_sample(sample, name) for sample in samples)
    content: _Labels = decode(source / "labels.json", _Labels, "labels of FiftyOne")
    files: dict[str, str] = {}
    for path in sorted((source / "data").iterdir() if (source / "data").is_dir() else ()):
        if path.stem in files and path.suffix.lower() in IMAGE_SUFFIXES:
            raise DatasetError(f"{str(source)!r} has two images {path.stem!r} in data/; so labels.json is ambiguous")
        if path.suffix.lower() in IMAGE_SUFFIXES:
            files[path.stem] = f"data/{path.name}"
    return annotations_of(_photo(files.get(key, key), value, content.classes) for key, value in content.labels.items())


def classification(label: str | None, confidence: float | None = None) -> dict[str, Any] | None:
    """A label of a whole image, as FiftyOne stores it; None without a label."""
    if label is None:
        return None
    return {"_cls": "Classification", "label": label, **({} if confidence is None else {"confidence": confidence})}


def _label_field(source: Path, samples: list[dict[str, Any]]) -> str:
    """The field of the true labels, or the only one that holds labels."""
    fields = {k for one in samples for k, v in one.items() if isinstance(v, dict) and v.get("_cls") in KINDS}
    if GROUND_TRUTH in fields or len(fields) == 1:
        return GROUND_TRUTH if GROUND_TRUTH in fields else fields.pop()
    which = f"has labels in {quoted(sorted(fields))}" if fields else "has no labels of images or boxes"
    raise DatasetError(f"{str(source)!r} {which}; export the dataset with its labels in the field {GROUND_TRUTH!r}")


def _sample(sample: dict[str, Any], name: str) -> PhotoLabels:
    value, tags = sample.get(name), sample.get("tags")
    value, tags = value if isinstance(value, dict) else {}, tags if isinstance(tags, list) else []
    own = value.get("detections") if value.get("_cls") == "Detections" else value.get("label")
    return _photo(str(sample.get("filepath", "")), own, None, next((tag for tag in tags if tag in SPLITS), None))


def _photo(file: str, value: Any, classes: list[str] | None, split: str | None = None) -> PhotoLabels:
    if not isinstance(value, list):
        return PhotoLabels(file, [_name(value, classes)], split=split)
    boxes = [
        ([_name(box.get("label"), classes)], box.get("bounding_box") or ()) for box in value if isinstance(box, dict)
    ]
    return PhotoLabels(file, boxes=boxes, split=split)


def _name(label: Any, classes: list[str] | None) -> str | None:
    """A label, which is a number if the file lists the classes."""
    if isinstance(label, int) and classes is not None and 0 <= label < len(classes):
        return classes[label]
    return None if label is None else str(label)
