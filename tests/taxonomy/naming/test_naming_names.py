"""Records of names: what they mean, how newer ones replace older ones."""

import pytest

from hcep.errors import HierarchyError
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase
from hcep.taxonomy.naming.interpretation import chosen_edges
from tests.taxonomy.naming.bear_space import BEARS

WHITE, BROWN = Phrase("all white", 0.7), Phrase("dark brown", 0.6)
POLAR, GRIZZLY = ("bear", "polar_bear"), ("bear", "grizzly")


@pytest.mark.parametrize(
    ("known", "meaning", "source"),
    [
        ({}, None, None),
        ({"exemplars": (Exemplar("a.jpg", 1.2),)}, None, "exemplars"),
        ({"gloss": "white bear"}, "white bear", "gloss"),
        ({"gloss": "white bear", "phrases": (WHITE, BROWN)}, "all white", "phrase"),
        ({"phrases": (WHITE,), "summary": "thick white fur"}, "thick white fur", "summary"),
    ],
)
def test_the_best_words_are_the_meaning(known, meaning, source):
    atom = AtomName(*POLAR, **known)
    assert (atom.meaning, atom.source) == (meaning, source)


def test_newer_names_replace_what_they_have_and_keep_the_rest():
    old = AtomNames((AtomName(*POLAR, gloss="a bear", exemplars=(Exemplar("a", 1.0),)), AtomName(*GRIZZLY, (BROWN,))))
    new = AtomNames((AtomName(*POLAR, (WHITE,)),), encoder="clip", template="{}")
    both = old.updated(new)
    assert both[POLAR] == AtomName(*POLAR, (WHITE,), gloss="a bear", exemplars=(Exemplar("a", 1.0),))
    assert both[GRIZZLY] == old[GRIZZLY]
    assert (both.encoder, both.template) == ("clip", "{}")


def test_a_summary_of_other_phrases_is_dropped():
    old = AtomNames((AtomName(*POLAR, (WHITE,), summary="thick white fur"),), encoder="clip", llm="gpt")
    assert old.updated(AtomNames((AtomName(*POLAR, (BROWN,)),)))[POLAR].summary is None
    assert old.updated(AtomNames((AtomName(*POLAR, (WHITE,)),)))[POLAR].summary == "thick white fur"
    glossed = old.updated(AtomNames((AtomName(*POLAR, gloss="a bear"),)))
    assert glossed[POLAR].summary == "thick white fur"
    assert (glossed.encoder, glossed.llm) == ("clip", "gpt")


def test_new_exemplars_take_their_contrast_along():
    old = AtomName(*POLAR, exemplars=(Exemplar("a", 1.0),), contrast=(Exemplar("z", -1.0),))
    assert old.updated(AtomName(*POLAR, exemplars=(Exemplar("b", 1.1),))).contrast == ()
    assert old.updated(AtomName(*POLAR, gloss="x")).contrast == old.contrast


def test_records_are_ordered_by_the_hierarchys_edges():
    names = AtomNames((AtomName(*GRIZZLY), AtomName("thing", "bear"), AtomName(*POLAR)))
    in_order = [edge for edge in BEARS.edges if edge in names.by_edge]
    assert list(names.ordered(BEARS).by_edge) == in_order
    assert [atom.child for atom in names] == ["grizzly", "bear", "polar_bear"]
    assert len(names) == 3


def test_edges_of_another_hierarchy_are_refused():
    with pytest.raises(HierarchyError, match="'bear → car': the hierarchy has no such edge"):
        AtomNames((AtomName("bear", "car"),)).ordered(BEARS)


def test_an_edge_is_named_once():
    with pytest.raises(HierarchyError, match="an edge occurs twice"):
        AtomNames((AtomName(*POLAR), AtomName(*POLAR)))


def test_an_atom_without_a_record_has_no_meaning():
    assert AtomNames(()).meaning(*POLAR) is None


def test_edges_are_chosen_by_id_or_name_of_the_child():
    assert chosen_edges(BEARS) == BEARS.edges
    assert chosen_edges(BEARS, ["Polar Bear", "grizzly"]) == tuple(e for e in BEARS.edges if e in (POLAR, GRIZZLY))


def test_a_synset_with_two_parents_has_two_atoms(diamond):
    assert set(chosen_edges(diamond, ["cat"])) == {("pet", "cat"), ("feline", "cat")}


@pytest.mark.parametrize(
    ("synset", "match"),
    [
        ("grizly", "'grizly' is not a concept of this hierarchy. Near matches: 'grizzly'"),
        ("thing", "'thing' is the root: no atom leads to it"),
    ],
)
def test_an_unknown_synset_is_named(synset, match):
    with pytest.raises(HierarchyError, match=match):
        chosen_edges(BEARS, [synset])
