"""The identities of the path problem, each checked against a plain least-squares solution."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, Hierarchy
from hcep.dictionary import DependentAtomsWarning
from hcep.dictionary.path_problem import along_supports

laws = settings(max_examples=25, deadline=None)


@st.composite
def dictionaries(draw):
    """A random DAG with random embeddings of all synsets, in enough dimensions for independent atoms."""
    n = draw(st.integers(2, 10))
    parents = [draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=2)) for i in range(1, n)]
    edges = [(f"s{p}", f"s{i}") for i, above in enumerate(parents, start=1) for p in sorted(above)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    h = Hierarchy.from_edges(edges)
    return ConceptDictionary.from_synset_embeddings(h, {s: rng.standard_normal(12) for s in h.ids[1:]})


def n_dependent(problem):
    return np.count_nonzero(problem.column[1:] < 0)


def path_directions(problem, node):
    """Return q_v of the nodes on a path, shape (length, n_dims)."""
    nodes = problem.nodes_of_path[node]
    nodes = nodes[nodes >= 0]
    return problem.sign[nodes, None] * problem.directions[problem.column[nodes]]


def path_atoms(dictionary, node):
    nodes = dictionary.path_problem().nodes_of_path[node]
    return dictionary.atoms[dictionary.path_problem().tree.edge[nodes[nodes >= 0]]]


def triangle_of(problem, node):
    """Return the upper triangular R of the path's QR."""
    nodes = problem.nodes_of_path[node]
    nodes = nodes[nodes >= 0]
    return problem.triangle[nodes, : len(nodes)].T


def least_squares(atoms, x):
    """Return the coefficients and the squared norm of the residual."""
    coefficients = np.linalg.lstsq(atoms.T, x, rcond=None)[0]
    return coefficients, np.sum((x - coefficients @ atoms) ** 2)


def all_nodes(dictionary):
    return range(1, dictionary.path_problem().tree.n_nodes)


@laws
@given(dictionaries())
def test_directions_and_the_triangle_are_the_qr_of_each_path(d):
    for node in all_nodes(d):
        q, r = path_directions(d.path_problem(), node), triangle_of(d.path_problem(), node)
        np.testing.assert_allclose(q @ q.T, np.eye(len(q)), atol=1e-12)
        np.testing.assert_allclose(r.T @ q, path_atoms(d, node), atol=1e-10)
        np.testing.assert_array_equal(r, np.triu(r))


@laws
@given(dictionaries(), st.integers(0, 2**32 - 1))
def test_residuals_and_coefficients_equal_least_squares(d, seed):
    x = np.random.default_rng(seed).standard_normal(12)
    for node in all_nodes(d):
        p = path_directions(d.path_problem(), node) @ x
        coefficients, left = least_squares(path_atoms(d, node), x)
        np.testing.assert_allclose(x @ x - p @ p, left, atol=1e-10)
        np.testing.assert_allclose(np.linalg.solve(triangle_of(d.path_problem(), node), p), coefficients, atol=1e-7)


@laws
@given(dictionaries(), st.integers(0, 2**32 - 1))
def test_the_share_gives_the_cosine_with_the_residual(d, seed):
    x = np.random.default_rng(seed).standard_normal(12)
    for node in all_nodes(d):
        atoms = path_atoms(d, node)
        above, own = atoms[:-1], atoms[-1]
        residual = x - least_squares(above, x)[0] @ above
        expected = abs(residual @ own) / np.linalg.norm(own)
        p = path_directions(d.path_problem(), node)[-1] @ x
        np.testing.assert_allclose(abs(p) * d.path_problem().share[node], expected, atol=1e-10)


@laws
@given(dictionaries(), st.integers(0, 2**32 - 1), st.floats(1e-3, 10.0))
def test_the_anchored_problem_is_least_squares_on_augmented_vectors(d, seed, anchor):
    x = np.random.default_rng(seed).standard_normal(12)
    problem = d.path_problem(anchor / d.anchor_unit)
    for node in all_nodes(d):
        nodes = problem.nodes_of_path[node][problem.nodes_of_path[node] >= 0]
        atoms = path_atoms(d, node)
        k = len(atoms)
        coefficients = np.linalg.solve(atoms @ atoms.T + anchor * np.eye(k), atoms @ x + anchor)
        objective = np.sum((x - coefficients @ atoms) ** 2) + anchor * np.sum((coefficients - 1) ** 2)
        p = problem.sign[nodes] * (
            problem.directions[problem.column[nodes]] @ x + problem.offset[problem.column[nodes]]
        )
        # The augmented image has sqrt(anchor) at each of `depth` levels; the levels below the path are not counted.
        np.testing.assert_allclose(x @ x + anchor * k - p @ p, objective, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.linalg.solve(triangle_of(problem, node), p), coefficients, rtol=1e-6, atol=1e-7)


@pytest.fixture
def stem():
    """r -> a -> (x, y), r -> b."""
    return Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("a", "y")])


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_path_of_two_atoms_by_hand():
    h = Hierarchy.from_edges([("r", "a"), ("a", "x"), ("a", "y"), ("r", "b")])
    d = ConceptDictionary.from_synset_embeddings(h, {"a": [2, 0, 0], "x": [5, 4, 0], "y": [2, 0, 1], "b": [0, 0, 3]})
    problem = d.path_problem()
    assert [h.ids[s] for s in problem.tree.synset] == ["r", "a", "b", "x", "y"]
    np.testing.assert_allclose(path_directions(problem, 3), [[1, 0, 0], [0, 1, 0]], atol=1e-15)
    np.testing.assert_allclose(triangle_of(problem, 3), [[2, 3], [0, 4]])
    np.testing.assert_allclose(problem.share, [0, 1, 1, 0.8, 1])
    np.testing.assert_array_equal(problem.column, [-1, 0, 1, 2, 3])
    np.testing.assert_array_equal(problem.sign, [0, 1, 1, 1, 1])
    assert n_dependent(problem) == 0
    assert problem.directions32.dtype == np.float32


def test_the_siblings_of_a_two_way_split_share_one_direction():
    rng = np.random.default_rng(3)
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("r", "c"), ("a", "x"), ("a", "y"), ("b", "u"), ("b", "v")])
    d = ConceptDictionary.from_leaf_embeddings(h, {leaf: rng.standard_normal(6) for leaf in h.leaves})
    problem = d.path_problem()
    a, b = problem.tree.first_child[1], problem.tree.first_child[2]
    for first in (a, b):
        assert problem.column[first] == problem.column[first + 1]
        assert (problem.sign[first], problem.sign[first + 1]) == (1.0, -1.0)
        assert problem.share[first] == problem.share[first + 1]
    assert len(problem.directions) == problem.tree.n_nodes - 1 - 2


def test_parallel_siblings_share_one_direction_with_their_signs():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("r", "c"), ("r", "d")])
    vectors = {"a": [3.0, 4.0], "b": [-6.0, -8.0], "c": [1.0, 0.0], "d": [0.3, 0.4]}
    problem = ConceptDictionary.from_leaf_embeddings(h, vectors).path_problem()
    assert problem.column.tolist() == [-1, 0, 0, 1, 0]
    assert problem.sign.tolist() == [0.0, 1.0, -1.0, 1.0, 1.0]
    assert problem.share.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]


def test_siblings_that_differ_along_their_parent_share_a_direction_but_not_the_share(stem):
    d = ConceptDictionary.from_synset_embeddings(stem, {"a": [1, 0], "b": [0, 1], "x": [1, 2], "y": [4, 4]})
    assert d.path_problem().column.tolist() == [-1, 0, 1, 2, 2]
    np.testing.assert_allclose(d.path_problem().share, [0, 1, 1, 1, 0.8])


def test_cousins_do_not_share_directions():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("a", "y"), ("b", "u"), ("b", "v")])
    vectors = {"x": [4, 0, 1], "y": [4, 0, -1], "u": [0, 4, 1], "v": [0, 4, -1]}
    problem = ConceptDictionary.from_leaf_embeddings(h, vectors).path_problem()
    assert problem.column.tolist() == [-1, 0, 1, 2, 2, 3, 3]


def test_opposite_siblings_have_two_directions_with_an_anchor():
    h = Hierarchy.from_edges([("r", "a"), ("a", "x"), ("a", "y"), ("r", "b")])
    d = ConceptDictionary.from_leaf_embeddings(h, {"x": [4, 1], "y": [4, -1], "b": [0, 3]})
    problem = d.path_problem(0.5)
    assert len(set(problem.column[1:].tolist())) == 4


def test_many_two_way_splits_share_directions():
    n = 2**13
    h = Hierarchy.from_edges((f"{i // 2}", f"{i}") for i in range(2, n))
    rng = np.random.default_rng(0)
    problem = ConceptDictionary.from_leaf_embeddings(
        h, {leaf: rng.standard_normal(16) for leaf in h.leaves}
    ).path_problem()
    inner = problem.tree.n_children[1:] > 0
    first = problem.tree.first_child[1:][inner]
    np.testing.assert_array_equal(problem.column[first], problem.column[first + 1])
    np.testing.assert_array_equal(problem.sign[first], -problem.sign[first + 1])


# -- dependent atoms ---------------------------------------------------------------------------------------------------


def dependent(h, vectors, count):
    """Build the path problem, and check that it gave one warning with this count."""
    d = ConceptDictionary.from_synset_embeddings(h, vectors)
    with pytest.warns(DependentAtomsWarning, match=rf"{count} atoms are zero or lie in the span") as caught:
        problem = d.path_problem()
    assert len(caught) == 1
    return problem


@pytest.mark.parametrize("x", [[1.0, 0.0], [3.0, 0.0], [-2.0, 0.0]], ids=["zero", "along", "against"])
def test_a_zero_or_parallel_atom_has_no_direction(stem, x):
    problem = dependent(stem, {"a": [1.0, 0.0], "b": [0.0, 1.0], "x": x, "y": [1.0, 2.0]}, "1 of 4")
    assert problem.column.tolist() == [-1, 0, 1, -1, 2]
    assert problem.sign.tolist() == [0.0, 1.0, 1.0, 0.0, 1.0]
    assert problem.share[3] == 0.0
    assert problem.triangle[3, 1] == 0.0
    assert n_dependent(problem) == 1


def test_an_atom_that_is_dependent_up_to_rounding_has_no_direction(stem):
    v = np.array([0.1, 0.2, 0.7])
    problem = dependent(stem, {"a": v, "b": [0, 1, 0], "x": v * (1 + 1 / 3), "y": [1, 0, 0]}, "1 of 4")
    assert problem.column[3] == -1


def test_more_levels_than_dimensions_make_an_atom_dependent():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c")])
    problem = dependent(h, {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [5.0, 7.0]}, "1 of 3")
    assert problem.column.tolist() == [-1, 0, 1, -1]


def test_a_path_continues_below_a_dependent_atom():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c")])
    problem = dependent(h, {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [1.0, 3.0]}, "1 of 3")
    np.testing.assert_allclose(problem.directions, [[1, 0], [0, 1]])
    np.testing.assert_allclose(problem.triangle[3], [0, 0, 3])


def test_the_warning_counts_atoms_and_not_paths():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("x", "y"), ("x", "z")])
    vectors = {"a": [1, 0, 0], "b": [0, 1, 0], "x": [1, 1, 0], "y": [1, 1, 0], "z": [1, 1, 1]}
    problem = dependent(h, vectors, "1 of 6")
    assert n_dependent(problem) == 2  # the atom x -> y, at the end of two paths


def test_the_warning_names_edges_and_the_remedy(stem):
    d = ConceptDictionary.from_synset_embeddings(stem, {"a": [1, 0], "b": [0, 1], "x": [1, 0], "y": [1, 0]})
    with pytest.warns(DependentAtomsWarning, match=r"2 of 4 atoms .*'a → x', 'a → y'.*hierarchy.collapse\(\)"):
        _ = d.path_problem()


def test_an_anchor_makes_zero_atoms_independent(stem):
    d = ConceptDictionary.from_synset_embeddings(stem, {"a": [1, 0], "b": [0, 1], "x": [1, 0], "y": [1, 2]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert n_dependent(d.path_problem(0.1)) == 0


def test_duplicate_classes_share_a_direction(stem):
    d = ConceptDictionary.from_synset_embeddings(stem, {"a": [1, 0], "b": [0, 1], "x": [1, 2], "y": [1, 2]})
    assert d.path_problem().column.tolist() == [-1, 0, 1, 2, 2]
    assert d.path_problem().sign.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]


def test_problems_can_be_compared_and_hashed(pets_dictionary):
    assert pets_dictionary.path_problem() != pets_dictionary.path_problem(1.0)
    assert len({pets_dictionary.path_problem(), pets_dictionary.path_problem(1.0)}) == 2


def test_directions_of_nearly_dependent_atoms_are_orthogonal():
    rng = np.random.default_rng(0)
    base, small = rng.standard_normal(8), 1e-7 * rng.standard_normal((3, 8))
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c")])
    d = ConceptDictionary.from_synset_embeddings(
        h, {"a": base, "b": 2 * base + small[0], "c": 4 * base + small[0] + small[1]}
    )
    q = path_directions(d.path_problem(), 3)
    np.testing.assert_allclose(q @ q.T, np.eye(3), atol=1e-13)


def test_only_the_latest_problems_are_kept(pets_dictionary):
    first = pets_dictionary.path_problem(0.5)
    assert pets_dictionary.path_problem(0.5) is first
    for anchor in (1.0, 2.0, 3.0, 4.0):
        pets_dictionary.path_problem(anchor)
    assert pets_dictionary.path_problem(0.5) is not first


@given(st.integers(0, 2**32 - 1))
@laws
def test_atoms_of_a_support_explain_what_a_projection_onto_them_does(seed):
    rng = np.random.default_rng(seed)
    atoms, x = rng.standard_normal((8, 5)), rng.standard_normal((6, 5))
    order = np.array([np.append(rng.permutation(8)[:3], -1) for _ in range(6)])
    order[0, 1:] = -1
    for at, along, _ in along_supports(x, atoms, order):
        for i, explained in zip(at, np.cumsum(along**2, axis=1), strict=True):
            for n, energy in enumerate(explained, start=1):
                own = atoms[order[i, :n][order[i, :n] >= 0]]
                left = x[i] - own.T @ np.linalg.lstsq(own.T, x[i], rcond=None)[0]
                assert energy == pytest.approx(x[i] @ x[i] - left @ left, abs=1e-9)


def test_equal_atoms_explain_once():
    ((_, along, _),) = along_supports(np.array([[3.0, 4.0]]), np.array([[0.0, 2.0], [0.0, 2.0]]), np.array([[0, 1]]))
    assert along[0].tolist() == [4.0, 0.0]
