"""One answer for several photos: the probabilities of a burst, an observation or a specimen, combined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError

Floats = NDArray[np.float64]
#: No photo rules a class out entirely.
FLOOR = 1e-6


def combine_photos(probabilities: ArrayLike, groups: Sequence[str]) -> tuple[list[str], Floats]:
    """Combine the probabilities of the photos of each group, as for `hcep.roll_up`.

    Parameters
    ----------
    probabilities : (n_images, n_classes); rows may add up to less than 1
    groups : the group of each photo: a burst, an observation, a specimen

    Returns
    -------
    names : the groups, in the order of their first photos
    combined : (n_groups, n_classes)

    Notes
    -----
    The mean of the photos' log probabilities, normalised. Photos of one burst show the same thing in nearly the same
    way, so they make the same mistakes: the sum of the logarithms, which is right for independent photos, would count
    one piece of evidence many times. For the same reason `hcep.classify.calibrate_levels` needs one row per group, too.

    >>> from hcep.classify.groups import combine_photos
    >>> names, combined = combine_photos([[0.8, 0.2], [0.2, 0.8], [0.9, 0.1]], ["a", "b", "a"])
    >>> names, combined.round(3).tolist()
    (['a', 'b'], [[0.857, 0.143], [0.2, 0.8]])
    """
    values, names = np.asarray(probabilities, dtype=np.float64), list(dict.fromkeys(groups))
    if values.ndim != 2 or len(values) != len(groups):
        raise HCEPError(f"groups must be one per row of probabilities, got {len(groups):,} for shape {values.shape}")
    place = {name: g for g, name in enumerate(names)}
    own = np.array([place[name] for name in groups], dtype=np.intp)
    sums = np.zeros((len(names), values.shape[1] + 1))
    np.add.at(sums, own, log_evidence(values))
    possible = np.zeros(sums.shape, dtype=bool)
    np.logical_or.at(possible, own, with_rest(values) > 0.0)
    return names, from_log_evidence(sums / np.bincount(own)[:, None], possible)


def log_evidence(probabilities: Floats) -> Floats:
    """Log probabilities of the classes and, last, of what is unassigned, (n_images, n_classes + 1)."""
    values = with_rest(probabilities)
    # A class that a short list leaves out may have its share of what is unassigned.
    least = np.maximum(values[:, -1:] / max(1, probabilities.shape[1]), FLOOR)
    return np.asarray(np.log(np.maximum(values, least)))


def from_log_evidence(means: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Probabilities of classes from mean log probabilities; 0 for classes that no photo finds possible."""
    odds = np.where(possible, np.exp(means - means.max(axis=1, keepdims=True)), 0.0)
    total = odds.sum(axis=1, keepdims=True)
    return np.asarray((odds / np.where(total > 0.0, total, 1.0))[:, :-1])


def with_rest(probabilities: Floats) -> Floats:
    """Probabilities of the classes and, last, what is unassigned, (n_images, n_classes + 1)."""
    rest = np.maximum(1.0 - probabilities.sum(axis=1, keepdims=True), 0.0)
    return np.hstack([probabilities, np.where(rest < 1e-9, 0.0, rest)])
