"""Probabilities: their temperature, priors, concepts, the likeliest few; and data that nobody wishes for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep.classify.calibration import Calibration, class_priors, fit_calibration, log_losses
from hcep.errors import HCEPError
from hcep.evaluate import expected_calibration_error
from hcep.models.loading import load_model
from hcep.models.saving import save_model

TREE = Hierarchy.from_edges(
    [("r", "animal"), ("r", "thing"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox"), ("thing", "car")]
)
DAG = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "y"), ("r", "z")])


def draw(leaves: tuple[str, ...], n: int, noise: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).gamma(2.0, 1.0, (len(leaves), 12))
    own = np.repeat(np.arange(len(leaves)), n)
    return np.abs(centres[own] + noise * rng.standard_normal((len(own), 12))), np.array(leaves)[own]


@pytest.fixture(scope="module")
def model() -> HCEPClassifier:
    return HCEPClassifier(TREE).fit(*draw(TREE.leaves, 12))


# -- calibration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_the_temperature_and_exponent_that_made_the_labels_are_found(exponent: float) -> None:
    rng = np.random.default_rng(0)
    objectives = rng.gamma(2.0, 1.0, size=(6000, 6)) * np.exp(rng.standard_normal((6000, 1)))
    truth = Calibration(0.5, exponent, 2.0)
    own = np.array([rng.choice(6, p=row) for row in truth.probabilities(objectives)])
    found = fit_calibration(objectives, own)
    assert found.exponent == pytest.approx(exponent, abs=0.1)
    np.testing.assert_allclose(found.probabilities(objectives), truth.probabilities(objectives), atol=0.05)


def test_equal_objectives_are_equally_likely() -> None:
    flat = np.ones((3, 4))
    np.testing.assert_allclose(fit_calibration(flat).probabilities(flat), 0.25)


def test_log_losses_are_those_of_the_probabilities() -> None:
    objectives = np.random.default_rng(0).gamma(2.0, 1.0, (9, 4))
    calibration = Calibration(0.3, 0.4, 2.0)
    expected = -np.log(calibration.probabilities(objectives)[:, 0])
    np.testing.assert_allclose(log_losses(objectives, calibration), expected)


def test_new_images_are_as_often_right_as_the_probabilities_say() -> None:
    many = Hierarchy.from_edges(
        [("r", f"g{i // 4}") for i in range(0, 40, 4)] + [(f"g{i // 4}", f"c{i:02}") for i in range(40)]
    )
    model = HCEPClassifier(many).fit(*draw(many.leaves, 8, 1.5))
    X, y = draw(many.leaves, 50, 1.5, seed=1)
    probabilities = model.predict_proba(X)
    right = model.classes_[probabilities.argmax(axis=1)] == y
    assert 0.3 < right.mean() < 0.99
    assert expected_calibration_error(probabilities.max(axis=1), right) < 0.05


# -- priors ----------------------------------------------------------------------------------------


def test_priors_scale_the_odds() -> None:
    p = Calibration(1.0).probabilities(np.zeros((1, 2)), class_priors([3, 1], np.array([5, 5])))
    np.testing.assert_allclose(p, [[0.75, 0.25]])
    np.testing.assert_allclose(class_priors("empirical", np.array([1, 3])), [0.25, 0.75])
    assert class_priors("uniform", np.array([1, 3])) is None


@pytest.mark.parametrize("priors", ["even", [1.0], [1, -1, 1, 1], [0, 0, 0, 0], [np.nan, 1, 1, 1], [[1, 1, 1, 1]]])
def test_invalid_priors_are_rejected(priors: object) -> None:
    with pytest.raises(HCEPError, match=r"priors must be"):
        HCEPClassifier(TREE, priors=priors).fit(*draw(TREE.leaves, 3))


def test_the_path_leads_to_the_most_probable_class(tmp_path: Path) -> None:
    X, y = draw(TREE.leaves, 8, 2.0)
    priors = [1e-9, 1.0, 1.0, 1.0]
    plain, leaning = HCEPClassifier(TREE).fit(X, y), HCEPClassifier(TREE, priors=priors).fit(X, y)
    assert "car" in plain.predict(X)
    assert "car" not in leaning.predict(X)
    found = leaning.infer(X, n_best=3)
    assert found.labels.tolist() == leaning.predict(X).tolist() == found.leaves.tolist()
    assert leaning.pursue(X).leaves.tolist() == found.leaves.tolist()
    assert all(len(set(row.tolist())) == 3 for row in found.n_best_nodes)
    odds = plain.predict_proba(X) * np.array(priors)
    np.testing.assert_allclose(found.probabilities, odds / odds.sum(axis=1, keepdims=True), rtol=1e-6)
    loaded = load_model(save_model(leaning, tmp_path / "model"))
    assert loaded.predict_proba(X) == pytest.approx(found.probabilities)
    assert loaded.infer(X).probabilities.tolist() == found.probabilities.tolist()


def test_empirical_priors_follow_the_images() -> None:
    X, y = draw(TREE.leaves, 9)
    kept = (y != "dog") | (np.arange(len(y)) % 3 == 0)
    model = HCEPClassifier(TREE, priors="empirical").fit(X[kept], y[kept])
    np.testing.assert_allclose(model.priors_, np.array([9, 9, 3, 9]) / 30)


def test_priors_and_a_step_limit() -> None:
    X, y = draw(TREE.leaves, 8, 2.0)
    model = HCEPClassifier(TREE, priors=[1e-9, 1, 1, 1], max_steps=1).fit(X, y)
    assert set(model.pursue(X).paths) == {("animal",)}
    assert "car" not in model.predict(X)


# -- concepts and the likeliest few ----------------------------------------------------------------


def test_a_concept_has_the_probability_of_its_classes_each_counted_once() -> None:
    model = HCEPClassifier(DAG, collapse=False).fit(*draw(("x", "y", "z"), 6))
    X, _ = draw(("x", "y", "z"), 4, 2.0, seed=1)
    p, nodes = model.predict_proba(X), model.node_probabilities(X)
    of = {synset: nodes[:, model.hierarchy_.index(synset)] for synset in model.hierarchy_.ids}
    np.testing.assert_allclose(of["r"], 1.0)
    np.testing.assert_allclose(of["a"], p[:, 0])
    np.testing.assert_allclose(of["b"], p[:, 0] + p[:, 1])
    np.testing.assert_allclose(of["x"], p[:, 0])


@pytest.mark.parametrize("head", ["path", "logistic"])
def test_probabilities_of_children_add_up_to_that_of_their_parent(head: str) -> None:
    uneven = Hierarchy.from_edges([("r", "car"), ("r", "animal"), ("animal", "cat"), ("animal", "dog")])
    model = HCEPClassifier(uneven, head=head).fit(*draw(("car", "cat", "dog"), 6))
    X, _ = draw(("car", "cat", "dog"), 3, 2.0, seed=1)
    of = dict(zip(model.hierarchy_.ids, model.node_probabilities(X).T, strict=True))
    np.testing.assert_allclose(of["r"], of["car"] + of["animal"])
    np.testing.assert_allclose(of["animal"], of["cat"] + of["dog"])
    np.testing.assert_allclose(np.column_stack([of["car"], of["cat"], of["dog"]]), model.predict_proba(X))


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_top_k_agrees_with_all_probabilities(model: HCEPClassifier, k: int) -> None:
    X, _ = draw(TREE.leaves, 5, 2.0, seed=1)
    labels, likely = model.predict_topk(X, k)
    p = model.predict_proba(X)
    order = np.argsort(-p, axis=1, kind="stable")[:, :k]
    assert labels.tolist() == model.classes_[order].tolist()
    np.testing.assert_array_equal(likely, np.take_along_axis(p, order, axis=1))
    assert labels[:, 0].tolist() == model.predict(X).tolist()


def test_top_k_needs_a_positive_number(model: HCEPClassifier) -> None:
    with pytest.raises(HCEPError, match="k must be"):
        model.predict_topk(draw(TREE.leaves, 1)[0], 0)


# -- power and refinement --------------------------------------------------------------------------


def test_embeddings_with_negative_numbers_are_raised_to_no_power() -> None:
    X, y = draw(TREE.leaves, 6)
    assert HCEPClassifier(TREE).fit(X - 1.0, y).power_ == 1.0
    with pytest.raises(HCEPError, match=r"power must be 1 or 'auto' for embeddings with negative numbers, got 0\.5"):
        HCEPClassifier(TREE, power=0.5).fit(X - 1.0, y)


@pytest.mark.parametrize("parameter", [{"power": 0.0}, {"power": 2.0}, {"power": "sqrt"}, {"refine": "yes"}])
def test_invalid_parameters_are_rejected(parameter: dict[str, object]) -> None:
    with pytest.raises(HCEPError, match=f"{next(iter(parameter))} must be 'auto'"):
        HCEPClassifier(TREE, **parameter).fit(*draw(TREE.leaves, 6))


def test_refined_leaves_have_moved_and_concepts_are_still_means(model: HCEPClassifier, tmp_path: Path) -> None:
    dictionary, still = model.dictionary_, HCEPClassifier(TREE, refine=False).fit(*draw(TREE.leaves, 12))
    assert still.leaf_moves_ is None
    moved = [
        np.linalg.norm(dictionary.synset_embedding(c) - still.dictionary_.synset_embedding(c)) for c in model.classes_
    ]
    np.testing.assert_allclose(model.leaf_moves_, moved)
    assert model.leaf_moves_.max() > 1e-4
    animals = np.mean([dictionary.synset_embedding(c) for c in ("cat", "dog", "fox")], axis=0)
    np.testing.assert_allclose(dictionary.synset_embedding("animal"), animals)
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.leaf_moves_, model.leaf_moves_)
    assert "class embeddings moved from their means" in (tmp_path / "model" / "README.md").read_text()


def test_the_dictionary_is_a_function_of_moments_and_choices() -> None:
    model = HCEPClassifier(TREE, refine=False).fit(*draw(TREE.leaves, 6))
    again = model._dictionary_of(model.moments_)
    np.testing.assert_array_equal(again.synset_embeddings, model.dictionary_.synset_embeddings)


def test_the_published_configuration_has_no_power_priors_or_refinement() -> None:
    model = HCEPClassifier.paper(TREE).fit(*draw(TREE.leaves, 6))
    assert (model.power_, model.leaf_moves_, model.priors_, model.shrinkage_) == (1.0, None, None, None)


# -- data that nobody wishes for -------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 6])
def test_constant_features_say_nothing(n: int) -> None:
    model = HCEPClassifier(TREE).fit(np.ones((4 * n, 3)), np.repeat(TREE.leaves, n))
    np.testing.assert_allclose(model.predict_proba(np.ones((2, 3))), 0.25, atol=1e-6)


def test_copies_of_one_image_per_class() -> None:
    X, y = draw(TREE.leaves, 1)
    model = HCEPClassifier(TREE).fit(np.repeat(X, 6, axis=0), np.repeat(y, 6))
    assert model.predict(X).tolist() == y.tolist()
    assert np.isfinite(model.predict_proba(X)).all()


def test_duplicated_images_cost_little_accuracy() -> None:
    X, y = draw(TREE.leaves, 6, 2.0)
    new, truth = draw(TREE.leaves, 50, 2.0, seed=1)
    once = HCEPClassifier(TREE).fit(X, y).score(new, truth)
    assert HCEPClassifier(TREE).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2)).score(new, truth) > once - 0.1


def test_one_image_per_class() -> None:
    X, y = draw(TREE.leaves, 1)
    model = HCEPClassifier(TREE).fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    assert model.leaf_moves_ is None


def test_ten_thousand_images_beside_one() -> None:
    X, y = draw(("car", "cat"), 10_000, 0.5)
    lone, other = draw(("car", "cat", "dog", "fox"), 1, 0.5, seed=3)
    kept = np.isin(other, ["dog", "fox"])
    model = HCEPClassifier(TREE).fit(np.concatenate([X, lone[kept]]), np.concatenate([y, other[kept]]))
    new, truth = draw(("car", "cat", "dog", "fox"), 40, 0.5, seed=4)
    right = model.predict(new) == truth
    assert right[np.isin(truth, ["car", "cat"])].mean() > 0.95
    assert right[np.isin(truth, ["dog", "fox"])].mean() > 0.8


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_tiny_and_huge_numbers(scale: float) -> None:
    X, y = draw(TREE.leaves, 6, 2.0)
    plain, scaled = HCEPClassifier(TREE, power=1.0).fit(X, y), HCEPClassifier(TREE, power=1.0).fit(scale * X, y)
    assert scaled.shrinkage_ == plain.shrinkage_
    np.testing.assert_allclose(scaled.predict_proba(scale * X), plain.predict_proba(X), atol=1e-2)


def test_a_feature_that_is_always_zero() -> None:
    X, y = draw(TREE.leaves, 6)
    model = HCEPClassifier(TREE).fit(np.column_stack([X, np.zeros(len(X))]), y)
    assert model.score(np.column_stack([X, np.zeros(len(X))]), y) > 0.9
