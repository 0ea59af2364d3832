"""The methods that only the paper's comparisons need, and the registry of all methods."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from experiments.baselines.cbm import CBMClassifier
from experiments.baselines.methods import METHODS, TreeLassoClassifier, make_method
from experiments.baselines.penalised import lasso, tree_lasso
from hcep import HCEPClassifier, HCEPError, Hierarchy, hb_omp
from hcep.classify.methods.baselines import OMPClassifier
from tests.classify.method_contract import ANIMALS, MethodContract, X, Y

pytest.importorskip("skglm", reason="two of the methods are skglm's")

OWN = ["hier-omp", "exact", "signed", "anchored", "no-tree", "cbm", "nn-lasso", "basis-pursuit", "tree-l1"]
ALL = [
    "omp", "hier-omp", "hb-omp", "exact", "signed", "anchored", "hcep", "no-tree", "nearest-mean", "cbm", "nn", "hnn",
    "linear-probe", "lda", "nn-lasso", "basis-pursuit", "tree-l1", "splice", "ip-omp",
]  # fmt: skip
QUICK = {"cbm": {"concept_epochs": 60}}


def make(name: str, hierarchy: Hierarchy | None, **options: Any) -> Any:
    return make_method(name, hierarchy, **{**QUICK.get(name, {}), **options})


@pytest.mark.parametrize("name", OWN)
class TestMethods(MethodContract):
    make = staticmethod(make)


@pytest.mark.slow
@parametrize_with_checks([TreeLassoClassifier(), CBMClassifier(concept_epochs=10)])
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


FUNCTIONS = {
    "hier-omp": lambda model: hb_omp(X, model.dictionary_, beam_width=1),
    "exact": lambda model: hb_omp(X, model.dictionary_, beam_width=None),
    "signed": lambda model: hb_omp(X, model.dictionary_, beam_width=None, signed=True),
    "anchored": lambda model: hb_omp(X, model.dictionary_, beam_width=None, anchor=model.anchor_),
    "nn-lasso": lambda model: lasso(X, model.dictionary_, model.hierarchy_.depth, positive=True),
    "basis-pursuit": lambda model: lasso(X, model.dictionary_, model.hierarchy_.depth),
    "tree-l1": lambda model: tree_lasso(X, model.dictionary_, model.hierarchy_.depth),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_codes_equal_those_of_the_function(name: str) -> None:
    model = make(name, ANIMALS).fit(X, Y)
    assert model.pursue(X).codes.toarray() == pytest.approx(FUNCTIONS[name](model).codes.toarray())


@pytest.mark.parametrize("name", ["nn-lasso", "tree-l1"])
def test_the_head_is_logistic_regression_on_the_codes(name: str) -> None:
    model = make(name, ANIMALS, head=LogisticRegression(C=3.0, max_iter=1000)).fit(X, Y)
    reference = LogisticRegression(C=3.0, max_iter=1000).fit(model.pursue(X).codes, Y)
    assert model.predict_proba(X) == pytest.approx(reference.predict_proba(model.pursue(X).codes), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hier-omp", {"beam_width": 1, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("exact", {"beam_width": None, "anchor": 0.0, "shrinkage": None, "signed": False, "head": "logistic"}),
        ("signed", {"beam_width": None, "anchor": 0.0, "shrinkage": None, "signed": True, "head": "logistic"}),
        ("anchored", {"beam_width": None, "anchor": "auto", "shrinkage": None, "signed": False, "head": "path"}),
    ],
)
def test_settings_of_the_path_methods(name: str, options: dict[str, Any]) -> None:
    model = make_method(name)
    assert isinstance(model, HCEPClassifier)
    assert {option: model.get_params()[option] for option in options} == options


def test_without_a_tree_every_class_hangs_from_the_root() -> None:
    model, flat = make("no-tree", ANIMALS).fit(X, Y), HCEPClassifier().fit(X, Y)
    assert model.hierarchy_ == flat.hierarchy_
    assert model.predict_proba(X).tolist() == flat.predict_proba(X).tolist()


def test_a_penalty_that_is_passed_is_used() -> None:
    model = TreeLassoClassifier(ANIMALS, alpha=0.25, mixing=1.0).fit(X, Y)
    assert model.alpha_ == 0.25
    expected = tree_lasso(X, model.dictionary_, 2, alpha=0.25, mixing=1.0).codes.toarray()
    assert model.pursue(X).codes.toarray() == pytest.approx(expected)


# -- the registry ----------------------------------------------------------------------------------


def test_the_registry_has_every_method_once() -> None:
    assert list(METHODS) == ALL
    assert all(method.name == name for name, method in METHODS.items())
    assert len({method.label for method in METHODS.values()}) == len(ALL)


def test_only_hb_omp_takes_the_beam() -> None:
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


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("nn-lasso", {"alpha": 2.0}, r"alpha must be a number above 0 and at most 1"),
        ("tree-l1", {"mixing": -1.0}, r"mixing must be a number from 0 to 1, got -1.0"),
    ],
)
def test_invalid_options_are_rejected(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        make_method(name, ANIMALS, **options).fit(X, Y)
