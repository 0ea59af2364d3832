"""The nearest phrases of atoms, in a space whose axes are words."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import DictionaryError, HCEPError
from hcep.taxonomy.naming import name_atoms
from hcep.taxonomy.naming.nearest import MANY_PHRASES, raw_atoms
from hcep.taxonomy.naming.phrases import embed_phrases
from tests.taxonomy.naming.bear_space import (
    AXES,
    BEARS,
    LEAVES,
    PHRASES,
    RIGHT,
    bear_encoder,
    bear_images,
    bears,
    counted_words,
)

VECTORS = counted_words(PHRASES)


def first_phrases(names):
    return {edge: atom.phrases[0].text for edge, atom in names.by_edge.items()}


def test_every_atom_gets_the_phrase_an_eye_would_pick():
    vectors = embed_phrases(bear_encoder(), PHRASES)
    assert first_phrases(name_atoms(bears(), PHRASES, vectors)) == RIGHT


def test_scores_are_cosines_and_fall():
    atom = name_atoms(bears(), PHRASES, np.eye(6))["bear", "polar_bear"]
    assert [phrase.text for phrase in atom.phrases[:1]] == ["all white"]
    # The atom is (0, 0, .5, -.5, 0, 0): half a right angle from white, opposite to brown.
    assert atom.phrases[0].score == pytest.approx(np.sqrt(0.5), abs=1e-6)
    assert atom.phrases[-1].text == "dark brown"
    assert atom.phrases[-1].score == pytest.approx(-np.sqrt(0.5), abs=1e-6)


def test_top_k_cuts_and_a_small_pool_is_enough():
    assert len(name_atoms(bears(), PHRASES, VECTORS, top_k=2)["thing", "bear"].phrases) == 2
    assert len(name_atoms(bears(), PHRASES[:3], VECTORS[:3], top_k=10)["thing", "bear"].phrases) == 3


def test_ties_go_to_alphabetical_order():
    names = name_atoms(bears(), ["white", "alabaster"], [VECTORS[2], 2 * VECTORS[2]])
    assert [phrase.text for phrase in names["bear", "polar_bear"].phrases] == ["alabaster", "white"]


def test_only_the_edges_asked_for_are_named():
    names = name_atoms(bears(), PHRASES, VECTORS, edges=[("bear", "grizzly")])
    assert list(names.by_edge) == [("bear", "grizzly")]
    assert names.meaning("bear", "grizzly") == "dark brown"


def test_a_zero_atom_gets_no_name():
    chain = Hierarchy.from_edges([("thing", "bear"), ("bear", "polar_bear"), ("thing", "car")])
    d = ConceptDictionary.from_leaf_embeddings(chain, {name: LEAVES[name] for name in ("polar_bear", "car")})
    names = name_atoms(d, PHRASES, VECTORS)
    assert names["bear", "polar_bear"].phrases == ()
    assert names["bear", "polar_bear"].meaning is None
    assert names["bear", "polar_bear"].source is None
    assert names["thing", "bear"].phrases[0].text == "a fur coat"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shrinkage": 0.4},
        {"shrinkage": 0.9, "center": True, "rescale": True},
        {"unit_norm": True, "shrinkage": 0.5, "center": True},
        {"center": True, "rescale": True},
    ],
)
def test_raw_atoms_are_differences_of_the_raw_class_means(options):
    X, y = bear_images()
    d = ConceptDictionary.from_images(BEARS, X, y, **options)
    scaled = X / np.linalg.norm(X, axis=1, keepdims=True) if options.get("unit_norm") else X
    plain = ConceptDictionary.from_images(BEARS, scaled, y, center=options.get("center", False))
    np.testing.assert_allclose(raw_atoms(d), plain.atoms, atol=1e-9)


def test_a_whitened_model_gets_the_same_names():
    X, y = bear_images()
    model = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(X, y)
    assert model.dictionary_.transform.whitener is not None
    assert first_phrases(name_atoms(model.dictionary_, PHRASES, VECTORS)) == RIGHT


def test_a_whitener_that_cannot_be_undone_is_refused():
    d = ConceptDictionary(BEARS, bears().synset_embeddings, EmbeddingTransform(whitener=np.zeros((6, 6))))
    with pytest.raises(DictionaryError, match="whitener is singular, so its metric cannot be undone"):
        raw_atoms(d)


def test_centring_removes_what_all_texts_share():
    gap = np.full(len(AXES), 5.0)
    shared = name_atoms(bears(), PHRASES, VECTORS + gap)
    centred = name_atoms(bears(), PHRASES, VECTORS + gap, center=True)
    assert first_phrases(centred) == RIGHT
    assert centred.centered
    assert not shared.centered
    spread = {names["bear", "polar_bear"].phrases[0].score for names in (shared, centred)}
    assert max(spread) > 5 * min(spread)


def test_many_phrases_are_centred_by_default():
    texts = np.random.default_rng(0).standard_normal((MANY_PHRASES, len(AXES))) + 3.0
    phrases = [f"phrase {i}" for i in range(MANY_PHRASES)]
    assert name_atoms(bears(), phrases, texts) == name_atoms(bears(), phrases, texts, center=True)
    assert name_atoms(bears(), phrases[1:], texts[1:]) == name_atoms(bears(), phrases[1:], texts[1:], center=False)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.floats(0.01, 100.0), center=st.booleans())
def test_rotating_and_scaling_the_space_keeps_the_names(seed, scale, center):
    rng = np.random.default_rng(seed)
    leaves = {leaf: rng.normal(size=6) for leaf in LEAVES}
    texts = rng.normal(size=(9, 6))
    phrases = [f"phrase {i}" for i in range(9)]
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    before = name_atoms(ConceptDictionary.from_leaf_embeddings(BEARS, leaves), phrases, texts, center=center)
    turned = {leaf: scale * vector @ rotation for leaf, vector in leaves.items()}
    after = name_atoms(
        ConceptDictionary.from_leaf_embeddings(BEARS, turned), phrases, 3.0 * texts @ rotation, center=center
    )
    assert first_phrases(after) == first_phrases(before)
    for atom in before:
        scores = [phrase.score for phrase in after[atom.parent, atom.child].phrases]
        np.testing.assert_allclose(scores, [phrase.score for phrase in atom.phrases], atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(len(PHRASES) + 2)), top_k=st.integers(1, 8))
def test_the_order_of_the_pool_does_not_matter(order, top_k):
    phrases = [*PHRASES, "white all over", "white all through"]  # the last two tie
    vectors = counted_words(phrases)
    shuffled = name_atoms(bears(), [phrases[i] for i in order], vectors[list(order)], top_k=top_k)
    assert shuffled == name_atoms(bears(), phrases, vectors, top_k=top_k)


def test_a_pool_of_many_chunks_is_searched_through():
    rng = np.random.default_rng(0)
    phrases = [f"word {i}" for i in range(5000)]
    texts = rng.normal(size=(5000, 6))
    atom = name_atoms(bears(), phrases, texts, top_k=3)["bear", "polar_bear"]
    direction = raw_atoms(bears())[BEARS.edges.index(("bear", "polar_bear"))]
    cosines = texts @ direction / np.linalg.norm(texts, axis=1) / np.linalg.norm(direction)
    assert [phrase.text for phrase in atom.phrases] == [phrases[i] for i in np.argsort(-cosines)[:3]]


@pytest.mark.parametrize(
    ("phrases", "vectors", "options", "match"),
    [
        ("fur", np.eye(6), {}, "phrases must be a list of strings, got one string 'fur'"),
        ([], np.empty((0, 6)), {}, "phrases is empty: give candidate phrases"),
        (["fur", "fur"], np.eye(6)[:2], {}, "phrases has 'fur' twice; give each phrase once"),
        (["fur"], np.eye(6)[:2], {}, "phrase_embeddings has 2 rows for 1 phrases; give one row per phrase"),
        (["fur"], np.ones((1, 5)), {}, "phrase_embeddings has 5 dimensions, but the dictionary has 6"),
        (["fur"], np.full((1, 6), np.nan), {}, "phrase_embeddings has NaN or infinite values in 1 of 1 rows"),
        (["fur"], np.ones((1, 6)), {"top_k": 0}, "top_k must be at least 1, got 0"),
        (["fur"], np.ones((1, 6)), {"edges": [("bear", "car")]}, "edges: 'bear → car' is not an edge"),
    ],
)
def test_what_cannot_be_compared_is_refused(phrases, vectors, options, match):
    with pytest.raises(HCEPError, match=match):
        name_atoms(bears(), phrases, vectors, **options)
