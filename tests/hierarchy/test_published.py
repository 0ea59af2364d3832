"""Taxonomies in the dialects they are published in, rebuilt small with their dirt: read with the counts expected."""

from pathlib import Path

import pytest

from hcep.hierarchy import read_hierarchy

HERE = Path(__file__).parent / "published"
# file: (synsets, classes, what it is taken for, a path to a class by names)
# ruff: noqa: E501
EXPECTED = {
    "google-product-taxonomy.txt": (12, 6, "breadcrumbs apart by '>', with ids", "Pet Supplies/Bird Supplies/Bird Cages & Stands"),
    "shop-categories.txt": (10, 4, "breadcrumbs apart by '>', with ids", "Pet Supplies/Cat Supplies/Accessories"),
    "find-directories.txt": (9, 4, "breadcrumbs apart by '/'", "animals/cats/tabby"),
    "sequence-like.obo": (4, 2, "OBO ontology", "gene/tRNA gene"),
    "thesaurus.ttl": (6, 3, "SKOS or RDFS", "pets/cats"),
    "pizza-like.owl": (4, 2, "OWL ontology", "pizza/http:§§food.example§onto#Margherita"),
    "consensus.tre": (7, 4, "Newick tree", "inner 2/Pinaroloxias inornata"),
    "mrbayes.nex": (6, 4, "NEXUS tree 'con_50_majrule'", "inner 2/Homo_sapiens"),
    "inaturalist.csv": (28, 5, "level columns kingdom > phylum > class > order > family > genus > name", "Moraceae/Morus/Morus alba"),
    "wordnet.is_a.txt": (7, 3, "edge list, parent in 'column 1', child in 'column 2'", "n00015388/n02084071"),
    "darwin-core-taxon.txt": (7, 2, "edge list, parent in 'parentNameUsageID', child in 'taxonID', name in 'scientificName'", "Felidae/Felis/Felis catus"),
    "aircraft.csv": (10, 4, "level columns level_1 > level_2 > level_3", "Boeing/737-300"),
}  # fmt: skip
NEEDS = {"obo": "pronto", "owl": "pronto", "ttl": "rdflib"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_published_taxonomy(name):
    pytest.importorskip(NEEDS.get(name.rsplit(".", 1)[1], "json"), reason="comes with the extra formats")
    n_synsets, n_classes, understood, path = EXPECTED[name]
    told = []
    hierarchy = read_hierarchy(HERE / name, told=told.append)
    assert (len(hierarchy), len(hierarchy.leaves)) == (n_synsets, n_classes)
    assert told[0].startswith(f"{name}: {understood}, ")
    named = {tuple(map(hierarchy.name, path)) for leaf in hierarchy.leaves for path in hierarchy.paths(leaf)}
    assert tuple(part.replace("§", "/") for part in path.split("/")) in {
        found[-path.count("/") - 1 :] for found in named
    }


def test_a_folder_of_images_is_a_tree(tmp_path):
    for folder in ("birds/owl", "birds/raven", "mammals/cats/lion", "mammals/cats/tabby", "mammals/.cache"):
        (tmp_path / "photos" / folder).mkdir(parents=True)
    (tmp_path / "photos" / "birds" / "owl" / "1.jpg").touch()
    told = []
    hierarchy = read_hierarchy(tmp_path / "photos", told=told.append)
    assert hierarchy.leaves == ("owl", "raven", "lion", "tabby")
    assert told == ["photos: folder tree, 4 levels, 4 classes"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "cat\ndog\nand/or gate\n",
            "h.txt: outline, flat, 3 classes; if the lines are paths, pass --format breadcrumbs",
        ),
        ("tench, Tinca tinca\ngoldfish, Carassius auratus\n", "h.txt: outline, flat, 2 classes; if the lines are"),
    ],
)
def test_a_flat_list_is_never_silent(text, sentence, tmp_path):
    (tmp_path / "h.txt").write_text(text)
    told = []
    read_hierarchy(tmp_path / "h.txt", told=told.append)
    assert told[0].startswith(sentence)
