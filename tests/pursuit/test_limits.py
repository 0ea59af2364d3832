"""Forced and forbidden concepts: no answer ever breaks a request, and the best of what remains is found."""

import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hcep import ConceptDictionary, Hierarchy
from hcep.datasets import load_sample, make_hierarchical_concepts
from hcep.errors import HCEPError, HierarchyError
from hcep.pursuit import SearchOptions, path_objectives, search
from hcep.pursuit.limits import PathLimits, Request

DATA = make_hierarchical_concepts(branching=3, depth=3, dim=14, noise=0.3)
DICTIONARY = ConceptDictionary.from_images(DATA.hierarchy, DATA.X, DATA.y)
INNER = [i for i in DATA.hierarchy if not DATA.hierarchy.is_leaf(i) and i != DATA.hierarchy.root]


def pursued(options, **asked):
    limits = PathLimits.of(DATA.hierarchy, **asked)
    return search(DATA.X[:60], DICTIONARY, options, limits=limits, n_best=3)


@pytest.mark.parametrize("anchor", [0.0, 0.1])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("beam_width", [None, 1, 4])
@pytest.mark.parametrize("tol", [0.0, 1e3])
def test_no_hypothesis_breaks_a_request(beam_width, signed, anchor, tol):
    options = SearchOptions(beam_width, signed=signed, anchor=anchor, tol=tol)
    forbidden = DATA.hierarchy.children(INNER[0])[:2]
    found = pursued(options, force=INNER[0], forbid=forbidden)
    paths = [one.path for i in range(60) for one in found.hypotheses(i)]
    assert paths
    assert all(INNER[0] in path for path in paths)
    assert not any(set(path) & set(forbidden) for path in paths)


def test_an_exact_search_finds_the_best_of_what_remains():
    forced, forbidden = INNER[1], DATA.hierarchy.leaves[0]
    found = pursued(SearchOptions(None, anchor=0.1), force=forced, forbid=[forbidden])
    objectives = path_objectives(DATA.X[:60], DICTIONARY, anchor=0.1)
    tree = DATA.hierarchy.path_tree
    ends = [DATA.hierarchy.ids[s] for s in tree.synset[tree.leaf_nodes]]
    below = [forced in DATA.hierarchy.ancestors(end) and end != forbidden for end in ends]
    objectives[:, ~np.array(below)] = np.inf
    assert found.leaves.tolist() == [ends[k] for k in objectives.argmin(axis=1)]


@pytest.mark.parametrize("signed", [False, True])
def test_a_few_images_are_searched_alike_without_a_compiler(signed, monkeypatch):
    asked = {"force": INNER[0], "forbid": DATA.hierarchy.children(INNER[0])[:1]}
    options = SearchOptions(None, signed=signed, anchor=0.1)
    monkeypatch.setattr(sys.modules["hcep.pursuit.search"], "FEW", 0)
    compiled = pursued(options, **asked)
    monkeypatch.setattr(sys.modules["hcep.pursuit.search"], "FEW", 10_000)
    few = pursued(options, **asked)
    assert np.array_equal(few.n_best_nodes, compiled.n_best_nodes)
    assert np.allclose(few.codes.toarray(), compiled.codes.toarray())


def test_a_forced_concept_that_the_image_points_away_from_is_taken(pets_dictionary):
    limits = PathLimits.of(pets_dictionary.hierarchy, force="vehicle")
    x = np.array([[3.0, 1.0, 0.0, -4.0]])
    for width in (None, 2):
        found = search(x, pets_dictionary, SearchOptions(width, signed=True), limits=limits)
        assert found.paths[0][0] == "vehicle"
        assert found.coefficients(0)[0] < 0


def test_without_a_dead_end(pets_dictionary):
    # All of animal's children are forbidden, so that animal itself is closed: no path ends there.
    limits = PathLimits.of(pets_dictionary.hierarchy, forbid=["cat", "dog", "fox"])
    found = search(pets_dictionary.leaf_embeddings, pets_dictionary, SearchOptions(None), limits=limits)
    assert {path[0] for path in found.paths} == {"vehicle"}


def test_each_image_has_its_own_limits(pets_dictionary):
    h = pets_dictionary.hierarchy
    asked = [Request(), Request.of("vehicle"), Request.of(forbid="cat"), Request.of("vehicle", "car")]
    x = np.repeat([[3.0, 1.0, 0.0, 0.0]], 4, axis=0)
    for width in (None, 3):
        found = search(x, pets_dictionary, SearchOptions(width), limits=PathLimits.of_images(h, asked))
        alone = [
            search(x[:1], pets_dictionary, SearchOptions(width), limits=PathLimits.of(h, *one)).paths[0]
            for one in asked
        ]
        assert found.paths == alone
        assert found.paths[0] == ("animal", "cat")
        assert found.paths[3] == ("vehicle", "bus")
    assert PathLimits.of_images(h, [Request()] * 4) is None


def test_several_routes_to_a_forced_concept_stay_open(diamond):
    limits = PathLimits.of(diamond, force="cat")
    tree = diamond.path_tree
    assert limits.open_at(tree.leaf_nodes)[0].sum() == 2
    assert PathLimits.of(diamond, force=["feline", "cat"]).open_at(tree.leaf_nodes)[0].sum() == 1


@given(st.integers(0, 10_000), st.integers(0, 2), st.booleans())
def test_forcing_what_is_on_the_answer_changes_nothing(seed, depth, signed):
    x = np.random.default_rng(seed).standard_normal((1, 14))
    options = SearchOptions(None, signed=signed, anchor=0.05)
    free = search(x, DICTIONARY, options)
    path = free.paths[0]
    forced = path[: 1 + depth % max(len(path), 1)]
    kept = search(x, DICTIONARY, options, limits=PathLimits.of(DATA.hierarchy, force=forced))
    assert kept.paths == free.paths
    assert np.array_equal(kept.coefficients(0), free.coefficients(0))


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"force": ["cat", "car"]}, "force: no path has 'cat', 'car' together"),
        ({"force": "cat", "forbid": "cat"}, "forbid: no path has 'cat' without 'cat'"),
        ({"force": "cat", "forbid": "animal"}, "forbid: no path has 'cat' without 'animal'"),
        ({"forbid": ["animal", "vehicle"]}, "forbid: no path is left without 'animal', 'vehicle'"),
        ({"forbid": "thing"}, "no path is left"),
        ({"force": "animl"}, "'animl' is not a concept of this hierarchy. Near matches: 'animal'"),
    ],
)
def test_what_no_path_can_meet_is_refused_in_one_sentence(pets, asked, match):
    with pytest.raises(HierarchyError, match=match):
        PathLimits.of(pets, **asked)


def test_a_concept_deeper_than_paths_go_is_gone_towards(pets_dictionary):
    limits = PathLimits.of(pets_dictionary.hierarchy, force="bus")
    found = search(np.ones((1, 4)), pets_dictionary, SearchOptions(max_steps=1), limits=limits)
    assert found.paths == [("vehicle",)]


def test_limits_of_another_hierarchy_are_refused(pets_dictionary, diamond):
    with pytest.raises(HCEPError, match="limits are of another hierarchy"):
        search(np.ones((1, 4)), pets_dictionary, SearchOptions(), limits=PathLimits.of(diamond, force="cat"))


def test_concepts_are_found_by_id_name_merged_name_and_synonym():
    tree = load_sample().hierarchy.as_tree().collapse()
    assert tree.find("n03417042") == "n03417042"
    for name in ("garbage truck", "Garbage_Truck", "garbage trucks", "dustcart"):
        assert tree.find(name) == "n03417042"
    assert tree.find("dog") == tree.find("English springer")  # merged into it
    twice = Hierarchy.from_edges([("x", "a"), ("x", "b")], {"a": "crane", "b": "crane"})
    with pytest.raises(HierarchyError, match="'crane' is the name of 2 concepts; give the id of one: 'a', 'b'"):
        twice.find("crane")
