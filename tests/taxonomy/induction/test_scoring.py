"""Scores of induced hierarchies: by hand on small trees, and on CIFAR-10's real embeddings against WordNet."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import Hierarchy
from hcep.errors import HCEPError
from hcep.hierarchy.imagenet import imagenet_hierarchy
from hcep.taxonomy.induction import induce_from_embeddings, induce_with_llm, score_induced
from hcep.taxonomy.llm import ChatModel
from tests.conftest import shared_file
from tests.hierarchy.cifar10 import GOOD
from tests.taxonomy.llm.chat_server import running_chat

AGAINST_GOLD = ("edge_f1", "ancestor_f1", "cluster_f1", "overlap")


def tree(text):
    """``"a: b c; b: x y"`` -> a Hierarchy."""
    groups = [group.split(":") for group in text.split(";")]
    return Hierarchy.from_edges([(parent.strip(), child) for parent, below in groups for child in below.split()])


GOLD = tree("r: animal car; animal: pet wolf; pet: cat dog")


def scores_against_gold(candidate):
    return [round(score_induced(candidate, GOLD)[name], 3) for name in AGAINST_GOLD]


def test_the_gold_tree_itself_has_full_marks():
    assert scores_against_gold(GOLD) == [1, 1, 1, 1]
    assert score_induced(GOLD, GOLD)["n_leaves_compared"] == 4


def test_synsets_with_the_same_name_are_distinguished_by_id():
    twice = Hierarchy.from_edges(
        [("r", "1"), ("r", "2"), ("1", "cat"), ("1", "dog"), ("2", "car"), ("2", "bus")], names={"1": "cap", "2": "cap"}
    )
    assert [score_induced(twice, twice)[name] for name in AGAINST_GOLD] == [1, 1, 1, 1]


def test_imagenets_hierarchy_is_like_itself():
    imagenet = imagenet_hierarchy()
    scores = score_induced(imagenet, imagenet)
    assert [scores[name] for name in AGAINST_GOLD] == [1, 1, 1, 1]
    assert scores["n_leaves"] == scores["n_leaves_gold"] == scores["n_leaves_compared"] == 1000


def test_names_do_not_matter_to_clusters_and_root_names_to_nothing():
    renamed = tree("top: A car; A: B wolf; B: cat dog")
    # Only the edge from the root to the car is the same by name.
    assert scores_against_gold(renamed) == [round(2 * 1 / 12, 3), 0, 1, 1]
    other_root = tree("top: animal car; animal: pet wolf; pet: cat dog")
    assert scores_against_gold(other_root) == [1, 1, 1, 1]


def test_case_and_plural_of_names_are_set_aside():
    assert scores_against_gold(tree("r: Animals car; Animals: PETS wolf; PETS: cat dog")) == [1, 1, 1, 1]


def test_a_leaf_in_the_wrong_group_by_hand():
    # wolf among the pets; "animal" is then a chain above "pet" and goes with it.
    wrong = tree("r: animal car; animal: pet; pet: cat dog wolf")
    scores = score_induced(wrong, GOLD)
    # "pet" alone remains, known by its own name first. Edges: (root, pet), (pet, cat), (pet, dog), (pet, wolf),
    # (root, car) against gold's six: three are the same.
    assert scores["edge_f1"] == pytest.approx(2 * 3 / (5 + 6))
    # (pet, cat), (pet, dog), (pet, wolf) against (pet, cat), (pet, dog) and (animal, x) for three leaves.
    assert scores["ancestor_f1"] == pytest.approx(2 * 2 / (3 + 5))
    # {cat, dog, wolf} against {cat, dog, wolf} and {cat, dog}.
    assert scores["cluster_f1"] == pytest.approx(2 / 3)
    assert scores["overlap"] == pytest.approx((1 + (1 + 2 / 3) / 2) / 2)


def test_a_merged_chain_goes_by_any_of_its_names():
    chained = tree("r: animal car; animal: vertebrate; vertebrate: pet wolf; pet: cat dog")
    assert scores_against_gold(chained) == [1, 1, 1, 1]
    assert score_induced(GOLD, chained)["ancestor_f1"] == 1


def test_a_flat_tree_finds_no_cluster():
    scores = score_induced(tree("r: cat dog wolf car"), GOLD)
    assert [scores[name] for name in AGAINST_GOLD[1:]] == [0, 0, 0]
    assert scores["depth"] == 1
    assert score_induced(tree("r: cat dog"), tree("r: dog cat"))["cluster_f1"] == 1


def test_leaves_are_compared_by_id_or_else_by_name():
    named = Hierarchy.from_edges(
        [("r", "animal"), ("animal", "n1"), ("animal", "n2"), ("r", "n3")],
        names={"n1": "Cat", "n2": "dog", "n3": "ship"},
    )
    scores = score_induced(GOLD, named)
    assert scores["n_leaves_compared"] == 2
    with pytest.raises(HCEPError, match=r"share 0 leaves; tree has .* use the same ids or names"):
        score_induced(tree("r: x y"), GOLD)


def test_several_parents_in_gold_are_all_right(diamond):
    candidate = tree("root: pet lion; pet: cat hamster")
    assert score_induced(candidate, diamond)["cluster_f1"] == pytest.approx(2 / 3)


@st.composite
def random_trees(draw):
    parents = [draw(st.integers(0, i)) for i in range(draw(st.integers(1, 5)))]
    edges = [(f"g{p}", f"g{i + 1}") for i, p in enumerate(parents)]
    homes = [draw(st.integers(0, len(parents))) for _ in range(6)]
    return Hierarchy.from_edges([*edges, *((f"g{h}", f"x{i}") for i, h in enumerate(homes))], root="g0").restrict(
        f"x{i}" for i in range(6)
    )


@settings(max_examples=30, deadline=None)
@given(random_trees(), random_trees())
def test_scores_are_shares_full_for_itself_and_symmetric(a, b):
    there, back, own = score_induced(a, b), score_induced(b, a), score_induced(a, a)
    assert all(0 <= there[name] <= 1 for name in AGAINST_GOLD)
    assert all(own[name] == 1 for name in AGAINST_GOLD)
    assert there["cluster_f1"] == pytest.approx(back["cluster_f1"])
    assert there["overlap"] == pytest.approx(back["overlap"])


# -- on images -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clouds():
    """Four classes in two pairs, one on each side."""
    rng = np.random.default_rng(0)
    centres = np.array([[4, 1, 0], [4, -1, 0], [-2, 0, 1], [-2, 0, -1]])
    y = np.repeat(["cat", "dog", "car", "bus"], 20)
    return centres.repeat(20, axis=0) + 0.1 * rng.normal(size=(80, 3)), y


def test_images_score_geometry_and_held_out_work(clouds):
    X, y = clouds
    right = score_induced(tree("r: animal vehicle; animal: cat dog; vehicle: car bus"), X=X, y=y)
    wrong = score_induced(tree("r: a b; a: cat car; b: dog bus"), X=X, y=y)
    assert right["accuracy"] == right["support_f1"] == 1
    assert right["orthogonality"] < 0.2 < wrong["orthogonality"]
    assert right["containment_outside"] <= wrong["containment_outside"]
    assert "edge_f1" not in right


def test_validation_images_are_used(clouds):
    X, y = clouds
    swapped = np.array(["dog", "cat", "bus", "car"]).repeat(20)
    scores = score_induced(
        tree("r: animal vehicle; animal: cat dog; vehicle: car bus"), X=X, y=y, X_val=X, y_val=swapped
    )
    assert scores["accuracy"] == 0
    assert scores["support_f1"] == pytest.approx(0.5)


def test_a_flat_tree_has_no_geometry_to_speak_of(clouds):
    scores = score_induced(tree("r: cat dog car bus"), X=clouds[0], y=clouds[1])
    assert math.isnan(scores["orthogonality"])
    assert scores["accuracy"] == scores["support_f1"] == 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"X": [[1.0]]}, "give X together with y"),
        ({"X_val": [[1.0]], "y_val": ["cat"]}, "give X together with y"),
        ({"X": np.eye(4), "y": ["cat", "cat", "dog", "wolf"]}, "class 'dog' has one image"),
    ],
)
def test_arguments_that_do_not_fit(arguments, match):
    with pytest.raises(HCEPError, match=match):
        score_induced(GOLD, **arguments)


# -- CIFAR-10: two induced trees against WordNet's ---------------------------------------------------------------------

WORDS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
#: WordNet 3.0's hypernyms of the first senses, one of several parents and synsets with one child left out.
BY_HAND = tree(
    "entity: animal vehicle; animal: bird frog mammal; mammal: carnivore ungulate; carnivore: dog cat; "
    "ungulate: horse deer; vehicle: craft motor_vehicle; craft: airplane ship; motor_vehicle: automobile truck"
)


def cifar10_wordnet():
    """WordNet's hierarchy above the ten classes, its leaves called as the classes are."""
    from hcep.taxonomy.wordnet import WordNet

    try:
        WordNet()
    except HCEPError as error:
        pytest.skip(f"needs WordNet's database: {error}")
    whole = WordNet().hierarchy(f"{word}.n.01" for word in WORDS)
    ids = {leaf: {"car": "automobile"}.get(whole.name(leaf), whole.name(leaf)) for leaf in whole.leaves}
    names = {synset: whole.name(synset) for synset in whole if synset not in ids}
    # By child, its first parent first: that one is WordNet's first hypernym.
    edges = [(parent, child) for child in whole for parent in whole.parents(child)]
    return Hierarchy.from_edges([(a, ids.get(b, b)) for a, b in edges], names)


@pytest.mark.slow
def test_the_gold_tree_by_hand_is_wordnets():
    scores = score_induced(BY_HAND, cifar10_wordnet().as_tree("first"))
    assert [scores[name] for name in AGAINST_GOLD] == [1, 1, 1, 1]


@pytest.fixture(scope="module")
def cifar10():
    with np.load(shared_file("data/cifar10_500_clip_vitb32.npz"), allow_pickle=False) as data:
        return data["embeddings"], data["class_names"][data["labels"]].astype(str)


def test_cifar10_by_language_model_and_by_clustering(cifar10):
    X, y = cifar10
    names = sorted(set(y.tolist()))
    with running_chat(GOOD) as server:
        told = induce_with_llm(names, ChatModel("tiny", server.url))
    means = np.stack([X[y == name].mean(axis=0) for name in names])
    clustered = induce_from_embeddings(means, names)
    scores = {
        kind: score_induced(found.hierarchy, BY_HAND, X, y) for kind, found in (("llm", told), ("clusters", clustered))
    }
    assert told.complete
    assert clustered.complete
    assert scores["llm"]["ancestor_f1"] > 0.7
    assert scores["clusters"]["cluster_f1"] > 0.5
    assert min(scores[kind]["overlap"] for kind in scores) > 0.7
    assert min(scores[kind]["support_f1"] for kind in scores) > 0.85
    assert min(scores[kind]["accuracy"] for kind in scores) > 0.8
