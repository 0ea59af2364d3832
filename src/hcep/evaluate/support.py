"""Supports and labels against the truth: which synsets are right, and how severe a mistake is."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.truths import Truth, Truths, as_labels
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Support = Sequence[str]
Steps = dict[int, int]
#: The columns of `path_columns` that do not depend on the depth.
SUPPORT_COLUMNS = ("support_precision", "support_recall", "support_f1", "one_path", "complete_path")


class SupportScores(NamedTuple):
    """Per image: the share of the support that is right, and the share of the true path that is in the support."""

    precision: Floats
    recall: Floats

    @property
    def f1(self) -> Floats:
        """Harmonic mean per image; 0 if nothing is right."""
        total = self.precision + self.recall
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0)

    @property
    def mean(self) -> tuple[float, float]:
        """Mean precision and mean recall."""
        return float(np.mean(self.precision)), float(np.mean(self.recall))


def support_scores(paths_or_supports: Any, y: ArrayLike, hierarchy: Hierarchy) -> SupportScores:
    """Score supports, as tuples of synset ids or a pursuit result, against the truths (see `hcep.evaluate.truths`).

    Order, repetitions and the root do not count. If a class has several rooted paths, the support is compared with the
    path that gives the best F1; ties go to the better recall, then to the path that the support follows further from
    the root, then to the first. An empty support scores 0. Pass the hierarchy of the supports
    (``estimator.hierarchy_``).

    >>> from hcep import Hierarchy, support_scores
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> support_scores([("animal", "cat"), ("animal", "dog"), ("car",)], ["cat", "cat", "dog"], h)
    SupportScores(precision=array([1. , 0.5, 0. ]), recall=array([1. , 0.5, 0. ]))
    """
    truths = Truths(y, hierarchy)
    columns = path_columns(supports_of(paths_or_supports, len(truths)), truths.concepts, hierarchy)
    return SupportScores(columns["support_precision"], columns["support_recall"])


def path_columns(supports: Sequence[Support], truths: Sequence[Truth], hierarchy: Hierarchy) -> dict[str, Floats]:
    """Return `SUPPORT_COLUMNS` and ``prefix_1`` … ``prefix_L`` per image, for a hierarchy of depth L."""
    depth, nan = hierarchy.depth, float("nan")
    true_paths = cache(lambda concept: _true_paths(concept, hierarchy))

    @cache  # images of a class share few supports
    def row(support: frozenset[str], truth: Truth) -> tuple[float, ...]:
        for synset in support:
            hierarchy.index(synset)  # raises an error for an id that is not in the hierarchy
        synsets = support - {hierarchy.root}
        rooted = is_rooted_path(synsets, hierarchy)
        complete = rooted and any(hierarchy.is_leaf(synset) for synset in synsets)
        pairs = [(synsets - below, path) for concept in truth for path, below in true_paths(concept)]
        judged, path = max(pairs, key=_agreement, default=(synsets, ()))
        n_right, n_first = len(judged.intersection(path)), _prefix_length(judged, path)
        agreement = (nan, nan, nan)  # if nothing that the support names can be judged
        if path and (judged or not synsets):
            agreement = (n_right / max(len(judged), 1), n_right / len(path), 2 * n_right / (len(judged) + len(path)))
        prefixes = [1.0] * n_first + [0.0] * (len(path) - n_first) + [nan] * (depth - len(path))
        return (*agreement, float(rooted), float(complete), *prefixes)

    rows = [row(frozenset(support), truth) for support, truth in zip(supports, truths, strict=True)]
    names = [*SUPPORT_COLUMNS, *(f"prefix_{level}" for level in range(1, depth + 1))]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    return {name: column.copy() for name, column in zip(names, table.T, strict=True)}


def is_rooted_path(support: frozenset[str], hierarchy: Hierarchy) -> bool:
    """Return whether a set of synsets is exactly one path that starts at a child of the root."""
    # Parents are numbered before children, so only the sorted order can be a path.
    ordered = [0, *sorted(map(hierarchy.index, support))]
    pointer, parents = hierarchy.parent_pointer, hierarchy.parent_index
    steps = (above in parents[pointer[below] : pointer[below + 1]] for above, below in pairwise(ordered))
    return len(ordered) > 1 and all(steps)


def _true_paths(concept: str, hierarchy: Hierarchy) -> list[tuple[Support, frozenset[str]]]:
    """Return the rooted paths that agree with a true concept, and for each the concepts that it does not judge.

    They are the paths to the concept. In a DAG, a concept below it may be reached by others, which agree with it, too:
    without the concepts below, which are not judged.
    """
    below = frozenset(hierarchy.descendants(concept))
    paths = dict.fromkeys(hierarchy.paths(concept))
    if below and not hierarchy.is_tree:
        others = (path for leaf in below if hierarchy.is_leaf(leaf) for path in hierarchy.paths(leaf))
        paths |= dict.fromkeys(tuple(synset for synset in path if synset not in below) for path in others)
    return [(path, below) for path in paths]


def _agreement(pair: tuple[frozenset[str], Support]) -> tuple[float, float, int]:
    """F1 of a support and a path, its recall, and how far the support follows the path from the root."""
    support, path = pair
    if not support and not path:  # nothing to judge, and nothing to complain of
        return 1.0, 1.0, 0
    n_right = len(support.intersection(path))
    # In this form equal F1 scores are equal floats, so ties are exact.
    return 2 * n_right / (len(support) + len(path)), n_right / max(len(path), 1), _prefix_length(support, path)


def _prefix_length(support: frozenset[str], path: Support) -> int:
    """Return how many of a path's first synsets are all in the support."""
    return next((i for i, synset in enumerate(path) if synset not in support), len(path))


def supports_of(result: Any, n_labels: int) -> list[Support]:
    """Return a tuple of synset ids per image, from a pursuit result or an iterable of tuples."""
    result = getattr(result, "paths", getattr(result, "supports", result))
    supports = list(result) if isinstance(result, Iterable) and not isinstance(result, str) else [""]
    if any(isinstance(support, str) for support in supports):
        raise HCEPError("paths_or_supports must be a sequence of tuples of synset ids, or what hb_omp or omp returned")
    if len(supports) != n_labels:
        raise HCEPError(f"{len(supports):,} supports but {n_labels:,} labels; pass one label per support")
    return supports


# -- mistakes ------------------------------------------------------------------------------------------


def tree_distances(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> Floats:
    """Count the edges from the true class up to the lowest common ancestor and down to the predicted class.

    A correct label has distance 0. Predictions can be inner synsets. In a DAG, both parts are shortest paths.

    >>> from hcep import Hierarchy
    >>> from hcep.evaluate import tree_distances
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> tree_distances(["cat", "cat", "cat"], ["cat", "dog", "car"], h)
    array([0., 2., 3.])
    """
    return _by_ancestors(y_true, y_pred, hierarchy, lambda common, up_a, up_b: up_a[common] + up_b[common])


def lca_heights(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> Floats:
    """Return the height of the lowest common ancestor of the true and the predicted class, 0 for a correct leaf.

    The height of a synset is the length of the longest path down to a leaf. A mistake between siblings costs little,
    and one between branches of the root costs the depth of the hierarchy.
    """
    height = np.zeros(len(hierarchy), dtype=np.int64)
    for i in range(len(hierarchy) - 1, -1, -1):
        below = hierarchy.child_index[hierarchy.child_pointer[i] : hierarchy.child_pointer[i + 1]]
        height[i] = 1 + height[below].max() if len(below) else 0
    return _by_ancestors(y_true, y_pred, hierarchy, lambda common, up_a, up_b: int(height[common]))


def _by_ancestors(
    y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy, cost: Callable[[int, Steps, Steps], int]
) -> Floats:
    """Return the cost of each mistake, from the lowest common ancestor and the steps up from both labels."""
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    if len(truth) != len(predicted):
        raise HCEPError(f"y_true has {len(truth):,} labels and y_pred has {len(predicted):,}; pass the same number")

    @cache
    def above(label: str) -> Steps:
        """Return every ancestor of a label (and itself) with the fewest edges to it; a class stands for its leaf."""
        synset = hierarchy.index(hierarchy.own_leaves.get(label, label))
        steps, waiting = {synset: 0}, deque([synset])
        while waiting:
            i = waiting.popleft()
            parents = hierarchy.parent_index[hierarchy.parent_pointer[i] : hierarchy.parent_pointer[i + 1]].tolist()
            new = [parent for parent in parents if parent not in steps]
            steps |= dict.fromkeys(new, steps[i] + 1)
            waiting.extend(new)
        return steps

    @cache
    def between(a: str, b: str) -> float:
        up_a, up_b = above(a), above(b)
        common = max(up_a.keys() & up_b.keys(), key=lambda i: (hierarchy.levels[i], -i))  # as `Hierarchy.lca`
        return float(cost(common, up_a, up_b))

    return np.array([between(a, b) for a, b in zip(truth, predicted, strict=True)], dtype=np.float64)


# -- one hierarchy -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """Predictions and supports of images under one hierarchy, restricted to the classes and collapsed."""

    hierarchy: Hierarchy
    y: NDArray[np.str_]
    predicted: NDArray[np.str_]
    support: SupportScores  # each path against the paths of the image's class *in this hierarchy*

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.predicted == self.y))

    @property
    def support_f1(self) -> float:
        return float(self.support.f1.mean())

    @cached_property
    def chance_f1(self) -> float:
        """Support F1 of the path of a random class, drawn by its frequency: what a deep common trunk gives for free."""
        classes, counts = np.unique(self.y, return_counts=True)
        share = counts / counts.sum()
        return float(share @ class_f1(self.hierarchy, classes.tolist()) @ share)


def class_f1(hierarchy: Hierarchy, classes: list[str]) -> Floats:
    """Return the F1 of class i's first path against the closest path of class j, (n_classes, n_classes)."""
    paths = [hierarchy.paths(hierarchy.leaf_of(label)) for label in classes]
    owner = np.repeat(np.arange(len(classes)), [len(p) for p in paths])
    flat = [path for several in paths for path in several]
    member = np.zeros((len(flat), len(hierarchy)), dtype=np.float32)
    for row, path in enumerate(flat):
        member[row, [hierarchy.index(synset) for synset in path]] = 1.0
    length = member.sum(axis=1)
    first = np.searchsorted(owner, np.arange(len(classes)))
    f1 = 2.0 * (member[first] @ member.T) / (length[first, None] + length[None, :])
    return np.asarray(np.maximum.reduceat(f1, first, axis=1), dtype=np.float64)
