"""Bad files, each with its message: the file, the line where known, what was expected and what came."""

import gzip
import os
import sys

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy

LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">&lol2;</rdf:RDF>
"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">&secret;</rdf:RDF>
"""
DEFINITION = """<?xml version="1.0"?>
<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">
<x/>
"""
FLOOD = '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "' + 400 * "a" + '">]>\n<x>' + 10_000 * "&a;" + "</x>\n"
ATTRIBUTES = '<?xml version="1.0"?>\n<!DOCTYPE x [<!ATTLIST x a CDATA "flood">]>\n<x><x/></x>\n'
OBO = "format-version: 1.2\n\n[Term]\nid: A:1\nname: a\n"
OWL = '<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"></rdf:RDF>\n'
JSONLD = '{"@context": "http://127.0.0.1:9/context.jsonld", "@id": "x"}'

BAD = {
    # any text
    "empty.csv": (b"", r"empty\.csv: is empty"),
    "blank.txt": (b" \n\t\r\n", r"blank\.txt: is empty"),
    "mark-only.json": (b"\xef\xbb\xbf", r"mark-only\.json: is empty"),
    "greek.csv": ("r,a\nr,γάτα\n".encode("cp1253"), r"greek\.csv, line 2: is not text in UTF-8: byte 0xe3"),
    "utf16.txt": ("a\n  b\n".encode("utf-16")[:-1], r"utf16\.txt, line 2: is not text in UTF-16: byte 0x0a"),
    "nul.txt": (b"a\n  b\0\n", r"nul\.txt, line 2: contains a NUL character"),
    "half.csv.gz": (gzip.compress(b"r,a\nr,b\n")[:-6], r"half\.csv\.gz: is not a complete gzip file"),
    # edge lists
    "four.csv": (
        b"r,a\nr,b,Bee,x\n",
        r"four\.csv, line 2: expected parent, child\[, name\]; got \['r', 'b', 'Bee', 'x'\]",
    ),
    "quote.csv": (b'r,a\nr,"b\n', r"quote\.csv, line 2: is not a table: unexpected end of data"),
    "header.tsv": (b"parent\tchild\n", r"header\.tsv: has no edges"),
    "comment.csv": (b"# nothing\n", r"comment\.csv: has no rows"),
    "cycle.csv": (b"a,b\nb,c\nc,a\n", r"cycle\.csv: the hierarchy has a cycle: 'a' → 'b' → 'c' → 'a'"),
    "childless.csv": (b"r,a\nr,\n", r"childless\.csv, line 2: expected parent, child"),
    # JSON
    "cut.json": (b'{"a": {\n"b": ', r"cut\.json, line 2: is not JSON: Expecting value"),
    "deep.json": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, r"deep\.json: is nested too deeply"),
    "number.json": (b'{"a": {"b": {}, "c": 3}}', r"number\.json: below 'c': expected an object, a list.*; got 3"),
    "scalar.json": (b'"cat"', r'scalar\.json: expected an object.*; got "cat"'),
    "lists.json": (
        b'{"a": [["b"]]}',
        r"lists\.json: below 'a': a list contains a list of 1; expected names or objects",
    ),
    "twice.json": (b'{"a": {"b": {}, "b": {}}}', r"twice\.json: 'b' appears twice in one object"),
    "two-places.json": (
        b'{"r": {"a": ["x"], "b": ["x"]}}',
        r"two-places\.json: 'x' appears below 'b' and below 'a'; pass",
    ),
    "one.json": (b'{"a": {}}', r"one\.json: has a single concept, 'a'"),
    "none.json": (b"[]", r"none\.json: has no concept"),
    "future.json": (b'{"format": "hcep-hierarchy", "version": 9}', r"future\.json: hierarchy file of version 9"),
    "name.json": (b'{"id": "a", "name": 3, "children": ["b"]}', r'name\.json: "name" must be a string, got 3'),
    "id.json": (b'{"id": [1], "name": "a", "children": ["b"]}', r'id\.json: "id" must be a string or an integer'),
    "names.json": (
        b'{"name": "r", "children": [{"id": "x", "name": "a"}, {"id": "x", "name": "b"}]}',
        r"names\.json: 'x' has two names, 'a' and 'b'",
    ),
    # outlines
    "mixed.txt": (b"a\n\tb\n        c\n", r"mixed\.txt, line 3: indented with both tabs and spaces"),
    "mixed-line.txt": (b"a\n \tb\n", r"mixed-line\.txt, line 2: indented with both tabs and spaces"),
    "askew.md": (b"- a\n    - b\n  - c\n", r"askew\.md, line 3: indented by 2, but the lines above by 0, 4"),
    "gap.txt": (b"1. a\n1.1 b\n1.2.1 c\n", r"gap\.txt, line 3: number 1\.2\.1 has no 1\.2 before it"),
    "again.txt": (b"1. a\n1.1 b\n1.1 c\n", r"again\.txt, line 3: number 1\.1 appears twice"),
    "unnumbered.txt": (b"1. a\n1.1 b\nc\n", r"unnumbered\.txt, line 3: expected a number at the start.*got 'c'"),
    "siblings.txt": (b"a\n  b\n  b\n", r"siblings\.txt, line 3: 'b' appears twice below 'a' \(line 2\)"),
    "quoted.txt": (b'a\n  "b\\q"\n', r"quoted\.txt, line 2: a label in double quotes must be a JSON string"),
    # Newick
    "open.nwk": (b"((a,b)c", r"open\.nwk: ends with 1 '\(' not closed"),
    "unended.nwk": (b"(a,b)c", r"unended\.nwk: ends with no ';'"),
    "unclosed.nwk": (b"((a,b)c;", r"unclosed\.nwk, line 1: '\(' of line 1 is not closed before ';'"),
    "closed.nwk": (b"a),b;", r"closed\.nwk, line 1: '\)' without a '\(' before it"),
    "two.nwk": (b"(a,b)c;\n(d,e)f;", r"two\.nwk: has 2 trees that differ .*lines 1, 2\).* choose with tree="),
    "quote.nwk": (b"('a,b)c;", r"quote\.nwk, line 1: expected a label.*a quote that is not closed"),
    "comment.nwk": (b"(a,\nb[x)c;", r"comment\.nwk, line 2: a \[comment\] is not closed"),
    "blank.nwk": (b"('house' cat,b)c;", r"blank\.nwk, line 1: expected ',' or '\)' before 'cat'; put the whole label"),
    "length.nwk": (b"(a:x,b)c;", r"length\.nwk, line 1: expected a branch length after ':'; got 'x'"),
    "unlabelled.nwk": (b"(a,)c;", r"unlabelled\.nwk, line 1: expected a label before '\)'"),
    "joined.nwk": (b"(a(b,c)d)e;", r"joined\.nwk, line 1: expected ',' or '\)' before '\('"),
    # level columns
    "long.csv": (b"genus,species\nFelis,catus,extra\n", r"long\.csv, line 2: expected 2 cells"),
    "column.csv": (b"genus,species,genus\nFelis,catus,x\n", r"column\.csv, line 1: column 'genus' appears twice"),
    "void.csv": (b"genus,species,note\nFelis,catus,\n,,x\n", r"void\.csv, line 3: a row has no value"),
    # ontologies
    "frame.obo": (OBO.encode() + b"[Term]\nid\n", r"frame\.obo: no term has a parent by 'is_a'"),
    "flat.obo": (OBO.encode(), r"flat\.obo: no term has a parent by 'is_a'; expected terms with a parent each"),
    "prose.obo": (b"this is prose\n", r"prose\.obo: has no terms; expected OBO: lines such as"),
    "no-header.owl": (OWL.encode(), r"no-header\.owl: no term has a parent by 'is_a'"),
    "functional.owl": (b"Prefix(:=<http://x>)\nOntology()\n", r"functional\.owl: is OWL, but not in RDF/XML"),
    "owlxml.owl": (b'<?xml version="1.0"?>\n<Ontology/>', r"owlxml\.owl: is OWL/XML; expected OWL in RDF/XML"),
    "pattern.owl": (
        OWL.replace(
            "></",
            ' xmlns:owl="http://www.w3.org/2002/07/owl#"><owl:Ontology rdf:about="a+++b"/><owl:Class rdf:about="x"/></',
        ).encode(),
        r"pattern\.owl: no term has a parent by 'is_a'",
    ),
    "laughs.owl": (LAUGHS.encode(), r"laughs\.owl: XML entity 'lol2' expands to more than a short text"),
    "outside.owl": (OUTSIDE.encode(), r"outside\.owl: XML entity 'secret' comes from outside the file"),
    # RDF
    "laughs.rdf": (LAUGHS.encode(), r"laughs\.rdf: XML entity 'lol2' expands to more than a short text"),
    "laughs16.rdf": (LAUGHS.encode("utf-16"), r"laughs16\.rdf: XML entity 'lol2' expands"),
    "outside.rdf": (OUTSIDE.encode(), r"outside\.rdf: XML entity 'secret' comes from outside the file"),
    "definition.rdf": (DEFINITION.encode(), r"definition\.rdf: XML DOCTYPE names a definition outside the file"),
    "flood.rdf": (FLOOD.encode(), r"flood\.rdf: XML entities expand 30,4\d\d characters to 4,000,000"),
    "attributes.rdf": (ATTRIBUTES.encode(), r"attributes\.rdf: XML DOCTYPE gives <x> the attribute 'a'"),
    "cut.rdf": (OWL[:60].encode(), r"cut\.rdf, line 2: is not XML"),
    "cut.ttl": (b"@prefix a: <http://a/> .\na:b a:c", r"cut\.ttl: is not turtle .* ends in the middle of a statement"),
    "verb.ttl": (b"@prefix a: <http://a/> .\na:b a:c .\n", r"verb\.ttl, line 2: is not turtle"),
    "nothing.nt": (b"<http://a/b> <http://a/c> <http://a/d> .\n", r"nothing\.nt: has no skos:broader"),
    "remote.jsonld": (JSONLD.encode(), r"remote\.jsonld: its context is at another address, 'http://127\.0\.0\.1:9"),
}
NEEDS = {"owl": "rdflib", "rdf": "rdflib", "ttl": "rdflib", "nt": "rdflib"}


@pytest.mark.parametrize("name", BAD)
def test_every_bad_file_has_its_message(name, tmp_path):
    pytest.importorskip(NEEDS.get(name.rsplit(".", 1)[1], "json"), reason="comes with the extra formats")
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HierarchyError, match=message):
        read_hierarchy(tmp_path / name)


@pytest.mark.parametrize("name", list(BAD)[::3])
def test_nothing_is_made_of_a_bad_file(name, tmp_path, monkeypatch):
    """The same through the command: exit code 2, one message, and no file but the bad one."""
    pytest.importorskip(NEEDS.get(name.rsplit(".", 1)[1], "json"), reason="comes with the extra formats")
    from hcep.cli.app import main

    (tmp_path / name).write_bytes(BAD[name][0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hcep", "hierarchy", "convert", name, "out.json"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("ending", [".csv", ".json", ".txt", ".nwk", ".csv.gz"])
def test_a_file_that_is_too_large(ending, tmp_path):
    file = tmp_path / f"big{ending}"
    file.write_bytes(2_000 * b"x")
    with pytest.raises(HierarchyError, match=r"big.* has more than 1,000 bytes; pass max_bytes="):
        read_hierarchy(file, max_bytes=1_000)


def test_a_small_file_that_decompresses_to_too_much(tmp_path):
    (tmp_path / "big.csv.gz").write_bytes(gzip.compress(10_000_000 * b"x"))
    with pytest.raises(HierarchyError, match=r"big\.csv\.gz, uncompressed, has more than 1,000,000 bytes"):
        read_hierarchy(tmp_path / "big.csv.gz", max_bytes=1_000_000)


def test_absent_and_unreadable(tmp_path):
    with pytest.raises(HierarchyError, match=r"cannot read '.*h\.nwk': No such file"):
        read_hierarchy(tmp_path / "h.nwk")
    with pytest.raises(HierarchyError, match=r"cannot read 'h\\x00\.csv': embedded null byte"):
        read_hierarchy("h\0.csv")
    with pytest.raises(HierarchyError, match=r"cannot read '.*': it is not a regular file; give a file or a folder"):
        read_hierarchy(tmp_path, format="csv")
