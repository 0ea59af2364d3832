import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy, HierarchyError, tree_distances
from hcep.errors import HCEPError
from hcep.evaluate import score_images
from hcep.evaluate.support import lca_heights
from tests.reference.random_problems import random_hierarchy


def test_accuracy(pets):
    def accuracy(y_true, y_pred):
        return score_images([()] * len(y_true), y_true, pets, predicted=y_pred).summary()["correct"]

    assert accuracy(["cat", "dog", "cat", "fox"], ["cat", "cat", "cat", "fox"]) == 0.75
    assert accuracy(np.array(["cat"]), np.array(["cat"], dtype=object)) == 1.0
    assert np.isnan(accuracy([], []))


def test_distances_by_hand(pets):
    predicted = ["cat", "dog", "animal", "car", "vehicle", "thing"]
    assert tree_distances(["cat"] * 6, predicted, pets).tolist() == [0, 2, 1, 4, 3, 2]


def test_distances_are_symmetric(pets):
    a, b = np.repeat(pets.ids, len(pets)), np.tile(pets.ids, len(pets))
    np.testing.assert_array_equal(tree_distances(a, b, pets), tree_distances(b, a, pets))


def test_distances_in_a_dag_go_by_the_lowest_common_ancestor(diamond):
    assert tree_distances(["cat", "cat", "hamster"], ["lion", "hamster", "lion"], diamond).tolist() == [2, 2, 4]


def test_each_leg_is_the_shortest_way():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "x"), ("r", "x"), ("r", "y")])
    assert tree_distances(["x"], ["y"], h).tolist() == [2]


def test_many_paths_up_take_little_time():
    sides = [(f"d{i}", f"{side}{i}") for i in range(40) for side in "lr"]
    joins = [(f"{side}{i}", f"d{i + 1}") for i in range(40) for side in "lr"]
    h = Hierarchy.from_edges([*sides, *joins, ("d0", "y")])
    start = time.process_time()
    assert tree_distances(["d40"], ["y"], h).tolist() == [81]
    assert time.process_time() - start < 1.0


def test_heights_by_hand(pets):
    assert lca_heights(["cat"] * 4, ["cat", "dog", "animal", "car"], pets).tolist() == [0, 1, 1, 2]


def test_height_is_the_longest_way_down():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "x"), ("a", "y"), ("r", "z")])
    assert lca_heights(["y", "y", "x"], ["x", "z", "b"], h).tolist() == [2, 3, 1]


def test_classes_that_are_inner_synsets(pets):
    h = pets.with_classes(["animal"])
    assert tree_distances(["animal", "animal"], ["animal (unspecified)", "cat"], h).tolist() == [0, 2]
    assert lca_heights(["animal"], ["cat"], h).tolist() == [1]


def test_a_class_merged_into_its_own_leaf():
    h = Hierarchy.from_edges([("animal", "cat"), ("cat", "siamese"), ("animal", "dog")]).with_classes(["cat"])
    assert tree_distances(["cat"], ["dog"], h.restrict(["cat", "dog"]).collapse()).tolist() == [2]


def test_no_images(pets):
    assert tree_distances([], [], pets).shape == lca_heights([], [], pets).shape == (0,)


@pytest.mark.parametrize("measure", [tree_distances, lca_heights])
def test_invalid_labels_are_rejected(pets, measure):
    with pytest.raises(HCEPError, match="y_true has 2 labels and y_pred has 1; pass the same number"):
        measure(["cat", "dog"], ["cat"], pets)
    with pytest.raises(HCEPError, match="y_true must hold one label per image; got str of shape"):
        measure("cat", ["cat"], pets)
    with pytest.raises(HCEPError, match="y_pred must hold one label per image; got list of shape"):
        measure(["cat"], [["cat"]], pets)


@pytest.mark.parametrize("measure", [tree_distances, lca_heights])
def test_an_unknown_label(pets, measure):
    with pytest.raises(HierarchyError, match=r"'dgo' is not a concept of this hierarchy. Near matches: 'dog'"):
        measure(["cat"], ["dgo"], pets)


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(deadline=None, max_examples=25)
def test_mistakes_are_measured_from_the_lowest_common_ancestor(seed, several_parents):
    h = random_hierarchy(np.random.default_rng(seed), several_parents)
    a, b = np.repeat(h.ids, len(h)), np.tile(h.ids, len(h))
    common = [h.lca(x, y) for x, y in zip(a, b, strict=True)]
    expected = [steps_down(h, c, x) + steps_down(h, c, y) for x, y, c in zip(a, b, common, strict=True)]
    assert tree_distances(a, b, h).tolist() == expected
    assert lca_heights(a, b, h).tolist() == [longest_down(h, c) for c in common]


def steps_down(h, above, below):
    """Fewest edges from one synset down to another."""
    level, n_steps = {above}, 0
    while below not in level:
        level, n_steps = {child for synset in level for child in h.children(synset)}, n_steps + 1
    return n_steps


def longest_down(h, synset):
    return max((1 + longest_down(h, child) for child in h.children(synset)), default=0)
