"""NN and HNN by brute force."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, Hierarchy
from hcep.classify import hnn, nn
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import BLOCK
from tests.reference.random_problems import random_dictionary, random_hierarchy


@pytest.fixture(params=range(30))
def dictionary(request: pytest.FixtureRequest) -> ConceptDictionary:
    rng = np.random.default_rng(request.param)
    hierarchy = random_hierarchy(rng, several_parents=bool(request.param % 2))
    return random_dictionary(rng, hierarchy, leaf_means=bool(request.param % 3))


def images_of(dictionary: ConceptDictionary) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((20, dictionary.n_dims))


def walk(x: np.ndarray, dictionary: ConceptDictionary) -> tuple[str, ...]:
    """Step to the nearest child until there is none."""
    at, path = dictionary.hierarchy.root, ()
    while dictionary.hierarchy.children(at):
        children = dictionary.hierarchy.children(at)
        distances = [np.linalg.norm(x - dictionary.synset_embedding(child)) for child in children]
        at = children[int(np.argmin(distances))]
        path = (*path, at)
    return path


def test_nn_is_the_nearest_leaf(dictionary: ConceptDictionary) -> None:
    X = images_of(dictionary)
    distances = np.linalg.norm(X[:, None] - dictionary.leaf_embeddings[None], axis=2)
    found = nn(X, dictionary)
    assert found.leaves.tolist() == [dictionary.hierarchy.leaves[k] for k in distances.argmin(axis=1)]
    assert found.residual_norms == pytest.approx(distances.min(axis=1))
    assert all(path in dictionary.hierarchy.paths(path[-1]) for path in found.paths)


def test_hnn_walks_to_the_nearest_child(dictionary: ConceptDictionary) -> None:
    X = images_of(dictionary)
    found = hnn(X, dictionary)
    assert found.paths == [walk(x, dictionary) for x in X]
    ends = np.array([dictionary.synset_embedding(leaf) for leaf in found.leaves])
    assert found.residual_norms == pytest.approx(np.linalg.norm(X - ends, axis=1))


@pytest.mark.parametrize("baseline", [nn, hnn])
def test_codes_are_ones_along_the_path(pets_dictionary: ConceptDictionary, baseline: Callable) -> None:
    X = np.array([[3.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 2.0]])
    found = baseline(X, pets_dictionary)
    assert found.paths == [("animal", "cat"), ("vehicle", "bus")]
    assert set(found.codes.data) == {1.0}
    assert found.codes @ pets_dictionary.atoms == pytest.approx(X)
    assert found.hypotheses(0) == [(("animal", "cat"), found.residual_norms[0])]


@pytest.mark.parametrize("baseline", [nn, hnn])
def test_single_child_chains_do_not_warn(baseline: Callable) -> None:
    hierarchy = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("root", "d")])
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, {"c": [1.0, 0.0], "d": [0.0, 1.0]})
    assert baseline([[1.0, 0.2]], dictionary).paths == [("a", "b", "c")]


@pytest.mark.parametrize("baseline", [nn, hnn])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_precision_and_number_of_images(
    pets_dictionary: ConceptDictionary, baseline: Callable, dtype: type
) -> None:
    X = np.random.default_rng(0).integers(-4, 5, (BLOCK + 5, 4)).astype(dtype)
    found = baseline(X, pets_dictionary, n_jobs=2)
    assert found.paths == baseline(X.astype(np.float64), pets_dictionary, n_jobs=1).paths
    assert baseline(X[0], pets_dictionary).paths == found.paths[:1]
    assert baseline(X[:0], pets_dictionary).paths == []


@pytest.mark.parametrize("baseline", [nn, hnn])
def test_images_go_through_the_transform(pets: Hierarchy, baseline: Callable) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(pets.leaves, 6)
    X = rng.standard_normal((30, 4)) + np.repeat(5 * rng.standard_normal((5, 4)), 6, axis=0)
    fitted = ConceptDictionary.from_images(pets, X, y, unit_norm=True, center=True, shrinkage=0.5)
    plain = ConceptDictionary(fitted.hierarchy, fitted.synset_embeddings)
    assert baseline(X, fitted).paths == baseline(fitted.embed(X), plain).paths


@pytest.mark.parametrize("baseline", [nn, hnn])
def test_bad_images_are_refused(pets_dictionary: ConceptDictionary, baseline: Callable) -> None:
    with pytest.raises(DictionaryError, match=r"X has 3 dimensions, but the dictionary has 4"):
        baseline(np.ones((2, 3)), pets_dictionary)
    with pytest.raises(DictionaryError, match=r"1 of 2 rows, such as rows 1;"):
        baseline([[0.0, 1.0, 2.0, 3.0], [np.inf, 0.0, 0.0, 0.0]], pets_dictionary)
    with pytest.raises(HCEPError, match=r"n_jobs must be a positive number of threads"):
        baseline(np.ones((1, 4)), pets_dictionary, n_jobs=0)
