"""A classifier with concepts forced or forbidden: no answer breaks the request, probabilities are those left."""

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from hcep import HCEPClassifier
from hcep.datasets import load_sample
from hcep.errors import HCEPError, HierarchyError

SAMPLE = load_sample()
X, Y = SAMPLE.X_train[::5], SAMPLE.y_train[::5]
NEW = SAMPLE.X_val[::5]
MODELS = {
    "path": {"anchor": 0.1},
    "signed": {"signed": True, "anchor": 0.02},
    "beam": {"beam_width": 3, "anchor": 0.1},
    "short": {"max_steps": 2, "anchor": 0.1},
    "head": {"anchor": 0.1, "head": "logistic"},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return HCEPClassifier(SAMPLE.hierarchy, shrinkage=None, **MODELS[request.param]).fit(X, Y)


def below(model, name):
    """Classes below a concept."""
    h = model.hierarchy_
    concept = h.find(name)
    return {c for c in model.classes_ if c == concept or concept in h.ancestors(h.leaf_of(c))}


def test_answers_respect_forced_and_forbidden_concepts(model):
    vehicles = below(model, "artifact")
    assert 0 < len(vehicles) < 10
    forced = model.predict(NEW, force="artifact")
    assert set(forced) <= vehicles
    assert set(model.infer(NEW, force="artifact").labels) <= vehicles
    assert not set(model.predict(NEW, forbid="artifact")) & vehicles
    barred = set(model.predict(NEW)) & vehicles
    assert not set(model.predict(NEW, force="artifact", forbid=sorted(barred)[:2])) & set(sorted(barred)[:2])


def test_probabilities_of_the_classes_left_add_up(model):
    vehicles = below(model, "artifact")
    left = np.isin(model.classes_, list(vehicles))
    odds = model.predict_proba(NEW, force="artifact")
    assert (odds[:, ~left] == 0).all()
    assert np.allclose(odds.sum(axis=1), 1)
    assert (model.classes_[odds.argmax(axis=1)] == model.predict(NEW, force="artifact")).all()
    assert (model.infer(NEW, force="artifact").probabilities == odds).all()


def test_requests_that_the_answer_meets_already_change_nothing(model):
    free, probabilities = model.predict(NEW), model.predict_proba(NEW)
    for label in np.unique(free):
        rows = free == label
        assert (model.predict(NEW[rows], forbid=[c for c in model.classes_ if c != label][:3]) == label).all()
        assert (model.predict(NEW[rows], force=label) == label).all()
    assert (model.predict_proba(NEW, force=(), forbid=()) == probabilities).all()


def test_probabilities_are_renormalised():
    model = HCEPClassifier(SAMPLE.hierarchy, shrinkage=None, anchor=0.1).fit(X, Y)
    free, gone = model.predict_proba(NEW), model.classes_[3]
    left = model.classes_ != gone
    wanted = free[:, left] / free[:, left].sum(axis=1, keepdims=True)
    # Matrix products of another size round differently in single precision.
    assert np.allclose(model.predict_proba(NEW, forbid=gone)[:, left], wanted, rtol=1e-4, atol=1e-9)


def test_a_class_of_several_routes_keeps_the_open_one(diamond):
    rng = np.random.default_rng(0)
    centres = {"cat": [2.0, 2.0, 0.0], "hamster": [2.0, 0.0, 1.0], "lion": [0.0, 2.0, 1.0]}
    y = np.repeat(list(centres), 6)
    images = np.array([centres[c] for c in y]) + 0.1 * rng.standard_normal((18, 3))
    model = HCEPClassifier(diamond, shrinkage=None, anchor=0.1).fit(images, y)
    assert set(model.pursue(images, force="feline").paths) == {("feline", "cat"), ("feline", "lion")}
    assert set(model.predict(images, forbid="pet")) == {"cat", "lion"}
    assert set(model.predict(images, forbid="cat")) == {"hamster", "lion"}


def test_requests_that_cannot_be_met_are_rejected():
    model = HCEPClassifier(SAMPLE.hierarchy, shrinkage=None, anchor=0.1).fit(X, Y)
    with pytest.raises(HierarchyError, match="force: no path has all of 'tench', 'garbage truck'"):
        model.predict(NEW, force=["tench", "garbage truck"])
    with pytest.raises(HierarchyError, match=r"'garbge truck' is not a concept.*Near matches: 'garbage truck'"):
        model.predict_proba(NEW, forbid="garbge truck")


def test_a_head_without_probabilities_says_so():
    model = HCEPClassifier(SAMPLE.hierarchy, shrinkage=None, anchor=0.1, head=LinearSVC()).fit(X, Y)
    with pytest.raises(HCEPError, match="LinearSVC, gives no probabilities"):
        model.predict(NEW, force="artifact")
