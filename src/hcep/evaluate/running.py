"""Scores of images that come block by block: sums instead of a row per image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError
from hcep.evaluate import statistics as stats
from hcep.evaluate.compare import DEFAULT_COLUMNS
from hcep.evaluate.image_scores import ImageScores, evaluate_method
from hcep.evaluate.metrics import metric_of
from hcep.evaluate.table import Score, ScoreTable

#: What is known of each class, beside the number of its images.
BY_CLASS = ("correct", "support_precision", "support_recall")


class RunningScores:
    """All that means, calibration error and their intervals need of images seen so far; memory does not grow with them.

    Attributes
    ----------
    columns : names of the metrics
    by_class : for each class the number of its images and the sums of `BY_CLASS`, (4,)
    """

    def __init__(self) -> None:
        self.n_images = 0
        self.columns: tuple[str, ...] = ()
        self.by_class: dict[str, NDArray[np.float64]] = {}

    @classmethod
    def of(cls, scores: ImageScores) -> RunningScores:
        running = cls()
        running.add(scores)
        return running

    def __len__(self) -> int:
        return self.n_images

    def add(self, scores: ImageScores) -> None:
        """Add a block of images, scored as the others were."""
        parts = [stats.summable(values) for values in scores.columns.values()]
        parts.append(stats.summable_gaps(scores["confidence"], scores["correct"]))
        table, values = np.hstack(parts), np.stack(list(scores.columns.values()))
        if not self.columns:
            self.columns = tuple(scores.columns)
            self._edges = [0, *accumulate(part.shape[1] for part in parts)]
            self._sums, self._products = np.zeros(table.shape[1]), np.zeros((table.shape[1], table.shape[1]))
            self._range = np.full((len(values), 2), [[np.inf, -np.inf]])
        self.n_images += len(scores)
        self._sums += table.sum(axis=0)
        self._products += table.T @ table
        self._range[:, 0] = np.fmin(self._range[:, 0], np.fmin.reduce(values, axis=1))
        self._range[:, 1] = np.fmax(self._range[:, 1], np.fmax.reduce(values, axis=1))
        labels, index = np.unique(scores.labels, return_inverse=True)
        own = np.zeros((len(labels), 1 + len(BY_CLASS)))
        np.add.at(own, index, np.column_stack([np.ones(len(index)), *(scores[name] for name in BY_CLASS)]))
        for label, sums in zip(labels.tolist(), own, strict=True):
            self.by_class[label] = self.by_class.get(label, 0.0) + sums

    def table(self, columns: Sequence[str] = DEFAULT_COLUMNS, method: str = "model", level: float = 0.95) -> ScoreTable:
        """Means with intervals, as of `compare_scores`.

        A bootstrap adds up n rows that are drawn at random; of many thousand rows such sums are normal, with n times
        the covariance of the rows, and so they are drawn from that.
        """
        if not self.n_images:
            raise HCEPError("there are no images to score")
        covariance = self._products - np.outer(self._sums, self._sums) / self.n_images
        drawn = np.random.default_rng(0).multivariate_normal(self._sums, covariance, 2000, check_valid="ignore")
        names, found, nothing = (*self.columns, "ece"), [], stats.Difference(0.0, 0.0, 0.0, float("nan"))
        edges = dict(zip(names, pairwise(self._edges), strict=True))
        for column in columns:
            first, last = edges[column]
            reduce = stats.calibration_errors if column == "ece" else stats.means
            estimate, resampled = reduce(self._sums[first:last]), reduce(drawn[:, first:last])
            if column != "ece" and not np.isnan(estimate):  # a mean of values is never beyond them
                resampled = np.clip(resampled, *self._range[names.index(column)])
            between = stats.interval(estimate, np.where(np.isnan(estimate), np.nan, resampled), level)
            is_best = metric_of(column).better is not None and not np.isnan(estimate)
            n_known = int(self._sums[last - 1])
            found.append(Score(method, column, *between, n_known, *nothing, float("nan"), is_best))
        return ScoreTable((method,), tuple(columns), method, self.n_images, level, tuple(found))


def evaluate_blocks(
    estimator: Any, blocks: Iterable[tuple[Any, Any]], *, top_k: Sequence[int] = (1, 5)
) -> RunningScores:
    """`evaluate_method` of images and classes that come block by block, as of `EmbeddingStore.batches`."""
    running = RunningScores()
    for X, y in blocks:
        running.add(evaluate_method(estimator, X, y, top_k=top_k))
    return running
