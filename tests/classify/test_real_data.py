"""Acceptance on Tiny-ImageNet-200: the published figures, and what our defaults must beat."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hcep import ConceptDictionary, HCEPClassifier, hb_omp, omp, support_scores
from hcep.classify import hnn, nn
from tests.conftest import k_shot

Data = dict[str, Any]
Default = Callable[[int], tuple[np.ndarray, np.ndarray, HCEPClassifier]]


@pytest.fixture(scope="module")
def default_at(tiny_imagenet: Data) -> Default:
    """The images of so many shots and the default model of them, fitted once."""

    @cache
    def default_at(shots: int) -> tuple[np.ndarray, np.ndarray, HCEPClassifier]:
        X, y = k_shot(tiny_imagenet["X"], tiny_imagenet["y"], shots)
        return X, y, HCEPClassifier(tiny_imagenet["hierarchy"]).fit(X, y)

    return default_at


def dense_accuracy(X: np.ndarray, y: np.ndarray, data: Data) -> float:
    """Logistic regression on the embeddings themselves, with the C that does best on the *test* images."""
    models = (LogisticRegression(C=C, max_iter=2000).fit(X, y) for C in (0.01, 0.03, 0.1, 1.0))
    return max(float(model.score(data["X_val"], data["y_val"])) for model in models)


def scores_of_baselines(X: np.ndarray, y: np.ndarray, data: Data) -> dict[str, tuple[float, float]]:
    dictionary = ConceptDictionary.from_images(data["hierarchy"], X, y)
    found = {
        "omp": omp(data["X_val"], dictionary),
        "hnn": hnn(data["X_val"], dictionary),
        "nn": nn(data["X_val"], dictionary),
        "hb_omp": hb_omp(data["X_val"], dictionary, beam_width=32),
    }
    return {name: support_scores(result, data["y_val"], data["hierarchy"]).mean for name, result in found.items()}


def test_the_published_pursuit_at_50_shots(tiny_imagenet: Data) -> None:
    data = tiny_imagenet
    dictionary = ConceptDictionary.from_images(data["hierarchy"], data["X"], data["y"])
    found = hb_omp(data["X_val"], dictionary, beam_width=32)
    precision, recall = support_scores(found, data["y_val"], data["hierarchy"]).mean
    assert precision == pytest.approx(0.743, abs=0.01)
    assert recall == pytest.approx(0.759, abs=0.01)


@pytest.mark.slow
def test_the_default_at_50_shots(tiny_imagenet: Data, default_at: Default) -> None:
    data, (_, _, model) = tiny_imagenet, default_at(50)
    precision, recall = support_scores(model.pursue(data["X_val"]), data["y_val"], model.hierarchy_).mean
    assert precision >= 0.83
    assert recall >= 0.83


@pytest.mark.slow
@pytest.mark.parametrize("shots", [5, 12, 50])
def test_the_default_is_at_least_as_accurate_as_dense_logistic_regression(
    tiny_imagenet: Data, default_at: Default, shots: int
) -> None:
    X, y, model = default_at(shots)
    accuracy = model.score(tiny_imagenet["X_val"], tiny_imagenet["y_val"])
    assert accuracy >= dense_accuracy(X, y, tiny_imagenet)


@pytest.mark.slow
@pytest.mark.parametrize("shots", [1, 5, 12, 50])
def test_the_supports_of_the_default_are_better_than_every_baselines(
    tiny_imagenet: Data, default_at: Default, shots: int
) -> None:
    X, y, model = default_at(shots)
    found = model.pursue(tiny_imagenet["X_val"])
    precision, recall = support_scores(found, tiny_imagenet["y_val"], model.hierarchy_).mean
    baselines = scores_of_baselines(X, y, tiny_imagenet)
    assert max(p for p, _ in baselines.values()) < precision
    assert max(r for _, r in baselines.values()) < recall


@pytest.mark.slow
def test_single_and_double_precision_agree_on_real_images(tiny_imagenet: Data) -> None:
    X, y = k_shot(tiny_imagenet["X"], tiny_imagenet["y"], 12)
    model = HCEPClassifier(tiny_imagenet["hierarchy"], anchor=1000.0, shrinkage=0.6).fit(X, y)
    single = model.predict(tiny_imagenet["X_val"])
    double = model.predict(tiny_imagenet["X_val"].astype(np.float64))
    assert (single == double).mean() > 0.999
