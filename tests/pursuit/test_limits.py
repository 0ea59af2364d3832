"""Forced and forbidden concepts: every answer meets the request, and it is the best of the remaining paths."""

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


def pursued(options, **request):
    limits = PathLimits.of(DATA.hierarchy, **request)
    return search(DATA.X[:60], DICTIONARY, options, limits=limits, n_best=3)


@pytest.mark.parametrize("anchor", [0.0, 0.1])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("beam_width", [None, 1, 4])
@pytest.mark.parametrize("tol", [0.0, 1e3])
def test_every_hypothesis_meets_the_request(beam_width, signed, anchor, tol):
    options = SearchOptions(beam_width, signed=signed, anchor=anchor, tol=tol)
    forbidden = DATA.hierarchy.children(INNER[0])[:2]
    result = pursued(options, force=INNER[0], forbid=forbidden)
    paths = [one.path for i in range(60) for one in result.hypotheses(i)]
    assert paths
    assert all(INNER[0] in path for path in paths)
    assert not any(set(path) & set(forbidden) for path in paths)


def test_an_exact_search_finds_the_best_remaining_path():
    forced, forbidden = INNER[1], DATA.hierarchy.leaves[0]
    result = pursued(SearchOptions(None, anchor=0.1), force=forced, forbid=[forbidden])
    objectives = path_objectives(DATA.X[:60], DICTIONARY, anchor=0.1)
    tree = DATA.hierarchy.path_tree
    ends = [DATA.hierarchy.ids[s] for s in tree.synset[tree.leaf_nodes]]
    below = [forced in DATA.hierarchy.ancestors(end) and end != forbidden for end in ends]
    objectives[:, ~np.array(below)] = np.inf
    assert result.leaves.tolist() == [ends[k] for k in objectives.argmin(axis=1)]


@pytest.mark.parametrize("signed", [False, True])
def test_a_few_images_get_the_same_answers_without_the_kernels(signed, monkeypatch):
    request = {"force": INNER[0], "forbid": DATA.hierarchy.children(INNER[0])[:1]}
    options = SearchOptions(None, signed=signed, anchor=0.1)
    monkeypatch.setattr(sys.modules["hcep.pursuit.search"], "FEW", 0)
    compiled = pursued(options, **request)
    monkeypatch.setattr(sys.modules["hcep.pursuit.search"], "FEW", 10_000)
    few = pursued(options, **request)
    assert np.array_equal(few.n_best_nodes, compiled.n_best_nodes)
    assert np.allclose(few.codes.toarray(), compiled.codes.toarray())


def test_a_forced_concept_is_taken_against_the_signed_rule(pets_dictionary):
    limits = PathLimits.of(pets_dictionary.hierarchy, force="vehicle")
    x = np.array([[3.0, 1.0, 0.0, -4.0]])
    for width in (None, 2):
        result = search(x, pets_dictionary, SearchOptions(width, signed=True), limits=limits)
        assert result.paths[0][0] == "vehicle"
        assert result.coefficients(0)[0] < 0


def test_open_nodes_lead_to_no_dead_end(pets_dictionary):
    # All of animal's children are forbidden, so animal itself is closed and no path ends there.
    limits = PathLimits.of(pets_dictionary.hierarchy, forbid=["cat", "dog", "fox"])
    result = search(pets_dictionary.leaf_embeddings, pets_dictionary, SearchOptions(None), limits=limits)
    assert {path[0] for path in result.paths} == {"vehicle"}


def test_each_image_has_its_own_limits(pets_dictionary):
    h = pets_dictionary.hierarchy
    requests = [Request(), Request.of("vehicle"), Request.of(forbid="cat"), Request.of("vehicle", "car")]
    x = np.repeat([[3.0, 1.0, 0.0, 0.0]], 4, axis=0)
    for width in (None, 3):
        result = search(x, pets_dictionary, SearchOptions(width), limits=PathLimits.of_images(h, requests))
        alone = [
            search(x[:1], pets_dictionary, SearchOptions(width), limits=PathLimits.of(h, *request)).paths[0]
            for request in requests
        ]
        assert result.paths == alone
        assert result.paths[0] == ("animal", "cat")
        assert result.paths[3] == ("vehicle", "bus")
    assert PathLimits.of_images(h, [Request()] * 4) is None


def test_several_routes_to_a_forced_concept_stay_open(diamond):
    limits = PathLimits.of(diamond, force="cat")
    tree = diamond.path_tree
    assert limits.open_at(tree.leaf_nodes)[0].sum() == 2
    assert PathLimits.of(diamond, force=["feline", "cat"]).open_at(tree.leaf_nodes)[0].sum() == 1


@given(st.integers(0, 10_000), st.integers(0, 2), st.booleans())
def test_forcing_a_concept_of_the_answer_changes_nothing(seed, depth, signed):
    x = np.random.default_rng(seed).standard_normal((1, 14))
    options = SearchOptions(None, signed=signed, anchor=0.05)
    free = search(x, DICTIONARY, options)
    path = free.paths[0]
    forced = path[: 1 + depth % max(len(path), 1)]
    forced_result = search(x, DICTIONARY, options, limits=PathLimits.of(DATA.hierarchy, force=forced))
    assert forced_result.paths == free.paths
    assert np.array_equal(forced_result.coefficients(0), free.coefficients(0))


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"force": ["cat", "car"]}, "force: no path has all of 'cat', 'car'"),
        ({"force": "cat", "forbid": "cat"}, "forbid: no path has 'cat' without 'cat'"),
        ({"force": "cat", "forbid": "animal"}, "forbid: no path has 'cat' without 'animal'"),
        ({"forbid": ["animal", "vehicle"]}, "forbid: no path is left without 'animal', 'vehicle'"),
        ({"forbid": "thing"}, "no path is left"),
        ({"force": "animl"}, "'animl' is not a concept of this hierarchy. Near matches: 'animal'"),
    ],
)
def test_a_request_that_no_path_meets_is_rejected(pets, limits, match):
    with pytest.raises(HierarchyError, match=match):
        PathLimits.of(pets, **limits)


def test_a_merged_concept_is_called_by_its_own_name():
    edges = [("thing", "fish"), ("fish", "tench"), ("thing", "dog"), ("thing", "cat")]
    merged = Hierarchy.from_edges(edges).collapse()
    assert [merged.called(name) for name in ("fish", "Fish", "tench", "thing")] == ["fish", "fish", "tench", "thing"]
    with pytest.raises(HierarchyError, match="forbid: no path has 'fish' without 'tench'"):
        PathLimits.of(merged, force="fish", forbid="tench")


def test_a_path_leads_towards_a_forced_concept_beyond_max_steps(pets_dictionary):
    limits = PathLimits.of(pets_dictionary.hierarchy, force="bus")
    result = search(np.ones((1, 4)), pets_dictionary, SearchOptions(max_steps=1), limits=limits)
    assert result.paths == [("vehicle",)]


def test_limits_of_another_hierarchy_are_rejected(pets_dictionary, diamond):
    with pytest.raises(HCEPError, match="limits must be built from the hierarchy of the dictionary"):
        search(np.ones((1, 4)), pets_dictionary, SearchOptions(), limits=PathLimits.of(diamond, force="cat"))


def test_concepts_are_found_by_id_name_merged_name_and_synonym():
    tree = load_sample().hierarchy.as_tree().collapse()
    assert tree.find("n03417042") == "n03417042"
    for name in ("garbage truck", "Garbage_Truck", "garbage trucks", "dustcart"):
        assert tree.find(name) == "n03417042"
    assert tree.find("dog") == tree.find("English springer")  # merged by collapse
    twice = Hierarchy.from_edges([("x", "a"), ("x", "b")], {"a": "crane", "b": "crane"})
    with pytest.raises(HierarchyError, match="'crane' is the name of 2 concepts; give one of the ids 'a', 'b'"):
        twice.find("crane")
