"""Linear heads: scikit-learn's, the published training with AdamW, and how both are saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from hcep import HCEPClassifier, HCEPError, Hierarchy
from hcep.classify import make_method
from hcep.classify.heads import AdamWHead, fit_head
from hcep.errors import MissingExtraError
from hcep.models import ModelError, load_model, save_model
from hcep.models.schema import seal
from tests.conftest import shared_file

TORCH = "the head adamw needs torch"


def draw(n_classes: int = 3, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Sparse codes of classes that overlap a little: each has an atom of its own, others are noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), n)
    codes = np.where(rng.random((len(y), 8)) < 0.4, 0.7 * rng.standard_normal((len(y), 8)), 0.0)
    codes[np.arange(len(y)), y] += 1.0
    return codes, y


def a_head(n_classes: int = 3, n_atoms: int = 8) -> AdamWHead:
    """A head as AdamW leaves it, with random weights."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((n_classes, n_atoms)).astype(np.float32)
    bias = rng.standard_normal(n_classes).astype(np.float32)
    return AdamWHead(weight, bias, np.arange(n_classes), epochs=20, batch_size=64, lr=0.1, weight_decay=1e-4)


# -- fitting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_the_logistic_head_is_scikit_learns(container: Any) -> None:
    codes, y = draw()
    head = fit_head("logistic", container(codes), y, C=5.0, max_iter=500)
    reference = LogisticRegression(C=5.0, max_iter=500).fit(codes, y)
    assert isinstance(head, LogisticRegression)
    assert head.predict_proba(container(codes)) == pytest.approx(reference.predict_proba(codes), abs=1e-3)


@pytest.mark.parametrize("kind", ["linear", "path", None, 1])
def test_an_unknown_kind(kind: Any) -> None:
    with pytest.raises(HCEPError, match=r"head must be 'logistic' or 'adamw', got"):
        fit_head(kind, *draw())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, r"epochs must be a positive integer; got 0"),
        ({"batch_size": 1.5}, r"batch_size must be a positive integer; got 1.5"),
        ({"lr": -1.0}, r"lr must be a finite number of at least 0, got -1.0"),
        ({"weight_decay": np.nan}, r"weight_decay must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_numbers(options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        fit_head("adamw", *draw(), **options)


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'the head "adamw" needs torch, .*: pip install "hcep\[torch\]"'):
        fit_head("adamw", *draw())


# -- predicting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_trained_head_is_a_softmax_of_its_weights(dtype: type) -> None:
    codes, head = draw()[0].astype(dtype), a_head()
    logits = codes @ head.coef_.T.astype(np.float64) + head.intercept_
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert head.predict_proba(codes) == pytest.approx(expected, abs=1e-5)
    assert head.predict_proba(sparse.csr_array(codes)) == pytest.approx(expected, abs=1e-5)
    assert head.predict(sparse.csr_array(codes)).tolist() == logits.argmax(axis=1).tolist()
    assert head.n_iter_.tolist() == [20]


def test_probabilities_of_large_logits() -> None:
    head = AdamWHead(np.eye(2, dtype=np.float32) * 1e4, np.zeros(2, np.float32), np.arange(2), 1, 1, 0.1, 0.0)
    assert head.predict_proba(np.array([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]


# -- saving ----------------------------------------------------------------------------------------


def with_trained_head(labels: list[str], hierarchy: Hierarchy) -> tuple[HCEPClassifier, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((len(labels), 6)), 5, axis=0) + 0.2 * rng.standard_normal((5 * len(labels), 6))
    model = HCEPClassifier.paper(hierarchy).fit(X, np.repeat(labels, 5))
    model.set_params(head="adamw", epochs=20, batch_size=64)
    model.head_ = a_head(len(labels), model.dictionary_.n_atoms)
    model.n_iter_ = 20
    return model, X


@pytest.mark.parametrize("labels", [["cat", "dog", "car", "bus"], ["cat", "car"]])
def test_a_saved_head_predicts_the_same_without_torch(labels: list[str], pets: Hierarchy, tmp_path: Path) -> None:
    model, X = with_trained_head(labels, pets)
    save_model(model, tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = f"""
import json, sys
import numpy as np
from hcep.models import load_model
model = load_model({str(tmp_path / "model")!r})
X = np.load({str(tmp_path / "X.npy")!r})
print(json.dumps([model.predict(X).tolist(), model.predict_proba(X).tolist(), model.n_iter_, "torch" in sys.modules]))
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert json.loads(out) == [model.predict(X).tolist(), model.predict_proba(X).tolist(), 20, False]


def test_a_saved_head_comes_back_whole(pets: Hierarchy, tmp_path: Path) -> None:
    model, _ = with_trained_head(["cat", "dog", "car"], pets)
    head = load_model(save_model(model, tmp_path / "model")).head_
    assert isinstance(head, AdamWHead)
    assert head.coef_.dtype == np.float32
    assert head.coef_.tolist() == model.head_.coef_.tolist()
    assert (head.epochs, head.batch_size, head.lr, head.weight_decay) == (20, 64, 0.1, 1e-4)


def edited(folder: Path, edit: Any) -> Path:
    document = json.loads((folder / "model.json").read_text("utf-8"))
    del document["checksum"]
    edit(document)
    (folder / "model.json").write_bytes(seal(document))
    return folder


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda d: d["head"].update(kind="sgd"), r"head.kind must be one of 'logistic', 'adamw', got 'sgd'"),
        (lambda d: d["head"].pop("kind"), r"unknown field 'head.epochs'"),
        (lambda d: d["head"].update(epochs=0), r"head.epochs must be an integer of at least 1, got 0"),
        (lambda d: d["head"].update(C=1.0), r"unknown field 'head.C'"),
        (lambda d: d["parameters"].update(random_state="x"), r"parameters.random_state must be an integer"),
    ],
)
def test_a_damaged_head_is_named(edit: Any, match: str, pets: Hierarchy, tmp_path: Path) -> None:
    model, _ = with_trained_head(["cat", "dog", "car"], pets)
    folder = edited(save_model(model, tmp_path / "model"), edit)
    with pytest.raises(ModelError, match=match):
        load_model(folder)


def as_version_1(document: dict[str, Any]) -> None:
    """What the first version did not know."""
    document["version"] = 1
    for name in ("epochs", "batch_size", "random_state"):
        del document["parameters"][name]
    del document["head"]["kind"]


def test_models_of_version_1_are_still_read(pets: Hierarchy, tmp_path: Path) -> None:
    model, X = with_trained_head(["cat", "dog", "car"], pets)
    model = HCEPClassifier.paper(pets).fit(X, np.repeat(["cat", "dog", "car"], 5))
    loaded = load_model(edited(save_model(model, tmp_path / "model"), as_version_1))
    assert loaded.predict_proba(X).tolist() == model.predict_proba(X).tolist()
    assert (loaded.epochs, loaded.batch_size, loaded.random_state) == (500, 4096, 0)


# -- with torch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_adamw_learns_what_logistic_regression_does(container: Any) -> None:
    pytest.importorskip("torch", reason=TORCH)
    codes, y = draw()
    head = fit_head("adamw", container(codes), y, epochs=300, weight_decay=0.0)
    reference = LogisticRegression(C=np.inf, max_iter=5000).fit(codes, y)
    assert (head.predict(codes) == reference.predict(codes)).mean() > 0.95
    assert head.predict_proba(codes) == pytest.approx(reference.predict_proba(codes), abs=0.1)


def test_adamw_is_the_same_again_and_depends_on_the_seed() -> None:
    pytest.importorskip("torch", reason=TORCH)
    codes, y = draw()
    a, b, c = (fit_head("adamw", codes, y, epochs=5, batch_size=20, random_state=s).coef_ for s in (0, 0, 1))
    assert a.tolist() == b.tolist()
    assert a.tolist() != c.tolist()


@pytest.mark.parametrize("name", ["hb-omp", "omp", "cbm", "linear-probe"])
def test_methods_take_the_head(name: str, pets: Hierarchy) -> None:
    pytest.importorskip("torch", reason=TORCH)
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 6)
    X = np.repeat(3.0 * rng.standard_normal((5, 6)), 6, axis=0) + 0.2 * rng.standard_normal((30, 6))
    model = make_method(name, pets, head="adamw", epochs=60).fit(X, y)
    assert isinstance(model.head_, AdamWHead)
    assert model.n_iter_ == 60
    assert model.score(X, y) > 0.9


@pytest.mark.slow
def test_both_heads_agree_to_half_a_point_on_imagenette(wordnet_dag: Hierarchy) -> None:
    pytest.importorskip("torch", reason=TORCH)
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    X, y = data["embeddings"].astype(np.float32), data["wnids"][data["labels"]]
    train = data["split"] == "train"
    scores = [
        make_method("hb-omp", wordnet_dag.as_tree(), head=head).fit(X[train], y[train]).score(X[~train], y[~train])
        for head in ("logistic", "adamw")
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.005)
    assert min(scores) > 0.97
