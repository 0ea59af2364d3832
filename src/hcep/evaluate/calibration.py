"""Probabilities against truth: top-k, confidence and whether it means what it says, risk against coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, quoted

#: Equal-width bins of [0, 1] that confidences fall into.
N_BINS = 15


def true_class_ranks(probabilities: NDArray[np.float64], true_index: NDArray[np.intp]) -> NDArray[np.float64]:
    """Rank of the true class among the probabilities of each image, 1 the highest; ties go to the lower index."""
    own = np.take_along_axis(probabilities, np.maximum(true_index, 0)[:, None], axis=1)
    before = np.arange(probabilities.shape[1]) < true_index[:, None]
    ahead = (probabilities > own) | ((probabilities == own) & before)
    return np.where(true_index >= 0, 1.0 + ahead.sum(axis=1), np.inf)


def class_index(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.intp]:
    """Column of each label among the classes; -1 for a label that is none of them."""
    place = {label: i for i, label in enumerate(classes)}
    return np.array([place.get(label, -1) for label in labels], dtype=np.intp)


def calibration_gaps(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> NDArray[np.float64]:
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


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, n_bins: int = N_BINS) -> float:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by the images in each.

    ``sum over bins of n_b / n |accuracy_b - confidence_b|``, both means over the images of the bin.

    >>> round(expected_calibration_error([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0]), 3)
    0.1

    Parameters
    ----------
    confidence : (n_images,) array; probability of the predicted class; NaN leaves the image out
    correct : (n_images,) array of 0 and 1
    """
    known = ~np.isnan(np.asarray(confidence, dtype=np.float64)) & ~np.isnan(np.asarray(correct, dtype=np.float64))
    if not known.any():
        return float("nan")
    gaps = calibration_gaps(confidence, correct, n_bins)
    return float(np.abs(gaps.sum(axis=0)).sum() / known.sum())


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Mistakes among the images that are answered, the surest first.

    Attributes
    ----------
    area : mean risk over all coverages; lower is better
    """

    coverage: NDArray[np.float64]  # (n_images,) float; share of images that are answered
    risk: NDArray[np.float64]  # (n_images,) float; share of mistakes among them

    @property
    def area(self) -> float:
        return float(self.risk.mean())


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The curve of risk against coverage.

    Parameters
    ----------
    confidence : (n_images,) array; higher where the answer is surer; equal ones are answered together
    correct : (n_images,) array of 0 and 1
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise HCEPError(f"confidence and correct must be one number per image; got shapes {sure.shape}, {right.shape}")
    order = np.argsort(-sure, kind="stable")
    risk = np.cumsum(1.0 - right[order]) / np.arange(1, len(sure) + 1)
    # Of equal confidences none comes first: all have the risk after the last of them.
    last = np.searchsorted(-sure[order], -sure[order], side="right") - 1
    return RiskCoverage(np.arange(1, len(sure) + 1) / len(sure), risk[last])
