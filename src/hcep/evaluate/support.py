"""Supports against truth: right synsets, how far down the true path, whether it is a path at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.labels import as_labels
from hcep.hierarchy import Hierarchy

Support = Sequence[str]
#: The columns of `path_columns` that do not depend on the depth.
SUPPORT_COLUMNS = ("support_precision", "support_recall", "support_f1", "one_path", "complete_path")


class SupportScores(NamedTuple):
    """Per image: the share of the support that is right, and the share of the right path that was found."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    @property
    def f1(self) -> NDArray[np.float64]:
        """Harmonic mean per image; 0 where nothing is right."""
        total = self.precision + self.recall
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0)

    @property
    def mean(self) -> tuple[float, float]:
        """Mean precision and mean recall."""
        return float(np.mean(self.precision)), float(np.mean(self.recall))


def support_scores(paths_or_supports: Any, y: ArrayLike, hierarchy: Hierarchy) -> SupportScores:
    """Score recovered supports against the true classes.

    Raises HCEPError: different lengths, ids that are not in the hierarchy, classes that are no leaves.

    Parameters
    ----------
    paths_or_supports : sequence of tuples of synset ids, or a pursuit result
        Order and repetitions do not matter. The root does not count.
    y : (n_images,) array of str; true classes
    hierarchy : the one the supports come from (``estimator.hierarchy_``, ``dictionary.hierarchy``)

    Returns
    -------
    SupportScores
        Against the rooted path of the class that the support has the best F1 with; ties go to the better recall,
        then to the path that is followed further from the root, then to the first. An empty support scores 0.

    Examples
    --------
    >>> from hcep import Hierarchy, support_scores
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> support_scores([("animal", "cat"), ("animal", "dog"), ("car",)], ["cat", "cat", "dog"], h)
    SupportScores(precision=array([1. , 0.5, 0. ]), recall=array([1. , 0.5, 0. ]))
    """
    columns = path_columns(*supports_and_labels(paths_or_supports, y), hierarchy)
    return SupportScores(columns["support_precision"], columns["support_recall"])


def path_columns(
    supports: Sequence[Support], labels: Sequence[str], hierarchy: Hierarchy
) -> dict[str, NDArray[np.float64]]:
    """Support scores, path consistency and prefix accuracy, one value per image.

    Parameters
    ----------
    supports : sequence of tuples of synset ids, n_images long
    labels : true classes

    Returns
    -------
    dict of (n_images,) float64
        `SUPPORT_COLUMNS`, then ``prefix_1`` … ``prefix_L`` for a hierarchy of depth L.
    """
    depth = hierarchy.depth
    valid_paths = cache(lambda label: hierarchy.paths(hierarchy.leaf_of(label)))

    @cache  # images of a class share few supports
    def row(support: frozenset[str], label: str) -> tuple[float, ...]:
        for synset in support:
            hierarchy.index(synset)  # an id that is not in the hierarchy is an error
        found = support - {hierarchy.root}
        path = closest_path(found, valid_paths(label))
        n_right, n_first = len(found.intersection(path)), prefix_length(found, path)
        rooted = is_rooted_path(found, hierarchy)
        complete = rooted and any(hierarchy.is_leaf(synset) for synset in found)
        agreement = (n_right / max(len(found), 1), n_right / len(path), 2 * n_right / (len(found) + len(path)))
        prefixes = [1.0] * n_first + [0.0] * (len(path) - n_first) + [float("nan")] * (depth - len(path))
        return (*agreement, float(rooted), float(complete), *prefixes)

    rows = [row(frozenset(support), label) for support, label in zip(supports, labels, strict=True)]
    names = [*SUPPORT_COLUMNS, *(f"prefix_{level}" for level in range(1, depth + 1))]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    return {name: column.copy() for name, column in zip(names, table.T, strict=True)}


def is_rooted_path(support: frozenset[str], hierarchy: Hierarchy) -> bool:
    """Whether a set of synsets is exactly one path that starts at a child of the root.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.evaluate.support import is_rooted_path
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> [is_rooted_path(frozenset(s), h) for s in (["animal"], ["cat", "animal"], ["cat"], ["animal", "car"], [])]
    [True, True, False, False, False]
    """
    # Parents are numbered before children, so only this order can be a path.
    ordered = [0, *sorted(map(hierarchy.index, support))]
    pointer, parents = hierarchy.parent_pointer, hierarchy.parent_index
    steps = (above in parents[pointer[below] : pointer[below + 1]] for above, below in pairwise(ordered))
    return len(ordered) > 1 and all(steps)


def closest_path(support: frozenset[str], paths: Sequence[Support]) -> Support:
    """Of a class's valid rooted paths, the one of the best F1 with a support.

    Ties go to the better recall, then to the path that is followed further from the root, then to the first.
    """

    def closeness(path: Support) -> tuple[float, float, int]:
        n_right = len(support.intersection(path))
        # In this form equal F1 are equal floats, so that ties are ties.
        return 2 * n_right / (len(support) + len(path)), n_right / len(path), prefix_length(support, path)

    return max(paths, key=closeness)


def prefix_length(support: frozenset[str], path: Support) -> int:
    """How many of a path's first synsets are all in the support."""
    return next((i for i, synset in enumerate(path) if synset not in support), len(path))


def supports_and_labels(given: Any, y: ArrayLike) -> tuple[list[Support], list[str]]:
    """One tuple of synset ids per image, from a pursuit result or any iterable of them, and as many true classes."""
    attribute = next((name for name in ("paths", "supports") if hasattr(given, name)), None)
    if attribute is not None:
        given = getattr(given, attribute)
    supports = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [""]
    if any(isinstance(support, str) for support in supports):
        raise HCEPError("paths_or_supports must be a sequence of tuples of synset ids, or what hb_omp or omp returned")
    labels = as_labels(y, "y")
    if len(supports) != len(labels):
        raise HCEPError(f"{len(supports):,} supports but {len(labels):,} labels; give one label per support")
    return supports, labels
