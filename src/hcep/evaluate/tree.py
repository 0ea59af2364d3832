"""Accuracy, and how far in the hierarchy a mistake is from the truth."""

from __future__ import annotations

from collections import deque
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
    above = cache(lambda synset: _steps_up(hierarchy, synset))

    @cache
    def distance(a: str, b: str) -> float:
        up_a, up_b = above(_synset(hierarchy, a)), above(_synset(hierarchy, b))
        common = _lowest_common(hierarchy, up_a, up_b)
        return float(up_a[common] + up_b[common])

    return np.array([distance(a, b) for a, b in _pairs(y_true, y_pred)], dtype=np.float64)


def lca_heights(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Height of the lowest common ancestor of truth and prediction, per image: 0 for a correct leaf.

    The height of a synset is the length of the longest way down to a leaf, so a mistake between siblings costs little
    and one between branches of the root costs the depth of the hierarchy.
    """
    height = _heights(hierarchy)
    above = cache(lambda synset: _steps_up(hierarchy, synset))

    @cache
    def at(a: str, b: str) -> float:
        up_a, up_b = above(_synset(hierarchy, a)), above(_synset(hierarchy, b))
        return float(height[_lowest_common(hierarchy, up_a, up_b)])

    return np.array([at(a, b) for a, b in _pairs(y_true, y_pred)], dtype=np.float64)


def _pairs(y_true: ArrayLike, y_pred: ArrayLike) -> list[tuple[str, str]]:
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    if len(truth) != len(predicted):
        raise HCEPError(f"y_true has {len(truth):,} labels, y_pred {len(predicted):,}; give as many")
    return list(zip(truth, predicted, strict=True))


def _synset(hierarchy: Hierarchy, label: str) -> int:
    """Index of a class's leaf; a predicted inner synset stands for itself."""
    return hierarchy.index(hierarchy.own_leaves.get(label, label))


def _steps_up(hierarchy: Hierarchy, synset: int) -> dict[int, int]:
    """Every synset above one (and itself) with the fewest edges to it."""
    steps = {synset: 0}
    waiting = deque([synset])
    while waiting:
        i = waiting.popleft()
        above = hierarchy.parent_index[hierarchy.parent_pointer[i] : hierarchy.parent_pointer[i + 1]].tolist()
        new = [parent for parent in above if parent not in steps]
        steps |= dict.fromkeys(new, steps[i] + 1)
        waiting.extend(new)
    return steps


def _lowest_common(hierarchy: Hierarchy, up_a: dict[int, int], up_b: dict[int, int]) -> int:
    """Index of what `Hierarchy.lca` finds, from ancestors that are kept between pairs."""
    return max(up_a.keys() & up_b.keys(), key=lambda i: (hierarchy.levels[i], -i))


def _heights(hierarchy: Hierarchy) -> NDArray[np.int64]:
    height = np.zeros(len(hierarchy), dtype=np.int64)
    for i in range(len(hierarchy) - 1, -1, -1):
        below = hierarchy.child_index[hierarchy.child_pointer[i] : hierarchy.child_pointer[i + 1]]
        height[i] = 1 + height[below].max() if len(below) else 0
    return height
