"""The fast pursuits equal the two naive implementations in tests/reference: the oracle and the paper's algorithms."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, hb_omp, omp
from hcep.pursuit import PathResult
from tests.reference.oracle import Answer, Oracle
from tests.reference.paper import reference_hb_omp, reference_omp
from tests.reference.random_problems import (
    ANCHORS,
    BEAMS,
    STEPS,
    TOLERANCES,
    Problem,
    hierarchy_of,
    random_dictionary,
    random_problem,
)

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")

#: Decisions taken by a smaller margin are ties as far as double precision can tell.
TIE = 1e-9
#: Above this condition number the atoms of a path are dependent, and coefficients not unique to 1e-8.
DEPENDENT = 1e5
N_BEST = 4

parents = st.lists(st.integers(0, 30), min_size=3, max_size=20)
second_parents = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4)
options = st.fixed_dictionaries(
    {
        "beam_width": st.sampled_from(BEAMS),
        "max_steps": st.sampled_from(STEPS),
        "tol": st.sampled_from(TOLERANCES),
        "signed": st.booleans(),
        "anchor": st.sampled_from(ANCHORS),
    }
)


def oracle_answers(problem: Problem) -> list[Answer]:
    limits = {name: problem.options[name] for name in ("max_steps", "tol")}
    oracle = Oracle(problem.dictionary, problem.options["signed"], problem.options["anchor"])
    width = problem.options["beam_width"]
    if width is None:
        return [oracle.exact(x, **limits) for x in problem.X]
    return [oracle.hb_omp(x, width, **limits) for x in problem.X]


def beams_of(answer: Answer) -> list[set[tuple[str, ...]]]:
    """Return the oracle's beams, step by step, without the repeated beams after all hypotheses have ended."""
    beams = [{h.synsets for h in step} for step in answer.steps]
    return [beam for beam, _ in groupby(beams)]


def compare(problem: Problem) -> int:
    """Assert that the pursuit equals the oracle except near ties; return the number of compared images."""
    result = hb_omp(problem.X, problem.dictionary, n_best=N_BEST, **problem.options)
    traced = hb_omp(problem.X, problem.dictionary, n_best=N_BEST, trace=True, **problem.options)
    clear = [(i, answer) for i, answer in enumerate(oracle_answers(problem)) if answer.margin > TIE]
    for i, answer in clear:
        assert result.paths[i] == traced.paths[i] == answer.best.synsets
        assert result.residual_norms[i] == pytest.approx(np.linalg.norm(answer.best.residual), abs=1e-8)
        assert [{h.path for h in beam} for beam in traced.trace.steps(i)] == beams_of(answer)
    for i, answer in [case for case in clear if case[1].best.condition < DEPENDENT]:
        assert result.coefficients(i) == pytest.approx(answer.best.coefficients, abs=1e-8)
    for i, answer in [case for case in clear if case[1].order_margin > TIE]:
        compare_hypotheses(result, i, answer)
        compare_hypotheses(traced, i, answer)
    return len(clear)


def compare_hypotheses(result: PathResult, image: int, answer: Answer) -> None:
    expected = answer.beam[:N_BEST]
    assert [h.path for h in result.hypotheses(image)] == [h.synsets for h in expected]
    norms = [np.linalg.norm(h.residual) for h in expected]
    assert [h.residual_norm for h in result.hypotheses(image)] == pytest.approx(norms, abs=1e-8)


@pytest.mark.parametrize(
    "first_seed", [0, 250, 500, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (750, 1000, 1250))]
)
def test_hb_omp_equals_the_oracle_on_thousands_of_random_trees_and_dags(first_seed: int) -> None:
    n_compared = sum(compare(random_problem(seed)) for seed in range(first_seed, first_seed + 250))
    assert n_compared > 0.85 * 3 * 250


@given(parents, second_parents, st.booleans(), options, st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=150)
def test_hb_omp_equals_the_oracle_on_drawn_problems(
    parents: list[int], second_parents: list[tuple[int, int]], leaf_means: bool, options: dict[str, Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dictionary = random_dictionary(rng, hierarchy_of(parents, second_parents), leaf_means)
    compare(Problem(dictionary, rng.standard_normal((2, dictionary.n_dims)), options))


@pytest.mark.parametrize("first_seed", range(10_000, 10_400, 200))
def test_hb_omp_equals_the_plain_reference(first_seed: int) -> None:
    n_compared = sum(compare_with_reference(random_problem(seed)) for seed in range(first_seed, first_seed + 200))
    assert n_compared > 0.8 * 3 * 200


def compare_with_reference(problem: Problem) -> int:
    result = hb_omp(problem.X, problem.dictionary, **problem.options)
    codes = result.codes.toarray()
    plain = [reference_hb_omp(x, problem.dictionary, **problem.options) for x in problem.X]
    clear = [(i, reference) for i, reference in enumerate(plain) if reference.margin > 1e-8]
    for i, reference in clear:
        assert result.paths[i] == reference.support
        assert result.residual_norms[i] == pytest.approx(reference.residual_norm, abs=1e-8)
    independent = [
        (i, reference) for i, reference in clear if condition(problem, result.codes.indices, i, result) < 1e5
    ]
    for i, reference in independent:
        assert codes[i] == pytest.approx(reference.code, abs=1e-8)
    return len(clear)


def condition(problem: Problem, indices: np.ndarray, image: int, result: PathResult) -> float:
    """Return the condition number of the atoms of a path, augmented by the anchor."""
    atoms = problem.dictionary.atoms[indices[result.codes.indptr[image] : result.codes.indptr[image + 1]]]
    weight = problem.dictionary.path_problem(problem.options["anchor"]).anchor
    augmented = np.hstack([atoms, np.sqrt(weight) * np.eye(len(atoms))])
    return float(np.linalg.cond(augmented)) if len(atoms) else 1.0


def test_a_dependent_atom_is_never_eligible_in_the_reference_either() -> None:
    # In the plane, the third atom of the path lies in the span of the first two, so its new coefficient is 0 and the
    # signed rule ends the path above it.
    embeddings = {"1": [1.0, 0.0], "2": [2.0, 1.0], "3": [2.5, 2.5]}
    dictionary = ConceptDictionary.from_synset_embeddings(hierarchy_of([0, 1, 2]), embeddings)
    x = np.array([3.0, 2.0])
    result = hb_omp(x, dictionary, signed=True)
    assert result.paths == [("1", "2")]
    assert Oracle(dictionary, signed=True).hb_omp(x, 8).margin < TIE
    assert reference_hb_omp(x, dictionary, signed=True).margin < TIE


@pytest.mark.parametrize("tol", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("n_nonzero", [1, 2, 4])
def test_omp_equals_the_oracle_and_the_reference(n_nonzero: int, tol: float) -> None:
    n_compared = sum(compare_omp(random_problem(seed), n_nonzero, tol) for seed in range(20_000, 20_080))
    assert n_compared > 0.7 * 3 * 80


def compare_omp(problem: Problem, n_nonzero: int, tol: float) -> int:
    dictionary = problem.dictionary
    n_nonzero = min(n_nonzero, dictionary.n_dims)
    result = omp(problem.X, dictionary, n_nonzero, tol)
    codes = result.codes.toarray()
    answers = [Oracle(dictionary).omp(x, n_nonzero, tol) for x in problem.X]
    clear = [(i, answer.best) for i, answer in enumerate(answers) if answer.margin > TIE]
    for i, best in clear:
        assert tuple(result.selected[i][result.selected[i] >= 0]) == best.atoms
        assert result.supports[i] == best.synsets
        assert result.residual_norms[i] == pytest.approx(np.linalg.norm(best.residual), abs=1e-8)
        plain = reference_omp(problem.X[i], dictionary.atoms, n_nonzero, tol)
        assert plain.support == best.atoms
        assert plain.residual_norm == pytest.approx(np.linalg.norm(best.residual), abs=1e-8)
    for i, best in [case for case in clear if case[1].condition < DEPENDENT]:
        assert codes[i, list(best.atoms)] == pytest.approx(best.coefficients, abs=1e-8)
    return len(clear)
