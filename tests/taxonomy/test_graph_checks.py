"""Findings on small hierarchies, each with one thing to look at."""

from hcep import Hierarchy
from hcep.taxonomy import Collapse, Cut, Rename, apply_edits, diff, fix, lint


def codes(hierarchy, classes=None):
    return [finding.code for finding in lint(hierarchy, classes)]


def found(hierarchy, code, classes=None):
    (finding,) = [finding for finding in lint(hierarchy, classes) if finding.code == code]
    return finding


def test_nothing_to_find(pets):
    assert codes(pets, ["cat", "dog", "fox", "car", "bus"]) == []


def test_several_roots():
    assert codes(Hierarchy.from_edges([("a", "b"), ("a", "c"), ("d", "e"), ("d", "f")])) == ["several-roots"]


def test_orphan_hangs_from_the_virtual_root_alone(pets):
    joined = Hierarchy.from_edges([("(root)", "thing"), ("(root)", "stone"), *pets.edges])
    assert found(joined, "orphan").synsets == ("stone",)


def test_chain_names_the_synset_with_one_child_and_the_way_out():
    chain = found(Hierarchy.from_edges([("r", "a"), ("a", "b"), ("r", "c")]), "chain")
    assert (chain.severity, chain.synsets, chain.fixes, chain.safe) == ("warning", ("a",), (Collapse("a"),), False)


def test_a_class_is_not_collapsed():
    hierarchy = Hierarchy.from_edges([("r", "cat"), ("cat", "siamese"), ("r", "dog")])
    assert "chain" not in codes(hierarchy, ["cat", "siamese", "dog"])
    assert "chain" in codes(hierarchy, ["siamese", "dog"])


def test_several_parents(diamond):
    assert [(f.code, f.synsets, f.examples) for f in lint(diamond)] == [
        ("several-parents", ("cat",), ("'cat': 'pet', 'feline'",))
    ]


def test_shortcut_offers_the_edge_to_cut():
    shortcut = found(Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c"), ("r", "b")]), "shortcut")
    assert (shortcut.synsets, shortcut.fixes, shortcut.safe) == (("b",), (Cut("r", "b"),), True)


def test_repeated_name():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], names={"n1": "Crane", "n2": "crane"})
    repeated = found(hierarchy, "repeated-name")
    assert (repeated.synsets, repeated.examples) == (("n1", "n2"), ("Crane: n1, n2",))
    assert not repeated.fixes


def test_same_name_and_near_name():
    hierarchy = Hierarchy.from_edges([("r", "T-shirt"), ("r", "tshirts"), ("r", "submarine"), ("r", "submarime")])
    assert found(hierarchy, "same-name").synsets == ("T-shirt", "tshirts")
    assert found(hierarchy, "near-name").examples == ("'submarine' and 'submarime'",)


def test_untidy_and_blank_names():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], names={"n1": " house  cat ", "n2": " "})
    untidy = found(hierarchy, "untidy-name")
    assert (untidy.synsets, untidy.fixes, untidy.safe) == (("n1",), (Rename("n1", "house cat"),), True)
    assert found(hierarchy, "blank-name").synsets == ("n2",)


def test_uneven_depth_and_a_leaf_at_the_root():
    edges = [("r", "x"), ("r", "a"), ("a", "b"), ("a", "y"), ("b", "c"), ("b", "z")]
    assert codes(Hierarchy.from_edges(edges)) == ["uneven-depth", "leaf-at-root"]


def test_flat():
    assert codes(Hierarchy.from_edges([("r", "x"), ("r", "y")])) == ["flat"]


def test_wide():
    edges = [("r", "a"), ("r", "b"), ("b", "x"), ("b", "y"), *(("a", f"leaf of kind {i}") for i in range(50))]
    assert found(Hierarchy.from_edges(edges), "wide").synsets == ("a",)


def test_classes_against_leaves(pets):
    assert [(f.severity, f.code, f.synsets) for f in lint(pets, ["cat", "dog", "fox", "vehicle", "bux"])] == [
        ("error", "missing-class", ("bux",)),
        ("note", "inner-class", ("vehicle",)),
        ("note", "extra-leaf", ("car", "bus")),
    ]
    assert found(pets, "missing-class", ["bux"]).examples == ("'bux': Near matches: 'bus'.",)


def test_a_class_with_a_leaf_of_its_own_is_not_missing(pets):
    assert codes(pets.with_classes(["vehicle"]), ["cat", "dog", "fox", "vehicle", "car", "bus"]) == []


def test_every_finding_says_what_to_do():
    edges = [
        ("r", "x"),
        ("r", "a"),
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
        ("r", "d"),
        ("d", "Cars"),
        ("d", "car"),
        ("s", "o"),
    ]
    findings = lint(Hierarchy.from_edges([*edges, ("s", "car")]), ["zebra"])
    assert len(findings) > 5
    assert all(";" in finding.message or ":" in finding.message for finding in findings)


def test_fix_leaves_nothing_safe_to_do_and_keeps_the_leaves():
    edges = [("r", "a"), ("a", "b"), ("b", "cat"), ("r", "b"), ("r", "x"), ("x", "dog"), ("r", "cat")]
    hierarchy = Hierarchy.from_edges(edges, names={"dog": "dog "})
    fixed = fix(hierarchy)
    assert set(fixed) == set(hierarchy)
    assert all(set(hierarchy.ancestors(s)) == set(fixed.ancestors(s)) for s in hierarchy)
    assert not any(finding.safe for finding in lint(fixed))
    assert fixed.name("dog") == "dog"
    collapsed = fix(hierarchy, collapse=True)
    assert not any(finding.fixes for finding in lint(collapsed))
    assert set(collapsed.leaves) == {"cat", "dog"}


def test_fix_keeps_a_class_of_the_data_that_is_a_chain():
    hierarchy = Hierarchy.from_edges([("r", "cat"), ("cat", "siamese"), ("r", "dog"), ("r", "owl")])
    assert diff(hierarchy, fix(hierarchy, ["cat", "siamese"], collapse=True)) == []
    assert "cat" not in fix(hierarchy, collapse=True)


def test_fix_equals_collapse_if_there_are_only_chains(wordnet_dag):
    tree = wordnet_dag.as_tree()  # in a DAG a chain that is merged may leave another
    merged, collapsed = apply_edits(tree, found(tree, "chain").fixes), tree.collapse()
    assert set(merged.edges) == set(collapsed.edges)
    assert all(merged.merged(s) == collapsed.merged(s) for s in merged)
