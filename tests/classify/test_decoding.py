"""Answers that minimise an expected cost, against sums over all concepts and classes."""

from typing import Any

import numpy as np
import pytest

from hcep import HCEPClassifier, HCEPError
from hcep.classify.decoding import decode
from hcep.classify.right_level import Levels
from hcep.datasets import load_sample
from hcep.evaluate import tree_distances
from tests.reference.random_problems import random_hierarchy


def draw(seed: int) -> tuple[Levels, np.ndarray]:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents=False)
    levels = Levels.of(hierarchy, hierarchy.leaves)
    return levels, rng.dirichlet(np.full(len(hierarchy.leaves), 0.5), size=6)


@pytest.mark.parametrize("seed", range(20))
def test_the_concept_of_least_expected_distance(seed: int) -> None:
    levels, probabilities = draw(seed)
    h = levels.hierarchy
    costs = np.array([tree_distances(h.leaves, [concept] * len(h.leaves), h) for concept in h.ids[1:]])
    expected = probabilities @ costs.T
    chosen = decode(levels, probabilities, "distance")[0] - 1
    np.testing.assert_allclose(expected[np.arange(6), chosen], expected.min(axis=1), atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_path_of_best_expected_f1(seed: int) -> None:
    levels, probabilities = draw(seed)
    h = levels.hierarchy
    (paths,) = zip(*(h.paths(concept) for concept in h.ids[1:]), strict=True)

    def f1(a: tuple[str, ...], b: tuple[str, ...]) -> float:
        return 2 * len(set(a) & set(b)) / (len(a) + len(b))

    scores = np.array([[f1(path, h.paths(leaf)[0]) for leaf in h.leaves] for path in paths])
    expected = probabilities @ scores.T
    chosen = decode(levels, probabilities, "f1")[0] - 1
    np.testing.assert_allclose(expected[np.arange(6), chosen], expected.max(axis=1), atol=1e-12)


@pytest.fixture(scope="module")
def fitted() -> tuple[HCEPClassifier, Any]:
    data = load_sample()
    return HCEPClassifier(data.hierarchy).fit(data.X_train, data.y_train), data.X_val


def test_predict_decodes(fitted: tuple[HCEPClassifier, Any]) -> None:
    model, X = fitted
    by_class = model.predict(X)
    assert model.predict(X, decode="sure").tolist() == model.predict_concept(X).tolist()
    sure = model.predict_proba(X).max(axis=1) > 0.99
    assert sure.any()
    for rule in ("distance", "f1"):
        answers = model.predict(X, decode=rule)
        assert all(concept in model.hierarchy_ for concept in answers)
        assert answers[sure].tolist() == by_class[sure].tolist()


def test_decoding_stays_within_what_is_possible(fitted: tuple[HCEPClassifier, Any]) -> None:
    model, X = fitted
    left = model.classes_[:2].tolist()
    above = {concept for leaf in left for concept in (leaf, *model.hierarchy_.ancestors(leaf))}
    assert set(model.predict(X[:20], decode="distance", only=left)) <= above


def test_an_unknown_decoder_is_rejected(fitted: tuple[HCEPClassifier, Any]) -> None:
    model, X = fitted
    with pytest.raises(HCEPError, match="decode must be one of 'class', 'distance', 'f1', 'sure'; got 'best'"):
        model.predict(X, decode="best")
