"""Distances to parents without the child, moves in the hierarchy they are meant for, and the best of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy
from hcep.datasets import make_hierarchical_concepts
from hcep.evaluate.support import Outcome
from hcep.taxonomy import Move, apply_edits
from hcep.taxonomy.effects import (
    Effect,
    HeldOut,
    MeasuredMove,
    best_moves,
    distances_to_parents,
    in_whole,
    measure_moves,
    propose_moves,
)
from hcep.taxonomy.embedding_checks import move_finding


@pytest.fixture(scope="module")
def misplaced():
    """A noisy three-level tree whose first leaf hangs from the wrong parent: held-out images, and the right move."""
    data = make_hierarchical_concepts(branching=3, depth=3, dim=24, samples_per_leaf=24, orientation="random")
    X = data.X + 1.5 * np.random.default_rng(0).normal(size=data.X.shape)  # five in six images are recognised
    leaf = data.hierarchy.leaves[0]
    right = data.hierarchy.parents(leaf)[0]
    wrong = data.hierarchy.parents(data.hierarchy.leaves[-1])[0]
    hierarchy = apply_edits(data.hierarchy, [Move(leaf, wrong)])
    return HeldOut.from_images(hierarchy, X, data.y), Move(leaf, right, wrong)


def test_distances_without_the_child_are_those_of_a_dictionary_without_it(tiny_imagenet):
    hierarchy = tiny_imagenet["hierarchy"]
    means = {c: tiny_imagenet["X"][tiny_imagenet["y"] == c].mean(axis=0) for c in hierarchy.leaves}
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, means)
    child = hierarchy.leaves[17]
    without = ConceptDictionary.from_leaf_embeddings(
        hierarchy.restrict(leaf for leaf in hierarchy.leaves if leaf != child),
        {c: vector for c, vector in means.items() if c != child},
    )
    found = distances_to_parents(dictionary, hierarchy.index(child))
    assert hierarchy.parents(child)[0] in [hierarchy.ids[i] for i in found]
    for i, distance in found.items():
        parent = without.synset_embedding(hierarchy.ids[i])
        assert distance == pytest.approx(np.linalg.norm(parent - dictionary.synset_embedding(child)))


def test_neither_root_nor_descendants_nor_an_emptied_parent_are_candidates(pets):
    edges = [*pets.edges, ("animal", "bird"), ("bird", "owl"), ("thing", "lonely"), ("lonely", "yeti")]
    hierarchy = Hierarchy.from_edges(edges)
    vectors = dict(zip(hierarchy.leaves, np.eye(8), strict=False))
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, vectors)

    def candidates(child):
        return {hierarchy.ids[i] for i in distances_to_parents(dictionary, hierarchy.index(child))}

    assert candidates("yeti") == {"animal", "vehicle", "bird"}
    assert candidates("animal") == {"vehicle", "lonely"}
    assert candidates("cat") == {"animal", "vehicle", "bird", "lonely"}


def test_a_move_across_a_chain_takes_the_chain_along():
    whole = Hierarchy.from_edges([("r", "p"), ("p", "m"), ("m", "c"), ("p", "d"), ("r", "q"), ("q", "e"), ("q", "f")])
    assert in_whole(whole, whole.collapse(), Move("c", "q", "p")) == Move("m", "q", "p")


def test_a_move_across_a_synset_with_other_children_leaves_it():
    whole = Hierarchy.from_edges(
        [("r", "p"), ("p", "m"), ("m", "c"), ("m", "x"), ("p", "d"), ("r", "q"), ("q", "e"), ("q", "f")]
    )
    small = whole.restrict(["c", "d", "e", "f"]).collapse()
    assert small.parents("c") == ("p",)
    assert in_whole(whole, small, Move("c", "q", "p")) == Move("c", "q", "m")


def test_a_move_from_one_of_the_parents_of_a_chain_leaves_the_other():
    whole = Hierarchy.from_edges(
        [
            ("r", "p"),
            ("r", "s"),
            ("p", "m"),
            ("s", "m"),
            ("m", "c"),
            ("p", "d"),
            ("s", "e"),
            ("r", "q"),
            ("q", "f"),
            ("q", "g"),
        ]
    )
    move = in_whole(whole, whole.collapse(), Move("c", "q", "p"))
    assert move == Move("m", "q", "p")
    assert apply_edits(whole, [move]).collapse().parents("c") == ("q", "s")


def test_the_misplaced_leaf_is_proposed_first_and_its_move_helps(misplaced):
    held_out, right = misplaced
    proposals = propose_moves(held_out)
    assert proposals[0] == right
    (best, *_) = measure_moves(held_out, proposals[:5])
    assert best.move == right
    assert best.helps
    assert best.gain().low > 0


def measured(pets, gains, n_tried=1):
    """A move to which images of class "cat" owe these gains in F1, and nothing else changes."""
    y = np.array(["cat"] * len(gains))
    scores = (SimpleNamespace(precision=f1, recall=f1, f1=f1) for f1 in (np.zeros(len(gains)), gains))
    before, after = (Outcome(pets, y, y, support) for support in scores)
    move = Move("cat", "vehicle", "animal")
    return MeasuredMove(move, Effect((move,), before, after), n_tried)


def test_a_gain_near_its_standard_error_does_not_help(pets):
    gains = 0.0042 + 0.0041 * np.sqrt(500) * np.resize([-1.0, 1.0], 500)
    move = measured(pets, gains)
    assert move.effect.metrics["support_f1"].difference == pytest.approx(0.0042)
    assert move.effect.metrics["support_f1"].error == pytest.approx(0.0041)
    assert not move.helps
    assert move.gain().low < 0 < move.gain().high


def test_the_interval_is_corrected_for_the_moves_tried(pets):
    gains = 0.01 + 0.004 * np.sqrt(500) * np.resize([-1.0, 1.0], 500)  # two and a half standard errors
    alone, one_of_many = measured(pets, gains), measured(pets, gains, n_tried=60)
    assert alone.helps
    assert not one_of_many.helps
    assert one_of_many.gain().low < alone.gain().low


def test_a_suggested_move_is_a_hint_about_the_embedding(pets):
    gains = 0.1 + 0.01 * np.resize([-1.0, 1.0], 500)
    hint, silent = (move_finding(pets, measured(pets, sign * gains, n_tried=3)) for sign in (1.0, -1.0))
    assert hint.message.startswith(
        "photos of 'cat' look, on average, more like 'vehicle' than like its parent 'animal'"
    )
    assert "95% interval" in hint.message
    assert "corrected for 3 moves tried" in hint.message
    assert hint.message.endswith("a clear gain, though the present place may be intended")
    assert (hint.severity, hint.fixes) == ("warning", (Move("cat", "vehicle", "animal"),))
    assert (silent.severity, silent.fixes) == ("note", ())
    assert silent.message.endswith("no clear gain")


def test_the_best_moves_add_up(misplaced):
    held_out, right = misplaced
    tried = measure_moves(held_out, propose_moves(held_out)[:5])
    effect = best_moves(held_out, [tried[0], tried[0], *tried[1:]], 1)
    assert effect.edits == (right,)
    assert effect.metrics["support_f1"].difference > 0
    twice = best_moves(held_out, [tried[0], tried[0]], 5)
    assert twice.edits == (right,)


def test_no_move_no_effect(misplaced):
    held_out, _ = misplaced
    effect = best_moves(held_out, [], 5)
    assert effect.edits == ()
    assert effect.metrics["support_f1"].difference == 0


def test_each_measured_move_is_reported(misplaced):
    held_out, _ = misplaced
    told = []
    measure_moves(held_out, propose_moves(held_out)[:2], lambda: told.append(1))
    assert len(told) == 2
