"""Only what can be here: what a list leaves, that nothing is promised about it, and lists that cannot be used."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy, explain_images, roll_up
from hcep.classify import calibrate_levels
from hcep.classify.right_level import among
from hcep.datasets.layouts.table import group_values
from hcep.dictionary.path_problem import CLOSED
from hcep.errors import HCEPError, HierarchyError
from hcep.explain.possible import Possible, read_possible
from hcep.explain.score_tables import roll_up_table
from hcep.models.saving import save_model
from hcep.pursuit.limits import PathLimits, Request
from tests.cli.test_model import COLOURS, fails, model as model_folder, run, save  # noqa: F401

EDGES = [("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "vehicle"), ("vehicle", "car"), ("vehicle", "bus")]
TREE = Hierarchy.from_edges(EDGES)
CLASSES = ["bus", "car", "cat", "dog"]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means = 3.0 * np.random.default_rng(1).standard_normal((4, 8))
    y = np.repeat(CLASSES, 40)
    return np.repeat(means, 40, axis=0) + rng.standard_normal((160, 8)), y


@pytest.fixture(scope="module")
def fitted(data: tuple[np.ndarray, np.ndarray]) -> HCEPClassifier:
    X, y = data
    return HCEPClassifier(TREE).fit(X[::2], y[::2]).calibrate(X[1::2], y[1::2])


def test_an_impossible_class_is_never_an_answer(fitted: HCEPClassifier, data) -> None:
    X, _ = data
    assert set(fitted.predict(X, only=["pet", "car"]).tolist()) == {"cat", "dog", "car"}
    odds = fitted.predict_proba(X, only=["pet", "car"])
    assert (odds[:, CLASSES.index("bus")] == 0.0).all()
    np.testing.assert_allclose(odds.sum(axis=1), 1.0)
    for answer in explain_images(X[:40], fitted, only=["pet"]):  # buses, all of them
        assert answer.label in ("cat", "dog")
        assert answer.answer in ("cat", "dog", "pet", None)
        assert all(step.synset in ("pet", "cat", "dog") for step in answer.path)
        assert answer.concept_probability("vehicle") == 0.0


def test_the_probabilities_are_those_of_a_tree_without_the_other_classes(fitted: HCEPClassifier, data) -> None:
    X, _ = data
    free, limited = fitted.predict_proba(X), fitted.predict_proba(X, only="pet")
    pets = free[:, 2:]
    likely = pets.sum(axis=1) > 1e-6  # of the other images hardly any digit is left
    np.testing.assert_allclose(limited[likely, 2:], (pets / pets.sum(axis=1, keepdims=True))[likely], atol=1e-3)


def test_a_list_that_has_everything_changes_nothing(fitted: HCEPClassifier, data) -> None:
    X, _ = data
    np.testing.assert_allclose(fitted.predict_proba(X, only="thing"), fitted.predict_proba(X), atol=1e-6)


def test_nothing_is_promised_about_a_list_that_the_model_was_not_calibrated_with(fitted, data) -> None:
    X, _ = data
    assert all(answer.promise is not None for answer in explain_images(X[:5], fitted))
    assert all(answer.promise is None for answer in explain_images(X[:5], fitted, only=["pet", "car"]))


def test_a_promise_holds_with_the_list_that_it_was_made_with_and_no_other(data, tmp_path: Path) -> None:
    X, y = data
    model = HCEPClassifier(TREE).fit(X[::2], y[::2]).calibrate(X[1::2], y[1::2], only=["pet", "car"])
    assert model.held_out_.only == ("car", "pet")
    assert len(model.held_out_) == 60  # there are no buses here
    save_model(model, tmp_path / "model")
    for one in (model, tmp_path / "model"):
        promised = {only: explain_images(X[:1], one, only=only)[0].promise for only in (("pet", "car"), ("pet",), ())}
        assert "like the 60 held-out ones" in str(promised["pet", "car"])
        assert (promised["pet",], promised[()]) == (None, None)
        # The same classes by other names are the same list.
        assert explain_images(X[:1], one, only=["cat", "dog", "car"])[0].promise is not None
    assert set(model.predict_concept(X[:40]).tolist()) == {"bus"}
    assert set(model.predict_concept(X[:40], only=["pet", "car"]).tolist()) <= {"cat", "dog", "pet", "car", None}
    with pytest.raises(HCEPError, match="'lynx' is not a concept"):
        model.calibrate(X, y, only="lynx")
    with pytest.raises(HCEPError, match="labelled with a possible class"):
        model.calibrate(X[:50], y[:50], only="pet")


def test_what_if_and_why_not_stay_within_the_list(fitted: HCEPClassifier, data) -> None:
    X, y = data
    dog = explain_images(X[y == "dog"][:1], fitted, only=["pet", "car"])[0]
    assert dog.what_if(forbid="dog").label in ("cat", "car")
    assert dog.what_if(forbid="pet").label == "car"
    assert dog.contrast("cat").rival.label == "cat"


def test_a_class_with_several_parents_is_possible_below_each() -> None:
    tree = Hierarchy.from_edges([("r", "pet"), ("r", "canine"), ("pet", "dog"), ("canine", "dog"), ("canine", "wolf")])
    limits = PathLimits.of(tree, only="pet")
    assert limits is not None
    nodes = tree.path_tree.synset
    assert {tree.ids[i] for i in nodes[limits.state[0] != CLOSED]} == {"r", "pet", "canine", "dog"}
    assert (limits.state[0][nodes == tree.index("dog")] != CLOSED).all()


def test_a_list_may_spell_ids_and_names_differently(tmp_path: Path) -> None:
    names = {"panthera leo": "lion", "crane 1": "crane", "crane 2": "crane"}
    tree = Hierarchy.from_edges([("r", "panthera leo"), ("r", "crane 1"), ("r", "crane 2"), ("r", "owl")], names)
    (tmp_path / "list.txt").write_text("Panthera_leo\nOWL\nunicorn\n")
    notes: list[str] = []
    assert read_possible(tmp_path / "list.txt", tree, notes.append).everywhere == ("panthera leo", "owl")
    assert notes == ["1 of 3 names in list.txt are not in the hierarchy: 'unicorn'"]
    (tmp_path / "list.txt").write_text("lion\ncrane\n")
    with pytest.raises(HCEPError, match="'crane' is the name of 2 concepts; give one of the ids 'crane 1', 'crane 2'"):
        read_possible(tmp_path / "list.txt", tree, notes.append)


def test_limits_that_leave_nothing_are_refused() -> None:
    with pytest.raises(HierarchyError, match="only: no path is left by force and forbid among 'pet'"):
        PathLimits.of(TREE, forbid="pet", only="pet")
    with pytest.raises(HierarchyError, match="'pets2' is not a concept"):
        PathLimits.of(TREE, only="pets2")
    assert PathLimits.of_images(TREE, [Request()]) is None


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "cat\nvehicle\n\n"),
        ("list.csv", "cat\nvehicle\n"),
        ("list.csv", "species;region\nCat;1\nVehicles;2\n"),
        ("list.tsv", "concept\ncat\nvehicle\n"),
    ],
)
def test_lists_are_read(tmp_path: Path, name: str, text: str) -> None:
    notes: list[str] = []
    assert read_possible(write(tmp_path / name, text), TREE, notes.append) == Possible(("cat", "vehicle"))
    assert notes == []


def test_names_that_the_hierarchy_lacks_are_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_possible(write(tmp_path / "l.txt", "cat\nlynx\n"), TREE, notes.append).everywhere == ("cat",)
    assert notes == ["1 of 2 names in l.txt are not in the hierarchy: 'lynx'"]


def test_lists_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    cases = {
        "none of the 2 names": "lynx\nwolf\n",
        "is empty": "\n",
        "name the column of concepts `class`": "a,b\ncat,dog\n",
        "row 1 of .* has no concept": "class,image\n,a.jpg\n",
        "no possible concept for images 'b.jpg'": "image,class\na.jpg,cat\nb.jpg,lynx\n",
    }
    for match, text in cases.items():
        with pytest.raises(HCEPError, match=match):
            read_possible(write(tmp_path / "l.csv", text), TREE, print)
    with pytest.raises(HCEPError, match="cannot be read"):
        read_possible(tmp_path / "nothing.csv", TREE, print)
    (tmp_path / "l.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HCEPError, match="not text in UTF-8"):
        read_possible(tmp_path / "l.csv", TREE, print)


def test_a_list_may_differ_by_image(fitted: HCEPClassifier, data, tmp_path: Path) -> None:
    X, y = data
    file = write(tmp_path / "l.csv", "image,class\n0,cat\n1,pet\n1,car\n")
    possible = read_possible(file, TREE, print)
    first, second = explain_images(X[y == "bus"][:2], fitted, only=possible)
    assert first.label == "cat"
    assert second.label in ("cat", "dog", "car")
    with pytest.raises(HCEPError, match="no row for image '2'"):
        explain_images(X[:3], fitted, only=possible)


def test_the_command_says_that_nothing_is_promised(model_folder: Path, tmp_path: Path) -> None:  # noqa: F811
    test, allowed = save(tmp_path / "test.npz", COLOURS, 2), write(tmp_path / "l.csv", "class\nanimal\n")
    words = ("predict", model_folder, test, "--only", allowed, "-o", tmp_path / "o.csv")
    assert "no accuracy is promised" not in run(*words)[1]
    run("model", "calibrate", model_folder, save(tmp_path / "val.npz", COLOURS, 1, 30))
    assert "no accuracy is promised: the photos used for calibration were answered without the list" in " ".join(
        run(*words, "--overwrite")[1].split()
    )
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["class"] for row in rows} <= {"cat", "dog"}
    said, notes = run("model", "calibrate", model_folder, tmp_path / "val.npz", "--only", allowed)
    assert "calibrated on 60 images" in said
    assert "60 of 120 images are of classes that are not in the list" in notes
    assert "no accuracy is promised" not in run(*words, "--overwrite")[1]
    other = " ".join(run(*words[:3], "-o", tmp_path / "o.csv", "--overwrite")[1].split())
    assert "no accuracy is promised: the photos used for calibration were answered with the list of 'animal'" in other
    by_image = write(tmp_path / "by_image.csv", "image,class\n0,cat\n")
    fails("one list for all images", "model", "calibrate", model_folder, tmp_path / "val.npz", "--only", by_image)
    fails("none of the 1 names", *words[:4], write(tmp_path / "x.csv", "lynx\n"), "-o", tmp_path / "p.csv")


def test_unassigned_probability_stays_unassigned_among_the_possible_classes() -> None:
    values = among(np.array([[0.5, 0.2, 0.1], [0.0, 0.0, 1.0]]), np.array([True, True, False]))
    np.testing.assert_allclose(values, [[5 / 9, 2 / 9, 0.0], [0.0, 0.0, 0.0]])


def test_roll_up_and_its_tables_take_the_list_and_calibrate_under_it(tmp_path: Path) -> None:
    scores = np.array([[0.5, 0.1, 0.38, 0.02], [0.0, 0.04, 0.48, 0.48]])
    allowed = ["pet", "car"]
    answers = roll_up(scores, TREE, classes=CLASSES, only=allowed)
    assert answers.answer.tolist() == [None, "pet"]
    assert answers.class_index.tolist() == [2, 2]
    held_out = calibrate_levels(np.repeat(scores, 60, axis=0), ["cat"] * 120, TREE, classes=CLASSES, only=allowed)
    assert len(held_out) == 120
    with_others = ["cat", "bus"] * 60  # a bus is not possible here
    assert len(calibrate_levels(np.repeat(scores, 60, axis=0), with_others, TREE, classes=CLASSES, only=allowed)) == 60
    rows = "".join(f"{i},cat,{','.join(map(str, scores[i % 2]))}\n" for i in range(120))
    table = write(tmp_path / "scores.csv", f"image,label,{','.join(CLASSES)}\n{rows}")
    checklist = write(tmp_path / "l.txt", "pet\ncar\n")
    result = roll_up_table(table, tmp_path / "o.json", TREE, only=checklist, labels="label")
    assert result.promise is not None
    expected = roll_up(scores, TREE, classes=CLASSES, only=allowed, calibration=held_out).answer.tolist()
    assert [row["answer"] for row in json.loads((tmp_path / "o.json").read_text())[:2]] == expected
    write(table, table.read_text(encoding="utf-8").replace("\n7,cat,", "\n7,bus,"))
    notes: list[str] = []
    result = roll_up_table(table, tmp_path / "o.json", TREE, only=checklist, labels="label", on_note=notes.append)
    assert notes == ["1 of 120 labelled images are of classes that --only excludes"]
    assert "119 held-out ones" in str(result.promise)


def test_predictions_by_group_are_one_row_each_and_calibrated_by_group(model_folder: Path, tmp_path: Path) -> None:  # noqa: F811
    def table(name: str, seed: int, n: int) -> tuple[Path, Path]:
        """Photos, and a table of bursts of three."""
        groups = "".join(f"{i},{i // 3}\n" for i in range(4 * n))
        return save(tmp_path / f"{name}.npz", COLOURS, seed, n), write(tmp_path / f"{name}.csv", f"id,burst\n{groups}")

    (test, bursts), (val, held_out) = table("test", 2, 12), table("val", 1, 60)
    words = ("predict", model_folder, test, "--group", bursts, "-o", tmp_path / "o.csv")
    assert "16 groups" in run(*words)[0]
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in rows] == [str(i) for i in range(16)]
    assert all(row["path"].split(" → ")[-1] == row["class"] for row in rows)
    assert np.mean([row["class"] == row["label"] for row in rows]) > 0.9
    run("model", "calibrate", model_folder, val)
    assert "no accuracy is promised for groups" in run(*words, "--overwrite")[1]
    said, _ = run("model", "calibrate", model_folder, val, "--group", held_out)
    assert "calibrated on 240 images" in said
    assert "no accuracy is promised" not in run(*words, "--overwrite")[1]
    fails("--group burst: there is no table with this column", *words[:4], "burst", "-o", tmp_path / "p.csv")
    some = write(tmp_path / "some.csv", "id,burst\n0,a\n")
    fails("has no group for image '1'", *words[:4], some, "-o", tmp_path / "p.csv")
    write(some, "id,a,b\n0,a,b\n")
    fails("must have the column id and one of groups", *words[:4], some, "-o", tmp_path / "p.csv")


def test_groups_are_a_column_of_the_data_or_folders(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "path,burst\na.jpg,1\nb.jpg,1\n")
    assert group_values(table, "burst", ["x/b.jpg", "x/a.jpg"]).tolist() == ["1", "1"]
    assert group_values(table, "burst", [0, 1]).tolist() == ["1", "1"]
    assert group_values(None, "folder", ["x/b.jpg", "y/a.jpg"]).tolist() == ["x", "y"]
    with pytest.raises(HCEPError, match=r"has no column 'bursts'. Near matches: 'burst'"):
        group_values(table, "bursts", [0, 1])
    with pytest.raises(HCEPError, match="has 2 rows for 3 images and no column `id`"):
        group_values(table, "burst", [0, 1, 2])
