import pickle
from typing import Any

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, HierarchyError
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import EmbeddingTransform, unit_rows
from hcep.errors import DictionaryError


@pytest.fixture
def two():
    return Hierarchy.from_edges([("r", "a"), ("r", "b")])


@pytest.fixture
def labelled(pets):
    """Four images of each of the five leaves."""
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 4)
    return rng.standard_normal((20, 3)), y


def equal(a, b):
    np.testing.assert_allclose(a.synset_embeddings, b.synset_embeddings, rtol=1e-12, atol=1e-14)
    assert a.hierarchy == b.hierarchy


# -- the definition ----------------------------------------------------------------------------------------------------


def test_a_leaf_is_the_mean_of_its_images_and_an_inner_synset_of_its_children(pets):
    X = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 3.0], [4.0, 0.0], [8.0, 8.0], [0.0, 0.0]])
    d = ConceptDictionary.from_images(pets, X, ["cat", "cat", "dog", "fox", "car", "bus"])
    assert d.synset_embedding("cat").tolist() == [2.0, 0.0]
    assert d.synset_embedding("animal").tolist() == [2.0, 1.0]  # of cat, dog, fox; not of the four images
    assert d.synset_embedding("vehicle").tolist() == [4.0, 4.0]
    assert d.synset_embedding("thing").tolist() == [0.0, 0.0]


def test_each_edge_has_one_atom(pets_dictionary):
    d = pets_dictionary
    assert d.edges == d.hierarchy.edges
    assert d.atoms.shape == (d.n_atoms, d.n_dims) == (7, 4)
    for atom, (parent, child) in zip(d.atoms, d.edges, strict=True):
        np.testing.assert_array_equal(atom, d.synset_embedding(child) - d.synset_embedding(parent))


def test_atoms_along_a_path_sum_to_the_class(pets_dictionary):
    d = pets_dictionary
    on_path = [d.edges.index(edge) for edge in [("thing", "animal"), ("animal", "fox")]]
    np.testing.assert_allclose(d.atoms[on_path].sum(axis=0), d.synset_embedding("fox"))


def test_a_synset_with_two_parents_has_two_atoms(diamond):
    d = ConceptDictionary.from_leaf_embeddings(diamond, {"cat": [2.0, 2.0], "hamster": [4.0, 0.0], "lion": [0.0, 4.0]})
    atoms = dict(zip(d.edges, d.atoms.tolist(), strict=True))
    assert atoms["pet", "cat"] == [-1.0, 1.0]
    assert atoms["feline", "cat"] == [1.0, -1.0]


def test_leaf_embeddings_are_in_the_order_of_the_leaves(pets_dictionary):
    expected = [pets_dictionary.synset_embedding(leaf) for leaf in pets_dictionary.hierarchy.leaves]
    np.testing.assert_array_equal(pets_dictionary.leaf_embeddings, expected)


def test_a_child_equal_to_its_parent_up_to_rounding_has_a_zero_atom():
    h = Hierarchy.from_edges([("r", "a"), ("a", "x"), ("a", "y"), ("a", "z"), ("r", "b")])
    v = np.array([0.1, 0.2, 0.7])  # (v + v + v) / 3 is not v in floating point
    d = ConceptDictionary.from_leaf_embeddings(h, {"x": v, "y": v, "z": v, "b": -v})
    np.testing.assert_array_equal(d.atoms[2:], 0.0)


def test_from_synset_embeddings(pets):
    vectors = {synset: [float(i), 1.0] for i, synset in enumerate(pets.ids)}
    d = ConceptDictionary.from_synset_embeddings(pets, vectors)
    assert d.synset_embedding("animal").tolist() == [1.0, 1.0]
    assert d.synset_embedding("thing").tolist() == [0.0, 0.0]


def test_arrays_are_read_only(pets_dictionary):
    with pytest.raises(ValueError, match="read-only"):
        pets_dictionary.atoms[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        pets_dictionary.synset_embedding("cat")[0] = 1.0


def test_repr(pets_dictionary):
    assert repr(pets_dictionary).startswith("ConceptDictionary(7 atoms, 4 dimensions, Hierarchy(8 synsets")


def test_pickle(labelled, pets):
    d = ConceptDictionary.from_images(pets, *labelled, center=True, shrinkage=0.5)
    back = pickle.loads(pickle.dumps(d))
    equal(back, d)
    np.testing.assert_array_equal(back.embed(labelled[0]), d.embed(labelled[0]))


# -- images and labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("options", [{}, {"unit_norm": True}, {"center": True, "shrinkage": 0.3, "rescale": True}])
def test_batches_give_the_same_dictionary_as_one_array(pets, labelled, dtype, order, options):
    X, y = labelled
    X = np.asarray(X, dtype=dtype, order=order)
    whole = ConceptDictionary.from_images(pets, X, y, **options)
    shuffled = np.random.default_rng(1).permutation(20)
    batches = ((X[rows], y[rows]) for rows in np.array_split(shuffled, 6))
    parts = ConceptDictionary.from_images(pets, batches, **options)
    np.testing.assert_allclose(parts.synset_embeddings, whole.synset_embeddings, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts.embed(X), whole.embed(X), rtol=1e-4, atol=1e-5)


def test_batches_may_be_lists_or_empty(two):
    batches = [[[[1.0, 2.0]], ["a"]], (np.empty((0, 2)), []), ([[3.0, 4.0]], np.array(["b"], dtype=object))]
    d = ConceptDictionary.from_images(two, batches)
    assert d.leaf_embeddings.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64])
def test_any_numeric_dtype_is_accepted(two, dtype):
    d = ConceptDictionary.from_images(two, np.eye(2, dtype=dtype), ["a", "b"])
    assert d.leaf_embeddings.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_memory_map_gives_the_same_dictionary(pets, labelled, tmp_path):
    X, y = labelled
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    equal(ConceptDictionary.from_images(pets, mapped, y), ConceptDictionary.from_images(pets, X.astype(np.float16), y))


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        [np.str_("a"), np.str_("b")],
    ],
)
def test_labels_may_be_any_sequence_of_strings(two, labels):
    assert ConceptDictionary.from_images(two, np.eye(2), labels).leaf_embeddings.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_labels_may_come_from_pandas(two, dtype):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    labels = pandas.Series(["a", "b"], dtype=dtype, index=[7, 9])
    frame = pandas.DataFrame(np.eye(2), index=[7, 9])
    assert ConceptDictionary.from_images(two, frame, labels).leaf_embeddings.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("X", [np.empty((0, 3)), np.empty((0, 3), dtype=np.float32)])
def test_no_images_are_rejected(two, X):
    with pytest.raises(DictionaryError, match="X has no images"):
        ConceptDictionary.from_images(two, X, [])
    with pytest.raises(DictionaryError, match="X has no images"):
        ConceptDictionary.from_images(two, iter([]))


def test_missing_labels_are_rejected(two):
    with pytest.raises(DictionaryError, match=r"y is missing; pass X and y, or one iterable of \(X, y\) batches"):
        ConceptDictionary.from_images(two, np.eye(2))


@pytest.mark.parametrize("batch", [np.eye(2), (np.eye(2),), "ab", 3])
def test_a_batch_must_be_a_pair(two, batch):
    with pytest.raises(DictionaryError, match=r"batch 1 must be an \(X, y\) pair, got (ndarray|tuple|str|int)"):
        ConceptDictionary.from_images(two, [(np.eye(2), ["a", "b"]), batch])


def test_batches_with_different_dimensions_are_rejected(two):
    with pytest.raises(DictionaryError, match="X has 3 dimensions, but the batches before it have 2; encode all"):
        ConceptDictionary.from_images(two, [(np.eye(2), ["a", "b"]), (np.eye(3), ["a", "b", "b"])])


@pytest.mark.parametrize("y", [["a"], [["a"], ["b"]], "ab", iter(["a", "b"])])
def test_labels_must_match_the_rows(two, y):
    with pytest.raises(DictionaryError, match=r"y must hold one label per row of X, which has 2 rows; got shape \("):
        ConceptDictionary.from_images(two, np.eye(2), y)


@pytest.mark.parametrize(
    ("odd", "shown"), [(None, "None"), (np.nan, "nan"), (3, "3"), (np.int64(3), "3"), (b"a", "b'a'")]
)
def test_a_label_that_is_not_a_string_is_rejected(two, odd, shown):
    with pytest.raises(
        DictionaryError, match=rf"labels must be synset ids \(strings\), got {shown} \(.*; convert them"
    ):
        ConceptDictionary.from_images(two, np.eye(2), np.array(["a", odd], dtype=object))


@pytest.mark.parametrize("y", [[0, 1], [0.5, 1.5], [True, False], [b"a", b"b"]])
def test_labels_of_other_dtypes_are_rejected(two, y):
    with pytest.raises(DictionaryError, match=r"labels must be synset ids \(strings\), got dtype"):
        ConceptDictionary.from_images(two, np.eye(2), y)


def test_unknown_labels_are_rejected_with_their_counts(pets):
    y = ["cat", "dgo", "dgo", "zebra"]
    with pytest.raises(DictionaryError, match=r"2 labels \(3 images\) are not synsets.*: 'dgo', 'zebra'."):
        ConceptDictionary.from_images(pets, np.eye(4), y)


def test_nan_values_are_rejected(two):
    X = np.ones((3, 2))
    X[1, 1] = np.nan
    with pytest.raises(DictionaryError, match="NaN or infinite values in 1 of 3 rows, such as rows 1;"):
        ConceptDictionary.from_images(two, X, ["a", "b", "a"])


def test_row_numbers_continue_across_batches(two):
    batches = [(np.ones((10, 2)), ["a"] * 10), (np.full((2, 2), np.inf), ["b"] * 2)]
    with pytest.raises(DictionaryError, match="in 2 of 2 rows, such as rows 10, 11;"):
        ConceptDictionary.from_images(two, batches)


# -- classes and leaves ------------------------------------------------------------------------------------------------


def test_leaves_without_images_are_rejected(pets):
    with pytest.raises(DictionaryError, match="3 of 5 leaves have no image: 'fox', 'car', 'bus'; pass missing='drop'"):
        ConceptDictionary.from_images(pets, np.eye(2), ["cat", "dog"])


def test_leaves_without_images_can_be_dropped(pets):
    d = ConceptDictionary.from_images(pets, np.eye(3), ["cat", "dog", "car"], missing="drop")
    assert d.hierarchy == pets.restrict(["cat", "dog", "car"])
    assert d.synset_embedding("animal").tolist() == [0.5, 0.5, 0.0]


def test_an_invalid_value_of_missing_is_rejected(two):
    with pytest.raises(DictionaryError, match="missing must be 'raise' or 'drop', got 'ignore'"):
        ConceptDictionary.from_images(two, np.eye(2), ["a", "b"], missing="ignore")


def test_a_class_that_is_an_inner_synset_gets_its_own_leaf():
    h = Hierarchy.from_edges([("animal", "cat"), ("cat", "siamese"), ("animal", "dog")])
    d = ConceptDictionary.from_images(h, np.eye(3), ["cat", "siamese", "dog"])
    assert d.hierarchy.leaves == ("dog", "siamese", "cat (unspecified)")
    assert d.synset_embedding("cat (unspecified)").tolist() == [1.0, 0.0, 0.0]
    assert d.synset_embedding("cat").tolist() == [0.5, 0.5, 0.0]


def test_the_root_of_a_collapsed_hierarchy_can_be_a_class():
    h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog")])
    h = h.restrict(["animal", "cat", "dog"]).collapse()
    assert h.root == "animal"
    d = ConceptDictionary.from_images(h, np.eye(3), ["animal", "cat", "dog"])
    assert d.synset_embedding("animal (unspecified)").tolist() == [1.0, 0.0, 0.0]
    assert d.synset_embedding("animal").tolist() == [0.0, 0.0, 0.0]


def test_a_class_may_be_merged_into_its_own_leaf():
    h = Hierarchy.from_edges([("animal", "cat"), ("cat", "siamese"), ("animal", "dog")]).with_classes(["cat"])
    h = h.restrict(["cat", "dog"]).collapse()
    assert "cat" not in h
    d = ConceptDictionary.from_images(h, np.eye(2), ["cat", "dog"])
    assert d.synset_embedding(h.leaf_of("cat")).tolist() == [1.0, 0.0]
    equal(d, ConceptDictionary.from_images(h, np.eye(2), ["cat (unspecified)", "dog"]))


def test_a_class_and_its_own_leaf_cannot_both_be_labels():
    h = Hierarchy.from_edges([("animal", "cat"), ("cat", "siamese")]).with_classes(["cat"])
    with pytest.raises(
        DictionaryError, match=r"labels 'cat \(unspecified\)' are leaves of classes that also occur as labels"
    ):
        ConceptDictionary.from_images(h, np.eye(3), ["cat", "siamese", "cat (unspecified)"])


def test_the_root_cannot_be_a_class(two):
    with pytest.raises(DictionaryError, match="'r' is the root, whose embedding is zero, so it cannot be a class"):
        ConceptDictionary.from_images(two, np.eye(2), ["a", "r"])


# -- from vectors ------------------------------------------------------------------------------------------------------


def test_an_empty_mapping_is_rejected(two):
    with pytest.raises(DictionaryError, match="embeddings is empty"):
        ConceptDictionary.from_leaf_embeddings(two, {})


@pytest.mark.parametrize("vectors", [{"a": [1.0], "b": [1.0, 2.0]}, {"a": 1.0, "b": 2.0}, {"a": [[1.0]], "b": [[1.0]]}])
def test_vectors_of_different_shapes_are_rejected(two, vectors):
    with pytest.raises(DictionaryError, match="embeddings must be vectors of the same length; got shapes"):
        ConceptDictionary.from_leaf_embeddings(two, vectors)


def test_vectors_for_unknown_synsets_are_rejected(two):
    with pytest.raises(DictionaryError, match="1 labels are not synsets of the hierarchy: 'c'"):
        ConceptDictionary.from_leaf_embeddings(two, {"a": [1.0], "c": [1.0]})
    with pytest.raises(DictionaryError, match="1 labels are not synsets of the hierarchy: 'c'"):
        ConceptDictionary.from_synset_embeddings(two, {"a": [1.0], "b": [1.0], "c": [1.0]})


def test_non_finite_vectors_are_rejected(two):
    with pytest.raises(DictionaryError, match="embeddings has NaN or infinite values in 1 of 2 rows"):
        ConceptDictionary.from_leaf_embeddings(two, {"a": [1.0], "b": [np.nan]})


def test_every_synset_needs_a_vector(pets):
    with pytest.raises(DictionaryError, match="5 synsets have no embedding: 'vehicle', 'dog'"):
        ConceptDictionary.from_synset_embeddings(pets, {"animal": [1.0], "cat": [1.0]})


def test_every_leaf_needs_a_vector(two):
    with pytest.raises(DictionaryError, match="1 of 2 leaves have no image: 'b'"):
        ConceptDictionary.from_leaf_embeddings(two, {"a": [1.0]})


# -- methods -----------------------------------------------------------------------------------------------------------


def test_embed_rejects_invalid_images(pets_dictionary):
    with pytest.raises(DictionaryError, match="X has 3 dimensions, but the dictionary has 4"):
        pets_dictionary.embed(np.ones((2, 3)))
    with pytest.raises(DictionaryError, match="NaN or infinite values in 1 of 1 rows"):
        pets_dictionary.embed([np.nan, 0.0, 0.0, 0.0])


def test_embed_takes_one_image_or_none(pets_dictionary):
    assert pets_dictionary.embed([1.0, 2.0, 3.0, 4.0]).tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert pets_dictionary.embed(np.empty((0, 4))).shape == (0, 4)


def test_an_unknown_synset_is_rejected(pets_dictionary):
    with pytest.raises(HierarchyError, match="'cats' is not a concept"):
        pets_dictionary.synset_embedding("cats")


@pytest.mark.parametrize("anchor", [-0.1, np.nan, np.inf])
def test_an_invalid_anchor_is_rejected(pets_dictionary, anchor):
    with pytest.raises(DictionaryError, match="anchor must be a finite number of at least 0, got"):
        pets_dictionary.path_problem(anchor)


def test_path_problems_are_built_once(pets_dictionary):
    assert pets_dictionary.path_problem() is pets_dictionary.path_problem(0.0)
    assert pets_dictionary.path_problem(0.5) is pets_dictionary.path_problem(0.5)


def test_embed_applies_the_transform(pets):
    d = ConceptDictionary(pets, np.ones((8, 2)), EmbeddingTransform(scale=3.0))
    assert d.embed([1.0, 2.0]).tolist() == [[3.0, 6.0]]
    assert d.synset_embedding("thing").tolist() == [0.0, 0.0]


def test_batches_of_real_embeddings_give_the_same_dictionary(tiny_imagenet):
    X, y = tiny_imagenet["X"], tiny_imagenet["y"]
    whole = ConceptDictionary.from_images(tiny_imagenet["hierarchy"], X, y)
    batches = ((X[i : i + 3000], y[i : i + 3000]) for i in range(0, len(X), 3000))
    equal(ConceptDictionary.from_images(tiny_imagenet["hierarchy"], batches), whole)
    np.testing.assert_allclose(whole.synset_embedding(y[0]), X[y == y[0]].mean(axis=0, dtype=np.float64), rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"center": True, "shrinkage": 0.5, "rescale": True, "unit_norm": True}])
def test_moments_give_the_same_dictionary_as_their_images(options: dict[str, Any]) -> None:
    h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog")])
    X, y = np.random.default_rng(0).standard_normal((20, 3)), ["cat", "dog"] * 10
    moments = ClassMoments(second_moment=True)
    moments.update(unit_rows(X) if "unit_norm" in options else X, ["cat", "dog"], np.arange(20) % 2)
    summed, direct = (
        ConceptDictionary.from_images(h, moments, **options),
        ConceptDictionary.from_images(h, X, y, **options),
    )
    assert np.array_equal(summed.atoms, direct.atoms)
    assert np.array_equal(summed.embed(X), direct.embed(X))
