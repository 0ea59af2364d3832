"""What an image of a class looks like to its path: how little of a training image a path may leave unexplained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hcep.classify.path_model import PathModel

#: Training images that are looked at, per class and in all.
PER_CLASS, IN_ALL = 50, 10_000
#: Below this share of a class's images an answer counts as unlike them.
PERCENTILE = 5.0
#: Images from which a class's own percentile is taken; with fewer, it is its median less what is usual for all classes.
ENOUGH = 20


def explained_floor(
    model: PathModel, images: NDArray[Any], index: NDArray[np.intp], left_out: bool = True
) -> NDArray[np.float64] | None:
    """The explained share of every class below which an image is unlike those of training, (n_classes,).

    Parameters
    ----------
    model : PathModel
    images : (n_images, n_dims) raw embeddings of training images
    index : (n_images,) class of each, as a position in ``model.classes``
    left_out : whether the model was fitted on these very images

    Returns
    -------
    array or None
        None where no class has two images.

    Notes
    -----
    A training image pulled its class's mean towards itself. Left out, it would be ``n / (n - 1)`` times as far from the
    mean of the other n - 1, which is what its residual is multiplied by; new images are then not marked for being new.
    """
    counts = np.bincount(index, minlength=len(model.classes))
    enough = np.flatnonzero(counts >= 2)
    if not len(enough):
        return None
    most = max(2, min(PER_CLASS, IN_ALL // len(enough)))
    rows = np.concatenate([_spread(np.flatnonzero(index == c), most) for c in enough])
    shares = model.infer(images[rows], explained=True).paths.explained
    own, n = index[rows], counts[index[rows]]
    if left_out:
        shares = 1.0 - (n / (n - 1.0)) ** 2 * (1.0 - shares)
    middle = np.full(len(counts), np.median(shares))
    middle[enough] = [np.median(shares[own == c]) for c in enough]
    floor: NDArray[np.float64] = middle + np.percentile(shares - middle[own], PERCENTILE)
    for c in enough[np.minimum(counts[enough], most) >= ENOUGH]:
        floor[c] = np.percentile(shares[own == c], PERCENTILE)
    return floor


def _spread(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of the rows, evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)]
