"""Laws that hold for every hierarchy, dictionary and image."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import ortho_group

from hcep import ConceptDictionary, hb_omp
from hcep.classify import nn
from hcep.pursuit import path_objectives
from tests.reference.oracle import Oracle
from tests.reference.random_problems import (
    BEAMS,
    Problem,
    random_dictionary,
    random_hierarchy,
    random_joint_problem,
    random_problem,
)

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")

seeds = st.integers(0, 2**32 - 1)
problems = st.one_of(seeds.map(random_problem), seeds.map(random_joint_problem))
quick = settings(deadline=None, max_examples=60)


def clear_images(problem: Problem, beam_width: int | None) -> np.ndarray:
    """Return the images that are not near a tie, for a search without limits."""
    oracle = Oracle(problem.dictionary, problem.options["signed"], problem.options["anchor"])
    answers = [oracle.hb_omp(x, beam_width or 10**6) for x in problem.X]
    return np.array([answer.margin > 1e-8 for answer in answers])


@given(problems)
@quick
def test_the_support_is_one_rooted_path(problem: Problem) -> None:
    result = hb_omp(problem.X, problem.dictionary, **problem.options)
    hierarchy = problem.dictionary.hierarchy
    edges = np.array(problem.dictionary.edges)
    for i, path in enumerate(result.paths):
        nodes = (hierarchy.root, *path)
        on_path = list(pairwise(nodes))
        support = result.codes.indices[result.codes.indptr[i] : result.codes.indptr[i + 1]]
        assert [tuple(edge) for edge in edges[support]] == on_path
        assert result.leaves[i] == nodes[-1]


@given(problems, st.sampled_from(BEAMS))
@quick
def test_a_path_ends_in_a_leaf_without_tolerance_and_signed_rule(problem: Problem, beam_width: int | None) -> None:
    result = hb_omp(problem.X, problem.dictionary, beam_width=beam_width, anchor=problem.options["anchor"])
    assert set(result.leaves) <= set(problem.dictionary.hierarchy.leaves)


@given(problems, st.sampled_from(BEAMS), st.booleans())
@quick
def test_the_residual_is_orthogonal_to_the_chosen_atoms(problem: Problem, beam_width: int | None, signed: bool) -> None:
    result = hb_omp(problem.X, problem.dictionary, beam_width=beam_width, signed=signed)
    residuals = problem.X - result.codes @ problem.dictionary.atoms
    for i, residual in enumerate(residuals):
        chosen = problem.dictionary.atoms[result.codes.indices[result.codes.indptr[i] : result.codes.indptr[i + 1]]]
        assert chosen @ residual == pytest.approx(np.zeros(len(chosen)), abs=1e-7)
    assert result.residual_norms == pytest.approx(np.linalg.norm(residuals, axis=1), abs=1e-7)


@given(problems)
@quick
def test_residual_norms_agree_with_the_codes(problem: Problem) -> None:
    result = hb_omp(problem.X, problem.dictionary, **problem.options)
    residuals = problem.X - result.codes @ problem.dictionary.atoms
    assert result.residual_norms == pytest.approx(np.linalg.norm(residuals, axis=1), abs=1e-7)


@given(problems, st.sampled_from([1, None]), st.booleans())
@quick
def test_the_residual_never_grows_with_max_steps(problem: Problem, beam_width: int | None, signed: bool) -> None:
    # A beam of intermediate width may drop an ancestor of the later winner; greedy and exact searches cannot.
    steps = range(1, problem.dictionary.hierarchy.depth + 1)
    norms = [
        hb_omp(problem.X, problem.dictionary, beam_width=beam_width, max_steps=n, signed=signed).residual_norms
        for n in steps
    ]
    assert (np.diff(norms, axis=0) <= 1e-9).all()


@given(problems, st.sampled_from(BEAMS), st.floats(1e-3, 1e3), st.integers(0, 2**32 - 1))
@quick
def test_rotating_and_scaling_the_space_changes_neither_the_support_nor_the_relative_objective(
    problem: Problem, beam_width: int | None, scale: float, seed: int
) -> None:
    dictionary, options = problem.dictionary, {"signed": problem.options["signed"]}
    rotation = scale * ortho_group(dictionary.n_dims, seed=seed).rvs()
    turned = ConceptDictionary(dictionary.hierarchy, dictionary.synset_embeddings @ rotation)
    options["anchor"] = problem.options["anchor"]
    before = hb_omp(problem.X, dictionary, beam_width=beam_width, **options)
    after = hb_omp(problem.X @ rotation, turned, beam_width=beam_width, **options)
    clear = clear_images(problem, beam_width)
    assert before.nodes[clear].tolist() == after.nodes[clear].tolist()
    assert after.residual_norms[clear] / scale == pytest.approx(before.residual_norms[clear], abs=1e-7)
    objectives = path_objectives(problem.X, dictionary, anchor=options["anchor"])
    turned_objectives = path_objectives(problem.X @ rotation, turned, anchor=options["anchor"])
    assert turned_objectives / scale**2 == pytest.approx(objectives, rel=1e-7, abs=1e-7)


@given(problems)
@quick
def test_an_unbounded_beam_equals_enumerating_all_paths(problem: Problem) -> None:
    oracle = Oracle(problem.dictionary, problem.options["signed"], problem.options["anchor"])
    options = {name: problem.options[name] for name in ("signed", "anchor", "tol", "max_steps")}
    exact = hb_omp(problem.X, problem.dictionary, beam_width=None, **options)
    wide = hb_omp(problem.X, problem.dictionary, beam_width=10**6, **options)
    answers = [oracle.exact(x, options["max_steps"], options["tol"]) for x in problem.X]
    expected = [(i, answer.best.synsets) for i, answer in enumerate(answers) if answer.margin > 1e-9]
    assert [(i, exact.paths[i]) for i, _ in expected] == expected
    assert [(i, wide.paths[i]) for i, _ in expected] == expected


@given(problems)
@quick
def test_a_huge_anchor_gives_the_nearest_class_mean(problem: Problem) -> None:
    result = hb_omp(problem.X, problem.dictionary, beam_width=None, anchor=1e7)
    nearest = nn(problem.X, problem.dictionary)
    assert result.residual_norms**2 == pytest.approx(nearest.residual_norms**2, abs=1e-3)
    assert result.codes.data == pytest.approx(np.ones(result.codes.nnz), abs=1e-4)
    distances = np.linalg.norm(problem.X[:, None] - problem.dictionary.leaf_embeddings[None], axis=2)
    clear = (distances < distances.min(axis=1, keepdims=True) + 0.01).sum(axis=1) == 1
    assert result.leaves[clear].tolist() == nearest.leaves[clear].tolist()


@given(problems, st.sampled_from([1e3, 1e6, 1e9]))
@quick
def test_a_large_anchor_works_in_single_precision(problem: Problem, anchor: float) -> None:
    double = hb_omp(problem.X, problem.dictionary, beam_width=None, anchor=anchor)
    single = hb_omp(problem.X.astype(np.float32), problem.dictionary, beam_width=None, anchor=anchor)
    assert single.residual_norms == pytest.approx(double.residual_norms, abs=1e-3)


@given(problems, st.integers(1, 6))
@quick
def test_n_best_is_sorted_and_starts_with_the_answer(problem: Problem, n_best: int) -> None:
    options = {**problem.options, "anchor": 0.0}
    result = hb_omp(problem.X, problem.dictionary, n_best=n_best, **options)
    alone = hb_omp(problem.X, problem.dictionary, **options)
    assert result.nodes.tolist() == result.n_best_nodes[:, 0].tolist() == alone.nodes.tolist()
    assert result.residual_norms.tolist() == result.n_best_residual_norms[:, 0].tolist()
    for i in range(len(result)):
        norms = [h.residual_norm for h in result.hypotheses(i)]
        assert norms == pytest.approx(sorted(norms), abs=1e-7)
        paths = [h.path for h in result.hypotheses(i)]
        assert len(set(paths)) == len(paths)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.03, 1.0]))
@quick
def test_a_noiseless_image_has_a_code_of_ones(seed: int, anchor: float) -> None:
    # The signed rule is off, because it may exclude the true path if a coefficient is negative at first.
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents=False).collapse()
    dictionary = random_dictionary(rng, hierarchy, leaf_means=True)
    result = hb_omp(dictionary.leaf_embeddings, dictionary, beam_width=None, anchor=anchor)
    # The objective of the true path is 0, so no other path is better by more than rounding.
    assert result.residual_norms == pytest.approx(np.zeros(len(result)), abs=1e-6)
    assert result.leaves.tolist() == list(hierarchy.leaves)
    assert result.codes.data == pytest.approx(np.ones(result.codes.nnz), abs=1e-6)


@given(problems)
@quick
def test_the_lowest_path_objective_is_the_exact_answer(problem: Problem) -> None:
    anchor = problem.options["anchor"]
    objectives = path_objectives(problem.X, problem.dictionary, anchor=anchor)
    result = hb_omp(problem.X, problem.dictionary, beam_width=None, anchor=anchor)
    leaf_nodes = problem.dictionary.hierarchy.path_tree.leaf_nodes
    column = np.searchsorted(leaf_nodes, result.nodes)
    assert objectives[np.arange(len(result)), column] == pytest.approx(objectives.min(axis=1), abs=1e-9)
