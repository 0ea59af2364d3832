"""Methods beside each other on the same images: one function, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, near_matches
from hcep.evaluate import statistics as stats
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.metrics import metric_of
from hcep.evaluate.table import Score, ScoreTable

#: The columns of a table where none are named.
DEFAULT_COLUMNS = (
    "correct", "support_precision", "support_recall", "support_f1", "tree_distance", "one_path",
    "reconstruction_error", "ece",
)  # fmt: skip
#: Sign flips of a paired test.
N_PERMUTATIONS = 10_000
Floats = NDArray[np.float64]


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

    The paired test of a column is McNemar's where values are 0 and 1, a sign-flip permutation test where they are not,
    and the paired bootstrap for ``ece`` and where the two methods are defined for different images (mistakes). Holm's
    adjustment is over the methods of a column.

    >>> from hcep import Hierarchy
    >>> from hcep.evaluate import compare_scores, score_images
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> y = ["cat"] * 10
    >>> right = score_images([("animal", "cat")] * 10, y, h, predicted=y)
    >>> wrong = score_images([("car",)] * 10, y, h, predicted=["car"] * 10)
    >>> compare_scores({"a": right, "b": wrong}, columns=["correct"]).score("b", "correct").difference
    -1.0

    Parameters
    ----------
    scores : mapping of method to ImageScores
    reference : the method the others are tested against; the first by default
    columns : columns of `ImageScores`, or ``ece``
    n_resamples, random_state : of the bootstrap; the same images are drawn for all methods
    """
    methods, columns = tuple(scores), tuple(columns)
    against = _checked(scores, reference, columns)

    def summable(own: ImageScores, column: str) -> Floats:
        gaps = column == "ece"
        return stats.summable_gaps(own["confidence"], own["correct"]) if gaps else stats.summable(own[column])

    tables = [[summable(own, column) for own in scores.values()] for column in columns]
    sums = stats.resampled_sums(np.hstack([t for tables_ in tables for t in tables_]), n_resamples, random_state)
    found, start = [], 0
    for column, own in zip(columns, tables, strict=True):
        reduce = stats.calibration_errors if column == "ece" else stats.means
        edges = start + np.cumsum([0, *(table.shape[1] for table in own)])
        start = edges[-1]
        measured = _Column(
            column,
            np.array([reduce(table.sum(axis=0)) for table in own]),
            np.stack([reduce(sums[:, low:high]) for low, high in pairwise(edges)]),
            None if column == "ece" else np.stack([s[column] for s in scores.values()]),
        )
        n_images = [int(table[:, -1].sum()) for table in own]
        found.append(_column_scores(measured, methods, against, n_images, level))
    by_method = tuple(score for row in zip(*found, strict=True) for score in row)
    return ScoreTable(methods, columns, methods[against], len(next(iter(scores.values()))), level, by_method)


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
    if reference is not None and reference not in scores:
        raise HCEPError(f"reference: there is no method {reference!r}.{near_matches(reference, scores)}")
    return 0 if reference is None else list(scores).index(reference)


@dataclass(frozen=True)
class _Column:
    """One metric of all methods: estimates, the same in every resample, and the values by image (None for ``ece``)."""

    metric: str
    estimates: Floats
    resampled: Floats
    values: Floats | None

    def differences(self, against: int, level: float) -> list[stats.Difference]:
        """What each method has over one of them, with the p-value of the test that suits the metric."""
        gaps = self.estimates - self.estimates[against], self.resampled - self.resampled[against]
        found = [stats.difference(estimate, resampled, level) for estimate, resampled in zip(*gaps, strict=True)]
        p = _paired_p(against, self.values, np.array([d.p for d in found]))
        return [d._replace(p=float(own)) for d, own in zip(found, p, strict=True)]

    def best(self, level: float) -> NDArray[np.bool_]:
        """The highest (or lowest) estimate, its equals, and what is not significantly worse than it."""
        goodness = metric_of(self.metric).sign * self.estimates
        if metric_of(self.metric).better is None or np.isnan(goodness).all():
            return np.zeros(len(goodness), dtype=bool)
        top = int(np.nanargmax(goodness))
        tied = stats.holm([d.p for d in self.differences(top, level)]) >= 1.0 - level
        return np.asarray(tied | (self.estimates == self.estimates[top]))


def _column_scores(
    column: _Column, methods: Sequence[str], against: int, n_images: Sequence[int], level: float
) -> list[Score]:
    intervals = [stats.interval(e, r, level) for e, r in zip(column.estimates, column.resampled, strict=True)]
    differences = column.differences(against, level)
    adjusted, best = stats.holm([d.p for d in differences]), column.best(level)
    return [
        Score(method, column.metric, *intervals[i], n_images[i], *differences[i], float(adjusted[i]), bool(best[i]))
        for i, method in enumerate(methods)
    ]


def _paired_p(against: int, values: Floats | None, bootstrapped: Floats) -> Floats:
    """The p-value of every method against one; NaN for that one and where a metric is not defined."""
    p = bootstrapped.copy()
    p[against] = np.nan
    if values is None:
        return p
    known = ~np.isnan(values)
    others = [i for i in np.flatnonzero(~np.isnan(p)) if np.array_equal(known[i], known[against])]
    if np.isin(values[known], (0.0, 1.0)).all():
        p[others] = [stats.mcnemar(values[i], values[against]) for i in others]
    elif others:
        p[others] = stats.sign_flip_p((values[others] - values[against]).T, N_PERMUTATIONS, 0)
    return p
