"""Truths above the classes: what counts as right, what is not judged, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import HCEPClassifier, HCEPError, Hierarchy, HierarchyError, support_scores
from hcep.datasets import make_hierarchical_concepts
from hcep.evaluate import audit, compare_scores, evaluate_method, score_images
from hcep.evaluate.compare import RunningScores
from hcep.evaluate.grade import evaluate_blocks
from hcep.evaluate.truths import Truths
from tests.reference.random_problems import random_hierarchy


@pytest.fixture
def owls() -> Hierarchy:
    """thing -> bird -> (finch, owl -> (barn owl, eagle owl)); thing -> vehicle -> (car, bus)."""
    return Hierarchy.from_edges(
        [
            ("thing", "bird"), ("thing", "vehicle"), ("bird", "finch"), ("bird", "owl"), ("owl", "barn owl"),
            ("owl", "eagle owl"), ("vehicle", "car"), ("vehicle", "bus"),
        ]
    )  # fmt: skip


def path(hierarchy: Hierarchy, concept: str) -> tuple[str, ...]:
    return hierarchy.paths(concept)[0]


def score(hierarchy, y, answers, **options):
    return score_images([path(hierarchy, a) for a in answers], y, hierarchy, predicted=answers, **options)


def test_an_answer_is_right_if_it_is_the_true_concept_or_below_it(owls):
    answers = ["owl", "barn owl", "finch", "bird", "car"]
    scores = score(owls, ["owl"] * 5, answers)
    assert scores["correct"].tolist() == [1, 1, 0, 0, 0]
    np.testing.assert_array_equal(scores["tree_distance"], [np.nan, np.nan, 2, 1, 4])
    np.testing.assert_array_equal(scores["lca_height"], [np.nan, np.nan, 2, 2, 3])


def test_concepts_below_the_truth_are_not_judged(owls):
    scores = score(owls, ["owl", "owl", "bird", "bird"], ["barn owl", "finch", "barn owl", "car"])
    assert scores["support_precision"].tolist() == [1, 0.5, 1, 0]
    assert scores["support_recall"].tolist() == [1, 0.5, 1, 0]
    np.testing.assert_array_equal(scores["prefix_1"], [1, 1, 1, 0])
    np.testing.assert_array_equal(scores["prefix_2"], [1, 0, np.nan, np.nan])
    np.testing.assert_array_equal(scores["prefix_3"], [np.nan] * 4)


def test_an_answer_above_the_truth_is_judged_as_for_a_class(owls):
    scores = score(owls, ["owl", "barn owl"], ["bird", "bird"])
    assert scores["correct"].tolist() == [0, 0]
    assert scores["support_precision"].tolist() == [1, 1]
    assert scores["support_recall"].tolist() == [1 / 2, 1 / 3]


@pytest.mark.parametrize("truth", [["finch", "car"], "finch|car", ("car", "finch")])
def test_one_of_several_concepts_is_right(owls, truth):
    scores = score(owls, [truth] * 4, ["finch", "car", "owl", "bus"])
    assert scores["correct"].tolist() == [1, 1, 0, 0]
    assert scores["coarse"].tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(scores["tree_distance"], [np.nan, np.nan, 2, 2])
    assert scores["support_f1"].tolist() == [1, 1, 0.5, 0.5]
    assert set(scores.labels[0].split("|")) == {"finch", "car"}


def test_a_set_of_one_class_is_that_class(owls):
    scores = score(owls, [["car"], "car|car", "car | car"], ["car", "car", "bus"])
    assert scores.labels == ("car", "car", "car")
    assert scores["correct"].tolist() == [1, 1, 0]
    assert scores.n_coarse == 0


def test_the_root_is_not_scored_but_counted(owls):
    scores = score(owls, ["thing", "car", "owl"], ["car", "car", "car"])
    assert (scores.n_unlabelled, scores.n_coarse, len(scores)) == (1, 1, 3)
    assert all(np.isnan(column[0]) for column in scores.columns.values())
    assert scores.summary()["correct"] == 0.5
    table = compare_scores({"a": scores, "b": scores}, columns=["correct"], n_resamples=10)
    assert (table.n_images, table.n_coarse, table.n_unlabelled) == (2, 1, 1)
    assert table.note.startswith("2 images (1 labelled above the classes; 1 unlabelled image is not scored); ")


def test_top_k_asks_for_one_of_the_classes_that_the_truth_allows(owls):
    classes = ["car", "barn owl", "eagle owl", "finch"]
    probabilities = [[0.5, 0.1, 0.3, 0.1]] * 4
    scores = score_images(
        [()] * 4, ["owl", "bird", "vehicle", "barn owl"], owls, probabilities=probabilities, classes=classes,
        top_k=(1, 2, 3),
    )  # fmt: skip
    assert [scores[f"top_{k}"].tolist() for k in (1, 2, 3)] == [[0, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert scores["correct"].tolist() == scores["top_1"].tolist()


def test_the_calibration_error_uses_images_labelled_with_a_class(owls):
    probabilities = [[0.6, 0.4], [0.6, 0.4]]
    both = score_images([()] * 2, ["car", "vehicle"], owls, probabilities=probabilities, classes=["car", "bus"])
    assert both["confidence"].tolist() == [0.6, 0.6]
    assert both.summary()["ece"] == both.take([0]).summary()["ece"] == pytest.approx(0.4)
    assert np.isnan(both.take([1]).summary()["ece"])
    (ece,) = compare_scores({"": both}, columns=["ece"], n_resamples=10).scores
    assert (ece.n_images, ece.mean) == (1, pytest.approx(0.4))


def test_scores_per_class_use_images_labelled_with_a_class(owls):
    running = RunningScores.of(score(owls, ["owl", "car", "thing", "car"], ["barn owl", "car", "car", "bus"]))
    assert {label: sums.tolist()[:2] for label, sums in running.by_class.items()} == {"car": [2, 1]}
    assert (running.n_coarse, running.n_unlabelled) == (1, 1)


def test_a_concept_that_was_merged_into_its_only_class_is_a_coarse_truth(owls):
    merged = owls.restrict(["barn owl", "finch", "car"]).collapse()
    scores = score(merged, ["owl", "owl", "barn owl", "vehicle"], ["barn owl", "finch", "barn owl", "car"])
    assert scores["correct"].tolist() == [1, 0, 1, 1]
    assert scores["coarse"].tolist() == [1, 1, 0, 1]


def test_unknown_truths_are_rejected(owls):
    with pytest.raises(HierarchyError, match="'barn' is not a concept of this hierarchy"):
        score(owls, ["barn"], ["car"])
    with pytest.raises(HierarchyError, match=r"'owl\|barn' is not a concept of this hierarchy"):
        score(owls, ["owl|barn"], ["car"])
    with pytest.raises(HierarchyError, match=r"\['barn', 'owl'\] has 'barn', which is not a known concept"):
        score(owls, [["owl", "barn"]], ["car"])


def test_in_a_dag_another_way_to_a_class_below_the_truth_is_not_wrong():
    h = Hierarchy.from_edges(
        [("r", "pet"), ("r", "feline"), ("pet", "cat"), ("feline", "cat"), ("pet", "dog"), ("feline", "lion")]
    )
    scores = support_scores([("feline", "cat"), ("pet", "cat"), ("feline", "lion"), ("cat",)], ["pet"] * 4, h)
    np.testing.assert_array_equal(scores.precision, [1, 1, 0.5, np.nan])  # the pet may be a feline
    np.testing.assert_array_equal(scores.recall, [1, 1, 1, np.nan])


@given(seed=st.integers(0, 10_000), several_parents=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_path_through_the_truth_scores_one_wherever_it_is_judged(seed, several_parents):
    h = random_hierarchy(np.random.default_rng(seed), several_parents)
    triples = [(concept, p) for leaf in h.leaves for p in h.paths(leaf) for concept in p]
    scores = score_images([p for _, p in triples], [c for c, _ in triples], h, predicted=[p[-1] for _, p in triples])
    assert (scores["correct"] == 1).all()
    judged = np.array([v for name, v in scores.columns.items() if name.startswith(("support_", "prefix_"))])
    assert (judged[~np.isnan(judged)] == 1.0).all()


@given(seed=st.integers(0, 10_000), several_parents=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_coarser_truth_never_makes_a_right_answer_wrong(seed, several_parents):
    rng = np.random.default_rng(seed)
    h = random_hierarchy(rng, several_parents)
    leaves = rng.choice(h.leaves, 12)
    answers = rng.choice(h.ids[1:], 12).tolist()
    above = [str(rng.choice([leaf, *h.ancestors(leaf)[1:]])) for leaf in leaves]
    exact, coarse = (score(h, y, answers)["correct"] for y in (leaves, above))
    assert (coarse >= exact).all()


# -- a fitted model ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    data = make_hierarchical_concepts(branching=3, depth=3, dim=16, noise=0.05, samples_per_leaf=6, random_state=0)
    return HCEPClassifier(data.hierarchy).fit(data.X, data.y), data


def coarser(model, y, every=3):
    """Labels, of which one in three is the class and the others the concept above it."""
    return np.array([c if i % every == 0 else model.hierarchy_.parents(c)[0] for i, c in enumerate(y.tolist())])


def test_the_score_of_a_classifier_counts_answers_below_the_truth(fitted):
    model, data = fitted
    y = coarser(model, data.y)
    right = Truths(y, model.hierarchy_).correct(model.predict(data.X).tolist())
    assert model.score(data.X, y) == right.mean() >= model.score(data.X, data.y)
    assert model.score(data.X, [model.hierarchy_.root, *y[1:]]) == right[1:].mean()
    weights = np.arange(len(y), dtype=float)
    assert model.score(data.X, y, weights) == pytest.approx(np.average(right, weights=weights))
    assert model.score(data.X, ["no class"] * len(y)) == 0.0
    assert np.isnan(model.score(data.X, [model.hierarchy_.root] * len(y)))


def test_calibrating_on_exact_truths_alone_gives_the_same_scores(fitted):
    model, data = fitted
    y = coarser(model, data.y)
    exact = y == data.y
    held = [HCEPClassifier.calibrate(model, *part).held_out_ for part in ((data.X, y), (data.X[exact], data.y[exact]))]
    np.testing.assert_array_equal(held[0].class_index, held[1].class_index)
    np.testing.assert_allclose(held[0].scores, held[1].scores, atol=1e-6)


def test_calibration_with_too_few_exact_truths_is_rejected(fitted):
    model, data = fitted
    y = coarser(model, data.y[:20])
    with pytest.raises(HCEPError, match=r"only 7 of 20 images are labelled with a possible class.*at least 9"):
        model.calibrate(data.X[:20], y)
    with pytest.raises(HCEPError, match=r"labels that are not classes of the model: 'no class'"):
        model.calibrate(data.X[:2], [y[0], "no class"])


def test_blocks_of_images_give_the_same_counts_and_means(fitted):
    model, data = fitted
    y = coarser(model, data.y)
    whole = RunningScores.of(evaluate_method(model, data.X, y))
    parts = evaluate_blocks(model, [(data.X[i : i + 20], y[i : i + 20]) for i in range(0, len(y), 20)])
    for columns in (["correct"], ["support_f1"], ["ece"]):
        assert parts.table(columns).scores[0].mean == pytest.approx(whole.table(columns).scores[0].mean)
    assert parts.n_coarse == whole.n_coarse == int((y != data.y).sum())


def test_an_audit_of_coarse_truths_alone_is_rejected(fitted):
    model, data = fitted
    y = [model.hierarchy_.parents(label)[0] for label in data.y]
    with pytest.raises(HCEPError, match=r"none of \d+ images is labelled with a class, which an audit needs"):
        audit(model, data.X, y)
