"""Label Studio: its JSON export as labels, and answers as predictions to start annotating from."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from msgspec import Struct, field

from hcep._files import write_text
from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.formats import decode
from hcep.formats.annotations import Annotations, PhotoLabels, annotations_of
from hcep.formats.answers import AnsweredImage, Writing, by_file

LOCAL, UPLOAD = "/data/local-files/?d=", "/data/upload/"
#: Keys of a result's value that hold labels: lists of names, or of paths of names for a taxonomy.
LABELS = ("rectanglelabels", "choices", "taxonomy", "labels")
SIDES = ("x", "y", "width", "height")


class _Result(Struct):
    value: dict[str, Any] | None = None
    id: str | int = ""
    original_width: float | None = None
    original_height: float | None = None


class _TaskAnnotation(Struct):
    result: list[_Result] | None = None
    was_cancelled: bool = False


class _Task(Struct):
    data: dict[str, Any]
    annotations: list[_TaskAnnotation] = field(default_factory=list)


def read_annotations(source: Path) -> Annotations:
    """The labels of images and boxes in the first annotation of each task that was not cancelled."""
    return annotations_of(map(_photo, decode(source, list[_Task], "a Label Studio export")))


def _photo(task: _Task) -> PhotoLabels:
    texts = [value for value in task.data.values() if isinstance(value, str)]
    images = [text for text in texts if text.lower().endswith(IMAGE_SUFFIXES)]
    file = path_in(next(iter(images or texts), ""))
    results = next((one.result for one in task.annotations if not one.was_cancelled), None) or []
    # A box and what is said of it are two results with one id.
    labels = dict[str, set[str]]()
    boxes = {str(one.id): _upright(one, one.value) for one in results if one.value and _is_box(one.value)}
    for result in results:
        value, key = result.value or {}, str(result.id)
        names = [name for kind in LABELS if isinstance(value.get(kind), list) for name in value[kind]]
        own = labels.setdefault(key if key in boxes else "", set())
        own |= {str(name[-1] if isinstance(name, list) and name else name) for name in names}
    return PhotoLabels(file, labels.get("", ()), [(labels.get(key, ()), box) for key, box in boxes.items()])


def _is_box(value: dict[str, Any]) -> bool:
    return all(isinstance(value.get(side), int | float) for side in SIDES)


def _upright(result: _Result, value: dict[str, Any]) -> list[float]:
    """The box as shares of the image; around one that is turned clockwise about its upper left corner."""
    x, y, width, height = (value[side] / 100 for side in SIDES)
    turn = value.get("rotation") or 0
    if not turn or not (result.original_width and result.original_height):
        return [x, y, width, height]
    shape, angle = result.original_width / result.original_height, math.radians(turn)
    corners = [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)]
    across = [x + dx * math.cos(angle) - dy / shape * math.sin(angle) for dx, dy in corners]
    down = [y + dx * shape * math.sin(angle) + dy * math.cos(angle) for dx, dy in corners]
    return [min(across), min(down), max(across) - min(across), max(down) - min(down)]


def path_in(url: str) -> str:
    """The path in Label Studio's address of an image: a local file, an upload or anything else with a path."""
    path = unquote(url.partition("?d=")[2] or url)
    name = path.rpartition("/")[2]
    prefix, dash, rest = name.partition("-")
    # An uploaded file gets eight random characters before its name.
    return rest if path.startswith(UPLOAD) and dash and len(prefix) == 8 else path.removeprefix("/data/")


def write(answers: Iterable[AnsweredImage], output: Path, writing: Writing) -> None:
    """Write one task per image, whose predictions are paths in the taxonomy that is called "taxonomy".

    The labelling configuration with this taxonomy is written beside the tasks, as an .xml file.
    """
    photos = dict(by_file(answers))
    tasks = [_task(file, own, writing.classifier) for file, own in photos.items()]
    write_text(output, json.dumps(tasks, indent=1, ensure_ascii=False))
    has_boxes = any(one.region.box for own in photos.values() for one in own)
    said = [one.answer.names for own in photos.values() for one in own if one.answer]
    write_text(output.with_suffix(".xml"), _configuration([*writing.classes, *said], has_boxes))


def _configuration(paths: Iterable[tuple[str, ...]], has_boxes: bool) -> str:
    """The controls that the predictions name: the taxonomy of all concepts and, for boxes, the rectangles."""
    view = Element("View")
    SubElement(view, "Image", name="image", value="$image")
    if has_boxes:
        SubElement(view, "Rectangle", name="box", toName="image")
    taxonomy = SubElement(view, "Taxonomy", {"name": "taxonomy", "toName": "image"})
    if has_boxes:
        taxonomy.set("perRegion", "true")
    choices: dict[tuple[str, ...], Element] = {(): taxonomy}
    for path in paths:
        for n in range(1, len(path) + 1):
            if path[:n] not in choices:
                choices[path[:n]] = SubElement(choices[path[: n - 1]], "Choice", value=path[n - 1])
    indent(view)
    return tostring(view, encoding="unicode") + "\n"


def _task(file: str, answers: list[AnsweredImage], classifier: str) -> dict[str, Any]:
    results, scores = [], []
    for n, one in enumerate(answers):
        if one.answer is None:
            continue
        box: dict[str, Any] = {}
        if one.region.box is not None:
            x, y, width, height = (round(100 * share, 4) for share in one.region.box)
            box = {"x": x, "y": y, "width": width, "height": height, "rotation": 0}
            results.append(_result(f"box{n}", "rectangle", "box", box, one.answer.probability))
        value = box | {"taxonomy": [list(one.answer.names)]}
        results.append(_result(f"box{n}", "taxonomy", "taxonomy", value, one.answer.probability))
        scores.append(one.answer.probability)
    prediction = {"model_version": classifier, "score": min(scores, default=0.0), "result": results}
    return {"data": {"image": LOCAL + quote(file)}, "predictions": [prediction] if results else []}


def _result(key: str, kind: str, name: str, value: dict[str, Any], score: float) -> dict[str, Any]:
    return {"id": key, "type": kind, "from_name": name, "to_name": "image", "value": value, "score": round(score, 5)}
