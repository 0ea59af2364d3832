"""Tables of anyone's scores: what must not be read wrongly, both forms of a table, and the promise."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hcep import Hierarchy, roll_up
from hcep.classify import calibrate_levels
from hcep.classify.groups import combine_photos
from hcep.errors import HCEPError
from hcep.explain import score_tables
from hcep.explain.score_tables import roll_up_table

EDGES = [("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "vehicle"), ("vehicle", "car"), ("vehicle", "bus")]
TREE = Hierarchy.from_edges(EDGES).with_ranks({"pet": "family", "vehicle": "family"})
WIDE = "image,cat,dog,car,bus\na.jpg,0.5,0.45,0.05,0\nb.jpg,0.02,0.02,0.96,0\nc.jpg,0.4,0.1,0.5,0\n"
LONG = "image,class,score\na.jpg,cat,0.5\na.jpg,dog,0.45\nb.jpg,car,0.96\nc.jpg,car,0.5\nc.jpg,cat,0.4\n"
ANSWERS = ["pet", "car", None]


@pytest.fixture
def write(tmp_path: Path):
    def one(text: str, name: str = "scores.csv") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return one


def answers(file: Path, **options) -> list[dict]:
    output = file.with_name("answers.json")
    roll_up_table(file, output, TREE, **options)
    return json.loads(output.read_text(encoding="utf-8"))


def refused(match: str, file: Path, **options) -> None:
    output = file.with_name("refused.csv")
    with pytest.raises(HCEPError, match=match):
        roll_up_table(file, output, TREE, **options)
    assert not output.exists()


def test_a_table_that_can_be_misread_is_refused_and_nothing_is_written(write) -> None:
    refused("expected a number, got 'much' in column 'dog'", write(WIDE.replace("0.45", "much")))
    refused(r"image 'a.jpg': the score of 'dog' is missing", write(WIDE.replace("0.45", "")))
    refused(r"image 'a.jpg': the score of 'dog' is missing or not a finite", write(WIDE.replace("0.45", "inf")))
    refused(r"image 'a.jpg': the score of 'dog' is negative; for logits", write(WIDE.replace("0.45", "-1")))
    refused(r"image 'a.jpg': probabilities add up to 1.55", write(WIDE.replace("0.45", "1.0")))
    refused(r"'dgo' is not a concept.*Near matches: 'dog'", write(WIDE.replace("dog", "dgo")))
    refused("column 'cat' occurs twice", write(WIDE.replace("dog", "cat")))
    refused("cannot read.*Expected 5 columns", write(WIDE + "d.jpg,1\n"))
    refused("add up to 100; divide percentages by 100", write("image,cat,dog\na.jpg,60,40\n"))
    refused("column 'image' has 'a.jpg' twice; give every row an id of its own", write(WIDE + "a.jpg,1,0,0,0\n"))
    refused("column 'image' has an empty cell", write(WIDE + ",1,0,0,0\n"))
    refused("the first column, 'cat', is a class; add a column of ids", write("cat,dog,car\n0.5,0.4,0.1\n"))
    refused("scores.csv is empty", write(""))
    refused("scores.csv is empty", write("\n\n"))
    refused("has no rows", write("image,cat,dog\n"))
    refused("has no header", write("0.5,0.5\n0.1,0.9\n"))
    refused("expected a column of ids", write("image,cat\na,1\n"))
    refused("there is no file", Path("nowhere.csv"))
    refused("expected a table of scores", write("x", "scores.txt"))


def test_rows_per_image_and_class_that_can_be_misread_are_refused(write) -> None:
    refused("rows of image 'a.jpg' are not consecutive", write(LONG + "a.jpg,car,0.01\n"))
    refused("image 'c.jpg': class 'cat' occurs twice", write(LONG + "c.jpg,cat,0.01\n"))
    refused("image 'c.jpg': column 'class' is empty", write(LONG + "c.jpg,,0.01\n"))
    refused("'lorry' is not a concept", write(LONG + "d.jpg,lorry,0.01\n"))
    refused("image 'd.jpg': the score of 'cat' is negative", write(LONG + "d.jpg,cat,-0.01\n"))
    refused("--temperature needs a score for every class", write(LONG), temperature=1.0)


def test_probabilities_are_not_taken_for_logits(write) -> None:
    refused("rows add up to 1, so they are probabilities", write(WIDE), temperature=2.0)


def test_text_in_a_parquet_file_is_not_a_number(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "cat": ["0.5"], "dog": ["0.5"]}), tmp_path / "scores.parquet")
    refused("column 'cat' must hold numbers", tmp_path / "scores.parquet")


@pytest.mark.parametrize("text", [WIDE, LONG, WIDE.replace(",", ";"), "\ufeff" + WIDE])
def test_both_forms_give_the_most_specific_concept_that_is_sure(write, text: str) -> None:
    rows = answers(write(text))
    assert [row["answer"] for row in rows] == ANSWERS
    assert [row["class"] for row in rows] == ["cat", "car", "car"]
    assert [row["doubt"] for row in rows] == ["which one is unclear", "", "nothing is sure enough"]
    assert [row["rank"] for row in rows] == ["family", None, None]
    assert rows[0]["answer_probability"] == pytest.approx(0.95)
    assert rows[2]["answer_probability"] is None


def test_the_answers_are_those_of_roll_up_in_every_kind_of_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(score_tables, "IN_MEMORY", 40)  # ten images at a time
    rng = np.random.default_rng(0)
    logits, classes = rng.normal(size=(95, 4)) * 3, ["dog", "bus", "cat", "car"]
    own = [classes[c] for c in rng.integers(0, 4, 95)]
    ids = [f"{i:03}" for i in range(95)]
    table = pa.table({"id": ids, "truth": own, **{name: logits[:, c] for c, name in enumerate(classes)}})
    pq.write_table(table, tmp_path / "logits.parquet")
    held_out = calibrate_levels(logits, own, TREE, classes=classes, temperature=1.5)
    expected = roll_up(logits, TREE, classes=classes, temperature=1.5, sure=0.8, calibration=held_out)
    for kind in ("csv", "json", "parquet"):
        output, options = tmp_path / f"answers.{kind}", {"temperature": 1.5, "sure": 0.8, "labels": "truth"}
        result = roll_up_table(tmp_path / "logits.parquet", output, TREE, **options)
        assert result.n_images == 95
        assert result.promise is not None
        assert "95 held-out" in result.promise
    assert [row["answer"] for row in json.loads((tmp_path / "answers.json").read_text())] == expected.answer.tolist()
    assert pq.read_table(tmp_path / "answers.parquet")["answer"].to_pylist() == expected.answer.tolist()
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["answer"] or None for row in rows] == expected.answer.tolist()
    assert [row["id"] for row in rows] == ids


def test_columns_may_be_names_and_concepts_above_the_classes(write) -> None:
    tree = Hierarchy.from_edges(EDGES, names={"cat": "domestic cat"})
    file = write("image,class,score\na,pet,0.6\na,domestic cat,0.35\n")
    roll_up_table(file, file.with_name("o.json"), tree)
    (row,) = json.loads(file.with_name("o.json").read_text())
    assert (row["answer"], row["class"]) == ("pet", "pet")
    assert row["answer_probability"] == pytest.approx(0.95)


def test_the_mass_that_a_short_list_leaves_out_belongs_to_no_concept(write) -> None:
    (row,) = answers(write("image,class,score\na,cat,0.5\na,dog,0.3\n"))
    assert row["answer"] is None
    (row,) = answers(write("image,class,score\na,cat,0\n"))
    assert (row["answer"], row["class"]) == (None, None)


def test_labels_in_a_file_calibrate_and_those_of_other_images_are_named(write) -> None:
    rng = np.random.default_rng(1)
    scores = rng.dirichlet([0.5] * 4, 300).round(3) * 0.99
    lines = [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(scores)]
    file = write("image,cat,dog,car,bus\n" + "\n".join(lines) + "\n")
    own = [("cat", "dog", "car", "bus")[c] for c in rng.integers(0, 4, 300)]
    labels = write("image,label\n" + "".join(f"{i},{own[i]}\n" for i in range(250)) + "x,cat\ny,\n", "few.csv")
    notes: list[str] = []
    result = roll_up_table(file, file.with_name("o.csv"), TREE, labels=labels, on_note=notes.append)
    assert notes == ["1 of 251 labelled images are not in scores.csv: 'x'"]
    assert result.promise is not None
    assert "At least 90 %" in result.promise
    assert "250" in result.promise
    # Labels that have nothing to do with the scores leave hardly anything to be sure of.
    assert result.n_classes < 60


def test_few_labels_promise_nothing_and_say_so(write) -> None:
    file, notes = write(WIDE), []
    few = write("image,label\na.jpg,cat\n", "few.csv")
    result = roll_up_table(file, file.with_name("o.csv"), TREE, labels=few, on_note=notes.append)
    assert result.promise is None
    assert notes == ["1 labelled images are too few to promise 0.9"]


def test_labels_that_cannot_be_used_are_refused(write) -> None:
    file = write(WIDE)
    refused("none of the 1 labelled images, such as 'z'", file, labels=write("image,label\nz,cat\n", "few.csv"))
    refused("must have the columns image and label", file, labels=write("a,b\nz,cat\n", "few.csv"))
    both = write("image,label\na.jpg,cat\na.jpg,dog\n", "few.csv")
    refused("image 'a.jpg' has the labels 'cat' and 'dog'", file, labels=both)
    refused("labels must be among the classes; 'pet'", file, labels=write("image,label\na.jpg,pet\n", "few.csv"))
    refused("has no column 'truth'", file, labels="truth")
    refused("--labels: 'cta' is not a concept.*'cat'", file, labels=write("image,label\na.jpg,cta\n", "few.csv"))
    refused("no image has a label", file, labels=write("image,label\na.jpg,\n", "few.csv"))
    few = write("", "few.csv")
    few.write_bytes(b"image,label\n\xe9.jpg,cat\n")
    refused("--labels: .*few.csv.* is not text in UTF-8", file, labels=few)


def test_memory_does_not_grow_with_the_number_of_images(write, monkeypatch) -> None:
    monkeypatch.setattr(score_tables, "IN_MEMORY", 1000)

    def peak(n: int) -> int:
        file = write("image,class,score\n" + "".join(f"{i},cat,0.5\n{i},dog,0.4\n" for i in range(n)))
        tracemalloc.start()
        roll_up_table(file, file.with_name("o.csv"), TREE)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(10)
    # Only a hash per image stays in memory.
    assert peak(8000) - peak(2000) < 6000 * 150


GROUPS = "image,burst,cat,dog,car,bus\n1,a,0.9,0.1,0,0\n2,a,0.3,0.6,0.1,0\n3,b,0,0,0.97,0.03\n"


def test_a_group_has_one_answer_whatever_the_form_of_the_table(write, monkeypatch) -> None:
    monkeypatch.setattr(score_tables, "IN_MEMORY", 4)  # one photo at a time
    rows = answers(write(GROUPS), group="burst")
    assert [row["id"] for row in rows] == ["a", "b"]
    _, combined = combine_photos([[0.9, 0.1, 0.0, 0.0], [0.3, 0.6, 0.1, 0.0]], ["a", "a"])
    assert rows[0]["class_probability"] == pytest.approx(combined[0, 0])
    assert [row["answer"] for row in rows] == ["pet", "car"]
    long = "image,class,score,burst\n1,cat,0.9,a\n1,dog,0.1,a\n2,cat,0.3,a\n2,dog,0.6,a\n2,car,0.1,a\n3,car,1,b\n"
    assert [row["answer"] for row in answers(write(long), group="burst")] == ["pet", "car"]


def test_groups_are_folders_or_come_from_another_table(write, tmp_path) -> None:
    photos = "image,cat,dog,car,bus\na/1.jpg,0.9,0.1,0,0\na/2.jpg,0.3,0.6,0.1,0\nb/1.jpg,0,0,0.97,0.03\n"
    (tmp_path / "bursts.csv").write_text("id,burst\na/1.jpg,x\na/2.jpg,x\nb/1.jpg,y\n", encoding="utf-8")
    assert [row["id"] for row in answers(write(photos), group="folder")] == ["a", "b"]
    rows = answers(write(photos), group=str(tmp_path / "bursts.csv"))
    assert [(row["id"], row["answer"]) for row in rows] == [("x", "pet"), ("y", "car")]
    long = "image,class,score\na/1.jpg,cat,0.9\na/1.jpg,dog,0.1\na/2.jpg,dog,0.6\na/2.jpg,cat,0.4\nb/1.jpg,car,0.97\n"
    assert [(row["id"], row["answer"]) for row in answers(write(long), group="folder")] == [("a", "pet"), ("b", "car")]
    (tmp_path / "bursts.csv").write_text("id,burst\na/1.jpg,x\n", encoding="utf-8")
    refused("has no group for image '2.jpg'", write(photos), group=str(tmp_path / "bursts.csv"))


def test_the_column_of_ids_can_also_be_that_of_the_groups(write) -> None:
    rows = answers(write("image,cat,dog,car,bus\na,0.9,0.1,0,0\na,0.3,0.6,0.1,0\nb,0,0,0.97,0.03\n"), group="image")
    assert [row["id"] for row in rows] == ["a", "b"]
    assert [row["answer"] for row in rows] == ["pet", "car"]
    assert [row["answer"] for row in answers(write(LONG), group="image")] == ANSWERS


def test_rows_that_lack_probability_are_mentioned(write) -> None:
    file, notes = write(WIDE.replace("0.96", "0.5")), []
    roll_up_table(file, file.with_name("o.csv"), TREE, on_note=notes.append)
    assert notes == [
        "the probabilities of 1 of 3 rows add up to less than 0.95; what they lack belongs to no concept",
    ]


def test_answers_at_a_rank_or_above_it_with_a_column_per_rank(write) -> None:
    rows = answers(write(WIDE), rank="Family")
    assert [row["answer"] for row in rows] == ["pet", "vehicle", None]
    assert [row["rank_family"] for row in rows] == ["pet", "vehicle", None]
    assert [row["doubt"] for row in rows] == ["", "", "nothing is sure enough"]
    assert rows[1]["answer_probability"] == pytest.approx(0.96)
    scores = [[0.5, 0.45, 0.05, 0.0], [0.02, 0.02, 0.96, 0.0], [0.4, 0.1, 0.5, 0.0]]
    rolled = roll_up(scores, TREE, classes=["cat", "dog", "car", "bus"], rank="family")
    assert rolled.answer.tolist() == ["pet", "vehicle", None]
    refused("'tribe' is not a rank", write(WIDE), rank="tribe")


def test_groups_that_can_be_mixed_up_are_refused(write) -> None:
    refused("rows of group 'a' are not consecutive", write(GROUPS + "4,a,1,0,0,0\n"), group="burst")
    refused("column 'burst' has an empty cell", write(GROUPS + "4,,1,0,0,0\n"), group="burst")
    refused("has no column 'bursts'.*Near matches: 'burst'", write(GROUPS), group="bursts")
    split = write("image,class,score,burst\n1,cat,0.9,a\n1,dog,0.1,b\n")
    refused("image '1' is in the groups 'a' and 'b'", split, group="burst")
    labelled = write("image,burst,label,cat,dog\n1,a,cat,1,0\n2,a,dog,1,0\n")
    refused("'a' has the labels 'cat' and 'dog'", labelled, group="burst", labels="label")


def test_groups_are_calibrated_by_groups(write) -> None:
    rng = np.random.default_rng(2)
    scores = rng.dirichlet([0.5] * 4, 300).round(3) * 0.99
    own = [("cat", "dog", "car", "bus")[c] for c in rng.integers(0, 4, 100)]
    lines = [f"{i},{i // 3},{own[i // 3]}," + ",".join(map(str, row)) for i, row in enumerate(scores)]
    file = write("image,burst,label,cat,dog,car,bus\n" + "\n".join(lines) + "\n")
    result = roll_up_table(file, file.with_name("o.csv"), TREE, labels="label", group="burst")
    assert result.n_images == 100
    assert result.promise is not None
    assert "for groups of photos like the 100 held-out ones" in result.promise
