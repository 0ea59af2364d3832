"""Why two paths of one image part."""

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.explain import contrast, explain


@pytest.fixture
def two_way() -> ConceptDictionary:
    """animal has two children, whose atoms are opposite."""
    tree = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    return ConceptDictionary.from_leaf_embeddings(tree, {"cat": [2.0, 1.0], "dog": [2.0, -1.0], "car": [-3.0, 0.5]})


def both(x, dictionary, **options):
    X = np.array([x])
    paper = hb_omp(X, dictionary)
    return explain(X, paper)[0], explain(X, hb_omp(X, dictionary, **options))[0], paper


def test_two_way_split_is_recognised(two_way):
    paper, ours, result = both([2.0, -1.2], two_way, signed=True)
    found = contrast(paper, ours, result)
    assert found.shared == ("animal",)
    assert (found.first.synset, found.second.synset) == ("cat", "dog")
    assert found.cosine == pytest.approx(-1)
    sentence = found.sentence("the paper's rule", "ours")
    assert "Below 'animal' the paper's rule takes 'cat' and ours takes 'dog'" in sentence
    assert "coefficient -1.20" in sentence


def test_negative_coefficient_without_a_two_way_split_is_recognised(pets_dictionary):
    # Far from every animal's own direction: the paper's rule explains it by "not a vehicle".
    paper, ours, result = both([0.1, 0.2, 0.1, -3.0], pets_dictionary, signed=True)
    found = contrast(paper, ours, result)
    assert found.first.coefficient < 0
    assert "pointing away from the concept it names" in found.sentence()
    assert found.sentence().startswith("At the first step")


def test_free_coefficients_are_the_remaining_reason(pets):
    # A third of a cat's difference fits better than any multiple of a dog's, but a dog's own is nearer.
    tree = pets.restrict(["cat", "dog", "fox", "car"]).collapse()
    leaves = {"cat": [3, 2, 0, 0], "dog": [3, 0, 1, 0], "fox": [3, -2, -1, 0], "car": [0, 0, 0, 4]}
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    paper, ours, result = both([3.0, 0.7, 0.1, 0.0], dictionary, beam_width=None, anchor=50.0)
    found = contrast(paper, ours, result)
    assert (found.first.synset, found.second.synset) == ("cat", "dog")
    assert "free coefficients (0.35 here" in found.sentence()
    assert "a prior at 1 charges for that" in found.sentence()


def test_same_path_cut_short_is_said(pets_dictionary):
    X = pets_dictionary.leaf_embeddings[:1]
    full, cut = (hb_omp(X, pets_dictionary, max_steps=steps) for steps in (None, 1))
    found = contrast(explain(X, full)[0], explain(X, cut)[0], full)
    assert found.second is None
    assert np.isnan(found.cosine)
    assert "one path goes on where the other ends" in found.sentence()
