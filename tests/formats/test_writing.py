"""A folder of a camera trap with MegaDetector's boxes in, files of other tools out, each checked by its own rules."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from PIL import Image

from hcep.errors import HCEPError
from hcep.formats import read_scores
from hcep.formats.annotations import Region
from hcep.formats.answers import AnsweredImage, Concept, Writing, write_answers
from tests.cli.test_own_data import COLOURS, ENCODER, fails, model, own_cache, photos, run, tree  # noqa: F401

FORMATS = ("megadetector", "label-studio", "camtrap-dp", "darwin-core", "xmp")
PATH = {"cat": ["animal", "cat"], "car": ["vehicle", "car"]}
#: The shape of Label Studio's predictions, as its documentation describes it.
TASKS = {
    "type": "array",
    "items": {
        "required": ["data", "predictions"],
        "properties": {
            "data": {"required": ["image"]},
            "predictions": {
                "items": {
                    "required": ["result", "model_version", "score"],
                    "properties": {
                        "score": {"type": "number", "minimum": 0, "maximum": 1},
                        "result": {
                            "items": {
                                "required": ["id", "type", "from_name", "to_name", "value"],
                                "properties": {
                                    "type": {"enum": ["rectangle", "taxonomy"]},
                                    "value": {
                                        "properties": {
                                            **{side: {"maximum": 100} for side in ("x", "y", "width", "height")},
                                            "taxonomy": {"items": {"type": "array", "items": {"type": "string"}}},
                                        }
                                    },
                                },
                            }
                        },
                    },
                }
            },
        },
    },
}
#: The fields of Camtrap DP 1.0's observations that have constraints.
OBSERVATIONS = {
    "observationID": {"type": "string", "constraints": {"required": True, "unique": True}},
    "deploymentID": {"type": "string", "constraints": {"required": True}},
    "eventStart": {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "constraints": {"required": True}},
    "eventEnd": {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "constraints": {"required": True}},
    "observationLevel": {"type": "string", "constraints": {"required": True, "enum": ["media", "event"]}},
    "observationType": {
        "type": "string",
        "constraints": {
            "required": True,
            "enum": ["animal", "human", "vehicle", "blank", "unknown", "unclassified"],
        },
    },
    "count": {"type": "integer", "constraints": {"minimum": 1}},
    **{name: {"type": "number", "constraints": {"minimum": 0, "maximum": 1}} for name in ("bboxX", "bboxY")},
    **{
        name: {"type": "number", "constraints": {"minimum": 1e-15, "maximum": 1}}
        for name in ("bboxWidth", "bboxHeight")
    },
    "classificationMethod": {"type": "string", "constraints": {"enum": ["human", "machine"]}},
    "classificationTimestamp": {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z"},
    "classificationProbability": {"type": "number", "constraints": {"minimum": 0, "maximum": 1}},
}


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Two photos in a folder, the file of their boxes beside it: a cat on the left and a car on the right; nothing."""
    folder = tmp_path / "trap" / "photos" / "cam1"
    folder.mkdir(parents=True)
    picture = np.zeros((40, 120, 3), np.uint8)
    picture[:, :60], picture[:, 60:] = COLOURS["cat"], COLOURS["car"]
    exif = Image.Exif()
    exif[0x0132] = "2024:06:15 12:00:00"
    for name in ("two.jpg", "none.jpg"):
        Image.fromarray(picture).save(folder / name, exif=exif)
    boxes = [
        {"category": "1", "conf": 0.9, "bbox": [0.02, 0.1, 0.25, 0.75]},
        {"category": "1", "conf": 0.1, "bbox": [0.4, 0.4, 0.1, 0.1]},
        {"category": "2", "conf": 0.9, "bbox": [0.7, 0.1, 0.25, 0.75]},
    ]
    images = [{"file": "cam1/two.jpg", "detections": boxes}, {"file": "cam1/none.jpg", "detections": []}]
    images.append({"file": "cam1/broken.jpg", "failure": "Failure image access", "detections": None})
    content = {
        "info": {"format_version": "1.5", "detector": "MDV5A"},
        "detection_categories": {"1": "animal", "2": "vehicle"},
        "images": images,
    }
    (tmp_path / "trap" / "boxes.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path / "trap" / "boxes.json"


def predict(model: Path, data: Path, output: Path, *words: object) -> str:  # noqa: F811
    return run(
        "predict",
        model,
        data,
        "--encoder",
        ENCODER,
        "--boxes",
        "animal,vehicle:0.2",
        "-o",
        output,
        "--sure",
        "0.5",
        *words,
    )[1]


def test_megadetector_gets_the_answer_in_its_box_and_keeps_everything_else(model, trap, tmp_path) -> None:  # noqa: F811
    notes = predict(model, trap, tmp_path / "out.json")
    assert "1 of 3 boxes not used: 1 MegaDetector: Failure image access" in notes
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (trap, tmp_path / "out.json"))
    names, lines = after["classification_categories"], after["classification_category_descriptions"]
    boxes = after["images"][0]["detections"]
    answers = [[names[key] for key, _ in box.pop("classifications", [])] for box in boxes]
    assert answers == [["cat"], [], ["car"]]
    assert after["images"] == before["images"]
    assert after["info"].items() >= before["info"].items()
    assert {names[key]: text.split(";") for key, text in lines.items()} == PATH
    # The rules of MegaDetector's validator for categories.
    assert names.keys() == lines.keys()
    assert all(re.fullmatch(r"\d+", key) for key in names)
    fails("already exists", "predict", model, trap, "--encoder", ENCODER, "-o", tmp_path / "out.json")


def test_what_was_written_for_megadetector_can_be_rolled_up(model, trap, tmp_path) -> None:  # noqa: F811
    predict(model, trap, tmp_path / "out.json")
    scores = read_scores(tmp_path / "out.json")
    assert scores.table.column("image").to_pylist() == ["cam1/two.jpg#1", "cam1/two.jpg#3"]
    assert scores.hierarchy.parents("cat") == ("animal",)


def test_inner_answers_are_categories_of_their_own(model, tmp_path) -> None:  # noqa: F811
    (tmp_path / "between").mkdir()
    Image.new("RGB", (16, 16), (175, 60, 30)).save(tmp_path / "between" / "cat or dog.png")
    run("predict", model, tmp_path / "between", "--encoder", ENCODER, "-o", tmp_path / "out.json", "--sure", "0.95")
    after = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    (first, best) = after["images"][0]["detections"][0]["classifications"]
    assert after["classification_categories"][first[0]] == "animal"
    assert after["classification_category_descriptions"][first[0]] == "animal"
    assert first[1] > best[1]


@pytest.mark.filterwarnings("ignore")
def test_camtrap_dp_accepts_the_observations(model, trap, tmp_path) -> None:  # noqa: F811
    import frictionless

    notes = predict(model, trap, tmp_path / "observations.csv", "--format", "camtrap-dp")
    assert "no time zone" in notes
    with (tmp_path / "observations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    fields = [{"name": name, "type": "any", **OBSERVATIONS.get(name, {})} for name in rows[0]]
    assert OBSERVATIONS.keys() <= rows[0].keys()
    report = frictionless.Resource(
        path="observations.csv", basepath=str(tmp_path), schema=frictionless.Schema.from_descriptor({"fields": fields})
    ).validate()
    assert report.valid, report.flatten(["message"])
    assert [(row["scientificName"], row["observationType"]) for row in rows] == [("cat", "animal"), ("", "vehicle")]
    assert rows[0]["deploymentID"] == "cam1"
    assert rows[0]["eventStart"] == "2024-06-15T12:00:00Z"


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def schema(name: str, columns: list[str]) -> dict:
    """What Camtrap DP 1.0 requires of the columns that packages need, and how its tables refer to each other."""
    required = {"type": "string", "constraints": {"required": True}}
    time = {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "constraints": {"required": True}}
    degrees = {
        side: {"type": "number", "constraints": {"required": True, "minimum": -most, "maximum": most}}
        for side, most in (("latitude", 90), ("longitude", 180))
    }
    known = {
        "deployments": {"deploymentID": required, **degrees, "deploymentStart": time, "deploymentEnd": time},
        "media": {
            **dict.fromkeys(("mediaID", "deploymentID"), required),
            "timestamp": time,
            "filePath": {"type": "string", "constraints": {"required": True, "pattern": r"^(?=^[^./~])((?!\.{2}).)*$"}},
            "filePublic": {"type": "boolean", "constraints": {"required": True}},
            "fileMediatype": {
                "type": "string",
                "constraints": {"required": True, "pattern": "^(image|video|audio)/.*$"},
            },
        },
        "observations": OBSERVATIONS,
    }
    assert known[name].keys() <= set(columns)
    keys = [("deploymentID", "deployments")] * (name != "deployments") + [("mediaID", "media")] * (
        name == "observations"
    )
    return {
        "fields": [{"name": one, "type": "any", **known[name].get(one, {})} for one in columns],
        "primaryKey": f"{name.removesuffix('s') if name != 'media' else name}ID",
        "foreignKeys": [{"fields": [one], "reference": {"resource": of, "fields": [one]}} for one, of in keys],
    }


def problems(folder: Path) -> list:
    import frictionless

    content = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    tables = [one for one in content["resources"] if one["name"] in ("deployments", "media", "observations")]
    assert len(tables) == 3
    for one in tables:
        assert one["schema"].endswith(f"/{one['name']}-table-schema.json")
        one["schema"] = schema(one["name"], list(rows_of(folder / one["path"])[0]))
    package = frictionless.Package.from_descriptor({"resources": tables}, basepath=str(folder))
    return package.validate().flatten(["message"])


@pytest.mark.filterwarnings("ignore")
def test_one_command_writes_for_megadetector_camtrap_dp_and_photo_programs(model, trap) -> None:  # noqa: F811
    photos = trap.parent / "photos"  # noqa: F811
    (photos / "deployments.csv").write_text(
        "deploymentID,latitude,longitude,mine\ncam1,50.5,4.5,kept\n", encoding="utf-8"
    )
    words = [word for name in ("megadetector", "camtrap-dp", "xmp") for word in ("--format", name)]
    notes = predict(model, trap, photos, *words)
    assert "datapackage.json needs contributors, project.title, project.samplingDesign" in notes
    assert "deployments.csv needs" not in notes
    boxes = json.loads((photos / "classified.json").read_text(encoding="utf-8"))["images"][0]["detections"]
    assert ["classifications" in box for box in boxes] == [True, False, True]
    assert keywords(photos / "cam1" / "two.jpg.xmp", "lightroom/1.0/}hierarchicalSubject") == [
        "animal|cat",
        "vehicle|car",
    ]
    assert problems(photos) == []
    (medium,), (place,) = rows_of(photos / "media.csv"), rows_of(photos / "deployments.csv")
    assert medium["filePath"] == "cam1/two.jpg"
    assert (photos / medium["filePath"]).is_file()
    assert (place["latitude"], place["mine"], place["deploymentStart"]) == ("50.5", "kept", "2024-06-15T12:00:00Z")
    content = json.loads((photos / "datapackage.json").read_text(encoding="utf-8"))
    assert content["temporal"] == {"start": "2024-06-15", "end": "2024-06-15"}
    assert content["taxonomic"] == [{"scientificName": "cat"}]
    assert content["spatial"]["coordinates"][0][0] == [4.5, 50.5]
    # What is filled in stays, and nothing else is replaced unless this is wanted.
    content |= {"contributors": [{"title": "Ada"}], "project": {"title": "A trap", "samplingDesign": "targeted"}}
    (photos / "datapackage.json").write_text(json.dumps(content), encoding="utf-8")
    fails("classified.json' already exists", "predict", model, trap, "--encoder", ENCODER, "-o", photos, *words)
    assert "datapackage.json needs project.captureMethod;" in predict(model, trap, photos, *words, "--overwrite")
    after = json.loads((photos / "datapackage.json").read_text(encoding="utf-8"))
    assert (after["contributors"], after["project"]["title"]) == ([{"title": "Ada"}], "A trap")
    assert problems(photos) == []
    # Earlier answers about boxes that are not wanted any more do not stay.
    in_folder = trap.rename(photos / "boxes.json")
    predict(model, in_folder, photos, *words, "--overwrite")
    assert [row["observationType"] for row in rows_of(photos / "observations.csv")] == ["animal", "vehicle"]
    predict(model, in_folder, photos, *words, "--overwrite", "--boxes", "animal")
    assert [row["observationType"] for row in rows_of(photos / "observations.csv")] == ["animal"]


def test_a_package_without_places_says_so_and_invents_none(model, trap, tmp_path) -> None:  # noqa: F811
    notes = predict(model, trap, tmp_path / "package", "--format", "camtrap-dp")
    assert "deployments.csv needs latitude and longitude of 1 deployment and datapackage.json needs" in notes
    assert rows_of(tmp_path / "package" / "deployments.csv")[0]["latitude"] == ""
    assert "spatial" not in json.loads((tmp_path / "package" / "datapackage.json").read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore")
def test_answers_are_added_to_a_package_and_its_own_observations_stay(model, trap, tmp_path) -> None:  # noqa: F811
    first = tmp_path / "first"
    predict(model, trap, first, "--format", "camtrap-dp")
    own = rows_of(first / "observations.csv")[0] | {"observationID": "mine", "classifiedBy": "Ada", "mediaID": "m1"}
    own |= dict.fromkeys(("bboxX", "bboxY", "bboxWidth", "bboxHeight"), "")
    medium = rows_of(first / "media.csv")[0] | {"mediaID": "m1", "filePath": "cam1/two.jpg"}
    source = trap.parent / "photos"
    for name, row in (("observations.csv", own), ("media.csv", medium)):
        with (source / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
    (source / "deployments.csv").write_text("deploymentID,latitude,longitude\ncam1,1,2\n", encoding="utf-8")
    (source / "datapackage.json").write_text('{"title": "Mine", "resources": [{"name": "extra", "data": []}]}')
    run("predict", model, source, "--encoder", ENCODER, "-o", tmp_path / "second", "--format", "camtrap-dp")
    rows = rows_of(tmp_path / "second" / "observations.csv")
    assert [(row["observationID"], row["mediaID"]) for row in rows] == [("mine", "m1"), ("cam1/two.jpg", "m1")]
    assert problems(tmp_path / "second") == []
    content = json.loads((tmp_path / "second" / "datapackage.json").read_text(encoding="utf-8"))
    assert (content["title"], [one["name"] for one in content["resources"]][3:]) == ("Mine", ["extra"])


@pytest.mark.parametrize(
    ("said", "name"), [(("--class", "dog"), "dog"), (("--class", "wolf", "--under", "animal"), "wolf")]
)
def test_what_a_person_said_is_no_answer_of_the_model(model, tmp_path, said, name) -> None:  # noqa: F811
    exif = Image.Exif()
    exif[0x0132] = "2024:06:15 12:00:00"
    (tmp_path / "one").mkdir()
    Image.new("RGB", (16, 16), COLOURS["cat"]).save(tmp_path / "one" / "a.jpg", exif=exif)
    corrections = ("--corrections", tmp_path / "said.jsonl")
    run("correct", model, tmp_path / "one" / "a.jpg", *said, "--who", "Ada", *corrections)
    formats = [word for name in FORMATS for word in ("--format", name)]
    run("predict", model, tmp_path / "one", "--encoder", ENCODER, "-o", tmp_path / "out", *corrections, *formats)
    (row,) = rows_of(tmp_path / "out" / "observations.csv")
    assert (row["scientificName"], row["observationType"]) == (name, "animal")
    assert (row["classificationMethod"], row["classifiedBy"], row["classificationProbability"]) == ("human", "", "")
    assert "corrected by Ada" in row["observationComments"]
    content = json.loads((tmp_path / "out" / "classified.json").read_text(encoding="utf-8"))
    (first, *_) = content["images"][0]["detections"][0]["classifications"]
    assert (content["classification_categories"][first[0]], first[1]) == (name, 1.0)
    assert keywords(tmp_path / "out" / "a.jpg.xmp", "elements/1.1/}subject") == ["animal", name]
    assert f"\t{name}\t" in (tmp_path / "out" / "occurrence.txt").read_text(encoding="utf-8")


def test_camtrap_dp_needs_times(model, photos, tmp_path) -> None:  # noqa: F811
    words = ("predict", model, photos, "--encoder", ENCODER, "-o", tmp_path / "o.csv", "--format", "camtrap-dp")
    fails("the EXIF data of 36 photos lack.*give a Camtrap DP package as DATA", *words)
    assert not (tmp_path / "o.csv").exists()


def test_darwin_core_has_one_record_per_answer(model, trap, tmp_path) -> None:  # noqa: F811
    predict(model, trap, tmp_path / "occurrence.txt", "--format", "darwin-core")
    with (tmp_path / "occurrence.txt").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["scientificName"] for row in rows] == ["cat"]  # and none of the car
    assert {row["basisOfRecord"] for row in rows} == {"MachineObservation"}
    assert rows[0]["eventDate"] == "2024-06-15T12:00:00"
    assert rows[0]["higherClassification"] == "animal"


def test_label_studio_gets_paths_with_scores(model, trap, tmp_path) -> None:  # noqa: F811
    predict(model, trap, tmp_path / "tasks.json", "--format", "label-studio")
    (task,) = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    jsonschema.validate([task], TASKS)
    results = task["predictions"][0]["result"]
    assert [one["value"]["taxonomy"] for one in results if one["type"] == "taxonomy"] == [
        [path] for path in PATH.values()
    ]
    assert results[0]["value"] == {"x": 2.0, "y": 10.0, "width": 25.0, "height": 75.0, "rotation": 0}
    # The labelling configuration has every control and every path that the predictions name.
    controls = {one.get("name"): one for one in ElementTree.parse(tmp_path / "tasks.xml").getroot()}
    assert {one["from_name"] for one in results} | {"image"} == controls.keys()
    assert controls["taxonomy"].get("perRegion") == "true"
    paths = [[top.get("value"), one.get("value")] for top in controls["taxonomy"] for one in top]
    assert sorted(paths) == [["animal", "cat"], ["animal", "dog"], ["vehicle", "bus"], ["vehicle", "car"]]
    (tmp_path / "tasks.json").unlink()
    fails("tasks.xml' already", "predict", model, trap, "-o", tmp_path / "tasks.json", "--format", "label-studio")


def keywords(sidecar: Path, name: str) -> list[str | None]:
    root = ElementTree.parse(sidecar).getroot()
    item = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
    return [one.text for parent in root.iter() if parent.tag.endswith(name) for one in parent.iter(item)]


def test_sidecars_are_merged_and_photos_never_touched(model, trap, tmp_path) -> None:  # noqa: F811
    photo = trap.parent / "photos" / "cam1" / "two.jpg"
    sidecar, content, time = photo.with_name("two.jpg.xmp"), photo.read_bytes(), photo.stat().st_mtime_ns
    sidecar.write_text(
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<!-- mine --><rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Seq><rdf:li>holiday</rdf:li><rdf:li>cat</rdf:li>'
        "</rdf:Seq></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>",
        encoding="utf-8",
    )
    for _ in range(2):  # a second run changes nothing
        predict(model, trap, trap.parent / "photos", "--format", "xmp")
        assert keywords(sidecar, "lightroom/1.0/}hierarchicalSubject") == ["animal|cat", "vehicle|car"]
        assert keywords(sidecar, "elements/1.1/}subject") == ["holiday", "cat", "animal", "vehicle", "car"]
    text = sidecar.read_text(encoding="utf-8")
    assert 'xmp:Rating="4"' in text
    assert "<!-- mine -->" in text
    assert (photo.read_bytes(), photo.stat().st_mtime_ns) == (content, time)
    assert not (photo.parent / "none.jpg.xmp").exists()


def test_an_answer_that_changes_replaces_its_own_keywords_only(tmp_path) -> None:
    sidecar = tmp_path / "a.jpg.xmp"
    for names in (("animal", "cat"), ("animal", "dog"), ()):
        answer = Concept(names, None, {}, 0.9) if names else None
        one = AnsweredImage(Region("a.jpg"), None, answer, Concept(("x",), None, {}, 0.5))
        write_answers([one], tmp_path, "xmp", Writing(tmp_path, "m", print))
        assert keywords(sidecar, "elements/1.1/}subject") == list(names)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", "has an XML DOCTYPE, which is not read"),
        ("<x>", "is not XML"),
        ("<x/>", "is not an XMP sidecar"),
    ],
)
def test_a_sidecar_that_cannot_be_read_is_not_replaced(tmp_path, content, match) -> None:
    (tmp_path / "a.jpg.xmp").write_text(content, encoding="utf-8")
    answer = Concept(("cat",), None, {}, 0.9)
    two = [AnsweredImage(Region(name), None, answer, answer) for name in ("b.jpg", "a.jpg")]
    with pytest.raises(HCEPError, match=match):
        write_answers(two, tmp_path, "xmp", Writing(tmp_path, "m", print))
    assert (tmp_path / "a.jpg.xmp").read_text(encoding="utf-8") == content
    assert not (tmp_path / "b.jpg.xmp").exists()
    with pytest.raises(HCEPError, match="would be outside"):
        write_answers([two[0]._replace(region=Region("../b.jpg"))], tmp_path, "xmp", Writing(tmp_path, "m", print))


def test_species_of_a_ranked_tree_have_scientific_names_and_descriptions(tmp_path) -> None:
    lineage = {"class": "Mammalia", "family": "Felidae", "genus": "Panthera", "species": "leo"}
    answer = Concept(tuple(lineage.values()), "species", lineage, 0.9)
    one = AnsweredImage(Region("a.jpg"), None, answer, answer)
    write_answers([one], tmp_path / "o.csv", "darwin-core", Writing(tmp_path, "m", print))
    write_answers([one], tmp_path / "o.json", "megadetector", Writing(tmp_path, "m", print))
    assert "Panthera leo,species" in (tmp_path / "o.csv").read_text(encoding="utf-8")
    content = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert content["classification_category_descriptions"] == {"0": ";Mammalia;;Felidae;Panthera;leo;leo"}
    assert content["images"][0]["detections"][0]["bbox"] == [0, 0, 1, 1]


def test_images_without_an_answer_are_neither_lost_nor_given_one(tmp_path) -> None:
    best, notes = Concept(("cat",), None, {}, 0.4), list[str]()
    one = AnsweredImage(Region("a.jpg"), None, None, best)
    writing = Writing(tmp_path, "m", notes.append)
    for name, format in (("o.csv", "darwin-core"), ("o.json", "megadetector"), ("t.json", "label-studio")):
        write_answers([one], tmp_path / name, format, writing)
    assert notes == ["o.csv has no record of 1 image without a sure answer"]
    content = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert content["images"][0]["detections"][0]["classifications"] == []
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))[0]["predictions"] == []


def test_scores_for_megadetector_descend_and_the_answer_comes_first(tmp_path) -> None:
    best = Concept(("animal", "cat"), None, {}, 0.4)
    likelier, less_likely = (Concept(("animal",), None, {}, p) for p in (0.9, 0.3))
    answers = [AnsweredImage(Region(f"{i}.jpg"), None, one, best) for i, one in enumerate((likelier, less_likely))]
    write_answers(answers, tmp_path / "o.json", "megadetector", Writing(tmp_path, "m", print))
    images = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["images"]
    scores = [image["detections"][0]["classifications"] for image in images]
    assert scores == [[["0", 0.9], ["1", 0.4]], [["0", 0.3]]]


def test_darwin_core_has_no_occurrence_of_a_blank_photo_or_a_vehicle(tmp_path) -> None:
    names, notes = (("blank",), ("animal", "cat"), ("vehicle", "car")), list[str]()
    concepts = [Concept(path, None, {}, 0.9) for path in names]
    answers = [AnsweredImage(Region(f"{one.name}.jpg"), None, one, one) for one in concepts]
    write_answers(answers, tmp_path / "o.csv", "darwin-core", Writing(tmp_path, "m", notes.append))
    assert "cat.jpg" in (tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()[1]
    assert len((tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()) == 2
    assert notes == ["o.csv has no record of 2 images without an organism"]


def test_two_photos_with_one_sidecar_both_get_their_keywords(tmp_path) -> None:
    write_answers([], tmp_path, "xmp", writing := Writing(tmp_path, "m", print))
    concepts = [Concept((name,), None, {}, 0.9) for name in ("cat", "dog")]
    write_answers([AnsweredImage(Region("a.jpg"), None, concepts[0], concepts[0])], tmp_path, "xmp", writing)
    (tmp_path / "a.jpg.xmp").rename(tmp_path / "a.xmp")
    both = [AnsweredImage(Region(f), None, c, c) for f, c in zip(("a.jpg", "a.dng"), concepts, strict=True)]
    write_answers(both, tmp_path, "xmp", writing)
    assert keywords(tmp_path / "a.xmp", "elements/1.1/}subject") == ["cat", "dog"]


def test_megadetector_results_without_info_and_with_named_categories_get_answers(tmp_path) -> None:
    results = {
        "images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 0.9, "bbox": [0, 0, 1, 1]}]}],
        "detection_categories": {"1": "animal"},
        "classification_categories": {"deer": "deer"},
    }
    (tmp_path / "in.json").write_text(json.dumps(results), encoding="utf-8")
    cat = Concept(("cat",), None, {}, 0.9)
    one = AnsweredImage(Region("a.jpg", 1), None, cat, cat)
    write_answers([one], tmp_path / "out.json", "megadetector", Writing(tmp_path / "in.json", "m", print))
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["classification_categories"] == {"deer": "deer", "0": "cat"}
    assert content["images"][0]["detections"][0]["classifications"] == [["0", 0.9]]


def test_the_name_must_go_with_the_format(model, photos, tmp_path) -> None:  # noqa: F811
    words = ("predict", model, photos, "--encoder", ENCODER)
    fails("--format: expected one of megadetector", *words, "-o", tmp_path / "a.csv", "--format", "excel")
    fails(
        "camtrap-dp needs a name ending in .csv, or a folder",
        *words,
        "-o",
        tmp_path / "a.json",
        "--format",
        "camtrap-dp",
    )
    fails("xmp needs the name of a folder", *words, "-o", tmp_path / "a.xmp", "--format", "xmp")
    both = ("--format", "megadetector", "--format", "label-studio")
    fails("several formats need the name of a folder", *words, "-o", tmp_path / "a.json", *both)
    fails("expected a name ending in .parquet, .csv or .json, or a folder and --format", *words, "-o", tmp_path / "out")


def test_explain_answers_for_each_box_of_an_animal(model, trap) -> None:  # noqa: F811
    text, notes = run("explain", model, trap, "--encoder", ENCODER, "--json")
    (one,) = json.loads(text)
    assert (one["image"], one["name"]) == ("cam1/two.jpg#1", "cat")
    sentence = "1 of 2 files not used: 1 MegaDetector: Failure image access"
    assert sentence in notes
    assert sentence in run("encode", trap, "--encoder", ENCODER, "-o", trap.parent / "store")[1]
