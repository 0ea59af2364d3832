"""Weights of images: as repetitions in means and metric, as absence at 0, and in every held-out loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier

from hcep import HCEPClassifier, HCEPError, HCEPTransformer, Hierarchy, load, save
from hcep.classify.calibration import fit_calibration
from hcep.classify.choosing import choose
from hcep.classify.fitting import calibrate
from hcep.classify.left_out import nearest_rivals
from hcep.classify.refining import loss_and_gradient, refine
from hcep.classify.training import TrainingSet
from hcep.dictionary import ConceptDictionary

EDGES = [("r", "animal"), ("r", "thing"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox")]
TREE = Hierarchy.from_edges([*EDGES, ("thing", "car"), ("thing", "cup")])
LEAVES = np.array(["car", "cat", "cup", "dog", "fox"])


def draw(n: int = 8, noise: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(5), n)
    return np.abs(2 + rng.standard_normal((5, 7))[own] + noise * rng.standard_normal((len(own), 7))), LEAVES[own]


def weights_of(y: np.ndarray, low: int = 0) -> np.ndarray:
    return np.random.default_rng(1).integers(low, 4, size=len(y))


def training(weights: np.ndarray | None = None, n: int = 6) -> TrainingSet:
    X, y = draw(n)
    own = np.searchsorted(LEAVES, y)
    return TrainingSet(TREE, LEAVES, X, own, np.ones(len(y)) if weights is None else weights.astype(float))


GIVEN: list[dict[str, Any]] = [
    {"shrinkage": 0.5, "anchor": 0.3},
    {"shrinkage": None, "anchor": 0.3},
    {"shrinkage": 0.5, "anchor": 0.0},
    {"shrinkage": 0.5, "anchor": 0.3, "power": 0.5, "unit_norm": True, "center": True},
]


@pytest.mark.parametrize("options", GIVEN)
def test_integer_weights_equal_repeated_images(options: dict[str, Any]) -> None:
    X, y = draw()
    w = weights_of(y)
    # A prior counts images: it knows that an image repeated is not two.
    options = {"power": 1.0, "refine": False, "prior": None, **options}
    weighted = HCEPClassifier(TREE, **options).fit(X, y, sample_weight=w)
    repeated = HCEPClassifier(TREE, **options).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(
        weighted.dictionary_.synset_embeddings, repeated.dictionary_.synset_embeddings, rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(weighted.dictionary_.embed(X), repeated.dictionary_.embed(X), rtol=1e-8, atol=1e-10)
    assert weighted.predict(X).tolist() == repeated.predict(X).tolist()


@pytest.mark.parametrize("options", [{}, {"head": "logistic"}, {"shrinkage": None}, {"priors": "empirical"}])
def test_a_weight_of_zero_leaves_an_image_out(options: dict[str, Any]) -> None:
    X, y = draw()
    w = (weights_of(y) > 0).astype(float)
    weighted = HCEPClassifier(TREE, **options).fit(X, y, sample_weight=w)
    absent = HCEPClassifier(TREE, **options).fit(X[w > 0], y[w > 0])
    np.testing.assert_array_equal(weighted.dictionary_.synset_embeddings, absent.dictionary_.synset_embeddings)
    np.testing.assert_allclose(weighted.predict_proba(X), absent.predict_proba(X), rtol=1e-12)
    assert weighted.images_per_class_.tolist() == absent.images_per_class_.tolist()
    assert weighted.leave_one_out_ == absent.leave_one_out_


def test_a_class_whose_images_have_no_weight_is_left_out() -> None:
    X, y = draw()
    assert "fox" not in HCEPClassifier(TREE).fit(X, y, sample_weight=y != "fox").classes_


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_only_the_ratios_of_weights_matter(scale: float) -> None:
    X, y = draw()
    w = weights_of(y, 1).astype(float)
    one, other = (HCEPClassifier(TREE).fit(X, y, sample_weight=s * w) for s in (1.0, scale))
    assert (one.power_, one.shrinkage_, one.anchor_) == (other.power_, other.shrinkage_, other.anchor_)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-3)


def test_unit_weights_change_nothing() -> None:
    X, y = draw()
    plain, weighted = HCEPClassifier(TREE).fit(X, y), HCEPClassifier(TREE).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(plain.predict_proba(X), weighted.predict_proba(X))


def test_weights_follow_images_into_the_transformer_and_fit_transform() -> None:
    X, y = draw()
    w = weights_of(y, 1)
    fitted = HCEPTransformer(TREE, shrinkage=0.5, anchor=0.3).fit(X, y, sample_weight=w)
    codes = HCEPTransformer(TREE, shrinkage=0.5, anchor=0.3).fit_transform(X, y, sample_weight=w)
    assert sparse.linalg.norm(fitted.transform(X) - codes) == 0.0


def test_empirical_priors_are_shares_of_the_weight() -> None:
    X, y = draw()
    w = np.where(y == "cat", 3.0, 1.0)
    priors = HCEPClassifier(TREE, priors="empirical").fit(X, y, sample_weight=w).priors_
    assert priors.tolist() == pytest.approx([1 / 7, 3 / 7, 1 / 7, 1 / 7, 1 / 7])


# -- held out --------------------------------------------------------------------------------------


def test_an_image_is_left_out_with_all_its_weight() -> None:
    weights = weights_of(np.zeros(30), 1)
    given = training(weights)
    moments = given.moments(1.0, True)
    dictionary = ConceptDictionary.from_images(TREE, moments, shrinkage=0.5, rescale=True)
    space = given.left_out(np.arange(30), dictionary.transform, moments)
    rivals = nearest_rivals(space.images, space.own, space.means, 4)
    objectives = loss_and_gradient(space, space.means, rivals, 0.3, 0.5)[2]
    for i in (0, 7, 29):
        rest = np.arange(30) != i
        without = replace(given, images=given.images[rest], own=given.own[rest], weights=given.weights[rest])
        means = dictionary.transform.after_unit_norm(without.moments(1.0, False).class_means())
        x, own = space.images[i].astype(float), int(space.own[i])
        r, w = x - space.means[own], weights[i]
        share = space.gamma * w * moments.weights[own] / (moments.weights[own] - w)
        metric = np.linalg.inv(np.eye(7) - share * np.outer(r, r))
        expected = [objective_on(x, means, k, metric, 0.3) for k in (own, *rivals[i])]
        np.testing.assert_allclose(objectives[i], expected, rtol=1e-4)


def objective_on(x: np.ndarray, means: np.ndarray, k: int, metric: np.ndarray, anchor: float) -> float:
    """The anchored objective on the one path of class k, solved directly."""
    leaves = dict(zip(LEAVES.tolist(), means, strict=True))
    dictionary = ConceptDictionary.from_leaf_embeddings(TREE, leaves)
    path = [*TREE.ancestors(str(LEAVES[k])), str(LEAVES[k])]
    D = np.array([dictionary.synset_embedding(s) for s in path if s != "r"])
    D[1] -= D[0]
    e = x - D.sum(axis=0)
    b = np.linalg.solve(D @ metric @ D.T + anchor * np.eye(len(D)), D @ metric @ e)
    rest = e - D.T @ b
    return float(rest @ metric @ rest + anchor * b @ b)


def test_folds_are_left_out_with_all_their_weight() -> None:
    given = training(weights_of(np.zeros(30), 1))
    moments = given.moments(1.0, False)
    transform = ConceptDictionary.from_images(TREE, moments, rescale=True).transform
    space = given.left_out(given.folds.rows, transform, moments)
    away = given.folds.fold == 2
    rest = np.setdiff1d(np.arange(30), given.folds.rows[away])
    without = replace(given, images=given.images[rest], own=given.own[rest], weights=given.weights[rest])
    expected = transform.after_unit_norm(without.moments(1.0, False).class_means())
    np.testing.assert_allclose(space._means_without(np.flatnonzero(away)), expected, rtol=1e-5)


def test_held_out_losses_are_weighted_as_repeated_scores_would_be() -> None:
    objectives = np.random.default_rng(0).gamma(2.0, 1.0, (5000, 6))  # so many that the prior's pull is nothing
    objectives[::2, 0] = 0.0
    weights = weights_of(np.zeros(5000), 1)
    weighted = fit_calibration(objectives, weights=weights.astype(float))
    repeated = fit_calibration(np.repeat(objectives, weights, axis=0))
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=0.05)
    heavy = np.where(objectives.argmin(axis=1) == 0, 100.0, 1.0)  # images that are right: the model may be surer
    assert fit_calibration(objectives, weights=heavy).temperature < 0.8 * weighted.temperature


def test_the_choice_and_the_calibration_follow_the_heavy_images() -> None:
    """Half of the images are noise of no weight to speak of: the scores are those of the other half."""
    X, y = draw(12, 0.3)
    noisy = np.arange(len(y)) % 2 == 1
    X[noisy] += 3 * np.random.default_rng(2).standard_normal(X[noisy].shape)
    own = np.searchsorted(LEAVES, y)
    light = TrainingSet(TREE, LEAVES, X, own, np.where(noisy, 1e-6, 1.0))
    equal = replace(light, weights=np.ones(len(y)))
    accuracies = [choose(some, (1.0,), (0.6, 0.3), (0.3,)).tried[0].accuracy for some in (light, equal)]
    assert accuracies[0] > 0.95 > accuracies[1] + 0.1
    temperatures = []
    for some in (light, equal):
        moments = some.moments(1.0, True)
        dictionary = ConceptDictionary.from_images(TREE, moments, shrinkage=0.6, rescale=True)
        temperatures.append(calibrate(some, dictionary, moments, 0.3).calibration.temperature)
    assert temperatures[0] < temperatures[1]


def test_the_gradient_of_weighted_losses_is_that_of_finite_differences() -> None:
    given = training(weights_of(np.zeros(30), 1))
    space = given.left_out(np.arange(30), ConceptDictionary.from_images(TREE, given.moments(1.0, False)).transform,
                           given.moments(1.0, False))  # fmt: skip
    rivals = nearest_rivals(space.images, space.own, space.means, 4)
    direction = 1e-2 * np.random.default_rng(1).standard_normal(space.means.shape)
    gradient = loss_and_gradient(space, space.means, rivals, 0.3, 2.0)[1]
    up, down = (loss_and_gradient(space, space.means + s * direction, rivals, 0.3, 2.0)[0] for s in (1, -1))
    assert np.vdot(gradient, direction) == pytest.approx((up - down) / 2, rel=2e-2)


def test_refining_moves_classes_for_their_heavy_images() -> None:
    equal, uneven = training(n=10), training(np.where(np.arange(50) % 10 < 5, 5.0, 0.2), n=10)
    shifts = []
    for given in (equal, uneven):
        moments = equal.moments(1.0, True)
        dictionary = ConceptDictionary.from_images(TREE, moments, shrinkage=0.6, rescale=True)
        shifts.append(refine(given, dictionary, moments, 0.3, 0.3, 1.0))
    assert np.abs(shifts[0] - shifts[1]).max() > 1e-3


@pytest.mark.parametrize("weight", [1e-12, 1e12, 1e20])
def test_one_image_that_outweighs_all_others_breaks_nothing(weight: float) -> None:
    X, y = draw()
    w = np.ones(len(y))
    w[[0, 9]] = weight
    model = HCEPClassifier(TREE).fit(X, y, sample_weight=w)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.explained_floor_).all()


# -- growing ---------------------------------------------------------------------------------------


def test_images_added_later_count_by_their_weights() -> None:
    X, y = draw()
    w = weights_of(y, 1).astype(float)
    options: dict[str, Any] = {"shrinkage": None, "anchor": 0.0, "power": 1.0, "refine": False, "prior": None}
    whole = HCEPClassifier(TREE, **options).fit(X, y, sample_weight=w)
    first = np.arange(len(y)) % 2 == 0
    grown = HCEPClassifier(TREE, **options).fit(X[first], y[first], sample_weight=w[first])
    grown.partial_fit(X[~first], y[~first], sample_weight=w[~first])
    np.testing.assert_allclose(grown.dictionary_.synset_embeddings, whole.dictionary_.synset_embeddings, rtol=1e-10)
    assert grown.images_per_class_.tolist() == whole.images_per_class_.tolist()
    np.testing.assert_allclose(grown.class_weights_, whole.class_weights_)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.zeros(40), ValueError, "at least one non-zero number|not all 0"),
        (-np.ones(40), HCEPError, "sample_weight must be numbers of at least 0, not all 0; got -1"),
        (np.ones(3), ValueError, r"sample_weight.shape == \(3,\), expected \(40,\)"),
        (np.full(40, np.nan), ValueError, "Input sample_weight contains NaN"),
    ],
)
def test_invalid_weights_are_rejected(weights: np.ndarray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HCEPClassifier(TREE).fit(*draw(), sample_weight=weights)


def test_a_head_that_takes_no_weights_is_named() -> None:
    X, y = draw()
    with pytest.raises(HCEPError, match="sample_weight is not supported by the head, a KNeighborsClassifier"):
        HCEPClassifier(TREE, head=KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(len(y)))


def test_a_logistic_head_is_weighted() -> None:
    X, y = draw(noise=2.0)
    w = np.where(y == "cat", 50.0, 1.0)
    model = HCEPClassifier(TREE, head="logistic", shrinkage=None, anchor=0.1)
    plain, heavy = clone(model).fit(X, y), clone(model).fit(X, y, sample_weight=w)
    assert (heavy.predict(X) == "cat").sum() > (plain.predict(X) == "cat").sum()


def test_weights_of_classes_are_saved_for_growing(tmp_path: Path) -> None:
    X, y = draw()
    model = HCEPClassifier(TREE, shrinkage=0.5, anchor=0.3).fit(X, y, sample_weight=weights_of(y, 1))
    loaded = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.class_weights_, model.class_weights_)
    for one in (model, loaded):
        one.partial_fit(X[:3], y[:3])
    np.testing.assert_array_equal(loaded.dictionary_.synset_embeddings, model.dictionary_.synset_embeddings)
    plain = HCEPClassifier(TREE, shrinkage=0.5, anchor=0.3).fit(X, y)
    assert load(save(plain, tmp_path / "plain")).class_weights_ is None
