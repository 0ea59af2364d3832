"""Why the paths that two searches find for one image part."""

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp
from hcep.explain.parting import parting_sentence


@pytest.fixture
def two_way() -> ConceptDictionary:
    """animal has two children, whose atoms are opposite."""
    tree = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    return ConceptDictionary.from_leaf_embeddings(tree, {"cat": [2.0, 1.0], "dog": [2.0, -1.0], "car": [-3.0, 0.5]})


def sentence(x, dictionary, **options):
    """Where the published rule and another one part on an image."""
    X = np.array([x])
    return parting_sentence(
        hb_omp(X, dictionary), hb_omp(X, dictionary, **options), 0, names=("the paper's rule", "ours")
    )


def test_a_two_way_split_is_recognised(two_way):
    text = sentence([2.0, -1.2], two_way, signed=True)
    assert "Below 'animal' the paper's rule takes 'cat' and ours takes 'dog'" in text
    assert "(cosine -1.00)" in text
    assert "coefficient -1.20" in text


def test_a_negative_coefficient_without_a_two_way_split_is_recognised(pets_dictionary):
    # Far from every animal's own direction: the paper's rule explains it by "not a vehicle".
    text = sentence([0.1, 0.2, 0.1, -3.0], pets_dictionary, signed=True)
    assert text.startswith("At the first step")
    assert "is -" in text
    assert "pointing away from the concept it names" in text


def test_free_coefficients_are_the_remaining_reason(pets):
    # A third of a cat's difference fits better than any multiple of a dog's, but a dog's own is nearer.
    tree = pets.restrict(["cat", "dog", "fox", "car"]).collapse()
    leaves = {"cat": [3, 2, 0, 0], "dog": [3, 0, 1, 0], "fox": [3, -2, -1, 0], "car": [0, 0, 0, 4]}
    dictionary = ConceptDictionary.from_leaf_embeddings(tree, leaves)
    text = sentence([3.0, 0.7, 0.1, 0.0], dictionary, beam_width=None, anchor=50.0)
    assert "takes 'cat' and ours takes 'dog'" in text
    assert "free coefficients (0.35 here" in text
    assert "a prior at 1 charges for that" in text


def test_one_path_that_ends_where_the_other_goes_on_is_recognised(pets_dictionary):
    X = pets_dictionary.leaf_embeddings[:1]
    full, cut = (hb_omp(X, pets_dictionary, max_steps=steps) for steps in (None, 1))
    for pair in ((full, cut), (cut, full)):
        assert "one path goes on where the other ends" in parting_sentence(*pair, 0)
