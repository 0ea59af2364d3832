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
from hcep.dictionary.path_problem import CLOSED
from hcep.errors import HCEPError, HierarchyError
from hcep.explain.possible import Possible, read_possible
from hcep.explain.score_tables import roll_up_table
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
        "call the one with the concepts `class`": "a,b\ncat,dog\n",
        "row 1 of .* has no concept": "class,image\n,a.jpg\n",
        "nothing that is possible for images 'b.jpg'": "image,class\na.jpg,cat\nb.jpg,lynx\n",
    }
    for match, text in cases.items():
        with pytest.raises(HCEPError, match=match):
            read_possible(write(tmp_path / "l.csv", text), TREE, print)
    with pytest.raises(HCEPError, match="cannot read"):
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
    assert "nothing is promised" not in run(*words)[1]
    run("model", "calibrate", model_folder, save(tmp_path / "val.npz", COLOURS, 1, 30))
    assert "with --only, nothing is promised" in run(*words, "--overwrite")[1].replace("\n", " ")
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["class"] for row in rows} <= {"cat", "dog"}
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
    rows = "".join(f"{i},cat,{','.join(map(str, scores[i % 2]))}\n" for i in range(120))
    table = write(tmp_path / "scores.csv", f"image,label,{','.join(CLASSES)}\n{rows}")
    checklist = write(tmp_path / "l.txt", "pet\ncar\n")
    result = roll_up_table(table, tmp_path / "o.json", TREE, only=checklist, labels="label")
    assert result.promise is not None
    expected = roll_up(scores, TREE, classes=CLASSES, only=allowed, calibration=held_out).answer.tolist()
    assert [row["answer"] for row in json.loads((tmp_path / "o.json").read_text())[:2]] == expected
