"""Edges that are no hierarchy: everything that is wrong with them, at once."""

import json

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy
from hcep.taxonomy import lint_edges, lint_file


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_every_cycle_is_spelled_out():
    edges = [("r", "a"), ("a", "b"), ("b", "a"), ("r", "x"), ("x", "y"), ("y", "z"), ("z", "x")]
    cycles = [f for f in lint_edges(edges) if f.code == "cycle"]
    assert [set(f.synsets) for f in cycles] == [{"a", "b"}, {"x", "y", "z"}]
    assert {f.severity for f in cycles} == {"error"}
    assert cycles[0].examples == ("'a' → 'b' → 'a'",)


def test_a_cycle_without_any_root():
    assert [f.synsets for f in lint_edges([("a", "b"), ("b", "a")])] == [("a", "b")]


def test_a_dag_has_no_cycle(diamond):
    assert lint_edges(diamond.edges) == []


def test_many_cycles_are_counted():
    edges = [pair for i in range(30) for pair in ((f"a{i}", f"b{i}"), (f"b{i}", f"a{i}"))]
    cycles = lint_edges(edges)
    assert len(cycles) == 21
    assert cycles[-1].message.startswith("10 more cycles")


def test_a_long_chain_needs_no_recursion():
    edges = [(str(i), str(i + 1)) for i in range(5_000)]
    assert [f.code for f in lint_edges([*edges, ("5000", "0")])] == ["cycle"]


def test_loops_duplicates_names_roots_and_odd_rows():
    rows = [("a", "b", "B"), ("c", "b", "bee"), ("a", "b"), ("d", "d"), ("", "e"), ("x",), ("y", 3)]
    found = {f.code: f for f in lint_edges(rows)}
    assert list(found) == ["malformed-row", "empty-id", "self-loop", "duplicate-edge", "two-names", "several-roots"]
    assert found["self-loop"].examples == ("row 4: 'd'",)
    assert found["duplicate-edge"].examples == ("row 3: 'a', 'b'",)
    assert found["two-names"].examples == ("'b': 'B', 'bee'",)
    assert [f.code for f in found.values() if f.safe] == ["self-loop", "duplicate-edge"]


def test_a_file_with_a_cycle_is_linted(tmp_path):
    file = write(tmp_path / "h.csv", "parent,child\nr,a\na,b\nb,a\n")
    findings, hierarchy = lint_file(file)
    assert hierarchy is None
    assert [f.code for f in findings] == ["cycle"]


def test_self_loops_and_duplicates_are_left_out_with_their_lines(tmp_path):
    file = write(tmp_path / "h.tsv", "child\tparent\ncat\tpet\ndog\tpet\n# x\ndog\tdog\ncat\tpet\n")
    findings, hierarchy = lint_file(file)
    assert [(f.code, f.examples) for f in findings if f.safe] == [
        ("self-loop", ("line 5: 'dog'",)),
        ("duplicate-edge", ("line 6: 'pet', 'cat'",)),
    ]
    assert hierarchy.edges == (("pet", "cat"), ("pet", "dog"))


def test_a_named_root_is_not_an_empty_id(tmp_path, diamond):
    file = write(tmp_path / "h.csv", ",r,Everything\nr,a\nr,b\nb,b\n")
    findings, hierarchy = lint_file(file)
    assert [f.code for f in findings] == ["self-loop", "flat"]
    assert hierarchy.name("r") == "Everything"


def test_our_json_with_a_self_loop(tmp_path, pets):
    data = json.loads(pets.to_json())
    data["synsets"][3]["parents"].append("cat")
    findings, hierarchy = lint_file(write(tmp_path / "h.json", json.dumps(data)))
    assert [(f.code, f.examples) for f in findings] == [("self-loop", ("concept 'cat': 'cat'",))]
    assert hierarchy == pets


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": "hcep-hierarchy"}',
        '{"format": "hcep-hierarchy", "version": 1, "root": "r", "synsets": [1]}',
        '{"format": "hcep-hierarchy", "version": 1, "root": "r", "synsets": [{"id": "r"}, {"id": "a", "parents": 5}]}',
        '{"format": "hcep-hierarchy", "version": 1, "root": "r", "synsets": [{"id": "r", "parents": null}]}',
        '{"format": "hcep-hierarchy", "version": 9, "root": "r", "synsets": [{"id": "r"}]}',
    ],
)
def test_what_the_reader_refuses_is_a_finding(tmp_path, text):
    findings, hierarchy = lint_file(write(tmp_path / "h.json", text))
    assert hierarchy is None
    assert [(f.severity, f.code) for f in findings] == [("error", "unreadable")]
    assert "h.json" in findings[0].message


def test_other_formats_go_through_their_reader(tmp_path):
    file = write(tmp_path / "h.nwk", "((cat,lion)feline,(dog,wolf)canine)animal;")
    assert lint_file(file, ["cat", "lion", "dog", "wolf"]) == ([], read_hierarchy(file))


def test_a_folder_tree(tmp_path):
    for name in ("cat/siamese", "cat/persian", "dog/pug", "dog/corgi"):
        (tmp_path / "pets" / name).mkdir(parents=True)
    findings, hierarchy = lint_file(tmp_path / "pets")
    assert findings == []
    assert len(hierarchy.leaves) == 4


def test_an_option_goes_to_the_reader(tmp_path):
    file = write(tmp_path / "h.txt", "pet\n  cat\n  dog\nwild\n  cat\n")
    assert lint_file(file)[1] is None
    assert lint_file(file, repeated="merge")[1].parents("cat") == ("pet", "wild")


def test_no_file(tmp_path):
    with pytest.raises(HierarchyError, match="cannot read"):
        lint_file(tmp_path / "absent.csv")
    with pytest.raises(HierarchyError, match="its ending does not name a format"):
        lint_file(write(tmp_path / "h.xyz", "a"))


def test_a_first_row_that_shares_no_cell_with_the_others_is_a_header(tmp_path):
    findings, hierarchy = lint_file(write(tmp_path / "h.csv", "oben,unten\nr,a\nr,b\na,x\na,y\n"))
    assert [f for f in findings if f.severity == "error"] == []
    assert "oben" not in hierarchy
    assert set(hierarchy) == {"r", "a", "b", "x", "y"}


def test_a_first_row_that_may_be_a_header_or_not_is_not_guessed(tmp_path):
    findings, hierarchy = lint_file(write(tmp_path / "h.csv", "r,a\nx,b\n"))
    assert hierarchy is None
    (found,) = findings
    assert found.code == "unreadable"
    assert "may be a header or data" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "superclass,class\nr,a\nr,b\n",  # known as a header
        "target,source\na,r\nb,r\n",
        "r,a\nr,b\nr,c\n",  # an edge like the others
        "x,r\nr,a\nr,b\n",
        ",r,Everything\nr,a\nr,b\n",
        "level1,level2\nr,a\nr,b\n",
    ],
)
def test_first_rows_that_do_not(tmp_path, text):
    findings, hierarchy = lint_file(write(tmp_path / "h.csv", text))
    assert "header-row" not in [f.code for f in findings]
    assert not {"superclass", "target", "level1"} & set(hierarchy)
