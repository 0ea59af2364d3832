"""Ranks and display names: read from tables, and never lost on the way to an answer."""

import pickle

import pytest

from hcep import Hierarchy, HierarchyError, read_hierarchy
from hcep.hierarchy import write_hierarchy
from hcep.hierarchy.files import branch, match_classes, with_ids
from hcep.taxonomy.edits import Add, Collapse, Merge, Move, Rename, apply_edits

CATS = """Kingdom,Order,Family,Genus,Species
Animalia,Carnivora,Felidae,Lynx,Lynx lynx
Animalia,Carnivora,Felidae,Lynx,Lynx rufus
Animalia,Carnivora,Canidae,Vulpes,Vulpes vulpes
Plantae,Asparagales,Iridaceae,Iris,Iris sibirica
Plantae,Asparagales,Iridaceae,Gladiolus,Gladiolus palustris
"""


def read(tmp_path, text, **options):
    (tmp_path / "tree.csv").write_text(text, encoding="utf-8")
    notes = []
    return read_hierarchy(tmp_path / "tree.csv", on_note=notes.append, **options), notes


@pytest.fixture
def species(tmp_path):
    return read(tmp_path, CATS)[0]


def test_level_columns_give_ranks(species):
    assert species.rank_names == ("Kingdom", "Order", "Family", "Genus", "Species")
    assert species.rank("Plantae") == "Kingdom"
    assert species.rank("Lynx rufus") == "Species"
    assert species.rank(species.root) is None


def test_any_words_are_ranks(tmp_path):
    text = (
        "Abteilung,Gruppe,Artikel\nObst,Beeren,Erdbeere\nObst,Beeren,Himbeere\nObst,Kernobst,Apfel\nBrot,Roggen,Laib\n"
    )
    assert read(tmp_path, text)[0].rank_names == ("Abteilung", "Gruppe", "Artikel")


@pytest.mark.parametrize(
    ("text", "options", "ranks"),
    [
        ("kingdom,family,name\nA,F,f1\nA,F,f2\nA,G,g1\n", {}, ("kingdom", "family")),
        ("supercategory,name\npet,cat\npet,dog\nfood,pie\n", {"format": "levels"}, ("supercategory",)),
        ("A,F,f1\nA,F,f2\nA,G,g1\nB,H,h1\n", {"levels": ["1", "2", "3"]}, ()),
        ("A,F,f1\nA,F,f2\nA,G,g1\nB,H,h1\n", {"header": "no"}, ()),
    ],
    ids=["a name", "COCO", "numbered", "no header"],
)
def test_a_level_column_whose_title_is_not_a_rank_gives_none(tmp_path, text, options, ranks):
    assert read(tmp_path, text, **options)[0].rank_names == ranks


def test_a_level_that_a_row_skips_does_not_shift_the_ranks(tmp_path):
    text = "kingdom,order,family,species\nAnimalia,,Felidae,Lynx lynx\nAnimalia,Carnivora,Canidae,Vulpes vulpes\n"
    h, _ = read(tmp_path, text)
    assert (h.rank("Felidae"), h.rank("Lynx lynx"), h.rank("Carnivora")) == ("family", "species", "order")
    assert h.rank_names == ("kingdom", "order", "family", "species")


def test_a_concept_at_two_levels_has_no_rank(tmp_path):
    text = "kingdom,order,family,species\nA,X,,x1\nA,,X,x2\nA,Y,Z,z1\n"
    h, _ = read(tmp_path, text)
    assert h.rank("X") is None
    assert h.rank("Y") == "order"


def test_the_classes_own_ids_and_names_keep_the_rank(tmp_path):
    text = (
        "family,species,image_dir_name,common_name\nFelidae,Lynx lynx,01,lynx\nFelidae,Felis catus,02,cat\nB,b,03,bee\n"
    )
    h, _ = read(tmp_path, text, levels=["family", "species"], leaf="image_dir_name", name="common_name")
    assert (h.name("02"), h.rank("02")) == ("cat", "species")


def test_a_column_of_ranks_in_an_edge_list(tmp_path):
    text = "parent,child,rank\n,Animalia,kingdom\nAnimalia,Felidae,family\nFelidae,Lynx,genus\nAnimalia,Worms,no rank\n"
    h, _ = read(tmp_path, text)
    assert [h.rank(s) for s in ("Animalia", "Felidae", "Lynx", "Worms")] == ["kingdom", "family", "genus", None]
    assert (h.rank_names, h.name("Lynx")) == (("kingdom", "family", "genus"), "Lynx")


@pytest.mark.parametrize(
    "cells",
    [("common", "rare", "common"), ("1", "2", "3"), ("rare", "rare", "common")],
    ids=["order", "numbers", "same"],
)
def test_a_column_called_rank_that_has_no_ranks_is_not_read_as_ranks(tmp_path, cells):
    rows = zip([("animal", "cat"), ("cat", "lynx"), ("lynx", "bobcat")], cells, strict=True)
    text = "parent,child,rank\n" + "".join(f"{p},{c},{cell}\n" for (p, c), cell in rows)
    h, notes = read(tmp_path, text)
    assert not h.ranks
    assert any("'rank'" in note for note in notes)
    assert h.name("cat") == "cat"


def test_a_chain_that_is_merged_keeps_its_ranks(species):
    h = species.collapse()
    assert h.merged("Vulpes vulpes") == (("Canidae", "Canidae"), ("Vulpes", "Vulpes"))
    assert (h.rank("Canidae"), h.rank("Vulpes"), h.rank("Vulpes vulpes")) == ("Family", "Genus", "Species")
    assert h.rank_names == species.rank_names
    assert h.with_ranks({"Lynx": "Genus"}).rank("Canidae") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.restrict(h.leaves),
        lambda h: h.as_tree("longest"),
        lambda h: h.collapse(),
        lambda h: h.with_classes(["Lynx", "Canidae"]),
        lambda h: h.collapse().restrict(h.leaves),
        lambda h: Hierarchy.from_json(h.collapse().to_json()),
        lambda h: pickle.loads(pickle.dumps(h)),
        lambda h: Hierarchy.from_networkx(h.to_networkx()),
        lambda h: branch(h.collapse(), h.root),
        lambda h: apply_edits(h, [Rename("Lynx", "lynxes"), Add("cats", "Felidae", ("Lynx",)), Collapse("Vulpes")]),
        lambda h: apply_edits(h, [Merge("Canidae", "Felidae"), Move("Vulpes", "Felidae")]),
    ],
)
def test_no_change_loses_a_rank_or_a_name(species, change):
    h = apply_edits(species, [Rename("Lynx lynx", "Eurasian lynx")])
    after = change(h)
    assert after.ranks == h.ranks
    assert after.rank_names == h.rank_names
    assert after.name("Lynx lynx") == "Eurasian lynx"


def test_a_new_id_has_the_rank_of_the_old_one(species):
    h = with_ids(species.collapse(), {"Lynx lynx": "class 7"})
    assert (h.rank("class 7"), h.rank("Canidae"), h.name("class 7")) == ("Species", "Family", "Lynx lynx")
    matched, _ = match_classes(species, ["Lynx_lynx"])
    assert (matched.rank("Lynx_lynx"), matched.rank_names) == ("Species", species.rank_names)


def test_a_class_that_is_an_inner_concept_has_its_rank(species):
    h = species.with_classes(["Lynx"])
    assert h.rank(h.leaf_of("Lynx")) == "Genus"


@pytest.mark.parametrize("ending", ["json", "csv", "tsv"])
def test_written_and_read(species, tmp_path, ending):
    h = apply_edits(species.with_columns(None), [Rename("Lynx lynx", "Eurasian lynx")])
    assert write_hierarchy(h, tmp_path / f"h.{ending}") == ()
    again = read_hierarchy(tmp_path / f"h.{ending}")
    assert again == h
    assert again.rank_names == h.rank_names


def test_a_format_that_cannot_hold_ranks_says_so(species, tmp_path):
    losses = write_hierarchy(species, tmp_path / "h.txt")
    assert losses == ("outline: the ranks of 16 concepts are lost",)


def test_files_without_ranks_stay_as_they_were(species):
    without = species.with_ranks({})
    assert '"ranks"' not in without.to_json()
    assert Hierarchy.from_json(without.to_json()).rank("Lynx") is None
    assert without.rank_names == ()


def test_invalid_ranks_are_rejected(species):
    with pytest.raises(HierarchyError, match=r"'Lyncs' is not a concept of this hierarchy.*'Lynx'"):
        species.with_ranks({"Lyncs": "Genus"})
    with pytest.raises(HierarchyError, match="rank of concept 'Lynx' must be a word such as 'family', got ''"):
        species.with_ranks({"Lynx": ""})
    with pytest.raises(HierarchyError, match="'Lyncs' is not a concept"):
        Hierarchy.from_json(species.to_json().replace('"Lynx": "Genus"', '"Lyncs": "Genus"'))
    with pytest.raises(HierarchyError, match="'Lynxes' is not a concept"):
        species.rank("Lynxes")


@pytest.mark.parametrize("collapsed", [False, True])
@pytest.mark.parametrize(
    ("concept", "rank", "answer"),
    [
        ("Lynx lynx", "Family", "Felidae"),
        ("Lynx lynx", "species", "Lynx lynx"),
        ("Felidae", "genus", "Felidae"),
        ("Vulpes vulpes", "family", "Canidae"),
        ("Vulpes vulpes", "GENUS", "Vulpes"),
        ("Iris sibirica", "Kingdom", "Plantae"),
    ],
)
def test_an_answer_at_a_rank_or_above(species, collapsed, concept, rank, answer):
    h = species.collapse() if collapsed else species
    assert h.at_rank(concept, rank)[0] == answer


def test_a_merged_concept_is_answered_through_the_one_it_is_merged_into(species):
    h = species.collapse()
    assert h.at_rank("Vulpes vulpes", "family") == ("Canidae", "Vulpes vulpes")
    assert species.at_rank("Vulpes vulpes", "family") == ("Canidae", "Canidae")
    assert h.lineage("Canidae") == {"Kingdom": "Animalia", "Order": "Carnivora", "Family": "Canidae"}
    assert h.lineage("Vulpes vulpes") == species.lineage("Vulpes vulpes")
    assert h.lineage("Felidae") == {"Kingdom": "Animalia", "Order": "Carnivora", "Family": "Felidae"}


def test_the_root_of_a_table_with_one_kingdom_is_part_of_the_lineage(tmp_path):
    file = tmp_path / "cats.csv"
    file.write_text("Kingdom,Family,Species\nAnimalia,Felidae,Lynx lynx\nAnimalia,Canidae,Canis lupus\n")
    h = read_hierarchy(file)
    assert h.root == "Animalia"
    assert h.lineage("Felidae") == {"Kingdom": "Animalia", "Family": "Felidae"}


def test_concepts_without_a_rank_are_above_a_rank_until_it_is_reached():
    edges = [("thing", "animals"), ("animals", "Felidae"), ("Felidae", "big cats"), ("big cats", "lion")]
    h = Hierarchy.from_edges([*edges, ("thing", "stone")]).with_ranks({"Felidae": "family", "lion": "species"})
    assert h.at_rank("lion", "family") == ("Felidae", "Felidae")
    assert h.at_rank("big cats", "species") == ("big cats", "big cats")
    assert h.at_rank("animals", "family") == ("animals", "animals")
    assert h.at_rank("stone", "family") == ("stone", "stone")
    only_low = h.with_ranks({"animals": "species"})
    assert only_low.with_ranks({"Felidae": "family", "animals": "species"}).at_rank("animals", "family") is None


def test_the_class_of_an_own_leaf_is_answered(species):
    h = species.with_classes(["Lynx"])
    assert h.at_rank(h.leaf_of("Lynx"), "species")[0] == "Lynx"
    assert h.lineage(h.leaf_of("Lynx"))["Genus"] == "Lynx"


def test_unknown_ranks_are_refused(species):
    with pytest.raises(
        HierarchyError, match=r"'famly' is not a rank of this hierarchy, which has .*Near matches: 'Family'"
    ):
        species.at_rank("Lynx", "famly")
    with pytest.raises(HierarchyError, match="rank 'family': the hierarchy has no ranks, which come from the titles"):
        species.with_ranks({}).at_rank("Lynx", "family")
