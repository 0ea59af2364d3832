"""The lasso: its optimality conditions, scikit-learn's answer, and what is kept of a code."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from sklearn.linear_model import Lasso

from experiments.baselines import penalised
from experiments.baselines.penalised import NotConvergedWarning, lasso
from hcep import ConceptDictionary, HCEPError
from hcep.errors import DictionaryError, MissingExtraError
from tests.reference.random_problems import random_dictionary, random_hierarchy

pytest.importorskip("skglm", reason="the lasso is skglm's")

FREE_AND_POSITIVE = pytest.mark.parametrize("positive", [False, True])


def problem(seed: int, n_images: int = 12) -> tuple[ConceptDictionary, np.ndarray]:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents=bool(seed % 2))
    dictionary = random_dictionary(rng, hierarchy, leaf_means=bool(seed % 3))
    return dictionary, rng.standard_normal((n_images, dictionary.n_dims))


def unit_codes(codes: Any, dictionary: ConceptDictionary) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of unit-norm atoms, and these atoms; a zero atom stays zero."""
    norms = np.linalg.norm(dictionary.atoms, axis=1)
    unit = dictionary.atoms / np.where(norms > 0, norms, 1.0)[:, None]
    return codes.toarray() * norms, unit


def limits(X: np.ndarray, unit: np.ndarray, positive: bool) -> np.ndarray:
    """The smallest penalty at which each code is empty."""
    products = X @ unit.T
    return np.maximum((products if positive else np.abs(products)).max(axis=1), 0.0)


def objective(X: np.ndarray, unit: np.ndarray, w: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    return 0.5 * np.square(X - w @ unit).sum(axis=1) + penalty * np.abs(w).sum(axis=1)


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.slow
@FREE_AND_POSITIVE
@given(seed=st.integers(0, 10**6), alpha=st.floats(0.05, 0.95))
@example(seed=84, alpha=0.17167423881200056)
@example(seed=628514, alpha=0.20298960632247148)  # more than one run of the solver
@example(seed=747437, alpha=0.37462927726773654)  # positive: the solver's own number says that it is done
@settings(max_examples=25, deadline=None)
def test_the_conditions_of_optimality_hold(positive: bool, seed: int, alpha: float) -> None:
    dictionary, X = problem(seed)
    w, unit = unit_codes(lasso(X, dictionary, alpha=alpha, positive=positive).codes, dictionary)
    largest = limits(X, unit, positive)
    penalty = (alpha * largest)[:, None]
    correlation = (X - w @ unit) @ unit.T
    slack = 2e-4 * largest[:, None] + 1e-9
    used = w != 0
    assert (np.abs(correlation - np.sign(w) * penalty) <= slack)[used].all()
    bound = correlation if positive else np.abs(correlation)
    assert (bound <= penalty + slack).all()


@FREE_AND_POSITIVE
@pytest.mark.parametrize("seed", range(6))
def test_no_objective_is_above_scikit_learns(positive: bool, seed: int) -> None:
    dictionary, X = problem(seed)
    w, unit = unit_codes(lasso(X, dictionary, alpha=0.3, positive=positive).codes, dictionary)
    penalty = 0.3 * limits(X, unit, positive)
    theirs = np.array(
        [
            Lasso(alpha=p / len(x), fit_intercept=False, positive=positive, tol=1e-10, max_iter=10**6)
            .fit(unit.T, x)
            .coef_
            for x, p in zip(X, np.maximum(penalty, 1e-12), strict=True)
        ]
    )
    assert objective(X, unit, w, penalty) == pytest.approx(objective(X, unit, theirs, penalty), rel=1e-5)


@given(seed=st.integers(0, 10**6), power=st.integers(-8, 8))
@settings(max_examples=20, deadline=None)
def test_scaling_an_image_scales_its_code(seed: int, power: int) -> None:
    """By powers of two, which round nothing: the solver then takes the same steps."""
    dictionary, X = problem(seed)
    plain, scaled = lasso(X, dictionary, alpha=0.4), lasso(2.0**power * X, dictionary, alpha=0.4)
    assert scaled.codes.toarray().tolist() == (2.0**power * plain.codes.toarray()).tolist()


def test_positive_coefficients_are_positive() -> None:
    dictionary, X = problem(4)
    assert lasso(X, dictionary, alpha=0.2).codes.data.min() < 0
    assert lasso(X, dictionary, alpha=0.2, positive=True).codes.data.min() > 0


@FREE_AND_POSITIVE
def test_the_largest_penalty_empties_every_code(pets_dictionary: ConceptDictionary, positive: bool) -> None:
    X = np.random.default_rng(0).standard_normal((9, 4))
    assert lasso(X, pets_dictionary, alpha=1.0, positive=positive).supports == [()] * 9
    nearly = lasso(X, pets_dictionary, alpha=0.999, positive=positive)
    assert max(len(support) for support in nearly.supports) >= 1


def test_codes_that_do_not_converge_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penalised, "MAX_ROUNDS", 1)
    monkeypatch.setitem(penalised.LIMITS, "max_iter", 0)
    dictionary, X = problem(2)
    with pytest.warns(NotConvergedWarning, match=r"12 of 12 codes violate the conditions of optimality by more than"):
        lasso(X, dictionary, alpha=0.1)


# -- what is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_bounded_code_keeps_the_largest_shares_unchanged(seed: int) -> None:
    dictionary, X = problem(seed)
    everything, bounded = lasso(X, dictionary, alpha=0.1), lasso(X, dictionary, 2, alpha=0.1)
    w, _ = unit_codes(everything.codes, dictionary)
    largest = np.sort(np.abs(w), axis=1)[:, ::-1][:, :2]
    kept, _ = unit_codes(bounded.codes, dictionary)
    assert np.sort(np.abs(kept), axis=1)[:, ::-1][:, :2] == pytest.approx(largest)
    assert (np.isclose(kept, w) | (kept == 0)).all()


def test_atoms_are_sorted_by_their_share() -> None:
    dictionary, X = problem(2)
    found = lasso(X, dictionary, alpha=0.1)
    w, _ = unit_codes(found.codes, dictionary)
    shares = [np.abs(w[i, row[row >= 0]]) for i, row in enumerate(found.selected)]
    assert all((np.diff(row) <= 0).all() for row in shares)
    assert found.selected.shape[1] == max(len(row) for row in shares)


def test_residuals_belong_to_the_codes() -> None:
    dictionary, X = problem(5)
    found = lasso(X, dictionary, 2, alpha=0.2)
    assert found.residual_norms == pytest.approx(np.linalg.norm(X - found.codes @ dictionary.atoms, axis=1))


@FREE_AND_POSITIVE
@pytest.mark.parametrize("n_nonzero", [2, 3])
def test_the_chosen_penalty_gives_the_wanted_mean_support(positive: bool, n_nonzero: int) -> None:
    rng = np.random.default_rng(0)
    dictionary = random_dictionary(rng, random_hierarchy(rng, several_parents=False), leaf_means=False)
    X = rng.standard_normal((150, dictionary.n_dims))
    alpha = penalised.Lasso(dictionary, positive).alpha(X, n_nonzero)
    sizes = [len(support) for support in lasso(X, dictionary, alpha=alpha, positive=positive).supports]
    assert np.mean(sizes) == pytest.approx(n_nonzero, rel=0.05)


def test_the_default_penalty_is_chosen_on_the_images(pets_dictionary: ConceptDictionary) -> None:
    X = np.random.default_rng(0).standard_normal((40, 4))
    chosen = lasso(X, pets_dictionary, 2)
    given_ = lasso(X, pets_dictionary, 2, alpha=penalised.Lasso(pets_dictionary, False).alpha(X, 2))
    assert chosen.supports == given_.supports
    assert lasso(X, pets_dictionary).supports == chosen.supports  # the depth is 2


def test_too_many_wanted_atoms_end_the_search_for_a_penalty(pets_dictionary: ConceptDictionary) -> None:
    X = np.random.default_rng(0).standard_normal((5, 4))
    sizes, most = (
        [len(support) for support in lasso(X, pets_dictionary, alpha=alpha).supports]
        for alpha in (penalised.Lasso(pets_dictionary, False).alpha(X, 100), 1e-3)
    )
    assert np.mean(sizes) >= np.mean(most)


@pytest.mark.slow
@FREE_AND_POSITIVE
def test_three_thousand_real_images_take_less_than_36_seconds_of_processors(
    positive: bool, tiny_imagenet: dict[str, Any]
) -> None:
    data = tiny_imagenet
    dictionary = ConceptDictionary.from_images(data["hierarchy"], data["X"], data["y"])
    X = np.concatenate([data["X"], data["X_val"]])[::5]
    start = time.process_time()  # other work may be going on
    found = lasso(X, dictionary, positive=positive)
    assert time.process_time() - start < 36
    assert len(found) == 3_000


# -- input -----------------------------------------------------------------------------------------


def test_single_precision() -> None:
    dictionary, X = problem(7, n_images=1100)
    double = lasso(X, dictionary, alpha=0.4)
    single = lasso(X.astype(np.float32), dictionary, alpha=0.4)
    assert single.codes.dtype == np.float32
    # Atoms that all but depend on each other share a coefficient in any way; what they leave is nearly the same.
    assert single.residual_norms == pytest.approx(double.residual_norms, abs=5e-3)


def test_no_images_and_empty_images(pets_dictionary: ConceptDictionary) -> None:
    nothing = lasso(np.zeros((0, 4)), pets_dictionary)
    assert nothing.supports == []
    assert nothing.codes.shape == (0, pets_dictionary.n_atoms)
    assert lasso(np.zeros((2, 4)), pets_dictionary, alpha=0.5).supports == [(), ()]


def test_images_go_through_the_dictionarys_transform(pets: Any) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 6)
    X = rng.standard_normal((len(y), 4)) + 1.0
    dictionary = ConceptDictionary.from_images(pets, X, y, center=True, shrinkage=0.5)
    plain = ConceptDictionary(pets, dictionary.synset_embeddings)
    expected = lasso(dictionary.embed(X), plain, alpha=0.3).codes.toarray()
    assert lasso(X, dictionary, alpha=0.3).codes.toarray() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"alpha": 0.0}, r"alpha must be a number above 0 and at most 1, .*; got 0.0"),
        ({"alpha": 1.5}, r"alpha must be a number above 0 and at most 1, .*; got 1.5"),
        ({"alpha": "auto"}, r"alpha must be a number .*; got 'auto'"),
        ({"n_nonzero": 0}, r"n_nonzero must be a positive integer, or None for the depth"),
    ],
)
def test_invalid_options_are_rejected(pets_dictionary: ConceptDictionary, options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        lasso(np.ones((2, 4)), pets_dictionary, **options)


def test_invalid_images_are_rejected(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match=r"NaN or infinite values in 1 of 2 rows, such as rows 1"):
        lasso([[1.0, 0.0, 0.0, 0.0], [np.nan, 0.0, 0.0, 0.0]], pets_dictionary, alpha=0.5)
    with pytest.raises(DictionaryError, match=r"X has 3 dimensions, but the dictionary has 4"):
        lasso(np.ones((2, 3)), pets_dictionary)


def test_without_skglm(pets_dictionary: ConceptDictionary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skglm.solvers", None)
    with pytest.raises(MissingExtraError, match="the lasso needs skglm, which is not installed: pip install skglm"):
        lasso(np.ones((2, 4)), pets_dictionary, alpha=0.5)
