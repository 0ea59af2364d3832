import json

import pytest

from hcep import Hierarchy, HierarchyError


@pytest.fixture
def everything():
    """Names, two parents, merged names, a class that is an inner synset."""
    edges = [("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "m"), ("m", "y"), ("y", "z"), ("a", "w")]
    h = Hierarchy.from_edges(edges, {"a": "animal", "y": "chien 🐕"})
    return h.restrict(["x", "y", "z", "w"]).collapse()


def document(**changes):
    """The smallest file, with some of its parts replaced."""
    synsets = [{"id": "r"}, {"id": "a", "parents": ["r"]}]
    return json.dumps({"format": "hcep-hierarchy", "version": 1, "root": "r", "synsets": synsets, **changes})


def with_synset(**synset):
    """The smallest file and one more synset."""
    return document(synsets=[{"id": "r"}, {"id": "a", "parents": ["r"]}, synset])


def test_the_text(diamond):
    text = diamond.restrict(["cat"]).to_json()
    assert text == (
        "{\n"
        '  "format": "hcep-hierarchy",\n'
        '  "version": 1,\n'
        '  "root": "root",\n'
        '  "classes": {},\n'
        '  "synsets": [\n'
        '    {"id": "root"},\n'
        '    {"id": "pet", "parents": ["root"]},\n'
        '    {"id": "feline", "parents": ["root"]},\n'
        '    {"id": "cat", "parents": ["pet", "feline"]}\n'
        "  ]\n"
        "}\n"
    )


def test_everything_comes_back(everything):
    assert everything.merged("y") == (("m", "m"),)
    assert everything.leaf_of("y") == "y (unspecified)"
    assert Hierarchy.from_json(everything.to_json()) == everything


def test_through_a_file(everything, tmp_path):
    path = tmp_path / "h.json"
    text = everything.to_json(path)
    assert path.read_text(encoding="utf-8") == text
    assert Hierarchy.from_json(path) == Hierarchy.from_json(str(path)) == everything


def test_the_smallest_file():
    assert Hierarchy.from_json(document()).edges == (("r", "a"),)


def test_the_order_of_the_file_is_the_order_of_the_ids():
    synsets = [{"id": "b", "parents": ["r"]}, {"id": "r"}, {"id": "a", "parents": ["r"]}]
    assert Hierarchy.from_json(document(synsets=synsets)).ids == ("r", "b", "a")


def test_the_dag_above_imagenet_comes_back(wordnet_dag):
    assert Hierarchy.from_json(wordnet_dag.to_json()) == wordnet_dag


@pytest.mark.parametrize(
    "text",
    ["{", "{}x", '{"a": ' + "[" * 100_000, '{"a": ' + "1" * 5_000 + "}"],
    ids=["open", "more after it", "too deep", "a number too long"],
)
def test_invalid_json(text):
    with pytest.raises(HierarchyError, match="not a hierarchy file: invalid JSON"):
        Hierarchy.from_json(text)


@pytest.mark.parametrize("text", ["{}", '{"format": "other"}'])
def test_another_format(text):
    with pytest.raises(HierarchyError, match='expected a JSON object with "format": "hcep-hierarchy"'):
        Hierarchy.from_json(text)


def test_a_file_with_a_list(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(HierarchyError, match="expected a JSON object"):
        Hierarchy.from_json(tmp_path / "list.json")


def test_a_later_version():
    with pytest.raises(HierarchyError, match="version 2; this release reads version 1: upgrade hcep"):
        Hierarchy.from_json(document(version=2))


def test_no_such_file(tmp_path):
    with pytest.raises(HierarchyError, match=r"no hierarchy file at '.*absent.json'"):
        Hierarchy.from_json(tmp_path / "absent.json")


def test_a_directory(tmp_path):
    with pytest.raises(HierarchyError, match="is not a hierarchy file: Is a directory"):
        Hierarchy.from_json(tmp_path)


def test_a_file_in_another_encoding(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"format": "\xe9"}')
    with pytest.raises(HierarchyError, match="is not a hierarchy file: 'utf-8' codec"):
        Hierarchy.from_json(tmp_path / "latin.json")


@pytest.mark.parametrize("text", ["x" * 5_000, "a\0b"], ids=["long", "zero byte"])
def test_text_that_is_neither_json_nor_a_path(text):
    with pytest.raises(HierarchyError, match=r"is not a hierarchy file: (File name too long|embedded null byte)"):
        Hierarchy.from_json(text)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"root": 3}, "root must be a string, got 3"),
        ({"synsets": {}}, "synsets must be a list"),
        ({"synsets": None}, "synsets must be a list"),
        ({"classes": ["a"]}, "classes must be a JSON object"),
        ({"classes": {"a": 1}}, "classes.a must be a string, got 1"),
        ({"synsets": [{"id": "r"}, "b"]}, r"synsets\[1\] must be a JSON object, got 'b'"),
        ({"synsets": [{"id": "r"}, None]}, r"synsets\[1\] must be a JSON object, got None"),
        ({"synsets": [{"id": "r"}, {}]}, r"field 'synsets\[1\].id' is missing"),
        ({"synsets": [{"id": "r"}, {"id": 3}]}, r"synsets\[1\].id must be a string, got 3"),
    ],
)
def test_fields_of_the_wrong_type(changes, told):
    with pytest.raises(HierarchyError, match=f"hierarchy file: {told}"):
        Hierarchy.from_json(document(**changes))


def test_a_synset_that_appears_twice():
    with pytest.raises(HierarchyError, match="concept 'a' appears twice"):
        Hierarchy.from_json(with_synset(id="a", parents=["r"]))


def test_a_name_that_is_not_a_string():
    with pytest.raises(HierarchyError, match=r"synsets\[2\].name must be a string, got 3"):
        Hierarchy.from_json(with_synset(id="b", parents=["r"], name=3))


@pytest.mark.parametrize("parents", ["r", [3], {"r": 1}])
def test_parents_that_are_no_list_of_ids(parents):
    with pytest.raises(
        HierarchyError, match=r"synsets\[2\].parents(\[0\] must be a string| must be a list of ids), got"
    ):
        Hierarchy.from_json(with_synset(id="b", parents=parents))


@pytest.mark.parametrize("merged", ["x", [["x"]], [["x", 3]], ["xy"]])
def test_merged_names_that_are_not_pairs(merged):
    with pytest.raises(HierarchyError, match=r"synsets\[2\].merged(\[0\]\S*)? must be (a list|a string)"):
        Hierarchy.from_json(with_synset(id="b", parents=["r"], merged=merged))


def test_a_synset_that_is_unreachable():
    with pytest.raises(HierarchyError, match="concept 'b' has no parents and is not the root 'r'"):
        Hierarchy.from_json(with_synset(id="b"))


@pytest.mark.parametrize(
    "text", [document(root="q", synsets=[]), document(classes={"cat": "q"}), with_synset(id="b", parents=["q"])]
)
def test_a_synset_that_is_referenced_but_missing(text):
    with pytest.raises(HierarchyError, match="'q' is a root, parent or class but is not in"):
        Hierarchy.from_json(text)


def test_a_class_whose_leaf_is_an_inner_synset():
    with pytest.raises(HierarchyError, match="the leaf of class 'cat' is 'r', which has concepts below it"):
        Hierarchy.from_json(document(classes={"cat": "r"}))


def test_a_cycle_in_a_file():
    with pytest.raises(HierarchyError, match="cycle"):
        Hierarchy.from_json(document(synsets=[{"id": "r", "parents": ["a"]}, {"id": "a", "parents": ["r"]}]))


def test_a_file_with_a_root_alone():
    with pytest.raises(HierarchyError, match="the hierarchy is empty"):
        Hierarchy.from_json(document(synsets=[{"id": "r"}]))


def test_a_file_that_names_the_own_leaf_of_a_class_is_read(everything):
    """As versions before 0.2 wrote it: the leaf is now shown by the name of its class."""
    text = everything.to_json()
    old = text.replace('{"id": "y (unspecified)"', '{"id": "y (unspecified)", "name": "chien 🐕 (unspecified)"')
    assert old != text
    assert Hierarchy.from_json(old) == everything
    assert everything.name("y (unspecified)") == "chien 🐕"
