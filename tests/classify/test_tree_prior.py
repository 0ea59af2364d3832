"""The prior of class means over the tree: against dense matrices, in a fit, and in models that grow or are saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hcep import HCEPClassifier, HCEPError, Hierarchy, load, save
from hcep.classify.tree_prior import TreePrior, Variances, fit_prior
from tests.reference.random_problems import random_hierarchy

GROUPS = {f"g{i}": [f"c{i}{j}" for j in range(6)] for i in range(5)}
TREE = Hierarchy.from_edges(
    [("root", group) for group in GROUPS] + [(g, c) for g, classes in GROUPS.items() for c in classes]
)
CLASSES = np.array([c for classes in GROUPS.values() for c in classes])


def dense_covariance(prior: TreePrior) -> np.ndarray:
    """Covariance of the classes: the variances of the steps that two of them share."""
    above = np.zeros((len(prior.leaf), len(prior.parent)))
    for row, node in zip(above, prior.leaf, strict=True):
        while node:
            row[node] = 1.0
            node = prior.parent[node]
    return above @ np.diag(prior.steps) @ above.T


def draw(n_images: np.ndarray, seed: int = 0, n_dims: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Images of classes that are like the others of their group."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(rng.normal(size=(len(GROUPS), n_dims)), 6, axis=0)
    means = groups + 0.5 * np.random.default_rng(seed).normal(size=(len(CLASSES), n_dims))
    own = np.repeat(np.arange(len(CLASSES)), n_images)
    return 5.0 + means[own] + rng.normal(size=(len(own), n_dims)), CLASSES[own]


@given(st.integers(0, 2**31), st.booleans(), st.booleans())
def test_messages_along_the_tree_equal_dense_matrices(seed: int, several_parents: bool, some_unseen: bool) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents)
    n = len(hierarchy.leaves)
    variances = Variances(*rng.uniform(0.1, 2.0, 4))
    prior = TreePrior.over(hierarchy, hierarchy.leaves, variances)
    means, n_images = rng.normal(size=(n, 3)), rng.integers(1, 9, n).astype(float)
    if some_unseen:
        n_images[rng.permutation(n)[: n // 2]] = 0.0
    seen = n_images > 0
    covariance = dense_covariance(prior)
    inverse = np.linalg.inv(covariance[np.ix_(seen, seen)] + np.diag(variances.noise / n_images[seen]))
    one = np.ones((seen.sum(), 1))
    centre = (one.T @ inverse @ means[seen]) / (one.T @ inverse @ one)
    gain = covariance[:, seen] @ inverse
    posterior, variance = prior.posterior(means, n_images)
    np.testing.assert_allclose(posterior, centre + gain @ (means[seen] - centre), atol=1e-9)
    left = 1.0 - gain @ one
    expected = np.diag(covariance - gain @ covariance[seen]) + left[:, 0] ** 2 / (one.T @ inverse @ one)[0, 0]
    np.testing.assert_allclose(variance, expected, atol=1e-9)
    off = means[seen] - centre
    log_density = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(one.T @ inverse @ one)[1]
    expected_log = 0.5 * (3 * log_density - np.trace(off.T @ inverse @ off))
    assert prior.log_likelihood(means, n_images) == pytest.approx(expected_log, rel=1e-8, abs=1e-8)


def test_the_likelihood_finds_whether_the_tree_says_anything() -> None:
    means = draw(np.ones(30, dtype=int), n_dims=200)[0]
    n_images = np.full(30, 4.0)
    by_tree = fit_prior(TREE, CLASSES.tolist(), means, n_images, 1.0)
    shuffled = fit_prior(TREE, np.random.default_rng(1).permutation(CLASSES).tolist(), means, n_images, 1.0)
    assert by_tree is not None
    assert shuffled is not None
    assert by_tree.variances.shared > by_tree.variances.own
    siblings = [dense_covariance(prior)[0, 1] for prior in (by_tree, shuffled)]
    assert siblings[1] < 0.2 * siblings[0]


def test_a_class_without_images_has_the_mean_of_its_neighbours() -> None:
    prior = TreePrior.over(TREE, CLASSES.tolist(), Variances(1.0, 0.1, 50.0, 0.01))
    means = np.repeat(np.arange(5.0), 6)[:, None]
    n_images = np.full(30, 50.0)
    n_images[0] = n_images[29] = 0.0
    posterior, variance = prior.posterior(np.where(n_images[:, None] > 0, means, 1e6), n_images)
    assert posterior[0, 0] == pytest.approx(0.0, abs=0.1)
    assert posterior[29, 0] == pytest.approx(4.0, abs=0.1)
    assert variance[0] > 5 * variance[1]


def test_rare_classes_gain_and_the_gain_is_that_of_the_tree() -> None:
    n_images = np.where(np.arange(30) % 3 == 0, 1, 20)
    new, labels = draw(np.full(30, 40), seed=0)
    gains = []
    X, y = draw(n_images, seed=0)
    rare = np.isin(labels, CLASSES[n_images == 1])
    for prior in (None, "flat", "auto"):
        model = HCEPClassifier(TREE, prior=prior).fit(X, y)
        right = model.predict(new) == labels
        gains.append(right[rare].mean())
    assert gains[2] > gains[0] + 0.05
    assert gains[2] > gains[1]


@pytest.mark.parametrize("n", [12, 30])
def test_many_images_of_every_class_leave_nothing_to_borrow(n: int) -> None:
    X, y = draw(np.full(30, n))
    auto, without = (HCEPClassifier(TREE, prior=prior).fit(X, y) for prior in ("auto", None))
    assert auto.prior_ is None
    np.testing.assert_array_equal(auto.dictionary_.synset_embeddings, without.dictionary_.synset_embeddings)
    assert auto.calibration_ == without.calibration_


def test_without_a_prior_class_embeddings_are_means() -> None:
    X, y = draw(np.full(30, 3))
    options = {"shrinkage": None, "power": 1.0, "anchor": 0.0, "refine": False, "prior": None}
    model = HCEPClassifier(TREE, **options).fit(X, y)
    np.testing.assert_allclose(model.dictionary_.synset_embedding("c00"), X[y == "c00"].mean(axis=0), rtol=1e-10)


def test_the_order_of_images_does_not_matter() -> None:
    X, y = draw(np.random.default_rng(3).integers(1, 4, 30))
    order = np.random.default_rng(4).permutation(len(y))
    options = {"shrinkage": 0.5, "power": 1.0, "prior": "tree"}
    one, other = (HCEPClassifier(TREE, **options).fit(X[rows], y[rows]) for rows in (np.arange(len(y)), order))
    a, b = one.dictionary_.synset_embeddings, other.dictionary_.synset_embeddings
    np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(a).max())


def test_only_the_ratios_of_weights_count_images() -> None:
    X, y = draw(np.random.default_rng(3).integers(1, 5, 30))
    weights = np.random.default_rng(5).uniform(0.5, 2.0, len(y))
    one, other = (HCEPClassifier(TREE, prior="tree").fit(X, y, sample_weight=k * weights) for k in (1.0, 1000.0))
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-5)


def test_an_unknown_prior_is_refused() -> None:
    X, y = draw(np.full(30, 2))
    with pytest.raises(HCEPError, match="prior must be 'auto', 'tree', 'flat' or None; got 'bayes'"):
        HCEPClassifier(TREE, prior="bayes").fit(X, y)


# -- models that change ----------------------------------------------------------------------------


def test_a_saved_model_keeps_the_prior_and_what_it_was_put_on(tmp_path: Path) -> None:
    X, y = draw(np.random.default_rng(3).integers(1, 4, 30))
    model = HCEPClassifier(TREE, prior="tree").fit(X, y)
    loaded = load(save(model, tmp_path / "model"))
    assert loaded.prior_ == model.prior_
    np.testing.assert_array_equal(loaded.class_means_, model.class_means_)
    more, labels = draw(np.full(30, 2), seed=7)
    np.testing.assert_array_equal(
        loaded.partial_fit(more, labels).predict_proba(X), model.partial_fit(more, labels).predict_proba(X)
    )


def test_a_model_that_grows_keeps_its_prior() -> None:
    X, y = draw(np.full(30, 2))
    options = {"shrinkage": None, "power": 1.0, "anchor": 0.0, "refine": False, "prior": "tree"}
    model = HCEPClassifier(TREE, **options).fit(X, y)
    more, labels = draw(np.where(np.arange(30) == 4, 30, 0))
    pulled = np.linalg.norm(model.dictionary_.synset_embedding("c04") - model.class_means_[4])
    model.partial_fit(more, labels)
    # Thirty more images say where the class is: the prior hardly moves it now.
    assert np.linalg.norm(model.dictionary_.synset_embedding("c04") - model.class_means_[4]) < 0.2 * pulled
    np.testing.assert_allclose(model.class_means_[4], np.vstack([X[y == "c04"], more]).mean(axis=0), rtol=1e-10)
    model.add_class("new", "g0", more[:1])
    new = model.classes_.tolist().index("new")
    siblings = np.mean([model.dictionary_.synset_embedding(c) for c in GROUPS["g0"]], axis=0)
    before = np.linalg.norm(model.class_means_[new] - siblings)
    assert np.linalg.norm(model.dictionary_.synset_embedding("new") - siblings) < 0.8 * before
