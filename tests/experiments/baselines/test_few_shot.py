"""Few-shot classifiers on embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from experiments.baselines import few_shot
from experiments.baselines.few_shot import (
    SHARPNESS,
    Cache,
    Ridge,
    TextCache,
    gaussian_analysis,
    random_projection,
    tuned_cache,
    tuned_text_cache,
)
from tests.classify.method_contract import X, Y

OWN = np.unique(Y, return_inverse=True)[1]


def test_a_sharp_cache_answers_with_the_nearest_image() -> None:
    new = X + 0.1
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    nearest = np.argmax(new @ unit.T, axis=1)
    assert Cache(500.0).fit(X, OWN).predict(new).tolist() == OWN[nearest].tolist()


def test_votes_do_not_depend_on_the_number_of_images() -> None:
    more = np.concatenate([X, X[OWN == 0]])
    labels = np.concatenate([OWN, OWN[OWN == 0]])
    assert Cache().fit(more, labels).predict_proba(X) == pytest.approx(Cache().fit(X, OWN).predict_proba(X))


def test_the_sharpness_is_chosen_on_images_for_tuning() -> None:
    assert tuned_cache(X, OWN, X[:0], OWN[:0]).sharpness == 5.5
    assert tuned_cache(X, OWN, X, OWN).sharpness in SHARPNESS


def test_gaussian_analysis_is_linear_discriminant_analysis_with_its_own_shrinkage() -> None:
    head = gaussian_analysis(X, OWN).fit(X, OWN)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.01).fit(X, OWN)
    assert np.mean(head.predict(X + 0.3) == reference.predict(X + 0.3)) > 0.95


def test_gaussian_analysis_with_one_image_per_class() -> None:
    rows = np.unique(OWN, return_index=True)[1]
    assert np.mean(gaussian_analysis(X[rows], OWN[rows]).fit(X, OWN).predict(X) == OWN) > 0.8


def test_ridge_regression_predicts_its_classes() -> None:
    model = Ridge().fit(X, OWN)
    assert model.score(X, OWN) > 0.95
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)


def test_class_names_alone_decide_if_the_cache_has_no_weight() -> None:
    texts = np.array([X[k == OWN].mean(axis=0) for k in range(OWN.max() + 1)])
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert TextCache(texts, weight=0.0).fit(X, OWN).predict(X).tolist() == np.argmax(unit @ texts.T, axis=1).tolist()


def test_the_weight_of_the_cache_beside_class_names_is_tuned() -> None:
    wrong = np.roll(np.array([X[k == OWN].mean(axis=0) for k in range(OWN.max() + 1)]), 1, axis=0)
    assert tuned_text_cache(X, OWN, X[:0], OWN[:0], wrong).weight == 1.0
    tuned = tuned_text_cache(X, OWN, X, OWN, wrong).fit(X, OWN)
    assert tuned.score(X, OWN) > TextCache(wrong, weight=0.0).fit(X, OWN).score(X, OWN)


def test_random_projection_is_ridge_regression_on_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_shot, "N_RANDOM", 50)
    monkeypatch.setattr(few_shot, "PENALTIES", (0.01,))
    model = random_projection(X, OWN, (X, OWN, X[:0], OWN[:0])).fit(X, OWN)
    H = np.maximum(X.astype(np.float64) @ model.projection, 0.0)
    penalty = 0.01 * np.mean(np.sum(H**2, axis=1))
    expected = np.linalg.solve(H.T @ H + penalty * np.eye(50), H.T @ np.eye(OWN.max() + 1)[OWN])
    np.testing.assert_allclose(model.weights, expected, atol=2e-3)
    assert model.score(X, OWN) > 0.95
    assert model.predict_proba(X[:0]).shape == (0, OWN.max() + 1)
