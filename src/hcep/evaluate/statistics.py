"""How certain a score is, and whether two methods differ on the same images.

Tables do not use `scipy.stats.bootstrap`: it needs a call per column and method, which takes twenty times as long as
one matrix product that resamples all columns of all methods together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_positive
from hcep.errors import HCEPError, quote, quoted

#: Resampled images held in memory at once.
BLOCK = 4_000_000
#: Equal-width bins of [0, 1] for the calibration error.
N_BINS = 15
Floats = NDArray[np.float64]


class Difference(NamedTuple):
    """The score of one method minus that of another, with its confidence interval and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


# -- two methods -----------------------------------------------------------------------------------


def paired_draws(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Difference:
    """Compare two methods on the same images and on the same draws of training images.

    The variance of the mean difference has two parts: the variance over images, divided by the number of images, and
    the variance over draws, divided by the number of draws. The degrees of freedom are Satterthwaite's (Biometrics 2,
    1946). With one draw this is the paired t interval over images, which does not include the luck of the draw. A
    metric that is not defined for all images enters by the linear part of its ratio.

    Parameters
    ----------
    a, b : (n_draws, n_images) arrays; NaN for images without a value. Each mean is over the images that have a value
    """
    from scipy.stats import t

    gaps = _linear_parts(a, "a") - _linear_parts(b, "b")
    n_draws, n_images = gaps.shape
    estimate = float(gaps.mean())
    if np.isnan(estimate):
        return Difference(*(float("nan"),) * 4)
    parts = [(gaps.mean(axis=0), n_images), (gaps.mean(axis=1), n_draws)]
    variances = [(float(np.var(mean, ddof=1)) / n if n > 1 else 0.0, n - 1) for mean, n in parts]
    total = sum(v for v, _ in variances)
    if total <= 0.0:
        return Difference(estimate, estimate, estimate, 1.0 if estimate == 0.0 else 0.0)
    freedom = total**2 / sum(v**2 / df for v, df in variances if v > 0)
    error = total**0.5
    half = float(t.ppf(0.5 + level / 2, freedom)) * error
    return Difference(estimate, estimate - half, estimate + half, float(2 * t.sf(abs(estimate) / error, freedom)))


def _linear_parts(values: ArrayLike, name: str) -> Floats:
    """Return what each image adds to its draw's mean: the values, or the linear part of a ratio."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        raise HCEPError(f"{name} must have the shape (n_draws, n_images), got {table.shape}")
    known = ~np.isnan(table)
    share = known.mean(axis=1, keepdims=True) if table.size else np.zeros((len(table), 1))
    mean = _ratio(np.where(known, table, 0.0).sum(axis=1, keepdims=True), known.sum(axis=1, keepdims=True))
    # This equals the value itself if all images have one.
    return mean + np.where(known, np.divide(table - mean, share, out=np.zeros_like(table), where=share > 0), 0.0)


def mcnemar(a: Floats, b: Floats) -> float:
    """Return the two-sided p-value of McNemar's exact test that two methods are right equally often.

    Only images that exactly one method gets right count. Among n of them, the number that the first method gets right
    is binomial with probability 1/2.

    Parameters
    ----------
    a, b : (n_images,) arrays of 0 and 1, or NaN for images that do not count
    """
    from scipy.stats import binomtest

    n_first, n_second = int(np.sum(a > b)), int(np.sum(a < b))
    return float(binomtest(n_first, n_first + n_second).pvalue) if n_first + n_second else 1.0


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values for multiple tests by Holm's step-down method; NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


# -- probabilities ---------------------------------------------------------------------------------


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> float:
    """Return the mean gap between confidence and accuracy over equal-width bins, weighted by the images in each.

    This is ``sum over bins of n_b / n |accuracy_b - confidence_b|``, where both are means over the images of the bin.

    >>> round(expected_calibration_error([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0]), 3)
    0.1

    Parameters
    ----------
    confidence : (n_images,) array; the probability of the predicted class. Images with NaN are ignored
    correct : (n_images,) array of 0 and 1
    """
    columns = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    return float(calibration_errors(summable_gaps(*columns, n_bins).sum(axis=0)))


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    """Return the risk-coverage curve: the share of mistakes among the images answered first.

    Images are answered in the order of their confidence; equal ones are answered together. The mean of `risk` is the
    area under the curve.

    Parameters
    ----------
    confidence : (n_images,) array
    correct : (n_images,) array of 0 and 1

    Returns
    -------
    coverage : (n_images,) array; the share of images that are answered
    risk : (n_images,) array; the share of mistakes among them
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise HCEPError(f"confidence and correct must be one number per image; got shapes {sure.shape}, {right.shape}")
    order = np.argsort(-sure, kind="stable")
    risk = np.cumsum(1.0 - right[order]) / np.arange(1, len(sure) + 1)
    # Images of equal confidence all get the risk after the last of them.
    last = np.searchsorted(-sure[order], -sure[order], side="right") - 1
    return np.arange(1, len(sure) + 1) / len(sure), risk[last]


def calibration_gaps(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> Floats:
    """Return what each image adds to the calibration error of its bin, (n_images, n_bins): ``correct - confidence``.

    All other bins are zero, and so are all bins of an image with a NaN.
    """
    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    outside = confidence[(confidence < 0) | (confidence > 1 + 1e-9)]
    if len(outside):
        raise HCEPError(f"confidence must be between 0 and 1; got {quoted(outside, 3)}: normalise the probabilities")
    known = np.flatnonzero(~np.isnan(confidence) & ~np.isnan(correct))
    # A bin is open below and closed above, as published; 0 itself belongs to the first bin.
    bins = np.clip(np.ceil(confidence[known] * n_bins).astype(np.intp) - 1, 0, n_bins - 1)
    gaps = np.zeros((len(confidence), n_bins))
    gaps[known, bins] = correct[known] - confidence[known]
    return gaps


# -- sums that can be resampled --------------------------------------------------------------------


def summable(values: Floats) -> Floats:
    """Return two columns whose sums give a metric's mean, (n_images, 2): the value, and whether there is one."""
    known = ~np.isnan(values)
    return np.column_stack([np.where(known, values, 0.0), known])


def summable_gaps(confidence: Floats, correct: Floats, n_bins: int = N_BINS) -> Floats:
    """Return columns whose sums give the calibration error, (n_images, n_bins + 1)."""
    return np.column_stack([calibration_gaps(confidence, correct, n_bins), ~np.isnan(confidence + correct)])


def means(sums: Floats) -> Floats:
    """Return means from sums of `summable` in the last axis; NaN if no image has a value."""
    return _ratio(sums[..., 0], sums[..., 1])


def calibration_errors(sums: Floats) -> Floats:
    """Return expected calibration errors from sums of `summable_gaps` in the last axis."""
    return _ratio(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def mean_known(values: Floats) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    return float(means(summable(values).sum(axis=0)))


def _ratio(total: Floats, count: NDArray[np.floating] | NDArray[np.integer]) -> Floats:
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))


def resampled_sums(table: Floats, n_resamples: int, random_state: int) -> Floats:
    """Return column sums over images drawn with replacement, (n_resamples, n_columns).

    The same number of images and the same `random_state` give the same draws.
    """
    rng, n_images = np.random.default_rng(random_state), len(table)

    def counts(n: int) -> Floats:
        """Draw n times; return how often each image is drawn, (n, n_images)."""
        if n_images == 0:
            return np.zeros((n, 0))
        drawn = rng.integers(n_images, size=(n, n_images)) + n_images * np.arange(n)[:, None]
        return np.bincount(drawn.ravel(), minlength=n * n_images).astype(np.float64).reshape(n, n_images)

    require_positive("n_resamples", n_resamples)
    step = max(1, BLOCK // max(n_images, 1))
    blocks = (min(step, n_resamples - start) for start in range(0, n_resamples, step))
    return np.concatenate([counts(n) @ table for n in blocks])


def interval(estimate: Floats, resampled: Floats, level: float) -> tuple[float, float, float]:
    """Return the estimate and the percentiles of resampled estimates.

    The interval always contains the estimate: rounding, and the noise that resampling adds to a calibration error, can
    leave it outside.
    """
    if not 0.0 < level < 1.0:
        raise HCEPError(f"level must be between 0 and 1, such as 0.95; got {quote(level)}")
    known = resampled[~np.isnan(resampled)]
    low, high = np.quantile(known, [0.5 - level / 2, 0.5 + level / 2]) if len(known) else (np.nan, np.nan)
    return float(estimate), float(np.fmin(low, estimate)), float(np.fmax(high, estimate))


def mean_interval(values: Floats) -> tuple[float, float, float]:
    """Return the mean of values with its 95 % bootstrap interval."""
    table = summable(values)
    return interval(means(table.sum(axis=0)), means(resampled_sums(table, 2000, 0)), 0.95)


def difference(estimate: Floats, resampled: Floats, level: float) -> Difference:
    """Return a difference with the percentiles of resampled differences.

    The p-value is twice the share of resamples on the other side of zero; the data count as one resample.
    """
    known = resampled[~np.isnan(resampled)]
    if np.isnan(estimate) or not len(known):
        return Difference(float("nan"), float("nan"), float("nan"), float("nan"))
    tail = min(int(np.sum(known <= 0.0)), int(np.sum(known >= 0.0)))
    return Difference(*interval(estimate, known, level), min(1.0, 2.0 * (1 + tail) / (1 + len(known))))
