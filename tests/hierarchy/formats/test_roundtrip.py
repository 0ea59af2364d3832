"""A DAG of 1,000 leaves through every format that is read and written: the same again, or word of what is lost."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy, HierarchyError
from hcep.hierarchy import read_hierarchy, write_hierarchy
from hcep.hierarchy.formats import FORMATS
from hcep.hierarchy.formats.writing import order_survives

ODD = [
    "a, b",
    "d'Arc",
    'say "meow"',
    "naïve 猫",
    "tab\there",
    "two\nlines",
    "1.2 number",
    "- bullet",
    "C# sharp",
    "[x]:(y);",
]
BOTH_WAYS = [known for known in FORMATS.values() if known.reads and known.writes]
# What reading back needs: an outline does not tell two places of one synset from two synsets of one name.
OPTIONS = {"outline": {"repeated": "merge"}}


def random_dag(n_leaves, n_shared, seed, id_of):
    """A tree of odd names with synsets that have a second parent; ids are made by `id_of` from number and name."""
    draw = random.Random(seed)
    inner = n_leaves // 4
    names = [f"{draw.choice(ODD)} {i}" for i in range(inner + n_leaves)]
    ids = [id_of(i, name) for i, name in enumerate(names)]
    # The first inner synsets form a spine, so that each of them has something below it.
    edges = [(ids[max(0, i - draw.randint(1, 3))], ids[i]) for i in range(1, inner)]
    edges += [(ids[i % inner], ids[inner + i]) for i in range(n_leaves)]
    edges += [(ids[draw.randrange(inner)], ids[inner + i]) for i in draw.sample(range(n_leaves), n_shared)]
    return Hierarchy.from_edges(edges, dict(zip(ids, names, strict=True)))


@pytest.fixture(scope="module")
def dag():
    """Ids and names differ, and several synsets have two parents."""
    found = random_dag(1_000, 90, 0, lambda i, name: f"n{i:08d}")
    assert len(found.leaves) == 1_000
    assert not found.is_tree
    return found


@pytest.fixture(scope="module")
def tree():
    """Ids are the names, every synset has one parent, and the order is that of an outline."""
    drawn = random_dag(1_000, 0, 1, lambda i, name: name)
    edges = [(parent, child) for child in drawn.ids[1:] for parent in drawn.parents(child)]
    found = Hierarchy.from_edges(in_outline_order(edges, drawn.root))
    assert order_survives(found)
    return found


def in_outline_order(edges, root):
    children = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)
    ordered, waiting = [], [root]
    while waiting:
        synset = waiting.pop()
        ordered += [(synset, child) for child in children.get(synset, [])]
        waiting += reversed(children.get(synset, []))
    return ordered


def same_graph(a, b):
    return set(a.edges) == set(b.edges) and all(a.name(s) == b.name(s) for s in a)


def by_name(hierarchy):
    return {(hierarchy.name(p), hierarchy.name(c)) for p, c in hierarchy.edges}


@pytest.mark.parametrize("known", [f for f in BOTH_WAYS if "order" in f.keeps], ids=lambda f: f.name)
def test_a_dag_comes_back_equal(known, dag, tmp_path):
    file = tmp_path / f"h{known.extensions[0]}"
    assert write_hierarchy(dag, file) == ()
    assert read_hierarchy(file) == dag


@pytest.mark.parametrize(
    "known",
    [f for f in BOTH_WAYS if {"ids", "parents"} <= set(f.keeps) and "order" not in f.keeps],
    ids=lambda f: f.name,
)
def test_a_dag_comes_back_in_another_order(known, dag, tmp_path):
    file = tmp_path / f"h{known.extensions[0]}"
    assert write_hierarchy(dag, file) == (
        f"{known.name}: concepts, and with them a dictionary's atoms, will be numbered in a different order",
    )
    assert same_graph(read_hierarchy(file), dag)


def test_an_outline_keeps_names_and_parents(dag, tmp_path):
    lost = write_hierarchy(dag, tmp_path / "h.txt")
    assert lost[0] == "outline: names kept, ids lost (1,250 concepts)"
    back = read_hierarchy(tmp_path / "h.txt", repeated="merge")
    assert by_name(back) == by_name(dag)


def test_newick_refuses_a_dag_and_keeps_the_tree_of_first_parents(dag, tmp_path):
    file = tmp_path / "h.nwk"
    shared = sum(len(dag.parents(s)) > 1 for s in dag)
    with pytest.raises(HierarchyError, match=rf"newick keeps one parent per concept: {shared} .* lose .*lossy=True"):
        write_hierarchy(dag, file)
    assert not file.exists()
    lost = write_hierarchy(dag, file, lossy=True)
    assert lost[0].startswith(f"newick keeps one parent per concept: {shared} concepts lose the others")
    assert lost[1] == "newick: names kept, ids lost (1,250 concepts)"
    assert by_name(read_hierarchy(file)) == by_name(dag.as_tree())


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
def test_a_tree_of_names_comes_back_equal_from_every_format(known, tree, tmp_path):
    file = tmp_path / f"h{known.extensions[0]}"
    assert write_hierarchy(tree, file) == ()
    assert read_hierarchy(file) == tree


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
def test_compressed(known, tree, tmp_path):
    file = tmp_path / f"h{known.extensions[0]}.gz"
    write_hierarchy(tree, file)
    assert file.read_bytes()[:2] == b"\x1f\x8b"
    assert read_hierarchy(file) == tree


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
def test_collapsed_chains_are_kept_or_reported_as_lost(known, tmp_path):
    chain = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("r", "e")]).collapse()
    lost = write_hierarchy(chain, tmp_path / f"h{known.extensions[0]}")
    told = f"{known.name}: the names merged into 1 concept are lost ('a')"
    assert (told in lost) == ("merged" not in known.keeps)


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
def test_inner_classes_are_kept_or_reported_as_lost(known, pets, tmp_path):
    lost = write_hierarchy(pets.with_classes(["animal"]), tmp_path / f"h{known.extensions[0]}")
    what = "1 class above other classes ('animal') written only as a concept"
    told = f"{known.name}: {what}; images with this label make it a class again"
    assert (told in lost) == ("classes" not in known.keeps)


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
def test_no_file_has_a_concept_that_is_only_the_leaf_of_a_class(known, pets, tmp_path):
    file = tmp_path / f"h{known.extensions[0]}"
    write_hierarchy(pets.with_classes(["animal"]), file)
    assert ("unspecified" in file.read_text()) == ("classes" in known.keeps)
    assert read_hierarchy(file).with_classes(["animal"]).leaf_of("animal") == "animal (unspecified)"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("h.csv", "parent,child,name\nthing,n1,animal\nn1,n1 (itself),animal\nn1,cat,cat\nthing,car,car\n"),
        ("h.txt", "thing\n  n1\n    n1 (itself)\n    cat\n  car\n"),
        ("h.nested.json", '{"thing": {"n1": {"n1 (itself)": {}, "cat": {}}, "car": {}}}'),
    ],
)
def test_a_leaf_called_itself_is_the_leaf_of_its_class(file, text, tmp_path):
    """Earlier versions wrote the leaf of a class that is an inner concept like this."""
    (tmp_path / file).write_text(text)
    h = read_hierarchy(tmp_path / file)
    assert dict(h.own_leaves) == {"n1": "n1 (itself)"}
    assert h.class_of("n1 (itself)") == "n1"
    assert h.with_classes(["n1", "cat", "car"]) == h


# Any character a file in UTF-8 can hold; a cell of an edge list has no blanks around it.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize("known", BOTH_WAYS, ids=lambda f: f.name)
@settings(max_examples=30, deadline=None)
@given(labels=st.lists(names, min_size=3, max_size=6, unique=True))
def test_any_name_comes_back_or_is_refused(known, labels, tmp_path_factory):
    root, a, b, *others = labels
    h = Hierarchy.from_edges([(root, a), (root, b), *((a, other) for other in others)])
    file = tmp_path_factory.mktemp("any") / f"h{known.extensions[0]}"
    assert outcome(h, file) in ("the same", "refused with a reason")


def outcome(hierarchy, file):
    """What became of a hierarchy on its way through a file."""
    try:
        write_hierarchy(hierarchy, file)
    except HierarchyError as error:
        reason = "cannot hold" in str(error) and not file.exists()
        return "refused with a reason" if reason else str(error)
    return "the same" if same_graph(read_hierarchy(file), hierarchy) else "changed"
