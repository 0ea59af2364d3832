"""Findings on small hierarchies, each with one thing to look at."""

from hcep import Hierarchy
from hcep.hierarchy import lint


def codes(hierarchy, classes=None):
    return [finding.code for finding in lint(hierarchy, classes)]


def test_nothing_to_find(pets):
    assert codes(pets, ["cat", "dog", "fox", "car", "bus"]) == []


def test_several_roots():
    assert codes(Hierarchy.from_edges([("a", "b"), ("a", "c"), ("d", "e"), ("d", "f")])) == ["several-roots"]


def test_chain_names_the_synset_with_one_child():
    found = lint(Hierarchy.from_edges([("r", "a"), ("a", "b"), ("r", "c")]))
    assert [(f.code, f.severity, f.synsets) for f in found] == [("chain", "warning", ("a",))]


def test_several_parents(diamond):
    assert [(f.code, f.synsets) for f in lint(diamond)] == [("several-parents", ("cat",))]


def test_shortcut():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("a", "c"), ("r", "b")])
    assert [f.synsets for f in lint(hierarchy) if f.code == "shortcut"] == [("b",)]


def test_repeated_name():
    hierarchy = Hierarchy.from_edges([("r", "n1"), ("r", "n2")], names={"n1": "Crane", "n2": "crane"})
    assert [(f.code, f.synsets) for f in lint(hierarchy)] == [("repeated-name", ("n1", "n2"))]


def test_uneven_depth():
    edges = [("r", "x"), ("r", "a"), ("a", "b"), ("a", "y"), ("b", "c"), ("b", "z")]
    assert codes(Hierarchy.from_edges(edges)) == ["uneven-depth"]


def test_classes_against_leaves(pets):
    found = lint(pets, ["cat", "dog", "fox", "vehicle", "boat"])
    assert [(f.severity, f.code, f.synsets) for f in found] == [
        ("error", "missing-class", ("boat",)),
        ("note", "inner-class", ("vehicle",)),
        ("note", "extra-leaf", ("car", "bus")),
    ]
