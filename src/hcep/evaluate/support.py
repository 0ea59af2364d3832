"""Support precision and recall: a recovered set of synsets against the closest valid rooted path of its class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.evaluate.labels import as_labels
from hcep.hierarchy import Hierarchy

Support = Sequence[str]


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

    Parameters
    ----------
    paths_or_supports : sequence of tuples of synset ids, or a pursuit result
        Order and repetitions do not matter. The root does not count.
    y : (n_images,) array of str
        True classes.
    hierarchy : Hierarchy
        The one the supports come from (``estimator.hierarchy_``, ``dictionary.hierarchy``).

    Returns
    -------
    SupportScores

    Raises
    ------
    HCEPError
        Different lengths, or ids that are not in the hierarchy.

    Notes
    -----
    A class may have several rooted paths; the closest one counts: the best F1, ties to the better recall. An empty
    support scores 0 on both.

    Examples
    --------
    >>> from hcep import Hierarchy, support_scores
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> support_scores([("animal", "cat"), ("animal", "dog"), ("car",)], ["cat", "cat", "dog"], h)
    SupportScores(precision=array([1. , 0.5, 0. ]), recall=array([1. , 0.5, 0. ]))
    """
    supports = as_supports(paths_or_supports)
    labels = as_labels(y, "y")
    if len(supports) != len(labels):
        raise HCEPError(f"{len(supports):,} supports but {len(labels):,} labels; give one label a support")

    valid_paths = cache(lambda label: hierarchy.paths(hierarchy.leaf_of(label)))

    @cache
    def score(support: frozenset[str], label: str) -> tuple[float, float]:
        found = known_synsets(support, hierarchy)
        path = closest_path(found, valid_paths(label))
        n_right = len(found.intersection(path))
        return n_right / max(len(found), 1), n_right / len(path)

    pairs = [score(frozenset(support), label) for support, label in zip(supports, labels, strict=True)]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return SupportScores(table[:, 0].copy(), table[:, 1].copy())


def known_synsets(support: frozenset[str], hierarchy: Hierarchy) -> frozenset[str]:
    """The support without the root; an id that is not in the hierarchy is an error."""
    for synset in support:
        hierarchy.index(synset)
    return support - {hierarchy.root}


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


def as_supports(given: Any) -> list[Support]:
    """One tuple of synset ids an image, from a pursuit result or any iterable of them."""
    for name in ("paths", "supports"):
        if hasattr(given, name):
            return list(getattr(given, name))
    if isinstance(given, Iterable) and not isinstance(given, str):
        supports = list(given)
        if not any(isinstance(support, str) for support in supports):
            return supports
    raise HCEPError("paths_or_supports must be a sequence of tuples of synset ids, or what hb_omp or omp returned")
