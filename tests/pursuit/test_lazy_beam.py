"""A beam in a huge tree computes only the products of live hypotheses' children and gives the same answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.pursuit import SearchOptions, search
from hcep.pursuit.limits import PathLimits
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
search_module = sys.modules["hcep.pursuit.search"]


def both(monkeypatch: pytest.MonkeyPatch, run):
    """Return the result with all products and the result with only the needed ones."""
    answers = []
    for lazy in (np.inf, 0):
        monkeypatch.setattr(search_module, "LAZY", lazy)
        answers.append(run())
    return answers


@settings(max_examples=60)
@given(
    seed=st.integers(0, 100_000),
    width=st.sampled_from([1, 2, 3, 8, 100]),
    anchor=st.sampled_from([0.0, 0.03, 50.0]),
    signed=st.booleans(),
    max_steps=st.sampled_from([None, 1, 2]),
)
def test_the_lazy_beam_equals_the_beam_with_all_products(seed, width, anchor, signed, max_steps):
    problem = random_problem(seed, n_images=5)
    options = SearchOptions(width, max_steps, 0.0, signed, anchor)
    with pytest.MonkeyPatch.context() as patch:
        whole, lazy = both(patch, lambda: search(problem.X, problem.dictionary, options, n_best=4, explained=True))
    # Products of other shapes round differently; if that changes the path, the new one is equally good.
    np.testing.assert_allclose(lazy.n_best_residual_norms, whole.n_best_residual_norms, atol=1e-6)
    same = lazy.nodes == whole.nodes
    np.testing.assert_allclose(lazy.codes.toarray()[same], whole.codes.toarray()[same], atol=1e-6)
    np.testing.assert_allclose(lazy.explained_shares[same], whole.explained_shares[same], atol=1e-9)


def test_forbidden_concepts_are_not_visited(monkeypatch, pets_dictionary):
    X = np.random.default_rng(0).normal([2.0, 0.0, 0.0, 1.0], size=(9, 4))
    limits = PathLimits.of(pets_dictionary.hierarchy, forbid="cat")
    options = SearchOptions(beam_width=2)
    whole, lazy = both(monkeypatch, lambda: search(X, pets_dictionary, options, limits=limits))
    assert lazy.paths == whole.paths
    assert not any("cat" in path for path in lazy.paths)


@pytest.fixture(scope="module")
def huge() -> ConceptDictionary:
    """A tree of 5,461 concepts, where every inner concept has four children."""
    edges = [(str(i), str(4 * i + k)) for i in range(1365) for k in range(1, 5)]
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges(edges)
    return ConceptDictionary.from_leaf_embeddings(tree, {leaf: rng.standard_normal(32) for leaf in tree.leaves})


def test_a_narrow_beam_in_a_large_tree_does_not_compute_all_products(monkeypatch, huge):
    X = huge.leaf_embeddings[::40].astype(np.float32)
    kinds, project = [], search_module.project

    def recording(rows, block, dictionary, problem, limits=None, lazily=False):
        kinds.append(lazily)
        return project(rows, block, dictionary, problem, limits, lazily)

    monkeypatch.setattr(search_module, "project", recording)
    narrow, wide, exact = (hb_omp(X, huge, beam_width=width) for width in (4, 300, None))
    assert kinds == [True, False, False]
    monkeypatch.setattr(search_module, "LAZY", np.inf)
    np.testing.assert_array_equal(narrow.nodes, hb_omp(X, huge, beam_width=4).nodes)
    assert (exact.residual_norms <= narrow.residual_norms + 1e-3).all()
    assert (wide.residual_norms <= narrow.residual_norms + 1e-3).mean() > 0.9


def test_results_are_equal_on_any_number_of_threads(huge):
    X = huge.leaf_embeddings + 0.1
    one, two = (hb_omp(X, huge, beam_width=4, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.nodes, two.nodes)
    np.testing.assert_array_equal(one.residual_norms, two.residual_norms)
