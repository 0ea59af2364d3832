"""Methods beside each other on the same images: one function, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, near_matches
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.metrics import metric_of
from hcep.evaluate.resampling import (
    Difference,
    calibration_errors,
    difference,
    interval,
    means,
    resampled_sums,
    sign_flip_p,
    summable,
    summable_gaps,
)
from hcep.evaluate.statistics import holm, mcnemar
from hcep.evaluate.table import Score, ScoreTable

#: The columns of a table where none are named.
DEFAULT_COLUMNS = (
    "correct", "support_precision", "support_recall", "support_f1", "tree_distance", "one_path",
    "reconstruction_error", "ece",
)  # fmt: skip
#: Sign flips of a paired test.
N_PERMUTATIONS = 10_000


def compare_scores(
    scores: Mapping[str, ImageScores],
    reference: str | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    random_state: int = 0,
) -> ScoreTable:
    """Put methods that were scored on the same images into one table.

    Parameters
    ----------
    scores : mapping of method to ImageScores
    reference : str, optional
        The method the others are tested against; the first by default.
    columns : sequence of str
        Columns of `ImageScores`, or ``ece``.
    level : float
    n_resamples, random_state : int
        Of the bootstrap; the same images are drawn for all methods.

    Returns
    -------
    ScoreTable

    Raises
    ------
    HCEPError
        No method, different images, an unknown reference or column.

    Notes
    -----
    The paired test of a column is McNemar's where values are 0 and 1, a sign-flip permutation test where they are not,
    and the paired bootstrap for ``ece`` and where the two methods are defined for different images (mistakes). Holm's
    adjustment is over the methods of a column.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.evaluate import compare_scores, score_images
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> y = ["cat"] * 10
    >>> right = score_images([("animal", "cat")] * 10, y, h, predicted=y)
    >>> wrong = score_images([("car",)] * 10, y, h, predicted=["car"] * 10)
    >>> print(compare_scores({"a": right, "b": wrong}, columns=["correct", "support_f1"]).to_markdown())
    | method | accuracy ↑ | F1 ↑ |
    |---|---|---|
    | a | **1.000** [1.000, 1.000] | **1.000** [1.000, 1.000] |
    | b | .000† [.000, .000] | .000† [.000, .000] |
    <BLANKLINE>
    10 images; intervals: 95%, bootstrap over images. Bold: the best of a column, and what is not significantly worse.
    † differs from a (paired test, Holm, p < 0.05).
    """
    methods, columns = tuple(scores), tuple(columns)
    against = _checked(scores, reference, columns)
    tables = [_summable(s, column) for s in scores.values() for column in columns]
    sums = resampled_sums(np.hstack(tables), n_resamples, random_state)
    edges = np.cumsum([0, *(table.shape[1] for table in tables)])
    found: list[list[Score]] = []
    for k, column in enumerate(columns):
        own = [i * len(columns) + k for i in range(len(methods))]
        reduce = calibration_errors if column == "ece" else means
        estimates = np.array([reduce(tables[i].sum(axis=0)) for i in own])
        resampled = np.stack([reduce(sums[:, edges[i] : edges[i + 1]]) for i in own])
        n_images = [int(tables[i][:, -1].sum()) for i in own]
        values = None if column == "ece" else np.stack([s[column] for s in scores.values()])
        found.append(_column_scores(_Column(column, estimates, resampled, values), methods, against, n_images, level))
    by_method = tuple(score for row in zip(*found, strict=True) for score in row)
    first = next(iter(scores.values()))
    return ScoreTable(methods, columns, methods[against], len(first), level, by_method)


def _checked(scores: Mapping[str, ImageScores], reference: str | None, columns: Sequence[str]) -> int:
    """Refuse what cannot be compared; the position of the reference."""
    if not scores:
        raise HCEPError("scores is empty: give at least one method")
    if not columns:
        raise HCEPError("columns is empty: name at least one metric")
    (name, first), *others = scores.items()
    for column in columns:
        if column != "ece":
            _ = first[column]
    for other, theirs in others:
        if theirs.labels != first.labels:
            raise HCEPError(f"{name!r} and {other!r} were not scored on the same images in the same order")
    if reference is None:
        return 0
    if reference not in scores:
        raise HCEPError(f"reference: there is no method {reference!r}.{near_matches(reference, scores)}")
    return list(scores).index(reference)


def _summable(scores: ImageScores, column: str) -> NDArray[np.float64]:
    if column == "ece":
        return summable_gaps(scores["confidence"], scores["correct"])
    return summable(scores[column])


@dataclass(frozen=True)
class _Column:
    """One metric of all methods: estimates, the same in every resample, and the values by image (None for ``ece``)."""

    metric: str
    estimates: NDArray[np.float64]
    resampled: NDArray[np.float64]
    values: NDArray[np.float64] | None

    def differences(self, against: int, level: float) -> list[Difference]:
        """What each method has over one of them, with the p-value of the test that suits the metric."""
        gaps = self.estimates - self.estimates[against], self.resampled - self.resampled[against]
        found = [difference(estimate, resampled, level) for estimate, resampled in zip(*gaps, strict=True)]
        p = _paired_p(against, self.values, np.array([d.p for d in found]))
        return [d._replace(p=float(own)) for d, own in zip(found, p, strict=True)]

    @property
    def top(self) -> int | None:
        """The method with the best estimate; None where neither side is better or nobody has one."""
        goodness = metric_of(self.metric).sign * self.estimates
        if metric_of(self.metric).better is None or np.isnan(goodness).all():
            return None
        return int(np.nanargmax(goodness))


def _column_scores(
    column: _Column, methods: Sequence[str], against: int, n_images: Sequence[int], level: float
) -> list[Score]:
    intervals = [interval(e, r, level) for e, r in zip(column.estimates, column.resampled, strict=True)]
    differences = column.differences(against, level)
    adjusted, top = holm([d.p for d in differences]), column.top
    best = np.zeros(len(methods), dtype=bool)
    if top is not None:
        from_top = differences if top == against else column.differences(top, level)
        best |= column.estimates == column.estimates[top]
        best |= holm([d.p for d in from_top]) >= 1.0 - level
    return [
        Score(method, column.metric, *intervals[i], n_images[i], *differences[i], float(adjusted[i]), bool(best[i]))
        for i, method in enumerate(methods)
    ]


def _paired_p(
    against: int, values: NDArray[np.float64] | None, bootstrapped: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The p-value of every method against one; NaN for that one and where a metric is not defined."""
    p = bootstrapped.copy()
    p[against] = np.nan
    if values is None:
        return p
    others = [i for i in np.flatnonzero(~np.isnan(p)) if _same_defined(values[i], values[against])]
    if np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
        p[others] = [mcnemar(values[i], values[against]) for i in others]
    elif others:
        p[others] = sign_flip_p((values[others] - values[against]).T, N_PERMUTATIONS, 0)
    return p


def _same_defined(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return bool(np.array_equal(np.isnan(a), np.isnan(b)))
