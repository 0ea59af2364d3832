"""Models and stores that hcep 0.1.0 wrote load, and answer as they did then (see written_by_0_1/write.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hcep import explain_images
from hcep.classify.hedging import hedged_nodes
from hcep.embeddings import EmbeddingStore
from hcep.models import read_model
from hcep.models.loading import load_model
from hcep.models.saving import undo_change
from hcep.models.schema import checksum

FOLDER = Path(__file__).parent / "written_by_0_1"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/model.json"))


@pytest.fixture(scope="module")
def answers() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "answers.npz", allow_pickle=False) as archive:
        return dict(archive)


def test_there_is_one_model_of_each_kind() -> None:
    assert NAMES == [
        "adamw_head",
        "calibrated",
        "flat_integers",
        "grown",
        "logistic_head",
        "named_atoms",
        "opened_head",
        "path_head",
        "several_objects",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_predicts_what_it_did(name: str, answers: dict[str, np.ndarray]) -> None:
    model = load_model(FOLDER / name)
    X = answers["X"]
    assert model.predict(X).tolist() == answers[f"{name}.labels"].tolist()
    np.testing.assert_allclose(model.predict_proba(X), answers[f"{name}.probabilities"], rtol=1e-5, atol=1e-9)
    found = model.pursue(X)
    assert ["/".join(path) for path in found.paths] == answers[f"{name}.paths"].tolist()
    np.testing.assert_allclose(found.codes.toarray(), answers[f"{name}.codes"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.residual_norms, answers[f"{name}.residual_norms"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_its_facts_are_complete(name: str) -> None:
    saved = read_model(FOLDER / name)
    assert saved.document.hcep_version == "0.1.0"
    assert saved.training.data == "pets.npz"
    assert saved.encoder.name == "onnx:tiny.onnx"
    assert saved.encoder.fingerprint == "f" * 64
    assert saved.encoder.preprocessing == {"size": [8, 8], "resize": "squash"}
    assert len(saved.classes) == 6 + (name == "grown")


def test_a_calibrated_model_keeps_its_guarantees(answers: dict[str, np.ndarray]) -> None:
    model = load_model(FOLDER / "calibrated")
    nodes = hedged_nodes(model.path_model(), model.infer(answers["X"]), 0.3)
    assert [model.hierarchy_.ids[i] for i in model.hierarchy_.path_tree.synset[nodes]] == answers[
        "calibrated.concepts"
    ].tolist()
    # Its scores lack confidences: the right level is the model's own estimate until it is calibrated again.
    assert {one.promise for one in explain_images(answers["X"], model)} == {None}
    np.testing.assert_allclose(model.unknown_score(answers["X"]), answers["calibrated.unknown_scores"], rtol=1e-5)


def test_a_model_keeps_its_rule_for_several_objects(answers: dict[str, np.ndarray]) -> None:
    model = load_model(FOLDER / "several_objects")
    assert model.stopping_.intercept == pytest.approx(0.633045651321473)
    sums = model.pursue(answers["several_objects.mixed"], n_paths="auto")
    assert ["+".join(leaves) for leaves in sums.leaves] == answers["several_objects.sums"].tolist()


def test_a_grown_model_keeps_its_versions(tmp_path: Path, answers: dict[str, np.ndarray]) -> None:
    folder = Path(shutil.copytree(FOLDER / "grown", tmp_path / "grown"))
    assert [change.what for change in read_model(folder).training.history] == ["added class 'van'", "renamed fox"]
    assert load_model(folder).hierarchy_.name("fox") == "Vulpes"
    undo_change(folder)
    assert load_model(folder).hierarchy_.name("fox") == "red fox"
    assert undo_change(folder).what == "added class 'van'"
    first = load_model(folder)
    assert "van" not in first.classes_
    assert first.predict(answers["X"]).tolist() == answers["path_head.labels"].tolist()


def test_a_grown_model_goes_on_growing(answers: dict[str, np.ndarray]) -> None:
    model = load_model(FOLDER / "grown")
    model.add_class("bike", "vehicle", np.full((3, 6), 9.0))
    assert model.predict(np.full((1, 6), 9.0)).tolist() == ["bike"]


def test_names_of_atoms_are_read() -> None:
    names = read_model(FOLDER / "named_atoms").atom_names
    assert names is not None
    assert (names.encoder, names.template, names.centered, names.llm) == (
        "open_clip:tiny",
        "a photo of {}",
        True,
        "loopback",
    )
    cat, fox = names["animal", "cat"], names["animal", "fox"]
    assert (cat.meaning, cat.phrases[0].text, cat.phrases[0].score) == ("slit eyes", "long whiskers", 0.5)
    assert (fox.exemplars[0].id, fox.contrast[0].projection) == ("a.jpg", -0.5)


def test_a_store_is_read(answers: dict[str, np.ndarray]) -> None:
    store = EmbeddingStore(FOLDER / "store")
    store.verify()
    np.testing.assert_array_equal(store.to_numpy(), answers["store.X"])
    for name in ("ids", "paths", "labels", "splits", "content_hashes"):
        assert getattr(store, name).astype(str).tolist() == answers[f"store.{name}"].tolist()
    assert len(store.select(splits="val")) == 2
    (broken,) = store.skipped
    assert (broken.id, broken.reason) == ("dog/1.png", "not an image, or not in a format that can be read")
    assert store.encoder.name == "function:tiny:pixels"


def test_exact_where_is_read_as_a_power_of_1(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER / "path_head", tmp_path / "model"))
    assert load_model(folder).power == "auto"
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    document["parameters"]["exact_where"] = True
    document["checksum"] = checksum({name: part for name, part in document.items() if name != "checksum"})
    (folder / "model.json").write_text(json.dumps(document), encoding="utf-8")
    assert load_model(folder).power == 1.0
