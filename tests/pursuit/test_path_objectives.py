"""The objective of every complete path."""

from __future__ import annotations

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, Hierarchy, hb_omp
from hcep.errors import DictionaryError
from hcep.pursuit import path_objectives
from hcep.pursuit.blocks import BLOCK
from tests.reference.oracle import Oracle


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).normal([2.0, 0.0, 0.0, 1.0], size=(6, 4))


@pytest.mark.parametrize("anchor", [0.0, 0.03, 10.0])
def test_objectives_equal_those_of_the_oracle(
    pets_dictionary: ConceptDictionary, images: np.ndarray, anchor: float
) -> None:
    objectives = path_objectives(images, pets_dictionary, anchor=anchor)
    leaves = pets_dictionary.hierarchy.leaves
    for i, x in enumerate(images):
        expected = {h.synsets[-1]: h.objective for h in Oracle(pets_dictionary, anchor=anchor).exact(x).beam}
        assert objectives[i] == pytest.approx([expected[leaf] for leaf in leaves], abs=1e-9)


def test_the_signed_rule_excludes_paths(pets_dictionary: ConceptDictionary) -> None:
    away = -pets_dictionary.synset_embedding("animal")[None]
    objectives = path_objectives(away, pets_dictionary, signed=True)[0]
    assert np.isinf(objectives[:3]).all()


def test_columns_are_the_leaf_paths_of_a_dag(diamond: Hierarchy) -> None:
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary(diamond, rng.standard_normal((len(diamond), 3)))
    objectives = path_objectives(rng.standard_normal((5, 3)), dictionary, anchor=0.1)
    assert objectives.shape == (5, 4)


def test_the_best_column_is_the_exact_answer(pets_dictionary: ConceptDictionary) -> None:
    X = np.random.default_rng(1).standard_normal((BLOCK + 3, 4))
    objectives = path_objectives(X, pets_dictionary, anchor=0.05, n_jobs=2)
    leaf_nodes = pets_dictionary.hierarchy.path_tree.leaf_nodes
    result = hb_omp(X, pets_dictionary, beam_width=None, anchor=0.05)
    assert leaf_nodes[objectives.argmin(axis=1)].tolist() == result.nodes.tolist()


def test_single_precision_survives_a_large_anchor(pets_dictionary: ConceptDictionary, images: np.ndarray) -> None:
    single = path_objectives(images.astype(np.float32), pets_dictionary, anchor=1e7)
    assert single == pytest.approx(path_objectives(images, pets_dictionary, anchor=1e7), abs=1e-3)


def test_no_images_give_an_empty_array(pets_dictionary: ConceptDictionary) -> None:
    assert path_objectives(np.zeros((0, 4)), pets_dictionary).shape == (0, 5)


def test_invalid_input_is_rejected(pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(HCEPError, match=r"anchor must be a finite number of at least 0, got -1"):
        path_objectives(np.ones((1, 4)), pets_dictionary, anchor=-1)
    with pytest.raises(DictionaryError, match=r"X has 3 dimensions, but the dictionary has 4"):
        path_objectives(np.ones((1, 3)), pets_dictionary)
    with pytest.raises(DictionaryError, match=r"1 of 1 rows, such as rows 0;"):
        path_objectives(np.full((1, 4), np.nan), pets_dictionary)
