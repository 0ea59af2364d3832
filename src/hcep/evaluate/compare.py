"""Compare methods on the same images in one table, and sum up the scores of images that arrive in blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, near_matches, quote
from hcep.evaluate import statistics as stats
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.table import Score, ScoreTable, metric_of

#: The default columns of a table.
DEFAULT_COLUMNS = (
    "correct", "support_precision", "support_recall", "support_f1", "tree_distance", "one_path", "ece",
)  # fmt: skip
#: Level of confidence intervals.
LEVEL = 0.95
#: Metrics that are also summed per class.
BY_CLASS = ("correct", "support_precision", "support_recall")
Floats = NDArray[np.float64]


def compare_scores(
    scores: Mapping[str, ImageScores],
    reference: str | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    *,
    level: float = LEVEL,
    n_resamples: int = 2000,
) -> ScoreTable:
    """Compare methods that were scored on the same images in one table.

    The paired test of a column is McNemar's for values of 0 and 1, and the paired t test for other values. It is the
    paired bootstrap for ``ece``, and for columns in which the two methods have values for different images
    (mistakes). P-values are adjusted by Holm's method over the methods of a column.

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
    scores : the scores of each method, by its name
    reference : the method that the others are tested against (default: the first)
    columns : columns of `ImageScores`, or ``ece``
    n_resamples : of the bootstrap, which draws the same images for all methods
    """
    methods, columns = tuple(scores), tuple(columns)
    against = _checked(scores, reference, columns)
    tables = [[_summable(own, column) for own in scores.values()] for column in columns]
    sums = stats.resampled_sums(np.hstack([t for tables_ in tables for t in tables_]), n_resamples, 0)
    rows, start = [], 0
    for column, own in zip(columns, tables, strict=True):
        edges = start + np.cumsum([0, *(table.shape[1] for table in own)])
        start = edges[-1]
        metric = _Column(
            column,
            np.array([_reduced(column, table.sum(axis=0)) for table in own]),
            np.stack([_reduced(column, sums[:, low:high]) for low, high in pairwise(edges)]),
            None if column == "ece" else np.stack([s[column] for s in scores.values()]),
        )
        rows.append(metric.scores(methods, against, [int(table[:, -1].sum()) for table in own], level))
    by_method = tuple(score for row in zip(*rows, strict=True) for score in row)
    first = next(iter(scores.values()))
    n_images, counts = len(first) - first.n_unlabelled, (first.n_coarse, first.n_unlabelled)
    return ScoreTable(methods, columns, methods[against], n_images, level, by_method, *counts)


def _summable(scores: ImageScores, column: str) -> Floats:
    """Return a metric's values as columns; `_reduced` turns their sums into the metric."""
    if column == "ece":
        return stats.summable_gaps(scores.exact_confidence, scores["correct"])
    return stats.summable(scores[column])


def _reduced(column: str, sums: Floats) -> Floats:
    return stats.calibration_errors(sums) if column == "ece" else stats.means(sums)


def _checked(scores: Mapping[str, ImageScores], reference: str | None, columns: Sequence[str]) -> int:
    """Raise HCEPError if the scores cannot be compared; return the position of the reference."""
    if not scores:
        raise HCEPError("scores is empty: pass the scores of at least one method")
    if not columns:
        raise HCEPError("columns is empty: pass at least one metric")
    (name, first), *others = scores.items()
    for column in columns:
        if column != "ece":
            _ = first[column]
    for other, theirs in others:
        if theirs.labels != first.labels:
            raise HCEPError(f"{quote(name)} and {quote(other)} were not scored on the same images in the same order")
    if reference is not None and reference not in scores:
        raise HCEPError(f"reference: there is no method {quote(reference)}.{near_matches(reference, scores)}")
    return 0 if reference is None else list(scores).index(reference)


@dataclass(frozen=True)
class _Column:
    """One metric of all methods: estimates, resampled estimates, and the values per image (None for ``ece``)."""

    metric: str
    estimates: Floats
    resampled: Floats
    values: Floats | None

    def differences(self, against: int, level: float) -> list[stats.Difference]:
        """Return the difference of each method to one of them, with the p-value of the test for this metric."""
        gaps = self.estimates - self.estimates[against], self.resampled - self.resampled[against]
        differences = [stats.difference(estimate, resampled, level) for estimate, resampled in zip(*gaps, strict=True)]
        p = _paired_p(against, self.values, np.array([d.p for d in differences]))
        return [d._replace(p=float(own)) for d, own in zip(differences, p, strict=True)]

    def best(self, level: float) -> NDArray[np.bool_]:
        """Return which methods have the best estimate, or one that is not significantly worse."""
        goodness = metric_of(self.metric).sign * self.estimates
        if metric_of(self.metric).better is None or np.isnan(goodness).all():
            return np.zeros(len(goodness), dtype=bool)
        top = int(np.nanargmax(goodness))
        tied = stats.holm([d.p for d in self.differences(top, level)]) >= 1.0 - level
        return np.asarray(tied | (self.estimates == self.estimates[top]))

    def scores(self, methods: Sequence[str], against: int, n_images: Sequence[int], level: float) -> list[Score]:
        """Return the column of the table."""
        differences, best = self.differences(against, level), self.best(level)
        adjusted = stats.holm([d.p for d in differences])
        intervals = [stats.interval(e, r, level) for e, r in zip(self.estimates, self.resampled, strict=True)]
        return [
            Score(method, self.metric, *intervals[i], n_images[i], *differences[i], float(adjusted[i]), bool(best[i]))
            for i, method in enumerate(methods)
        ]


def _paired_p(against: int, values: Floats | None, bootstrapped: Floats) -> Floats:
    """Return the p-value of every method against one of them; NaN for itself and for methods without values."""
    p = bootstrapped.copy()
    p[against] = np.nan
    if values is None:
        return p
    known = ~np.isnan(values)
    others = [i for i in np.flatnonzero(~np.isnan(p)) if np.array_equal(known[i], known[against])]
    if np.isin(values[known], (0.0, 1.0)).all():
        p[others] = [stats.mcnemar(values[i], values[against]) for i in others]
    else:
        p[others] = [stats.paired_draws(values[[i]], values[[against]]).p for i in others]
    return p


class RunningScores:
    """Sums that give means, the calibration error and their intervals; memory does not grow with the images.

    Attributes
    ----------
    columns : names of the metrics
    by_class : the number of images and the sums of `BY_CLASS` for each class, (4,), over images labelled with a class
    n_coarse, n_unlabelled : as of `ImageScores`
    """

    def __init__(self) -> None:
        self.n_images = self.n_coarse = self.n_unlabelled = 0
        self.columns: tuple[str, ...] = ()
        self.by_class: dict[str, NDArray[np.float64]] = {}

    @classmethod
    def of(cls, scores: ImageScores) -> Self:
        running = cls()
        running.add(scores)
        return running

    def __len__(self) -> int:
        return self.n_images

    def add(self, scores: ImageScores) -> None:
        """Add a block of images with the same metrics as the others."""
        parts = [_summable(scores, column) for column in (*scores.columns, "ece")]
        table, values = np.hstack(parts), np.stack(list(scores.columns.values()))
        if not self.columns:
            self.columns = tuple(scores.columns)
            self._edges = [0, *accumulate(part.shape[1] for part in parts)]
            self._sums, self._products = np.zeros(table.shape[1]), np.zeros((table.shape[1], table.shape[1]))
            self._range = np.full((len(values), 2), [[np.inf, -np.inf]])
        self.n_images += len(scores)
        self.n_coarse += scores.n_coarse
        self.n_unlabelled += scores.n_unlabelled
        self._sums += table.sum(axis=0)
        self._products += table.T @ table
        self._range[:, 0] = np.fmin(self._range[:, 0], np.fmin.reduce(values, axis=1))
        self._range[:, 1] = np.fmax(self._range[:, 1], np.fmax.reduce(values, axis=1))
        scores = scores.take(scores.columns.get("coarse", np.zeros(len(scores))) == 0.0)
        labels, index = np.unique(scores.labels, return_inverse=True)
        own = np.zeros((len(labels), 1 + len(BY_CLASS)))
        np.add.at(own, index, np.column_stack([np.ones(len(index)), *(scores[name] for name in BY_CLASS)]))
        for label, sums in zip(labels.tolist(), own, strict=True):
            self.by_class[label] = self.by_class.get(label, 0.0) + sums

    def table(self, columns: Sequence[str] = DEFAULT_COLUMNS, method: str = "model") -> ScoreTable:
        """Return a table of means with intervals, as `compare_scores` does.

        A bootstrap sums n rows that are drawn at random. With many thousand rows these sums are normal with n times the
        covariance of the rows, so this method draws them from that distribution.
        """
        if not self.n_images:
            raise HCEPError("there are no images to score")
        covariance = self._products - np.outer(self._sums, self._sums) / self.n_images
        drawn = np.random.default_rng(0).multivariate_normal(self._sums, covariance, 2000, check_valid="ignore")
        names, scores = (*self.columns, "ece"), []
        edges = dict(zip(names, pairwise(self._edges), strict=True))
        for column in columns:
            first, last = edges[column]
            estimate, resampled = (_reduced(column, sums[..., first:last]) for sums in (self._sums, drawn))
            if column != "ece" and not np.isnan(estimate):  # a mean lies within the range of its values
                resampled = np.clip(resampled, *self._range[names.index(column)])
            metric = _Column(column, estimate[None], np.where(np.isnan(estimate), np.nan, resampled)[None], None)
            scores += metric.scores([method], 0, [int(self._sums[last - 1])], LEVEL)
        n_images, counts = self.n_images - self.n_unlabelled, (self.n_coarse, self.n_unlabelled)
        return ScoreTable((method,), tuple(columns), method, n_images, LEVEL, tuple(scores), *counts)
