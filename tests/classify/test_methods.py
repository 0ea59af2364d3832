"""All methods behind one interface: what each must do, and what it must equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from hcep import HCEPClassifier, HCEPError, Hierarchy, HierarchyError, hb_omp, omp, support_scores
from hcep.classify import METHODS, hnn, make_method, nn
from hcep.classify.choosing import SHRINKAGES
from hcep.classify.methods import (
    CBMClassifier,
    ConceptMethod,
    HNNClassifier,
    LDAClassifier,
    LinearProbe,
    NNClassifier,
    NonNegativeLassoClassifier,
    OMPClassifier,
    TreeLassoClassifier,
)
from hcep.pursuit import FlatResult, PathResult, lasso, tree_lasso

pytest.importorskip("skglm", reason="two of the methods are skglm's")

NAMES = [
    "omp", "hier-omp", "hb-omp", "exact", "signed", "anchored", "hcep", "no-tree", "nearest-mean", "cbm", "nn", "hnn",
    "linear-probe", "lda", "nn-lasso", "basis-pursuit", "tree-l1",
]  # fmt: skip
QUICK = {"cbm": {"concept_epochs": 60}}
EVERY_METHOD = pytest.mark.parametrize("name", NAMES)


@parametrize_with_checks([OMPClassifier()])
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([NNClassifier(), LDAClassifier(), TreeLassoClassifier(), CBMClassifier(concept_epochs=10)])
def test_the_contract_of_scikit_learn_by_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def animals() -> Hierarchy:
    """Two-way and three-way splits: root -> (pet -> (cat, dog), wild -> (fox, wolf, bear))."""
    edges = [("root", "pet"), ("root", "wild"), ("pet", "cat"), ("pet", "dog")]
    return Hierarchy.from_edges([*edges, ("wild", "fox"), ("wild", "wolf"), ("wild", "bear")])


@pytest.fixture(scope="module")
def training(animals: Hierarchy) -> tuple[np.ndarray, np.ndarray]:
    """Ten images of each of five classes, in eight dimensions, well apart."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.array(animals.leaves), 10)
    means = 3.0 * rng.standard_normal((5, 8))
    return np.repeat(means, 10, axis=0) + 0.4 * rng.standard_normal((50, 8)), y


def make(name: str, hierarchy: Hierarchy | None, **options: Any) -> Any:
    return make_method(name, hierarchy, **{**QUICK.get(name, {}), **options})


# -- one interface ---------------------------------------------------------------------------------


@EVERY_METHOD
def test_every_method_fits_pursues_and_predicts(name: str, animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = make(name, animals).fit(X, y)
    found = model.pursue(X)
    assert isinstance(found, PathResult | FlatResult)
    assert found.codes.shape == (50, model.dictionary_.n_atoms)
    assert len(found.supports) == len(found.residual_norms) == 50
    assert model.classes_.tolist() == sorted(animals.leaves)
    assert model.hierarchy_ == model.dictionary_.hierarchy
    assert model.score(X, y) >= 0.8
    support_scores(found, y, model.hierarchy_)


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_sum_to_1_and_the_largest_is_the_prediction(
    name: str, animals: Hierarchy, training: Any, dtype: type
) -> None:
    X, y = training
    model = make(name, animals).fit(X.astype(dtype), y)
    new = (X + np.random.default_rng(1).standard_normal(X.shape)).astype(dtype)
    probabilities = model.predict_proba(new)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(50))
    assert model.classes_[probabilities.argmax(axis=1)].tolist() == model.predict(new).tolist()


@EVERY_METHOD
@pytest.mark.parametrize("max_steps", [1, 2])
def test_no_support_is_larger_than_asked(name: str, max_steps: int, animals: Hierarchy, training: Any) -> None:
    X, y = training
    sizes = [len(s) for s in make(name, animals, max_steps=max_steps).fit(X, y).pursue(X).supports]
    assert max(sizes) <= max_steps


@EVERY_METHOD
def test_fitting_again_gives_the_same(name: str, animals: Hierarchy, training: Any) -> None:
    X, y = training
    one, two = (make(name, animals, n_jobs=n).fit(X, y) for n in (1, 2))
    assert one.pursue(X).supports == two.pursue(X).supports
    assert one.predict_proba(X).tolist() == two.predict_proba(X).tolist()


@EVERY_METHOD
def test_one_class_and_no_hierarchy(name: str) -> None:
    X = np.random.default_rng(0).standard_normal((6, 4))
    model = make(name, None).fit(X, np.zeros(6, dtype=int))
    assert model.predict(X[:2]).tolist() == [0, 0]
    assert model.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]


@EVERY_METHOD
def test_labels_keep_their_type_without_a_hierarchy(name: str) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([3, 10, 20], 8)
    X = np.repeat(4.0 * np.eye(3, 5), 8, axis=0) + 0.1 * rng.standard_normal((24, 5))
    predicted = make(name, None).fit(X, y).predict(X)
    assert predicted.dtype == y.dtype
    assert predicted.tolist() == y.tolist()


@EVERY_METHOD
def test_classes_outside_the_hierarchy_are_named(name: str, animals: Hierarchy, training: Any) -> None:
    X, y = training
    with pytest.raises(HierarchyError, match=r"1 of 5 classes is no concept of the hierarchy: 'wolves'"):
        make(name, animals).fit(X, np.where(y == "wolf", "wolves", y))


def test_pursuing_paths_and_supports_is_the_same(animals: Hierarchy, training: Any) -> None:
    found = make("hb-omp", animals).fit(*training).pursue(training[0])
    assert found.supports == found.paths


# -- what each one is ------------------------------------------------------------------------------


def codes_of_the_function(name: str, model: Any, X: np.ndarray) -> Any:
    d, depth = model.dictionary_, model.hierarchy_.depth
    functions = {
        "omp": lambda: omp(X, d, depth),
        "hier-omp": lambda: hb_omp(X, d, beam_width=1),
        "hb-omp": lambda: hb_omp(X, d, beam_width=8),
        "exact": lambda: hb_omp(X, d, beam_width=None),
        "signed": lambda: hb_omp(X, d, beam_width=None, signed=True),
        "anchored": lambda: hb_omp(X, d, beam_width=None, anchor=model.anchor_),
        "nn": lambda: nn(X, d),
        "hnn": lambda: hnn(X, d),
        "nearest-mean": lambda: nn(X, d),
        "nn-lasso": lambda: lasso(X, d, depth, positive=True),
        "basis-pursuit": lambda: lasso(X, d, depth),
        "tree-l1": lambda: tree_lasso(X, d, depth),
    }
    return functions[name]().codes.toarray()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"hcep", "no-tree", "cbm", "linear-probe", "lda"}))
def test_codes_are_those_of_the_function(name: str, animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = make(name, animals).fit(X, y)
    assert model.pursue(X).codes.toarray() == pytest.approx(codes_of_the_function(name, model, X))


@pytest.mark.parametrize("name", ["omp", "hnn", "hb-omp", "nn-lasso", "tree-l1"])
def test_the_head_is_logistic_regression_on_the_codes(name: str, animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = make(name, animals, head=LogisticRegression(C=3.0, max_iter=1000)).fit(X, y)
    reference = LogisticRegression(C=3.0, max_iter=1000).fit(model.pursue(X).codes, y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(model.pursue(X).codes), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hier-omp", {"beam_width": 1, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("hb-omp", {"beam_width": 8, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("exact", {"beam_width": None, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("signed", {"beam_width": None, "anchor": 0.0, "shrinkage": None, "signed": True, "head": "logistic"}),
        ("anchored", {"beam_width": None, "anchor": "auto", "shrinkage": None, "signed": False, "head": "path"}),
        ("hcep", HCEPClassifier().get_params()),
    ],
)
def test_the_family_of_paths(name: str, options: dict[str, Any]) -> None:
    model = make_method(name)
    assert isinstance(model, HCEPClassifier)
    assert {option: model.get_params()[option] for option in options} == options


def test_without_a_tree_every_class_hangs_from_the_root(animals: Hierarchy, training: Any) -> None:
    X, y = training
    model, flat = make("no-tree", animals).fit(X, y), HCEPClassifier().fit(X, y)
    assert model.hierarchy_ == flat.hierarchy_
    assert model.predict_proba(X).tolist() == flat.predict_proba(X).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_mean_in_the_metric_that_the_images_choose(animals: Hierarchy, training: Any, dtype: type) -> None:
    X, y = training[0].astype(dtype), training[1]
    model = make("nearest-mean", animals).fit(X, y)
    assert {s.shrinkage for s in model.leave_one_out_} == set(SHRINKAGES)
    assert model.shrinkage_ in SHRINKAGES
    far = HCEPClassifier(animals, shrinkage=model.shrinkage_, anchor=1e6).fit(X, y)
    new = X + np.random.default_rng(1).standard_normal(X.shape).astype(dtype)
    assert model.predict(new).tolist() == far.predict(new).tolist()


def test_lda_is_scikit_learns_with_a_shrinkage_chosen_on_the_training_images(animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = LDAClassifier(animals).fit(X, y)
    assert model.shrinkage_ in SHRINKAGES
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=model.shrinkage_).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(X), abs=1e-6)


def test_lda_of_one_image_per_class_takes_the_nearest(animals: Hierarchy, training: Any) -> None:
    X, y = training
    assert LDAClassifier(animals).fit(X[::10], y[::10]).predict(X[::10]).tolist() == y[::10].tolist()


def test_the_name_of_an_earlier_release_still_works() -> None:
    assert type(make_method("splice")) is NonNegativeLassoClassifier


def test_nn_is_accurate_whatever_the_support(animals: Hierarchy, training: Any) -> None:
    X, y = training
    full, cut = (NNClassifier(animals, max_steps=k).fit(X, y) for k in (None, 1))
    assert full.predict(X).tolist() == cut.predict(X).tolist() == nn(X, full.dictionary_).leaves.tolist()
    assert {len(path) for path in cut.pursue(X).paths} == {1}


def test_cut_paths_are_measured_again(animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = HNNClassifier(animals, max_steps=1).fit(X, y)
    found = model.pursue(X)
    ends = np.array([model.dictionary_.synset_embedding(path[0]) for path in found.paths])
    assert found.residual_norms == pytest.approx(np.linalg.norm(X - ends, axis=1))
    assert found.codes.sum(axis=1).tolist() == [1.0] * 50


def test_nns_temperature_makes_left_out_images_likely(animals: Hierarchy, training: Any) -> None:
    X, y = training
    X = X + 4.0 * np.random.default_rng(2).standard_normal(X.shape)
    model = NNClassifier(animals).fit(X, y)
    losses: dict[float, list[float]] = {0.2: [], 1.0: [], 5.0: []}
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        left_out = NNClassifier(animals).fit(X[rest], y[rest])
        for factor, each in losses.items():
            left_out.calibration_ = replace(model.calibration_, temperature=factor * model.calibration_.temperature)
            each.append(-np.log(left_out.predict_proba(X[i : i + 1])[0, model.classes_ == y[i]][0]))
    assert min(losses, key=lambda factor: float(np.mean(losses[factor]))) == 1.0


def test_a_probe_names_nothing(animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = LinearProbe(animals, center=True).fit(X, y)
    found = model.pursue(X)
    assert found.supports == [()] * 50
    assert np.isnan(found.residual_norms).all()
    reference = LogisticRegression(max_iter=1000).fit(X - X.mean(axis=0), y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(X - X.mean(axis=0)), abs=1e-6)


def test_a_given_penalty_is_used(animals: Hierarchy, training: Any) -> None:
    X, y = training
    model = TreeLassoClassifier(animals, alpha=0.25, mixing=1.0).fit(X, y)
    assert model.alpha_ == 0.25
    expected = tree_lasso(X, model.dictionary_, 2, alpha=0.25, mixing=1.0).codes.toarray()
    assert model.pursue(X).codes.toarray() == pytest.approx(expected)


# -- the registry ----------------------------------------------------------------------------------


def test_the_registry_has_every_method_once() -> None:
    assert list(METHODS) == NAMES
    assert all(method.name == name for name, method in METHODS.items())
    assert len({method.label for method in METHODS.values()}) == len(NAMES)
    assert [n for n, m in METHODS.items() if m.published] == ["omp", "hier-omp", "hb-omp", "cbm", "nn", "hnn"]
    assert all(m.description.endswith(".") for m in METHODS.values())


def test_the_beam_is_for_hb_omp_alone() -> None:
    assert make_method("hb-omp", beam_width=32).beam_width == 32
    assert make_method("hier-omp", beam_width=32).beam_width == 1
    assert make_method("exact", beam_width=32).beam_width is None
    assert make_method("omp", beam_width=32).get_params() == OMPClassifier().get_params()


def test_a_head_and_options_are_passed_on(pets: Hierarchy) -> None:
    assert make_method("hb-omp", pets, head="path").head == "path"
    model = make_method("tree-l1", pets, max_steps=3, head="adamw", mixing=0.9, n_jobs=1)
    wanted = {"max_steps": 3, "head": "adamw", "mixing": 0.9, "n_jobs": 1}
    assert {name: model.get_params()[name] for name in wanted} == wanted
    assert model.hierarchy is pets


def test_unknown_methods_and_options() -> None:
    with pytest.raises(HCEPError, match=r"method 'hbomp' is unknown; .* Near matches: 'hb-omp'"):
        make_method("hbomp")
    with pytest.raises(HCEPError, match=r"method 'tree-l1' has no option 'mixin'; .* Near matches: 'mixing'"):
        make_method("tree-l1", mixin=0.1)
    with pytest.raises(HCEPError, match=r"method 'nn' has no option 'head'; it has 'tree', 'collapse'"):
        make_method("nn", head="logistic")


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("omp", {"max_steps": 0}, r"max_steps must be a positive integer, or None for the depth"),
        ("omp", {"head": "path"}, r"head must be 'logistic' or 'adamw' or a scikit-learn classifier, got 'path'"),
        ("nn", {"max_steps": 1.5}, r"max_steps must be a positive integer"),
        ("nn-lasso", {"alpha": 2.0}, r"alpha must be a number above 0 and at most 1"),
        ("tree-l1", {"mixing": -1.0}, r"mixing must be a number from 0 to 1, got -1.0"),
    ],
)
def test_bad_options(
    name: str, options: dict[str, Any], match: str, animals: Hierarchy, training: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(HCEPError, match=match):
        make_method(name, animals, **options).fit(*training)


def test_a_method_must_say_how_it_codes(animals: Hierarchy, training: Any) -> None:
    with pytest.raises(NotImplementedError):
        ConceptMethod(animals).fit(*training)
