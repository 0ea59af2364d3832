"""`hcep fit --vocabulary`: text vectors in files as a second view of every concept."""

import json

import numpy as np
import pytest

from hcep import HCEPClassifier, load
from hcep.datasets import find_hierarchy
from hcep.dictionary.transform import unit_rows
from hcep.embeddings import Embeddings, write_embeddings
from tests.cli.test_interpret import fails, run
from tests.conftest import shared_file

N_CLASSES, PER_CLASS = 24, 6


@pytest.fixture(scope="module")
def clip():
    """Images and texts of some ImageNet classes by CLIP ViT-B/32; classes are not in the order of their ids."""
    with np.load(shared_file("data/clip_vitb32/imagenet1k_6shot.npz")) as file:
        classes = np.random.default_rng(0).permutation(1000)[:N_CLASSES]
        rows = np.concatenate([np.flatnonzero(file["labels"] == c) for c in classes])
        X, text = file["embeddings"][rows].astype(np.float32), file["text_photo"][classes].astype(np.float32)
        return X, np.repeat(file["wnids"][classes], PER_CLASS), file["wnids"][classes], text


@pytest.fixture
def files(clip, tmp_path):
    X, y, wnids, text = clip
    write_embeddings(tmp_path / "images.parquet", Embeddings(X, labels=y))
    write_embeddings(tmp_path / "texts.parquet", Embeddings(text, labels=wnids))
    np.savez(tmp_path / "both.npz", embeddings=X, labels=y, wnids=wnids, text_photo=text)
    return tmp_path


def test_files_give_what_the_classifier_gives(clip, files):
    X, y, wnids, text = clip
    own = HCEPClassifier(find_hierarchy("imagenet")).fit(X, y, texts=dict(zip(wnids.tolist(), text, strict=True)))
    options = ("-H", "imagenet", "-o", str(files / "model"), "--json")
    facts = json.loads(run("fit", str(files / "images.parquet"), "--vocabulary", files / "texts.parquet", *options))
    assert facts["words"] == pytest.approx(own.words_.share)
    assert facts["n_text_only"] == 0
    np.testing.assert_allclose(load(files / "model").predict_proba(X), own.predict_proba(X), atol=1e-6)
    one_file = ("fit", files / "both.npz", "--vocabulary", f"{files / 'both.npz'}:text_photo", *options, "--overwrite")
    assert json.loads(run(*map(str, one_file)))["words"] == pytest.approx(own.words_.share)


def test_names_are_matched_as_labels_are(clip, files):
    X, _, wnids, text = clip
    tree = find_hierarchy("imagenet")
    names = np.array([tree.name(wnid).upper().replace(" ", "_") for wnid in wnids])
    write_embeddings(files / "names.parquet", Embeddings(text, labels=names))
    given = ("fit", files / "images.parquet", "--vocabulary", files / "names.parquet", "-H", "imagenet", "-o")
    fails("'CARDIGAN' is ambiguous: it may be 'n02963159', 'n02113186'. Use an id", *given, files / "two cardigans")
    names[names == "CARDIGAN"] = wnids[names == "CARDIGAN"]
    write_embeddings(files / "names.parquet", Embeddings(text, labels=names))
    for texts in ("texts", "names"):
        run("fit", files / "images.parquet", "--vocabulary", files / f"{texts}.parquet", "-o", files / texts)
    np.testing.assert_array_equal(load(files / "names").predict_proba(X), load(files / "texts").predict_proba(X))


def test_texts_alone_rank_by_cosine_and_more_texts_make_more_classes(clip, files):
    X, y, wnids, text = clip
    run("fit", "--vocabulary", files / "texts.parquet", "-H", "imagenet", "-o", files / "names")
    nearest = (unit_rows(X) @ unit_rows(text).T).argmax(axis=1)
    np.testing.assert_array_equal(load(files / "names").predict(X), wnids[nearest])
    some = ~np.isin(y, wnids[:4])
    write_embeddings(files / "some.npz", Embeddings(X[some], labels=y[some]))
    given = ("fit", files / "some.npz", "--vocabulary", files / "texts.parquet", "-H", "imagenet", "-o", files / "some")
    assert "of the evidence; 4 classes without images" in run(*given)
    assert load(files / "some").classes_.tolist() == sorted(wnids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["n01440764x"] * N_CLASSES}, r"names of texts is not a concept.*Near matches.*correct the names"),
        ({"dims": 100}, "must be text vectors of 512 dimensions, as the images have"),
        ({"rows": N_CLASSES - 2}, "texts lacks 2 of 24 classes"),
        ({"value": np.nan}, "has NaN or infinite values; encode the text again"),
        ({"value": 0.0}, "is a vector of zeros, which has no direction"),
    ],
)
def test_texts_that_do_not_fit_are_refused(clip, files, change, message):
    text = clip[3][: change.get("rows"), : change.get("dims")].copy()
    text[0] *= change.get("value", 1.0)
    write_embeddings(files / "bad.npz", Embeddings(text, labels=np.array(change.get("labels", clip[2]))[: len(text)]))
    given = (
        "fit",
        files / "images.parquet",
        "--vocabulary",
        files / "bad.npz",
        "-H",
        "imagenet",
        "-o",
        files / "model",
    )
    fails(message, *given)
    assert not (files / "model" / "model.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["images.npz", "--vocabulary", "images.npz"],
            "'images.npz' is also DATA, whose vectors are those of images; name the array",
        ),
        (
            ["images.npz", "--vocabulary", "words.txt"],
            "'words.txt' has no vectors; give embedded texts, or --from-text",
        ),
        (["--vocabulary", "t.npz", "--from-text", "-e", "x", "-H", "y"], "use only one of them"),
        (["images.npz", "--vocabulary", "t.npz", "--template", "a {}"], "--template has no effect without --from-text"),
        (["images.npz", "--vocabulary", "t.npz", "--ray", "local"], "--vocabulary is not supported with --ray"),
    ],
)
def test_options_without_effect_are_refused(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("t.npz", embeddings=np.eye(2), phrases=np.array(["cat", "dog"]))
    fails(message, "fit", *options, "-o", "model")


def test_a_class_is_added_with_its_text(clip, files):
    X, y, wnids, text = clip
    new, model = wnids[0], files / "model"
    write_embeddings(files / "known.npz", Embeddings(X[y != new], labels=y[y != new]))
    write_embeddings(files / "names.npz", Embeddings(text[1:], labels=wnids[1:]))
    run("fit", files / "known.npz", "--vocabulary", files / "names.npz", "-H", "imagenet", "-o", model)
    given = ("model", "add", model, files / "images.parquet", "--class", new)
    run(*given)  # the text is predicted
    assert new in load(model).classes_
    run("model", "undo", model)
    fails(f"there is no text of '{new}'", *given, "--vocabulary", files / "names.npz")
    fails("--vocabulary needs the label of a new class", *given[:4], "--vocabulary", files / "names.npz")
    run(*given, "--vocabulary", files / "texts.parquet")
    assert load(model).classes_.tolist() == sorted(wnids)
    assert np.mean(load(model).predict(X[y == new]) == new) >= 0.5


def test_a_model_without_texts_takes_none_for_a_new_class(clip, files):
    X, y, wnids, _ = clip
    write_embeddings(files / "known.npz", Embeddings(X[y != wnids[0]], labels=y[y != wnids[0]]))
    run("fit", files / "known.npz", "-H", "imagenet", "-o", files / "model")
    given = ("model", "add", files / "model", files / "images.parquet", "--class", wnids[0])
    fails(
        "--vocabulary: the model was fitted without texts; leave it out",
        *given,
        "--vocabulary",
        files / "texts.parquet",
    )
