from types import SimpleNamespace

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, HierarchyError, hb_omp, support_scores
from hcep.errors import HCEPError
from hcep.evaluate.support import SupportScores


@pytest.mark.parametrize(
    ("support", "precision", "recall"),
    [
        (("animal", "cat"), 1.0, 1.0),
        (("cat", "animal"), 1.0, 1.0),
        (("thing", "animal", "cat"), 1.0, 1.0),
        (("cat", "cat", "animal"), 1.0, 1.0),
        (("animal",), 1.0, 0.5),
        (("animal", "dog"), 0.5, 0.5),
        (("animal", "cat", "dog", "fox"), 0.5, 1.0),
        (("vehicle", "car"), 0.0, 0.0),
        ((), 0.0, 0.0),
        (("thing",), 0.0, 0.0),
    ],
)
def test_one_support_against_the_path_of_a_cat(pets, support, precision, recall):
    scores = support_scores([support], ["cat"], pets)
    assert (scores.precision[0], scores.recall[0]) == (precision, recall)


def test_the_closest_of_two_valid_paths_counts(diamond):
    supports = [("pet", "cat"), ("feline", "cat"), ("feline", "lion"), ("pet", "feline", "cat")]
    scores = support_scores(supports, ["cat"] * 4, diamond)
    np.testing.assert_allclose(scores.precision, [1.0, 1.0, 0.5, 2 / 3])
    np.testing.assert_allclose(scores.recall, [1.0, 1.0, 0.5, 1.0])


def test_the_closest_path_has_the_best_f1():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("c", "x"), ("r", "d"), ("d", "x")])
    scores = support_scores([("a", "b", "x"), ("d", "c")], ["x", "x"], h)
    np.testing.assert_allclose(scores.precision, [1.0, 0.5])  # against a b c x; against d x
    np.testing.assert_allclose(scores.recall, [0.75, 0.5])


def test_means_and_f1(pets):
    scores = support_scores([("animal", "cat"), ("animal",), ("car",)], ["cat", "cat", "cat"], pets)
    assert scores.mean == (pytest.approx(2 / 3), 0.5)
    np.testing.assert_allclose(scores.f1, [1.0, 2 / 3, 0.0])


def test_no_images(pets):
    scores = support_scores([], [], pets)
    assert scores.precision.shape == scores.recall.shape == (0,)


def test_the_label_of_a_class_that_is_an_inner_synset(pets):
    h = pets.with_classes(["animal"])
    scores = support_scores([("animal", "animal (unspecified)"), ("animal",)], ["animal", "animal"], h)
    assert scores.precision.tolist() == [1.0, 1.0]
    assert scores.recall.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "supports",
    [
        [["animal", "cat"], ["vehicle"]],
        {("animal", "cat"): 1, ("vehicle",): 2},
        [np.array(["animal", "cat"]), np.array(["vehicle"])],
        [{"animal", "cat"}, {"vehicle"}],
        SimpleNamespace(paths=[("animal", "cat"), ("vehicle",)]),
        SimpleNamespace(supports=[("animal", "cat"), ("vehicle",)]),
    ],
)
@pytest.mark.parametrize("y", [["cat", "car"], np.array(["cat", "car"]), np.array(["cat", "car"], dtype=object)])
def test_supports_and_labels_of_any_container(pets, supports, y):
    scores = support_scores(supports, y, pets)
    assert scores == SupportScores(pytest.approx([1.0, 1.0]), pytest.approx([1.0, 0.5]))


def test_supports_from_a_generator(pets):
    assert support_scores((path for path in [("animal",)]), ["cat"], pets).mean == (1.0, 0.5)


def test_the_result_of_a_pursuit(pets_dictionary: ConceptDictionary):
    leaves = pets_dictionary.hierarchy.leaves
    result = hb_omp(pets_dictionary.leaf_embeddings, pets_dictionary, beam_width=None, signed=True)
    assert support_scores(result, leaves, pets_dictionary.hierarchy).mean == (1.0, 1.0)


def test_different_numbers_of_labels_and_supports_are_rejected(pets):
    with pytest.raises(HCEPError, match="2 supports but 1 labels"):
        support_scores([("animal",), ("cat",)], ["cat"], pets)


@pytest.mark.parametrize("supports", ["cat", ["cat", "dog"], 3, None])
def test_invalid_supports_are_rejected(pets, supports):
    with pytest.raises(HCEPError, match="paths_or_supports must be a sequence of tuples of synset ids"):
        support_scores(supports, ["cat", "dog"], pets)


@pytest.mark.parametrize("y", ["cat", np.array([["cat"]])])
def test_invalid_labels_are_rejected(pets, y):
    with pytest.raises(HCEPError, match=r"y must hold one label per image; got (str|ndarray) of shape"):
        support_scores([("cat",)], y, pets)


def test_unknown_synsets_and_classes(pets):
    with pytest.raises(HierarchyError, match="'cats' is not a concept"):
        support_scores([("cats",)], ["cat"], pets)
    with pytest.raises(HierarchyError, match="'lion' is not a concept"):
        support_scores([("cat",)], ["lion"], pets)
    with pytest.raises(HierarchyError, match=r"'cat\|lion' is not a concept"):
        support_scores([("cat",)], ["cat|lion"], pets)
