"""The methods of `hcep evaluate --compare`: what each must do, and what it must equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from hcep import HCEPClassifier, HCEPError, Hierarchy, hb_omp, omp
from hcep.classify import METHODS, hnn, make_method, nn
from hcep.classify.choosing import SHRINKAGES
from hcep.classify.methods import ConceptMethod
from hcep.classify.methods.baselines import LDAClassifier, LinearProbe, OMPClassifier
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from tests.classify.method_contract import ANIMALS, MethodContract, X, Y

NAMES = ["omp", "hb-omp", "hcep", "nearest-mean", "nn", "hnn", "linear-probe", "lda"]


@pytest.mark.parametrize("name", NAMES)
class TestMethods(MethodContract):
    def make(self, name: str, hierarchy: Hierarchy | None, **options: Any) -> Any:
        return make_method(name, hierarchy, **options)


@parametrize_with_checks([OMPClassifier()])
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([NNClassifier(), LDAClassifier()])
def test_the_contract_of_scikit_learn_by_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


def test_paths_and_supports_are_the_same() -> None:
    result = make_method("hb-omp", ANIMALS).fit(X, Y).pursue(X)
    assert result.supports == result.paths


# -- what each one is ------------------------------------------------------------------------------

FUNCTIONS = {
    "omp": lambda model: omp(X, model.dictionary_, model.hierarchy_.depth),
    "hb-omp": lambda model: hb_omp(X, model.dictionary_, beam_width=8),
    "nn": lambda model: nn(X, model.dictionary_),
    "hnn": lambda model: hnn(X, model.dictionary_),
    "nearest-mean": lambda model: nn(X, model.dictionary_),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_codes_equal_those_of_the_function(name: str) -> None:
    model = make_method(name, ANIMALS).fit(X, Y)
    assert model.pursue(X).codes.toarray() == pytest.approx(FUNCTIONS[name](model).codes.toarray())


@pytest.mark.parametrize("name", ["omp", "hnn", "hb-omp"])
def test_the_head_is_logistic_regression_on_the_codes(name: str) -> None:
    model = make_method(name, ANIMALS, head=LogisticRegression(C=3.0, max_iter=1000)).fit(X, Y)
    reference = LogisticRegression(C=3.0, max_iter=1000).fit(model.pursue(X).codes, Y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(model.pursue(X).codes), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hb-omp", {"beam_width": 8, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("hcep", HCEPClassifier().get_params()),
    ],
)
def test_settings_of_the_path_methods(name: str, options: dict[str, Any]) -> None:
    model = make_method(name)
    assert isinstance(model, HCEPClassifier)
    assert {option: model.get_params()[option] for option in options} == options


def test_hb_omp_is_the_published_configuration_with_a_convex_head() -> None:
    assert make_method("hb-omp").get_params() == HCEPClassifier.paper(head="logistic").get_params()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_mean_in_the_metric_that_the_images_choose(dtype: type) -> None:
    images = X.astype(dtype)
    model = make_method("nearest-mean", ANIMALS).fit(images, Y)
    assert {s.shrinkage for s in model.leave_one_out_} == set(SHRINKAGES)
    assert model.shrinkage_ in SHRINKAGES
    far = HCEPClassifier(ANIMALS, shrinkage=model.shrinkage_, anchor=1e6).fit(images, Y)
    new = images + np.random.default_rng(1).standard_normal(X.shape).astype(dtype)
    assert model.predict(new).tolist() == far.predict(new).tolist()


def test_lda_is_scikit_learns_with_a_shrinkage_chosen_on_the_training_images() -> None:
    model = LDAClassifier(ANIMALS).fit(X, Y)
    assert model.shrinkage_ in SHRINKAGES
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=model.shrinkage_).fit(X, Y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(X), abs=1e-6)


def test_lda_of_one_image_per_class_takes_the_nearest() -> None:
    assert LDAClassifier(ANIMALS).fit(X[::10], Y[::10]).predict(X[::10]).tolist() == Y[::10].tolist()


def test_the_accuracy_of_nn_does_not_depend_on_the_support() -> None:
    full, cut = (NNClassifier(ANIMALS, max_steps=k).fit(X, Y) for k in (None, 1))
    assert full.predict(X).tolist() == cut.predict(X).tolist() == nn(X, full.dictionary_).leaves.tolist()
    assert {len(path) for path in cut.pursue(X).paths} == {1}


def test_cut_paths_are_measured_again() -> None:
    model = HNNClassifier(ANIMALS, max_steps=1).fit(X, Y)
    result = model.pursue(X)
    ends = np.array([model.dictionary_.synset_embedding(path[0]) for path in result.paths])
    assert result.residual_norms == pytest.approx(np.linalg.norm(X - ends, axis=1))
    assert result.codes.sum(axis=1).tolist() == [1.0] * 50


def test_the_temperature_of_nn_makes_left_out_images_likely() -> None:
    images = X + 4.0 * np.random.default_rng(2).standard_normal(X.shape)
    model = NNClassifier(ANIMALS).fit(images, Y)
    losses: dict[float, list[float]] = {0.2: [], 1.0: [], 5.0: []}
    for i in range(len(images)):
        rest = np.arange(len(images)) != i
        left_out = NNClassifier(ANIMALS).fit(images[rest], Y[rest])
        for factor, each in losses.items():
            left_out.calibration_ = replace(model.calibration_, temperature=factor * model.calibration_.temperature)
            each.append(-np.log(left_out.predict_proba(images[i : i + 1])[0, model.classes_ == Y[i]][0]))
    assert min(losses, key=lambda factor: float(np.mean(losses[factor]))) == 1.0


def test_a_probe_names_no_concepts() -> None:
    model = LinearProbe(ANIMALS, center=True).fit(X, Y)
    result = model.pursue(X)
    assert result.supports == [()] * 50
    assert np.isnan(result.residual_norms).all()
    reference = LogisticRegression(max_iter=1000).fit(X - X.mean(axis=0), Y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(X - X.mean(axis=0)), abs=1e-6)


# -- the registry ----------------------------------------------------------------------------------


def test_the_registry_has_every_method_once() -> None:
    assert list(METHODS) == NAMES
    assert all(method.name == name for name, method in METHODS.items())
    assert len({method.label for method in METHODS.values()}) == len(NAMES)


def test_options_are_passed_on(pets: Hierarchy) -> None:
    assert make_method("hb-omp", beam_width=32).beam_width == 32
    assert make_method("hb-omp", pets, head="path").head == "path"
    model = make_method("omp", pets, max_steps=3, head="adamw", n_jobs=1)
    wanted = {"max_steps": 3, "head": "adamw", "n_jobs": 1}
    assert {name: model.get_params()[name] for name in wanted} == wanted
    assert model.hierarchy is pets


def test_unknown_methods_and_options() -> None:
    with pytest.raises(HCEPError, match=r"method 'hbomp' is unknown; .* Near matches: 'hb-omp'"):
        make_method("hbomp")
    with pytest.raises(HCEPError, match=r"method 'omp' has no option 'max_step'; .* Near matches: 'max_steps'"):
        make_method("omp", max_step=1)
    with pytest.raises(HCEPError, match=r"method 'nn' has no option 'head'; its options are 'center', 'collapse'"):
        make_method("nn", head="logistic")


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("omp", {"max_steps": 0}, r"max_steps must be a positive integer, or None for the depth"),
        ("omp", {"head": "path"}, r"head must be 'logistic' or 'adamw' or a scikit-learn classifier, got 'path'"),
        ("nn", {"max_steps": 1.5}, r"max_steps must be a positive integer"),
    ],
)
def test_invalid_options_are_rejected(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        make_method(name, ANIMALS, **options).fit(X, Y)


def test_a_method_must_implement_its_code() -> None:
    with pytest.raises(NotImplementedError):
        ConceptMethod(ANIMALS).fit(X, Y)
