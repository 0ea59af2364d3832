from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from hcep import HCEPClassifier, HCEPTransformer, Hierarchy
from hcep.embeddings.protocol import EncoderRecord
from hcep.models import ModelError, read_model
from hcep.models.loading import load_model
from hcep.models.saving import save_model
from tests.models.conftest import PET_LABELS, PETS, fitted, images
from tests.models.damage import read_files


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tolist() == b.tolist()


def assert_same_answers(a: HCEPClassifier, b: HCEPClassifier, X: np.ndarray) -> None:
    assert_same_bits(a.predict(X), b.predict(X))
    assert_same_bits(a.predict_proba(X), b.predict_proba(X))
    one, other = a.transform(X), b.transform(X)
    assert_same_bits(one.data, other.data)
    assert_same_bits(one.indices, other.indices)
    assert_same_bits(one.indptr, other.indptr)
    one, other = a.pursue(X, n_best=2), b.pursue(X, n_best=2)
    assert one.paths == other.paths
    assert_same_bits(one.residual_norms, other.residual_norms)
    assert_same_bits(one.n_best_nodes, other.n_best_nodes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_answers_are_identical_bit_for_bit(model: HCEPClassifier, dtype: type, tmp_path: Path) -> None:
    loaded = load_model(save_model(model, tmp_path / "model"))
    X = np.random.default_rng(1).normal(size=(50, model.n_features_in_)).astype(dtype) + 1
    assert_same_answers(model, loaded, X)


def test_every_fitted_attribute_comes_back(model: HCEPClassifier, tmp_path: Path) -> None:
    loaded = load_model(save_model(model, tmp_path / "model"))
    in_memory = {"moments_", "_graph", "_prepared"}  # needed for fitting and growing, or made again
    defaults = {name for name in vars(HCEPClassifier) if name.endswith("_") and not name.startswith("_")}
    assert vars(loaded).keys() | in_memory | defaults == vars(model).keys() | in_memory | defaults
    assert loaded.hierarchy_ == model.hierarchy_
    assert loaded.hierarchy_.own_leaves == model.hierarchy_.own_leaves
    assert_same_bits(loaded.classes_, model.classes_)
    assert_same_bits(loaded._leaves, model._leaves)
    assert_same_bits(loaded.dictionary_.synset_embeddings, model.dictionary_.synset_embeddings)
    assert loaded.leave_one_out_ == model.leave_one_out_
    others = ("anchor_", "shrinkage_", "power_", "calibration_", "leaf_moves_", "n_iter_", "prior_")
    for name in (*others, *sorted(defaults)):
        assert repr(getattr(loaded, name)) == repr(getattr(model, name))
    assert repr(loaded.dictionary_.transform) == repr(model.dictionary_.transform)


def test_parameters_come_back_and_the_hierarchy_is_the_fitted_one(model: HCEPClassifier, tmp_path: Path) -> None:
    loaded = load_model(save_model(model, tmp_path / "model"))
    expected = {**model.get_params(), "hierarchy": model.hierarchy and model.hierarchy_}
    assert loaded.get_params() == expected


def test_a_clone_of_a_loaded_model_fits_to_the_same_model(model: HCEPClassifier, tmp_path: Path) -> None:
    loaded = load_model(save_model(model, tmp_path / "model"))
    X, y = images(model.classes_.tolist())
    assert_same_answers(clone(loaded).fit(X, y), clone(model).fit(X, y), X)


def test_saving_what_was_loaded_gives_the_same_files(model: HCEPClassifier, tmp_path: Path) -> None:
    first = save_model(model, tmp_path / "first")
    second = save_model(load_model(first), tmp_path / "second")
    assert read_files(first) == read_files(second)


def test_the_head_is_a_logistic_regression(logistic_model: HCEPClassifier, saved_logistic: Path) -> None:
    head = load_model(saved_logistic).head_
    assert isinstance(head, LogisticRegression)
    assert head.get_params() == logistic_model.head_.get_params()
    assert vars(head).keys() == vars(logistic_model.head_).keys()
    assert_same_bits(head.coef_, logistic_model.head_.coef_)
    assert_same_bits(head.n_iter_, logistic_model.head_.n_iter_)
    assert head.n_features_in_ == logistic_model.head_.n_features_in_


def test_a_head_without_penalty_comes_back(tmp_path: Path) -> None:
    model = fitted(HCEPClassifier(PETS, head=LogisticRegression(C=np.inf, max_iter=5000)), PET_LABELS)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert np.inf == loaded.head_.C == loaded.head.C


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", "b", "c"], dtype="U40"),
        np.array(["a", "b", "c" * 2000]),
        np.array(["a", "b", "c"], dtype=object),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([1, 2, 2**62]),
        np.array([" ", "猫", "a b\n\"c\" \\"]),
    ],
    ids=["wider than needed", "long", "objects", "uint8", "large", "odd"],
)  # fmt: skip
def test_labels_keep_their_type(labels: np.ndarray, tmp_path: Path) -> None:
    X, index = images([0, 1, 2])
    model = HCEPClassifier().fit(X, labels[index])
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert_same_bits(loaded.predict(X), model.predict(X))


def test_feature_names_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = images(PET_LABELS, n_dims=4)
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = HCEPClassifier(PETS).fit(frame, y)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert_same_bits(loaded.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c", "d"]])


def test_a_saved_model_has_the_recorded_facts(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    encoder = EncoderRecord("open_clip:ViT-L-14/openai", "abc123")
    counts = dict.fromkeys(PET_LABELS, 6)
    folder = save_model(
        auto_model, tmp_path / "m", encoder=encoder, data="pets", images_per_class=counts, metrics={"accuracy": 1}
    )
    opened = read_model(folder)
    assert opened.encoder == encoder
    assert (opened.training.data, opened.training.n_images) == ("pets", 36)
    assert opened.training.images_per_class == counts
    assert opened.training.metrics == {"accuracy": 1}
    assert opened.classes.tolist() == PET_LABELS
    assert opened.document.n_dims == 12


def test_a_model_saved_without_facts_has_none(auto_model: HCEPClassifier, tmp_path: Path) -> None:
    opened = read_model(save_model(auto_model, tmp_path / "m"))
    assert opened.encoder is None
    assert (opened.training.data, opened.training.n_images, opened.training.metrics) == (None, 0, {})


def test_loading_a_large_model_is_fast_and_compiles_nothing(tmp_path: Path) -> None:
    n_classes, n_dims = 1859, 768
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_classes, n_dims))
    model = HCEPClassifier(shrinkage=None, anchor=0.1).fit(X, np.arange(n_classes))
    folder = save_model(model, tmp_path / "large")
    start = time.perf_counter()
    loaded = load_model(folder)
    assert time.perf_counter() - start < 1.0
    assert loaded.dictionary_._problems == {}
    assert "path_tree" not in vars(loaded.hierarchy_)


# -- what cannot be saved ------------------------------------------------------------------------------


def test_only_a_classifier_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must be a fitted HCEPClassifier, got HCEPTransformer"):
        save_model(HCEPTransformer(), tmp_path)  # type: ignore[arg-type]


def test_an_unfitted_classifier_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        save_model(HCEPClassifier(), tmp_path)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"tol": float("nan")}, r"cannot be saved: model.json: parameters.tol must be a finite number of at least 0"),
        ({"collapse": 1}, r"parameters.collapse must be true or false, got 1"),
        ({"n_jobs": object()}, r"cannot be saved: model.json: JSON cannot hold this content \(Object of type object"),
        ({"n_jobs": 0.5}, r"parameters.n_jobs must be an integer or null, got 0.5"),
    ],
)
def test_parameters_that_would_not_come_back_are_refused(
    parameters: dict[str, object], match: str, tmp_path: Path
) -> None:
    model = fitted(HCEPClassifier(PETS), PET_LABELS).set_params(**parameters)
    with pytest.raises(ModelError, match=match):
        save_model(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_labels_of_another_type_are_refused(tmp_path: Path) -> None:
    model = fitted(HCEPClassifier(), ["a", "b"])
    model.classes_ = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    with pytest.raises(ModelError, match="JSON cannot hold this content"):
        save_model(model, tmp_path / "model")


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    X, y = images(["a", "b"])
    with pytest.raises(ModelError, match=r"hierarchy.json: a name or id in it is not valid Unicode"):
        save_model(HCEPClassifier().fit(X, np.where(y == "a", "a\ud800", "b")), tmp_path / "model")


@pytest.mark.parametrize(
    ("details", "match"),
    [
        ({"images_per_class": {"catt": 3}}, r"training.images_per_class has 'catt', .* Near matches: 'cat'"),
        ({"images_per_class": {"cat": -1}}, r"training.images_per_class.cat must be an integer of at least 0"),
        ({"metrics": {"accuracy": float("nan")}}, r"training.metrics.accuracy must be a finite number, got nan"),
        ({"metrics": {"accuracy": "high"}}, r"training.metrics.accuracy must be a finite number, got 'high'"),
        ({"data": 3}, r"training.data must be a string, got 3"),
    ],
)
def test_details_are_checked(
    details: dict[str, object], match: str, auto_model: HCEPClassifier, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=match):
        save_model(auto_model, tmp_path / "model", **details)  # type: ignore[arg-type]


def test_trials_on_fewer_images_are_saved_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcep.classify.choosing.POWER_PER_CLASS", 2)
    monkeypatch.setattr("hcep.classify.choosing.POWER_IMAGES", 2)
    X, y = images(PET_LABELS)
    model = HCEPClassifier(PETS).fit(np.abs(X), y)
    assert len({len(score.correct) for score in model.leave_one_out_}) == 2
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.leave_one_out_ == model.leave_one_out_


def test_ranks_and_names_survive_fitting_growing_saving_and_loading(tmp_path: Path) -> None:
    edges = [("life", "Animalia"), ("Animalia", "Felidae"), ("Felidae", "lynx"), ("Felidae", "lion")]
    edges += [("Animalia", "Canidae"), ("Canidae", "fox"), ("life", "Iridaceae"), ("Iridaceae", "iris")]
    ranks = {"Animalia": "kingdom", "Felidae": "family", "Canidae": "family", "Iridaceae": "family"}
    ranks |= dict.fromkeys(("lynx", "lion", "fox", "iris"), "species")
    hierarchy = Hierarchy.from_edges(edges, {"lynx": "Eurasian lynx"}).with_ranks(ranks)
    X, y = images(["lynx", "lion", "fox", "iris"])
    model = HCEPClassifier(hierarchy).fit(X, y)
    model.rename("Felidae", "cats")
    model.move("fox", "Felidae")
    model.add_class("wolf", "Canidae", X[:3] + 1.0)
    loaded = load_model(save_model(model, tmp_path / "model"))
    for h in (
        model.hierarchy_,
        loaded.hierarchy_,
        load_model(tmp_path / "model").add_class("cat", "cats", X[:3]).hierarchy_,
    ):
        assert h.ranks == ranks | {
            s: "species" for s in ("wolf", "cat") if s in h
        }  # new classes get that of the others
        assert h.rank_names == ("kingdom", "family", "species")
        assert h.name("lynx") == "Eurasian lynx"
        assert h.lineage("lion") == {"kingdom": "Animalia", "family": "cats", "species": "lion"}
