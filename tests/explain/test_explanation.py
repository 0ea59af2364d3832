"""Explanations of hand-made images."""

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.errors import HCEPError
from hcep.explain import explain


def test_exact_leaf_has_ones_and_is_fully_explained(pets_dictionary):
    X = pets_dictionary.synset_embedding("cat")[None]
    explanation = explain(X, hb_omp(X, pets_dictionary))[0]
    assert [step.synset for step in explanation.steps] == ["animal", "cat"]
    np.testing.assert_allclose([step.coefficient for step in explanation.steps], 1.0)
    assert explanation.steps[-1].explained == pytest.approx(1.0)
    assert explanation.trail() == "animal 1.00 → cat 1.00"
    assert explanation.leaf == "cat"
    assert explanation.root == "thing"


def test_explained_share_is_what_the_partial_path_leaves(pets_dictionary):
    x = np.array([3.0, 1.5, 0.5, 0.2])
    found = hb_omp(x, pets_dictionary)
    steps = explain(x, found)[0].steps
    animal = pets_dictionary.synset_embedding("animal")
    left = x - steps[0].coefficient * animal
    assert steps[0].explained == pytest.approx(1 - left @ left / (x @ x))
    assert 1 - steps[-1].explained == pytest.approx(found.residual_norms[0] ** 2 / (x @ x))


def test_merged_names_and_runners_up_are_kept():
    chain = [("thing", "animal"), ("animal", "feline"), ("feline", "cat"), ("animal", "dog"), ("thing", "car")]
    hierarchy = Hierarchy.from_edges(chain, names={"cat": "house cat"}).collapse()
    leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.5], "car": [0.0, 0.0, 3.0]}
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)
    X = np.array([[2.0, 1.0, 0.1], [0.0, 0.1, 3.0]])
    found = hb_omp(X, dictionary, beam_width=None, anchor=0.1, n_best=3)
    cat, car = explain(X, found)
    assert cat.steps[-1].merged == ("feline",)
    assert cat.steps[-1].name == "house cat"
    assert len(cat.runners_up) == 2
    assert car.leaf == "car"


def test_empty_path_says_so(pets_dictionary):
    X = np.zeros((1, 4))
    explanation = explain(X, hb_omp(X, pets_dictionary, signed=True))[0]
    assert explanation.trail() == "(no concept)"
    assert explanation.leaf == ""


def test_only_chosen_images_are_explained(pets_dictionary):
    X = pets_dictionary.leaf_embeddings
    found = hb_omp(X, pets_dictionary, anchor=1.0)
    assert [e.leaf for e in explain(X, found, [2, 0])] == [pets_dictionary.hierarchy.leaves[i] for i in (2, 0)]


def test_other_images_than_the_pursuits_are_refused(pets_dictionary):
    X = pets_dictionary.leaf_embeddings
    with pytest.raises(HCEPError, match="X has 2 images, the result 5"):
        explain(X[:2], hb_omp(X, pets_dictionary))
