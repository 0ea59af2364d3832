"""A table that is read, edited and written again has the columns, ranks and common names it had."""

import csv
import io
import json

import numpy as np
import pytest

from hcep import HCEPClassifier, HierarchyError
from hcep.hierarchy import Hierarchy, read_hierarchy, write_hierarchy
from hcep.models import load, save
from hcep.taxonomy import Move, apply_edits
from hcep.taxonomy.edits import Add, Merge, Remove, Rename

PLANTS = """\
Kingdom,Family,Genus,Species,Common name
Plantae,Rosaceae,Rosa,Rosa canina,Dog rose
Plantae,Rosaceae,Rosa,Rosa rugosa,Beach rose
Plantae,Rosaceae,Prunus,Prunus avium,Wild cherry
Plantae,Asteraceae,Bellis,Bellis perennis,Daisy
Plantae,Asteraceae,Bellis,Bellis perennis,Lawn daisy
Plantae,Iridaceae,Iris,Iris pseudacorus,Yellow flag
"""
EDGES = """\
child,common name,parent,rank,Code
Plantae,plants,,kingdom,7
Rosaceae,rose family,Plantae,family,71
Rosa,,Rosaceae,genus,711
Rosa canina,Dog rose,Rosa,species,7111
Rosa rugosa,Beach rose,Rosa,species,7112
Asteraceae,daisy family,Plantae,family,72
Bellis perennis,Daisy,Asteraceae,species,721
"""


@pytest.fixture
def read(tmp_path):
    """Reads a hierarchy from the text of a table."""

    def from_text(text, **options):
        (tmp_path / "in.csv").write_text(text, "utf-8")
        return read_hierarchy(tmp_path / "in.csv", **options)

    return from_text


@pytest.fixture
def written(tmp_path):
    """Writes a hierarchy as CSV; returns its rows and the notes."""

    def rows_of(hierarchy):
        notes = write_hierarchy(hierarchy, tmp_path / "out.csv")
        return list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text("utf-8")))), notes

    return rows_of


def cells(text):
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("text", [PLANTS, EDGES])
@pytest.mark.parametrize(
    "change",
    [
        lambda h: h,
        lambda h: Hierarchy.from_json(h.to_json()),
        lambda h: h.with_classes(["Rosa"]),
        lambda h: h.with_ranks(h.ranks),
        lambda h: h.as_tree(),
    ],
)
def test_a_table_without_edits_is_written_with_the_same_rows(text, change, read, written):
    rows, _ = written(change(read(text)))
    assert rows[0] == cells(text)[0]
    assert sorted(rows) == sorted(cells(text))


@pytest.mark.parametrize("change", [Hierarchy.collapse, lambda h: h.restrict(h.leaves).collapse()])
def test_ranks_that_were_merged_are_in_their_columns(change, read, written):
    rows, notes = written(change(read(PLANTS)))
    assert sorted(rows) == sorted(cells(PLANTS))
    assert notes == ()


LEVEL_EDITS = {
    "move a species": (
        Move("Prunus avium", "Rosa"),
        "Plantae,Rosaceae,Rosa,Prunus avium,Wild cherry",
        "Plantae,Rosaceae,Prunus,Prunus avium,Wild cherry",
    ),
    "move a species to a family": (
        Move("Rosa rugosa", "Rosaceae"),
        "Plantae,Rosaceae,,Rosa rugosa,Beach rose",
        "Plantae,Rosaceae,Rosa,Rosa rugosa,Beach rose",
    ),
    "rename a genus": (
        Rename("Iris", "Limniris"),
        "Plantae,Iridaceae,Limniris,Iris pseudacorus,Yellow flag",
        "Plantae,Iridaceae,Iris,Iris pseudacorus,Yellow flag",
    ),
    "rename a species": (
        Rename("Prunus avium", "Cerasus avium"),
        "Plantae,Rosaceae,Prunus,Cerasus avium,Wild cherry",
        "Plantae,Rosaceae,Prunus,Prunus avium,Wild cherry",
    ),
    "add a species": (Add("Bellis annua", "Bellis"), "Plantae,Asteraceae,Bellis,Bellis annua,", None),
    "add a genus": (
        Add("Limniris", "Iridaceae", ("Iris pseudacorus",)),
        "Plantae,Iridaceae,Limniris,Iris pseudacorus,Yellow flag",
        "Plantae,Iridaceae,Iris,Iris pseudacorus,Yellow flag",
    ),
    "merge two genera": (
        Merge("Prunus", "Rosa"),
        "Plantae,Rosaceae,Rosa,Prunus avium,Wild cherry",
        "Plantae,Rosaceae,Prunus,Prunus avium,Wild cherry",
    ),
    "remove a genus": (
        Remove("Iris"),
        "Plantae,Iridaceae,,Iris pseudacorus,Yellow flag",
        "Plantae,Iridaceae,Iris,Iris pseudacorus,Yellow flag",
    ),
}


@pytest.mark.parametrize("edit", LEVEL_EDITS)
def test_edits_keep_level_columns_ranks_and_common_names(edit, read, written):
    change, new, old = LEVEL_EDITS[edit]
    rows, _ = written(apply_edits(read(PLANTS), [change]))
    expected = [row for row in cells(PLANTS) if ",".join(row) != old] + cells(new)
    assert sorted(rows) == sorted(expected)


def test_edits_keep_the_columns_of_an_edge_list(read, written):
    edits = [Rename("Rosa", "roses"), Rename("Bellis perennis", "Lawn daisy"), Add("Bellis annua", "Asteraceae")]
    rows, notes = written(apply_edits(read(EDGES), edits))
    text = EDGES.replace("Rosa,,Rosaceae", "Rosa,roses,Rosaceae").replace("perennis,Daisy", "perennis,Lawn daisy")
    assert rows[0] == cells(text)[0]
    assert sorted(rows) == sorted([*cells(text), ["Bellis annua", "", "Asteraceae", "species", ""]])
    assert notes == ()


def test_an_edge_list_gets_the_columns_that_it_lacks(read, written):
    h = apply_edits(read("parent,child\nanimal,cat\nanimal,dog\n"), [Rename("cat", "Katze")])
    rows, _ = written(h.with_ranks({"cat": "species"}))
    assert rows == [
        ["parent", "child", "name", "rank"],
        ["animal", "cat", "Katze", "species"],
        ["animal", "dog", "dog", ""],
    ]


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        (PLANTS, ["Bellis perennis", "Iris pseudacorus", "Prunus avium", "Rosa canina", "Rosa rugosa"]),
        ("Group,Plant,Common name\nA,x,one\nA,y,two\nB,z,three\nB,z,four\n", ["x", "y", "z"]),
        ("Family,Common name\nFelidae,cat\nFelidae,lion\nCanidae,dog\n", ["cat", "dog", "lion"]),  # names classes
    ],
)
def test_another_common_name_of_a_class_is_not_a_level(text, classes, read):
    assert sorted(read(text).leaves) == classes


def test_ids_and_names_of_classes_stay_in_their_columns(read, written):
    text = (
        "family,name,common_name,label\nFelidae,Felis catus,Cat,0\nFelidae,Panthera leo,Lion,1\nCanidae,Vulpes,Fox,2\n"
    )
    h = read(text, levels=("family", "name"), leaf="label", name="common_name")
    assert (h.leaves, h.name("1")) == (("0", "1", "2"), "Lion")
    rows, notes = written(apply_edits(h, [Rename("1", "African lion"), Move("2", "Felidae")]))
    text = text.replace("Lion", "African lion").replace("Canidae", "Felidae")
    assert rows == cells(text)
    assert notes == ("csv: read it with -O levels=family,name -O leaf=label -O name=common_name",)


def test_a_renamed_class_has_a_new_label_which_is_said(read, written):
    _, notes = written(apply_edits(read(PLANTS), [Rename("Prunus avium", "Cerasus avium")]))
    assert notes == (
        "csv: 1 class with another label, the name in its cell: 'Prunus avium' is 'Cerasus avium'; relabel the images",
    )


@pytest.mark.parametrize(
    "edit",
    [
        Add("Rosoideae", "Rosaceae", ("Rosa", "Prunus")),  # between a family and its genera: there is no such column
        Move("Asteraceae", "Rosa"),  # a family below a genus
    ],
)
def test_a_concept_that_fits_no_level_column_makes_it_an_edge_list(edit, read, written):
    edited = apply_edits(read(PLANTS), [edit])
    rows, notes = written(edited)
    assert rows[0] == ["parent", "child", "name", "rank", "Common name"]
    assert "csv: written as parent and child, because " in notes[0]
    again = read("\n".join(",".join(row) for row in rows))
    assert (again.edges, again.ids) == (edited.edges, edited.ids)
    assert [again.name(s) for s in again] == [edited.name(s) for s in edited]


def test_a_concept_with_two_parents_makes_it_an_edge_list(read, written):
    plants = read(PLANTS)
    parents = plants._parent_lists()
    parents[plants.index("Bellis")].append(plants.index("Rosaceae"))
    rows, notes = written(plants._with(parents=parents))
    assert rows[0][:2] == ["parent", "child"]
    assert "'Bellis' has several parents" in notes[0]


def test_a_level_that_would_be_read_from_the_row_above_is_not_left_empty(read, written):
    h = read("Group,Item\npets,cat\npets,dog\ncars,van\n")
    moved = apply_edits(h, [Move("cat", h.root)])
    rows, _ = written(moved)
    assert read("\n".join(",".join(row) for row in rows)) == moved


def test_other_columns_are_not_kept(read):
    notes = []
    rows = ("Corvidae,Krähe,crow,seen by Ann", "Paridae,Meise,tit,", "Paridae,Kohlmeise,great tit,")
    text = "\n".join(["Family,Species,Common name,Note", *rows])
    h = read(text, on_note=notes.append)
    assert notes[1:] == [
        "not a level, but kept when a table is written: 'Common name'",
        "columns that were ignored: 'Note'",
    ]
    assert "Ann" not in h.to_json()


def test_new_concepts_get_the_rank_of_their_place(read):
    h = read(PLANTS)
    edits = [Add("Malus", "Rosaceae"), Add("Poaceae", "Plantae"), Add("Poa", "Poaceae"), Add("Poa annua", "Poa")]
    added = apply_edits(h, edits)
    assert [added.rank(s) for s in ("Malus", "Poaceae", "Poa", "Poa annua")] == ["Genus", "Family", "Genus", "Species"]
    assert added.rank_names == h.rank_names


def test_a_model_keeps_the_columns_of_its_hierarchy(read, written, tmp_path):
    h = read(PLANTS)
    images = np.eye(6)
    model = HCEPClassifier(h).fit(images[:5], h.leaves)
    model.add_class("Bellis annua", "Bellis", images[5:])
    model.move("Prunus avium", "Rosa")
    save(model, tmp_path / "model")
    rows, notes = written(load(tmp_path / "model").hierarchy_)
    moved = PLANTS.replace("Prunus,Prunus avium", "Rosa,Prunus avium")
    assert sorted(rows) == sorted([*cells(moved), ["Plantae", "Asteraceae", "Bellis", "Bellis annua", ""]])
    assert notes == ()


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"roles": {"a": "level"}, "rows": {"(root)": [{"a": "x"}], "cat": [{"b": "y"}]}}, {}),
        ({"roles": {"a": "level", "b": "level"}, "rows": {"(root)": [{}]}}, {"levels": ["a", "b"]}),
        ({"roles": {"p": "parent", "q": "parent", "c": "child"}}, {}),
        ({"roles": {"#": "parent", "c": "child"}}, {}),
        ({"roles": {"a,b": "level", "c": "level", "n": "name"}}, {"levels": ["a,b", "c"], "name": "n"}),
    ],
)
def test_any_columns_in_a_json_file_give_a_table_of_the_same_hierarchy(columns, options, tmp_path):
    h = Hierarchy.from_edges([("pet", "cat"), ("pet", "dog"), ("car", "van"), ("car", "bus")])
    record = {**json.loads(h.to_json()), "columns": columns}
    notes = write_hierarchy(Hierarchy.from_json(json.dumps(record)), tmp_path / "h.csv")
    assert any("read it with -O levels=" in note for note in notes) == bool(options)
    again = read_hierarchy(tmp_path / "h.csv", **options)
    assert {again.paths(leaf) for leaf in again.leaves} == {h.paths(leaf) for leaf in h.leaves}


def test_columns_of_an_unknown_kind_are_refused():
    record = {**json.loads(Hierarchy.from_edges([("a", "b")]).to_json()), "columns": {"roles": {"x": "formula"}}}
    with pytest.raises(HierarchyError, match=r"columns.*formula"):
        Hierarchy.from_json(json.dumps(record))


DOG_ROSE = {"name": "Rosa canina", "rank": "species", "common_name": "Dog rose"}
ROSES = {
    "name": "Rosaceae",
    "rank": "family",
    "common_name": "rose family",
    "note": "seen by Ann",
    "children": [{"name": "Rosa", "rank": "genus", "children": [DOG_ROSE]}],
}
GRASSES = {"name": "Poaceae", "rank": "family", "children": [{"name": "Poa annua", "rank": "species"}]}
NESTED = {"name": "Plantae", "rank": "kingdom", "children": [GRASSES, ROSES]}


@pytest.mark.parametrize("ending", [".nested.json", ".json"])
def test_nested_files_keep_ranks_and_common_names(ending, tmp_path, written):
    (tmp_path / "in.json").write_text(json.dumps(NESTED))
    h = read_hierarchy(tmp_path / "in.json")
    assert h.rank_names == ("kingdom", "family", "genus", "species")
    edited = apply_edits(h, [Add("Poa trivialis", "Poaceae"), Rename("Rosa", "Roses")])
    assert not [note for note in write_hierarchy(edited, tmp_path / f"out{ending}") if "lost" in note]
    again = read_hierarchy(tmp_path / f"out{ending}")
    assert again.ranks == edited.ranks
    assert again.columns.rows == {
        "Rosaceae": [{"common_name": "rose family"}],
        "Rosa canina": [{"common_name": "Dog rose"}],
    }
    assert "Ann" not in (tmp_path / f"out{ending}").read_text()
    rows, _ = written(again)
    assert rows[0] == ["parent", "child", "name", "rank", "common_name"]
    assert ["Rosa", "Rosa canina", "Rosa canina", "species", "Dog rose"] in rows
