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
#: Images from which on a class has a percentile of its own; with fewer, it gets that of all images.
ENOUGH = 20


def explained_floor(model: PathModel, images: NDArray[Any], index: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """The explained share of every class below which an image is unlike those of training, (n_classes,).

    Parameters
    ----------
    model : PathModel
        Fitted on these images.
    images : (n_images, n_dims) raw embeddings of training images
    index : (n_images,) class of each, as a position in ``model.classes``

    Returns
    -------
    array or None
        None where no class has two images.
    """
    counts = np.bincount(index, minlength=len(model.classes))
    enough = np.flatnonzero(counts >= 2)
    if not len(enough):
        return None
    most = max(2, min(PER_CLASS, IN_ALL // len(enough)))
    rows = np.concatenate([_spread(np.flatnonzero(index == c), most) for c in enough])
    own = index[rows]
    shares = _left_out_shares(model, images[rows], own, counts)
    floor = np.full(len(counts), np.percentile(shares, PERCENTILE))
    for c in enough[np.minimum(counts[enough], most) >= ENOUGH]:
        floor[c] = np.percentile(shares[own == c], PERCENTILE)
    return floor


def _left_out_shares(
    model: PathModel, images: NDArray[Any], own: NDArray[np.intp], counts: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Explained share of training images, as if each had been left out of the fit; else new images all look strange.

    Notes
    -----
    Without an image its class's mean is ``n / (n - 1)`` times as far from it, and the within-class covariance loses it:
    with ``r = x - mean`` an inner product ``<a, b>`` of the whitened space becomes ``<a, b> + g <a, r> <b, r>`` (see
    `leave_one_out_scores`). What the path leaves is nearly along r.
    """
    transform, options, tree = model.dictionary.transform, model.options, model.hierarchy.path_tree
    x = model.dictionary.embed(images).astype(np.float64)
    squares, left, r = np.einsum("ij,ij->i", x, x), np.full(len(x), np.inf), np.empty_like(x)
    nodes, ends = tree.ancestors()[tree.leaf_nodes], tree.synset[tree.leaf_nodes]
    for c in np.unique(own):
        rows, leaf = np.flatnonzero(own == c), model.hierarchy.index(str(model.leaves[c]))
        r[rows] = x[rows] - model.dictionary.synset_embeddings[leaf]
        for path in nodes[ends == leaf]:
            atoms = model.dictionary.atoms[tree.edge[path[path >= 0][: options.max_steps]]]
            left[rows] = np.minimum(left[rows], _left_by(x[rows], atoms, options.anchor))
    grown, g = counts[own] / (counts[own] - 1.0), np.zeros(len(x))
    if transform.shrinkage is not None:
        n_free = max(counts.sum() - np.count_nonzero(counts), 1)
        loss = (1.0 - transform.shrinkage) / n_free / transform.scale**2 * grown
        g = loss / np.maximum(1.0 - loss * np.einsum("ij,ij->i", r, r), 1e-12)
    along = np.einsum("ij,ij->i", x, r)
    left_out: NDArray[np.float64] = grown**2 * (left + g * left**2) / np.maximum(squares + g * along**2, 1e-300)
    return 1.0 - left_out


def _left_by(x: NDArray[np.float64], atoms: NDArray[np.float64], anchor: float) -> NDArray[np.float64]:
    """What the atoms of a path leave of ``||x||**2``, with the coefficients that the pursuit finds."""
    inverse = np.linalg.pinv(atoms @ atoms.T + anchor * np.eye(len(atoms)), rcond=1e-12, hermitian=True)
    rest = x - (x @ atoms.T + anchor) @ inverse @ atoms
    left: NDArray[np.float64] = np.einsum("ij,ij->i", rest, rest)
    return left


def _spread(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of the rows, evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)]
