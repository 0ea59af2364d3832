"""How sure a number is, and whether two methods differ on the same images: bootstrap and paired tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.resampling import (
    Difference,
    Interval,
    calibration_errors,
    difference,
    interval,
    means,
    resampled_sums,
    sign_flip_p,
    summable,
    summable_gaps,
)


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Interval:
    """Mean over images with a percentile bootstrap interval.

    Parameters
    ----------
    values : (n_images,) array
        NaN where the metric is not defined: images are resampled with it, the mean leaves it out.
    level : float
    n_resamples : int
    random_state : int
        The same number of images and the same state give the same resamples.

    Examples
    --------
    >>> from hcep.evaluate import bootstrap_interval
    >>> bootstrap_interval([1.0] * 90 + [0.0] * 10)
    Interval(mean=0.9, low=0.84, high=0.96)
    """
    table = summable(_column("values", values))
    return interval(means(table.sum(axis=0)), means(resampled_sums(table, n_resamples, random_state)), level)


def ece_interval(
    confidence: ArrayLike, correct: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Interval:
    """Expected calibration error with a percentile bootstrap interval.

    Resampling adds noise to every bin, so the interval lies high where the error is small; it is widened to hold the
    estimate.
    """
    table = summable_gaps(_column("confidence", confidence), _column("correct", correct))
    sums = resampled_sums(table, n_resamples, random_state)
    return interval(calibration_errors(table.sum(axis=0)), calibration_errors(sums), level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> Difference:
    """Mean of `a` less that of `b`, the images of both resampled together.

    Each mean is over the images its own metric is defined for, so that it also compares what is defined for mistakes
    only. The p-value is twice the share of resamples on the far side of zero.
    """
    a, b = _same_images(a, b)
    table = np.hstack([summable(a), summable(b)])
    sums = resampled_sums(table, n_resamples, random_state)
    estimate = means(table[:, :2].sum(axis=0)) - means(table[:, 2:].sum(axis=0))
    return difference(estimate, means(sums[:, :2]) - means(sums[:, 2:]), level)


def mcnemar(a: ArrayLike, b: ArrayLike) -> float:
    """Exact McNemar test: two-sided p that two methods are right equally often on the same images.

    Parameters
    ----------
    a, b : (n_images,) arrays of 0 and 1
        Images where either is NaN are left out.

    Notes
    -----
    Only images that one method gets right and the other does not count; of n such images, those won by the first are
    Binomial(n, 1/2).

    Examples
    --------
    >>> from hcep.evaluate import mcnemar
    >>> mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1])
    0.03125
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

    Examples
    --------
    >>> from hcep.evaluate import sign_flip_test
    >>> sign_flip_test([0.9, 0.8, 0.7, 0.9], [0.9, 0.8, 0.7, 0.9])
    1.0
    """
    a, b = _same_images(a, b)
    known = ~np.isnan(a + b)
    return float(sign_flip_p((a - b)[known, None], n_permutations, random_state)[0])


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values for their number (Holm's step-down); NaN stays NaN and does not count.

    Examples
    --------
    >>> from hcep.evaluate import holm
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


def _column(name: str, values: ArrayLike) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise HCEPError(f"{name} must hold one number an image; got shape {column.shape}")
    return column


def _same_images(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = _column("a", a), _column("b", b)
    if len(first) != len(second):
        raise HCEPError(f"a has {len(first):,} images, b {len(second):,}; paired tests need the same images")
    return first, second
