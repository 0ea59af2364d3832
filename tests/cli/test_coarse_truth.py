"""Photos labelled to species, genus or family: fitted, scored, calibrated and audited through the commands."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.models.loading import load_model
from tests.cli.test_own_data import ENCODER, fails, own_cache, picture, run  # noqa: F401

TREE = {
    "plants": ("Asteraceae", "Rosaceae"),
    "Asteraceae": ("Bellis", "Aster"),
    "Rosaceae": ("Rosa", "Malus"),
    "Bellis": ("Bellis perennis", "Bellis annua"),
    "Aster": ("Aster alpinus", "Aster amellus"),
    "Rosa": ("Rosa canina", "Rosa gallica"),
    "Malus": ("Malus domestica", "Malus sylvestris"),  # the last has no photo: Malus is merged into the first
}
SPECIES = {
    "Bellis perennis": (220, 220, 40), "Bellis annua": (220, 160, 40), "Aster alpinus": (150, 60, 220),
    "Aster amellus": (90, 60, 220), "Rosa canina": (220, 60, 90), "Rosa gallica": (160, 20, 60),
    "Malus domestica": (60, 200, 60),
}  # fmt: skip
FAMILY = {s: "Asteraceae" if s.startswith(("Bellis", "Aster")) else "Rosaceae" for s in SPECIES}


def save(root: Path, split: str, label: str, species: str, n: int) -> None:
    """Save photos of a species in the folder of a label."""
    folder = root / split / label
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        seed = crc32(f"{split} {label} {species}".encode()) + i
        picture(SPECIES[species], seed).save(folder / f"{species} {i}.png")


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos for training by species and family; for validation by species, genus, either of two, and not at all."""
    root = tmp_path_factory.mktemp("garden")
    lines = [f"{parent},{child}" for parent, children in TREE.items() for child in children]
    (root / "tree.csv").write_text("\n".join(["parent,child", *lines]), encoding="utf-8")
    for species, family in FAMILY.items():
        save(root / "photos", "train", species, species, 5)
        save(root / "photos", "train", family, species, 5)
        save(root / "photos", "val", species, species, 3)
    for label, species, n in (
        ("Bellis", "Bellis annua", 4), ("Malus", "Malus domestica", 3), ("Asteraceae", "Aster alpinus", 2),
        ("Rosa canina|Rosa gallica", "Rosa gallica", 2), ("plants", "Aster amellus", 1),
    ):  # fmt: skip
        save(root / "photos", "val", label, species, n)
    return root


@pytest.fixture(scope="module")
def model(garden: Path) -> Path:
    words = ("fit", garden / "photos", "--hierarchy", garden / "tree.csv", "--encoder", ENCODER)
    run(*words, "-o", garden / "model")
    return garden / "model"


@pytest.fixture(scope="module")
def photos(garden: Path) -> tuple[object, ...]:
    return garden / "photos", "--encoder", ENCODER


def test_a_photo_that_carries_a_genus_is_scored_by_what_its_label_says(model, photos):
    out, notes = run("evaluate", model, *photos, "--json")
    facts = json.loads(out)
    assert (facts["n_images"], facts["n_coarse"], facts["n_unlabelled"]) == (21 + 11, 11, 1)
    assert facts["accuracy"] == facts["top_1"] == 1.0
    assert facts["support_precision"] == facts["support_recall"] == facts["support_f1"] == 1.0
    assert "11 of 32 labels are above the classes" in notes
    assert "use the other 21" in notes


def test_a_wrong_species_of_the_right_genus_is_a_mistake_only_for_an_exact_truth(model, photos, tmp_path):
    run("evaluate", model, *photos, "--per-image", tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()))
    by_label = {row["label"]: row for row in rows}
    assert by_label["Bellis"]["predicted"] == "Bellis annua"
    assert (by_label["Bellis"]["correct"], by_label["Bellis"]["coarse"]) == ("1", "1")
    assert by_label["Rosa canina|Rosa gallica"]["correct"] == "1"
    assert by_label["plants"]["correct"] == ""


def test_the_table_says_how_many_truths_are_coarse(model, photos, tmp_path):
    text, _ = run("evaluate", model, *photos, "--by-class")
    assert "labels above the classes" in text
    assert "unlabelled images" in text
    run("evaluate", model, *photos, "--compare", "nn", "-o", tmp_path / "table.md")
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "32 images (11 labelled above the classes; 1 unlabelled image is not scored)" in table


def test_compared_methods_are_fitted_on_exact_labels(model, photos):
    out, notes = run("evaluate", model, *photos, "--compare", "nearest-mean", "--interventions", "--json")
    scores = {(s["method"], s["metric"]): s for s in json.loads(out)["scores"]}
    methods = {method for method, _ in scores}
    assert len(methods) == 2
    assert all(scores[method, "correct"]["n_images"] == 32 for method in methods)
    assert all(scores[method, "ece"]["n_images"] in (0, 21) for method in methods)
    assert "35 of 70 training images are labelled with a class; compared methods are fitted on them alone" in notes


def test_calibration_uses_exact_truths_alone_and_says_how_many(model, photos, tmp_path):
    own = shutil.copytree(model, tmp_path / "model")
    output, notes = run("model", "calibrate", own, *photos)
    assert "calibrated on 21 images" in output
    assert "12 of 33 images are not labelled with a class and cannot be used" in notes
    assert len(load_model(own).held_out_) == 21


def test_calibration_without_enough_exact_truths_is_refused(model, tmp_path):
    for label, species in (("Bellis", "Bellis annua"), ("Rosa canina", "Rosa canina")):
        save(tmp_path, "val", label, species, 8)
    words = ("model", "calibrate", model, tmp_path, "--encoder", ENCODER)
    fails(r"only 8 of 16 images are labelled with a possible class.*needs at least 9", *words)


def test_an_audit_checks_exact_truths_and_says_how_many(model, photos):
    result = CliRunner().invoke(app, [str(word) for word in ("audit", model, *photos, "--json")])
    report = json.loads(result.stdout)
    assert (report["n_images"], report["n_coarse"], report["n_unlabelled"]) == (21, 11, 1)
    assert "11 images labelled above the classes and 1 unlabelled image are not used." in report["sentences"][1]


def test_labels_that_the_model_does_not_know_are_refused_as_before(model, tmp_path):
    save(tmp_path, "val", "Malus sylvestris", "Malus domestica", 2)
    save(tmp_path, "val", "Rosa canina|Rosa alba", "Rosa canina", 2)
    words = (model, tmp_path, "--encoder", ENCODER)
    for command in (("evaluate",), ("model", "calibrate")):
        fails(
            r"2 labels are not classes of the model.*: 'Malus sylvestris', 'Rosa canina\|Rosa alba'", *command, *words
        )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_bar_in_the_label_column_of_a_table_means_either(garden, tmp_path, suffix):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng, colours = np.random.default_rng(0), np.array(list(SPECIES.values()), dtype=float)
    y = np.repeat(list(SPECIES), 8)
    X = colours[np.repeat(np.arange(len(SPECIES)), 8)] + 10.0 * rng.standard_normal((len(y), 3))
    labels = np.where(np.char.startswith(y, "Rosa") & (np.arange(len(y)) % 2 == 0), "Rosa canina|Rosa gallica", y)
    table = pa.table({"label": labels, **{f"f{i}": X[:, i] for i in range(3)}})
    write = pyarrow.csv.write_csv if suffix == "csv" else pyarrow.parquet.write_table
    write(table, tmp_path / f"data.{suffix}")
    data = tmp_path / f"data.{suffix}"
    run("fit", data, "--hierarchy", garden / "tree.csv", "-o", tmp_path / "model")
    fitted = load_model(tmp_path / "model")
    assert {name: count.n_images for name, count in fitted.coarse_counts_.items()} == {"Rosa canina or Rosa gallica": 8}
    assert fitted.classes_.tolist() == sorted(SPECIES)
    facts = json.loads(run("evaluate", tmp_path / "model", data, "--json")[0])
    assert (facts["n_coarse"], facts["n_images"]) == (8, 56)
