"""What predicted classes and their probabilities say, image by image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.calibration import class_index, true_class_ranks
from hcep.evaluate.labels import as_labels
from hcep.evaluate.tree import lca_heights, tree_distances
from hcep.hierarchy import Hierarchy

Columns = dict[str, NDArray[np.float64]]


def checked_probabilities(
    probabilities: ArrayLike | None, classes: ArrayLike | None, n_images: int
) -> tuple[NDArray[np.float64] | None, list[str]]:
    """The probabilities as an array, and what its columns stand for; None and nothing where none are given."""
    if probabilities is None:
        return None, []
    if classes is None:
        raise HCEPError("classes is missing: say which class each column of probabilities stands for")
    table, names = np.asarray(probabilities, dtype=np.float64), as_labels(classes, "classes")
    if table.shape != (n_images, len(names)):
        raise HCEPError(
            f"probabilities must have a row an image and a column a class, ({n_images:,}, {len(names):,}); "
            f"got shape {table.shape}"
        )
    return table, names


def checked_predictions(
    predicted: ArrayLike | None, table: NDArray[np.float64] | None, names: list[str], n_images: int
) -> list[str] | None:
    """One predicted class an image: as given, or the most probable one; None where neither is known."""
    if predicted is None:
        return None if table is None else [names[i] for i in np.argmax(table, axis=1)]
    answers = as_labels(predicted, "predicted")
    if len(answers) != n_images:
        raise HCEPError(f"predicted has {len(answers):,} labels, y {n_images:,}; give one an image")
    return answers


def label_columns(
    labels: list[str],
    answers: list[str] | None,
    table: NDArray[np.float64] | None,
    names: list[str],
    hierarchy: Hierarchy,
    top_k: Sequence[int],
) -> Columns:
    """Accuracy, top-k, confidence and how far mistakes are, one value an image.

    Parameters
    ----------
    labels : list of str, n_images long
    answers : list of str, n_images long, or None
        Predicted classes.
    table : (n_images, n_classes) float64, or None
        Probabilities of the classes `names`.
    names : list of str
    hierarchy : Hierarchy
    top_k : sequence of int
    """
    columns: Columns = {"correct": _correct(labels, answers)}
    columns |= _top_k_columns(labels, table, names, top_k)
    columns["confidence"] = _confidence(table, names, answers, len(labels))
    columns |= _mistake_columns(labels, answers, columns["correct"], hierarchy)
    return columns


def _correct(labels: list[str], answers: list[str] | None) -> NDArray[np.float64]:
    if answers is None:
        return np.full(len(labels), np.nan)
    return np.array([a == b for a, b in zip(labels, answers, strict=True)], dtype=np.float64)


def _top_k_columns(
    labels: list[str], table: NDArray[np.float64] | None, names: list[str], top_k: Sequence[int]
) -> Columns:
    odd = [k for k in top_k if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1]
    if odd:
        raise HCEPError(f"top_k must hold positive integers, got {odd[0]!r}")
    if table is None:
        return {f"top_{k}": np.full(len(labels), np.nan) for k in top_k}
    ranks = true_class_ranks(table, class_index(labels, names))
    return {f"top_{k}": (ranks <= k).astype(np.float64) for k in top_k}


def _mistake_columns(
    labels: list[str], answers: list[str] | None, correct: NDArray[np.float64], hierarchy: Hierarchy
) -> Columns:
    columns = {name: np.full(len(labels), np.nan) for name in ("tree_distance", "lca_height")}
    wrong = np.flatnonzero(correct == 0.0)
    if answers is not None and len(wrong):
        truth, given = [labels[i] for i in wrong], [answers[i] for i in wrong]
        columns["tree_distance"][wrong] = tree_distances(truth, given, hierarchy)
        columns["lca_height"][wrong] = lca_heights(truth, given, hierarchy)
    return columns


def _confidence(
    table: NDArray[np.float64] | None, names: list[str], answers: list[str] | None, n_images: int
) -> NDArray[np.float64]:
    """Probability of the predicted class; NaN where it has none."""
    if table is None or answers is None:
        return np.full(n_images, np.nan)
    index = class_index(answers, names)
    own = np.take_along_axis(table, np.maximum(index, 0)[:, None], axis=1)[:, 0]
    return np.where(index >= 0, own, np.nan)
