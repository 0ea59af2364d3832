"""Level columns: taxonomies with a column a rank, as iNaturalist, COCO and many museums publish them."""

import json

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")


def species(number, name, common, *ranks):
    """A record as in iNaturalist 2021's categories."""
    return {
        "id": number,
        "name": name,
        "common_name": common,
        "supercategory": ranks[2],
        **dict(zip(RANKS, ranks, strict=True)),
        "specific_epithet": name.split()[1],
        "image_dir_name": f"{number:05d}_{'_'.join(ranks)}_{name.split()[1]}",
    }


CAT = species(0, "Felis catus", "House Cat", "Animalia", "Chordata", "Mammalia", "Carnivora", "Felidae", "Felis")
LION = species(1, "Panthera leo", "Lion", "Animalia", "Chordata", "Mammalia", "Carnivora", "Felidae", "Panthera")
# Two genera are called Morus: gannets, and mulberries.
GANNET = species(
    2, "Morus bassanus", "Northern Gannet", "Animalia", "Chordata", "Aves", "Suliformes", "Sulidae", "Morus"
)
MULBERRY = species(
    3, "Morus alba", "White Mulberry", "Plantae", "Tracheophyta", "Magnoliopsida", "Rosales", "Moraceae", "Morus"
)
RECORDS = [CAT, LION, GANNET, MULBERRY]


@pytest.fixture(params=["categories.json", "train.json"])
def inaturalist(request, tmp_path):
    """The list itself, and as it stands in the annotations."""
    content = {"categories.json": RECORDS, "train.json": {"info": {}, "images": [], "categories": RECORDS}}
    (tmp_path / request.param).write_text(json.dumps(content[request.param]))
    return tmp_path / request.param


def test_inaturalist(inaturalist):
    h = read_hierarchy(inaturalist)
    assert h.leaves == ("Felis catus", "Panthera leo", "Morus bassanus", "Morus alba")
    assert h.paths("Felis catus") == (
        ("Animalia", "Chordata", "Mammalia", "Carnivora", "Felidae", "Felis", "Felis catus"),
    )
    assert h.children("(root)") == ("Animalia", "Plantae")


def test_a_name_of_two_taxa_gets_two_ids(inaturalist):
    h = read_hierarchy(inaturalist)
    assert h.parents("Morus bassanus") == ("Sulidae/Morus",)
    assert h.parents("Morus alba") == ("Moraceae/Morus",)
    assert h.name("Moraceae/Morus") == "Morus"


def test_the_ids_of_the_classes_may_come_from_another_column(inaturalist):
    h = read_hierarchy(inaturalist, leaf="image_dir_name", name="common_name")
    assert h.leaves[1] == "00001_Animalia_Chordata_Mammalia_Carnivora_Felidae_Panthera_leo"
    assert h.name(h.leaves[1]) == "Lion"
    assert read_hierarchy(inaturalist, leaf="id").name("1") == "Panthera leo"


def test_coco(tmp_path):
    categories = [
        {"id": 1, "name": "cat", "supercategory": "animal"},
        {"id": 2, "name": "car", "supercategory": "vehicle"},
    ]
    (tmp_path / "instances.json").write_text(json.dumps({"images": [], "categories": categories}))
    assert set(read_hierarchy(tmp_path / "instances.json").edges) >= {("animal", "cat"), ("vehicle", "car")}


@pytest.mark.parametrize(("ending", "apart"), [("csv", ","), ("tsv", "\t")])
def test_a_table_with_ranks_in_its_header(ending, apart, tmp_path):
    rows = [
        "Family,Genus,Species,note",
        "Felidae,Felis,catus,tame",
        "Felidae,Panthera,leo,",
        "Felidae,,jubatus,no genus",
    ]
    (tmp_path / f"h.{ending}").write_text("\r\n".join(row.replace(",", apart) for row in rows), newline="")
    assert set(read_hierarchy(tmp_path / f"h.{ending}").edges) == {
        ("Felidae", "Felis"),
        ("Felis", "catus"),
        ("Felidae", "Panthera"),
        ("Panthera", "leo"),
        ("Felidae", "jubatus"),
    }


def test_levels_given_by_the_user(tmp_path):
    (tmp_path / "shop.csv").write_text("sku,department,shelf\n17,food,bread\n18,food,milk\n19,toys,bread\n")
    h = read_hierarchy(tmp_path / "shop.csv", levels=["department", "shelf"], leaf="sku")
    assert set(h.edges) >= {("food", "17"), ("food", "18"), ("toys", "19")}
    assert h.name("17") == "bread"
    deeper = read_hierarchy(tmp_path / "shop.csv", levels=["department", "shelf", "sku"])
    assert deeper.parents("19") == ("toys/bread",)
    assert read_hierarchy(tmp_path / "shop.csv", levels=["department", "shelf"], format="levels").leaves == (
        "food/bread",
        "milk",
        "toys/bread",
    )


def test_missing_columns(tmp_path):
    (tmp_path / "shop.csv").write_text("sku,department\n17,food\n")
    with pytest.raises(HierarchyError, match=r"shop\.csv: has no column 'departement'; .* Near matches: 'department'"):
        read_hierarchy(tmp_path / "shop.csv", levels=["departement", "sku"])
    with pytest.raises(
        HierarchyError, match=r"none of the columns 'sku', 'department' is known as a level; pass levels="
    ):
        read_hierarchy(tmp_path / "shop.csv", format="levels")


def test_invalid_records(tmp_path):
    (tmp_path / "h.json").write_text('{"categories": [1, 2]}')
    with pytest.raises(HierarchyError, match=r'h\.json: expected a list of records such as \{"kingdom"'):
        read_hierarchy(tmp_path / "h.json", format="levels")


@pytest.mark.parametrize("header", ["level1,level2,level10", "Level_1,Level_2,Level_3"])
def test_numbered_levels_highest_first(tmp_path, header):
    (tmp_path / "h.csv").write_text(f"{header}\nanimal,mammal,cat\nanimal,mammal,dog\nvehicle,car,\n")
    h = read_hierarchy(tmp_path / "h.csv")
    assert h.leaves == ("car", "cat", "dog")
    assert h.parents("cat") == ("mammal",)
    assert h.parents("mammal") == ("animal",)
    assert "level1" not in h


def test_columns_that_are_not_levels_name_the_command_line_option(tmp_path):
    (tmp_path / "h.csv").write_text("a,b\nx,y\n")
    with pytest.raises(HierarchyError, match=r"is known as a level; pass levels=\[highest, \.\.\.\] \(-O levels="):
        read_hierarchy(tmp_path / "h.csv", format="levels")


def test_a_rank_that_no_row_has_is_skipped(tmp_path):
    (tmp_path / "h.csv").write_text("kingdom,phylum,class,species\nAnimalia,,Mammalia,cat\nAnimalia,,Aves,owl\n")
    assert read_hierarchy(tmp_path / "h.csv").paths("cat") == (("Mammalia", "cat"),)
