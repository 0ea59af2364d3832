"""Accuracy, and how far in the hierarchy a mistake is from the truth."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.labels import as_labels
from hcep.hierarchy import Hierarchy


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of labels that are equal.

    Examples
    --------
    >>> from hcep.evaluate import accuracy
    >>> accuracy(["cat", "dog"], ["cat", "car"])
    0.5
    """
    pairs = _pairs(y_true, y_pred)
    return float(np.mean([a == b for a, b in pairs])) if pairs else float("nan")


def tree_distances(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Edges from the true class up to the lowest common ancestor and down to the predicted one, per image.

    0 for a correct label; predictions may be inner synsets. In a DAG each leg is the shortest way.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.evaluate import tree_distances
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> tree_distances(["cat", "cat", "cat"], ["cat", "dog", "car"], h)
    array([0., 2., 3.])
    """

    @cache
    def distance(a: str, b: str) -> float:
        a, b = _synset(hierarchy, a), _synset(hierarchy, b)
        common = hierarchy.lca(a, b)
        return float(_steps_up(hierarchy, a, common) + _steps_up(hierarchy, b, common))

    return np.array([distance(a, b) for a, b in _pairs(y_true, y_pred)], dtype=np.float64)


def lca_heights(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Height of the lowest common ancestor of truth and prediction, per image: 0 for a correct leaf.

    The height of a synset is the length of the longest way down to a leaf, so a mistake between siblings costs little
    and one between branches of the root costs the depth of the hierarchy.
    """
    height = _heights(hierarchy)

    @cache
    def at(a: str, b: str) -> float:
        return float(height[hierarchy.index(hierarchy.lca(_synset(hierarchy, a), _synset(hierarchy, b)))])

    return np.array([at(a, b) for a, b in _pairs(y_true, y_pred)], dtype=np.float64)


def _pairs(y_true: ArrayLike, y_pred: ArrayLike) -> list[tuple[str, str]]:
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    if len(truth) != len(predicted):
        raise HCEPError(f"y_true has {len(truth):,} labels, y_pred {len(predicted):,}; give as many")
    return list(zip(truth, predicted, strict=True))


def _synset(hierarchy: Hierarchy, label: str) -> str:
    """A class's leaf; a predicted inner synset stands for itself."""
    if label in hierarchy.own_leaves:
        return hierarchy.own_leaves[label]
    return hierarchy.ids[hierarchy.index(label)]


def _steps_up(hierarchy: Hierarchy, synset: str, ancestor: str) -> int:
    at, n_steps = {synset}, 0
    while ancestor not in at:
        assert at, f"{ancestor!r} is not above {synset!r}"
        at, n_steps = {parent for s in at for parent in hierarchy.parents(s)}, n_steps + 1
    return n_steps


def _heights(hierarchy: Hierarchy) -> NDArray[np.int64]:
    height = np.zeros(len(hierarchy), dtype=np.int64)
    for i in range(len(hierarchy) - 1, -1, -1):
        below = hierarchy.child_index[hierarchy.child_pointer[i] : hierarchy.child_pointer[i + 1]]
        height[i] = 1 + height[below].max() if len(below) else 0
    return height
