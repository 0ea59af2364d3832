"""The metric is folded into the directions: one product gives the same classes and probabilities as the search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, HCEPClassifier
from hcep.dictionary.transform import EmbeddingTransform
from hcep.pursuit import folded, path_objectives
from hcep.pursuit.folded import Fold, for_scores
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")


def scores(X: np.ndarray, dictionary: ConceptDictionary, anchor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of every complete path, and the best path."""
    leaves = dictionary.hierarchy.path_tree.leaf_nodes
    of_node = np.full(dictionary.hierarchy.path_tree.n_nodes, -1, np.int32)
    of_node[leaves] = np.arange(len(leaves))
    out, best = np.empty((len(X), len(leaves))), np.empty(len(X), np.int32)

    def keep(block: slice, scores_of_block: np.ndarray, best_of_block: np.ndarray) -> None:
        out[block], best[block] = scores_of_block, best_of_block

    for_scores(X, dictionary, anchor, of_node, len(leaves), keep)
    return out, best


def with_transform(seed: int, spread: float, **parts: object) -> tuple[ConceptDictionary, np.ndarray]:
    """Return a random dictionary with a random transform, whose metric has the condition number `spread`."""
    rng = np.random.default_rng(seed)
    plain = random_problem(seed).dictionary
    n_dims = plain.n_dims
    axes = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
    whitener = axes * np.geomspace(1.0, spread, n_dims)
    transform = EmbeddingTransform(whitener=whitener, scale=0.7, **parts)  # type: ignore[arg-type]
    # Images are long where the metric is short, as with ill-conditioned data, so products are small differences.
    X = rng.standard_normal((40, n_dims)) @ np.linalg.inv(whitener)
    return ConceptDictionary(plain.hierarchy, plain.synset_embeddings, transform), X


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    anchor=st.sampled_from([0.0, 0.03, 0.3, 50.0]),
    spread=st.sampled_from([1.0, 30.0, 1e4]),
    power=st.sampled_from([1.0, 0.7, 0.5]),
    unit_norm=st.booleans(),
    center=st.booleans(),
)
def test_scores_equal_those_of_the_search_up_to_a_constant(seed, anchor, spread, power, unit_norm, center):
    n_dims = random_problem(seed).dictionary.n_dims
    mean = np.linspace(-1.0, 2.0, n_dims) if center else None
    dictionary, X = with_transform(seed, spread, power=power, unit_norm=unit_norm, mean=mean)
    path_scores, best = scores(X, dictionary, anchor)
    expected = path_objectives(X, dictionary, anchor=anchor)
    size = np.abs(expected).max(axis=1, keepdims=True) + 1.0
    gaps, wanted = path_scores.max(axis=1, keepdims=True) - path_scores, expected - expected.min(axis=1, keepdims=True)
    np.testing.assert_allclose(gaps / size, wanted / size, atol=1e-9)
    clear = np.sort(wanted, axis=1)[:, :2].max(axis=1) > 1e-9 * size[:, 0]
    np.testing.assert_array_equal(best[clear], expected.argmin(axis=1)[clear])


@pytest.mark.parametrize("anchor", [0.0, 0.3])
@pytest.mark.parametrize("spread", [3.0, 1e4, 1e11])
def test_single_precision_agrees_with_double_for_an_ill_conditioned_metric(spread, anchor, monkeypatch):
    precisions = []
    plain = Fold.of.__func__
    monkeypatch.setattr(folded.Fold, "of", classmethod(lambda *args: precisions.append(args[-1]) or plain(*args)))
    n_compared = 0
    for seed in range(12):
        dictionary, X = with_transform(seed, spread)
        X = X.astype(np.float32)
        best = scores(X, dictionary, anchor)[1]
        expected = path_objectives(X.astype(np.float64), dictionary, anchor=anchor)
        ordered = np.sort(expected, axis=1)
        clear = ordered[:, :2].max(axis=1) - ordered[:, 0] > 1e-5 * np.abs(expected).max(axis=1)
        np.testing.assert_array_equal(best[clear], expected.argmin(axis=1)[clear])
        n_compared += clear.sum()
    assert n_compared > 100
    assert "float32" in precisions
    assert ("float64" in precisions) == (spread > 10)
    assert (None in precisions) == (spread > 1e4)


def test_one_product_per_family_follows_from_the_others(pets_dictionary):
    problem = pets_dictionary.path_problem(0.3)
    fold = Fold.of(pets_dictionary, problem, "float64")
    assert len(problem.directions) == 7
    assert len(fold.directions) == len(pets_dictionary.hierarchy.leaves)
    free = random_problem(3).dictionary  # no embedding is a mean
    assert len(Fold.of(free, free.path_problem(), "float64").directions) == len(free.path_problem().directions)


def test_paths_of_a_dag_share_products():
    rng = np.random.default_rng(0)
    groups, leaves = [f"g{i}" for i in range(6)], [f"leaf{i}" for i in range(24)]
    edges = [("root", group) for group in groups]
    edges += [(groups[g], leaf) for leaf in leaves for g in rng.choice(6, 2, replace=False)]
    means = rng.standard_normal((24, 60)) + 1.0
    X = (np.repeat(means, 20, axis=0) + rng.standard_normal((480, 60))).astype(np.float32)
    model = HCEPClassifier(edges, power=1.0, shrinkage=0.3, anchor=0.3, refine=False).fit(X, np.repeat(leaves, 20))
    fold = Fold.of(model.dictionary_, model.dictionary_.path_problem(model.anchor_), "float32")
    assert len(fold.directions) <= 24 < len(fold.directions) + fold.others.shape[1]
    path_scores, best = scores(X, model.dictionary_, model.anchor_)
    expected = path_objectives(X.astype(np.float64), model.dictionary_, anchor=model.anchor_)
    gaps, wanted = path_scores.max(axis=1, keepdims=True) - path_scores, expected - expected.min(axis=1, keepdims=True)
    np.testing.assert_allclose(gaps, wanted, atol=2e-5)
    clear = np.sort(wanted, axis=1)[:, 1] > 1e-4
    assert clear.sum() > 400
    np.testing.assert_array_equal(best[clear], expected.argmin(axis=1)[clear])


def test_an_exact_tie_goes_to_the_first_node(pets_dictionary):
    # Without an anchor, the two children of `vehicle` explain every image equally well.
    path_scores, best = scores(np.array([[0.0, 0.0, 0.3, 5.0]]), pets_dictionary, 0.0)
    ties = np.flatnonzero(path_scores[0] == path_scores[0].max())
    assert len(ties) == 2
    assert best[0] == ties[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("power", [1.0, 0.5, 0.7])
def test_non_finite_rows_are_named(bad, power):
    dictionary, X = with_transform(0, 3.0, power=power)
    X[7, 1] = bad
    with pytest.raises(ValueError, match=r"NaN or infinite values in 1 of 40 rows, such as rows 7"):
        scores(X, dictionary, 0.1)


@pytest.fixture(scope="module")
def fitted() -> tuple[HCEPClassifier, np.ndarray]:
    rng = np.random.default_rng(0)
    tree = random_problem(12).dictionary.hierarchy
    means = rng.gamma(1.0, size=(len(tree.leaves), 20))
    y = np.repeat(tree.leaves, 6)
    X = np.repeat(means, 6, axis=0) * rng.gamma(4.0, 0.25, size=(len(y), 20))
    return HCEPClassifier(tree, power=0.5, shrinkage=0.3, anchor=0.2).fit(X, y), X


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_predict_agrees_with_infer(fitted, dtype, sign):
    model, X = fitted
    X = (sign * X).astype(dtype)
    inferred = model.infer(X)
    np.testing.assert_array_equal(model.predict(X), inferred.labels)
    np.testing.assert_allclose(model.predict_proba(X), inferred.probabilities, atol=1e-5)
    np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), inferred.class_index)


def test_predict_does_not_multiply_images_by_the_metric(fitted, monkeypatch):
    model, X = fitted
    monkeypatch.setattr(EmbeddingTransform, "after_unit_norm", None)
    assert model.predict(X).shape == (len(X),)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_changed_model_gives_new_answers(fitted):
    model, X = fitted
    before, path_model = model.predict(X), model.path_model()
    assert model.path_model() is path_model
    model.set_params(beam_width=1)
    assert model.path_model() is not path_model
    model.set_params(beam_width=None)
    np.testing.assert_array_equal(model.predict(X), before)
