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
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from hcep import HCEPClassifier, HCEPError, HCEPTransformer, Hierarchy
from hcep.classify import make_method
from hcep.classify.heads import AdamWHead, make_head, restored_head
from hcep.models import ModelError
from hcep.models.loading import load_model
from hcep.models.saving import save_model
from hcep.models.schema import seal
from tests.conftest import shared_file

TORCH = "compared with torch where it is installed"


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
    return restored_head(weight, bias, np.arange(n_classes), epochs=20, batch_size=64)


def torch_head(codes: np.ndarray, y: np.ndarray, head: AdamWHead) -> tuple[np.ndarray, np.ndarray]:
    """The published training as torch does it, in the same batches: the reference."""
    torch = pytest.importorskip("torch", reason=TORCH)
    rng = np.random.default_rng(head.random_state)
    labels = torch.from_numpy(y.astype(np.int64))
    weight = torch.zeros((int(y.max()) + 1, codes.shape[1]), requires_grad=True)
    bias = torch.zeros(int(y.max()) + 1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=head.lr, weight_decay=head.weight_decay)
    for _ in range(head.epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(y), head.batch_size):
            rows = np.sort(order[start : start + head.batch_size])
            dense = codes[rows].toarray() if sparse.issparse(codes) else codes[rows]
            logits = torch.nn.functional.linear(torch.from_numpy(dense.astype(np.float32)), weight, bias)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels[rows]).backward()
            optimizer.step()
    return weight.detach().numpy(), bias.detach().numpy()


@parametrize_with_checks([AdamWHead(epochs=30, batch_size=32)])
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# -- fitting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_the_logistic_head_equals_scikit_learn(container: Any) -> None:
    codes, y = draw()
    head = make_head(LogisticRegression(C=5.0, max_iter=500)).fit(container(codes), y)
    reference = LogisticRegression(C=5.0, max_iter=500).fit(codes, y)
    assert isinstance(head, LogisticRegression)
    assert head.predict_proba(container(codes)) == pytest.approx(reference.predict_proba(codes), abs=1e-3)


@pytest.mark.parametrize("kind", ["linear", "path", None, 1])
def test_an_unknown_kind(kind: Any) -> None:
    with pytest.raises(HCEPError, match=r"head must be 'logistic' or 'adamw' or a scikit-learn classifier, got"):
        make_head(kind)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, r"epochs must be a positive integer; got 0"),
        ({"batch_size": 1.5}, r"batch_size must be a positive integer; got 1.5"),
        ({"lr": -1.0}, r"lr must be a finite number of at least 0, got -1.0"),
        ({"weight_decay": np.nan}, r"weight_decay must be a finite number of at least 0, got nan"),
    ],
)
def test_invalid_parameters_are_rejected(options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        AdamWHead(**options).fit(*draw())


@pytest.mark.parametrize("n_epochs", [1, 2, 3, 40])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-4, 0.5])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_every_step_equals_torch(n_epochs: int, weight_decay: float, container: Any) -> None:
    # Batches that no class has an equal share of: at zero weights its bias's gradient would be rounding, which Adam
    # divides by its own size.
    codes, y = (a[:97] for a in draw(n_classes=5, n=21))
    head = AdamWHead(n_epochs, batch_size=41, weight_decay=weight_decay, random_state=3).fit(container(codes), y)
    weight, bias = torch_head(codes, y, head)
    assert head.coef_.dtype == head.intercept_.dtype == np.float32
    assert head.coef_ == pytest.approx(weight, abs=2e-4)
    assert head.intercept_ == pytest.approx(bias, abs=2e-4)


@pytest.mark.parametrize("n_atoms", [1, 2, 3, 4, 5, 8, 13])
def test_rows_of_any_length(n_atoms: int) -> None:
    """Sparse rows of any length, empty ones too, train the same head as dense ones."""
    rng = np.random.default_rng(n_atoms)
    codes = rng.standard_normal((200, n_atoms)) * (rng.random((200, n_atoms)) < rng.choice([0.0, 0.5, 1.0], (200, 1)))
    y = rng.integers(0, 3, 200)
    dense, thin = (AdamWHead(5, 64).fit(c, y) for c in (codes, sparse.csr_array(codes)))
    assert thin.coef_ == pytest.approx(dense.coef_, abs=1e-4)
    assert thin.intercept_ == pytest.approx(dense.intercept_, abs=1e-4)


def test_large_logits_stay_finite() -> None:
    codes, y = draw()
    for container in (np.asarray, sparse.csr_array):
        head = AdamWHead(300, 16, lr=1.0).fit(container(1e3 * codes), y)
        assert np.isfinite(head.coef_).all()
        assert head.score(container(1e3 * codes), y) > 0.6


def test_the_answer_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    codes, y = sparse.random_array((5000, 20), density=0.3, rng=rng, format="csr"), rng.integers(0, 4, 5000)
    heads = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        heads.append(AdamWHead(3).fit(codes, y).coef_.tolist())
    assert heads[0] == heads[1]


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
    head = restored_head(np.eye(2, dtype=np.float32) * 1e4, np.zeros(2, np.float32), np.arange(2))
    assert head.predict_proba(np.array([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]


# -- saving ----------------------------------------------------------------------------------------


def with_trained_head(labels: list[str], hierarchy: Hierarchy) -> tuple[HCEPClassifier, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((len(labels), 6)), 5, axis=0) + 0.2 * rng.standard_normal((5 * len(labels), 6))
    model = HCEPClassifier.paper(hierarchy).fit(X, np.repeat(labels, 5))
    model.set_params(head=AdamWHead(epochs=20, batch_size=64))
    model.head_ = a_head(len(labels), model.dictionary_.n_atoms)
    model.n_iter_ = 20
    return model, X


@pytest.mark.slow
def test_a_saved_head_predicts_the_same_without_torch(pets: Hierarchy, tmp_path: Path) -> None:
    model, X = with_trained_head(["cat", "car"], pets)
    save_model(model, tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = f"""
import json, sys
import numpy as np
from hcep.models.loading import load_model
model = load_model({str(tmp_path / "model")!r})
X = np.load({str(tmp_path / "X.npy")!r})
print(json.dumps([model.predict(X).tolist(), model.predict_proba(X).tolist(), model.n_iter_, "torch" in sys.modules]))
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert json.loads(out) == [model.predict(X).tolist(), model.predict_proba(X).tolist(), 20, False]


def test_a_saved_head_is_restored(pets: Hierarchy, tmp_path: Path) -> None:
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
    document["parameters"].update(C=1.0, max_iter=1000)
    del document["head"]["kind"]


def test_models_of_version_1_are_still_read(pets: Hierarchy, tmp_path: Path) -> None:
    model, X = with_trained_head(["cat", "dog", "car"], pets)
    model = HCEPClassifier.paper(pets, head="logistic").fit(X, np.repeat(["cat", "dog", "car"], 5))
    loaded = load_model(edited(save_model(model, tmp_path / "model"), as_version_1))
    assert loaded.predict_proba(X).tolist() == model.predict_proba(X).tolist()
    assert loaded.head == "logistic"


def as_version_2_was(document: dict[str, Any]) -> None:
    """Settings of the heads were the estimator's own."""
    document["parameters"].update(C="inf", max_iter=1000, epochs=20, batch_size=64, random_state=7)


def test_models_of_the_last_release_are_still_read(pets: Hierarchy, tmp_path: Path) -> None:
    model, X = with_trained_head(["cat", "dog", "car"], pets)
    loaded = load_model(edited(save_model(model, tmp_path / "model"), as_version_2_was))
    assert loaded.predict_proba(X).tolist() == model.predict_proba(X).tolist()
    assert loaded.head.get_params() == AdamWHead(20, 64, random_state=7).get_params()


@pytest.mark.parametrize("head", ["logistic", "adamw", LogisticRegression(C=7.0), AdamWHead(9, random_state=None)])
def test_a_saved_model_can_be_fitted_again(head: Any, pets: Hierarchy, tmp_path: Path) -> None:
    _, X = with_trained_head(["cat", "car"], pets)
    y = np.repeat(["cat", "car"], 5)
    model = HCEPClassifier.paper(pets, head=head).fit(X, y)
    again = clone(load_model(save_model(model, tmp_path / "model")))
    assert str(again.head) == str(head)
    assert type(again.fit(X, y).head_) is type(model.head_)


# -- what it learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_adamw_learns_what_logistic_regression_does(container: Any) -> None:
    codes, y = draw()
    head = AdamWHead(epochs=300, weight_decay=0.0).fit(container(codes), y)
    reference = LogisticRegression(C=np.inf, max_iter=5000).fit(codes, y)
    assert (head.predict(codes) == reference.predict(codes)).mean() > 0.95
    assert head.predict_proba(codes) == pytest.approx(reference.predict_proba(codes), abs=0.1)


def test_adamw_is_the_same_again_and_depends_on_the_seed() -> None:
    codes, y = draw()
    a, b, c = (AdamWHead(5, 20, random_state=s).fit(codes, y).coef_ for s in (0, 0, 1))
    assert a.tolist() == b.tolist()
    assert a.tolist() != c.tolist()


@pytest.mark.parametrize("name", ["hb-omp", "omp", "linear-probe"])
def test_methods_take_the_head(name: str, pets: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 6)
    X = np.repeat(3.0 * rng.standard_normal((5, 6)), 6, axis=0) + 0.2 * rng.standard_normal((30, 6))
    model = make_method(name, pets, head=AdamWHead(epochs=60)).fit(X, y)
    assert isinstance(model.head_, AdamWHead)
    assert model.n_iter_ == 60
    assert model.score(X, y) > 0.9


@pytest.mark.slow
def test_both_heads_agree_to_half_a_point_on_imagenette(wordnet_dag: Hierarchy) -> None:
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    X, y = data["embeddings"].astype(np.float32), data["wnids"][data["labels"]]
    train = data["split"] == "train"
    scores = [
        make_method("hb-omp", wordnet_dag.as_tree(), head=head).fit(X[train], y[train]).score(X[~train], y[~train])
        for head in ("logistic", "adamw")
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.005)
    assert min(scores) > 0.97


@pytest.mark.slow
def test_tiny_imagenet_is_classified_as_by_torch(wordnet_dag: Hierarchy) -> None:
    """Published settings on HB-OMP codes, a quarter of the training images: accuracy within 0.3 points."""
    pytest.importorskip("torch", reason=TORCH)
    data = np.load(shared_file("data/tinyimagenet200_efficientnet_lite2.npz"), allow_pickle=False)
    used = (data["split"] == "val") | (np.arange(len(data["labels"])) % 4 == 0)
    X, y, train = data["embeddings"][used].astype(np.float32), data["labels"][used], data["split"][used] == "train"
    model = HCEPTransformer(wordnet_dag.as_tree(), beam_width=32, anchor=0.0, shrinkage=None)
    codes = model.fit(X[train], data["wnids"][y[train]]).transform(X)
    head = AdamWHead(random_state=0).fit(codes[train], y[train])
    reference = restored_head(*torch_head(codes[train], y[train], head), head.classes_)
    accuracy, expected = (one.score(codes[~train], y[~train]) for one in (head, reference))
    assert accuracy == pytest.approx(expected, abs=0.003)
