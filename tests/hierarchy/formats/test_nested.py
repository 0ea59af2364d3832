"""Branches inside branches: the shapes of JSON that people write."""

import json

import pytest

from hcep import Hierarchy, HierarchyError, read_hierarchy
from hcep.hierarchy import write_hierarchy

PETS = {("thing", "animal"), ("thing", "vehicle"), ("animal", "cat"), ("animal", "dog"), ("vehicle", "car")}
SHAPES = {
    "objects": {"thing": {"animal": {"cat": {}, "dog": None}, "vehicle": {"car": {}}}},
    "lists": {"thing": [{"animal": ["cat", "dog"]}, {"vehicle": ["car"]}]},
    "a name alone": {"thing": {"animal": ["cat", {"dog": None}], "vehicle": "car"}},
    "records": {
        "name": "thing",
        "children": [
            {"name": "animal", "children": [{"name": "cat", "value": 3}, {"name": "dog", "children": []}]},
            {"name": "vehicle", "children": ["car"]},
        ],
    },
    "records by other words": {
        "title": "thing",
        "nodes": [
            {"title": "animal", "nodes": [{"title": "cat"}, {"title": "dog", "nodes": []}]},
            {"title": "vehicle", "nodes": ["car"]},
        ],
    },
    "a list of records": [{"name": "thing", "children": [{"animal": ["cat", "dog"]}, {"vehicle": ["car"]}]}],
}


@pytest.fixture(params=["nested.json", "json"])
def read(request, tmp_path):
    """Read Python objects through a file."""

    def through_a_file(data, **options):
        file = tmp_path / f"h.{request.param}"
        file.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
        return read_hierarchy(file, **options)

    return through_a_file


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, read):
    assert set(read(SHAPES[shape]).edges) == PETS


OTHER_SHAPES = {
    "child to parent": {"cat": "animal", "dog": "animal", "car": "vehicle", "animal": "thing", "vehicle": "thing"},
    "concept to children": {"thing": ["animal", "vehicle"], "animal": ["cat", "dog"], "vehicle": ["car"]},
    "pairs": sorted(map(list, PETS)),
    "nodes and links": {
        "directed": True,
        "nodes": [{"id": synset} for synset in sorted({end for edge in PETS for end in edge})],
        "links": [{"source": parent, "target": child} for parent, child in sorted(PETS)],
    },
    "paths": ["thing/animal/cat", "thing/animal/dog", "thing/vehicle/car"],
    "class to lineage": {"cat": ["thing", "animal"], "dog": ["thing", "animal"], "car": ["thing", "vehicle"]},
    "class to ranks": {
        "cat": {"kingdom": "thing", "class": "animal"},
        "dog": {"kingdom": "thing", "class": "animal"},
        "car": {"kingdom": "thing", "class": "vehicle"},
    },
    "ids of children by id": {
        "thing": {"name": "thing", "children": ["animal", "vehicle"]},
        "animal": {"name": "animal", "children": ["cat", "dog"]},
        "vehicle": {"name": "vehicle", "children": ["car"]},
        **{leaf: {"name": leaf, "children": []} for leaf in ("cat", "dog", "car")},
    },
    "parents by id": {"thing": {"parent": None}, **{c: {"parent": p} for p, c in sorted(PETS)}},
    "ids of parents": [{"id": "thing", "parents": []}, *({"id": c, "parents": [p]} for p, c in sorted(PETS))],
}


@pytest.mark.parametrize("shape", OTHER_SHAPES)
def test_shapes_that_are_not_nested(shape, tmp_path):
    (tmp_path / "h.json").write_text(json.dumps(OTHER_SHAPES[shape]), encoding="utf-8")
    assert set(read_hierarchy(tmp_path / "h.json").edges) == PETS


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"n01": "tench", "n02": "goldfish"},
            r"h\.json: it maps every name to a different one: ids and their names",
        ),
        ({"cat": "feline", "feline": "animal"}, r"h\.json: it maps every name to a different one"),
        ({"names": {"0": "person", "1": "car"}}, r"h\.json: it maps numbers to names, which is a list of classes"),
    ],
)
def test_maps_that_are_not_a_hierarchy(data, sentence, tmp_path):
    (tmp_path / "h.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(HierarchyError, match=sentence):
        read_hierarchy(tmp_path / "h.json")


def test_ids_identify(read):
    cat = {"id": "n1", "name": "cat"}
    h = read({"name": "r", "children": [{"name": "pet", "children": [cat]}, {"name": "feline", "children": [cat]}]})
    assert h.parents("n1") == ("pet", "feline")
    assert h.name("n1") == "cat"


def test_numbers_may_be_ids(read):
    h = read({"id": 1, "name": "animal", "children": [{"id": 2, "name": "cat"}, {"id": 3, "name": "dog"}]})
    assert h.edges == (("1", "2"), ("1", "3"))
    assert h.name("2") == "cat"


def test_several_tops_get_a_virtual_root(read):
    assert read({"animal": ["cat"], "vehicle": ["car"]}).children("(root)") == ("animal", "vehicle")
    assert read(["cat", "dog"]).edges == (("(root)", "cat"), ("(root)", "dog"))
    assert read({"(root)": ["cat"], "dog": []}).root == "((root))"


def test_a_map_of_classes_to_paths(tmp_path):
    paths = {"a1": "Animals/Cats/lion", "a2": "Animals/Cats/tiger", "a3": "Animals/Dogs/wolf"}
    (tmp_path / "h.json").write_text(json.dumps(paths), encoding="utf-8")
    h = read_hierarchy(tmp_path / "h.json")
    assert h.leaves == ("a1", "a2", "a3")
    assert h.name("a3") == "wolf"


def test_groups_of_one_size_are_not_lineages(tmp_path):
    groups = {"pet": ["cat", "dog"], "farm": ["cow", "pig"], "wild": ["fox", "elk"]}
    (tmp_path / "h.json").write_text(json.dumps(groups), encoding="utf-8")
    assert set(read_hierarchy(tmp_path / "h.json").leaves) == {"cat", "dog", "cow", "pig", "fox", "elk"}


def test_a_repeated_name(read):
    data = {"bird": ["crane", "robin"], "machine": ["crane"]}
    with pytest.raises(
        HierarchyError, match=r"'crane' appears below 'machine' and below 'bird'; pass repeated='merge'"
    ):
        read(data)
    assert read(data, repeated="merge").parents("crane") == ("bird", "machine")
    qualified = read(data, repeated="qualify")
    assert qualified.leaves == ("bird/crane", "robin", "machine/crane")
    assert qualified.name("machine/crane") == "crane"


def test_qualified_ids_reach_as_far_up_as_they_must(read):
    data = {"old": {"bird": ["crane"]}, "new": {"bird": ["crane"]}}
    assert read(data, repeated="qualify").leaves == ("old/bird/crane", "new/bird/crane")


def test_qualified_ids_that_no_path_tells_apart(read):
    data = {"a": {"b/c": [], "x": ["b/c"]}, "a/b": ["c"], "y": ["c"]}
    ids = read(data, repeated="qualify").ids
    assert len(set(ids)) == len(ids) == 9


def test_a_deep_hierarchy(tmp_path):
    deep = Hierarchy.from_edges([(f"s{i}", f"s{i + 1}") for i in range(1_000)])
    with pytest.raises(HierarchyError, match=r"nested JSON cannot hold 1,000 levels; write \.csv or \.json"):
        write_hierarchy(deep, tmp_path / "h.nested.json")
    write_hierarchy(deep, tmp_path / "h.json")
    assert read_hierarchy(tmp_path / "h.json") == deep


def test_an_index_of_classes_is_refused(tmp_path):
    (tmp_path / "map.json").write_text('{"0": "cat", "1": "dog", "2": "car"}', encoding="utf-8")
    with pytest.raises(HierarchyError, match=r"map.json.* it maps numbers to names, which is a list of classes"):
        read_hierarchy(tmp_path / "map.json")
