"""The k best columns of every row of a matrix that comes in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Scores are compared after rounding, so that another order of summation does not reorder what is equal.
DECIMALS = 6


class BestColumns:
    """Keeps the k highest scores of every row; ties go to the column that came first.

    Parameters
    ----------
    n_rows, k : int

    Attributes
    ----------
    scores : (n_rows, k) float64
        Falling along a row; -inf where fewer than k columns were eligible.
    columns : (n_rows, k) int64
        -1 there.
    """

    def __init__(self, n_rows: int, k: int) -> None:
        self.scores = np.full((n_rows, k), -np.inf)
        self.columns = np.full((n_rows, k), -1, dtype=np.int64)
        self._n_seen = 0

    def add(self, scores: NDArray[Any]) -> None:
        """Take the next columns, (n_rows, n_columns); -inf marks what is not eligible."""
        rounded = np.round(scores, DECIMALS)
        better = rounded > self.scores[:, -1:]
        for row in np.flatnonzero(better.any(axis=1)):
            columns = np.flatnonzero(better[row])
            merged = np.concatenate([self.scores[row], rounded[row, columns]])
            order = np.argsort(-merged, kind="stable")[: self.scores.shape[1]]
            self.scores[row] = merged[order]
            self.columns[row] = np.concatenate([self.columns[row], self._n_seen + columns])[order]
        self._n_seen += scores.shape[1]

    def row(self, i: int) -> list[tuple[int, float]]:
        """(column, score) of row i, the best first."""
        found = zip(self.columns[i].tolist(), self.scores[i].tolist(), strict=True)
        return [(column, score + 0.0) for column, score in found if column >= 0]
