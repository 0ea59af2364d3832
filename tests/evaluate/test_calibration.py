import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hcep.errors import HCEPError
from hcep.evaluate import expected_calibration_error
from hcep.evaluate.image_scores import class_index, true_class_ranks
from hcep.evaluate.statistics import calibration_gaps

quick = settings(deadline=None, max_examples=30)


def slow_ece(confidence, correct, n_bins):
    """Bin by bin, from the definition."""
    total = 0.0
    for b in range(n_bins):
        inside = [
            (p, right)
            for p, right in zip(confidence, correct, strict=True)
            if b / n_bins < p <= (b + 1) / n_bins or (b == 0 and p == 0.0)
        ]
        gap = np.mean([right for _, right in inside] or [0]) - np.mean([p for p, _ in inside] or [0])
        total += len(inside) / len(confidence) * abs(gap)
    return total


# Confidences away from the edges of bins, where rounding would decide.
inside_bins = st.integers(0, 99).map(lambda i: 0.003 + i / 100)


@given(st.lists(st.tuples(inside_bins, st.booleans()), min_size=1, max_size=60), st.sampled_from([1, 3, 15]))
@quick
def test_the_calibration_error_is_the_mean_gap_of_the_bins(images, n_bins):
    confidence, correct = [p for p, _ in images], [float(right) for _, right in images]
    assert expected_calibration_error(confidence, correct, n_bins) == pytest.approx(
        slow_ece(confidence, correct, n_bins), abs=1e-12
    )


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.randoms())
@quick
def test_the_calibration_error_is_a_share_and_ignores_the_order(images, random):
    confidence, correct = np.array(images, dtype=float).T
    error = expected_calibration_error(confidence, correct)
    random.shuffle(images)
    assert 0.0 <= error <= 1.0
    assert expected_calibration_error(*np.array(images, dtype=float).T) == pytest.approx(error, abs=1e-12)


def test_calibrated_images_have_a_small_error_and_overconfident_ones_do_not():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1.0, 50_000)
    correct = rng.random(50_000) < confidence
    assert expected_calibration_error(confidence, correct) < 0.01
    assert expected_calibration_error(np.minimum(confidence + 0.2, 1.0), correct) > 0.1


def test_edges_belong_to_the_bin_below():
    assert np.flatnonzero(calibration_gaps([0.0, 0.5, 1.0], [0, 0, 0], 2).any(axis=1)).tolist() == [1, 2]
    assert calibration_gaps([0.5, 0.51], [1, 1], 2).tolist() == [[0.5, 0.0], [0.0, 0.49]]


def test_images_without_values_are_ignored():
    assert expected_calibration_error([0.9, np.nan], [1, 1]) == pytest.approx(0.1)
    assert np.isnan(expected_calibration_error([np.nan], [1]))
    assert np.isnan(expected_calibration_error([], []))


def test_confidences_are_probabilities():
    with pytest.raises(HCEPError, match=r"confidence must be between 0 and 1; got 3\.0: normalise the probabilities"):
        expected_calibration_error([3.0, 0.5], [1, 0])


def test_ranks_and_their_ties():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]])
    assert true_class_ranks(probabilities, np.array([1, 1, 0])).tolist() == [2, 2, 2]
    assert true_class_ranks(probabilities, np.array([0, 0, 1])).tolist() == [1, 1, 3]
    assert true_class_ranks(probabilities, np.array([-1, -1, -1])).tolist() == [np.inf] * 3


@given(st.integers(0, 2**32 - 1))
@quick
def test_the_first_rank_is_the_argmax(seed):
    probabilities = np.random.default_rng(seed).integers(0, 3, (6, 5)) / 2.0
    ranks = np.array([true_class_ranks(probabilities, np.full(6, c)) for c in range(5)])
    assert (np.argmin(ranks, axis=0) == np.argmax(probabilities, axis=1)).all()
    assert (np.sort(ranks, axis=0) == np.arange(1, 6)[:, None]).all()


def test_class_index():
    assert class_index(["b", "x", "a"], ["a", "b"]).tolist() == [1, -1, 0]
