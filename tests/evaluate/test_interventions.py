"""Accuracy after correcting levels by the truth: it never falls, and ends at 1."""

from itertools import pairwise

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.datasets import make_hierarchical_concepts
from hcep.errors import HCEPError
from hcep.evaluate import evaluate_method
from hcep.evaluate.grade import intervention_curve, limited
from hcep.pursuit.limits import PathLimits
from tests.conftest import k_shot

DATA = make_hierarchical_concepts(branching=3, depth=3, dim=10, samples_per_leaf=6)
DATA.X = DATA.X + 2.0 * np.random.default_rng(0).standard_normal(DATA.X.shape)
OPTIONS = {"shrinkage": None, "anchor": 0.1, "power": 1.0, "refine": False}


@pytest.mark.parametrize("more", [{}, {"signed": True}, {"head": "logistic"}, {"max_steps": 2}])
def test_corrections_never_hurt_and_all_of_them_are_enough(more):
    model = HCEPClassifier(DATA.hierarchy, **OPTIONS | more).fit(DATA.X[::2], DATA.y[::2])
    X, y = DATA.X[1::2], DATA.y[1::2]
    curve = intervention_curve(model, X, y)
    assert [row.n_levels for row in curve] == list(range(model.hierarchy_.depth + 1))
    assert curve[0].accuracy == pytest.approx(np.mean(model.predict(X) == y))
    assert curve[0].accuracy < 1
    assert np.diff([row.accuracy for row in curve]).min() >= 0 or "head" in more
    assert curve[-1].accuracy == 1
    for a, b in pairwise(curve):
        assert b.gain == pytest.approx(b.accuracy - a.accuracy)
        assert b.gain_low <= b.gain <= b.gain_high
        assert b.low <= b.accuracy <= b.high


def test_level_one_equals_forcing_by_hand():
    model = HCEPClassifier(DATA.hierarchy, **OPTIONS).fit(DATA.X, DATA.y)
    h = DATA.hierarchy
    first = [h.paths(h.leaf_of(label))[0][0] for label in DATA.y.tolist()]
    by_hand = [model.predict(x[None], force=concept)[0] for x, concept in zip(DATA.X[:40], first, strict=False)]
    accuracy = intervention_curve(model, DATA.X[:40], DATA.y[:40])[1].accuracy
    assert accuracy == pytest.approx(np.mean(np.array(by_hand) == DATA.y[:40]))


def test_all_paths_to_a_class_are_true(diamond):
    rng = np.random.default_rng(0)
    centres = {"cat": [2.0, 2.0, 0.0], "hamster": [2.0, 0.0, 1.0], "lion": [0.0, 2.0, 1.0]}
    y = np.repeat(list(centres), 8)
    X = np.array([centres[c] for c in y]) + 0.8 * rng.standard_normal((24, 3))
    curve = intervention_curve(HCEPClassifier(diamond, **OPTIONS).fit(X, y), X, y)
    assert [row.n_levels for row in curve] == [0, 1, 2]
    assert curve[-1].accuracy == 1


def test_unknown_labels_are_rejected():
    model = HCEPClassifier(DATA.hierarchy, **OPTIONS).fit(DATA.X, DATA.y)
    with pytest.raises(HCEPError, match="y: 'unicorn' are not classes of the model"):
        intervention_curve(model, DATA.X[:1], ["unicorn"])


def test_a_limited_classifier_is_graded_as_it_answers():
    model = HCEPClassifier(DATA.hierarchy, **OPTIONS).fit(DATA.X, DATA.y)
    gone = model.classes_[0]
    limited_model = limited(model, PathLimits.of(model.hierarchy_, forbid=gone))
    scores = evaluate_method(limited_model, DATA.X, DATA.y)
    assert gone not in scores.predicted
    assert scores.summary()["correct"] == pytest.approx(np.mean(model.predict(DATA.X, forbid=gone) == DATA.y))
    assert gone in evaluate_method(model, DATA.X, DATA.y).predicted


@pytest.mark.slow
def test_each_level_corrected_raises_accuracy_on_tiny_imagenet(tiny_imagenet):
    X, y = k_shot(tiny_imagenet["X"], tiny_imagenet["y"], 25)
    model = HCEPClassifier(tiny_imagenet["hierarchy"]).fit(X, y)
    curve = intervention_curve(model, tiny_imagenet["X_val"], tiny_imagenet["y_val"])
    assert 0.6 < curve[0].accuracy < 0.7
    assert all(row.gain_low > 0 for row in curve[1:] if row.accuracy < 1)
    assert curve[1].gain_low > 0.005
    assert curve[-1].accuracy == 1
