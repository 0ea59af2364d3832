"""Edits of small trees, checked by eye, and laws of all of them."""

import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy, HierarchyError
from hcep.taxonomy import Add, Collapse, Cut, Merge, Move, Remove, Rename, apply_edits, diff


def edges(hierarchy):
    return set(hierarchy.edges)


def changes(hierarchy, *edits, classes=None):
    return diff(hierarchy, apply_edits(hierarchy, edits, classes))


def test_move_a_leaf(pets):
    assert changes(pets, Move("fox", "vehicle")) == ["- animal → fox", "+ vehicle → fox"]


def test_move_takes_the_subtree_and_leaves_the_original(pets):
    before = pets.edges
    after = apply_edits(pets, [Move("vehicle", "animal")])
    assert after.paths("car") == (("animal", "vehicle", "car"),)
    assert pets.edges == before


def test_move_away_from_one_of_two_parents(diamond):
    assert changes(diamond, Move("cat", "root", "pet")) == ["- pet → cat", "+ root → cat"]
    assert apply_edits(diamond, [Move("cat", "root", "pet")]).parents("cat") == ("root", "feline")


def test_move_away_from_all_parents(diamond):
    assert apply_edits(diamond, [Move("cat", "pet")]).parents("cat") == ("pet",)
    assert apply_edits(diamond, [Move("cat", "root")]).parents("cat") == ("root",)


def test_a_parent_left_empty_is_dropped(pets):
    after = apply_edits(pets, [Move("car", "animal"), Move("bus", "animal")])
    assert "vehicle" not in after
    assert set(after.leaves) == set(pets.leaves)


def test_a_class_left_empty_stays_as_a_leaf():
    hierarchy = Hierarchy.from_edges([("r", "cat"), ("cat", "siamese"), ("r", "dog")])
    assert apply_edits(hierarchy, [Move("siamese", "dog")], ["cat", "siamese", "dog"]).is_leaf("cat")


def test_add_between_a_parent_and_some_children(pets):
    after = apply_edits(pets, [Add("pet", "animal", ("cat", "dog"), name="house pet")])
    assert after.paths("cat") == (("animal", "pet", "cat"),)
    assert after.children("animal") == ("fox", "pet")
    assert after.name("pet") == "house pet"


def test_add_takes_a_child_from_elsewhere(pets):
    assert apply_edits(pets, [Add("odd", "thing", ("cat", "car"))]).children("odd") == ("cat", "car")


def test_a_synset_just_added_can_be_used(pets):
    after = apply_edits(pets, [Add("pet", "animal"), Move("cat", "pet"), Rename("pet", "Pets")])
    assert (after.parents("cat"), after.name("pet")) == (("pet",), "Pets")


def test_merge_two_inner_synsets(pets):
    after = apply_edits(pets, [Merge("vehicle", "animal")])
    assert after.children("animal") == ("cat", "dog", "fox", "car", "bus")
    assert after.merged("animal") == (("vehicle", "vehicle"),)


def test_merge_a_synset_into_its_child_and_into_its_parent():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "x"), ("b", "y"), ("b", "z"), ("r", "w")])
    assert edges(apply_edits(hierarchy, [Merge("a", "b")])) == {
        ("r", "b"),
        ("b", "x"),
        ("b", "y"),
        ("b", "z"),
        ("r", "w"),
    }
    assert edges(apply_edits(hierarchy, [Merge("b", "a")])) == {
        ("r", "a"),
        ("a", "x"),
        ("a", "y"),
        ("a", "z"),
        ("r", "w"),
    }


def test_remove_hands_the_children_up(diamond):
    assert edges(apply_edits(diamond, [Remove("pet")])) == {
        ("root", "cat"),
        ("root", "hamster"),
        ("root", "feline"),
        ("feline", "cat"),
        ("feline", "lion"),
    }


def test_rename_keeps_the_id(pets):
    assert changes(pets, Rename("cat", "house cat")) == ["~ cat: 'cat' → 'house cat'"]


def test_cut_and_collapse():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("r", "b"), ("r", "e")])
    assert changes(hierarchy, Cut("r", "b")) == ["- r → b"]
    assert changes(hierarchy, Collapse("a")) == ["- r → a", "- a → b", "= a merged into b"]


def test_collapse_the_root():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c")])
    after = apply_edits(hierarchy, [Collapse("r")])
    assert (after.root, after.merged("a")) == ("a", (("r", "r"),))


def test_diff_shows_names_beside_ids():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2"), ("n2", "n3"), ("n2", "n4")], {"n1": "cat"})
    assert changes(hierarchy, Move("cat", "n2")) == ["- r → cat (n1)", "+ n2 → cat (n1)"]


def test_synsets_by_name_in_any_case():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2"), ("n2", "n3")], {"n1": "Cat", "n2": "pets"})
    assert apply_edits(hierarchy, [Move("cat", "Pets")]).parents("n1") == ("n2",)


def test_a_class_may_get_synsets_below_it(pets):
    after = apply_edits(pets, [Move("fox", "dog")])
    assert after.with_classes(["dog"]).leaf_of("dog") == "dog (unspecified)"


def test_the_leaf_of_an_inner_class_goes_along_and_stays_found(pets):
    own = pets.with_classes(["vehicle"])
    after = apply_edits(own, [Move("vehicle", "animal")])
    assert after.leaf_of("vehicle") == "vehicle (unspecified)"
    assert apply_edits(own, [Remove("vehicle")]).leaf_of("vehicle") == "vehicle (unspecified)"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Move("animal", "cat"), "cannot move 'animal' to 'cat': this would create a cycle: 'cat' is below 'animal'"),
        (Move("animal", "animal"), "create a cycle: 'animal' is the same concept"),
        (Move("thing", "cat"), "'thing' is the root; move what is below it instead"),
        (Move("cat", "vehicle", "vehicle"), "'vehicle' is not a parent of 'cat'; its parents are 'animal'"),
        (Move("catt", "vehicle"), "'catt' is neither the id nor the name of a concept. Near matches: 'cat'"),
        (Add("cat", "vehicle"), "there is already a concept 'cat'"),
        (Add(" ", "vehicle"), "the id of the new concept is blank"),
        (Add("new", "vehicle", ("thing",)), "'thing' has 0 parents, and 'vehicle' is not one of them"),
        (Merge("cat", "cat"), "cannot merge 'cat' into itself"),
        (Merge("thing", "cat"), "'thing' is the root and stays"),
        (Merge("cat", "dog"), "class 'cat' would be lost"),
        (Remove("thing"), "'thing' is the root and cannot be removed"),
        (Remove("cat"), "class 'cat' would be lost: images with this label would have no leaf"),
        (Rename("cat", " "), "the new name of 'cat' is blank"),
        (Cut("animal", "cat"), "'animal' is the only parent of 'cat'"),
        (Cut("vehicle", "cat"), "'vehicle' is not a parent of 'cat'"),
        (Collapse("animal"), "'animal' has 3 children; only a concept with a single child can be collapsed"),
    ],
)
def test_edits_that_are_refused(pets, edit, message):
    with pytest.raises(HierarchyError, match=message):
        apply_edits(pets, [edit])


def test_an_ambiguous_name_lists_the_ids():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], {"n1": "crane", "n2": "crane"})
    with pytest.raises(HierarchyError, match="'crane' is the name of 2 concepts; give one of the ids 'n1', 'n2'"):
        apply_edits(hierarchy, [Rename("crane", "bird")])


def test_a_child_with_several_other_parents_must_be_moved(diamond):
    with pytest.raises(HierarchyError, match="'cat' has 2 parents, and 'root' is not one of them; move it with"):
        apply_edits(diamond, [Add("new", "root", ("cat",))])


def test_the_leaf_of_an_inner_class_has_no_children(pets):
    with pytest.raises(HierarchyError, match="is the leaf of the class 'vehicle' and cannot have children"):
        apply_edits(pets.with_classes(["vehicle"]), [Move("cat", "vehicle (unspecified)")])


def test_merging_over_a_synset_between_would_close_a_cycle():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("c", "x"), ("c", "y")])
    with pytest.raises(HierarchyError, match="create a cycle"):
        apply_edits(hierarchy, [Merge("a", "c")])


def test_collapsing_a_root_above_one_leaf():
    with pytest.raises(HierarchyError, match="is the root, with only 'a' below it"):
        apply_edits(Hierarchy.from_edges([("r", "a")]), [Collapse("r")])


def test_leaves_that_are_not_classes_may_be_removed(pets):
    assert "cat" not in apply_edits(pets, [Remove("cat")], classes=["dog", "car"])


def test_nothing_left_below_the_root():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b")])
    with pytest.raises(HierarchyError, match="nothing would be left below the root"):
        apply_edits(hierarchy, [Remove("b")], classes=[])


@st.composite
def dag_and_edits(draw):
    n = draw(st.integers(4, 12))
    pairs = [(draw(st.integers(0, child - 1)), child) for child in range(1, n)]
    pairs += draw(
        st.lists(st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda e: e[0] < e[1]), max_size=5)
    )
    hierarchy = Hierarchy.from_edges([(f"s{a}", f"s{b}") for a, b in pairs])
    one = st.integers(0, n - 1).map("s{}".format)
    kinds = st.one_of(
        st.builds(Move, one, one),
        st.builds(Merge, one, one),
        st.builds(Remove, one),
        st.builds(Cut, one, one),
        st.builds(Collapse, one),
        st.builds(Add, st.just("new"), one, st.lists(one, max_size=2, unique=True).map(tuple)),
    )
    return hierarchy, draw(st.lists(kinds, max_size=4))


def applied(hierarchy, edits):
    """The hierarchy after the edits, or as it was where they are refused."""
    try:
        return apply_edits(hierarchy, edits)
    except HierarchyError:
        return hierarchy


@settings(max_examples=40)
@given(dag_and_edits())
def test_edits_keep_every_class_or_are_refused(problem):
    hierarchy, edits = problem
    state = hierarchy.to_json()
    after = applied(hierarchy, edits)
    assert hierarchy.to_json() == state
    assert set(hierarchy.leaves) <= set(after.ids)
    assert set(after.leaves) <= {*hierarchy.leaves, "new"}
    assert Hierarchy.from_json(after.to_json()) == after


@settings(max_examples=40)
@given(dag_and_edits())
def test_a_diff_is_empty_only_between_equal_graphs(problem):
    hierarchy, edits = problem
    after = applied(hierarchy, edits)
    lines = diff(hierarchy, after)
    assert sum(line[0] == "-" for line in lines) == len(edges(hierarchy) - edges(after))
    assert sum(line[0] == "+" for line in lines) == len(edges(after) - edges(hierarchy))


def test_renaming_the_own_leaf_of_a_class_renames_the_class():
    h = Hierarchy.from_edges([("thing", "dog"), ("dog", "pug"), ("thing", "cat")]).with_classes(["dog"])
    for concept in ("dog (unspecified)", "dog"):
        after = apply_edits(h, [Rename(concept, "hound")])
        assert (after.name("dog"), after.name("dog (unspecified)")) == ("hound", "hound")
    assert apply_edits(after, [Move("hound", "cat")], classes=["dog", "pug"]).parents("dog") == ("cat",)
