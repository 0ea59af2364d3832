"""What a result says about itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy, hb_omp, omp
from hcep.pursuit.result import path_codes, path_of


@pytest.fixture
def found(pets_dictionary: ConceptDictionary):
    X = pets_dictionary.leaf_embeddings[[0, 3, 0]]
    return hb_omp(X, pets_dictionary, beam_width=None, anchor=0.1, n_best=2, trace=True)


def test_length_and_repr(found, pets_dictionary: ConceptDictionary) -> None:
    assert len(found) == 3
    assert repr(found).startswith("PathResult(3 images, ConceptDictionary(7 atoms")
    flat = omp(pets_dictionary.leaf_embeddings[:2], pets_dictionary)
    assert len(flat) == 2
    assert repr(flat).startswith("FlatResult(2 images, ConceptDictionary(7 atoms")


def test_paths_and_leaves(found) -> None:
    assert found.paths == [("animal", "cat"), ("vehicle", "car"), ("animal", "cat")]
    assert found.leaves.tolist() == ["cat", "car", "cat"]


def test_codes_have_a_column_an_atom(found, pets_dictionary: ConceptDictionary) -> None:
    edges = [pets_dictionary.edges[k] for k in found.codes.indices[:4]]
    assert edges == [("thing", "animal"), ("animal", "cat"), ("thing", "vehicle"), ("vehicle", "car")]
    assert found.codes.has_sorted_indices
    assert found.codes @ pets_dictionary.atoms == pytest.approx(pets_dictionary.leaf_embeddings[[0, 3, 0]])


def test_hypotheses_begin_with_the_answer(found) -> None:
    best, second = found.hypotheses(0)
    assert best.path == ("animal", "cat")
    assert best.residual_norm == pytest.approx(0.0, abs=1e-9)
    assert second.residual_norm > best.residual_norm


def test_trace_steps_begin_with_the_empty_path(found) -> None:
    first, *_, last = found.trace.steps(1)
    assert first[0].path == ()
    assert last[0].path == ("vehicle", "car")


def test_path_of_the_root_is_empty(pets_dictionary: ConceptDictionary) -> None:
    assert path_of(pets_dictionary, 0) == ()
    assert path_of(pets_dictionary, 3) == ("animal", "cat")


def test_path_codes_of_paths_of_any_length(pets_dictionary: ConceptDictionary) -> None:
    nodes = np.array([0, 2, 7], dtype=np.int32)
    codes = path_codes(pets_dictionary, nodes, np.array([[9.0, 9.0], [1.0, 9.0], [2.0, 3.0]]))
    assert codes.toarray().tolist() == [[0.0] * 7, [0, 1, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0, 3]]


def test_columns_run_down_the_path_in_a_dag() -> None:
    # d hangs from the root, from b and from c: three paths, and edges that skip levels.
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
