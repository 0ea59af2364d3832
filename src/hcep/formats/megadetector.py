"""MegaDetector's results, versions 1.0 to 1.6: boxes in photos, with the scores of a classifier for each box."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from hcep._files import json_bytes, write_text
from hcep.errors import HCEPError, cut, quote, quoted
from hcep.formats import decode, format_of
from hcep.formats.annotations import Annotations, PhotoLabels, Region, annotations_of
from hcep.formats.answers import AnsweredImage, Concept, Writing, by_file, now
from hcep.formats.scores import ClassScores, Lineage, Scores, scores_of
from hcep.formats.speciesnet import ANIMAL, PARTS, lineage

TITLE = "MegaDetector results"
#: The least confidence of a box if the file recommends none.
CONFIDENCE = 0.2
VERSIONS = ("1", *(f"1.{minor}" for minor in range(7)))


class Detection(Struct):
    """A box, relative to the photo: left, top, width and height; and the classes it may have.

    Raw classifications are those of SpeciesNet before its own rules chose one class.
    """

    category: str
    conf: float
    bbox: list[float]
    classifications: list[tuple[str, float]] | None = None
    raw_classifications: list[tuple[str, float]] | None = None


class DetectedPhoto(Struct):
    file: str
    detections: list[Detection] | None = None
    datetime: str | None = None
    failure: str | None = None


class Results(Struct):
    """A whole file."""

    images: list[DetectedPhoto]
    detection_categories: dict[str, str]
    info: dict[str, Any] = field(default_factory=dict)
    classification_categories: dict[str, str] | None = None
    classification_category_descriptions: dict[str, str] | None = None


def read_results(source: Path) -> Results:
    """The content of a file; a version that may mean something else is refused."""
    results: Results = decode(source, Results, TITLE)
    version = str(results.info.get("format_version", "1.0"))
    if version not in VERSIONS:
        raise HCEPError(
            f"{source.name}: MegaDetector results of version {cut(version)}; versions 1.0 to 1.6 can be read"
        )
    return results


def capture_times(source: Path) -> dict[str, tuple[str, str]]:
    """When photos were taken, as `taken_at` gives it, if the file is of MegaDetector and says so."""
    if not source.is_file() or format_of(source) != "megadetector":
        return {}
    times: dict[str, tuple[str, str]] = {}
    for photo in read_results(source).images:
        with suppress(ValueError):  # a time in another form is the same as none
            times[photo.file] = datetime.strptime(photo.datetime or "", "%Y:%m:%d %H:%M:%S").isoformat(), ""
    return times


def read_annotations(source: Path, boxes: str | None = None) -> Annotations:
    """The boxes of some categories above a confidence, such as ``animal,person:0.5``; they have no labels."""
    results = read_results(source)
    names, conf = _chosen(source, results, boxes)
    categories = {key for key, name in results.detection_categories.items() if name.lower() in names}
    photos = []
    for photo in results.images:
        own = [box.category in categories and box.conf >= conf for box in photo.detections or ()]
        wanted = [((), box.bbox) if own[n] else None for n, box in enumerate(photo.detections or ())]
        if photo.failure or any(own):
            reason = f"MegaDetector: {cut(photo.failure)}" if photo.failure else ""
            if (guess_type(photo.file)[0] or "").startswith("video/"):
                reason = "video"
            photos.append(PhotoLabels(photo.file, boxes=wanted, reason=reason))
    annotations = annotations_of(photos)
    if not (annotations.regions or annotations.unused):
        kinds = " or ".join(map(cut, names))
        raise HCEPError(f"{source.name} has no box of {kinds} with a confidence of at least {conf:g}")
    return annotations


def _chosen(source: Path, results: Results, boxes: str | None) -> tuple[list[str], float]:
    """The names of the categories, and the least confidence."""
    listed, _, number = (boxes or "").partition(":")
    known = list(dict.fromkeys(name.lower() for name in results.detection_categories.values()))
    names = [name.strip().lower() for name in listed.split(",") if name.strip()]
    names = names or ([ANIMAL] if ANIMAL in known else known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise HCEPError(f"--boxes: {source.name} has no category {quote(unknown[0])}, only {quoted(known)}")
    metadata = results.info.get("detector_metadata")
    recommended = metadata.get("typical_detection_threshold") if isinstance(metadata, dict) else None
    if not isinstance(recommended, int | float):
        recommended = CONFIDENCE
    try:
        return names, float(number or recommended)
    except ValueError:
        raise HCEPError(
            f"--boxes: expected a confidence after the colon, as in animal:0.2, got {quote(number)}"
        ) from None


def read_scores(source: Path) -> Scores:
    """The scores of each box that a classifier has seen."""
    results = read_results(source)
    names = results.classification_categories or {}
    boxes = [
        ClassScores(Region(photo.file, n).id, photo.file, [(key, score) for key, score in own])
        for photo in results.images
        for n, box in enumerate(photo.detections or (), start=1)
        if (own := box.raw_classifications or box.classifications)
    ]
    if not boxes:
        raise HCEPError(f"{source.name}: no box has classifications; classify its boxes with `hcep predict` first")
    unknown = next((key for box in boxes for key, _ in box.scores if key not in names), None)
    if unknown is not None:
        raise HCEPError(f"{source.name}: classification category {quote(unknown)} is not in classification_categories")
    described = results.classification_category_descriptions or {}
    lines = {key: _lineage(text, names.get(key, "")) for key, text in described.items()}
    if not all(key in lines for box in boxes for key, _ in box.scores):
        lines = {}  # the labels are then the names alone
        boxes = [box._replace(scores=[(names[key], score) for key, score in box.scores]) for box in boxes]
    is_raw = any(box.raw_classifications for photo in results.images for box in photo.detections or ())
    note = f"{source.name}: the scores are the raw_classifications, before SpeciesNet chose one class"
    return scores_of(source, boxes, lines, [note] if is_raw else [])


def _lineage(description: str, name: str) -> Lineage:
    """A description in SpeciesNet's form, or any path of names that semicolons separate."""
    parts = [part.strip() for part in description.split(";")]
    if len(parts) == len(PARTS) + 2 and (not parts[0] or "-" in parts[0]):
        return lineage(description)
    return Lineage(tuple(("", part) for part in parts if part), name)


def write(answers: Iterable[AnsweredImage], output: Path, writing: Writing) -> None:
    """Write the answer of each box, and its likeliest class, as classifications.

    Everything else stays as it is in the results that the boxes came from. Images without boxes get one around all of
    them.
    """
    photos = dict(by_file(answers))
    has_boxes = writing.data.is_file() and format_of(writing.data) == "megadetector"
    content = json.loads(json_bytes(writing.data)) if has_boxes else _around(photos)
    content["info"] = (content.get("info") or {}) | {
        "classifier": writing.classifier,
        "classification_completion_time": now()[:19].replace("T", " "),
    }
    names = content["classification_categories"] = content.get("classification_categories") or {}
    descriptions = names | (content.get("classification_category_descriptions") or {})
    keys: dict[tuple[str, ...], str] = {}
    free = (str(n) for n in count() if str(n) not in names)
    for photo in content["images"]:
        for n, one in enumerate(photos.get(photo["file"], ()), start=1):
            scores = []
            for concept in {c.names: c for c in _descending(one)}.values():
                if concept.names not in keys:
                    key = keys[concept.names] = next(free)
                    names[key], descriptions[key] = concept.name, _description(concept)
                scores.append([keys[concept.names], round(concept.probability, 5)])
            photo["detections"][(one.region.number if has_boxes else n) - 1]["classifications"] = scores
    content["classification_category_descriptions"] = descriptions
    write_text(output, json.dumps(content, indent=1, ensure_ascii=False))


def _descending(one: AnsweredImage) -> list[Concept]:
    """The answer, and the likeliest class unless it is likelier: the format wants classes in the order of scores."""
    if one.answer is None:
        return []
    return [one.answer, *([one.best] if one.best.probability <= one.answer.probability else [])]


def _around(photos: Mapping[str, Sequence[AnsweredImage]]) -> dict[str, Any]:
    """Results with the boxes of photos, and one around each photo that has none."""
    whole = {"category": "1", "conf": 1.0, "bbox": [0, 0, 1, 1]}
    images = [{"file": file, "detections": [whole | _box(one) for one in own]} for file, own in photos.items()]
    return {"info": {"format_version": "1.4"}, "detection_categories": {"1": "object"}, "images": images}


def _box(answer: AnsweredImage) -> dict[str, Any]:
    return {} if answer.region.box is None else {"bbox": [round(share, 5) for share in answer.region.box]}


def _description(concept: Concept) -> str:
    """The lineage, as SpeciesNet writes it if the concepts have its ranks; otherwise all names from the highest one."""
    taxa = {rank.lower(): name for rank, name in concept.lineage.items()}
    if not any(rank in taxa for rank in PARTS):
        return ";".join(name.replace(";", ",") for name in concept.names)
    epithet = taxa.get("species", "").removeprefix(f"{taxa.get('genus', '')} ")
    names = [epithet if rank == "species" else taxa.get(rank, "") for rank in PARTS]
    return ";".join(name.replace(";", ",") for name in ("", *names, concept.name))
