"""Logistic regression and its relatives on labels that allow several classes."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines import partial_labels
from experiments.baselines.partial_labels import (
    local_classifiers,
    local_paths,
    partial_label_regression,
    regression_path,
    self_training,
)
from hcep import Hierarchy
from hcep.errors import MissingExtraError

N_CLASSES = 4


def clusters(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    own = np.arange(n) % N_CLASSES
    centres = np.array([[3, 1, 0], [3, -1, 0], [-3, 0, 1], [-3, 0, -1]])
    return (centres[own] + 0.6 * rng.standard_normal((n, 3))).astype(np.float32), own


@pytest.fixture
def coarse() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of which eight are labelled with their class, and the others with one of two pairs of classes."""
    X, own = clusters(200, 0)
    is_exact = np.arange(len(own)) < 8
    pairs = own[:, None] // 2 == np.arange(N_CLASSES) // 2
    return X, np.where(is_exact[:, None], np.eye(N_CLASSES, dtype=bool)[own], pairs), is_exact


def test_the_gradient_is_that_of_the_loss(monkeypatch: pytest.MonkeyPatch, coarse: tuple[np.ndarray, ...]) -> None:
    X, allowed, _ = coarse
    losses = []

    def caught(loss, start, **_):
        losses.append((loss, start))
        raise StopIteration

    monkeypatch.setattr("scipy.optimize.minimize", caught)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(X))
    with pytest.raises(RuntimeError):
        next(regression_path(X, allowed, (0.01,), weights=weights, offset=np.log([0.4, 0.3, 0.2, 0.1])))
    ((loss, start),) = losses
    at = np.random.default_rng(2).standard_normal(len(start))
    steps = 1e-2 * np.eye(len(at))
    slopes = [(loss(at + step)[0] - loss(at - step)[0]) / 2e-2 for step in steps]
    np.testing.assert_allclose(loss(at)[1], slopes, atol=2e-3)


@pytest.mark.parametrize("fit", [partial_label_regression, self_training])
def test_coarse_labels_help(fit, coarse: tuple[np.ndarray, ...]) -> None:
    X_new, truth = clusters(400, 1)
    head = fit(*coarse)
    assert (head.predict_proba(X_new).argmax(axis=1) == truth).mean() > 0.9


def test_the_offset_adjusts_for_frequent_classes() -> None:
    X, own = clusters(400, 0)
    unequal = np.flatnonzero((own != 1) | (np.arange(len(own)) < 20))
    labels, everything = np.eye(N_CLASSES, dtype=bool)[own[unequal]], np.ones(len(unequal), dtype=bool)
    frequencies = np.log(labels.mean(axis=0))
    X_new, truth = clusters(400, 1)
    plain, adjusted = (
        partial_label_regression(X[unequal], labels, everything, offset=offset) for offset in (0.0, frequencies)
    )
    rare = truth == 1
    right = [(head.predict_proba(X_new[rare]).argmax(axis=1) == 1).mean() for head in (plain, adjusted)]
    assert right[1] > right[0]


def test_one_exact_label_per_class_needs_no_held_out_images(coarse: tuple[np.ndarray, ...]) -> None:
    X, allowed, is_exact = coarse
    used = ~is_exact | (np.arange(len(X)) < 4)
    assert not partial_labels._held_out(allowed[used], is_exact[used]).any()
    assert partial_label_regression(X[used], allowed[used], is_exact[used]).weights.shape == (3, N_CLASSES)


def test_hiclass_learns_from_labels_above_the_classes() -> None:
    pytest.importorskip("hiclass", reason="hiclass is not installed")
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "0"), ("a", "1"), ("b", "2"), ("b", "3")])
    X, own = clusters(200, 0)
    labels = [str(c) if i < 40 else "ab"[c // 2] if i < 180 else "r" for i, c in enumerate(own)]
    X_new, truth = clusters(400, 1)
    predicted = local_classifiers(X, labels, tree, X_new)
    assert np.mean([p == str(c) for p, c in zip(predicted, truth, strict=True)]) > 0.85


def test_hiclass_decides_from_the_root_on_and_knows_classes_below_it() -> None:
    pytest.importorskip("hiclass", reason="hiclass is not installed")
    tree = Hierarchy.from_edges([("r", "a"), ("a", "0"), ("a", "1"), ("r", "2"), ("r", "3")])
    X, own = clusters(200, 0)
    paths = local_paths(X, list(map(str, own)), tree, X)
    expected = [("a", str(c)) if c < 2 else (str(c),) for c in own.tolist()]
    assert np.mean([path == truth for path, truth in zip(paths, expected, strict=True)]) > 0.85


def test_hiclass_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hiclass", None)
    with pytest.raises(MissingExtraError, match="HiClass is not installed; pip install hiclass"):
        local_classifiers(np.zeros((1, 2)), ["r"], Hierarchy.from_edges([("r", "a")]), np.zeros((1, 2)))
