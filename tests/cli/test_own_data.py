"""Photos and embeddings in the forms that users have, through the commands."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from hcep._progress import progress
from hcep.cli.app import app
from hcep.datasets import encode_images, read_images
from hcep.datasets.encoding import copy_notes, folder_notes, tree_notes
from hcep.embeddings import EmbeddingStore, read_embeddings
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, read_hierarchy
from hcep.models import read_model

ENCODER = "function:tests.cli.test_own_data:colours"
COLOURS = {"cat": (200, 30, 30), "dog": (150, 90, 30), "car": (30, 30, 200), "bus": (30, 140, 200)}
TREE = "parent,child\nthing,animal\nthing,vehicle\nanimal,cat\nanimal,dog\nvehicle,car\nvehicle,bus\n"


def colours(batch):  # type: ignore[no-untyped-def]
    """An encoder: mean colours of the four quarters."""
    half = batch.shape[2] // 2
    quarters = [batch[:, :, y : y + half, x : x + half].mean(axis=(2, 3)) for y in (0, half) for x in (0, half)]
    return np.concatenate(quarters, axis=1)


def mean_colours(batch):  # type: ignore[no-untyped-def]
    """Another encoder: mean colours of the whole photo."""
    return batch.mean(axis=(2, 3))


def run(*words: object) -> tuple[str, str]:
    """Return what a command prints on standard output and on standard error."""
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def fails(match: str, *words: object) -> None:
    with pytest.raises(HCEPError, match=match):
        CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def picture(colour: tuple[int, int, int], seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-25, 25, (16, 16, 3))
    return Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for split, n, first in (("train", 6, 0), ("val", 3, 100)):
        for c, (label, colour) in enumerate(COLOURS.items()):
            (root / split / label).mkdir(parents=True)
            for i in range(n):
                picture(colour, 1000 * c + first + i).save(root / split / label / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "things.csv"
    path.write_text(TREE)
    return path


@pytest.fixture(scope="module")
def model(photos: Path, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "m"
    run("fit", photos, "--encoder", ENCODER, "--hierarchy", tree, "-o", folder)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCEP_CACHE", str(tmp_path / "cache"))


# -- photos with problems -------------------------------------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Photos with a class without images, a photo in two classes, and a class that the tree lacks."""
    for c, label in enumerate(("cat", "dog", "unicorn")):
        (tmp_path / "odd" / label).mkdir(parents=True)
        for i in range(3):
            picture(COLOURS["cat"], 10 * c + i).save(tmp_path / "odd" / label / f"{i}.png")
    (tmp_path / "odd" / "bus").mkdir()
    copy = (tmp_path / "odd" / "cat" / "0.png").read_bytes()
    (tmp_path / "odd" / "dog" / "again.png").write_bytes(copy)
    return tmp_path / "odd"


def test_each_problem_of_the_photos_is_a_note_with_its_count(odd: Path, tmp_path: Path) -> None:
    picture(COLOURS["cat"], 77).save(odd / "loose.png")
    dataset = read_images(odd)
    encode_images(dataset, ENCODER, tmp_path / "store")
    assert list(folder_notes(dataset)) == [
        "1 class folder without an image: 'bus'",
        "1 image without a class: 'loose.png'",
    ]
    assert list(copy_notes(EmbeddingStore(tmp_path / "store"))) == [
        "1 image also found under another class: 'dog/again.png = cat/0.png'"
    ]
    tree = Hierarchy.from_edges([tuple(line.split(",")) for line in TREE.splitlines()[1:]])
    assert list(tree_notes(dataset.labels, tree)) == [
        "3 images of 1 class that the hierarchy does not have: 'unicorn'",
        "2 classes of the hierarchy without an image: 'car', 'bus'",
    ]


def test_photos_without_problems_give_no_note(photos: Path, tree: Path, tmp_path: Path) -> None:
    _, notes = run("encode", photos, "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "store")
    assert "note:" not in notes


def test_empty_folders_below_splits(photos: Path, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / "p" / split / label).mkdir(parents=True)
            picture(COLOURS[label], 1).save(tmp_path / "p" / split / label / "a.png")
    (tmp_path / "p" / "val" / "emu").mkdir()
    assert list(folder_notes(read_images(tmp_path / "p"))) == ["1 class folder without an image: 'val/emu'"]


def test_encode_and_fit_print_the_notes(odd: Path, tree: Path, tmp_path: Path) -> None:
    _, notes = run("encode", odd, "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "store", "--json")
    assert notes.count("note:") == 4
    _, notes = run("fit", odd, "--encoder", ENCODER, "--hierarchy", "flat", "-o", tmp_path / "m", "--json")
    assert "note: 1 class folder without an image: 'bus'" in notes
    assert "note: 1 image also found under another class" in notes
    fails("classes is not a concept", "fit", tmp_path / "store", "--hierarchy", tree, "-o", tmp_path / "n")


def test_a_removed_photo_is_not_fitted(odd: Path, tmp_path: Path) -> None:
    options = ["--encoder", ENCODER, "--hierarchy", "flat", "-o", tmp_path / "m", "--json", "--overwrite"]
    assert json.loads(run("fit", odd, *options)[0])["n_images"] == 10
    (odd / "dog" / "again.png").unlink()
    assert json.loads(run("fit", odd, *options)[0])["n_images"] == 9


# -- photos for a model ----------------------------------------------------------------------------------------


def test_a_model_that_is_replaced_has_no_photos_of_the_old_one(photos: Path, tree: Path, tmp_path: Path) -> None:
    run("fit", photos, "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "m")
    shutil.copytree(photos / "train" / "cat", tmp_path / "few" / "cat", ignore=lambda _, names: sorted(names)[3:])
    shutil.copytree(photos / "train" / "car", tmp_path / "few" / "car", ignore=lambda _, names: sorted(names)[2:])
    run("fit", tmp_path / "few", "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "m", "--overwrite")
    assert read_model(tmp_path / "m").training.images_per_class == {"cat": 3, "car": 2}
    assert len(EmbeddingStore(tmp_path / "m" / "store")) == 5
    again = "function:tests.cli.test_own_data:mean_colours"
    run("fit", photos, "--encoder", again, "--hierarchy", tree, "-o", tmp_path / "m", "--overwrite")
    assert EmbeddingStore(tmp_path / "m" / "store").encoder.name == again


def test_a_model_without_an_encoder_takes_no_photos(photos: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).normal(size=(8, 12)), y=np.repeat(["cat", "dog"], 4))
    run("fit", tmp_path / "x.npz", "--hierarchy", "flat", "-o", tmp_path / "m")
    fails("does not record its encoder", "predict", tmp_path / "m", photos, "-o", "p.csv")


def test_predict_takes_photos_and_writes_csv(model: Path, photos: Path, tmp_path: Path) -> None:
    run("predict", model, photos, "--encoder", ENCODER, "--split", "val", "-o", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert [row["class"] for row in rows] == [row["label"] for row in rows]
    assert rows[0]["names"].startswith(("animal → ", "vehicle → "))
    assert len(rows[0]["coefficients"].split()) == 2


def test_predictions_need_a_known_file_type(model: Path, photos: Path) -> None:
    fails("--output: expected a name ending in .parquet, .csv or .json", "predict", model, photos, "-o", "p.txt")


def test_evaluate_takes_photos(model: Path, photos: Path) -> None:
    scores = json.loads(run("evaluate", model, photos, "--encoder", ENCODER, "--json")[0])
    assert (scores["n_images"], scores["accuracy"]) == (12, 1.0)


def test_another_encoder_is_refused(model: Path, photos: Path) -> None:
    other = "function:tests.datasets.test_download:colours"
    fails("is not the encoder of the model", "predict", model, photos, "--encoder", other, "-o", "p.csv")


def test_a_table_of_photos_may_have_numbers_in_it(photos: Path, tmp_path: Path) -> None:
    files = sorted(photos.glob("train/*/*.png"))
    rows = [f"{file},{file.parent.name},{0.5 + i},{1.5 + i}" for i, file in enumerate(files)]
    (tmp_path / "photos.csv").write_text("path,label,sharpness,size\n" + "\n".join(rows))
    options = ["--encoder", ENCODER, "--hierarchy", "flat", "-o", tmp_path / "m"]
    run("fit", tmp_path / "photos.csv", *options)
    assert read_model(tmp_path / "m").document.n_dims == 12


# -- embeddings from elsewhere --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    labels = [label for label in COLOURS for _ in range(5)]
    means = {label: rng.normal(size=4) for label in COLOURS}
    return np.array([means[label] + 0.1 * rng.normal(size=4) for label in labels]), labels


def test_vectors_and_labels_in_two_files(vectors: tuple[np.ndarray, list[str]], tree: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", vectors[0])
    (tmp_path / "y.txt").write_text("\n".join(vectors[1]))
    fails(r"images have no labels; .*or --labels", "fit", tmp_path / "x.npy", "--hierarchy", tree, "-o", tmp_path / "m")
    run("fit", tmp_path / "x.npy", "--labels", tmp_path / "y.txt", "--hierarchy", tree, "-o", tmp_path / "m")
    options = ["--labels", tmp_path / "y.txt", "--json"]
    assert json.loads(run("evaluate", tmp_path / "m", tmp_path / "x.npy", *options)[0])["accuracy"] == 1.0


def test_a_note_says_how_a_table_was_read(vectors: tuple[np.ndarray, list[str]], tree: Path, tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["species", "keeper", *(f"f{i}" for i in range(4))])
        writer.writerows([label, "ann", *row] for row, label in zip(*vectors, strict=True))
    fails(
        "--labels to choose among 'species', 'keeper'", "fit", tmp_path / "x.csv", "--hierarchy", tree, "-o", tmp_path
    )
    _, notes = run(
        "fit", tmp_path / "x.csv", "--labels", "species", "--vectors", "f*", "--hierarchy", tree, "-o", tmp_path / "m"
    )
    assert "note: x.csv: 20 vectors from 4 columns 'f0' … 'f3', labels from column 'species'" in notes
    run("predict", tmp_path / "m", tmp_path / "x.csv", "--labels", "species", "-o", tmp_path / "p.parquet")


def test_own_names_of_arrays(vectors: tuple[np.ndarray, list[str]], tree: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", feats=vectors[0], klass=np.array(vectors[1]))
    fails(r"only 'feats', 'klass'", "fit", tmp_path / "x.npz", "--hierarchy", tree, "-o", tmp_path / "m")
    options = ["--vectors", "feats", "--labels", "klass", "--hierarchy", tree]
    run("fit", tmp_path / "x.npz", *options, "-o", tmp_path / "m")


# -- the published head ----------------------------------------------------------------------------------------


def test_options_of_the_published_head(vectors: tuple[np.ndarray, list[str]], tree: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=vectors[0], y=np.array(vectors[1]))
    fit = ["fit", tmp_path / "x.npz", "--hierarchy", tree, "-o", tmp_path / "m", "-P", "epochs=7"]
    fails("epochs, batch_size and lr are parameters of the head adamw", *fit)
    run(*fit, "--paper", "-P", "batch_size=4", "-P", "lr=0.05")
    head = read_model(tmp_path / "m").document.head
    assert head is not None
    assert (head.epochs, head.batch_size, head.lr) == (7, 4, 0.05)


def test_options_of_the_reader_reach_a_hierarchy(
    vectors: tuple[np.ndarray, list[str]], tree: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", X=vectors[0], y=np.array(vectors[1]))
    fit = ["fit", tmp_path / "x.npz", "--hierarchy", tree, "-o", tmp_path / "m", "--overwrite"]
    run(*fit, "-O", "root=thing")
    fails("nothing", *fit, "-O", "root=nothing")


def test_info_distinguishes_tables_of_embeddings_and_hierarchies(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("label,f0,f1\ncat,0.5,1.5\n")
    facts = json.loads(run("info", tmp_path / "x.csv", "--json")[0])
    assert (facts["kind"], facts["dimensions"], facts["labels"]) == ("embeddings", 2, "1 classes: 'cat'")
    assert facts["read_as"].startswith("x.csv: 1 vectors from 2 columns 'f0' … 'f1'")
    assert json.loads(run("info", tree, "--json")[0])["kind"] == "hierarchy"


FORMS = {
    "vectors.npy": ("--labels", "labels.txt"),
    "wide.csv": ("--vectors", "f*", "--labels", "species"),
    "named.npz": ("--vectors", "features", "--labels", "species"),
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same labelled vectors in every form, and a table of levels that only options read rightly."""
    folder = tmp_path_factory.mktemp("forms")
    y = np.repeat(list(COLOURS), 8)
    X = np.repeat(np.eye(4), 8, axis=0) * 5 + np.random.default_rng(0).normal(size=(32, 4))
    np.save(folder / "vectors.npy", X)
    (folder / "labels.txt").write_text("\n".join(y))
    np.savez(folder / "named.npz", features=X, species=y)
    rows = [",".join([label, *map(str, row)]) for label, row in zip(y, X, strict=True)]
    (folder / "wide.csv").write_text("\n".join(["species,f0,f1,f2,f3", *rows]))
    kinds = {"cat": "animal", "dog": "animal", "car": "vehicle", "bus": "vehicle"}
    (folder / "levels.csv").write_text("Item;Kind;Year\n" + "".join(f"{c};{k};2020\n" for c, k in kinds.items()))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_every_command_reads_every_kind_of_file(
    form: str, forms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(forms)
    tree, parts = ("levels.csv", "-O", "levels=Kind,Item"), FORMS[form]
    out, _ = run("hierarchy", "lint", *tree, "--data", form, *parts, "-P", "max_moves=0")
    assert "4 classes" in out
    edit = ("hierarchy", "edit", *tree, "--rename", "cat:tabby", "--data", form, *parts, "--json")
    assert len(json.loads(run(*edit)[0])["effects"]) == 1
    run("induce", "geometry", form, *parts, "-o", tmp_path / "tree.csv")
    assert sorted(read_hierarchy(tmp_path / "tree.csv").leaves) == ["bus", "car", "cat", "dog"]


# -- errors that come before hours of encoding --------------------------------------------------------------------


@pytest.fixture
def no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*given: object, **options: object) -> None:
        raise AssertionError("a photo was encoded")

    monkeypatch.setattr("hcep.datasets.encoding.encode_to_store", encode)


@pytest.mark.usefixtures("no_encoding")
def test_classes_are_checked_before_photos_are_encoded(odd: Path, tree: Path, model: Path, tmp_path: Path) -> None:
    fit = ["fit", odd, "--encoder", ENCODER, "-o", tmp_path / "m", "--hierarchy"]
    fails("1 of 3 classes is not a concept of the hierarchy: 'unicorn'", *fit, tree)
    fails("are not in WordNet's hierarchy of ImageNet", *fit[:-1])
    fails("no image .* is in split 'trian'|'trian'", *fit, tree, "--split", "trian")
    for command in (["evaluate"], ["model", "add"], ["model", "calibrate"]):
        fails("labels are not classes of the model: 'unicorn'", *command, model, odd, "--encoder", ENCODER)
    picture(COLOURS["cat"], 77).save(odd / "loose.png")
    fails("1 of 11 images have no labels", *fit, tree)
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("no_encoding")
def test_the_place_of_a_new_class_is_checked_before_photos_are_encoded(model: Path, odd: Path) -> None:
    add = ["model", "add", model, odd, "--encoder", ENCODER, "--class", "emu", "--under"]
    fails(
        "'Instruments' is not a concept.*groups at the top are 'animal', 'vehicle'. To add a new group",
        *add,
        "Instruments",
    )
    add[-2] = "cat"
    fails("'cat' is already a class of the model; .*`hcep model add`", *add, "animal")


def test_a_models_own_photos_are_not_encoded_again(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    run("fit", tmp_path / "photos", "--encoder", ENCODER, "--hierarchy", "flat", "-o", tmp_path / "m")
    before = (tmp_path / "m" / "store" / "manifest.json").read_bytes()
    evaluate = ["evaluate", tmp_path / "m", tmp_path / "photos", "--encoder", ENCODER, "--json"]
    again = json.loads(run(*evaluate)[0])
    assert not (tmp_path / "cache").exists()
    assert again["data"] == f"{tmp_path / 'photos'}, split val"
    # Another photo of the same date: a store that is out of step is neither used nor changed.
    changed = tmp_path / "photos" / "val" / "cat" / "0.png"
    stamp = changed.stat()
    picture(COLOURS["car"], 0).save(changed)
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert json.loads(run(*evaluate)[0])["accuracy"] < again["accuracy"]
    assert (tmp_path / "m" / "store" / "manifest.json").read_bytes() == before


# -- an .npz with two kinds of names ------------------------------------------------------------------------------


@pytest.fixture
def two_names(vectors: tuple[np.ndarray, list[str]], tmp_path: Path) -> Path:
    names = sorted(COLOURS)
    y = [names.index(label) for label in vectors[1]]
    np.savez(tmp_path / "emb.npz", X=vectors[0], y=y, wnids=[f"n{i}" for i in range(4)], class_names=names)
    return tmp_path / "emb.npz"


def test_a_note_says_which_names_of_classes_were_used(two_names: Path, tree: Path, tmp_path: Path) -> None:
    taken = "emb.npz: vectors from array 'X', labels from array 'y', named by 'wnids'; --labels class_names takes"
    assert taken in run("fit", two_names, "--hierarchy", "flat", "-o", tmp_path / "flat")[1]
    facts = json.loads(run("info", two_names, "--json")[0])
    assert taken in facts["read_as"]
    assert facts["labels"] == "4 classes: 'n0', 'n1', 'n2' and 1 more"
    hint = "The names in 'class_names' of emb.npz are in the hierarchy: pass --labels class_names"
    fails(hint, "fit", two_names, "--hierarchy", tree, "-o", tmp_path / "m")
    _, told = run("fit", two_names, "--hierarchy", tree, "-o", tmp_path / "m", "--labels", "class_names")
    assert "named by 'class_names'" in told
    assert read_model(tmp_path / "m").classes.tolist() == sorted(COLOURS)


def test_names_of_images_are_not_taken_for_names_of_classes(
    vectors: tuple[np.ndarray, list[str]], tmp_path: Path
) -> None:
    X, labels = vectors
    y = [sorted(COLOURS).index(label) for label in labels]
    np.savez(tmp_path / "a.npz", X=X, y=y, class_names=labels)
    assert read_embeddings(tmp_path / "a.npz").y.tolist() == labels
    np.savez(tmp_path / "b.npz", X=X, class_names=labels)
    assert read_embeddings(tmp_path / "b.npz").y.tolist() == labels
    np.savez(tmp_path / "c.npz", X=X, y=labels, wnids=[f"n{i}" for i in y])
    assert read_embeddings(tmp_path / "c.npz").y.tolist() == labels
    assert read_embeddings(tmp_path / "c.npz", label="wnids").y.tolist() == [f"n{i}" for i in y]
    np.savez(tmp_path / "d.npz", X=X, y=labels, wnids=["n0", "n1", "n2", "n3"])
    with pytest.raises(HCEPError, match=r"20 vectors, but labels have shape \(4,\)"):
        read_embeddings(tmp_path / "d.npz", label="wnids")


# -- notes ---------------------------------------------------------------------------------------------------


def test_a_level_with_one_class_each_gives_a_note(vectors: tuple[np.ndarray, list[str]], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=vectors[0], y=vectors[1])
    table = "Group;Kind;Class\nanimals;felines;cat\nanimals;canines;dog\nvehicles;carriages;car\nvehicles;coaches;bus\n"
    (tmp_path / "groups.csv").write_text(table)
    options = ["--hierarchy", tmp_path / "groups.csv", "-O", "levels=Group,Kind,Class"]
    _, notes = run("fit", tmp_path / "x.npz", *options, "-o", tmp_path / "m")
    assert "4 concepts have a single child and are shown together with it, not as a separate step" in notes
    assert "not as a separate step: 'felines' in 'cat'" in notes


def test_the_speed_of_a_finished_bar_is_that_of_all_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("encoding", 75, unit="images", stays=True) as advance:
        time.sleep(0.1)
        advance(60)
        advance(15)
    speed = re.search(r"75/75 ([\d,.]+) images/s", capsys.readouterr().err)
    assert speed is not None
    assert float(speed[1].replace(",", "")) < 760


def test_a_path_that_is_neither_a_model_nor_photos_is_rejected(photos: Path) -> None:
    photo = photos / "val" / "cat" / "0.png"
    fails("no image at 'nomodel/', which is not a model folder either", "explain", "nomodel/", photo)


def test_commands_close_with_what_was_not_used(model: Path, photos: Path, tree: Path, tmp_path: Path) -> None:
    for label in ("cat", "bus"):
        shutil.copytree(photos / "val" / label, tmp_path / "some" / label)
    (tmp_path / "some" / "cat" / "torn.png").write_bytes((photos / "val" / "cat" / "0.png").read_bytes()[:300])
    (tmp_path / "some" / "cat" / "empty.png").touch()
    sentence = "2 of 8 files not used: 1 empty file, 1 truncated"
    words, named = ("--encoder", ENCODER), f"{sentence}; files: 'cat/empty.png', 'cat/torn.png'"
    assert named in run("fit", tmp_path / "some", *words, "--hierarchy", tree, "-o", tmp_path / "m")[1]
    assert named in run("predict", model, tmp_path / "some", *words, "-o", tmp_path / "p.csv")[1]
    assert sentence in run("explain", model, tmp_path / "some", *words)[1]


def test_predict_takes_one_photo_as_explain_does(model: Path, photos: Path, tmp_path: Path) -> None:
    run("predict", model, photos / "val" / "cat" / "0.png", "--encoder", ENCODER, "-o", tmp_path / "one.csv")
    lines = (tmp_path / "one.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(('"0.png"', "0.png"))


def test_a_folder_without_photos_gives_one_sentence(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ("fit", tmp_path / "empty", "--encoder", ENCODER, "--hierarchy", tree, "-o", tmp_path / "m")
    fails("no images in .*empty.* and no known layout; put photos into one subfolder per class[^\n]*$", *words)
