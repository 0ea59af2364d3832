"""The path of an answer, on images made by hand."""

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, explain_images, hb_omp
from hcep.classify.calibration import Calibration
from hcep.classify.path_model import PathModel
from hcep.pursuit import SearchOptions


def model_of(dictionary: ConceptDictionary, **options) -> PathModel:
    leaves = np.array(dictionary.hierarchy.leaves)
    return PathModel(leaves, leaves, dictionary, SearchOptions(**options), Calibration(1.0))


def test_an_image_that_is_a_leaf_has_ones_and_is_fully_explained(pets_dictionary):
    X = pets_dictionary.synset_embedding("cat")[None]
    answer = explain_images(X, model_of(pets_dictionary))[0]
    assert [step.synset for step in answer.path] == ["animal", "cat"]
    np.testing.assert_allclose([step.coefficient for step in answer.path], 1.0)
    assert answer.path[-1].explained == pytest.approx(1.0)
    assert answer.trail() == hb_omp(X, pets_dictionary).trail(0) == "animal 1.00 → cat 1.00"
    assert answer.names() == "animal → cat"
    assert (answer.leaf, answer.root) == ("cat", "thing")


def test_the_explained_share_is_what_the_partial_path_leaves(pets_dictionary):
    x = np.array([3.0, 1.5, 0.5, 0.2])
    answer = explain_images(x, model_of(pets_dictionary))[0]
    left = x - answer.path[0].coefficient * pets_dictionary.synset_embedding("animal")
    assert answer.path[0].explained == pytest.approx(1 - left @ left / (x @ x))
    assert 1 - answer.path[-1].explained == pytest.approx(answer.residual_norm**2 / (x @ x))
    assert answer.residual_norm == hb_omp(x, pets_dictionary).residual_norms[0]


def test_merged_names_are_shown_and_rivals_are_the_other_classes():
    chain = [("thing", "animal"), ("animal", "feline"), ("feline", "cat"), ("animal", "dog"), ("thing", "car")]
    hierarchy = Hierarchy.from_edges(chain, names={"cat": "house cat"}).collapse()
    leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.5], "car": [0.0, 0.0, 3.0]}
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)
    X = np.array([[2.0, 1.0, 0.1], [0.0, 0.1, 3.0]])
    cat, car = explain_images(X, model_of(dictionary, beam_width=None, anchor=0.1), n_best=3)
    assert cat.path[-1].merged == ("feline",)
    assert cat.path[-1].name == "house cat"
    assert {rival.label for rival in cat.rivals} == {"dog", "car"}
    assert car.leaf == "car"


def test_an_empty_path_says_so(pets_dictionary):
    answer = explain_images(np.zeros((1, 4)), model_of(pets_dictionary, signed=True))[0]
    assert answer.trail() == hb_omp(np.zeros((1, 4)), pets_dictionary, signed=True).trail(0) == "(no concept)"
    assert answer.names() == "no concept"
    assert answer.leaf == ""
