"""Choosing a penalty for a size of support, and keeping the strongest atoms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from experiments.baselines.penalised import alpha_for, sparse_codes, spread, strongest


@given(wanted=st.floats(1.0, 50.0), rate=st.floats(0.3, 3.0))
def test_a_size_that_a_penalty_gives_is_found(wanted: float, rate: float) -> None:
    def mean_support(alpha: float) -> float:
        return 100.0 * (1.0 - alpha) ** rate

    assume(mean_support(0.9) < wanted)
    assert mean_support(alpha_for(wanted, mean_support)) == pytest.approx(wanted, rel=0.051)


@pytest.mark.parametrize(
    ("mean_support", "expected"),
    [
        (lambda alpha: 3.0, 0.5),  # never as small: the cut does the rest, and codes do not vanish
        (lambda alpha: 1.0 if alpha > 0.3 else 2.2, 0.3),  # a jump, its upper side nearer
        (lambda alpha: 1.8 if alpha > 0.3 else 5.0, 0.5),  # a jump, its lower side nearer
        (lambda alpha: 0.0 if alpha > 0.3 else 90.0, 0.3),  # a jump from nothing: rather too much, which is cut
    ],
)
def test_the_nearest_size_that_a_penalty_gives(mean_support: Callable[[float], float], expected: float) -> None:
    assert alpha_for(2, mean_support) == pytest.approx(expected, rel=0.3)


def test_strongest_by_hand() -> None:
    weights = np.array([[0.0, 3.0, 1.0, 3.0], [0.0, 0.0, 2.0, 0.0]])
    assert strongest(weights, 3).tolist() == [[1, 3, 2], [2, -1, -1]]
    assert strongest(weights, 1).tolist() == [[1], [2]]
    assert strongest(np.zeros((2, 4)), 3).shape == (2, 0)


def test_codes_have_sorted_atoms() -> None:
    codes = sparse_codes(
        np.array([[3, 1, -1], [0, -1, -1]], dtype=np.int32), np.array([[1.0, 2.0, 9.0], [3.0, 9.0, 9.0]]), 4
    )
    assert codes.has_sorted_indices
    assert codes.toarray().tolist() == [[0.0, 2.0, 0.0, 1.0], [3.0, 0.0, 0.0, 0.0]]


def test_a_sample_is_spread_evenly() -> None:
    X = np.arange(1000.0)[:, None]
    rows = spread(X)[:, 0]
    assert len(rows) == 200
    assert rows[[0, -1]].tolist() == [0.0, 999.0]
    assert set(np.diff(rows)) == {5.0, 6.0}
    assert spread(X[:7]).tolist() == X[:7].tolist()
