"""Labels above the classes on the command line: what is said, written and kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hcep.embeddings import Embeddings, import_embeddings
from hcep.hierarchy import write_hierarchy
from hcep.models import fit_data, fitting
from hcep.models.loading import load_model
from tests.cli.test_own_data import fails, run
from tests.models.test_fit_in_parts import TREE, shuffled


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_hierarchy(TREE, tmp_path / "tree.json")
    return tmp_path / "tree.json"


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file of embeddings, its labels and the true classes."""
    X, y, truth = shuffled(4, 30, spread=1.0)
    np.savez(tmp_path / "train.npz", embeddings=X.astype(np.float32), labels=y)
    return tmp_path / "train.npz", y, truth


def test_say_coarse_writes_the_likeliest_class_of_each_coarse_image(data, tree, tmp_path):
    file, y, truth = data
    out = tmp_path / "new" / "classes.csv"
    output = run("fit", file, "--hierarchy", tree, "-o", tmp_path / "model", "--say-coarse", out)[1]
    assert "the likeliest class of 156 images" in " ".join(output.split())
    with out.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["image", "label", "class", "probability"]
    assert [int(row["image"]) for row in rows] == np.flatnonzero(y != truth).tolist()
    assert [row["label"] for row in rows] == y[y != truth].tolist()
    assert np.mean([row["class"] == truth[int(row["image"])] for row in rows]) > 0.95
    assert all(0 < float(row["probability"]) <= 1 for row in rows)


def test_say_coarse_of_a_store_that_stays_on_disk(data, tree, tmp_path, monkeypatch):
    _, y, truth = data
    X = np.load(data[0])["embeddings"]
    import_embeddings(Embeddings(X, labels=y), tmp_path / "store", encoder="e")
    monkeypatch.setattr(fit_data, "IN_MEMORY", 50)
    monkeypatch.setattr(fitting, "SAMPLE", 100)
    monkeypatch.setattr(fitting, "SAMPLE_PER_CLASS", 2)
    monkeypatch.setattr(fitting, "BLOCK", 64)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    out = tmp_path / "classes.csv"
    run("fit", tmp_path / "store", "--hierarchy", tree, "-o", tmp_path / "model", "--say-coarse", out)
    with out.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    order = np.flatnonzero(y != truth)
    assert [row["label"] for row in rows] == y[order].tolist()
    assert np.mean(np.array([row["class"] for row in rows]) == truth[order]) > 0.95


def test_say_coarse_never_overwrites_and_leaves_nothing_half_written(data, tree, tmp_path, monkeypatch):
    out = tmp_path / "classes.csv"
    out.write_text("mine")
    words = ("fit", data[0], "--hierarchy", tree, "-o", tmp_path / "model", "--say-coarse")
    fails("--say-coarse: .*classes.csv' already exists; pass --overwrite", *words, out)
    fails("--say-coarse: expected a name ending in .csv", *words, tmp_path / "classes.txt")
    fails("--say-coarse: .* is an input of this command", *words, out, "--labels", out, "--overwrite")
    assert out.read_text() == "mine"
    assert not (tmp_path / "model").exists()

    def breaks(*_):
        yield np.array([0]), np.array(["car"]), np.array([1.0])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fit_data, "coarse_classes", breaks)
    fails("cannot write .*classes.csv", *words, out, "--overwrite")
    assert out.read_text() == "mine"
    assert not list(tmp_path.glob(".classes*"))


@pytest.mark.parametrize(("choice", "n_classes"), [("below", 6), ("own", 9), ("drop", 6)])
def test_the_choice_is_a_parameter(data, tree, tmp_path, choice, n_classes):
    words = ("--hierarchy", tree, "-o", tmp_path / "model", "-P", f"coarse={choice}")
    output = " ".join(run("fit", data[0], *words)[1].split())
    assert ("(-P coarse=own makes it a class)" in output) == (choice == "below")
    model = load_model(tmp_path / "model")
    assert (len(model.classes_), model.coarse) == (n_classes, choice)
    assert (model.coarse_counts_ is not None) == (choice == "below")


def test_info_shows_where_coarse_labels_went(data, tree, tmp_path):
    run("fit", data[0], "--hierarchy", tree, "-o", tmp_path / "model")
    facts = json.loads(run("info", tmp_path / "model", "--json")[0])
    assert facts["labels_above_classes"]["owl"].startswith("exact 8, coarse 52 (they went to: ")
    assert "owl: exact 8, coarse 52 (they went to:" in " ".join(run("info", tmp_path / "model")[0].split())
