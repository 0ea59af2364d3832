"""What one support says about the hierarchy: right synsets, how far down the true path, whether it is a path at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hcep.evaluate.support import Support, closest_path, known_synsets, prefix_length
from hcep.hierarchy import Hierarchy

#: The columns of `path_columns` that do not depend on the depth.
SUPPORT_COLUMNS = ("support_precision", "support_recall", "support_f1", "one_path", "complete_path")


def path_columns(
    supports: Sequence[Support], labels: Sequence[str], hierarchy: Hierarchy
) -> dict[str, NDArray[np.float64]]:
    """Support scores, path consistency and prefix accuracy, one value an image.

    Parameters
    ----------
    supports : sequence of tuples of synset ids, n_images long
    labels : sequence of str, n_images long
        True classes.
    hierarchy : Hierarchy

    Returns
    -------
    dict of (n_images,) float64
        `SUPPORT_COLUMNS`, then ``prefix_1`` … ``prefix_L`` for a hierarchy of depth L.
    """
    depth = hierarchy.depth
    valid_paths = cache(lambda label: hierarchy.paths(hierarchy.leaf_of(label)))

    @cache  # images of a class share few supports
    def row(support: frozenset[str], label: str) -> tuple[float, ...]:
        found = known_synsets(support, hierarchy)
        path = closest_path(found, valid_paths(label))
        return *_agreement(found, path), *_consistency(found, hierarchy), *_prefixes(found, path, depth)

    rows = [row(frozenset(support), label) for support, label in zip(supports, labels, strict=True)]
    names = [*SUPPORT_COLUMNS, *(f"prefix_{level}" for level in range(1, depth + 1))]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    return {name: column.copy() for name, column in zip(names, table.T, strict=True)}


def is_rooted_path(support: frozenset[str], hierarchy: Hierarchy) -> bool:
    """Whether a set of synsets is exactly one path that starts at a child of the root.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.evaluate.path_scores import is_rooted_path
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> [is_rooted_path(frozenset(s), h) for s in (["animal"], ["cat", "animal"], ["cat"], ["animal", "car"], [])]
    [True, True, False, False, False]
    """
    # Parents are numbered before children, so only this order can be a path.
    ordered = [0, *sorted(map(hierarchy.index, support))]
    return len(ordered) > 1 and all(_is_child(hierarchy, above, below) for above, below in pairwise(ordered))


def _is_child(hierarchy: Hierarchy, above: int, below: int) -> bool:
    return above in hierarchy.parent_index[hierarchy.parent_pointer[below] : hierarchy.parent_pointer[below + 1]]


def _agreement(support: frozenset[str], path: Support) -> tuple[float, float, float]:
    n_right = len(support.intersection(path))
    return n_right / max(len(support), 1), n_right / len(path), 2 * n_right / (len(support) + len(path))


def _consistency(support: frozenset[str], hierarchy: Hierarchy) -> tuple[float, float]:
    rooted = is_rooted_path(support, hierarchy)
    return float(rooted), float(rooted and any(hierarchy.is_leaf(synset) for synset in support))


def _prefixes(support: frozenset[str], path: Support, depth: int) -> list[float]:
    n_right = prefix_length(support, path)
    beyond = [float("nan")] * (depth - len(path))
    return [1.0] * n_right + [0.0] * (len(path) - n_right) + beyond
