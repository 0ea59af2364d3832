"""`hcep model`: a fitted model is changed from the command line; every change is logged and can be undone."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.models.loading import load_model
from tests.cli.test_own_data import ENCODER, TREE, fails, model as fitted, own_cache, photos, run, tree  # noqa: F401

COLOURS = ("cat", "dog", "car", "bus")


def save(path: Path, labels: tuple[str, ...], seed: int, n: int = 12) -> Path:
    rng = np.random.default_rng(seed)
    places = {label: np.random.default_rng(sum(map(ord, label))).standard_normal(6) * 4 for label in labels}
    y = np.repeat(labels, n)
    X = np.array([places[label] for label in y]) + 0.7 * rng.standard_normal((len(y), 6))
    np.savez(path, X=X, y=y)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "tree.csv").write_text(TREE, encoding="utf-8")
    train = save(tmp_path / "train.npz", COLOURS, 0)
    run("fit", train, "--hierarchy", tmp_path / "tree.csv", "-o", tmp_path / "model")
    return tmp_path / "model"


def test_calibrated_coverage_holds_on_new_images(model: Path, tmp_path: Path) -> None:
    test, out = save(tmp_path / "test.npz", COLOURS, 2), tmp_path / "out.csv"
    for share in ("90", "0", "1", "-0.5"):
        fails("--sure: expected a number between 0 and 1", "predict", model, test, "--sure", share, "-o", out)
    run("predict", model, test, "-o", tmp_path / "estimates.csv")
    output, _ = run("model", "calibrate", model, save(tmp_path / "val.npz", COLOURS, 1, 30))
    assert "calibrated on 120 images" in output
    run("predict", model, test, "--sure", "0.9", "-o", out)
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    above = {"cat": "animal", "dog": "animal", "car": "vehicle", "bus": "vehicle"}
    right = [row["answer"] in (row["label"], above[row["label"]], "") for row in rows]
    assert np.mean(right) >= 0.85
    columns = ["answer", "answer_name", "answer_probability", "rank", "class", "class_probability", "doubt"]
    assert list(rows[0])[2:11] == [*columns, "answer_estimate", "kind"]
    assert all(float(row["answer_probability"]) >= 0.9 for row in rows if row["answer"])


def test_what_is_promised_is_said_when_it_begins_and_wherever_it_holds(model: Path, tmp_path: Path) -> None:
    promised = "At least 90 % of such answers are right, for photos like the 40 held-out ones"
    test = save(tmp_path / "test.npz", COLOURS, 2, 5)
    assert "right" not in run("predict", model, test, "-o", tmp_path / "before.csv")[1]
    output, _ = run("model", "calibrate", model, save(tmp_path / "val.npz", COLOURS, 1, 10))
    assert promised in output
    assert promised in run("predict", model, test, "-o", tmp_path / "after.csv")[1]
    few = "40 held-out photos are too few to promise 0.99"
    assert few in run("predict", model, test, "--sure", "0.99", "-o", tmp_path / "higher.csv")[1]
    assert promised not in run("predict", model, test, "--decode", "class", "-o", tmp_path / "class.csv")[1]


def test_embeddings_that_a_model_was_fitted_on_do_not_calibrate_it(model: Path, tmp_path: Path) -> None:
    """A file of embeddings has no hashes of photos: its name tells."""
    fails("some or all of the images are training images", "model", "calibrate", model, tmp_path / "train.npz")


def test_images_labelled_above_the_classes_teach_those_below(model: Path, tmp_path: Path) -> None:
    images = np.load(save(tmp_path / "more.npz", COLOURS, 3, 6))
    above = {"cat": "animal", "dog": "animal"}
    labels = np.array([above.get(label, label) for label in images["y"].tolist()])
    np.savez(tmp_path / "more.npz", X=images["X"], y=labels)
    output, notes = run("model", "add", model, tmp_path / "more.npz")
    assert "added 24 images of 2 classes, 12 of them labelled above the classes; 4 classes" in output
    line = (
        "animal: 12 images labelled only to this level teach the 2 classes below it (--class with -P coarse=own makes"
    )
    assert line in " ".join(notes.split())
    grown = load_model(model)
    assert grown.classes_.tolist() == sorted(COLOURS)
    assert dict(grown.coarse_counts_["animal"].most()) == pytest.approx({"cat": 6, "dog": 6}, abs=1)
    assert grown.class_weights_.tolist() == pytest.approx([18] * 4, abs=1)
    words = ("model", "add", model, tmp_path / "more.npz")
    assert "added 24 images" in run(*words, "-P", "coarse=drop")[0]
    assert load_model(model).coarse_counts_["animal"].n_images == 12
    fails("'animal'.*add_class.*With coarse='below'", *words, "-P", "coarse=own")
    fails("coarse must be 'below', 'own' or 'drop', got 'up'", *words, "-P", "coarse=up")
    fails("'animal' is a concept above .*coarse='own'", *words, "--class", "animal", "-P", "coarse=below")
    assert load_model(model).classes_.tolist() == sorted(COLOURS)
    run(*words, "--class", "animal", "-P", "coarse=own")
    assert "animal" in load_model(model).classes_


def test_training_photos_are_not_used_for_calibration(photos: Path, fitted: Path, tmp_path: Path) -> None:  # noqa: F811
    model = shutil.copytree(fitted, tmp_path / "model")
    words = ("model", "calibrate", model, photos, "--encoder", ENCODER)
    fails("photos.*, split train: all 24 images are training images of the model", *words, "--split", "train")
    output, notes = run(*words)
    assert re.search(r"calibrated on 12 images of \S+, split val; 4 classes", output)
    assert "ignored" not in notes
    mixed = tmp_path / "mixed"  # without splits: the photos of the fit are known by their content
    for split, label in (("train", "cat"), ("val", "cat"), ("train", "bus"), ("val", "bus")):
        for photo in (photos / split / label).iterdir():
            (mixed / label).mkdir(parents=True, exist_ok=True)
            shutil.copy(photo, mixed / label / f"{split}-{photo.name}")
    output, notes = run("model", "calibrate", model, mixed, "--encoder", ENCODER)
    assert "12 of 18 images are training images of the model and are ignored" in notes.replace("\n", " ")
    assert "calibrated on 6 images" in output
    assert load_model(model).held_out_ is not None
    assert len(load_model(model).held_out_) == 6


def test_an_audit_counts_training_photos(photos: Path, fitted: Path) -> None:  # noqa: F811
    command = ["audit", str(fitted), str(photos), "--encoder", ENCODER]
    note = "24 of 24 images are training images of the model"
    for split, is_noted in (("train", True), ("val", False)):
        assert (note in CliRunner().invoke(app, [*command, "--split", split]).stderr.replace("\n", " ")) == is_noted


def test_terminal_page_and_json_of_an_audit_say_the_same(photos: Path, fitted: Path, tmp_path: Path) -> None:  # noqa: F811
    words = [
        "audit",
        str(fitted),
        str(photos),
        "--encoder",
        ENCODER,
        "--split",
        "train",
        "-o",
        str(tmp_path / "a.html"),
    ]
    result = CliRunner().invoke(app, words)
    aside = " ".join(result.stderr.split())
    page = html.unescape((tmp_path / "a.html").read_text("utf-8"))
    record = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert next(iter(record)) == "warnings"
    assert len(record["warnings"]) >= 2
    for warning in record["warnings"]:
        assert warning in aside
        assert page.index(warning) < page.index("<h2>")
    assert any("24 of 24 images are training images" in warning for warning in record["warnings"])
    assert record["sentences"] == [record["warnings"][0]]
    assert record["warnings"][1].startswith("24 of 24 images are training images")
    assert page.index(record["warnings"][0]) == min(map(page.index, record["warnings"]))
    assert record["sentences"][0].startswith("This audit allows no conclusions")
    assert record["failed"] == []
    assert {check["passed"] for check in record["checks"]} == {None}
    assert "✓" not in result.stdout
    assert "can be used" not in page


def test_training_images_of_a_store_are_recognised(photos: Path, tree: Path, tmp_path: Path) -> None:  # noqa: F811
    run("encode", photos, "--encoder", ENCODER, "-o", tmp_path / "store")
    run("fit", tmp_path / "store", "--hierarchy", tree, "-o", tmp_path / "model")
    words = ("model", "calibrate", tmp_path / "model", tmp_path / "store")
    fails("all 24 images are training images of the model", *words, "--split", "train")
    assert "calibrated on 12 images" in run(*words)[0]


def test_a_class_is_added_moved_renamed_and_removed(model: Path, tmp_path: Path) -> None:
    vans = save(tmp_path / "vans.npz", ("van", "cat"), 3)
    output, notes = run("model", "add", model, vans, "--class", "van", "--under", "vehicle")
    assert "added class 'van' under 'vehicle' from 12 images; 5 classes" in output
    assert "hcep model calibrate" in notes
    run("model", "edit", model, "--move", "van:animal")
    run("model", "edit", model, "--rename", "van:delivery van")
    assert "added 24 images of 2 classes" in run("model", "add", model, vans)[0]
    assert load_model(model).hierarchy_.parents("van") == ("animal",)
    assert load_model(model).hierarchy_.name("van") == "delivery van"
    run("model", "edit", model, "--remove", "dog")
    assert load_model(model).classes_.tolist() == ["bus", "car", "cat", "van"]
    changes = json.loads(run("info", model, "--json")[0])["changes"]
    assert [change.split("  ")[-1] for change in changes.values()] == [
        "added class 'van' under 'vehicle' from 12 images",
        "moved 'van' under 'animal'",
        "renamed 'van' 'delivery van'",
        "added 24 images of 2 classes",
        "removed class 'dog'",
    ]
    assert "removed concept 'vehicle'" in run("model", "edit", model, "--remove", "Vehicle")[0]
    assert load_model(model).hierarchy_.parents("car") == (load_model(model).hierarchy_.root,)
    run("model", "undo", model)
    assert "undid the last change: removed class 'dog'" in run("model", "undo", model)[0]
    assert "dog" in load_model(model).classes_
    summary = json.loads((model / "model.json").read_text(encoding="utf-8"))
    assert summary["training"]["images_per_class"]["van"] == 24


def test_unknown_classes_concepts_and_versions_are_rejected(model: Path, tmp_path: Path) -> None:
    fails("'emu' is not a class of the model", "model", "edit", model, "--remove", "emu")
    fails("'vehicl'.*vehicle", "model", "edit", model, "--move", "cat:vehicl")
    fails("there is no change to undo", "model", "undo", model)
    fails("there is nothing at", "info", tmp_path / "nothing")


def test_a_class_below_a_class_gives_a_note(model: Path, tmp_path: Path) -> None:
    vans = save(tmp_path / "vans.npz", ("van", "cat"), 3)
    _, notes = run("model", "add", model, vans, "--class", "van", "--under", "car")
    assert (
        "'car' is a class, and now also a group: an image that is 'car' but not 'van' is still answered with 'car'"
        in notes
    )
    _, notes = run("model", "add", model, vans, "--class", "lorry", "--under", "vehicle")
    assert "also a group" not in notes
    fails("'van' is already a class of the model; .*`hcep model add`", "model", "add", model, vans, "--class", "van")
    fails("--under needs the label of a new class", "model", "add", model, vans, "--under", "vehicle")


def test_edits_of_one_command_are_one_version(model: Path) -> None:
    output, _ = run("model", "edit", model, "--move", "cat:vehicle", "--rename", "dog:hound")
    assert "moved 'cat' under 'vehicle'; renamed 'dog' 'hound'; 4 classes" in output
    assert load_model(model).hierarchy_.name("dog") == "hound"
    run("model", "undo", model)
    assert load_model(model).hierarchy_.parents("cat") == ("animal",)
    assert load_model(model).hierarchy_.name("dog") == "dog"
    fails("nothing to do: give --move, --remove or --rename", "model", "edit", model)
    fails(
        "in a model, a concept is moved away from all of its parents",
        "model",
        "edit",
        model,
        "--move",
        "cat:animal:vehicle",
    )


def test_controls_of_an_audit_are_fitted_to_the_photos_that_the_model_keeps(
    photos: Path,  # noqa: F811
    fitted: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    command = ["audit", str(fitted), str(photos / "val"), "--encoder", ENCODER, "-o", str(tmp_path / "a.html")]
    result = CliRunner().invoke(app, command)
    assert "three checks are left out" not in result.stderr
    assert "no training images were given" not in result.stdout
    page = html.unescape((tmp_path / "a.html").read_text("utf-8"))
    assert f"Data: {photos / 'val'}. 12 images of 4 classes. Date: 20" in page
    assert "? The coefficients on the path alone" in page
    model = shutil.copytree(fitted, tmp_path / "model", ignore=shutil.ignore_patterns("store"))
    result = CliRunner().invoke(app, ["audit", str(model), *command[2:5]])
    assert "three checks are left out" in result.stderr
    assert "train_val" not in result.stderr
