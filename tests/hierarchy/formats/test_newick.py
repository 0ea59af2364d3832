"""Newick trees."""

import pytest

from hcep import Hierarchy, HierarchyError
from hcep.hierarchy import read_hierarchy, write_hierarchy
from tests.hierarchy.formats.reading import read_with_notes


@pytest.fixture
def read(tmp_path):
    def through_a_file(text, **options):
        (tmp_path / "h.nwk").write_text(text, encoding="utf-8")
        return read_with_notes(tmp_path / "h.nwk", **options)

    return through_a_file


def test_labels_quotes_comments_and_lengths(read):
    h, notes = read("((cat:0.1,'it''s, a (dog)'[&x=[1]]:2e-3)\n'land animal':1 , fish)animal:0;")
    assert h.edges == (
        ("animal", "land animal"),
        ("animal", "fish"),
        ("land animal", "cat"),
        ("land animal", "it's, a (dog)"),
    )
    assert notes == ("skipped: 4 branch lengths",)


def test_inner_nodes_without_labels(read):
    h, notes = read("((a,'inner 1'),(c,d)95);")
    assert h.edges == (
        ("inner 2", "inner 3"),
        ("inner 2", "inner 4"),
        ("inner 3", "a"),
        ("inner 3", "inner 1"),
        *(("inner 4", leaf) for leaf in "cd"),
    )
    assert notes[0] == "skipped: 1 support value of inner nodes"
    assert notes[1] == "named 'inner 1' and so on: 3 inner nodes without a label"


def test_numbers_in_quotes_are_labels(tmp_path):
    h = Hierarchy.from_edges([("0", "1"), ("0", "2"), ("1", "-3.5e2"), ("1", "4")])
    write_hierarchy(h, tmp_path / "h.newick")
    assert (tmp_path / "h.newick").read_text() == "(('-3.5e2','4')'1','2')'0';\n"
    assert read_hierarchy(tmp_path / "h.newick") == h


def test_repeated_labels(read):
    with pytest.raises(HierarchyError, match=r"h\.nwk, line 2: 'a' appears below 'y' and below 'x' \(line 1\)"):
        read("((a,b)x,\n(a,c)y)r;")
    assert read("((a,b)x,(a,c)y)r;", repeated="merge")[0].parents("a") == ("x", "y")


def test_a_deep_tree(tmp_path):
    deep = Hierarchy.from_edges([(f"s{i}", f"s{i + 1}") for i in range(1_000)])
    write_hierarchy(deep, tmp_path / "h.nwk")
    assert read_hierarchy(tmp_path / "h.nwk") == deep


def test_dropped_synsets_are_reported(tmp_path):
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("a", "y"), ("b", "x")])
    assert write_hierarchy(h, tmp_path / "h.nwk", lossy=True) == (
        "newick keeps one parent per concept: 1 concept loses the others and 1 inner concept left without children is "
        "dropped",
    )
    assert (tmp_path / "h.nwk").read_text() == "((x,y)a)r;\n"


def test_blanks_without_quotes_support_values_and_comments_with_apostrophes(read):
    h, notes = read("[Darwin's [first] tree]((house cat:1,lion)'big cats'[it's 99],(wolf,red fox)98/0.97)root node;")
    assert h.children("root node") == ("big cats", "inner 1")
    assert h.children("inner 1") == ("wolf", "red fox")
    assert {"joined: 3 labels with spaces and without quotes", "skipped: 1 support value of inner nodes"} <= set(notes)


@pytest.mark.parametrize("ending", ["tre", "tree", "new", "nwk", "nex", "treefile"])
def test_common_endings(ending, tmp_path):
    (tmp_path / f"h.{ending}").write_text("((cat,lion)felidae,dog)carnivora;")
    assert read_hierarchy(tmp_path / f"h.{ending}").leaves == ("dog", "cat", "lion")


NEXUS = """#NEXUS
[!a file of many blocks; 'with' its own]
begin taxa;
  dimensions ntax=3;
  taxlabels Felis_catus 'Canis lupus' Mus_musculus;
end;
Begin trees;
  Translate
    1 Felis_catus,
    2 'Canis lupus',
    3 Mus_musculus
    ;
  tree best = [&R] ((1:0.1,2:0.2)[&posterior=1.0]Carnivora:1,3);
  tree 'the other' = [&U] ((2,1)Carnivora,3);
end;
"""


def test_nexus_with_a_translation_and_two_equal_trees(read):
    h, notes = read(NEXUS)
    assert h.children("Carnivora") == ("Felis_catus", "Canis lupus")
    assert "skipped: 1 tree with the same branches as the first" in notes


def test_several_trees_are_chosen_by_name_or_number(read):
    different = NEXUS.replace("((2,1)Carnivora,3)", "((2,3)Carnivora,1)")
    with pytest.raises(HierarchyError, match=r"has 2 trees that differ .*lines 13, 14\): 'best', 'the other'; choose"):
        read(different)
    assert read(different, tree="the other")[0].children("Carnivora") == ("Canis lupus", "Mus_musculus")
    assert read(different, tree="1")[0].children("Carnivora") == ("Felis_catus", "Canis lupus")
    with pytest.raises(HierarchyError, match=r"has no tree '3'; expected 'best', 'the other', or a number from 1 to 2"):
        read(different, tree="3")


def test_nexus_without_a_tree(read):
    with pytest.raises(HierarchyError, match="is a NEXUS file without a tree; expected 'begin trees; tree NAME ="):
        read("#NEXUS\nbegin taxa;\nend;\n")


def test_counts_in_front_and_trees_of_one_name(read):
    assert read("  3  1\n\n((cat,lion)felidae,dog)carnivora;")[0].leaves == ("dog", "cat", "lion")
    same = NEXUS.replace("'the other'", "best").replace("((2,1)Carnivora,3)", "((2,3)Carnivora,1)")
    with pytest.raises(HierarchyError, match=r"has 2 trees that differ .*: 'best', 'best \(2\)'"):
        read(same)
