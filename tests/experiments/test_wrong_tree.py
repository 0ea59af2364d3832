import pytest
from hypothesis import given, strategies as st

from experiments.wrong_tree import KINDS, corrupt
from hcep import Hierarchy
from hcep.datasets.hierarchies import cifar10_hierarchy
from hcep.errors import HCEPError
from hcep.hierarchy.imagenet import imagenet_hierarchy

TREE = imagenet_hierarchy().as_tree().restrict(imagenet_hierarchy().leaves[::25]).collapse()


def edges_kept(tree, wrong):
    """Share of the classes whose path is still the same set of synsets."""
    same = [set(tree.paths(leaf)[0]) == set(wrong.paths(leaf)[0]) for leaf in tree.leaves]
    return sum(same) / len(same)


@given(kind=st.sampled_from(sorted(KINDS)), share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_corrupted_tree_has_the_same_classes_and_no_new_synsets(kind, share, seed):
    wrong = corrupt(TREE, kind, share, seed)
    assert set(wrong.leaves) == set(TREE.leaves)
    assert set(wrong.ids) <= set(TREE.ids)
    assert wrong.is_tree


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_changed_at_share_zero(kind):
    assert set(corrupt(TREE, kind, 0.0, seed=0).edges) == set(TREE.edges)


@pytest.mark.parametrize("kind", KINDS)
def test_more_is_wrong_at_a_larger_share(kind):
    kept = [edges_kept(TREE, corrupt(TREE, kind, share, seed=0)) for share in (0.0, 0.2, 1.0)]
    assert kept[0] == 1.0
    assert kept[0] > kept[1] > kept[2]


def test_shuffled_classes_keep_the_shape():
    wrong = corrupt(TREE, "random", 1.0, seed=0)
    assert sorted(len(wrong.children(s)) for s in wrong.ids) == sorted(len(TREE.children(s)) for s in TREE.ids)


def test_the_same_seed_gives_the_same_tree():
    assert corrupt(TREE, "leaves", 0.5, seed=3) == corrupt(TREE, "leaves", 0.5, seed=3)
    assert corrupt(TREE, "leaves", 0.5, seed=3) != corrupt(TREE, "leaves", 0.5, seed=4)


def test_a_moved_leaf_hangs_elsewhere():
    wrong = corrupt(cifar10_hierarchy(), "leaves", 1.0, seed=0)
    assert all(wrong.parents(leaf) != cifar10_hierarchy().parents(leaf) for leaf in wrong.leaves)


def test_an_unknown_kind():
    with pytest.raises(HCEPError, match="kind must be one of 'leaves', 'subtrees', 'random', got 'edges'"):
        corrupt(TREE, "edges", 0.5, seed=0)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range(share):
    with pytest.raises(HCEPError, match="share must be between 0 and 1, got"):
        corrupt(TREE, "leaves", share, seed=0)


def test_a_dag_is_rejected(diamond: Hierarchy):
    with pytest.raises(HCEPError, match="only trees can be corrupted"):
        corrupt(diamond, "leaves", 0.5, seed=0)
