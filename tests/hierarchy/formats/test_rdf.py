"""SKOS and RDFS through rdflib."""

import pytest

from hcep import HierarchyError
from hcep.errors import MissingExtraError
from hcep.hierarchy import read_hierarchy
from tests.hierarchy.formats.reading import read_with_notes

rdflib = pytest.importorskip("rdflib", reason="comes with the extra formats")

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <http://example.org/animals#> .
:animal a skos:Concept ; skos:prefLabel "animal"@en, "Tier"@de ; skos:narrower :dog .
:animal rdfs:subClassOf owl:Thing, :animal .
:feline skos:broader :animal ; skos:prefLabel "feline"@en-GB, "félin"@fr .
:cat skos:broader :feline, :pet ; skos:prefLabel "cat" ; rdfs:label "ignored"@en .
:pet rdfs:subClassOf :animal ; rdfs:label "Haustier"@de .
:dog rdfs:subClassOf [ a owl:Restriction ] .
:dodo skos:broader :animal ; owl:deprecated true .
"""
EDGES = {("animal", "feline"), ("animal", "dog"), ("animal", "pet"), ("feline", "cat"), ("pet", "cat")}
SYNTAX = {"ttl": "turtle", "rdf": "xml", "nt": "nt", "jsonld": "json-ld"}


@pytest.fixture(params=SYNTAX)
def thesaurus(request, tmp_path):
    """The same triples in every syntax."""
    file = tmp_path / f"animals.{request.param}"
    rdflib.Graph().parse(data=TURTLE, format="turtle").serialize(file, format=SYNTAX[request.param], encoding="utf-8")
    return file


def test_every_syntax(thesaurus):
    h, notes = read_with_notes(thesaurus, ids="local")
    assert set(h.edges) == EDGES
    assert notes == ("skipped: 1 deprecated resource",)


def test_addresses_are_the_ids_by_default(thesaurus):
    assert read_hierarchy(thesaurus).root == "http://example.org/animals#animal"


@pytest.mark.parametrize(
    ("language", "names"),
    [("en", ["animal", "cat", "feline", "Haustier"]), ("de", ["Tier", "cat", "feline", "Haustier"])],
)
def test_names_in_a_language(language, names, tmp_path):
    (tmp_path / "h.ttl").write_text(TURTLE, encoding="utf-8")
    h = read_hierarchy(tmp_path / "h.ttl", language=language, ids="local")
    assert [h.name(s) for s in ("animal", "cat", "feline", "pet")] == names


def test_the_order_does_not_depend_on_the_syntax(thesaurus, tmp_path):
    (tmp_path / "other.ttl").write_text(TURTLE, encoding="utf-8")
    assert read_hierarchy(thesaurus) == read_hierarchy(tmp_path / "other.ttl")


def test_local_names_that_two_share(tmp_path):
    text = "<http://a/x> <http://www.w3.org/2004/02/skos/core#broader> <http://b#x> .\n"
    (tmp_path / "h.nt").write_text(text)
    with pytest.raises(
        HierarchyError, match=r"'http://a/x' and 'http://b#x' are both 'x' by local name; pass ids='iri'"
    ):
        read_hierarchy(tmp_path / "h.nt", ids="local")
    with pytest.raises(HierarchyError, match=r"h\.nt: ids must be 'iri' or 'local', got 'short'"):
        read_hierarchy(tmp_path / "h.nt", ids="short")


def test_without_rdflib(tmp_path, monkeypatch):
    (tmp_path / "h.ttl").write_text(TURTLE, encoding="utf-8")
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    with pytest.raises(MissingExtraError, match=r'reading RDF needs rdflib, .* pip install "hcep\[formats\]"'):
        read_hierarchy(tmp_path / "h.ttl")
