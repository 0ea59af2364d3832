"""The paper's synthetic experiment with its default settings: only the hierarchical search recovers the supports."""

from __future__ import annotations

import pytest

from hcep import hb_omp, omp, support_scores
from hcep.datasets import make_hierarchical_concepts


@pytest.fixture(scope="module")
def concepts():
    return make_hierarchical_concepts()


def test_the_default_model_has_3280_atoms(concepts) -> None:
    assert concepts.dictionary.n_atoms == 3280


def test_hb_omp_recovers_the_supports(concepts) -> None:
    result = hb_omp(concepts.X, concepts.dictionary, beam_width=8)
    precision, recall = support_scores(result, concepts.y, concepts.hierarchy).mean
    assert precision >= 0.9
    assert recall >= 0.9


def test_flat_omp_does_not_recover_the_supports(concepts) -> None:
    result = omp(concepts.X[::5], concepts.dictionary)
    precision, _ = support_scores(result, concepts.y[::5], concepts.hierarchy).mean
    assert precision < 0.3
