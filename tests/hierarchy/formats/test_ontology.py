"""OBO line by line, and OWL through rdflib."""

import pytest

from hcep import HierarchyError
from hcep.errors import MissingExtraError
from hcep.hierarchy import read_hierarchy
from tests.hierarchy.formats.reading import read_with_notes

# The import would be fetched from a port where nothing listens.
OBO = """format-version: 1.2
ontology: demo
import: http://127.0.0.1:9/other.obo

[Term]
id: D:0
name: body part

[Term]
id: D:1
name: naïve organ "猫"
is_a: D:0 ! body part

[Term]
id: D:2
name: eye
is_a: D:1

[Term]
id: D:3
name: lens
relationship: part_of D:2

[Term]
id: D:4
name: gone
is_obsolete: true

[Term]
id: D:5
name: limb
is_a: D:0

[Term]
id: D:6
name: eye of a limb
is_a: D:5
is_a: D:2

[Typedef]
id: part_of
name: part of
"""

OWL = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [
  <!ENTITY owl "http://www.w3.org/2002/07/owl#" >
  <!ENTITY obo "http://purl.obolibrary.org/obo/" >
]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
         xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#">
  <owl:Ontology rdf:about="&obo;demo.owl"><owl:imports rdf:resource="http://127.0.0.1:9/x.owl"/></owl:Ontology>
  <owl:ObjectProperty rdf:about="&obo;BFO_0000050"><rdfs:label>part of</rdfs:label></owl:ObjectProperty>
  <owl:Class rdf:about="&obo;D_0">
    <rdfs:label>body part</rdfs:label><rdfs:subClassOf rdf:resource="&owl;Thing"/>
  </owl:Class>
  <owl:Class rdf:about="&obo;D_1"><rdfs:label>œil</rdfs:label><rdfs:subClassOf rdf:resource="&obo;D_0"/></owl:Class>
  <owl:Class rdf:about="&obo;D_2"><rdfs:label>limb</rdfs:label><rdfs:subClassOf rdf:resource="&obo;D_0"/></owl:Class>
  <owl:Class rdf:about="&obo;D_3"><rdfs:label>lens</rdfs:label>
    <rdfs:subClassOf><owl:Restriction>
      <owl:onProperty rdf:resource="&obo;BFO_0000050"/><owl:someValuesFrom rdf:resource="&obo;D_1"/>
    </owl:Restriction></rdfs:subClassOf>
  </owl:Class>
  <owl:Class rdf:about="&obo;D_4">
    <owl:deprecated rdf:datatype="http://www.w3.org/2001/XMLSchema#boolean">true</owl:deprecated>
  </owl:Class>
</rdf:RDF>
"""


@pytest.fixture
def obo(tmp_path):
    (tmp_path / "demo.obo").write_text(OBO, encoding="utf-8-sig")
    return tmp_path / "demo.obo"


@pytest.fixture
def owl(tmp_path):
    pytest.importorskip("rdflib", reason="comes with the extra formats")
    (tmp_path / "demo.owl").write_text(OWL, encoding="utf-8")
    return tmp_path / "demo.owl"


def test_is_a_edges_and_names(obo):
    h, notes = read_with_notes(obo)
    assert set(h.edges) == {("D:0", "D:1"), ("D:1", "D:2"), ("D:0", "D:5"), ("D:2", "D:6"), ("D:5", "D:6")}
    assert h.name("D:1") == 'naïve organ "猫"'
    assert notes == ("skipped: 1 obsolete term", "skipped: 1 term without parents and children")


def test_other_relationships(obo):
    h, notes = read_with_notes(obo, relationships=("is_a", "part_of"))
    assert h.parents("D:3") == ("D:2",)
    assert notes == ("skipped: 1 obsolete term",)
    assert read_hierarchy(obo, relationships="part of").edges == (("D:2", "D:3"),)
    with pytest.raises(
        HierarchyError, match=r"no term has a parent by 'has_part'; it has 'is_a', .*-O relationships=is_a"
    ):
        read_hierarchy(obo, relationships=["has_part"])


def test_one_branch_by_its_name(obo):
    assert read_hierarchy(obo, root="eye").edges == (("D:2", "D:6"),)


def test_a_parent_that_the_file_does_not_define(obo):
    obo.write_text(OBO.replace("is_a: D:5\n", "is_a: X:9\n"), encoding="utf-8")
    with pytest.raises(HierarchyError, match=r"demo\.obo: 'X:9' is a parent but not a term of this file; imports"):
        read_hierarchy(obo)


def test_several_roots_are_joined(obo):
    obo.write_text(OBO.replace("id: D:5\nname: limb\nis_a: D:0", "id: D:5\nname: limb"), encoding="utf-8")
    assert read_hierarchy(obo).children("(root)") == ("D:0", "D:5")


def test_owl_with_namespaces_as_entities(owl):
    h, notes = read_with_notes(owl)
    assert h.edges == (("D:0", "D:1"), ("D:0", "D:2"))
    assert h.name("D:1") == "œil"
    assert notes[0] == "skipped: 1 obsolete term"
    assert read_hierarchy(owl, relationships=("is_a", "part of")).parents("D:3") == ("D:1",)


def test_owl_without_rdflib(owl, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    with pytest.raises(MissingExtraError, match=r'reading OWL needs rdflib, .* pip install "hcep\[formats\]"'):
        read_hierarchy(owl)


def test_escapes_in_names(obo):
    obo.write_text(OBO.replace("name: limb", r"name: limb\, arm \{or leg\}"), encoding="utf-8")
    assert read_hierarchy(obo).name("D:5") == "limb, arm {or leg}"


def test_comment_lines(obo):
    plain = read_hierarchy(obo)
    commented = OBO.replace("ontology:", "! of the header\nontology:").replace("is_a: D:1", "  ! of a term\nis_a: D:1")
    obo.write_text(commented, encoding="utf-8")
    assert read_hierarchy(obo) == plain


def test_lines_that_cannot_be_read_are_skipped_and_reported(obo):
    dirt = OBO.replace("name: limb", 'name: limb\ndef: "unclosed {and odd\nsynonym "no colon"\n@@@')
    dirt = dirt.replace("is_a: D:5\n", 'is_a: D:5 {is_inferred="true"} ! limb\nis_a: X:9\n')
    clean = read_hierarchy(obo)
    obo.write_text(dirt, encoding="utf-8")
    h, notes = read_with_notes(obo)
    assert h == clean
    assert notes == (
        "skipped: 2 lines without 'tag: value', from line 33",
        "skipped: 1 obsolete term",
        "skipped: 1 parent that is not a term of this file",
        "skipped: 1 term without parents and children",
    )


def test_other_relationships_of_a_dirty_file(obo):
    obo.write_text(OBO.replace("name: limb", "name: limb\n@@@"), encoding="utf-8")
    assert read_hierarchy(obo, relationships=["is_a", "part_of"]).parents("D:3") == ("D:2",)
