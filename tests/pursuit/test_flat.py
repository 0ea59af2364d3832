"""Flat OMP: by hand, against scikit-learn, and on awkward dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import orthogonal_mp, orthogonal_mp_gram

from hcep import ConceptDictionary, HCEPError, Hierarchy, omp
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import BLOCK


def flat_dictionary(atoms: Any) -> ConceptDictionary:
    """A flat hierarchy, in which the embeddings of the leaves are the atoms."""
    names = [f"leaf{i:03d}" for i in range(len(atoms))]
    hierarchy = Hierarchy.from_edges([("root", name) for name in names])
    return ConceptDictionary.from_leaf_embeddings(hierarchy, dict(zip(names, np.asarray(atoms, float), strict=True)))


@pytest.fixture
def many() -> ConceptDictionary:
    """Sixty atoms of different norms in 24 dimensions."""
    rng = np.random.default_rng(0)
    return flat_dictionary(rng.standard_normal((60, 24)) * rng.uniform(0.2, 5.0, size=(60, 1)))


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((40, 24))


def test_two_atoms_by_hand() -> None:
    dictionary = flat_dictionary([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    result = omp([[1.0, -3.0, 2.0]], dictionary, 2)
    assert result.supports == [("leaf001", "leaf002")]
    assert result.selected.tolist() == [[1, 2]]
    assert result.codes.toarray().tolist() == [[0.0, -3.0, 0.5]]
    assert result.residual_norms == pytest.approx([1.0])


def test_a_synset_with_two_parents_owns_two_atoms(diamond: Hierarchy) -> None:
    embeddings = {"pet": [1.0, 0.0], "feline": [0.0, 1.0], "cat": [2.0, 2.0], "hamster": [3.0, 0.0], "lion": [0.0, 3.0]}
    dictionary = ConceptDictionary.from_synset_embeddings(diamond, embeddings)
    edge = dictionary.edges.index(("feline", "cat"))
    result = omp(dictionary.atoms[edge], dictionary, 1)
    assert result.selected.tolist() == [[edge]]
    assert result.supports == [("cat",)]


@pytest.mark.parametrize("n_nonzero", [1, 3, 8, 14])
def test_scikit_learn_agrees_on_normalised_atoms(many: ConceptDictionary, images: np.ndarray, n_nonzero: int) -> None:
    norms = np.linalg.norm(many.atoms, axis=1)
    unit = many.atoms / norms[:, None]
    expected = orthogonal_mp_gram(unit @ unit.T, unit @ images.T, n_nonzero_coefs=n_nonzero).T / norms
    result = omp(images, many, n_nonzero)
    assert (result.codes.toarray() != 0).tolist() == (expected != 0).tolist()
    assert result.codes.toarray() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("tol", [1.0, 2.5])
def test_scikit_learn_agrees_on_the_tolerance(many: ConceptDictionary, images: np.ndarray, tol: float) -> None:
    norms = np.linalg.norm(many.atoms, axis=1)
    unit = many.atoms / norms[:, None]
    squares = np.einsum("ij,ij->i", images, images)
    gram, correlations = unit @ unit.T, unit @ images.T
    expected = orthogonal_mp_gram(gram, correlations, tol=tol**2, norms_squared=squares, copy_Gram=True).T / norms
    result = omp(images, many, 24, tol)
    assert result.codes.toarray() == pytest.approx(expected, abs=1e-9)
    assert (result.residual_norms < tol).all()


def test_single_precision_agrees_with_double(many: ConceptDictionary, images: np.ndarray) -> None:
    double, single = omp(images, many, 5), omp(images.astype(np.float32), many, 5)
    assert double.supports == single.supports
    assert single.codes.dtype == np.float32
    assert single.codes.toarray() == pytest.approx(double.codes.toarray(), abs=1e-3)
    assert single.residual_norms == pytest.approx(double.residual_norms, abs=1e-4)


def test_residual_norms_are_those_of_the_codes(many: ConceptDictionary, images: np.ndarray) -> None:
    result = omp(images, many, 6)
    residuals = images - result.codes @ many.atoms
    assert result.residual_norms == pytest.approx(np.linalg.norm(residuals, axis=1))
    for i, atoms in enumerate(result.selected):
        assert many.atoms[atoms] @ residuals[i] == pytest.approx(np.zeros(6), abs=1e-9)


def test_the_default_number_of_atoms_is_the_depth(pets_dictionary: ConceptDictionary) -> None:
    assert omp([[3.0, 1.3, 0.4, 0.2]], pets_dictionary).selected.shape == (1, 2)


def test_tol_is_a_norm_that_is_checked_before_every_step(many: ConceptDictionary) -> None:
    x = 3.0 * many.atoms[[7]]
    assert omp(x, many, 4, tol=1e-6).supports == [("leaf007",)]
    assert omp(x, many, 4, tol=1e6).supports == [()]


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-10), (np.float32, 1e-5), (np.float64, 0.0)])
def test_a_noiseless_image_selects_only_its_own_atoms(many: ConceptDictionary, dtype: type, tol: float) -> None:
    # ||x||**2 minus the projections is noise, whose root is far above the tolerance, so the residual must be measured.
    # Without a tolerance, selection ends when only rounding is left.
    rng = np.random.default_rng(5)
    pairs = [rng.choice(60, 2, replace=False) for _ in range(200)]
    X = np.array([many.atoms[pair].T @ [2.0, -1.5] for pair in pairs]).astype(dtype)
    result = omp(X, many, 10, tol)
    own = [set(np.array(many.hierarchy.leaves)[pair]) for pair in pairs]
    two = [i for i in range(200) if set(result.supports[i][:2]) == own[i]]
    assert len(two) > 100
    assert [len(result.supports[i]) for i in two] == [2] * len(two)
    assert (result.residual_norms[two] < 1e-4).all()


def test_the_first_of_duplicate_atoms_is_selected_once(images: np.ndarray) -> None:
    atoms = np.random.default_rng(2).standard_normal((10, 24))
    dictionary = flat_dictionary(np.vstack([atoms, atoms, -2.0 * atoms]))
    result = omp(images, dictionary, 10)
    assert result.selected.max() < 10
    assert all(len(set(support)) == len(support) for support in result.supports)
    assert result.codes.toarray()[:, :10] == pytest.approx(omp(images, flat_dictionary(atoms), 10).codes.toarray())


def test_zero_atoms_are_never_selected() -> None:
    dictionary = flat_dictionary([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    result = omp([[1.0, 2.0, 3.0]], dictionary, 4)
    assert result.supports == [("leaf003", "leaf001")]
    assert result.residual_norms == pytest.approx([3.0])


def test_selection_ends_when_no_atom_is_independent(images: np.ndarray) -> None:
    plane = np.random.default_rng(3).standard_normal((2, 24))
    dictionary = flat_dictionary(np.random.default_rng(4).standard_normal((9, 2)) @ plane)
    result = omp(images, dictionary, 9)
    assert {len(support) for support in result.supports} == {2}
    expected = images - images @ np.linalg.pinv(plane) @ plane
    assert result.residual_norms == pytest.approx(np.linalg.norm(expected, axis=1))


def test_a_zero_image_has_an_empty_support(many: ConceptDictionary) -> None:
    result = omp(np.zeros((1, 24)), many, 3)
    assert result.supports == [()]
    assert result.codes.nnz == 0
    assert result.residual_norms.tolist() == [0.0]


def test_no_images_give_an_empty_result(many: ConceptDictionary) -> None:
    result = omp(np.zeros((0, 24)), many, 3)
    assert len(result) == 0
    assert result.supports == []
    assert result.codes.shape == (0, 60)


def test_the_memory_layout_does_not_matter(many: ConceptDictionary, images: np.ndarray, tmp_path: Path) -> None:
    expected = omp(images, many, 4).codes.toarray().tolist()
    on_disk = np.memmap(tmp_path / "images", dtype=np.float64, mode="w+", shape=images.shape)
    on_disk[:] = images
    wide = np.zeros((80, 48))
    wide[::2, ::2] = images
    assert omp(np.asfortranarray(images), many, 4).codes.toarray().tolist() == expected
    assert omp(on_disk, many, 4).codes.toarray().tolist() == expected
    assert omp(wide[::2, ::2], many, 4).codes.toarray().tolist() == expected
    assert omp(images[0], many, 4).supports == omp(images[:1], many, 4).supports


def test_results_are_bitwise_equal_on_any_number_of_threads(many: ConceptDictionary) -> None:
    X = np.random.default_rng(6).standard_normal((2 * BLOCK + 31, 24)).astype(np.float32)
    one = omp(X, many, 5, n_jobs=1)
    for n_jobs in (2, 4):
        other = omp(X, many, 5, n_jobs=n_jobs)
        assert other.selected.tolist() == one.selected.tolist()
        assert other.codes.data.tolist() == one.codes.data.tolist()
        assert other.residual_norms.tolist() == one.residual_norms.tolist()


def test_the_progress_bar_counts_images(
    many: ConceptDictionary,
    images: np.ndarray,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal; otherwise nothing is drawn
    omp(images, many, 2, progress=True)
    assert "40/40" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_nonzero": 0}, r"n_nonzero must be a positive integer, or None for the depth of the hierarchy; got 0"),
        ({"n_nonzero": 1.5}, r"n_nonzero must be a positive integer.*got 1\.5"),
        ({"tol": -1.0}, r"tol must be a finite number of at least 0, got -1\.0"),
        ({"n_jobs": 1.5}, r"n_jobs must be a positive number of threads.*got 1\.5"),
    ],
)
def test_invalid_options_are_rejected(many: ConceptDictionary, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HCEPError, match=message):
        omp(np.ones((1, 24)), many, **options)


def test_invalid_images_are_rejected(many: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match=r"X has 23 dimensions, but the dictionary has 24"):
        omp(np.ones((1, 23)), many)
    with pytest.raises(DictionaryError, match=r"1 of 2 rows, such as rows 1;"):
        omp(np.array([np.ones(24), np.full(24, np.nan)]), many)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_atoms_of_a_two_way_split_tie_and_the_lowest_is_selected(dtype: type) -> None:
    hierarchy = Hierarchy.from_edges(
        [("root", f"p{i}") for i in range(40)] + [(f"p{i}", f"p{i}{side}") for i in range(40) for side in "ab"]
    )
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary.from_leaf_embeddings(
        hierarchy, {leaf: rng.standard_normal(64) for leaf in hierarchy.leaves}
    )
    result = omp(rng.standard_normal((300, 64)).astype(dtype), dictionary, 12)
    assert not [synset for support in result.supports for synset in support if synset.endswith("b")]


def test_a_dictionary_of_zeros_selects_nothing() -> None:
    result = omp([[1.0, 2.0]], flat_dictionary(np.zeros((3, 2))), 2)
    assert result.supports == [()]
    assert result.residual_norms == pytest.approx([np.sqrt(5.0)])


def test_too_many_atoms_for_a_gram_matrix_are_rejected(pets_dictionary, monkeypatch):
    monkeypatch.setattr("hcep.pursuit.flat.MAX_ATOMS", 5)
    with pytest.raises(
        HCEPError, match=r"7 atoms are more than its limit of 5; restrict the hierarchy .* or use hb_omp"
    ):
        omp(np.zeros((1, 4)), pets_dictionary)


def test_atoms_of_ones_own_need_no_hierarchy() -> None:
    rng = np.random.default_rng(5)
    atoms, X = rng.standard_normal((30, 12)), rng.standard_normal((8, 12))
    result = omp(X, atoms, n_nonzero=4)
    expected = orthogonal_mp((atoms / np.linalg.norm(atoms, axis=1, keepdims=True)).T, X.T, n_nonzero_coefs=4).T
    np.testing.assert_allclose(result.codes.toarray() * np.linalg.norm(atoms, axis=1), expected, atol=1e-8)
    assert result.supports[0] == tuple(str(i) for i in result.selected[0])


def test_atoms_of_ones_own_need_a_number_of_atoms() -> None:
    with pytest.raises(HCEPError, match="n_nonzero must be given with an array of atoms"):
        omp(np.ones((1, 3)), np.eye(3))
