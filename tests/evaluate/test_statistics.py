"""Intervals and tests: laws, textbook values, and how often they are right on simulated data."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binomtest, bootstrap, ttest_rel

from hcep.errors import HCEPError
from hcep.evaluate import compare_scores, expected_calibration_error, paired_draws, statistics
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.statistics import holm, mcnemar
from tests.evaluate.resampling import bootstrap_interval, ece_interval, paired_bootstrap

quick = settings(deadline=None, max_examples=25)
columns = st.lists(st.floats(-5, 5), min_size=1, max_size=30)
outcomes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


@given(columns, st.sampled_from([0.5, 0.9, 0.95]))
@quick
def test_an_interval_holds_its_mean_and_lies_between_the_values(values, level):
    mean, low, high = bootstrap_interval(values, level=level, n_resamples=200)
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    assert min(values) - 1e-9 <= low <= mean <= high <= max(values) + 1e-9


@given(columns, st.integers(0, 5))
@quick
def test_nan_values_do_not_change_the_mean(values, n_more):
    with_gaps = values + [np.nan] * n_more
    assert bootstrap_interval(with_gaps, n_resamples=50)[0] == pytest.approx(np.mean(values), abs=1e-9)


def test_an_interval_is_as_wide_as_the_normal_one():
    values = np.random.default_rng(1).normal(3.0, 2.0, 2000)
    mean, low, high = bootstrap_interval(values)
    half = 1.96 * values.std() / np.sqrt(2000)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.01)


def test_95_of_100_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.random(150) < 0.3, n_resamples=400) for _ in range(300)]
    assert 0.91 <= np.mean([low <= 0.3 <= high for _, low, high in intervals]) <= 0.98


def test_wider_levels_and_the_same_state():
    values = np.random.default_rng(0).random(50)
    narrow, wide = bootstrap_interval(values, level=0.5), bootstrap_interval(values, level=0.99)
    assert wide[1] < narrow[1] < narrow[2] < wide[2]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, random_state=1)


def test_nothing_to_average():
    assert np.isnan(bootstrap_interval([np.nan, np.nan])).all()
    assert np.isnan(bootstrap_interval([])).all()


def test_blocks_do_not_change_the_resamples(monkeypatch):
    values = np.random.default_rng(0).random(40)
    whole = bootstrap_interval(values, n_resamples=100)
    monkeypatch.setattr(statistics, "BLOCK", 7 * 40)
    assert bootstrap_interval(values, n_resamples=100) == pytest.approx(whole, rel=1e-12)


def test_calibration_error_with_its_interval():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 1000)
    correct = rng.random(1000) < confidence - 0.2
    mean, low, high = ece_interval(confidence, correct)
    assert mean == pytest.approx(expected_calibration_error(confidence, correct))
    assert 0.1 < low < mean < high < 0.3


@given(outcomes)
@quick
def test_mcnemar_is_symmetric_and_the_binomial_test_of_the_disagreements(pairs):
    a, b = np.array(pairs).T
    wins, losses = int(np.sum(a > b)), int(np.sum(a < b))
    expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(a, b) == mcnemar(b, a) == pytest.approx(expected, abs=1e-12)


def test_mcnemar_ignores_nan():
    assert mcnemar(np.array([1, 1, 1, 1, 1, np.nan]), np.array([0, 0, 0, 0, 0, 1.0])) == 0.0625


@pytest.mark.parametrize(
    "test",
    [
        lambda a, b: paired_draws([a], [b]).p,
        lambda a, b: paired_bootstrap(a, b, n_resamples=400).p,
        lambda a, b: mcnemar(1.0 * (a > 0.5), 1.0 * (b > 0.5)),
    ],
)
def test_equal_methods_differ_significantly_one_time_in_twenty(test):
    rng = np.random.default_rng(0)
    p = np.array([test(*rng.random((2, 80))) for _ in range(300)])
    assert np.mean(p < 0.05) <= 0.09
    assert np.mean(p < 0.5) >= 0.3


def test_paired_differences():
    a, b = np.array([1.0, 1.0, 0.0, 1.0] * 30), np.array([1.0, 0.0, 0.0, 1.0] * 30)
    result = paired_bootstrap(a, b)
    assert result.difference == 0.25
    assert 0.15 < result.low < 0.25 < result.high < 0.35
    assert result.p == pytest.approx(2 / 2001)
    assert paired_bootstrap(a, a) == (0.0, 0.0, 0.0, 1.0)


def test_mistakes_on_other_images_are_compared_by_their_means():
    a, b = np.array([2.0, np.nan] * 20), np.array([np.nan, 4.0] * 20)
    assert paired_bootstrap(a, b)[:3] == (-2.0, -2.0, -2.0)
    assert np.isnan(paired_bootstrap(a, np.full(40, np.nan))).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
@quick
def test_holm_raises_p_values_and_keeps_their_order(p):
    adjusted = holm(p)
    assert (adjusted >= np.array(p) - 1e-15).all()
    assert (adjusted <= np.minimum(1.0, len(p) * np.array(p)) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, np.nan, 0.03, 0.5]), [0.04, 0.09, np.nan, 0.09, 0.5])
    assert holm([]).shape == (0,)


def test_invalid_values_and_settings_are_rejected():
    scores = {"a": ImageScores(("cat", "dog"), None, {"correct": np.array([1.0, 0.0])})}
    with pytest.raises(HCEPError, match=r"level must be between 0 and 1, such as 0\.95; got 95"):
        compare_scores(scores, columns=["correct"], level=95)
    with pytest.raises(HCEPError, match=r"n_resamples must be a positive integer[;,] got 0"):
        compare_scores(scores, columns=["correct"], n_resamples=0)


def test_the_bootstrap_equals_scipy():
    values = np.random.default_rng(5).gamma(2.0, 1.0, 300)
    theirs = bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    ours = bootstrap_interval(values, n_resamples=4000)
    assert ours[1:] == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_the_paired_bootstrap_equals_scipy():
    rng = np.random.default_rng(6)
    a = rng.random(300)
    b = a + rng.normal(0.05, 0.2, 300)
    theirs = bootstrap(
        (a, b), lambda x, y: np.mean(x) - np.mean(y), paired=True, vectorized=False, n_resamples=2000,
        method="percentile", rng=1,
    ).confidence_interval  # fmt: skip
    assert paired_bootstrap(a, b)[1:3] == pytest.approx((theirs.low, theirs.high), abs=0.004)


def test_one_draw_is_the_paired_t_interval():
    a, b = np.random.default_rng(8).random((2, 50))
    theirs = ttest_rel(a, b)
    low, high = theirs.confidence_interval(0.9)
    assert paired_draws([a], [b], level=0.9) == pytest.approx((np.mean(a - b), low, high, theirs.pvalue))


def test_draws_that_differ_widen_the_interval():
    rng = np.random.default_rng(9)
    luck = np.array([-0.1, 0.0, 0.1])[:, None]
    a, b = rng.normal(0.5, 0.1, (3, 400)), rng.normal(0.5, 0.1, (3, 400))
    same, other = paired_draws(a, b), paired_draws(a + luck, b)
    assert same.difference == pytest.approx(other.difference)
    assert other.high - other.low > 5 * (same.high - same.low)


def test_intervals_over_draws_hold_the_truth_as_often_as_they_say():
    """Images are easy or hard, draws lucky or not, for both methods alike and each alone."""
    rng, held = np.random.default_rng(10), 0
    for _ in range(300):
        images, draws = rng.normal(0, 0.3, (2, 1, 200)), rng.normal(0, 0.02, (2, 3, 1))
        a, b = (0.5 + images[k] + draws[k] + rng.normal(0, 0.2, (3, 200)) for k in (0, 1))
        result = paired_draws(a, b)
        held += result.low <= 0.0 <= result.high
    assert 0.92 <= held / 300 <= 0.99


def test_draws_of_mistakes_alone():
    a, b = np.array([[2.0, np.nan] * 20]), np.array([[np.nan, 4.0] * 20])
    assert paired_draws(a, b)[:3] == pytest.approx((-2.0, -2.0, -2.0))
    assert np.isnan(paired_draws(a, np.full((1, 40), np.nan))).all()
    rng = np.random.default_rng(11)
    a, b = (np.where(rng.random((1, 500)) < 0.4, rng.integers(1, 6, (1, 500)), np.nan) for _ in range(2))
    assert paired_draws(a, b)[:3] == pytest.approx(paired_bootstrap(a[0], b[0])[:3], abs=0.03)


def test_draws_must_have_two_axes():
    with pytest.raises(HCEPError, match=r"a must have the shape \(n_draws, n_images\), got \(2,\)"):
        paired_draws([1.0, 0.0], [[1.0, 0.0]])
