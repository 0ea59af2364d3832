"""How far in the hierarchy a mistake is from the truth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.labels import as_labels
from hcep.hierarchy import Hierarchy

Steps = dict[int, int]


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
    return _by_ancestors(y_true, y_pred, hierarchy, lambda common, up_a, up_b: up_a[common] + up_b[common])


def lca_heights(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Height of the lowest common ancestor of truth and prediction, per image: 0 for a correct leaf.

    The height of a synset is the length of the longest way down to a leaf, so a mistake between siblings costs little
    and one between branches of the root costs the depth of the hierarchy.
    """
    height = np.zeros(len(hierarchy), dtype=np.int64)
    for i in range(len(hierarchy) - 1, -1, -1):
        below = hierarchy.child_index[hierarchy.child_pointer[i] : hierarchy.child_pointer[i + 1]]
        height[i] = 1 + height[below].max() if len(below) else 0
    return _by_ancestors(y_true, y_pred, hierarchy, lambda common, up_a, up_b: int(height[common]))


def _by_ancestors(
    y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy, cost: Callable[[int, Steps, Steps], int]
) -> NDArray[np.float64]:
    """The cost of each mistake, from the lowest common ancestor and the steps up from either label."""
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    if len(truth) != len(predicted):
        raise HCEPError(f"y_true has {len(truth):,} labels, y_pred {len(predicted):,}; give as many")

    @cache
    def above(label: str) -> Steps:
        # A predicted inner synset stands for itself, a class for its leaf.
        return _steps_up(hierarchy, hierarchy.index(hierarchy.own_leaves.get(label, label)))

    @cache
    def between(a: str, b: str) -> float:
        up_a, up_b = above(a), above(b)
        common = max(up_a.keys() & up_b.keys(), key=lambda i: (hierarchy.levels[i], -i))  # as `Hierarchy.lca`
        return float(cost(common, up_a, up_b))

    return np.array([between(a, b) for a, b in zip(truth, predicted, strict=True)], dtype=np.float64)


def _steps_up(hierarchy: Hierarchy, synset: int) -> Steps:
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
