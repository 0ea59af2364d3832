import pytest

from hcep import Hierarchy, HierarchyError


def rooted_paths(hierarchy):
    """Every rooted path as a tuple of ids, in the order of the path tree's nodes."""
    tree = hierarchy.path_tree
    return [tuple(hierarchy.ids[tree.synset[v]] for v in row[row >= 0]) for row in tree.ancestors()]


def diamonds(n):
    """A chain of n diamonds: 2**n rooted paths to its end."""
    sides = [(f"d{i}", f"{side}{i}") for i in range(n) for side in "lr"]
    return Hierarchy.from_edges([*sides, *((f"{side}{i}", f"d{i + 1}") for i in range(n) for side in "lr")])


def test_a_tree_unfolds_into_itself(pets):
    tree = pets.path_tree
    assert tree.synset.tolist() == list(range(8))
    assert tree.edge.tolist() == [-1, 0, 1, 2, 3, 4, 5, 6]
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 1, 2, 2]
    assert tree.level.tolist() == pets.levels.tolist()
    assert tree.first_child.tolist()[:3] == [1, 3, 6]
    assert tree.n_children.tolist() == [2, 3, 2, 0, 0, 0, 0, 0]
    assert (tree.n_nodes, tree.depth) == (8, 2)
    assert tree.leaf_nodes.tolist() == [3, 4, 5, 6, 7]


def test_ancestors_of_a_tree(pets):
    assert pets.path_tree.ancestors().tolist() == [
        [-1, -1],
        [1, -1],
        [2, -1],
        [1, 3],
        [1, 4],
        [1, 5],
        [2, 6],
        [2, 7],
    ]


def test_a_dag_unfolds_into_one_node_a_path(diamond):
    assert rooted_paths(diamond) == [
        (),
        ("pet",),
        ("feline",),
        ("pet", "cat"),
        ("pet", "hamster"),
        ("feline", "cat"),
        ("feline", "lion"),
    ]
    assert diamond.path_tree.edge.tolist() == [-1, 0, 1, 2, 3, 4, 5]


def test_a_synset_at_two_levels():
    h = Hierarchy.from_edges([("r", "a"), ("a", "x"), ("r", "x"), ("x", "y")])
    assert rooted_paths(h) == [(), ("a",), ("x",), ("a", "x"), ("x", "y"), ("a", "x", "y")]
    assert h.path_tree.level.tolist() == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("array", ["synset", "edge", "parent", "level", "first_child", "n_children"])
def test_arrays_are_read_only(pets, array):
    with pytest.raises(ValueError, match="read-only"):
        getattr(pets.path_tree, array)[0] = 1


def test_path_trees_can_be_compared_and_hashed(pets, diamond):
    assert pets.path_tree != diamond.path_tree
    assert len({pets.path_tree, diamond.path_tree}) == 2


def test_ten_diamonds_unfold():
    assert len(diamonds(10).path_tree.leaf_nodes) == 1024


def test_too_many_paths_are_refused_before_they_are_counted_out():
    with pytest.raises(
        HierarchyError, match=r"4\.4e\+12 rooted paths, more than 5,000,000; concept 'd40' alone.*policy="
    ):
        _ = diamonds(40).path_tree


def test_as_tree_avoids_too_many_paths():
    assert diamonds(40).as_tree("shortest").path_tree.depth == 80
