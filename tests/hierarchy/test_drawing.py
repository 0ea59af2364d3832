import pytest

from hcep import Hierarchy


@pytest.fixture
def shared_branch():
    """Cat, with two children of its own, hangs from feline and from pet."""
    edges = [("r", "pet"), ("r", "feline"), ("pet", "cat"), ("feline", "cat"), ("cat", "siamese"), ("cat", "tabby")]
    return Hierarchy.from_edges([*edges, ("pet", "hamster")])


def test_a_tree(pets):
    assert pets.format_tree() == (
        "thing\n├── animal\n│   ├── cat\n│   ├── dog\n│   └── fox\n└── vehicle\n    ├── car\n    └── bus"
    )


def test_a_repeated_branch_points_back(shared_branch):
    assert shared_branch.format_tree() == (
        "r\n├── pet\n│   ├── cat\n│   │   ├── siamese\n│   │   └── tabby\n│   └── hamster\n└── feline\n    └── cat ↑"
    )


def test_a_repeated_leaf_is_drawn_again(diamond):
    assert diamond.format_tree().count("── cat\n") == 2


def test_max_depth_counts_what_it_hides(pets):
    assert pets.format_tree(max_depth=1) == "thing\n├── animal … 3 concepts below\n└── vehicle … 2 concepts below"
    assert pets.format_tree(max_depth=0) == "thing … 7 concepts below"
    assert pets.restrict(["cat"]).format_tree(max_depth=1) == "thing\n└── animal … 1 concept below"


def test_a_branch_hidden_by_the_depth_does_not_count_as_drawn():
    edges = [("r", "a"), ("r", "x"), ("a", "b"), ("b", "x"), ("x", "y"), ("x", "z")]
    assert Hierarchy.from_edges(edges).format_tree(max_depth=3) == (
        "r\n├── a\n│   └── b\n│       └── x … 2 concepts below\n└── x\n    ├── y\n    └── z"
    )


def test_max_children_counts_what_it_leaves_out(pets):
    assert pets.format_tree(max_children=1) == ("thing\n├── animal\n│   ├── cat\n│   └── … 2 more\n└── … 1 more")
    assert pets.format_tree(max_children=0) == "thing\n└── … 2 more"


def test_names_and_merged_names():
    h = Hierarchy.from_edges([("r", "n1"), ("n1", "n2"), ("n2", "n3"), ("r", "n4")], {"n1": "animal", "n3": "cat"})
    assert h.collapse().format_tree() == "r\n├── n4\n└── cat (animal, n2)"


def test_a_rank_with_a_single_child_is_drawn():
    h = Hierarchy.from_edges([("plants", "Iridaceae"), ("Iridaceae", "Iris"), ("plants", "Rosaceae")])
    h = h.with_ranks({"Iridaceae": "family", "Rosaceae": "family", "Iris": "genus"})
    assert h.collapse().format_tree() == "plants\n├── Rosaceae\n└── Iridaceae → Iris"


def test_a_hundred_levels_are_drawn():
    drawn = Hierarchy.from_edges((f"s{i}", f"s{i + 1}") for i in range(1_000)).format_tree().splitlines()
    assert len(drawn) == 101
    assert drawn[-1] == 4 * 99 * " " + "└── s100 … 900 concepts below"


def test_a_thousand_levels_under_a_limit():
    h = Hierarchy.from_edges((f"s{i}", f"s{i + 1}") for i in range(1_000))
    assert h.format_tree(max_depth=1) == "s0\n└── s1 … 999 concepts below"


def test_a_name_takes_one_line_of_at_most_eighty_characters():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b")], {"a": "one\n└── forged", "b": "x" * 500})
    assert h.format_tree() == f"r\n├── one └── forged\n└── {'x' * 76}...x"
