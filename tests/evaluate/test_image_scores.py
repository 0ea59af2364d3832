import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score

from hcep import (
    ConceptDictionary,
    HCEPClassifier,
    HCEPError,
    HierarchyError,
    hb_omp,
    support_scores,
    tree_distances,
)
from hcep.datasets import load_sample
from hcep.evaluate import evaluate_method, expected_calibration_error, score_images
from hcep.evaluate.support import lca_heights
from hcep.pursuit import FlatResult
from tests.conftest import k_shot
from tests.reference.random_problems import random_problem

PETS = ["cat", "dog", "fox", "car", "bus"]


@pytest.fixture
def scores(pets):
    supports = [("animal", "cat"), ("animal", "dog"), ("vehicle", "car"), ()]
    probabilities = [[0.7, 0.2, 0.1, 0, 0], [0.3, 0.6, 0.1, 0, 0], [0, 0.1, 0, 0.9, 0], [0.2, 0.2, 0.2, 0.2, 0.2]]
    return score_images(
        supports, ["cat"] * 4, pets, probabilities=probabilities, classes=PETS, predicted=["cat", "dog", "car", "cat"]
    )


def test_labels_by_hand(scores):
    assert scores["correct"].tolist() == [1, 0, 0, 1]
    assert scores["top_1"].tolist() == [1, 0, 0, 1]
    assert scores["top_5"].tolist() == [1, 1, 1, 1]
    assert scores["confidence"].tolist() == [0.7, 0.6, 0.9, 0.2]
    np.testing.assert_array_equal(scores["tree_distance"], [np.nan, 2, 4, np.nan])
    np.testing.assert_array_equal(scores["lca_height"], [np.nan, 1, 2, np.nan])
    assert scores["n_atoms"].tolist() == [2, 2, 2, 0]


def test_summary(scores):
    summary = scores.summary()
    assert summary["correct"] == 0.5
    assert summary["tree_distance"] == 3.0
    assert summary["support_recall"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert summary["ece"] == pytest.approx((0.3 + 0.6 + 0.9 + 0.8) / 4)


def test_the_most_probable_class_is_the_default_prediction(pets):
    probabilities = [[0.3, 0.6, 0.1, 0, 0], [0.5, 0.5, 0, 0, 0]]
    scores = score_images([("animal",)] * 2, ["dog", "dog"], pets, probabilities=probabilities, classes=PETS)
    assert scores.predicted == ("dog", "cat")
    assert scores["top_1"].tolist() == scores["correct"].tolist() == [1, 0]


def test_without_predictions_only_supports_are_scored(pets):
    scores = score_images([("animal", "cat")], ["cat"], pets)
    assert scores.predicted is None
    assert scores["support_f1"].tolist() == [1.0]
    assert np.isnan([scores[name][0] for name in ("correct", "top_1", "tree_distance", "confidence")]).all()
    assert np.isnan(scores.summary()["ece"])


def test_a_predicted_inner_synset_is_a_near_mistake(pets):
    scores = score_images([("animal",)], ["cat"], pets, predicted=["animal"])
    assert (scores["correct"][0], scores["tree_distance"][0]) == (0, 1)


def test_a_predicted_class_without_a_probability_has_no_confidence(pets):
    probabilities = [[0.5, 0.5]]
    scores = score_images(
        [("animal",)], ["fox"], pets, predicted=["fox"], probabilities=probabilities, classes=["cat", "dog"]
    )
    assert np.isnan(scores["confidence"][0])
    assert scores["top_5"].tolist() == [0.0]  # a class that has no column is never among the first


def test_a_black_box_has_no_supports_to_score(pets_dictionary):
    result = hb_omp(np.ones((2, 4)), pets_dictionary)
    nothing = FlatResult(pets_dictionary, result.codes[:, :0], np.full(2, np.nan), np.zeros((2, 0), np.int32))
    scores = score_images(nothing, ["cat", "dog"], pets_dictionary.hierarchy, predicted=["cat", "cat"])
    assert np.isnan([scores[name] for name in ("support_f1", "one_path", "prefix_1", "n_atoms")]).all()
    assert scores["correct"].tolist() == [1, 0]


@pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
@given(st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_the_order_of_images_does_not_matter(seed, random):
    problem = random_problem(seed, n_images=6)
    h = problem.dictionary.hierarchy
    y = [h.leaves[i % len(h.leaves)] for i in range(6)]
    rows = random.sample(range(6), 6)
    result = hb_omp(problem.X, problem.dictionary, **problem.options)
    shuffled = hb_omp(problem.X[rows], problem.dictionary, **problem.options)
    predicted = [h.leaves[0]] * 6
    scores = score_images(result, y, h, predicted=predicted)
    again = score_images(shuffled, [y[i] for i in rows], h, predicted=predicted)
    taken = scores.take(rows)
    assert taken.labels == again.labels
    for name, values in again.columns.items():
        np.testing.assert_allclose(values, taken[name], atol=1e-9)
    assert again.summary() == pytest.approx(scores.summary(), nan_ok=True, abs=1e-9)


def test_columns_agree_with_the_functions_of_one_metric(tiny_imagenet):
    h, y = tiny_imagenet["hierarchy"], tiny_imagenet["y_val"][:400]
    d = ConceptDictionary.from_images(h, *k_shot(tiny_imagenet["X"], tiny_imagenet["y"], 3))
    result = hb_omp(tiny_imagenet["X_val"][:400], d)
    predicted, wrong = result.leaves, result.leaves != y
    probabilities = np.random.default_rng(0).dirichlet(np.ones(200), 400)
    scores = score_images(result, y, h, predicted=predicted, probabilities=probabilities, classes=h.leaves)
    summary = scores.summary()
    assert summary["correct"] == pytest.approx(accuracy_score(y, predicted))
    assert (summary["support_precision"], summary["support_recall"]) == pytest.approx(support_scores(result, y, h).mean)
    assert summary["tree_distance"] == pytest.approx(tree_distances(y[wrong], predicted[wrong], h).mean())
    assert summary["lca_height"] == pytest.approx(lca_heights(y[wrong], predicted[wrong], h).mean())
    own = [probabilities[i, h.leaves.index(leaf)] for i, leaf in enumerate(predicted)]
    assert summary["ece"] == pytest.approx(expected_calibration_error(own, predicted == y))
    assert summary["one_path"] == 1.0


@pytest.mark.slow
def test_five_thousand_images_take_less_than_a_second(tiny_imagenet):
    h, X, y = tiny_imagenet["hierarchy"], tiny_imagenet["X_val"], tiny_imagenet["y_val"]
    result = hb_omp(X, ConceptDictionary.from_images(h, tiny_imagenet["X"], tiny_imagenet["y"]))
    probabilities = np.random.default_rng(0).dirichlet(np.ones(200), len(X))
    start = time.process_time()
    score_images(result, y, h, predicted=result.leaves, probabilities=probabilities, classes=h.leaves)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("options", [{"anchor": 0.03}, {"anchor": 0.0, "head": "logistic", "beam_width": 8}])
def test_evaluate_method(options):
    sample = load_sample()
    model = HCEPClassifier(sample.hierarchy.as_tree("first"), shrinkage=None, **options)
    X = sample.X_val[:, :160]
    model.fit(sample.X_train[:, :160], sample.y_train)
    scores = evaluate_method(model, X, sample.y_val, top_k=(2,))
    assert scores.summary()["correct"] == pytest.approx(model.score(X, sample.y_val))
    assert scores.summary()["top_2"] >= scores.summary()["correct"]
    assert "top_1" not in scores.columns


def test_a_method_without_probabilities_uses_predict(pets_dictionary):
    class Plain:
        hierarchy_ = pets_dictionary.hierarchy

        def pursue(self, X):
            return hb_omp(X, pets_dictionary, signed=True)

        def predict(self, X):
            return self.pursue(X).leaves

    leaves = pets_dictionary.hierarchy.leaves
    scores = evaluate_method(Plain(), pets_dictionary.leaf_embeddings, leaves)
    assert scores.summary()["correct"] == 1.0
    assert np.isnan(scores["top_5"]).all()


def test_to_table(scores):
    rows = scores.to_table(ids=["a", "b", "c", "d"]).to_pylist()
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    assert rows[1]["label"] == "cat"
    assert rows[1]["predicted"] == "dog"
    assert (rows[0]["tree_distance"], rows[1]["tree_distance"]) == (None, 2.0)
    assert scores.to_table().column_names[:3] == ["label", "predicted", "correct"]


def test_a_table_without_predictions(pets):
    assert score_images([("animal",)], ["cat"], pets).to_table().column_names[:2] == ["label", "correct"]


def test_no_images(pets):
    scores = score_images([], [], pets, predicted=[])
    assert len(scores) == 0
    assert all(np.isnan(value) for value in scores.summary().values())


def test_representation_and_unknown_columns(scores):
    assert repr(scores) == f"ImageScores(4 images, {len(scores.columns)} metrics)"
    with pytest.raises(HCEPError, match=r"there is no metric 'support_f2'. Near matches: 'support_f1'"):
        _ = scores["support_f2"]


def test_invalid_arguments_are_rejected(pets):
    supports, y = [("animal",)], ["cat"]
    with pytest.raises(HCEPError, match="1 supports but 2 labels; pass one label per support"):
        score_images(supports, ["cat", "dog"], pets)
    with pytest.raises(HCEPError, match="predicted has 2 labels and y has 1; pass one label per image"):
        score_images(supports, y, pets, predicted=["cat", "dog"])
    with pytest.raises(HCEPError, match="classes is missing: pass the class of each column of probabilities"):
        score_images(supports, y, pets, probabilities=[[1.0]])
    with pytest.raises(HCEPError, match=r"a row per image and a column per class, \(1, 2\); got shape \(1, 1\)"):
        score_images(supports, y, pets, probabilities=[[1.0]], classes=["cat", "dog"])
    with pytest.raises(HCEPError, match="top_k must hold positive integers, got 0"):
        score_images(supports, y, pets, top_k=(1, 0))
    with pytest.raises(HierarchyError, match="'lion' is not a concept"):
        score_images(supports, ["lion"], pets)


def test_a_classifier_without_concepts_is_rejected_with_advice(pets):
    X, y = np.eye(4), ["cat", "dog"] * 2
    with pytest.raises(HCEPError, match=r"a LogisticRegression does not find concepts.*make_method\('linear-probe'\)"):
        evaluate_method(LogisticRegression().fit(X, y), X, y)
