"""How sure a number is, and whether two methods differ on the same images: bootstrap, paired tests, calibration.

Not `scipy.stats`: every mean is a sum, so that one matrix product resamples all columns of all methods at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_positive
from hcep.errors import HCEPError, quoted

#: Resampled images held in memory at once.
BLOCK = 4_000_000
#: Equal-width bins of [0, 1] that confidences fall into.
N_BINS = 15
Floats = NDArray[np.float64]


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


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Interval:
    """Mean over images with a percentile bootstrap interval.

    >>> bootstrap_interval([1.0] * 90 + [0.0] * 10)
    Interval(mean=0.9, low=0.84, high=0.96)

    Parameters
    ----------
    values : (n_images,) array
        NaN where the metric is not defined: images are resampled with it, the mean leaves it out.
    random_state : the same number of images and the same state give the same resamples
    """
    table = summable(_column("values", values))
    return interval(means(table.sum(axis=0)), means(resampled_sums(table, n_resamples, random_state)), level)


def ece_interval(
    confidence: ArrayLike, correct: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Interval:
    """Expected calibration error with a percentile bootstrap interval.

    Resampling adds noise to every bin, so the interval lies high where the error is small; it is widened to hold the
    estimate. Parameters are those of `expected_calibration_error` and `bootstrap_interval`.
    """
    table = summable_gaps(_column("confidence", confidence), _column("correct", correct))
    sums = resampled_sums(table, n_resamples, random_state)
    return interval(calibration_errors(table.sum(axis=0)), calibration_errors(sums), level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Difference:
    """Mean of `a` less that of `b`, the images of both resampled together.

    Each mean is over the images its own metric is defined for, so that it also compares what is defined for mistakes
    only. The p-value is twice the share of resamples on the far side of zero. Parameters are those of
    `bootstrap_interval`, for two methods on the same images.
    """
    a, b = _same_images(a, b)
    table = np.hstack([summable(a), summable(b)])
    sums = resampled_sums(table, n_resamples, random_state)
    estimate = means(table[:, :2].sum(axis=0)) - means(table[:, 2:].sum(axis=0))
    return difference(estimate, means(sums[:, :2]) - means(sums[:, 2:]), level)


def paired_draws(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Difference:
    """Mean of `a` less that of `b`, with an interval over images *and* draws of the training images.

    The variance is that of the images' mean differences over the number of images, plus that of the draws' mean
    differences over the number of draws; degrees of freedom are Satterthwaite's. With one draw it is the paired
    t interval over images, and the draw's own luck is not in it. A metric that is not defined everywhere enters by the
    linear part of its ratio. (Satterthwaite, Biometrics 2, 1946.)

    `a`, `b`: (n_draws, n_images) arrays Two methods on the same images, fitted on the same draws. NaN where the metric
    is not defined (a mistake's distance for an image that is right): each mean is over the images its own metric is
    defined for.
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


def mcnemar(a: ArrayLike, b: ArrayLike) -> float:
    """Exact McNemar test: two-sided p that two methods are right equally often on the same images.

    Only images that one method gets right and the other does not count; of n such images, those won by the first are
    Binomial(n, 1/2).

    `a`, `b`: (n_images,) arrays of 0 and 1; images where either is NaN are left out.
    """
    from scipy.special import bdtr

    a, b = _same_images(a, b)
    known = ~np.isnan(a + b)
    if not np.isin(np.concatenate([a[known], b[known]]), (0.0, 1.0)).all():
        raise HCEPError("a and b must hold 0 and 1 only; compare other values with sign_flip_test")
    n_first, n_second = int(np.sum(a[known] > b[known])), int(np.sum(a[known] < b[known]))
    return min(1.0, 2.0 * float(bdtr(min(n_first, n_second), n_first + n_second, 0.5)))


def sign_flip_test(a: ArrayLike, b: ArrayLike, *, n_permutations: int = 10_000, random_state: int = 0) -> float:
    """Permutation test: two-sided p that the differences of two methods are symmetric around zero.

    Under that hypothesis every image's difference could as well have the other sign. Images where either is NaN are
    left out.
    """
    a, b = _same_images(a, b)
    known = ~np.isnan(a + b)
    return float(sign_flip_p((a - b)[known, None], n_permutations, random_state)[0])


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values for their number (Holm's step-down); NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = _column("p_values", p_values)
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> float:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by the images in each.

    ``sum over bins of n_b / n |accuracy_b - confidence_b|``, both means over the images of the bin.

    >>> round(expected_calibration_error([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0]), 3)
    0.1

    `confidence`: (n_images,) array; probability of the predicted class; NaN leaves the image out. `correct`:
    (n_images,) array of 0 and 1.
    """
    both = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    return float(calibration_errors(summable_gaps(*both, n_bins).sum(axis=0)))


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Mistakes among the images that are answered, the surest first."""

    coverage: Floats  #: (n_images,); share of images that are answered
    risk: Floats  #: (n_images,); share of mistakes among them

    @property
    def area(self) -> float:
        """Mean risk over all coverages; lower is better."""
        return float(self.risk.mean())


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The curve of risk against coverage.

    `confidence`: (n_images,) array; higher where the answer is surer; equal ones are answered together. `correct`:
    (n_images,) array of 0 and 1.
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise HCEPError(f"confidence and correct must be one number per image; got shapes {sure.shape}, {right.shape}")
    order = np.argsort(-sure, kind="stable")
    risk = np.cumsum(1.0 - right[order]) / np.arange(1, len(sure) + 1)
    # Of equal confidences none comes first: all have the risk after the last of them.
    last = np.searchsorted(-sure[order], -sure[order], side="right") - 1
    return RiskCoverage(np.arange(1, len(sure) + 1) / len(sure), risk[last])


def mean_known(values: Floats) -> float:
    """Mean of the numbers there are; NaN where there is none."""
    return float(means(summable(values).sum(axis=0)))


def summable(values: Floats) -> Floats:
    """A metric as two columns whose sums give its mean, (n_images, 2): the value, and whether there is one."""
    known = ~np.isnan(values)
    return np.column_stack([np.where(known, values, 0.0), known])


def calibration_gaps(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> Floats:
    """What each image adds to the calibration error of its bin, (n_images, n_bins): ``correct - confidence``.

    Zero in all other bins, and everywhere for an image where one of the two is NaN.
    """
    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    outside = confidence[(confidence < 0) | (confidence > 1 + 1e-9)]
    if len(outside):
        raise HCEPError(f"confidence must be between 0 and 1; got {quoted(outside, 3)}: normalise the probabilities")
    known = np.flatnonzero(~np.isnan(confidence) & ~np.isnan(correct))
    # A bin is open below and closed above, as published; 0 itself joins the first.
    bins = np.clip(np.ceil(confidence[known] * n_bins).astype(np.intp) - 1, 0, n_bins - 1)
    gaps = np.zeros((len(confidence), n_bins))
    gaps[known, bins] = correct[known] - confidence[known]
    return gaps


def summable_gaps(confidence: Floats, correct: Floats, n_bins: int = N_BINS) -> Floats:
    """What the calibration error needs as columns to sum, (n_images, n_bins + 1)."""
    return np.column_stack([calibration_gaps(confidence, correct, n_bins), ~np.isnan(confidence + correct)])


def means(sums: Floats) -> Floats:
    """Means from sums of `summable` in the last axis; NaN where nothing was summed."""
    return _ratio(sums[..., 0], sums[..., 1])


def calibration_errors(sums: Floats) -> Floats:
    """Expected calibration errors from sums of `summable_gaps` in the last axis."""
    return _ratio(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def resampled_sums(table: Floats, n_resamples: int, random_state: int) -> Floats:
    """Column sums over images drawn with replacement, (n_resamples, n_columns)."""
    rng, n_images = np.random.default_rng(random_state), len(table)

    def counts(n: int) -> Floats:
        """How often each image is drawn, (n, n_images)."""
        if n_images == 0:
            return np.zeros((n, 0))
        drawn = rng.integers(n_images, size=(n, n_images)) + n_images * np.arange(n)[:, None]
        return np.bincount(drawn.ravel(), minlength=n * n_images).astype(np.float64).reshape(n, n_images)

    return np.concatenate([counts(n) @ table for n in _blocks("n_resamples", n_resamples, n_images)])


def interval(estimate: Floats, resampled: Floats, level: float) -> Interval:
    """Percentiles of resampled estimates; widened to hold the estimate itself, which rounding may leave outside."""
    if not 0.0 < level < 1.0:
        raise HCEPError(f"level must be between 0 and 1, such as 0.95; got {level!r}")
    known = resampled[~np.isnan(resampled)]
    low, high = np.quantile(known, [0.5 - level / 2, 0.5 + level / 2]) if len(known) else (np.nan, np.nan)
    return Interval(float(estimate), float(np.fmin(low, estimate)), float(np.fmax(high, estimate)))


def difference(estimate: Floats, resampled: Floats, level: float) -> Difference:
    """Percentiles of resampled differences and their two-sided p-value; NaN where the estimate is."""
    known = resampled[~np.isnan(resampled)]
    if np.isnan(estimate) or not len(known):
        return Difference(float("nan"), float("nan"), float("nan"), float("nan"))
    tail = min(int(np.sum(known <= 0.0)), int(np.sum(known >= 0.0)))
    p = min(1.0, 2.0 * (1 + tail) / (1 + len(known)))  # one more: the data themselves are one resample
    return Difference(*interval(estimate, known, level), p)


def sign_flip_p(differences: Floats, n_permutations: int, random_state: int) -> Floats:
    """`sign_flip_test` on every column of (n_images, n_pairs) with the same flips; NaN counts as no difference."""
    rng, d = np.random.default_rng(random_state), np.nan_to_num(differences)
    d = d[d.any(axis=1)]  # what is zero in every column stays zero whatever its sign
    # Sums in another order differ by rounding; as extreme as the data must include the data.
    observed = np.abs(d.sum(axis=0)) - 1e-12 * np.abs(d).sum(axis=0)
    n_extreme = np.zeros(d.shape[1])
    for n in _blocks("n_permutations", n_permutations, len(d)):
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=(n, len(d)), dtype=np.int8).astype(np.float64)
        n_extreme += np.sum(np.abs(signs @ d) >= observed, axis=0)
    return np.asarray((1.0 + n_extreme) / (1.0 + n_permutations))


def _blocks(name: str, n: int, n_images: int) -> Iterator[int]:
    """How many of n resamples to draw at a time."""
    require_positive(name, n)
    step = max(1, BLOCK // max(n_images, 1))
    yield from (min(step, n - start) for start in range(0, n, step))


def _linear_parts(values: ArrayLike, name: str) -> Floats:
    """What each image adds to its draw's mean, (n_draws, n_images): the values, or the linear part of a ratio."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 2:
        raise HCEPError(f"{name} must have the shape (n_draws, n_images), got {given.shape}")
    known = ~np.isnan(given)
    share = known.mean(axis=1, keepdims=True) if given.size else np.zeros((len(given), 1))
    mean = _ratio(np.where(known, given, 0.0).sum(axis=1, keepdims=True), known.sum(axis=1, keepdims=True))
    # Equal to the value itself where all are defined.
    return mean + np.where(known, np.divide(given - mean, share, out=np.zeros_like(given), where=share > 0), 0.0)


def _ratio(total: Floats, count: NDArray[np.floating] | NDArray[np.integer]) -> Floats:
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))


def _column(name: str, values: ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise HCEPError(f"{name} must hold one number per image; got shape {column.shape}")
    return column


def _same_images(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    first, second = _column("a", a), _column("b", b)
    if len(first) != len(second):
        raise HCEPError(f"a has {len(first):,} images, b {len(second):,}; paired tests need the same images")
    return first, second
