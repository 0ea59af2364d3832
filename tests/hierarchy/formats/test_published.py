"""Taxonomies in the dialects they are published in, rebuilt small with their dirt: read with the counts expected."""

from pathlib import Path

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy
from hcep.hierarchy.files import read_described

HERE = Path(__file__).parent / "published"
# file: (synsets, classes, what it is taken for, a path to a class by names)
# ruff: noqa: E501
EXPECTED = {
    "google-product-taxonomy.txt": (12, 6, "breadcrumbs separated by '>', with ids", "Pet Supplies/Bird Supplies/Bird Cages & Stands"),
    "shop-categories.txt": (10, 4, "breadcrumbs separated by '>', with ids", "Pet Supplies/Cat Supplies/Accessories"),
    "find-directories.txt": (9, 4, "breadcrumbs separated by '/'", "animals/cats/tabby"),
    "sequence-like.obo": (4, 2, "OBO ontology", "gene/tRNA gene"),
    "thesaurus.ttl": (6, 3, "SKOS or RDFS", "pets/cats"),
    "pizza-like.owl": (4, 2, "OWL ontology", "pizza/http:§§food.example§onto#Margherita"),
    "consensus.tre": (7, 4, "Newick tree", "inner 2/Pinaroloxias inornata"),
    "mrbayes.nex": (6, 4, "NEXUS tree 'con_50_majrule'", "inner 2/Homo_sapiens"),
    "inaturalist.csv": (28, 5, "level columns kingdom > phylum > class > order > family > genus > name", "Moraceae/Morus/Morus alba"),
    "wordnet.is_a.txt": (7, 3, "edge list, parent in 'column 1', child in 'column 2'", "n00015388/n02084071"),
    "darwin-core-taxon.txt": (7, 2, "edge list, parent in 'parentNameUsageID', child in 'taxonID', name in 'scientificName'", "Felidae/Felis/Felis catus"),
    "r-data-frame.csv": (17, 4, "level columns Kingdom > Phylum > Class > Order > Family > Genus > Scientific.Name", "Felidae/Felis/Felis silvestris"),
    "many-ranks-lowest-first.csv": (23, 3, "level columns Phylum > Superclass > Class > Subclass > Superorder > Order > Suborder > Infraorder > Superfamily > Family > Genus > Species", "Papilionoidea/Pieridae/Pieris/Pieris rapae"),
    "museum-subjects.csv": (7, 3, "edge list, parent in 'parentId', child in 'childId', name in 'childName'", "people/children/baby"),
    "lecture-topics.tsv": (5, 3, "edge list, parent in 'parent_topic', child in 'id', name in 'topic_name'", "Linguistics/Syntax"),
    "checklist.csv": (9, 4, "level columns ORDER > FAMILY > SCI_NAME", "Rheidae (Rheas)/Rhea americana"),
    "aircraft.csv": (10, 4, "level columns level_1 > level_2 > level_3", "Boeing/737-300"),
    "sound-events.json": (6, 3, "JSON records, ids of children in 'child_ids'", "Human sounds/Human voice/Speech"),
    "obo-graph.json": (4, 2, "JSON graph of nodes and edges", "neuron/motor neuron"),
    "detection-labels.json": (5, 3, "nested JSON", "§m§0k4j/§m§01knjb"),
    "package-records.json": (5, 2, "edge list, parent in 'parent', child in 'id', name in 'name'", "analytics/cluster/AgglomerativeCluster"),
    "package-paths.csv": (7, 3, "breadcrumbs separated by '.' in column 'id'", "analytics/cluster/Community"),
    "advert-content.tsv": (8, 5, "edge list, parent in 'Parent', child in 'Unique ID', name in 'Name'", "Attractions/Bars"),
    "advert-products.tsv": (7, 3, "edge list, parent in 'Parent ID', child in 'Unique ID', name in 'Name'", "Alcohol/Beer/Stout"),
    "advert-codes.tsv": (6, 3, "outline, depth in 'Tier', name in 'IAB Category'", "Arts/Celebrity"),
    "commodity-codes.csv": (13, 4, "level columns Segment Name > Family Name > Class Name > Commodity Name", "Live animals/Livestock/Dogs"),
    "dotted-codes.csv": (7, 4, "codes in column 'code', name in 'title'", "Mammals/Dogs"),
    "arrows.txt": (6, 3, "breadcrumbs separated by '->'", "Mammals/Dog"),
    "arrow-edges.txt": (4, 2, "edges, parent -> child", "cat/siamese"),
    "grouped-header.csv": (6, 3, "level columns Order > Family > Species", "Felidae/lion"),
    "disease-codes.csv": (7, 4, "codes in column 'code', name in 'description'", "Cholera/Cholera due to E"),
    "markdown-table.md": (6, 3, "level columns Kingdom > Class > Species", "Mammalia/dog"),
    "triples.tsv": (4, 2, "edge list, parent in 'column 3', child in 'column 1'", "<cat>/<lion>"),
    "places.txt": (8, 4, "breadcrumbs separated by '/'", "bakery/shop"),
    "codon-marks.tree": (5, 3, "Newick tree", "inner 2/chimp"),
    "thesaurus-with-kinds.ttl": (3, 2, "SKOS or RDFS", "carp"),
}  # fmt: skip
NEEDS = {"owl": "rdflib", "ttl": "rdflib"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_published_taxonomy(name):
    pytest.importorskip(NEEDS.get(name.rsplit(".", 1)[1], "json"), reason="comes with the extra formats")
    n_synsets, n_classes, understood, path = EXPECTED[name]
    told = []
    hierarchy = read_hierarchy(HERE / name, on_note=told.append)
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
    hierarchy = read_hierarchy(tmp_path / "photos", on_note=told.append)
    assert hierarchy.leaves == ("owl", "raven", "lion", "tabby")
    assert told == ["photos: folder tree, 4 levels, 4 classes"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "cat\ndog\nand/or gate\n",
            "h.txt: outline, flat, 3 classes; if the lines are paths, pass -O format=breadcrumbs",
        ),
        ("tench, Tinca tinca\ngoldfish, Carassius auratus\n", "h.txt: outline, flat, 2 classes; if the lines are"),
    ],
)
def test_a_flat_list_is_never_silent(text, sentence, tmp_path):
    (tmp_path / "h.txt").write_text(text)
    told = []
    read_hierarchy(tmp_path / "h.txt", on_note=told.append)
    assert told[0].startswith(sentence)


DIALECTS = {
    "marks.txt": ("* Animals\n** Cats\n*** lion\n** Dogs\n* Plants\n** Rose\n", "outline, 3 levels, 3 classes"),
    "dashes.txt": ("Animals\n-Cats\n--lion\n-Dogs\nPlants\n-Rose\n", "outline, 3 levels, 3 classes"),
    "numbers.txt": ("1 Animals\n1.1 Cats\n1.1.1 lion\n1.2 Dogs\n2 Plants\n2.1 Rose\n", "outline, 3 levels, 3 classes"),
    "arrows.txt": (
        "Animals → Cats → lion\nAnimals → Dogs\nPlants → Rose\n",
        "breadcrumbs separated by '→', 3 levels, 3 classes; if the lines are not paths, pass -O format=outline",
    ),
    "colons.txt": (
        "Animals::Cats::lion\nAnimals::Dogs\nPlants::Rose\nPlants\n",
        "breadcrumbs separated by '::', 3 levels, 3 classes; if the lines are not paths, pass -O format=outline",
    ),
    "bars.txt": (
        "Animals|Cats|lion\nAnimals|Dogs\nPlants|Rose\n",
        "breadcrumbs separated by '|', 3 levels, 3 classes; if the lines are not paths, pass -O format=outline",
    ),
    "lineages.tsv": (
        "Feature ID\tTaxon\tConfidence\nx1\tAnimals; Cats; lion\t0.9\nx2\tAnimals; Dogs\t0.8\n"
        "x3\tPlants; Rose\t0.7\nx4\tAnimals; Dogs\t0.6\n",
        "breadcrumbs separated by ';' in column 'Taxon', 3 levels, 3 classes",
    ),
    "records.json": (
        '[{"Group": "Animals", "Family": "Cats", "Kind": "lion"}, {"Group": "Animals", "Family": "Dogs", "Kind": null},'
        ' {"Group": "Plants", "Family": "Rose", "Kind": null}]',
        "level columns Group > Family > Kind, 3 levels, 3 classes",
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_one_tree_in_many_dialects(name, tmp_path):
    text, sentence = DIALECTS[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    hierarchy, told = read_described(tmp_path / name)
    assert told.startswith(f"{name}: {sentence}")
    assert {hierarchy.paths(leaf)[0] for leaf in hierarchy.leaves} == {
        ("Animals", "Cats", "lion"),
        ("Animals", "Dogs"),
        ("Plants", "Rose"),
    }


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        (
            "ids.txt",
            "1 - A\n2 - A > B\n3 - A > C\nD > E\n",
            r"ids\.txt, line 4: has no id at the start, although other lines do",
        ),
        (
            "empty.txt",
            "A > B\nA > C\nA > > D\n",
            r"empty\.txt, line 3: expected categories separated by '>', none of them empty",
        ),
    ],
)
def test_breadcrumbs_that_do_not_fit_together(name, text, match, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(HierarchyError, match=match):
        read_described(tmp_path / name)


def test_breadcrumbs_by_their_options(tmp_path):
    (tmp_path / "h.txt").write_text("animals-cats-lion\nanimals-dogs\n")
    assert read_described(tmp_path / "h.txt")[1].startswith(
        "h.txt: outline, flat, 2 classes; if the lines are paths, pass"
    )
    found, _ = read_described(tmp_path / "h.txt", format="breadcrumbs", separator="-")
    assert found.parents("lion") == ("cats",)
    (tmp_path / "h.txt").write_text("1 - A\n2 - A > B\n3 - A > C\n")
    assert read_described(tmp_path / "h.txt")[0].leaves == ("2", "3")
    (tmp_path / "h.txt").write_text("cat\ndog\n")
    with pytest.raises(HierarchyError, match=r"has no '>', .* between categories in most lines; pass separator="):
        read_described(tmp_path / "h.txt", format="breadcrumbs")


def test_several_parents_in_one_cell(tmp_path):
    (tmp_path / "h.csv").write_text("child,parent\ncat,animal;pet\ndog,animal\nanimal,thing\npet,thing\n")
    told = []
    hierarchy = read_hierarchy(tmp_path / "h.csv", on_note=told.append)
    assert hierarchy.parents("cat") == ("animal", "pet")
    assert "several parents in one cell: 1 row" in told


@pytest.mark.parametrize(
    ("text", "understood"),
    [
        ('{"Animals": {"Cats": ["lion"], "Dogs": []}, "Plants": ["Rose"]}\n', "nested JSON"),
        ("(((lion)Cats,Dogs)Animals,(Rose)Plants)all;\n", "Newick tree"),
    ],
)
def test_what_a_text_file_holds_tells_its_format(text, understood, tmp_path):
    (tmp_path / "h.txt").write_text(text)
    hierarchy, told = read_described(tmp_path / "h.txt")
    assert told.startswith(f"h.txt: {understood}, ")
    assert {hierarchy.paths(leaf)[0] for leaf in hierarchy.leaves} >= {("Animals", "Cats", "lion"), ("Plants", "Rose")}


def test_a_wide_table_of_measurements_is_refused(tmp_path):
    rows = ["site,date,x,y,link", *(f"s{i},2026-01-{i + 10},{i},{i // 2},http://a.example/{i % 3}/b" for i in range(9))]
    (tmp_path / "h.csv").write_text("\n".join(rows))
    with pytest.raises(HierarchyError, match=r"h\.csv, line 1: .*(nor level columns|a level, or something else)"):
        read_described(tmp_path / "h.csv")
