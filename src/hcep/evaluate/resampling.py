"""Bootstrap and sign flips for many columns at once: every mean is a sum, so a resample is one matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError
from hcep.evaluate.calibration import calibration_gaps

#: Resampled images held in memory at once.
BLOCK = 4_000_000


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """What a method has over another, with its confidence interval and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def summable(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A metric as two columns whose sums give its mean, (n_images, 2): the value, and whether there is one."""
    known = ~np.isnan(values)
    return np.column_stack([np.where(known, values, 0.0), known])


def summable_gaps(confidence: NDArray[np.float64], correct: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the calibration error needs as columns to sum, (n_images, n_bins + 1)."""
    return np.column_stack([calibration_gaps(confidence, correct), ~np.isnan(confidence + correct)])


def means(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means from sums of `summable` in the last axis; NaN where nothing was summed."""
    return _ratio(sums[..., 0], sums[..., 1])


def calibration_errors(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expected calibration errors from sums of `summable_gaps` in the last axis."""
    return _ratio(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def resampled_sums(table: NDArray[np.float64], n_resamples: int, random_state: int) -> NDArray[np.float64]:
    """Column sums over images drawn with replacement, (n_resamples, n_columns)."""
    _require_positive("n_resamples", n_resamples)
    blocks = [counts @ table for counts in _counts(len(table), n_resamples, random_state)]
    return np.concatenate(blocks)


def interval(estimate: NDArray[np.float64], resampled: NDArray[np.float64], level: float) -> Interval:
    """Percentiles of resampled estimates; widened to hold the estimate itself, which rounding may leave outside."""
    low, high = _percentiles(resampled, level)
    return Interval(float(estimate), float(np.fmin(low, estimate)), float(np.fmax(high, estimate)))


def difference(estimate: NDArray[np.float64], resampled: NDArray[np.float64], level: float) -> Difference:
    """Percentiles of resampled differences and their two-sided p-value; NaN where the estimate is."""
    known = resampled[~np.isnan(resampled)]
    if np.isnan(estimate) or not len(known):
        return Difference(float("nan"), float("nan"), float("nan"), float("nan"))
    tail = min(int(np.sum(known <= 0.0)), int(np.sum(known >= 0.0)))
    p = min(1.0, 2.0 * (1 + tail) / (1 + len(known)))  # one more: the data themselves are one resample
    return Difference(*interval(estimate, known, level), p)


def sign_flip_p(differences: NDArray[np.float64], n_permutations: int, random_state: int) -> NDArray[np.float64]:
    """`sign_flip_test` on every column of (n_images, n_pairs) with the same flips; NaN counts as no difference."""
    _require_positive("n_permutations", n_permutations)
    d = np.nan_to_num(differences)
    d = d[d.any(axis=1)]  # what is zero in every column stays zero whatever its sign
    observed = np.abs(d.sum(axis=0))
    # Sums in another order differ by rounding; as extreme as the data must include the data.
    observed -= 1e-12 * np.abs(d).sum(axis=0)
    n_extreme = np.zeros(d.shape[1])
    for signs in _signs(len(d), n_permutations, random_state):
        n_extreme += np.sum(np.abs(signs @ d) >= observed, axis=0)
    p: NDArray[np.float64] = (1.0 + n_extreme) / (1.0 + n_permutations)
    return p


def _counts(n_images: int, n_resamples: int, random_state: int) -> Iterator[NDArray[np.float64]]:
    """How often each image is drawn, (n_resamples, n_images) in blocks."""
    rng = np.random.default_rng(random_state)
    step = max(1, BLOCK // max(n_images, 1))
    for start in range(0, n_resamples, step):
        n = min(step, n_resamples - start)
        if n_images == 0:
            yield np.zeros((n, 0))
            continue
        drawn = rng.integers(n_images, size=(n, n_images)) + n_images * np.arange(n)[:, None]
        counts: NDArray[np.float64] = np.bincount(drawn.ravel(), minlength=n * n_images).astype(np.float64)
        yield counts.reshape(n, n_images)


def _signs(n_images: int, n_permutations: int, random_state: int) -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(random_state)
    step = max(1, BLOCK // max(n_images, 1))
    for start in range(0, n_permutations, step):
        n = min(step, n_permutations - start)
        yield 1.0 - 2.0 * rng.integers(0, 2, size=(n, n_images), dtype=np.int8).astype(np.float64)


def _percentiles(resampled: NDArray[np.float64], level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise HCEPError(f"level must be between 0 and 1, such as 0.95; got {level!r}")
    known = resampled[~np.isnan(resampled)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def _ratio(total: NDArray[np.float64], count: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return ratio


def _require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise HCEPError(f"{name} must be a positive integer, got {value!r}")
