"""Labels and boxes in the files of other tools, and awkward files: read rightly, or refused with one sentence."""

from __future__ import annotations

import csv
import io
import json
import time
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from hcep.datasets import encode_images, read_images
from hcep.datasets.encoding import folder_notes
from hcep.embeddings.images import open_image
from hcep.embeddings.pixels import area_of
from hcep.errors import HCEPError
from tests.cli.test_own_data import ENCODER, model, own_cache, photos, run, tree  # noqa: F401
from tests.embeddings.tiny import TinyEncoder

BOX = {"category": "1", "conf": 0.9, "bbox": [0.1, 0.2, 0.3, 0.4]}


def detections(*images: object, version: object = "1.5", **changes: object) -> str:
    content = {"info": {"format_version": version}, "detection_categories": {"1": "animal", "2": "person"}}
    return json.dumps(content | {"images": list(images)} | changes)


def boxed(file: str = "a.jpg", **changes: object) -> dict:
    return {"file": file, "detections": [BOX | changes]}


def coco(images: list, annotations: list, categories: list | None = None) -> str:
    known = [{"id": 0, "name": "empty"}, {"id": 1, "name": "cat"}, {"id": 2, "name": "Felidae"}]
    return json.dumps({"images": images, "annotations": annotations, "categories": categories or known})


def image(key: object = 1, file: str = "a.jpg", **more: object) -> dict:
    return {"id": key, "file_name": file, "width": 20, "height": 10, **more}


def label_studio(*results: dict, file: str = "/data/local-files/?d=a.jpg", **task: object) -> str:
    annotations = [{"result": [], "was_cancelled": True}, {"result": list(results)}]
    return json.dumps([{"data": {"image": file}, "annotations": annotations} | task])


def table(*rows: dict) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def package(media: list[dict] | None = None, observations: list[dict] | None = None) -> dict[str, str]:
    media = media or [{"mediaID": "m1", "deploymentID": "d", "filePath": "a.jpg", "fileName": "a.jpg"}]
    observations = observations or [observation()]
    return {"media.csv": table(*media), "observations.csv": table(*observations), "datapackage.json": "{}"}


def observation(**changes: object) -> dict:
    row = {"observationID": "o1", "mediaID": "m1", "observationLevel": "media", "scientificName": "Felis catus"}
    return row | dict.fromkeys(("bboxX", "bboxY", "bboxWidth", "bboxHeight"), "") | changes


def cvat(inside: str, size: str = 'width="20" height="10"') -> str:
    return f'<annotations><version>1.1</version><image id="0" name="a.jpg" {size}>{inside}</image></annotations>'


def fiftyone(**fields: object) -> dict[str, str]:
    sample = {"filepath": "data/a.jpg", "tags": ["validation"], **fields}
    return {
        "samples.json": json.dumps({"samples": [sample]}),
        "metadata.json": "{}",
        "data/a.jpg": "",
        "data/b.jpg": "",
    }


DETECTION = {"_cls": "Detection", "label": "cat", "bounding_box": [0.1, 0.2, 0.3, 0.4]}
RECTANGLE = {"id": "r", "type": "rectanglelabels", "value": {"x": 10, "y": 20, "width": 30, "height": 40}}
TAXONOMY = {"id": "r", "type": "taxonomy", "value": RECTANGLE["value"] | {"taxonomy": [["Animalia", "Felidae", "cat"]]}}
CHOICE = {"id": "c", "type": "choices", "value": {"choices": ["cat"]}}
TAG = '<tag label="cat"/>'
CVAT_BOX = '<box label="cat" xtl="2" ytl="2" xbr="8" ybr="6"/>'
A_CAT = {"image_id": 1, "category_id": 1}
NFD = unicodedata.normalize("NFD", "é.jpg")


def write(folder: Path, files: dict[str, str], source: str) -> Path:
    folder.mkdir()
    for name in ("a.jpg", "b.jpg", "é.jpg"):
        Image.new("RGB", (20, 10)).save(folder / name)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".jpg"):
            Image.new("RGB", (20, 10)).save(folder / name)
        else:
            (folder / name).write_text(content, encoding="utf-8")
    return folder / source


@pytest.mark.parametrize(
    ("files", "source", "expected"),
    [
        # MegaDetector
        ({"x.json": detections(boxed())}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed(), version=1.4)}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed(), version="1.6")}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed(conf=0.9), boxed("b.jpg", conf=0.1))}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed(), boxed("b.jpg", category="2"))}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed("C:\\old\\a.jpg"))}, "x.json", [("C:\\old\\a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed("/home/me/a.jpg"))}, "x.json", [("/home/me/a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed("./a.jpg"))}, "x.json", [("./a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed("A.JPG"))}, "x.json", [("A.JPG#1", None, "a.jpg")]),
        ({"x.json": detections(boxed(NFD))}, "x.json", [(f"{NFD}#1", None, "é.jpg")]),
        (
            {"x.json": detections(boxed("cam 1/c.jpg")), "cam_1/c.jpg": ""},
            "x.json",
            [("cam 1/c.jpg#1", None, "cam_1/c.jpg")],
        ),
        (
            {"x.json": detections(boxed("c.jpg")), "photos/c.jpg": ""},
            "x.json",
            [("c.jpg#1", None, "photos/c.jpg")],
        ),
        ({"x.json": "\ufeff" + detections(boxed())}, "x.json", [("a.jpg#1", None, "a.jpg")]),
        ({"X.JSON": detections(boxed())}, "X.JSON", [("a.jpg#1", None, "a.jpg")]),
        ({"x.json": detections(boxed("a.jpg "))}, "x.json", [("a.jpg #1", None, "a.jpg")]),
        (
            {"x.json": detections(boxed("\\\\server\\cam\\a.jpg"))},
            "x.json",
            [("\\\\server\\cam\\a.jpg#1", None, "a.jpg")],
        ),
        (
            {"x.json": detections(boxed("cam#1/c.jpg")), "cam#1/c.jpg": ""},
            "x.json",
            [("cam#1/c.jpg#1", None, "cam#1/c.jpg")],
        ),
        (
            {
                "x.json": detections(
                    boxed(), boxed("b.jpg", category="2"), detection_categories={"1": "Animal", "2": "Person"}
                )
            },
            "x.json",
            [("a.jpg#1", None, "a.jpg")],
        ),
        (
            {"x.json": detections(boxed(), boxed("b.jpg", category="9"), classification_categories=None)},
            "x.json",
            [("a.jpg#1", None, "a.jpg")],
        ),
        # COCO and COCO Camera Traps
        ({"x.json": coco([image("1")], [A_CAT])}, "x.json", [("a.jpg", "cat", "a.jpg")]),
        ({"x.json": coco([image()], [A_CAT])}, "x.json", [("a.jpg", "cat", "a.jpg")]),
        ({"x.json": coco([image()], [A_CAT, A_CAT])}, "x.json", [("a.jpg", "cat", "a.jpg")]),
        (
            {
                "x.json": coco(
                    [image()], [A_CAT | {"bbox": [2, 2, 6, 4]}, {"image_id": 1, "category_id": 2, "bbox": [0, 0, 9, 9]}]
                )
            },
            "x.json",
            [("a.jpg#1", "cat", "a.jpg"), ("a.jpg#2", "Felidae", "a.jpg")],
        ),
        (
            {"x.json": coco([image("u-1"), image("u-2", "b.jpg")], [{"image_id": "u-1", "category_id": 1}])},
            "x.json",
            [("a.jpg", "cat", "a.jpg")],
        ),
        (
            {"x.json": coco([image(file="/data/local-files/?d=cam%201/c.jpg")], [A_CAT]), "cam 1/c.jpg": ""},
            "x.json",
            [("/data/local-files/?d=cam%201/c.jpg", "cat", "cam 1/c.jpg")],
        ),
        (
            {"x.json": coco([image(file="/data/upload/1/0123abcd-b.jpg")], [A_CAT])},
            "x.json",
            [("/data/upload/1/0123abcd-b.jpg", "cat", "b.jpg")],
        ),
        # Camtrap DP, the folder or the file that describes it
        (package(), ".", [("a.jpg", "Felis catus", "a.jpg")]),
        (package(), "datapackage.json", [("a.jpg", "Felis catus", "a.jpg")]),
        (
            package(observations=[observation(bboxX=0.1, bboxY=0.2, bboxWidth=0.3, bboxHeight=0.4)]),
            ".",
            [("a.jpg#1", "Felis catus", "a.jpg")],
        ),
        (
            package([{"mediaID": "m1", "filePath": "https://x.org/1/file", "fileName": "a.jpg"}]),
            ".",
            [("a.jpg", "Felis catus", "a.jpg")],
        ),
        # Before version 1.0: no levels; an observation without media is of a whole sequence
        (
            package(
                observations=[
                    {"observationID": "o1", "sequenceID": "s", "mediaID": "m1", "scientificName": "Felis catus"},
                    {"observationID": "o2", "sequenceID": "s", "mediaID": "", "scientificName": "Lynx lynx"},
                ]
            ),
            ".",
            [("a.jpg", "Felis catus", "a.jpg")],
        ),
        # As spreadsheet programs and R write tables
        (
            {name: content.replace(",", ";") for name, content in package().items()},
            ".",
            [("a.jpg", "Felis catus", "a.jpg")],
        ),
        (package(observations=[observation(bboxX="NA", sex="NA")]), ".", [("a.jpg", "Felis catus", "a.jpg")]),
        (package(observations=[observation(mediaID="", observationLevel="event")]), ".", [("a.jpg", None, "a.jpg")]),
        # Label Studio, CVAT, FiftyOne
        ({"x.json": label_studio(CHOICE | {"id": 5})}, "x.json", [("a.jpg", "cat", "a.jpg")]),
        ({"x.json": label_studio(RECTANGLE, CHOICE | {"id": "r"})}, "x.json", [("a.jpg#1", "cat", "a.jpg")]),
        ({"x.json": label_studio(CHOICE)}, "x.json", [("a.jpg", "cat", "a.jpg")]),
        ({"x.json": label_studio(RECTANGLE, TAXONOMY)}, "x.json", [("a.jpg#1", "cat", "a.jpg")]),
        (
            {"x.json": label_studio(CHOICE, file="/data/upload/1/0123abcd-b.jpg")},
            "x.json",
            [("b.jpg", "cat", "b.jpg")],
        ),
        (
            {"x.json": label_studio(CHOICE, data={"note": "of the second day", "photo": "b.jpg"})},
            "x.json",
            [("b.jpg", "cat", "b.jpg")],
        ),
        # Photos in cloud storage, of which there is a copy here
        (
            {"x.json": label_studio(CHOICE, file="s3://bucket/2024/a.jpg")},
            "x.json",
            [("s3://bucket/2024/a.jpg", "cat", "a.jpg")],
        ),
        (
            {"x.json": label_studio(CHOICE, file="https://x.org/cam%201/c.jpg?key=1"), "cam 1/c.jpg": ""},
            "x.json",
            [("https://x.org/cam 1/c.jpg?key=1", "cat", "cam 1/c.jpg")],
        ),
        # As Label Studio exports tasks: with the predictions from which annotating started, and with their drafts.
        (
            {"x.json": label_studio(CHOICE, id=1, predictions=[], drafts=[], meta={}, inner_id=1, project=5)},
            "x.json",
            [("a.jpg", "cat", "a.jpg")],
        ),
        ({"x.xml": cvat(TAG)}, "x.xml", [("a.jpg", "cat", "a.jpg")]),
        ({"x.xml": cvat(CVAT_BOX + TAG)}, "x.xml", [("a.jpg#1", "cat", "a.jpg")]),
        (fiftyone(ground_truth={"_cls": "Classification", "label": "cat"}), ".", [("data/a.jpg", "cat", "data/a.jpg")]),
        (
            fiftyone(
                ground_truth={"_cls": "Detections", "detections": [DETECTION]}, predictions={"_cls": "Detections"}
            ),
            ".",
            [("data/a.jpg#1", "cat", "data/a.jpg")],
        ),
        (
            {"labels.json": json.dumps({"classes": ["dog", "cat"], "labels": {"a": 1}}), "data/a.jpg": ""},
            ".",
            [("data/a.jpg", "cat", "data/a.jpg")],
        ),
        (
            {
                "labels.json": json.dumps({"classes": ["cat"], "labels": {"a": [DETECTION | {"label": 0}]}}),
                "data/a.jpg": "",
            },
            ".",
            [("data/a.jpg#1", "cat", "data/a.jpg")],
        ),
    ],
)
def test_what_files_say_is_read(tmp_path, files, source, expected) -> None:
    dataset = read_images(write(tmp_path / "f", files, source))
    assert list(zip(dataset.ids, dataset.labels, dataset.files, strict=True)) == expected
    assert dataset.layout == "annotations"
    is_box = ["#" in key for key in dataset.ids]
    assert [box is not None for box in dataset.boxes] == is_box
    first = next((box for box in dataset.boxes if box), BOX["bbox"])
    assert list(first) == pytest.approx(BOX["bbox"])


@pytest.mark.parametrize(
    ("files", "source", "reason"),
    [
        ({"x.json": detections(boxed(), boxed("b.jpg", bbox=[1.5, 0, 1, 1]))}, "x.json", "box outside its image"),
        ({"x.json": detections(boxed(), boxed("b.jpg", bbox=[0.5, 0.5, 0, 1]))}, "x.json", "box outside its image"),
        ({"x.json": detections(boxed(), boxed("b.jpg", bbox=[0.5, 0.5]))}, "x.json", "box outside its image"),
        ({"x.json": detections(boxed(), {"file": "b.jpg", "failure": "no"})}, "x.json", "MegaDetector: no"),
        ({"x.json": detections(boxed(), boxed("v.mp4"))}, "x.json", "video"),
        ({"x.json": coco([image(), image(2, "b.jpg")], [A_CAT])}, "x.json", "without a label"),
        (
            package(
                [{"mediaID": m, "filePath": f} for m, f in (("m1", "a.jpg"), ("m2", "b.jpg"))],
                [observation(), observation(observationID="o2", mediaID="m2", scientificName="NA")],
            ),
            ".",
            "without a label",
        ),
        (
            {"x.json": coco([image(), image(2, "b.jpg")], [A_CAT, {"image_id": 2, "category_id": 0}])},
            "x.json",
            "empty",
        ),
        (
            {
                "x.json": coco(
                    [image(), image(2, "b.jpg")], [A_CAT, *({"image_id": 2, "category_id": c} for c in (1, 2))]
                )
            },
            "x.json",
            "several labels",
        ),
        (
            package(
                [{"mediaID": m, "filePath": f} for m, f in (("m1", "a.jpg"), ("m2", "b.jpg"))],
                [observation(), observation(observationID="o2", mediaID="m2", observationLevel="event")],
            ),
            ".",
            "without a label",
        ),
        (
            package(
                [{"mediaID": m, "filePath": f} for m, f in (("m1", "a.jpg"), ("m2", "b.jpg"))],
                [observation(), observation(observationID="o2", mediaID="m2", bboxX="left")],
            ),
            ".",
            "box outside its image",
        ),
    ],
)
def test_what_cannot_be_used_is_listed_with_its_reason(tmp_path, files, source, reason) -> None:
    dataset = read_images(write(tmp_path / "f", files, source))
    assert [one.partition("#")[0] for one in dataset.ids] == ["a.jpg"]
    assert [one[1] for one in dataset.unused] == [reason]


@pytest.mark.parametrize(
    ("files", "source", "match"),
    [
        ({"x.json": detections(boxed(), version="2.0")}, "x.json", "of version 2.0; versions 1.0 to 1.6"),
        ({"x.json": detections(boxed("../a.jpg"))}, "x.json", "'../a.jpg' points outside the folder"),
        ({"x.json": detections(boxed("..\\a.jpg"))}, "x.json", "points outside the folder"),
        ({"x.json": detections(boxed("gone.jpg"))}, "x.json", "no image that .* lists is below .*'gone.jpg'"),
        (
            {"x.json": detections(boxed(), boxed())},
            "x.json",
            "lists 'a.jpg' more than once; list each image once",
        ),
        ({"x.json": detections(boxed(conf="high"))}, "x.json", r"Expected `float`, got `str` - at `\$.images\[0\]"),
        ({"x.json": detections(boxed(conf=0.1))}, "x.json", "no box of animal with a confidence of at least 0.2"),
        (
            {"x.json": detections(boxed("b.mp4"), boxed(bbox=[1.5, 0, 0.2, 0.2]))},
            "x.json",
            "x.json': 2 of 2 images or boxes not used: 1 video, 1 box outside its image",
        ),
        (
            {"x.json": coco([image()], [A_CAT | {"bbox": [30, 2, 6, 4]}])},
            "x.json",
            "x.json': 1 of 1 images or boxes not used: 1 box outside its image",
        ),
        ({"x.json": detections({"detections": []})}, "x.json", "missing required field `file`"),
        (
            {"x.json": detections(boxed("c.jpg")), "one/c.jpg": "", "two/c.jpg": ""},
            "x.json",
            "'c.jpg' may be any of 'one/c.jpg', 'two/c.jpg'",
        ),
        (
            {"x.json": detections(boxed("c d.jpg")), "c_d.jpg": "", "C-d.jpg": ""},
            "x.json",
            "'c d.jpg' may be any of 'C-d.jpg', 'c_d.jpg'",
        ),
        ({"x.json": coco([image(), image()], [A_CAT])}, "x.json", "several images with the same id"),
        ({"x.json": coco([image()], [{"image_id": 9, "category_id": 1}])}, "x.json", "annotation of image 9"),
        ({"x.json": coco([image()], [{"image_id": 1, "category_id": 9}])}, "x.json", "annotation of category 9"),
        (
            {"x.json": coco([{"id": 1, "file_name": "a.jpg"}], [A_CAT | {"bbox": [1, 1, 2, 2]}])},
            "x.json",
            "image 'a.jpg' has boxes but no width and height",
        ),
        (package([{"mediaID": "m1", "filePath": "a.jpg"}] * 2), ".", "has the mediaID 'm1' twice"),
        (package([{"mediaID": "m2", "filePath": "a.jpg"}]), ".", "observations name the media 'm1'"),
        (package([{"mediaID": "m1", "file_path": "a.jpg"}]), ".", "has no column 'filePath'"),
        (package([{"mediaID": "m1", "filePath": "../../etc/a.jpg"}]), ".", "points outside the folder"),
        (
            {"x.xml": cvat(TAG, 'width="wide" height="10"')},
            "x.xml",
            "the size or a box of image 'a.jpg' is not a number",
        ),
        (
            {"x.xml": "<!DOCTYPE annotations [<!ENTITY e 'x'>]>" + cvat(TAG)},
            "x.xml",
            "has an XML DOCTYPE, which is not read",
        ),
        (fiftyone(), ".", "has no labels of images or boxes"),
        (
            {"labels.json": json.dumps({"labels": {"a": "cat"}}), "data/a.jpg": "", "data/a.png": ""},
            ".",
            "has two images 'a' in data/; so labels.json is ambiguous",
        ),
        (
            {"x.json": label_studio({"id": "c", "value": ["cat"]})},
            "x.json",
            "cannot be read as a Label Studio export: Expected `object | null`, got `array`",
        ),
        (
            fiftyone(one={"_cls": "Classification", "label": "a"}, two={"_cls": "Classification", "label": "b"}),
            ".",
            "has labels in 'one', 'two'; export the dataset with its labels in the field 'ground_truth'",
        ),
        (
            {"x.json": coco([image()], [A_CAT], 2 * [{"id": 1, "name": "cat"}])},
            "x.json",
            "several categories with the same id",
        ),
        ({"x.xml": "<annotations><track label='cat'/></annotations>"}, "x.xml", "export the task as 'CVAT for images'"),
        ({"x.json": '{"predictions": []}'}, "x.json", "has SpeciesNet predictions.*use `hcep rollup` for them"),
        ({"x.xml": "<annotation/>"}, "x.xml", "not in a known format: it has 'annotation'; expected CVAT annotations"),
        ({"x.json": "{}"}, "x.json", "is not in a known format: it has nothing; expected MegaDetector results"),
        (
            {"x.json": '[{"image": "a.jpg", "choice": "cat"}]'},
            "x.json",
            "has 'choice', 'image'; expected .*Label Studio",
        ),
        (
            {"x.json": '{"images": [], "detection_categories": {}'},
            "x.json",
            "cannot be read as JSON: Input data was tr",
        ),
        ({"x.json": detections(boxed(conf=float("nan")))}, "x.json", r"cannot be read as JSON: .*\(byte \d+\)"),
        ({"datapackage.json": "{}"}, "datapackage.json", "media.csv and observations.csv must be beside it"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_with_one_sentence(tmp_path, files, source, match) -> None:
    with pytest.raises(HCEPError, match=match) as caught:
        read_images(write(tmp_path / "f", files, source))
    assert "\n" not in str(caught.value).partition("looked for")[0]


def test_what_cannot_be_learned_from_can_still_be_answered(tmp_path) -> None:
    media = [{"mediaID": name, "filePath": f"{name}.jpg"} for name in ("a", "b", "é")]
    names = (("a", "Felis catus"), ("b", "Felis catus"), ("b", "Lynx lynx"))
    rows = [observation(observationID=str(i), mediaID=m, scientificName=n) for i, (m, n) in enumerate(names)]
    source = write(tmp_path / "f", package(media, rows), ".")
    assert read_images(source).ids == ("a.jpg",)
    everything = read_images(source, unlabelled=True)
    assert (everything.ids, everything.labels) == (("a.jpg", "b.jpg", "é.jpg"), ("Felis catus", None, None))
    assert not everything.unused
    assert list(folder_notes(everything)) == []


@pytest.mark.parametrize(
    ("turn", "expected"),
    [(0, (0.5, 0.5, 0.2, 0.2)), (90, (0.4, 0.5, 0.1, 0.4)), (180, (0.3, 0.3, 0.2, 0.2)), (-90, (0.5, 0.1, 0.1, 0.4))],
)
def test_a_turned_box_of_label_studio_lies_in_the_one_that_is_read(tmp_path, turn, expected) -> None:
    value = {"x": 50, "y": 50, "width": 20, "height": 20, "rotation": turn, "rectanglelabels": ["cat"]}
    turned = {"id": "r", "original_width": 20, "original_height": 10, "value": value}
    (box,) = read_images(write(tmp_path / "f", {"x.json": label_studio(turned)}, "x.json")).boxes
    assert box == pytest.approx(expected)


def test_boxes_are_chosen_by_category_and_confidence(tmp_path) -> None:
    source = write(tmp_path / "f", {"x.json": detections(boxed(conf=0.1), boxed("b.jpg", category="2"))}, "x.json")
    assert read_images(source, boxes="person,animal:0.05").ids == ("a.jpg#1", "b.jpg#1")
    assert read_images(source, boxes=":0.05").ids == ("a.jpg#1",)
    for boxes, match in (
        ("wolf", "no category 'wolf', only 'animal', 'person'"),
        ("animal:x", "expected a confidence"),
    ):
        with pytest.raises(HCEPError, match=match):
            read_images(source, boxes=boxes)
    coco_file = write(tmp_path / "g", {"x.json": coco([image()], [A_CAT])}, "x.json")
    with pytest.raises(HCEPError, match=r"--boxes: x.json has COCO annotations"):
        read_images(coco_file, boxes="animal")


def test_a_box_is_cropped_as_a_square_with_context_inside_the_image() -> None:
    assert area_of((0.4, 0.4, 0.1, 0.2), (100, 100)) == (33, 38, 57, 62)
    assert area_of((0.0, 0.0, 0.1, 0.1), (100, 100)) == (0, 0, 12, 12)
    assert area_of((0.0, 0.2, 1.0, 0.1), (100, 50)) == (0, 0, 100, 50)


def test_the_pixels_of_a_box_are_those_of_the_upright_photo(tmp_path) -> None:
    picture = Image.new("RGB", (80, 40), "red")
    picture.paste("blue", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned clockwise to be upright, so that blue is at the top right
    picture.save(tmp_path / "a.png", exif=exif)
    crop = open_image(tmp_path / "a.png", box=(0.6, 0.05, 0.3, 0.15))
    assert crop.size == (14, 14)
    assert crop.getpixel((7, 7)) == (0, 0, 255)


def test_boxes_of_one_photo_are_images_of_their_own_in_a_store(tmp_path) -> None:
    two = {"file": "a.jpg", "detections": [BOX, BOX | {"bbox": [0.5, 0.5, 0.5, 0.5]}, BOX | {"conf": 0.01}]}
    source = write(tmp_path / "f", {"x.json": detections(two, boxed("gone.jpg"))}, "x.json")
    report = encode_images(source, TinyEncoder(), tmp_path / "store")
    assert (report.n_encoded, [one.reason for one in report.skipped]) == (2, ["no such file"])
    assert encode_images(source, TinyEncoder(), tmp_path / "store").n_reused == 2


def test_a_model_is_fitted_to_boxes_labelled_at_any_level(tmp_path, photos, tree) -> None:  # noqa: F811
    names = {"cat": 1, "dog": 2, "car": 3, "bus": 4, "animal": 5}
    files = sorted((photos / "train").rglob("*.png"))
    images = [
        {"id": i, "file_name": str(file.relative_to(photos)), "width": 16, "height": 16} for i, file in enumerate(files)
    ]
    labels = ["animal" if file.name == "0.png" and file.parent.name == "cat" else file.parent.name for file in files]
    annotations = [
        {"image_id": i, "category_id": names[label], "bbox": [1, 1, 14, 14]} for i, label in enumerate(labels)
    ]
    categories = [{"id": key, "name": name} for name, key in names.items()]
    source = photos / "coco.json"
    source.write_text(coco(images, annotations, categories), encoding="utf-8")
    try:
        text, notes = run("fit", source, "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "m")
    finally:
        source.unlink()
    assert "23 images of 4 classes" in text
    assert "1 images are labelled above the classes" in notes


@pytest.mark.slow
def test_two_hundred_thousand_boxes_take_seconds(tmp_path) -> None:
    images = [{"file": "a.jpg", "detections": [BOX] * 200_000}]
    source = write(tmp_path / "f", {"x.json": detections(*images)}, "x.json")
    started = time.thread_time()
    assert len(read_images(source)) == 200_000
    assert time.thread_time() - started < 10
