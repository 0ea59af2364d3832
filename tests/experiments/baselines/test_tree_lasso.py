"""The tree-structured penalty: its proximal operator against a slow dual solver, its optimum, its laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from experiments.baselines import tree_penalty
from experiments.baselines.penalised import NotConvergedWarning, TreeLasso, lasso, tree_lasso
from experiments.packages import SpamsTree, spams_tree
from hcep import ConceptDictionary, HCEPError, Hierarchy
from hcep.errors import DictionaryError
from tests.reference.random_problems import random_dictionary, random_hierarchy

SEEDS = st.integers(0, 10**6)


def random_parents(rng: np.random.Generator, n: int) -> np.ndarray:
    """A forest: variable v hangs from an earlier one, or (-1) from the root."""
    return np.array([int(rng.integers(-1, v)) for v in range(n)], dtype=np.int32)


def groups_of(parent: np.ndarray) -> list[list[int]]:
    """For every variable, itself and all below it."""
    groups: list[list[int]] = [[v] for v in range(len(parent))]
    for v in range(len(parent) - 1, 0, -1):
        groups[parent[v]] += groups[v] if parent[v] >= 0 else []
    return groups


def prox_by_dual_ascent(u: np.ndarray, soft: float, group: float, parent: np.ndarray) -> np.ndarray:
    """One dual vector a group, projected on its ball in turn until nothing moves: any order, any groups."""
    balls = [([v], soft) for v in range(len(u))] + [(g, group) for g in groups_of(parent)]
    rng = np.random.default_rng(0)
    dual = np.zeros((len(balls), len(u)))
    for _ in range(500):
        before = dual.copy()
        for k in rng.permutation(len(balls)):
            members, radius = balls[k]
            rest = (u - dual.sum(axis=0) + dual[k])[members]
            dual[k, members] = rest * min(1.0, radius / max(float(np.linalg.norm(rest)), 1e-300))
        if np.abs(dual - before).max() < 1e-13:
            break
    return u - dual.sum(axis=0)


def prox(u: np.ndarray, soft: float, group: float, parent: np.ndarray) -> np.ndarray:
    out = u.copy()
    tree_penalty.prox(out, soft, group, parent, np.empty(len(u)))
    return out


def problem(seed: int, several_parents: bool = False, n_images: int = 8) -> tuple[ConceptDictionary, np.ndarray]:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents)
    dictionary = random_dictionary(rng, hierarchy, leaf_means=False)
    return dictionary, rng.standard_normal((n_images, dictionary.n_dims))


# -- the proximal operator -------------------------------------------------------------------------


@given(seed=SEEDS, soft=st.floats(0.0, 1.0), group=st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_the_proximal_operator_equals_a_slow_dual_solver(seed: int, soft: float, group: float) -> None:
    rng = np.random.default_rng(seed)
    parent, u = random_parents(rng, 7), 1.5 * rng.standard_normal(7)

    def objective(z: np.ndarray) -> float:
        norms = sum(float(np.linalg.norm(z[members])) for members in groups_of(parent))
        return float(0.5 * np.square(z - u).sum() + soft * np.abs(z).sum() + group * norms)

    fast, slow = prox(u, soft, group, parent), prox_by_dual_ascent(u, soft, group, parent)
    assert objective(fast) <= objective(slow) + 1e-12
    assert fast == pytest.approx(slow, abs=1e-3)


def test_by_hand() -> None:
    """A root variable of 3 above leaves of 4 and 0.5: the leaves shrink by 1 first, then all three, of norm √18."""
    found = prox(np.array([3.0, 4.0, 0.5]), 0.0, 1.0, np.array([-1, 0, 0], dtype=np.int32))
    assert found == pytest.approx(np.array([3.0, 3.0, 0.0]) * (1 - 1 / np.sqrt(18)))


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_the_proximal_operator_equals_spams(seed: int) -> None:
    spams = pytest.importorskip("spams", reason="compared with SPAMS where it is installed")
    rng = np.random.default_rng(seed)
    parent, u = random_parents(rng, 12), 2.0 * rng.standard_normal(12)
    tree, order = spams_tree(parent)
    signal = np.asfortranarray(np.concatenate([[0.0], u[order]])[:, None])
    theirs = spams.proximalTree(signal, tree, lambda1=0.4, regul="tree-l2", numThreads=1)
    assert prox(u, 0.0, 0.4, parent)[order] == pytest.approx(np.asarray(theirs)[1:, 0], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_codes_equal_those_of_spams(seed: int) -> None:
    pytest.importorskip("spams", reason="compared with SPAMS where it is installed")
    dictionary, X = problem(seed)
    ours, theirs = (solver(dictionary, 1.0).codes(X, alpha=0.3).codes.toarray() for solver in (TreeLasso, SpamsTree))
    np.testing.assert_allclose(theirs, ours, atol=1e-3)


# -- the optimum -----------------------------------------------------------------------------------


def node_problem(dictionary: ConceptDictionary) -> tuple[np.ndarray, np.ndarray]:
    """Unit atoms and parents of the path tree's nodes, the root left out."""
    tree = dictionary.hierarchy.path_tree
    atoms = dictionary.atoms[tree.edge[1:]]
    return atoms / np.linalg.norm(atoms, axis=1)[:, None], tree.parent[1:] - 1


def penalty_at_zero(products: np.ndarray, mixing: float, parent: np.ndarray) -> float:
    low, high = 0.0, float(np.abs(products).max())
    for _ in range(60):
        middle = (low + high) / 2
        empty = not prox(products, middle * (1 - mixing), middle * mixing, parent).any()
        low, high = (low, middle) if empty else (middle, high)
    return high


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_step_of_proximal_gradient_moves_the_code(seed: int, mixing: float) -> None:
    dictionary, X = problem(seed)
    found = tree_lasso(X, dictionary, alpha=0.3, mixing=mixing, tol=1e-9, max_iter=100_000)
    unit, parent = node_problem(dictionary)
    edges = dictionary.hierarchy.path_tree.edge[1:]
    W = found.codes.toarray()[:, edges] * np.linalg.norm(dictionary.atoms, axis=1)[edges]
    step = 1.0 / np.linalg.norm(unit, 2) ** 2
    for x, w in zip(X, W, strict=True):
        weight = 0.3 * penalty_at_zero(unit @ x, mixing, parent)
        moved = w + step * (unit @ (x - w @ unit))
        after = prox_by_dual_ascent(moved, step * weight * (1 - mixing), step * weight * mixing, parent)
        assert after == pytest.approx(w, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("several_parents", [False, True])
def test_without_groups_it_is_the_lasso(seed: int, several_parents: bool) -> None:
    pytest.importorskip("skglm", reason="the lasso is skglm's")
    dictionary, X = problem(seed, several_parents)
    norms = np.linalg.norm(dictionary.atoms, axis=1)
    ours = tree_lasso(X, dictionary, alpha=0.3, mixing=0.0, tol=1e-9, max_iter=100_000)
    theirs = lasso(X, dictionary, alpha=0.3)
    penalty = 0.3 * np.abs(X @ (dictionary.atoms / norms[:, None]).T).max(axis=1)
    one, other = (
        0.5 * found.residual_norms**2 + penalty * np.abs(found.codes.toarray() * norms).sum(axis=1)
        for found in (ours, theirs)
    )
    assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("mixing", [0.0, 0.5, 1.0])
def test_the_largest_penalty_is_the_smallest_that_empties_every_code(mixing: float) -> None:
    dictionary, X = problem(3)
    assert tree_lasso(X, dictionary, alpha=1.0, mixing=mixing).supports == [()] * len(X)
    assert all(tree_lasso(X, dictionary, alpha=0.99, mixing=mixing, tol=1e-9, max_iter=100_000).supports)


# -- laws ------------------------------------------------------------------------------------------


def is_closed(support: tuple[str, ...], hierarchy: Hierarchy) -> bool:
    return all(set(hierarchy.ancestors(s)) <= {*support, hierarchy.root} for s in support)


@given(seed=SEEDS, alpha=st.floats(0.02, 0.9))
@settings(max_examples=40, deadline=None)
def test_with_groups_only_no_atom_is_used_without_those_above_it(seed: int, alpha: float) -> None:
    dictionary, X = problem(seed)
    found = tree_lasso(X, dictionary, alpha=alpha, mixing=1.0, tol=1e-4)
    assert all(is_closed(support, dictionary.hierarchy) for support in found.supports)


@given(seed=SEEDS, n_nonzero=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_a_bounded_code_is_closed_too(seed: int, n_nonzero: int) -> None:
    dictionary, X = problem(seed)
    found = tree_lasso(X, dictionary, n_nonzero, alpha=0.1, mixing=1.0, tol=1e-4)
    assert all(is_closed(support, dictionary.hierarchy) for support in found.supports)
    assert max(len(support) for support in found.supports) <= n_nonzero


@given(seed=SEEDS, power=st.integers(-8, 8))
@settings(max_examples=15, deadline=None)
def test_scaling_an_image_scales_its_code(seed: int, power: int) -> None:
    """By powers of two, which round nothing: the solver then takes the same steps."""
    dictionary, X = problem(seed)
    plain, scaled = tree_lasso(X, dictionary, alpha=0.4), tree_lasso(2.0**power * X, dictionary, alpha=0.4)
    assert scaled.codes.toarray().tolist() == (2.0**power * plain.codes.toarray()).tolist()


def test_a_flat_code_is_not_closed() -> None:
    dictionary, X = problem(5, n_images=50)
    found = tree_lasso(X, dictionary, alpha=0.5, mixing=0.0)
    assert not all(is_closed(support, dictionary.hierarchy) for support in found.supports)


# -- what is kept ----------------------------------------------------------------------------------


def test_without_groups_the_largest_shares_are_kept() -> None:
    dictionary, X = problem(4)
    norms = np.linalg.norm(dictionary.atoms, axis=1)
    everything = np.abs(tree_lasso(X, dictionary, alpha=0.1, mixing=0.0).codes.toarray() * norms)
    kept = np.abs(tree_lasso(X, dictionary, 2, alpha=0.1, mixing=0.0).codes.toarray() * norms)
    largest = np.sort(everything, axis=1)[:, ::-1][:, :2]
    assert np.sort(kept, axis=1)[:, ::-1][:, :2] == pytest.approx(largest)


@pytest.mark.parametrize("mixing", [0.0, 0.5, 1.0])
def test_the_chosen_penalty_gives_the_wanted_mean_support(mixing: float) -> None:
    dictionary, X = problem(8, n_images=150)
    alpha = TreeLasso(dictionary, mixing).alpha(X, 3)
    sizes = [len(support) for support in tree_lasso(X, dictionary, alpha=alpha, mixing=mixing).supports]
    assert np.mean(sizes) == pytest.approx(3, rel=0.05)


def test_the_default_penalty_is_chosen_on_the_images(pets_dictionary: ConceptDictionary) -> None:
    X = np.random.default_rng(0).standard_normal((40, 4))
    chosen = tree_lasso(X, pets_dictionary, 2)
    given_ = tree_lasso(X, pets_dictionary, 2, alpha=TreeLasso(pets_dictionary, 0.5).alpha(X, 2))
    assert chosen.supports == given_.supports
    assert tree_lasso(X, pets_dictionary).supports == chosen.supports  # the depth is 2


@pytest.mark.parametrize("seed", range(6))
def test_in_a_dag_the_nodes_of_an_atom_are_added_up(seed: int) -> None:
    dictionary, X = problem(seed, several_parents=True)
    found = tree_lasso(X, dictionary, alpha=0.05, mixing=0.5)
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in found.selected)
    assert [np.flatnonzero(code).tolist() for code in found.codes.toarray()] == [
        sorted(row[row >= 0].tolist()) for row in found.selected
    ]
    assert found.residual_norms == pytest.approx(np.linalg.norm(X - found.codes @ dictionary.atoms, axis=1))


# -- input -----------------------------------------------------------------------------------------


def test_threads_and_precision() -> None:
    dictionary, X = problem(1, n_images=1100)
    one, two = tree_lasso(X, dictionary, alpha=0.4, n_jobs=1), tree_lasso(X, dictionary, alpha=0.4, n_jobs=2)
    assert one.codes.toarray().tolist() == two.codes.toarray().tolist()
    single = tree_lasso(X.astype(np.float32), dictionary, alpha=0.4)
    assert single.codes.dtype == np.float32
    assert single.residual_norms == pytest.approx(one.residual_norms, abs=1e-3)


def test_no_images_and_empty_images(pets_dictionary: ConceptDictionary) -> None:
    nothing = tree_lasso(np.zeros((0, 4)), pets_dictionary)
    assert nothing.supports == []
    assert nothing.codes.shape == (0, pets_dictionary.n_atoms)
    assert tree_lasso(np.zeros((2, 4)), pets_dictionary, alpha=0.5).supports == [(), ()]


def test_zero_atoms_have_no_coefficient() -> None:
    chain = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("cat", "tabby"), ("animal", "dog")])
    leaves = {"tabby": [2.0, 1.0], "dog": [2.0, -0.5]}
    dictionary = ConceptDictionary.from_leaf_embeddings(chain, leaves)
    found = tree_lasso([[2.0, 1.5]], dictionary, alpha=0.05, mixing=0.5)
    assert {"animal", "cat"} <= set(found.supports[0])
    assert "tabby" not in found.supports[0]


def test_codes_that_do_not_converge_are_counted() -> None:
    dictionary, X = problem(2)
    with pytest.warns(NotConvergedWarning, match=r"8 of 8 codes were still moving after max_iter=1 iterations; raise"):
        tree_lasso(X, dictionary, alpha=0.1, max_iter=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixing": 1.5}, r"mixing must be a number from 0 to 1, got 1.5"),
        ({"mixing": None}, r"mixing must be a number from 0 to 1, got None"),
        ({"alpha": -0.1}, r"alpha must be a number above 0 and at most 1, .*; got -0.1"),
        ({"n_nonzero": 0}, r"n_nonzero must be a positive integer, or None for the depth"),
        ({"max_iter": 0}, r"max_iter must be a positive integer"),
        ({"n_jobs": 0}, r"n_jobs must be a positive integer, or None for all cores"),
        ({"tol": -1.0}, r"tol must be a finite number of at least 0"),
    ],
)
def test_invalid_options_are_rejected(pets_dictionary: ConceptDictionary, options: dict[str, Any], match: str) -> None:
    with pytest.raises(HCEPError, match=match):
        tree_lasso(np.ones((2, 4)), pets_dictionary, **options)


def test_invalid_images_are_rejected(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match=r"NaN or infinite values in 1 of 2 rows, such as rows 1"):
        tree_lasso([[1.0, 0.0, 0.0, 0.0], [np.inf, 0.0, 0.0, 0.0]], pets_dictionary, alpha=0.5)
