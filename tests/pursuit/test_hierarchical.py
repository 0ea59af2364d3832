"""HB-OMP on small trees, with every kind of array, in blocks and with threads."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp
from hcep.dictionary import DependentAtomsWarning
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import BLOCK

SEARCHES = [
    {"beam_width": None},
    {"beam_width": 2},
    {"beam_width": None, "signed": True},
    {"beam_width": 2, "signed": True, "anchor": 0.03},
    {"beam_width": None, "anchor": 0.03},
    {"beam_width": None, "tol": 0.3, "max_steps": 2},
]


@pytest.fixture
def dictionary() -> ConceptDictionary:
    """Three branches of three leaves in eight dimensions."""
    edges = [("root", f"b{i}") for i in range(3)] + [(f"b{i}", f"b{i}l{j}") for i in range(3) for j in range(3)]
    hierarchy = Hierarchy.from_edges(edges)
    rng = np.random.default_rng(0)
    branch = {f"b{i}": 3 * rng.standard_normal(8) for i in range(3)}
    return ConceptDictionary.from_leaf_embeddings(
        hierarchy, {leaf: branch[leaf[:2]] + rng.standard_normal(8) for leaf in hierarchy.leaves}
    )


@pytest.fixture
def images(dictionary: ConceptDictionary) -> np.ndarray:
    """Three noisy copies of each leaf's embedding: 27 images."""
    rng = np.random.default_rng(1)
    X = np.repeat(dictionary.leaf_embeddings, 3, axis=0)
    return X + 0.1 * rng.standard_normal(X.shape)


@pytest.fixture
def balance() -> ConceptDictionary:
    """Only two-way splits, so that the atoms of siblings below the root's children are exactly opposite."""
    hierarchy = Hierarchy.from_edges([("root", "a"), ("root", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
    leaves = {"a1": [4.0, 1.0, 0.0], "a2": [4.0, -1.0, 0.0], "b1": [0.0, 0.0, 5.0], "b2": [0.0, 2.0, 3.0]}
    return ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)


def same(a: Any, b: Any) -> bool:
    """Return whether two results are bitwise equal."""
    return (
        a.nodes.tolist() == b.nodes.tolist()
        and a.residual_norms.tolist() == b.residual_norms.tolist()
        and a.codes.data.tolist() == b.codes.data.tolist()
        and a.n_best_nodes.tolist() == b.n_best_nodes.tolist()
    )


# -- by hand ---------------------------------------------------------------------------------------


def test_a_leaf_embedding_is_the_sum_of_its_path(pets_dictionary: ConceptDictionary) -> None:
    result = hb_omp([[3.0, 1.0, 0.0, 0.0]], pets_dictionary)
    assert result.paths == [("animal", "cat")]
    assert result.leaves.tolist() == ["cat"]
    assert result.coefficients(0) == pytest.approx([1.0, 1.0])
    assert result.residual_norms == pytest.approx([0.0], abs=1e-12)


def test_coefficients_by_hand(balance: ConceptDictionary) -> None:
    # a = (4, 0, 0), a1 - a = (0, 1, 0): orthogonal, so the coefficients are plain projections.
    result = hb_omp([[2.0, 3.0, 0.5]], balance, signed=True)
    assert result.paths == [("a", "a1")]
    assert result.coefficients(0) == pytest.approx([0.5, 3.0])
    assert result.residual_norms == pytest.approx([0.5])


def test_anchored_coefficients_by_hand(balance: ConceptDictionary) -> None:
    # min (2 - 4u)^2 + (3 - v)^2 + (u - 1)^2 + (v - 1)^2: u = 9/17, v = 2.
    result = hb_omp([[2.0, 3.0, 0.0]], balance, anchor=1.0 / balance.anchor_unit)
    assert result.paths == [("a", "a1")]
    assert result.coefficients(0) == pytest.approx([9 / 17, 2.0])
    assert result.residual_norms == pytest.approx([np.hypot(2 - 36 / 17, 1.0)])


def test_a_greedy_beam_can_miss_the_path_that_a_wider_one_finds() -> None:
    hierarchy = Hierarchy.from_edges([("root", "near"), ("root", "far"), ("near", "n1"), ("far", "f1"), ("far", "f2")])
    embeddings = {"near": [1.0, 0.1, 0.0], "n1": [1.0, 0.1, 1.0], "far": [1.0, 1.0, 0.0], "f1": [2.0, 1.0, 0.0]}
    dictionary = ConceptDictionary.from_synset_embeddings(hierarchy, {**embeddings, "f2": [1.0, 1.0, 1.0]})
    x = [[1.0, 0.3, 0.0]]
    assert hb_omp(x, dictionary, beam_width=1).paths == [("near", "n1")]
    assert hb_omp(x, dictionary, beam_width=2).paths == [("far", "f1")]
    assert hb_omp(x, dictionary, beam_width=None).paths == [("far", "f1")]


def test_each_route_to_a_synset_with_two_parents_is_a_path(diamond: Hierarchy) -> None:
    embeddings = {"pet": [1.0, 0.0], "feline": [0.0, 1.0], "cat": [2.0, 2.0], "hamster": [3.0, 0.0], "lion": [0.0, 3.0]}
    dictionary = ConceptDictionary.from_synset_embeddings(diamond, embeddings)
    result = hb_omp([[2.0, 2.0]], dictionary, beam_width=None, n_best=5, anchor=1e-3)
    paths = [h.path for h in result.hypotheses(0)]
    assert set(paths[:2]) == {("pet", "cat"), ("feline", "cat")}
    assert len(paths) == 4
    columns = [k for k, edge in enumerate(dictionary.edges) if edge in (("root", paths[0][0]), (paths[0][0], "cat"))]
    assert result.codes.indices.tolist() == columns


# -- the rules of the search -----------------------------------------------------------------------


@pytest.mark.parametrize("beam_width", [1, 2, None])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_two_way_split_is_a_tie_and_goes_to_the_lowest_index(
    balance: ConceptDictionary, beam_width: int | None, dtype: type
) -> None:
    x = np.array([[4.1, -0.7, 0.2], [4.1, 0.7, 0.2], [3.7, -0.001, 0.3]], dtype)
    assert hb_omp(x, balance, beam_width=beam_width).paths == [("a", "a1")] * 3


@pytest.mark.parametrize("beam_width", [1, 2, None])
def test_the_signed_rule_distinguishes_the_two_children(balance: ConceptDictionary, beam_width: int | None) -> None:
    result = hb_omp([[4.1, -0.7, 0.2], [4.1, 0.7, 0.2]], balance, beam_width=beam_width, signed=True)
    assert result.paths == [("a", "a2"), ("a", "a1")]


@pytest.mark.parametrize("options", [{"signed": False}, {"signed": True}, {"signed": True, "anchor": 0.1}])
@pytest.mark.parametrize("beam_width", [1, 2, None])
def test_equal_siblings_tie_under_either_rule(beam_width: int | None, options: dict[str, Any]) -> None:
    hierarchy = Hierarchy.from_edges([("root", name) for name in ("first", "second", "third")])
    dictionary = ConceptDictionary.from_leaf_embeddings(
        hierarchy, {"first": [1.0, 0.3], "second": [1.0, 0.3], "third": [0.0, 1.0]}
    )
    assert hb_omp([[2.0, 0.5]], dictionary, beam_width=beam_width, **options).paths == [("first",)]


def test_a_hypothesis_without_an_eligible_child_ends(pets: Hierarchy) -> None:
    embeddings = {"animal": [1.0, 0.0], "vehicle": [-1.0, 0.0], "cat": [1.0, 1.0], "dog": [2.0, 1.0], "fox": [1.0, 2.0]}
    dictionary = ConceptDictionary.from_synset_embeddings(pets, {**embeddings, "car": [-2.0, 0.5], "bus": [-1.0, 1.0]})
    result = hb_omp([[1.0, -1.0], [0.0, 0.0]], dictionary, signed=True)
    assert result.paths == [("animal",), ()]
    assert result.leaves.tolist() == ["animal", "thing"]
    assert result.codes.toarray()[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_max_steps_limits_the_length_of_the_path(pets_dictionary: ConceptDictionary) -> None:
    x = [[3.0, 1.0, 0.0, 0.0]]
    assert hb_omp(x, pets_dictionary, max_steps=1).paths == [("animal",)]
    assert hb_omp(x, pets_dictionary, beam_width=None, max_steps=1).paths == [("animal",)]
    assert hb_omp(x, pets_dictionary, max_steps=99).paths == [("animal", "cat")]


def test_tol_stops_at_the_first_small_residual(pets_dictionary: ConceptDictionary) -> None:
    x = 2.0 * pets_dictionary.synset_embedding("animal")[None]
    assert hb_omp(x, pets_dictionary, tol=0.1).paths == [("animal",)]
    assert hb_omp(x, pets_dictionary, tol=1e6).paths == [()]
    assert len(hb_omp(x, pets_dictionary, tol=0.0).paths[0]) == 2


@pytest.mark.parametrize("options", [{}, {"anchor": 0.03}, {"signed": True}])
@pytest.mark.parametrize("beam_width", [1, 4, None])
def test_a_tiny_tol_stops_a_noiseless_image_despite_cancellation(
    pets: Hierarchy, beam_width: int | None, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    dictionaries = [
        ConceptDictionary.from_leaf_embeddings(pets, {leaf: rng.normal(size=12) + 3.0 for leaf in pets.leaves})
        for _ in range(20)
    ]
    left = []
    for dictionary in dictionaries:
        x = dictionary.synset_embedding("animal")
        left.append(x @ x - (x @ (x / np.linalg.norm(x))) ** 2)
        result = hb_omp(x[None], dictionary, beam_width=beam_width, tol=1e-10, **options)
        assert result.paths == [("animal",)]
        assert result.residual_norms[0] < 1e-10
    # ||x||**2 minus the projections is rounding, whose root is far above tol, so the residual must be measured.
    assert np.sqrt(max(left)) > 1e-8


def test_a_zero_image_follows_the_first_children(pets_dictionary: ConceptDictionary) -> None:
    zero = np.zeros((1, 4))
    assert hb_omp(zero, pets_dictionary, beam_width=3).paths == [("animal", "cat")]
    assert hb_omp(zero, pets_dictionary, beam_width=None).paths == [("animal", "cat")]
    assert hb_omp(zero, pets_dictionary).codes.toarray().tolist() == [[0.0] * 7]
    assert hb_omp(zero, pets_dictionary, signed=True).paths == [()]
    assert hb_omp(zero, pets_dictionary).residual_norms.tolist() == [0.0]


def test_a_zero_atom_gets_coefficient_0_and_one_warning() -> None:
    hierarchy = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("root", "e")])
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, {"c": [1.0, 1.0], "d": [1.0, 0.0], "e": [-1.0, 1.0]})
    with pytest.warns(DependentAtomsWarning, match=r"1 of 5 atoms are zero .*'a → b'"):
        result = hb_omp([[1.1, 1.0]], dictionary)
    assert result.paths == [("a", "b", "c")]
    assert result.coefficients(0)[1] == 0.0


def test_an_anchored_search_has_no_dependent_atoms_and_does_not_warn() -> None:
    hierarchy = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("root", "e")])
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, {"c": [1.0, 1.0], "d": [1.0, 0.0], "e": [-1.0, 1.0]})
    result = hb_omp([[1.0, 1.0]], dictionary, anchor=0.1)
    assert result.coefficients(0) == pytest.approx([1.0, 1.0, 1.0])


# -- every kind of array ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", SEARCHES)
def test_half_single_and_double_precision_agree(
    dictionary: ConceptDictionary, images: np.ndarray, options: dict[str, Any]
) -> None:
    images = images.astype(np.float16)
    double = hb_omp(images.astype(np.float64), dictionary, **options)
    single = hb_omp(images.astype(np.float32), dictionary, **options)
    half = hb_omp(images, dictionary, **options)
    assert double.paths == single.paths
    assert same(single, half)
    assert double.codes.dtype == np.float64
    assert single.codes.dtype == np.float32
    assert single.codes.toarray() == pytest.approx(double.codes.toarray(), abs=1e-4)
    assert single.residual_norms == pytest.approx(double.residual_norms, abs=1e-4)


@pytest.mark.parametrize("options", SEARCHES)
def test_the_memory_layout_does_not_matter(
    dictionary: ConceptDictionary, images: np.ndarray, options: dict[str, Any], tmp_path: Path
) -> None:
    expected = hb_omp(images, dictionary, **options)
    wide = np.zeros((2 * len(images), 16))
    wide[::2, 1::2] = images
    on_disk = np.memmap(tmp_path / "images", dtype=np.float64, mode="w+", shape=images.shape)
    on_disk[:] = images
    assert same(hb_omp(np.asfortranarray(images), dictionary, **options), expected)
    assert same(hb_omp(wide[::2, 1::2], dictionary, **options), expected)
    assert same(hb_omp(on_disk, dictionary, **options), expected)
    assert same(hb_omp(images.tolist(), dictionary, **options), expected)


def test_images_are_not_modified(dictionary: ConceptDictionary, images: np.ndarray) -> None:
    images.setflags(write=False)
    before = images.copy()
    hb_omp(images, dictionary, anchor=0.1, tol=0.1)
    assert (images == before).all()


def test_integer_embeddings_are_accepted(pets_dictionary: ConceptDictionary) -> None:
    assert hb_omp(np.array([[3, 1, 0, 0]]), pets_dictionary).paths == [("animal", "cat")]


def test_a_single_image_may_be_a_vector(pets_dictionary: ConceptDictionary) -> None:
    result = hb_omp(np.array([3.0, 1.0, 0.0, 0.0]), pets_dictionary)
    assert result.paths == [("animal", "cat")]
    assert result.codes.shape == (1, 7)


@pytest.mark.parametrize("options", SEARCHES)
def test_no_images_give_an_empty_result(dictionary: ConceptDictionary, options: dict[str, Any]) -> None:
    result = hb_omp(np.zeros((0, 8)), dictionary, n_best=2, trace=True, **options)
    assert len(result) == 0
    assert result.paths == []
    assert result.leaves.tolist() == []
    assert result.codes.shape == (0, dictionary.n_atoms)
    assert result.residual_norms.shape == (0,)


def test_images_go_through_the_transform_of_the_dictionary(pets: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 6)
    X = rng.standard_normal((30, 4)) + np.repeat(5 * rng.standard_normal((5, 4)), 6, axis=0)
    fitted = ConceptDictionary.from_images(pets, X, y, center=True, shrinkage=0.5, rescale=True)
    plain = ConceptDictionary(fitted.hierarchy, fitted.synset_embeddings, anchor_unit=1.0)
    raw, embedded = hb_omp(X, fitted, anchor=0.1), hb_omp(fitted.embed(X), plain, anchor=0.1)
    assert raw.paths == embedded.paths
    assert raw.residual_norms == pytest.approx(embedded.residual_norms)


# -- blocks and threads ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", SEARCHES)
def test_results_are_bitwise_equal_on_any_number_of_threads(
    dictionary: ConceptDictionary, options: dict[str, Any]
) -> None:
    X = np.random.default_rng(2).standard_normal((3 * BLOCK + 17, 8)).astype(np.float32)
    one = hb_omp(X, dictionary, n_best=2, n_jobs=1, **options)
    for n_jobs in (2, 4, -1, None):
        assert same(hb_omp(X, dictionary, n_best=2, n_jobs=n_jobs, **options), one)


def test_the_progress_bar_changes_nothing(
    dictionary: ConceptDictionary,
    images: np.ndarray,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal; otherwise nothing is drawn
    silent = hb_omp(images, dictionary)
    assert capsys.readouterr() == ("", "")
    assert same(hb_omp(images, dictionary, progress=True), silent)
    assert "27/27" in capsys.readouterr().err


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 88])
@pytest.mark.parametrize("beam_width", [2, None])
def test_block_boundaries_do_not_change_the_results(
    dictionary: ConceptDictionary, beam_width: int | None, n: int
) -> None:
    X = np.random.default_rng(3).standard_normal((n, 8))
    result = hb_omp(X, dictionary, beam_width=beam_width)
    pieces = [hb_omp(X[i : i + 100], dictionary, beam_width=beam_width) for i in range(0, n, 100)]
    assert result.paths == [path for piece in pieces for path in piece.paths]
    assert result.residual_norms == pytest.approx(np.concatenate([piece.residual_norms for piece in pieces]))
    residuals = X - result.codes @ dictionary.atoms
    assert result.residual_norms == pytest.approx(np.linalg.norm(residuals, axis=1))


@pytest.mark.parametrize("options", SEARCHES)
def test_memory_does_not_grow_with_images_times_nodes(options: dict[str, Any]) -> None:
    hierarchy = Hierarchy.from_edges([("root", f"leaf{i}") for i in range(2000)])
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary(hierarchy, rng.standard_normal((2001, 4)))
    X = rng.standard_normal((20_000, 4)).astype(np.float32)
    hb_omp(X[:10], dictionary, n_jobs=1, **options)
    tracemalloc.start()
    hb_omp(X, dictionary, n_jobs=1, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The scores of all nodes would take 160 MB; those of a block take 16 MB.
    assert peak < 60e6


# -- n_best and trace ------------------------------------------------------------------------------


def test_n_best_lists_the_final_beam(pets_dictionary: ConceptDictionary) -> None:
    result = hb_omp([[3.0, 0.9, 0.1, 0.0]], pets_dictionary, beam_width=None, anchor=0.1, n_best=9)
    assert {h.path[-1] for h in result.hypotheses(0)} == {"cat", "dog", "fox", "car", "bus"}
    assert result.hypotheses(0)[0].path == ("animal", "cat")
    assert result.n_best_nodes[0, 5:].tolist() == [-1] * 4
    assert np.isnan(result.n_best_residual_norms[0, 5:]).all()


def test_n_best_beyond_the_beam_is_left_empty(pets_dictionary: ConceptDictionary) -> None:
    result = hb_omp([[3.0, 0.9, 0.1, 0.0]], pets_dictionary, beam_width=2, n_best=3)
    assert len(result.hypotheses(0)) == 2
    assert result.n_best_nodes[0, 2] == -1


def test_trace_by_hand(balance: ConceptDictionary) -> None:
    # x = (4, -1, 3). Step 1: a = (4, 0, 0) leaves (0, -1, 3); b = (0, 1, 4) leaves x - (11/17) b. Step 2: below a only
    # a2 is eligible, below b only b1, whose atom (0, -1, 1) lengthens the way to (0, 0, 5).
    result = hb_omp([[4.0, -1.0, 3.0]], balance, beam_width=2, signed=True, trace=True)
    steps = result.trace.steps(0)
    assert [[h.path for h in beam] for beam in steps] == [[()], [("a",), ("b",)], [("a", "a2"), ("b", "b1")]]
    assert [h.residual_norm for h in steps[0]] == pytest.approx([np.sqrt(26)])
    assert [h.residual_norm for h in steps[1]] == pytest.approx([np.sqrt(10), np.sqrt(26 - 121 / 17)])
    assert [h.residual_norm for h in steps[2]] == pytest.approx([3.0, 4.0])
    assert result.residual_norms == pytest.approx([3.0])


def test_the_trace_ends_with_the_search(pets_dictionary: ConceptDictionary) -> None:
    x = pets_dictionary.synset_embedding("animal")[None]
    steps = hb_omp(x, pets_dictionary, beam_width=2, tol=0.1, trace=True).trace.steps(0)
    assert [[h.path for h in beam] for beam in steps] == [[()], [("animal",), ("vehicle",)]]


def test_there_is_no_trace_by_default(pets_dictionary: ConceptDictionary) -> None:
    assert hb_omp([[3.0, 1.0, 0.0, 0.0]], pets_dictionary).trace is None


# -- invalid arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_rejected_with_their_rows(dictionary: ConceptDictionary, bad: float, n_jobs: int) -> None:
    X = np.ones((600, 8))
    X[[5, 77], 3] = bad
    with pytest.raises(DictionaryError, match=r"NaN or infinite values in 2 of 600 rows, such as rows 5, 77"):
        hb_omp(X, dictionary, n_jobs=n_jobs)


def test_row_numbers_in_later_blocks_are_those_of_the_input(dictionary: ConceptDictionary) -> None:
    X = np.ones((2 * BLOCK, 8))
    X[BLOCK + 3, 0] = np.nan
    with pytest.raises(DictionaryError, match=rf"such as rows {BLOCK + 3};"):
        hb_omp(X, dictionary)


def test_large_finite_values_are_accepted(dictionary: ConceptDictionary, images: np.ndarray) -> None:
    assert hb_omp(1e25 * images.astype(np.float32), dictionary).paths == hb_omp(images, dictionary).paths


def test_a_wrong_number_of_dimensions_is_rejected(dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match=r"X has 5 dimensions, but the dictionary has 8"):
        hb_omp(np.ones((2, 5)), dictionary)


def test_strings_are_rejected(dictionary: ConceptDictionary) -> None:
    with pytest.raises(DictionaryError, match=r"X must be an array of real numbers, got dtype <U3"):
        hb_omp([["cat", "dog"]], dictionary)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_width": 0}, r"beam_width must be a positive integer, or None for an exact search .*; got 0"),
        ({"beam_width": 2.0}, r"beam_width must be a positive integer.*got 2\.0"),
        ({"beam_width": True}, r"beam_width must be a positive integer.*got True"),
        ({"max_steps": -1}, r"max_steps must be a positive integer, or None for the depth .*; got -1"),
        ({"n_best": 0}, r"^n_best must be a positive integer; got 0$"),
        ({"n_best": None}, r"^n_best must be a positive integer; got None$"),
        ({"tol": -0.1}, r"tol must be a finite number of at least 0, got -0\.1"),
        ({"tol": np.nan}, r"tol must be a finite number of at least 0, got nan"),
        ({"anchor": -1.0}, r"anchor must be a finite number of at least 0, got -1\.0"),
        ({"anchor": np.inf}, r"anchor must be a finite number of at least 0, got inf"),
        ({"anchor": "auto"}, r"anchor must be a finite number of at least 0, got 'auto'"),
        ({"anchor": True}, r"anchor must be a finite number of at least 0, got True"),
        ({"n_jobs": 0}, r"n_jobs must be a positive number of threads, -1 for all cores, or None; got 0"),
    ],
)
def test_invalid_options_are_rejected(dictionary: ConceptDictionary, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HCEPError, match=message):
        hb_omp(np.ones((1, 8)), dictionary, **options)


def test_a_trace_of_too_many_images_is_rejected(dictionary: ConceptDictionary) -> None:
    X = np.broadcast_to(np.float32(1.0), (9_000_000, 8))
    with pytest.raises(HCEPError, match=r"a trace of 9,000,000 images, 2 steps and 8 hypotheses is too large"):
        hb_omp(X, dictionary, trace=True)
