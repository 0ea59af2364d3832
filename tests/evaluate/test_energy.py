"""Explained energy against least squares, and reconstruction errors."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp, omp
from hcep.dictionary.path_problem import along_supports
from hcep.evaluate import energy
from hcep.evaluate.energy import atom_order, energy_columns
from hcep.pursuit import FlatResult
from tests.reference.random_problems import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
quick = settings(deadline=None, max_examples=30)


def left_after(x, atoms):
    """Squared norm of what the atoms cannot explain, by least squares."""
    residual = x - atoms.T @ np.linalg.lstsq(atoms.T, x, rcond=1e-9)[0]
    return residual @ residual


def table(columns, depth):
    return np.column_stack([columns[f"explained_{level}"] for level in range(1, depth + 1)])


@given(st.integers(0, 2**32 - 1), st.booleans())
@quick
def test_each_level_explains_what_a_projection_does(seed, flat):
    problem = random_problem(seed, n_images=3)
    d = problem.dictionary
    result = {True: lambda: omp(problem.X, d), False: lambda: hb_omp(problem.X, d, **problem.options)}[flat]()
    depth = d.hierarchy.depth
    explained = table(energy_columns(result, problem.X, 3, depth), depth)
    order = atom_order(result, depth)
    for x, atoms, shares in zip(problem.X, order, explained, strict=True):
        left = [left_after(x, d.atoms[atoms[: k + 1][atoms[: k + 1] >= 0]]) for k in range(depth)]
        assert shares == pytest.approx(1 - np.array(left) / (x @ x), abs=1e-6)


@given(st.integers(0, 2**32 - 1))
@quick
def test_without_an_anchor_the_last_level_is_one_less_the_squared_error(seed):
    problem = random_problem(seed, n_images=3)
    result = hb_omp(problem.X, problem.dictionary, beam_width=None)
    depth = problem.dictionary.hierarchy.depth
    columns = energy_columns(result, problem.X, 3, depth)
    assert columns[f"explained_{depth}"] == pytest.approx(1 - columns["reconstruction_error"] ** 2, abs=1e-6)
    assert (np.diff(table(columns, depth), axis=1) >= 0).all()


def test_errors_are_measured_in_the_dictionarys_space(pets):
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 8)
    X = rng.standard_normal((40, 6)) + 3 * np.eye(5, 6)[np.repeat(np.arange(5), 8)]
    d = ConceptDictionary.from_images(pets, X, y, shrinkage=0.5, center=True)
    result = hb_omp(X, d, beam_width=None, anchor=0.1)
    x = d.embed(X)
    expected = np.linalg.norm(x - result.codes @ d.atoms, axis=1) / np.linalg.norm(x, axis=1)
    assert energy_columns(result, X, 40, 2)["reconstruction_error"] == pytest.approx(expected, rel=1e-6)


def test_a_path_that_has_ended_explains_what_it_did_at_its_end(pets_dictionary):
    result = hb_omp([[3.0, 1.0, 0.0, 0.0]], pets_dictionary, max_steps=1)
    columns = energy_columns(result, np.array([[3.0, 1.0, 0.0, 0.0]]), 1, 2)
    assert columns["explained_1"] == columns["explained_2"] == pytest.approx([0.9])


def test_many_images_are_worked_on_in_blocks(pets_dictionary, monkeypatch):
    X = np.random.default_rng(0).standard_normal((23, 4))
    result = hb_omp(X, pets_dictionary)
    whole = energy_columns(result, X, 23, 2)
    monkeypatch.setattr(energy, "BLOCK", 5)
    blocked = energy_columns(result, X, 23, 2)
    assert all(blocked[name] == pytest.approx(whole[name], rel=1e-12) for name in whole)


def test_equal_atoms_explain_once(diamond):
    d = ConceptDictionary.from_leaf_embeddings(diamond, {"cat": [2.0, 0.0], "hamster": [0.0, 1.0], "lion": [0.0, 1.0]})
    x = np.array([[3.0, 4.0]])
    same = np.flatnonzero([child == "cat" for _, child in d.edges])  # pet → cat and feline → cat are equal here
    np.testing.assert_allclose(d.atoms[same[0]], d.atoms[same[1]])
    ((_, along, _),) = along_supports(x, d.atoms, same[None])
    p = np.cumsum(along**2, axis=1)
    assert p[0, 0] == pytest.approx(p[0, 1], rel=1e-9)


def test_a_zero_image_and_a_method_without_residuals_have_none(pets_dictionary):
    X = np.array([[0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 0.0, 0.0]])
    assert np.isnan(energy_columns(hb_omp(X, pets_dictionary), X, 2, 2)["explained_1"]).tolist() == [True, False]
    flat = omp(X, pets_dictionary)
    silent = FlatResult(flat.dictionary, flat.codes, np.full(2, np.nan), flat.selected)
    assert np.isnan(list(energy_columns(silent, X, 2, 2).values())).all()


def test_without_images_nothing_is_known(pets_dictionary):
    assert np.isnan(list(energy_columns([("cat",)], None, 1, 2).values())).all()


def test_what_is_refused(pets_dictionary):
    X = np.ones((2, 4))
    with pytest.raises(HCEPError, match=r"X has shape \(3, 4\), the result 2 images; give the images of that pursuit"):
        energy_columns(hb_omp(X, pets_dictionary), np.ones((3, 4)), 2, 2)
    with pytest.raises(HCEPError, match="X needs the dictionary of a pursuit result; leave X out"):
        energy_columns([("cat",)] * 2, X, 2, 2)


def test_order_of_a_path_and_of_a_selection(pets_dictionary):
    edges = pets_dictionary.edges
    X = np.array([[3.0, 1.2, 0.1, 0.0]])
    path, flat = hb_omp(X, pets_dictionary, signed=True), omp(X, pets_dictionary, 1)
    assert [edges[a] for a in atom_order(path, 2)[0]] == [("thing", "animal"), ("animal", "cat")]
    assert atom_order(flat, 2)[0].tolist() == [flat.selected[0, 0], -1]


def test_a_hierarchy_of_one_level():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b")])
    d = ConceptDictionary.from_leaf_embeddings(h, {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    columns = energy_columns(hb_omp([[3.0, 4.0]], d), np.array([[3.0, 4.0]]), 1, 1)
    assert columns["explained_1"] == pytest.approx([0.64])
    assert columns["reconstruction_error"] == pytest.approx([0.6])
