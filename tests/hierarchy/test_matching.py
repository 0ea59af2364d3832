"""Classes that a hierarchy writes differently."""

import unicodedata

import pytest

from hcep import Hierarchy
from hcep.classify.base import refuse_unknown
from hcep.datasets import find_hierarchy
from hcep.errors import HCEPError
from hcep.hierarchy.files import match_classes


def test_underscores_and_spaces_match_both_ways():
    newick = Hierarchy.from_edges([("r", "Felis_catus"), ("r", "Canis lupus"), ("r", "Mus")])
    matched, told = match_classes(newick, ["Felis catus", "Canis_lupus", "Mus"])
    assert set(matched.leaves) == {"Felis catus", "Canis_lupus", "Mus"}
    assert told == ("matched with '_' for a space: 'Felis catus' is 'Felis_catus', 'Canis_lupus' is 'Canis lupus'",)
    assert matched.root == "r"


def test_a_class_may_be_the_name_of_a_synset():
    ontology = Hierarchy.from_edges([("D:0", "D:1"), ("D:0", "D:2")], {"D:1": "house cat", "D:2": "dog"})
    matched, told = match_classes(ontology, ["house_cat", "dog"])
    assert matched.parents("dog") == ("D:0",)
    assert matched.name("house_cat") == "house cat"
    assert told == ("matched by name: 'house_cat' is 'D:1', 'dog' is 'D:2'",)


def test_known_and_ambiguous_classes_are_not_matched():
    tree = Hierarchy.from_edges([("r", "a_b"), ("r", "1"), ("r", "2")], {"1": "crane", "2": "crane"})
    assert match_classes(tree, ["a_b", "crane", "nothing"]) == (tree, ())


def test_finding_a_hierarchy_says_so(tmp_path):
    (tmp_path / "h.nwk").write_text("((Felis_catus,Panthera_leo)Felidae,Mus)Mammalia;")
    told = []
    found = find_hierarchy(tmp_path / "h.nwk", ["Felis catus", "Mus"], on_note=told.append)
    assert found.parents("Felis catus") == ("Felidae",)
    assert told == [
        "h.nwk: Newick tree, 3 levels, 3 classes",
        "matched with '_' for a space: 'Felis catus' is 'Felis_catus'",
    ]


def test_case_hyphens_and_the_form_of_accents_do_not_matter():
    tree = Hierarchy.from_edges([("r", "Felis catus"), ("r", "Ara-ara"), ("r", "1")], {"1": "pingüino"})
    spelled = ["felis_catus", "ara ara", unicodedata.normalize("NFD", "Pingüino")]
    matched, notes = match_classes(tree, spelled)
    assert set(matched.leaves) == set(spelled)
    assert notes[0].startswith("matched ignoring case and spacing: 'felis_catus' is 'Felis catus'")


def test_two_concepts_that_a_label_may_mean_are_listed():
    tree = Hierarchy.from_edges([("r", "ara ara"), ("r", "Ara-ara"), ("r", "b")])
    matched, _ = match_classes(tree, ["ARA_ARA", "b"])
    with pytest.raises(HCEPError, match=r"'ARA_ARA' is ambiguous: it may be 'ara ara', 'Ara-ara'. Use an id"):
        refuse_unknown(matched, ["ARA_ARA", "b"])
