"""Hierarchies from class embeddings: clusters, where they are cut, and what they are called."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from hcep.errors import HCEPError
from hcep.taxonomy.induction import induce_from_embeddings
from hcep.taxonomy.induction.from_geometry import binary_tree, cut, members_name
from tests.conftest import shared_file

#: Two pairs near each other on the left, one class on the right; heights 1, 1, about 4 and about 20 by average linkage.
POINTS = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0], [24, 0]])
NAMES = ["cat", "dog", "car", "bus", "sun"]


def edges(**options):
    found = induce_from_embeddings(POINTS, NAMES, **{"unit_norm": False, "linkage": "average", **options})
    return set(found.hierarchy.edges)


BINARY = {
    ("entity", "sun"),
    ("entity", "cat + dog + 2 more"),
    ("cat + dog + 2 more", "cat + dog"),
    ("cat + dog + 2 more", "car + bus"),
    ("cat + dog", "cat"),
    ("cat + dog", "dog"),
    ("car + bus", "car"),
    ("car + bus", "bus"),
}

PAIRS = {
    ("entity", "sun"),
    ("entity", "cat + dog"),
    ("entity", "car + bus"),
    *(edge for edge in BINARY if edge[1] in NAMES[:4]),
}


@pytest.mark.parametrize("linkage", ["average", "ward"])
def test_the_dendrogram_by_hand(linkage):
    assert edges(gap=0, linkage=linkage) == BINARY


def test_heights_are_those_of_the_merges():
    heights = sorted(group.height for group in binary_tree(POINTS, "average").groups())
    assert heights == pytest.approx([1, 1, 4, 21.5])


def test_a_wider_gap_dissolves_more_groups():
    assert edges(gap=0.7) == BINARY  # the pairs are at 1/4 of the four, those at 4/21.5 of all
    pairs_gone = {
        ("entity", "sun"),
        ("entity", "cat + dog + 2 more"),
        *(("cat + dog + 2 more", name) for name in NAMES[:4]),
    }
    assert edges(gap=0.8) == pairs_gone
    assert edges(gap=0.9) == PAIRS  # the four are gone first, and the pairs are far below the root
    assert edges(gap=0.96) == {("entity", name) for name in NAMES}


def test_branching_is_bounded_where_groups_dissolve():
    assert edges(gap=1, max_branching=3) == PAIRS
    assert edges(gap=1, max_branching=2) == BINARY


@settings(max_examples=30, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(2, 12), st.just(3)), elements=st.floats(-5, 5, width=16)),
    st.floats(0, 1),
    st.sampled_from(["ward", "average"]),
)
def test_laws_of_the_cut(vectors, gap, linkage):
    tree = cut(binary_tree(vectors, linkage), gap)
    assert tree.members == tuple(range(len(vectors)))
    for group in tree.groups():
        assert len(group.children) >= 2
        assert sorted(i for part in group.children for i in part.members) == list(group.members)
        assert all(part.height <= (1 - gap) * group.height for part in group.children)


def test_hundreds_of_classes_that_merge_one_by_one():
    line = 2.2 ** np.arange(380.0)[:, None]  # each class is farther off than all before it
    names = [f"class {i}" for i in range(380)]
    chain = induce_from_embeddings(line, names, unit_norm=False, gap=0, linkage="average").hierarchy
    assert chain.depth == 379


def test_with_unit_norm_angles_decide():
    long_and_short = [[10, 0.1], [1, 0], [0, 12], [0.1, 1]]
    found = induce_from_embeddings(long_and_short, ["a", "b", "c", "d"])
    assert found.hierarchy.children("a + b") == ("a", "b")
    by_length = induce_from_embeddings(long_and_short, ["a", "b", "c", "d"], unit_norm=False)
    assert by_length.hierarchy.children("b + d") == ("b", "d")


def test_scaling_and_rotation_change_nothing():
    rng = np.random.default_rng(3)
    vectors, names = rng.normal(size=(12, 5)), [f"x{i}" for i in range(12)]
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    wanted = induce_from_embeddings(vectors, names).hierarchy
    assert induce_from_embeddings(7 * vectors @ rotation, names).hierarchy == wanted


# -- names -----------------------------------------------------------------------------------------------------------


def test_names_after_members():
    assert members_name(["cat", "dog"], set()) == "cat + dog"
    assert members_name(["cat", "dog", "fox", "elk", "cow"], set()) == "cat + dog + 3 more"
    assert members_name(["cat", "dog", "fox"], {"cat + dog + 1 more"}) == "cat + dog + fox"
    assert members_name(["cat", "dog"], {"cat + dog"}) == "cat + dog (2)"
    assert members_name(["cat", "dog"], {"cat + dog", "cat + dog (2)"}) == "cat + dog (3)"


def test_names_from_a_vocabulary_in_the_same_space():
    points = np.array([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    phrases = ["vehicle", "cat", "animal", "entity"]
    # A common offset, as between the images and the texts of one encoder, must not matter.
    vectors = np.array([[-1.0, 0.0], [1.0, 0.0], [0.9, 0.1], [1.0, 0.0]]) + np.array([30.0, 50.0])
    found = induce_from_embeddings(points, ["cat", "dog", "car", "bus"], names_from=(phrases, vectors))
    assert found.hierarchy.children("animal") == ("cat", "dog")
    assert found.hierarchy.children("vehicle") == ("car", "bus")


def test_a_vocabulary_that_runs_out_leaves_members_names():
    found = induce_from_embeddings(POINTS, NAMES, unit_norm=False, gap=0, names_from=(["pet", "Pets"], np.eye(2)))
    named = [synset for synset in found.hierarchy if synset.casefold().startswith("pet")]
    assert len(named) == 1
    assert len(found.hierarchy) == 9


# -- real embeddings -------------------------------------------------------------------------------------------------


def test_cifar10_parts_animals_from_vehicles():
    with np.load(shared_file("data/cifar10_500_clip_vitb32.npz"), allow_pickle=False) as data:
        X, labels, names = data["embeddings"], data["labels"], [str(name) for name in data["class_names"]]
    means = np.stack([X[labels == i].mean(axis=0) for i in range(10)])
    found = induce_from_embeddings(means, names).hierarchy
    halves = {frozenset(leaf for leaf in found.descendants(top) if leaf in names) for top in found.children("entity")}
    vehicles = frozenset({"airplane", "automobile", "ship", "truck"})
    assert halves == {vehicles, frozenset(names) - vehicles}
    assert found.parents("cat") == found.parents("dog")
    assert found.parents("automobile") == found.parents("truck")


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"linkage": "single"}, "linkage must be 'ward' or 'average'"),
        ({"gap": 1.5}, "gap must be a number from 0 to 1"),
        ({"gap": float("nan")}, "gap must be a number from 0 to 1"),
        ({"max_branching": 1}, "max_branching must be None or"),
        ({"class_embeddings": POINTS[:4]}, r"one row per class, \(5, n_dims\); got shape \(4, 2\)"),
        ({"class_embeddings": POINTS * np.nan}, "must be finite; row 0 is not"),
        ({"class_embeddings": POINTS}, "must not be zero, as row 0 is"),
        ({"class_names": ["cat"] * 5}, "repeated names: 'cat'"),
        ({"unit_norm": False, "names_from": (["x"], np.ones((1, 3)))}, r"names_from must be .*shape \(1, 3\) \(--voc"),
    ],
)
def test_arguments_that_do_not_fit(arguments, match):
    defaults = {"class_embeddings": POINTS + 1, "class_names": NAMES}
    with pytest.raises(HCEPError, match=match):
        induce_from_embeddings(**{**defaults, **arguments})
