"""The k best columns of every row of a matrix that comes in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Scores are compared after rounding, so that another order of summation does not reorder what is equal.
DECIMALS = 6


class BestColumns:
    """Keeps the k highest scores of every row, falling along it; ties go to the column that came first."""

    def __init__(self, n_rows: int, k: int) -> None:
        self._scores = np.full((n_rows, k), -np.inf)
        self._columns = np.full((n_rows, k), -1, dtype=np.int64)
        self._n_seen = 0

    def add(self, scores: NDArray[Any]) -> None:
        """Take the next columns, (n_rows, n_columns); -inf marks what is not eligible."""
        rounded = np.round(scores, DECIMALS)
        better = rounded > self._scores[:, -1:]
        for row in np.flatnonzero(better.any(axis=1)):
            columns = np.flatnonzero(better[row])
            merged = np.concatenate([self._scores[row], rounded[row, columns]])
            order = np.argsort(-merged, kind="stable")[: self._scores.shape[1]]
            self._scores[row] = merged[order]
            self._columns[row] = np.concatenate([self._columns[row], self._n_seen + columns])[order]
        self._n_seen += scores.shape[1]

    def row(self, i: int) -> list[tuple[int, float]]:
        """(column, score) of row i, the best first; fewer than k where fewer columns were eligible."""
        found = zip(self._columns[i].tolist(), self._scores[i].tolist(), strict=True)
        return [(column, score + 0.0) for column, score in found if column >= 0]
