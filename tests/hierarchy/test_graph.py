import copy
import pickle
import time
from itertools import pairwise

import numpy as np
import pytest

from hcep import Hierarchy, HierarchyError

IMAGENETTE = [
    *("n01440764", "n02102040", "n02979186", "n03000684", "n03028079"),
    *("n03394916", "n03417042", "n03425413", "n03445777", "n03888257"),
]


@pytest.fixture
def cats():
    """Animal -> cat -> (siamese, cat (unspecified)); animal -> dog: cat is a class and an ancestor of one."""
    return Hierarchy.from_edges([("animal", "cat"), ("cat", "siamese"), ("animal", "dog")]).with_classes(["cat"])


@pytest.fixture(scope="module")
def chain():
    """A thousand levels with one child each."""
    return Hierarchy.from_edges((f"s{i}", f"s{i + 1}") for i in range(1_000))


# -- the graph ---------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_tree(pets):
    assert pets.root == "thing"
    assert pets.ids == ("thing", "animal", "vehicle", "cat", "dog", "fox", "car", "bus")
    assert pets.leaves == ("cat", "dog", "fox", "car", "bus")
    assert pets.levels.tolist() == [0, 1, 1, 2, 2, 2, 2, 2]
    assert (pets.depth, pets.max_branching, pets.n_edges, pets.is_tree) == (2, 3, 7, True)
    assert pets.children("animal") == ("cat", "dog", "fox")
    assert pets.parents("bus") == ("vehicle",)
    assert pets.parents("thing") == ()
    assert pets.ancestors("dog") == ("thing", "animal")
    assert pets.descendants("vehicle") == ("car", "bus")
    assert (pets.level("thing"), pets.level("fox")) == (0, 2)
    assert (pets.is_leaf("fox"), pets.is_leaf("animal")) == (True, False)


def test_edges_are_ordered_by_parent_then_child(diamond):
    assert diamond.ids == ("root", "pet", "feline", "cat", "hamster", "lion")
    assert diamond.edges == (
        ("root", "pet"),
        ("root", "feline"),
        ("pet", "cat"),
        ("pet", "hamster"),
        ("feline", "cat"),
        ("feline", "lion"),
    )


def test_the_compressed_rows(diamond):
    assert diamond.child_pointer.tolist() == [0, 2, 4, 6, 6, 6, 6]
    assert diamond.child_index.tolist() == [1, 2, 3, 4, 3, 5]
    assert diamond.parent_pointer.tolist() == [0, 0, 1, 2, 4, 5, 6]
    assert diamond.parent_index.tolist() == [0, 0, 1, 2, 1, 2]


def test_a_synset_with_two_parents(diamond):
    assert diamond.parents("cat") == ("pet", "feline")
    assert diamond.ancestors("cat") == ("root", "pet", "feline")
    assert diamond.paths("cat") == (("pet", "cat"), ("feline", "cat"))
    assert not diamond.is_tree


def test_paths_of_inner_synsets_and_of_the_root(diamond):
    assert diamond.paths("feline") == (("feline",),)
    assert diamond.paths("root") == ((),)


def test_paths_of_different_length():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("r", "b"), ("b", "x"), ("a", "x"), ("x", "y")])
    assert h.paths("y") == (("a", "b", "x", "y"), ("b", "x", "y"), ("a", "x", "y"))
    assert h.level("y") == 4


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("cat", "dog", "animal"),
        ("cat", "car", "thing"),
        ("cat", "cat", "cat"),
        ("cat", "animal", "animal"),
        ("thing", "cat", "thing"),
    ],
)
def test_lowest_common_ancestor(pets, a, b, common):
    assert pets.lca(a, b) == pets.lca(b, a) == common


def test_lowest_common_ancestor_in_a_dag(diamond):
    assert diamond.lca("cat", "lion") == "feline"
    assert diamond.lca("cat", "hamster") == "pet"
    assert diamond.lca("hamster", "lion") == "root"


def test_of_two_lowest_common_ancestors_the_lower_index_is_returned():
    h = Hierarchy.from_edges([("r", "b"), ("r", "a"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")])
    assert h.lca("x", "y") == "b"


@pytest.mark.parametrize("call", ["index", "children", "parents", "ancestors", "descendants", "level", "paths", "name"])
def test_an_unknown_synset_is_answered_with_near_matches(pets, call):
    with pytest.raises(HierarchyError, match=r"'cats' is not a concept of this hierarchy. Near matches: 'cat'"):
        getattr(pets, call)("cats")


@pytest.mark.parametrize("unknown", [3, None, ["cat"], np.str_("qqq")])
def test_an_unknown_synset_of_another_kind(pets, unknown):
    with pytest.raises(HierarchyError, match=r"^(3|None|\['cat'\]|'qqq') is not a concept"):
        pets.index(unknown)


# -- classes that are inner synsets ------------------------------------------------------------------------------------


def test_a_class_above_another_class_gets_a_leaf_of_its_own(cats):
    assert cats.children("cat") == ("siamese", "cat (unspecified)")
    assert cats.name("cat (unspecified)") == "cat"
    assert cats.leaf_of("cat") == "cat (unspecified)"
    assert cats.leaf_of("dog") == "dog"
    assert cats.class_of("cat (unspecified)") == "cat"
    assert cats.class_of("dog") == "dog"
    assert dict(cats.own_leaves) == {"cat": "cat (unspecified)"}


def test_with_classes_returns_the_same_hierarchy_if_nothing_changes(cats):
    assert cats.with_classes(["cat", "dog"]) is cats


def test_the_own_leaf_takes_a_free_id():
    h = Hierarchy.from_edges([("r", "cat"), ("cat", "cat (unspecified)")]).with_classes(["cat"])
    assert h.leaf_of("cat") == "cat (unspecified)'"


def test_the_own_leaf_is_named_after_its_class():
    h = Hierarchy.from_edges([("r", "n1"), ("n1", "n2")], {"n1": "cat"}).with_classes(["n1"])
    assert h.name(h.leaf_of("n1")) == "cat"
    assert h.find("Cats") == h.find("n1") == "n1"


def test_the_own_leaf_has_the_name_of_a_class_that_was_merged_into_it():
    h = Hierarchy.from_edges([("r", "n0"), ("n0", "n1"), ("n1", "n2"), ("r", "n3")], {"n1": "cat"}).with_classes(["n1"])
    alone = h.restrict(["n1 (unspecified)", "n3"]).collapse()
    assert alone.leaves == ("n3", "n1 (unspecified)")
    assert alone.merged("n1 (unspecified)") == (("n0", "n0"), ("n1", "cat"))
    assert (alone.name("n1 (unspecified)"), alone.class_of("n1 (unspecified)")) == ("cat", "n1")
    assert alone.find("cat") == "n1 (unspecified)"
    assert "itself" not in alone.format_tree()


def test_an_inner_synset_is_not_a_class_by_itself(pets):
    with pytest.raises(HierarchyError, match=r"class 'animal' is an inner.*use hierarchy.with_classes\(\['animal'\]\)"):
        pets.leaf_of("animal")


def test_own_leaves_cannot_be_changed(cats):
    with pytest.raises(TypeError, match="does not support item assignment"):
        cats.own_leaves["dog"] = "cat"


def test_class_of_an_unknown_leaf(pets):
    with pytest.raises(HierarchyError, match="'lion' is not a concept"):
        pets.class_of("lion")


# -- restrict ----------------------------------------------------------------------------------------------------------


def test_restrict_keeps_what_is_above(pets):
    h = pets.restrict(["bus", "cat"])
    assert h.ids == ("thing", "animal", "vehicle", "cat", "bus")
    assert h.leaves == ("cat", "bus")


@pytest.mark.parametrize(
    "leaves", [("cat", "bus"), {"cat": 1, "bus": 2}, iter(["cat", "bus", "cat"]), np.array(["cat", "bus"])]
)
def test_restrict_takes_any_iterable(pets, leaves):
    assert pets.restrict(leaves) == pets.restrict(["cat", "bus"])


def test_restrict_keeps_every_parent(diamond):
    assert diamond.restrict(["cat"]).parents("cat") == ("pet", "feline")


def test_restrict_to_an_inner_synset_makes_it_a_leaf(pets):
    assert pets.restrict(["animal", "car"]).leaves == ("animal", "car")


def test_restrict_to_a_class_and_one_below_it(pets):
    h = pets.restrict(["animal", "cat"])
    assert h.leaves == ("cat", "animal (unspecified)")
    assert h.leaf_of("animal") == "animal (unspecified)"


def test_restrict_keeps_the_own_leaf_of_a_class(cats):
    h = cats.restrict(["cat", "dog"])
    assert h.leaves == ("dog", "cat (unspecified)")
    assert h.class_of("cat (unspecified)") == "cat"
    assert cats.restrict(["cat (unspecified)", "dog"]) == h


def test_restrict_drops_the_own_leaf_of_a_removed_class(cats):
    h = cats.restrict(["siamese", "dog"])
    assert dict(h.own_leaves) == {}


def test_restrict_to_unknown_classes(pets):
    with pytest.raises(HierarchyError, match=r"2 of 3 leaves are not concepts.*: 'cot', 'zebra'. Near matches: 'cat'"):
        pets.restrict(np.array(["cot", "cat", "zebra"]))


@pytest.mark.parametrize("leaves", [[], ["thing"]])
def test_restrict_to_nothing(pets, leaves):
    with pytest.raises(HierarchyError, match="at least one concept below the root"):
        pets.restrict(leaves)


# -- collapse ----------------------------------------------------------------------------------------------------------


def test_collapse_merges_chains_into_their_lowest_synset():
    edges = [("r", "a"), ("a", "b"), ("b", "c"), ("r", "d"), ("d", "x"), ("d", "y")]
    h = Hierarchy.from_edges(edges, {"a": "alpha"}).collapse()
    assert h.edges == (("r", "d"), ("r", "c"), ("d", "x"), ("d", "y"))
    assert h.merged("c") == (("a", "alpha"), ("b", "b"))
    assert h.merged("d") == ()
    assert h.name("c") == "c"


def test_a_root_with_one_inner_child_is_replaced():
    h = Hierarchy.from_edges([("r", "s"), ("s", "t"), ("t", "x"), ("t", "y")]).collapse()
    assert h.root == "t"
    assert h.merged("t") == (("r", "r"), ("s", "s"))


def test_a_chain_down_to_one_leaf_keeps_its_root():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b")]).collapse()
    assert h.edges == (("r", "b"),)


def test_collapse_of_a_dag_keeps_the_order_of_parents():
    edges = [("r", "a"), ("r", "b"), ("a", "m"), ("m", "x"), ("b", "x"), ("a", "y"), ("b", "z")]
    h = Hierarchy.from_edges(edges).collapse()
    assert h.parents("x") == ("a", "b")
    assert h.merged("x") == (("m", "m"),)


def test_a_collapse_that_makes_another_chain():
    h = Hierarchy.from_edges([("r", "a"), ("a", "m"), ("m", "x"), ("a", "x"), ("r", "y")]).collapse()
    assert h.edges == (("r", "y"), ("r", "x"))
    assert h.merged("x") == (("a", "a"), ("m", "m"))


def test_collapsing_twice_keeps_all_merged_names():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "x"), ("b", "y"), ("r", "z")]).collapse()
    again = h.restrict(["x", "z"]).collapse()
    assert again.merged("x") == (("a", "a"), ("b", "b"))
    assert again.collapse() == again


def test_a_class_whose_synset_was_merged_into_its_own_leaf_is_still_known(cats):
    h = cats.restrict(["cat", "dog"]).collapse()
    assert h.edges == (("animal", "dog"), ("animal", "cat (unspecified)"))
    assert h.leaf_of("cat") == "cat (unspecified)"
    assert h.restrict(["cat", "dog"]) == h
    assert h.as_tree() == h


def test_restrict_to_a_root_that_is_a_class():
    h = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c")]).restrict(["a", "b", "c"]).collapse()
    assert h.root == "a"
    assert h.restrict(["a"]).leaves == ("a (unspecified)",)


# -- as_tree -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def long_and_short():
    """X hangs from long2 (first, three steps) and from short (two steps)."""
    edges = [("r", "short"), ("r", "long"), ("long", "long2"), ("long2", "x"), ("short", "x"), ("short", "y")]
    return Hierarchy.from_edges([*edges, ("long", "z")])


@pytest.mark.parametrize(("policy", "parent"), [("first", "long2"), ("shortest", "short"), ("longest", "long2")])
def test_policies_of_a_tree(long_and_short, policy, parent):
    tree = long_and_short.as_tree(policy)
    assert tree.is_tree
    assert tree.parents("x") == (parent,)


def test_an_inner_synset_that_loses_its_children_goes(long_and_short):
    assert "long2" not in long_and_short.as_tree("shortest")
    assert long_and_short.as_tree("shortest").leaves == ("y", "z", "x")


def test_ties_go_to_the_parent_given_first(diamond):
    assert {diamond.as_tree(policy).parents("cat") for policy in ("first", "shortest", "longest")} == {("pet",)}


def test_an_unknown_policy(diamond):
    with pytest.raises(HierarchyError, match="policy must be 'first', 'shortest' or 'longest', got 'best'"):
        diamond.as_tree("best")


# -- the object --------------------------------------------------------------------------------------------------------


def test_repr(pets):
    assert repr(pets) == "Hierarchy(8 synsets, 5 leaves, 7 edges, depth 2, branching at most 3, root 'thing')"


def test_it_is_a_collection_of_ids(pets):
    assert len(pets) == 8
    assert list(pets) == list(pets.ids)
    assert "cat" in pets
    assert "lion" not in pets


def test_nothing_can_be_set_or_deleted(pets):
    with pytest.raises(AttributeError, match="immutable; 'ids' cannot be set"):
        pets.ids = ()
    with pytest.raises(AttributeError, match="'anything' cannot be set"):
        pets.anything = 1
    with pytest.raises(AttributeError, match="'ids' cannot be deleted"):
        del pets.ids


@pytest.mark.parametrize("array", ["levels", "child_pointer", "child_index", "parent_pointer", "parent_index"])
def test_arrays_are_read_only(pets, array):
    with pytest.raises(ValueError, match="read-only"):
        getattr(pets, array)[0] = 1


def test_copies_and_pickles_are_equal(cats):
    collapsed = cats.restrict(["cat", "dog"]).collapse()
    assert copy.copy(cats) is cats
    assert copy.deepcopy(cats) is cats
    assert pickle.loads(pickle.dumps(collapsed)) == collapsed
    assert hash(pickle.loads(pickle.dumps(collapsed))) == hash(collapsed)


def test_equality_looks_at_edges_names_and_classes(pets, cats):
    edges = [("r", "a"), ("r", "b")]
    plain = Hierarchy.from_edges(edges)
    assert plain == Hierarchy.from_edges(edges)
    assert len({plain, Hierarchy.from_edges(edges)}) == 1
    assert plain != Hierarchy.from_edges(edges, {"a": "cat"})
    assert plain != Hierarchy.from_edges(edges[::-1])
    assert plain != pets
    assert plain != "r"


def test_the_path_tree_and_the_edges_are_made_once(pets):
    assert pets.path_tree is pets.path_tree
    assert pets.edges is pets.edges


# -- size --------------------------------------------------------------------------------------------------------------


def test_a_thousand_levels(chain):
    assert chain.depth == 1_000
    assert len(chain.paths("s1000")[0]) == 1_000
    assert chain.path_tree.n_nodes == 1_001
    assert chain.lca("s500", "s900") == "s500"
    assert chain.restrict(["s10"]).depth == 10
    assert chain.as_tree() == chain
    assert Hierarchy.from_json(chain.to_json()) == chain
    assert pickle.loads(pickle.dumps(chain)) == chain


def test_a_thousand_levels_collapse_at_once(chain):
    start = time.process_time()
    h = chain.collapse()
    assert time.process_time() - start < 1.0
    assert h.edges == (("s0", "s1000"),)
    assert len(h.merged("s1000")) == 999


def test_many_short_chains_collapse_at_once():
    stems = [("r", f"a{i}") for i in range(8_000)]
    h = Hierarchy.from_edges(stems + [(f"a{i}", f"b{i}") for i in range(8_000)])
    start = time.process_time()
    assert h.collapse().depth == 1
    assert time.process_time() - start < 4.0  # .13 on an idle core; garbage collection may take longer


def test_class_of_many_own_leaves_at_once():
    n = 5_000
    inner = [f"c{i}" for i in range(n)]
    h = Hierarchy.from_edges([*(("r", c) for c in inner), *((c, f"{c}x") for c in inner)]).with_classes(inner)
    start = time.process_time()
    assert [h.class_of(h.leaf_of(c)) for c in inner] == inner
    assert time.process_time() - start < 2.0


# -- the published counts ----------------------------------------------------------------------------------------------


def test_the_dag_above_imagenet(wordnet_dag):
    n_parents = np.diff(wordnet_dag.parent_pointer)
    n_paths = [len(wordnet_dag.paths(leaf)) for leaf in wordnet_dag.leaves]
    assert (len(wordnet_dag), wordnet_dag.n_edges, len(wordnet_dag.leaves)) == (1_860, 1_937, 1_000)
    assert np.count_nonzero(n_parents > 1) == 75
    assert (sum(n_paths), max(n_paths)) == (1_343, 5)
    assert len(wordnet_dag.path_tree.leaf_nodes) == 1_343


@pytest.mark.parametrize(
    ("policy", "n_synsets", "depth", "branching"),
    [("first", 1_372, 16, 26), ("shortest", 1_371, 13, 26), ("longest", 1_375, 16, 25)],
)
def test_trees_above_imagenet(wordnet_dag, policy, n_synsets, depth, branching):
    tree = wordnet_dag.as_tree(policy).collapse()
    assert (len(tree), tree.depth, tree.max_branching) == (n_synsets, depth, branching)
    assert set(tree.leaves) == set(wordnet_dag.leaves)


@pytest.mark.parametrize("policy", ["first", "shortest", "longest"])
def test_imagenette_has_the_depth_of_the_paper(wordnet_dag, policy):
    assert wordnet_dag.as_tree(policy).restrict(IMAGENETTE).collapse().depth == 4


def test_imagenette_as_a_dag(wordnet_dag):
    h = wordnet_dag.restrict(IMAGENETTE).collapse()
    assert sorted(h.leaves) == IMAGENETTE
    assert h.depth == 4


def test_a_thousand_leaves_restrict_at_once(wordnet_dag):
    start = time.process_time()
    h = wordnet_dag.restrict(wordnet_dag.leaves)
    assert time.process_time() - start < 0.5
    assert h == wordnet_dag


def test_parents_come_before_children_in_the_dag_above_imagenet(wordnet_dag):
    assert all(wordnet_dag.index(a) < wordnet_dag.index(b) for a, b in wordnet_dag.edges)
    assert all(a <= b for a, b in pairwise(wordnet_dag.levels.tolist()))
