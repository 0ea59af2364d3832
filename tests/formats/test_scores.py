"""Scores of SpeciesNet, MegaDetector and pybioclip: the tree of their labels, and what must not be read wrongly."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hcep.errors import HCEPError
from hcep.explain.score_tables import roll_up_table
from hcep.formats import format_of, read_scores
from hcep.formats.megadetector import capture_times
from hcep.formats.scores import Lineage, tree_of
from hcep.formats.speciesnet import lineage

BLANK = "f1856211-cfb7-4a5b-9158-c0f72fd09ee6;;;;;;blank"
ANIMAL = "1f689929-883d-4dae-958c-3d57ab5b6c16;;;;;;animal"
UNKNOWN = f"f2efdae9-efb8-48fb-8a91-eccf79ab4ffb;{';'.join(['no cv result'] * 6)}"
LION = "ddf59264-185a-4d35-b647-2785792bdf54;mammalia;carnivora;felidae;panthera;leo;lion"
TIGER = "11111111-185a-4d35-b647-2785792bdf54;mammalia;carnivora;felidae;panthera;tigris;tiger"
PANTHERA = "fbb23d07-6677-43db-b650-f99ac452c50f;mammalia;carnivora;felidae;panthera;;panthera species"
BIOCLIP = """\
file_name,kingdom,phylum,class,order,family,genus,species_epithet,species,common_name,score
bear.jpg,Animalia,Chordata,Mammalia,Carnivora,Ursidae,Ursus,arctos,Ursus arctos,Kodiak bear,0.55
bear.jpg,Animalia,Chordata,Mammalia,Carnivora,Ursidae,Ursus,arctos syriacus,Ursus arctos syriacus,,0.40
cat.jpg,Animalia,Chordata,Mammalia,Carnivora,Felidae,Felis,silvestris,Felis silvestris,European Wildcat,0.95
cat.jpg,Animalia,Chordata,Mammalia,Carnivora,Felidae,Felis,catus,Felis catus,Domestic Cat,0.04
"""


@pytest.fixture
def write(tmp_path: Path):
    def one(content: object, name: str = "scores.json") -> Path:
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return one


def answers(file: Path, **options) -> dict[str, tuple[str | None, str | None]]:
    output = file.with_name("answers.json")
    roll_up_table(file, output, **options)
    return {row["id"]: (row["answer"], row["rank"]) for row in json.loads(output.read_text(encoding="utf-8"))}


def speciesnet(**images: dict[str, float]) -> dict:
    predictions = [
        {"filepath": name, "classifications": {"classes": list(scores), "scores": list(scores.values())}}
        for name, scores in images.items()
    ]
    return {"predictions": predictions}


def megadetector(*boxes: list, descriptions: dict[str, str] | None = None, **changes) -> dict:
    detections = [{"category": "1", "conf": 0.9, "bbox": [0, 0, 1, 1], "classifications": box} for box in boxes]
    content = {"info": {"format_version": "1.5"}, "detection_categories": {"1": "animal"}}
    content |= {"classification_categories": {"0": "lion", "1": "tiger"}}
    content |= {"classification_category_descriptions": descriptions} if descriptions else {}
    return content | {"images": [{"file": "cam/a.jpg", "detections": detections}]} | changes


def test_speciesnet_answers_at_the_level_that_is_sure(write) -> None:
    file = write(speciesnet(a={LION: 0.5, PANTHERA: 0.45}, b={LION: 0.5, TIGER: 0.45}, c={BLANK: 0.95, ANIMAL: 0.02}))
    assert answers(file) == {"a": ("panthera", "genus"), "b": ("panthera", "genus"), "c": ("blank", None)}
    assert answers(file, sure=0.4)["a"] == ("panthera leo", "species")
    tree = read_scores(file).hierarchy
    assert tree.ancestors("panthera leo")[1:] == ("animal", "mammalia", "carnivora", "felidae", "panthera")
    assert (tree.name("panthera leo"), tree.name("panthera")) == ("lion", "panthera species")


def test_ranks_have_scientific_names_and_the_answer_its_common_name(write) -> None:
    file = write(speciesnet(a={LION: 0.97}, b={LION: 0.5, TIGER: 0.45}, c={}))
    output = file.with_name("answers.json")
    roll_up_table(file, output)
    rows = {row["id"]: row for row in json.loads(output.read_text(encoding="utf-8"))}
    assert (rows["a"]["answer_name"], rows["a"]["rank_species"]) == ("lion", "panthera leo")
    assert (rows["b"]["rank_genus"], rows["b"]["rank_species"]) == ("panthera", None)


def test_speciesnet_5_is_answered_box_by_box_and_loses_no_photo(write) -> None:
    def box(*scores: float, category: str = "1", source: str = "classifier") -> dict:
        raw = {"classes": [LION, TIGER][: len(scores)], "scores": list(scores)}
        processed = {"class": LION, "score": 0.9, "source": source}
        plain = {"category": category, "label": "animal", "conf": 0.9, "bbox": [0, 0, 1, 1]}
        return plain | ({"raw_classifications": raw, "processed_classification": processed} if scores else {})

    boxes = {
        "a": [box(0.95), box(), box(0.5, 0.45, source="classifier+geofence+rollup_to_genus")],
        "b": [box(0.97, category="0"), box()],
        "c": [box()],
        "d": [],
    }
    predictions = [{"filepath": name, "detections": own, "model_version": "4.0.3a"} for name, own in boxes.items()]
    predictions.append({"filepath": "e", "failures": ["DETECTOR"], "model_version": "4.0.3a"})
    file = write({"info": {"format_version": "20261015"}, "predictions": predictions})
    notes: list[str] = []
    expected = {"a#1": ("panthera leo", "species"), "a#3": ("panthera", "genus"), "b": ("panthera leo", "species")}
    assert answers(file, on_note=notes.append) == expected
    assert "geofence changed 1 of 6 predictions" in notes[0]
    assert notes[1] == "scores.json: 3 of 6 images have no scores and get no answer"
    assert list(answers(file, group="file")) == ["a", "b"]


def test_images_without_a_result_and_geofenced_ones_are_reported(write) -> None:
    content = speciesnet(a={LION: 1.0}, b={UNKNOWN: 1.0})
    content["predictions"][0]["prediction_source"] = "classifier+geofence+rollup_to_family"
    content["predictions"].append({"filepath": "c", "failures": ["CLASSIFIER"]})
    notes: list[str] = []
    assert answers(write(content), on_note=notes.append) == {"a": ("panthera leo", "species")}
    assert "geofence changed 1 of 3 predictions" in notes[0]
    assert notes[1] == "scores.json: 2 of 3 images have no scores and get no answer"


def test_the_two_kinds_of_labels() -> None:
    assert lineage(UNKNOWN) == Lineage(())
    assert lineage(BLANK) == Lineage((("", "blank"),))
    assert lineage(PANTHERA).steps[-1] == ("genus", "panthera")
    assert lineage("just a name") == Lineage((("", "just a name"),))


def test_equal_names_below_different_concepts_are_different_concepts() -> None:
    lines = {one: Lineage((("kingdom", one), ("genus", "Prunella"))) for one in ("Animalia", "Plantae")}
    ids, tree = tree_of(lines)
    assert ids == {"Animalia": "Prunella (Animalia)", "Plantae": "Prunella (Plantae)"}
    assert tree.parents("Prunella (Plantae)") == ("Plantae",)
    assert tree.rank_names == ("kingdom", "genus")


def test_megadetector_boxes_are_answered_one_by_one_and_by_photo(write) -> None:
    lines = {"0": LION, "1": "animalia;mammalia;panthera;tigris"}
    file = write(megadetector([["0", 0.9]], [["1", 0.95]], descriptions=lines))
    assert answers(file) == {"cam/a.jpg#1": ("panthera leo", "species"), "cam/a.jpg#2": ("tigris", None)}
    assert list(answers(write(megadetector([["0", 0.9]], descriptions=lines)), group="file")) == ["cam/a.jpg"]


def test_megadetector_without_descriptions_needs_a_hierarchy(write) -> None:
    file = write(megadetector([["0", 0.5], ["1", 0.45]]))
    tree = file.with_name("tree.txt")
    tree.write_text("animal\n  cat\n    lion\n    tiger\n  dog\n", encoding="utf-8")
    assert answers(file, hierarchy=tree) == {"cam/a.jpg#1": ("cat", None)}
    with pytest.raises(HCEPError, match="--hierarchy"):
        answers(write(megadetector([["0", 0.5]], classification_categories={"0": "unheard of"})))


def test_pybioclip_answers_with_a_genus_where_the_species_is_unclear(write) -> None:
    file = write(BIOCLIP, "predictions.csv")
    assert answers(file) == {"bear.jpg": ("Ursus", "genus"), "cat.jpg": ("Felis silvestris", "species")}
    assert read_scores(file).hierarchy.name("Felis catus") == "Domestic Cat"
    genera = write("file_name,kingdom,genus,score\nbear.jpg,Animalia,Ursus,0.99\n", "genera.csv")
    assert answers(genera) == {"bear.jpg": ("Ursus", "genus")}


def test_times_of_capture_are_read_where_megadetector_records_them(write) -> None:
    photos = [{"file": "a.jpg", "datetime": "2024:06:15 12:00:00"}, {"file": "b.jpg", "datetime": "in June"}]
    results = {"info": {"format_version": "1.5"}, "detection_categories": {"1": "animal"}, "images": photos}
    assert capture_times(write(results, "detections.json")) == {"a.jpg": ("2024-06-15T12:00:00", "")}


def test_rows_of_pybioclip_may_be_in_any_order(write) -> None:
    header, *rows = BIOCLIP.splitlines()
    mixed = "\n".join([header, *sorted(rows, key=lambda row: row.rpartition(",")[2])]) + "\n"
    assert answers(write(mixed, "mixed.csv")) == answers(write(BIOCLIP, "predictions.csv"))


def test_pybioclip_saved_again_by_a_spreadsheet_is_the_same(write) -> None:
    expected = answers(write(BIOCLIP, "predictions.csv"))
    assert answers(write(BIOCLIP.replace(",", ";"), "semicolons.csv")) == expected
    assert answers(write("\ufeff" + BIOCLIP, "mark.csv")) == expected


def test_raw_classifications_of_speciesnet_say_more_than_its_choice(write) -> None:
    content = megadetector([["0", 0.9]], descriptions={"0": LION, "1": TIGER})
    content["images"][0]["detections"][0]["raw_classifications"] = [["0", 0.5], ["1", 0.45]]
    notes: list[str] = []
    assert answers(write(content), on_note=notes.append) == {"cam/a.jpg#1": ("panthera", "genus")}
    assert "the scores are the raw_classifications" in notes[0]


def test_only_categories_in_use_need_a_description(write) -> None:
    file = write(megadetector([["0", 0.95]], descriptions={"0": LION}))
    assert answers(file) == {"cam/a.jpg#1": ("panthera leo", "species")}


def test_a_list_of_custom_classes_of_pybioclip_is_a_plain_table(write) -> None:
    file = write("file_name,classification,score\na.jpg,cat,0.5\na.jpg,dog,0.45\n", "own.csv")
    tree = write("animal\n  pet\n    cat\n    dog\n  fish\n", "tree.txt")
    assert format_of(file) is None
    assert answers(file, hierarchy=tree) == {"a.jpg": ("pet", None)}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"predictions": [{"file": "a"}]}, "missing required field `filepath`.*predictions"),
        ({"predictions": []}, "has no scores of classes for any of its 0 images"),
        (speciesnet(a={LION: -0.5}), "is negative"),
        (speciesnet(a={LION: 0.9, TIGER: 0.9}), "probabilities add up to 1.8"),
        ({"predictions": 2 * speciesnet(a={LION: 0.9})["predictions"]}, "image 'a' occurs twice"),
        ({"predictions": [{"filepath": "a", "classifications": {"classes": [LION], "scores": []}}]}, "1 classes and 0"),
        (megadetector([["7", 0.9]]), "category '7' is not in classification_categories"),
        (megadetector([["0", "much"]]), "Expected `float`, got `str`"),
        (megadetector([["0", 0.9]], info={"format_version": "2.0"}), "of version 2.0; versions 1.0 to 1.6"),
        (megadetector([]), "no box has classifications; classify its boxes with `hcep predict` first"),
        (megadetector([["0", 0.9]], info={"format_version": "1.9"}), "of version 1.9; versions 1.0 to 1.6"),
        (BIOCLIP + BIOCLIP.splitlines()[1] + "\n", "has two scores for"),
        ('{"predictions": [', "expected a table of scores.*or a file of SpeciesNet"),
        (BIOCLIP.replace("0.55", "high"), "score of 'bear.jpg' must be a number, got 'high'"),
    ],
)
def test_a_file_that_could_be_misread_is_refused_with_one_sentence(write, content, match) -> None:
    file = write(content, "predictions.csv" if str(content).startswith("file_name") else "scores.json")
    with pytest.raises(HCEPError, match=match) as caught:
        answers(file)
    assert "\n" not in str(caught.value)
    assert not file.with_name("answers.json").exists()


@pytest.mark.slow
def test_two_hundred_thousand_rows_take_seconds(write) -> None:
    file = write(speciesnet(**{f"{i}.jpg": {LION: 0.5, TIGER: 0.45} for i in range(100_000)}))
    started = time.thread_time()
    assert read_scores(file).table.num_rows == 200_000
    assert time.thread_time() - started < 10
