"""One answer for several photos: the probabilities of a burst, an observation or a specimen, combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.classify.path_model import Inference, PathModel
from hcep.errors import HCEPError
from hcep.pursuit.limits import PathLimits

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
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or len(values) != len(groups):
        raise HCEPError(
            f"groups must have one entry per row of probabilities; got {len(groups):,} for shape {values.shape}"
        )
    names, own = _numbered(groups)
    rest = np.maximum(1.0 - values.sum(axis=1, keepdims=True), 0.0)
    # A class that a short list leaves out may have its share of what is unassigned, the last column.
    least = np.maximum(rest / max(1, values.shape[1]), FLOOR)
    values = np.hstack([values, np.where(rest < 1e-9, 0.0, rest)])
    sums, possible = np.zeros((len(names), values.shape[1])), np.zeros((len(names), values.shape[1]), dtype=bool)
    np.add.at(sums, own, np.log(np.maximum(values, least)))
    np.logical_or.at(possible, own, values > 0.0)
    means = sums / np.bincount(own)[:, None]
    odds = np.where(possible, np.exp(means - means.max(axis=1, keepdims=True)), 0.0)
    total = odds.sum(axis=1, keepdims=True)
    return names, (odds / np.where(total > 0.0, total, 1.0))[:, :-1]


def _numbered(groups: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The groups in the order of their first photos, and the group of each photo as a position among them."""
    place = {name: g for g, name in enumerate(dict.fromkeys(groups))}
    return list(place), np.array([place[name] for name in groups], dtype=np.intp)


def group_rows(groups: Sequence[str], size: int) -> Iterator[NDArray[np.intp]]:
    """The photos of whole groups, about `size` photos at a time or one group; groups by their first photos."""
    _, own = _numbered(groups)
    order = np.argsort(own, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(own[order])) + 1, len(order))
    start = 0
    while start < len(order):
        end = ends[max(np.searchsorted(ends, start + size, side="right") - 1, np.searchsorted(ends, start + 1))]
        yield order[start:end]
        start = int(end)


class GroupInference(NamedTuple):
    """What `infer_groups` returns: the groups, for each the photo that shows its class best, and the inference."""

    names: list[str]
    rows: NDArray[np.intp]
    inference: Inference


def infer_groups(
    model: PathModel, images: NDArray[Any], groups: Sequence[str], limits: PathLimits | None = None, n_best: int = 1
) -> GroupInference:
    """One inference per group: the class and probabilities by `combine_photos`, and the path of a photo to that class.

    The path is that of the photo for which the class of the group is the most probable.

    Parameters
    ----------
    images : (n_images, n_dims) array
    groups : the group of each photo
    limits : the paths that each photo may take
    n_best : as for `PathModel.infer`
    """
    probabilities = model.probabilities(images, limits)
    names, combined = combine_photos(probabilities, groups)
    own, index = _numbered(groups)[1], np.argmax(combined, axis=1)
    order = np.lexsort((-probabilities[np.arange(len(own)), index[own]], own))
    rows = order[np.searchsorted(own[order], np.arange(len(names)))]
    ends, first = model.paths_by_class
    ends = model.hierarchy.path_tree.leaf_nodes[ends]
    nodes = np.split(ends, first[1:])
    open_to = np.ones((1, len(ends)), dtype=bool) if limits is None else limits.at(rows).open_at(ends)
    cases, which = np.unique(np.column_stack([index, np.arange(len(rows)) % len(open_to)]), axis=0, return_inverse=True)
    allowed = np.split(open_to, first[1:], axis=1)
    routes = [nodes[c][allowed[c][row]] for c, row in cases.tolist()]
    through = PathLimits.through(model.hierarchy, routes, which.ravel())
    inference = model.infer(images[rows], n_best=n_best, explained=True, limits=through)
    return GroupInference(names, rows, replace(inference, probabilities=combined, class_index=index))
