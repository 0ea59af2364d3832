"""Held-out and left-out objectives against refitting, their gradient against differences, refined leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hcep.classify import HCEPClassifier
from hcep.classify.calibration import fit_calibration
from hcep.classify.choosing import POWERS, SHRINKAGES, LeaveOneOutScore, best_score, choose
from hcep.classify.fitting import calibrate
from hcep.classify.left_out import (
    MAX_IMAGES,
    ClassTree,
    Folds,
    LeftOut,
    in_tree_order,
    left_out_probabilities,
    nearest_rivals,
    rank_in_class,
)
from hcep.classify.refining import is_worth_it, loss_and_gradient, refine
from hcep.classify.training import TrainingSet
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.concept_dictionary import average_upwards, leaf_shares
from hcep.dictionary.transform import EmbeddingTransform
from hcep.hierarchy import Hierarchy
from hcep.pursuit import path_objectives

TREE = [("r", "animal"), ("r", "thing"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox")]
TREE += [("thing", "car"), ("thing", "cup")]
HIERARCHIES = {
    "tree": Hierarchy.from_edges(TREE),
    "two parents": Hierarchy.from_edges([*TREE, ("r", "toy"), ("toy", "car"), ("toy", "fox")]),
    "flat": Hierarchy.from_edges([("r", leaf) for leaf in ("car", "cat", "cup", "dog", "fox")]),
}
LEAVES = np.array(["car", "cat", "cup", "dog", "fox"])


def images(n: int = 6, noise: float = 0.4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((5, 8))
    own = np.repeat(np.arange(5), n)
    return (centres[own] + noise * rng.standard_normal((len(own), 8))).astype(np.float32), own


def training(n: int = 6, noise: float = 0.4, hierarchy: str = "tree") -> TrainingSet:
    X, own = images(n, noise)
    return TrainingSet(HIERARCHIES[hierarchy], LEAVES, X, own, np.ones(len(own)))


def space(given: TrainingSet, gamma: float = 0.0) -> LeftOut:
    moments = given.moments(1.0, False)
    return LeftOut(given.images, given.own, given.weights, moments.weights, moments.class_means(), gamma, given.tree)


def plain_objectives(
    hierarchy: Hierarchy, x: np.ndarray, leaves: np.ndarray, metric: np.ndarray, anchor: float
) -> np.ndarray:
    """Ridge on every path of each class, in a metric, by solving it; the lowest of each class.

    `leaves` are the embeddings of the leaves, or of all synsets.
    """
    synsets = leaves
    if len(leaves) == len(LEAVES):
        synsets = average_upwards(hierarchy, dict(zip(LEAVES, leaves, strict=True)))
    dictionary = ConceptDictionary(hierarchy, synsets)
    tree, best = hierarchy.path_tree, dict.fromkeys(LEAVES.tolist(), np.inf)
    for node in tree.leaf_nodes:
        path = tree.ancestors()[node]
        D = dictionary.atoms[tree.edge[path[path >= 0]]]
        e = x - D.sum(axis=0)
        b = np.linalg.solve(D @ metric @ D.T + anchor * np.eye(len(D)), D @ metric @ e)
        r = e - D.T @ b
        leaf = hierarchy.ids[tree.synset[node]]
        best[leaf] = min(best[leaf], float(r @ metric @ r + anchor * b @ b))
    return np.array([best[leaf] for leaf in LEAVES.tolist()])


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
@pytest.mark.parametrize("gamma", [0.0, 0.05])
def test_left_out_objectives_are_those_of_a_refit(hierarchy: str, gamma: float) -> None:
    s = space(training(hierarchy=hierarchy), gamma)
    rivals = nearest_rivals(s.images, s.own, s.means, 4)
    found = loss_and_gradient(s, s.means, rivals, 0.3, 0.5)[2]
    for i in (0, 7, 29):
        x, own = s.images[i].astype(np.float64), int(s.own[i])
        r = x - s.means[own]
        leaves = s.means.copy()
        leaves[own] -= r / 5
        metric = np.linalg.inv(np.eye(8) - gamma * 6 / 5 * np.outer(r, r))
        expected = plain_objectives(HIERARCHIES[hierarchy], x, leaves, metric, 0.3)
        np.testing.assert_allclose(found[i], expected[[own, *rivals[i]]], rtol=1e-4)


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
@pytest.mark.parametrize("anchor", [0.0, 0.3, 1000.0, np.inf])
def test_held_out_objectives_are_those_of_a_refit_without_the_fold(hierarchy: str, anchor: float) -> None:
    given = training(hierarchy=hierarchy)
    s, folds = space(given, 0.05), given.folds
    found = s.held_out(folds, anchor, 4)
    assert folds.fold.max() == 5
    for i in (0, 7, 29):
        fold, own = folds.fold == folds.fold[i], int(s.own[i])
        kept = ~fold
        leaves = np.stack([s.images[kept & (s.own == k)].mean(axis=0) for k in range(5)]).astype(np.float64)
        x = s.images[i].astype(np.float64)
        r = x - s.means[own]
        metric = np.linalg.inv(np.eye(8) - 0.05 * 6 / 5 * np.outer(r, r))
        expected = plain_objectives(HIERARCHIES[hierarchy], x, leaves, metric, min(anchor, 1e9))
        assert found[i, 0] == pytest.approx(expected[own], rel=1e-4)
        np.testing.assert_allclose(np.sort(found[i, 1:]), np.sort(np.delete(expected, own)), rtol=1e-4)


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
def test_left_out_probabilities_are_those_of_a_model_without_the_fold(hierarchy: str) -> None:
    X, own = images(2)
    y, options = LEAVES[own], {"shrinkage": None, "anchor": 0.0, "power": 1.0, "prior": None}
    model = HCEPClassifier(HIERARCHIES[hierarchy], **options, refine=False).fit(X, y).path_model()
    found = left_out_probabilities(model, X, own, np.full(5, 2.0))
    fold = rank_in_class(own, np.random.default_rng(0))
    for out in (0, 1):
        fewer = HCEPClassifier(HIERARCHIES[hierarchy], **options, refine=False).fit(X[fold != out], y[fold != out])
        expected = replace(fewer.path_model(), calibration=model.calibration).probabilities(X[fold == out])
        np.testing.assert_allclose(found[fold == out], expected, rtol=1e-3, atol=1e-6)


def test_a_photo_with_a_wrong_label_is_found_although_the_model_was_fitted_on_it() -> None:
    X, own = images(8, noise=0.2)
    own[0] = 3  # it is a car
    fitted = HCEPClassifier(HIERARCHIES["tree"], shrinkage=0.1, anchor=0.3, power=1.0).fit(X, LEAVES[own])
    odds = left_out_probabilities(fitted.path_model(), X, own, fitted.images_per_class_.astype(float))
    assert np.flatnonzero(odds.argmax(axis=1) != own).tolist() == [0]
    assert odds[0].argmax() == 0
    assert left_out_probabilities(replace(fitted.path_model(), head=object()), X, own, np.full(5, 8.0)) is None


@pytest.mark.parametrize("hierarchy", ["tree", "flat"])
@pytest.mark.parametrize("shrinkage", [None, 0.5])
def test_held_out_objectives_with_texts_are_those_of_a_refit_without_the_fold(
    hierarchy: str, shrinkage: float | None
) -> None:
    given, rng = replace(training(hierarchy=hierarchy), unit_norm=True), np.random.default_rng(3)
    h, moments = given.hierarchy, given.moments(1.0, True)
    inner = [synset for synset in h.ids[1:] if not h.is_leaf(synset)]
    texts = {synset: rng.standard_normal(8) for synset in (*LEAVES.tolist(), *inner)}
    joint = ConceptDictionary.from_images(h, moments, shrinkage=shrinkage, unit_norm=True).with_words(texts, 1.5, 0.7)
    s = given.left_out(given.folds.rows, joint.transform, moments, words=joint.word_block)
    objectives, order, folds = s.held_out(given.folds, 0.3, 4), np.argsort(given.folds.rows), given.folds
    for i in (0, 7, 29):
        row, fold = int(order[i]), folds.fold == folds.fold[order[i]]
        own = int(s.own[row])
        leaves = np.stack([s.images[~fold & (s.own == k), :8].mean(axis=0) for k in range(5)]).astype(np.float64)
        x = s.images[row].astype(np.float64)
        r = np.append(x[:8] - s.means[own, :8], np.zeros(8))
        metric = np.linalg.inv(np.eye(16) - s.gamma * 6 / 5 * np.outer(r, r))
        pictures = average_upwards(h, dict(zip(LEAVES, leaves, strict=True)))
        both = np.hstack([pictures, joint.word_block])
        expected = plain_objectives(h, x, both, metric, 0.3)
        assert objectives[row, 0] == pytest.approx(expected[own], rel=1e-4)
        np.testing.assert_allclose(np.sort(objectives[row, 1:]), np.sort(np.delete(expected, own)), rtol=1e-4)


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
def test_gradient_is_that_of_finite_differences(hierarchy: str) -> None:
    s = space(training(hierarchy=hierarchy), 0.05)
    rivals = in_tree_order(nearest_rivals(s.images, s.own, s.means, 4), s.tree)
    rivals[::3, 2:] = -1
    direction = 1e-3 * np.random.default_rng(1).standard_normal(s.means.shape)
    gradient = loss_and_gradient(s, s.means, rivals, 0.3, 0.5)[1]
    up, down = (loss_and_gradient(s, s.means + sign * direction, rivals, 0.3, 0.5)[0] for sign in (1, -1))
    assert np.vdot(gradient, direction) == pytest.approx((up - down) / 2, rel=2e-2)


def test_shares_are_what_averaging_upwards_makes_of_an_identity() -> None:
    for hierarchy in HIERARCHIES.values():
        expected = average_upwards(hierarchy, dict(zip(LEAVES.tolist(), np.eye(5), strict=True)))
        np.testing.assert_allclose(leaf_shares(hierarchy, LEAVES.tolist()).toarray(), expected)
        tree = ClassTree.of(hierarchy, LEAVES.tolist())
        leaves = np.random.default_rng(0).standard_normal((5, 3))
        by_leaf = dict(zip(LEAVES.tolist(), leaves, strict=True))
        atoms = ConceptDictionary(hierarchy, average_upwards(hierarchy, by_leaf)).atoms
        np.testing.assert_allclose(tree.atoms(leaves), atoms, atol=1e-12)


def test_refined_leaves_lower_the_left_out_loss_and_a_heavy_prior_holds_them() -> None:
    given = training(noise=1.0)
    moments = given.moments(1.0, True)
    dictionary = ConceptDictionary.from_images(given.hierarchy, moments, shrinkage=0.5, rescale=True)
    free, held = (refine(given, dictionary, moments, 0.3, 0.3, prior) for prior in (1.0, 1e9))
    means = dictionary.transform.after_unit_norm(moments.class_means())
    s = given.left_out(np.arange(len(given.own)), dictionary.transform, moments)
    rivals = nearest_rivals(s.images, s.own, means, 4)
    before, after = (loss_and_gradient(s, means + shift, rivals, 0.3, 0.3)[0] for shift in (0.0, free))
    assert after < before
    assert np.abs(held).max() < 1e-6 < np.abs(free).max()


def test_refining_is_worth_it_from_four_images_per_class_and_at_an_anchor() -> None:
    assert [is_worth_it(training(n), 0.3) for n in (1, 3, 4)] == [False, False, True]
    assert not is_worth_it(training(6), 0.1)


# -- folds -----------------------------------------------------------------------------------------


def equal_folds(own: np.ndarray) -> Folds:
    """Folds of images that all count the same."""
    return Folds.of(own, 1.0 / np.bincount(own)[own])


def test_a_fold_takes_as_many_images_out_of_every_class() -> None:
    own = np.repeat([0, 1, 2, 3], [7, 7, 7, 1])
    folds = equal_folds(own)
    assert 21 not in folds.rows
    for fold in range(7):
        assert own[folds.rows[folds.fold == fold]].tolist() == [0, 1, 2]


def test_large_classes_have_few_folds_and_small_ones_lose_one_image_at_a_time() -> None:
    own = np.repeat([0, 1], [10_000, 5])
    folds = equal_folds(own)
    assert folds.fold.max() < 60
    assert np.bincount(folds.fold[own[folds.rows] == 1]).tolist() == [1] * 5
    assert folds.scored.all()
    assert len(folds.rows) <= MAX_IMAGES


def test_with_more_classes_than_scored_images_every_mean_still_loses_one() -> None:
    folds = equal_folds(np.repeat(np.arange(2 * MAX_IMAGES), 2))
    assert len(folds.rows) == 2 * MAX_IMAGES
    assert folds.scored.sum() == MAX_IMAGES
    assert folds.only(10).scored.sum() == 10


def test_ranks_count_the_images_of_a_class() -> None:
    own = np.array([2, 0, 2, 1, 2, 0])
    rank = rank_in_class(own, np.random.default_rng(0))
    assert [sorted(rank[own == k].tolist()) for k in range(3)] == [[0, 1], [0], [0, 1, 2]]


# -- the choice ------------------------------------------------------------------------------------


def score(log_losses: list[float], shrinkage: float = 0.5) -> LeaveOneOutScore:
    losses = np.array(log_losses)
    return LeaveOneOutScore(shrinkage, 0.3, 0.5, float(losses.mean()), 1.0, losses < 1, 1.0, losses, np.ones(3))


def test_the_starting_value_is_replaced_only_for_a_gain_beyond_chance() -> None:
    start, better, luck = score([1.0, 2.0, 1.5]), score([0.5, 1.4, 1.0]), score([0.0, 3.0, 1.4])
    assert best_score([start, better]) is better
    assert best_score([start, luck]) is start


def test_the_power_is_chosen_first_and_then_the_metric() -> None:
    given = training()
    given = replace(given, images=np.abs(given.images))
    power, shrinkage, anchor, moments, tried = choose(given, POWERS, SHRINKAGES, (0.3,))
    assert [s.power for s in tried[:3]] == list(POWERS)
    assert {s.power for s in tried[3:]} == {power}
    assert (power, shrinkage, anchor) in {(s.power, s.shrinkage, s.anchor) for s in tried}
    np.testing.assert_allclose(moments.class_means(), given.moments(power, False).class_means())


def test_powers_are_compared_on_a_sample_of_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcep.classify.choosing.POWER_IMAGES", 30)
    given = training(20)
    given = replace(given, images=np.abs(given.images))
    tried = choose(given, POWERS, SHRINKAGES[:2], (0.3,)).tried
    assert [len(s.correct) for s in tried] == [30] * 3 + [100] * 2


def test_nothing_is_chosen_where_nothing_can_be_held_out() -> None:
    assert choose(training(1), POWERS, SHRINKAGES, (0.1,))[-1] == []
    assert choose(training(6), (1.0,), (0.3,), (0.1,))[-1] == []


def test_images_far_from_all_others_do_not_break_the_metric() -> None:
    given = training()
    lonely = replace(space(given, 10.0), images=given.images * 1e3, means=np.zeros((5, 8)))
    assert np.isfinite(lonely.norms).all()


@pytest.mark.parametrize("n_images", [1, 2, 6])
def test_a_calibration_in_the_units_of_the_dictionary(n_images: int) -> None:
    given = training(n_images)
    moments = given.moments(1.0, False)
    found = []
    for rescale in (True, False):
        dictionary = ConceptDictionary.from_images(given.hierarchy, moments, rescale=rescale)
        found.append(
            calibrate(given, dictionary, moments, 0.0).calibration.temperature * dictionary.transform.scale**-2
        )
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_the_temperature_allows_for_noisier_means_of_held_out_images() -> None:
    """Temperatures follow 1 + 0.7 / n: means of n - 1 images, met by held-out ones, are noisier than those of n."""
    for n in (2, 6):
        given = training(n)
        moments = given.moments(1.0, False)
        dictionary = ConceptDictionary.from_images(given.hierarchy, moments, rescale=True)
        space = given.left_out(given.folds.rows, dictionary.transform, moments)
        held_out = fit_calibration(space.held_out(given.folds, 0.3, 5)).temperature
        noisier = (1 + 0.7 / (n - 1)) / (1 + 0.7 / n)
        temperature = calibrate(given, dictionary, moments, 0.3).calibration.temperature
        assert temperature == pytest.approx(held_out / noisier, rel=1e-9)


def test_the_temperature_of_two_images_per_class_is_right_for_new_images() -> None:
    rng, n_dims = np.random.default_rng(0), 64
    leaves = np.array([f"c{i:03}" for i in range(100)])
    edges = [("r", f"g{i // 4}") for i in range(0, 100, 4)] + [(f"g{i // 4}", leaf) for i, leaf in enumerate(leaves)]
    hierarchy, centres = Hierarchy.from_edges(edges), rng.standard_normal((100, n_dims))
    own, new = np.repeat(np.arange(100), 2), np.repeat(np.arange(100), 40)
    X, X_new = (centres[rows] + rng.standard_normal((len(rows), n_dims)) for rows in (own, new))
    given = TrainingSet(hierarchy, leaves, X, own, np.ones(200))
    moments = given.moments(1.0, False)
    dictionary = ConceptDictionary.from_images(hierarchy, moments, rescale=True)
    tree = hierarchy.path_tree
    ends = np.array([hierarchy.ids[synset] for synset in tree.synset[tree.leaf_nodes]])
    objectives = path_objectives(X_new, dictionary, anchor=0.3)[:, np.argsort(ends)]
    gaps = objectives - objectives.min(axis=1, keepdims=True)
    best, found = fit_calibration(objectives, new), calibrate(given, dictionary, moments, 0.3).calibration
    assert np.median(found.temperatures(gaps)) == pytest.approx(np.median(best.temperatures(gaps)), rel=0.1)


def test_an_affine_transform_has_no_power_and_no_unit_norm() -> None:
    assert EmbeddingTransform(scale=2.0).is_affine
    assert not EmbeddingTransform(power=0.5).is_affine
