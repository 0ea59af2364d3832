"""Answering only where one is sure: how many mistakes are left among the images that are answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Mistakes among the images that are answered, the surest first.

    Attributes
    ----------
    coverage : (n_images,) float; share of images that are answered
    risk : (n_images,) float; share of mistakes among them
    area : mean risk over all coverages; lower is better
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]

    @property
    def area(self) -> float:
        return float(self.risk.mean())


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The curve of risk against coverage.

    Parameters
    ----------
    confidence : (n_images,) array; higher where the answer is surer; equal ones are answered together
    correct : (n_images,) array of 0 and 1

    Examples
    --------
    >>> from hcep.evaluate import risk_coverage
    >>> risk_coverage([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1]).risk.round(2).tolist()
    [0.0, 0.0, 0.33, 0.25]
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise HCEPError(f"confidence and correct must be one number per image; got shapes {sure.shape}, {right.shape}")
    order = np.argsort(-sure, kind="stable")
    risk = np.cumsum(1.0 - right[order]) / np.arange(1, len(sure) + 1)
    # Of equal confidences none comes first: all have the risk after the last of them.
    last = np.searchsorted(-sure[order], -sure[order], side="right") - 1
    return RiskCoverage(np.arange(1, len(sure) + 1) / len(sure), risk[last])
