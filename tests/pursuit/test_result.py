"""The results of a pursuit: paths, codes, hypotheses and traces."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp, omp
from hcep.pursuit.result import path_codes, path_of


@pytest.fixture
def result(pets_dictionary: ConceptDictionary):
    X = pets_dictionary.leaf_embeddings[[0, 3, 0]]
    return hb_omp(X, pets_dictionary, beam_width=None, anchor=0.1, n_best=2, trace=True)


def test_length_and_repr(result, pets_dictionary: ConceptDictionary) -> None:
    assert len(result) == 3
    assert repr(result).startswith("PathResult(3 images, ConceptDictionary(7 atoms")
    flat = omp(pets_dictionary.leaf_embeddings[:2], pets_dictionary)
    assert len(flat) == 2
    assert repr(flat).startswith("FlatResult(2 images, ConceptDictionary(7 atoms")


def test_paths_and_leaves(result) -> None:
    assert result.paths == [("animal", "cat"), ("vehicle", "car"), ("animal", "cat")]
    assert result.leaves.tolist() == ["cat", "car", "cat"]


def test_codes_have_one_column_per_atom(result, pets_dictionary: ConceptDictionary) -> None:
    edges = [pets_dictionary.edges[k] for k in result.codes.indices[:4]]
    assert edges == [("thing", "animal"), ("animal", "cat"), ("thing", "vehicle"), ("vehicle", "car")]
    assert result.codes.has_sorted_indices
    assert result.codes @ pets_dictionary.atoms == pytest.approx(pets_dictionary.leaf_embeddings[[0, 3, 0]])


def test_hypotheses_start_with_the_answer(result) -> None:
    best, second = result.hypotheses(0)
    assert best.path == ("animal", "cat")
    assert best.residual_norm == pytest.approx(0.0, abs=1e-9)
    assert second.residual_norm > best.residual_norm


def test_trace_steps_start_with_the_empty_path(result) -> None:
    first, *_, last = result.trace.steps(1)
    assert first[0].path == ()
    assert last[0].path == ("vehicle", "car")


def test_path_of_the_root_is_empty(pets_dictionary: ConceptDictionary) -> None:
    assert path_of(pets_dictionary, 0) == ()
    assert path_of(pets_dictionary, 3) == ("animal", "cat")


def test_path_codes_take_paths_of_different_lengths(pets_dictionary: ConceptDictionary) -> None:
    nodes = np.array([0, 2, 7], dtype=np.int32)
    codes = path_codes(pets_dictionary, nodes, np.array([[9.0, 9.0], [1.0, 9.0], [2.0, 3.0]]))
    assert codes.toarray().tolist() == [[0.0] * 7, [0, 1, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0, 3]]


def test_columns_follow_the_path_in_a_dag() -> None:
    # d is a child of the root, of b and of c, so it has three paths, and some edges skip levels.
    edges = [("r", "d"), ("r", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("c", "f"), ("a", "g")]
    hierarchy = Hierarchy.from_edges(edges)
    rng = np.random.default_rng(0)
    dictionary = ConceptDictionary(hierarchy, rng.standard_normal((len(hierarchy), 8)))
    tree = hierarchy.path_tree
    for node in tree.leaf_nodes:
        codes = path_codes(dictionary, np.array([node], np.int32), np.arange(1.0, tree.depth + 1)[None])
        path = (hierarchy.root, *path_of(dictionary, int(node)))
        assert [dictionary.edges[k] for k in codes.indices] == list(pairwise(path))
        assert codes.data.tolist() == list(range(1, len(path)))
