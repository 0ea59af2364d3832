"""How little an image may look like the classes of a model: the explained share's floor, and a score of strangeness."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hcep.classify.path_model import Inference, PathModel

#: Training images that are looked at, per class and in all.
PER_CLASS, IN_ALL = 50, 10_000
#: Below this share of a class's images an answer counts as unlike them.
PERCENTILE = 5.0
#: What the unexplained share of an image counts for in `unknown_scores`, beside the entropy of its classes.
WEIGHT = 12.0
#: Images from which on a class has a percentile of its own; with fewer, it gets that of all images.
ENOUGH = 20


def explained_floor(model: "PathModel", images: NDArray[Any], index: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """The explained share of every class below which an image is unlike those of training, (n_classes,).

    From the raw training images and their classes, as positions in ``model.classes``; None where no class has two.
    """
    counts = np.bincount(index, minlength=len(model.classes))
    enough = np.flatnonzero(counts >= 2)
    if not len(enough):
        return None
    most = max(2, min(PER_CLASS, IN_ALL // len(enough)))
    # Of more classes than can be looked at, some stand for all: none has a percentile of its own.
    looked_at = enough[:: -(-2 * len(enough) // IN_ALL)]
    of_class = np.split(np.argsort(index, kind="stable"), np.cumsum(counts)[:-1])
    from hcep.classify.left_out import spread  # here: explaining a photo needs no compiler

    rows = [spread(of_class[c], most) for c in looked_at]
    shares = _left_out_shares(model, images[np.concatenate(rows)], np.repeat(looked_at, list(map(len, rows))), counts)
    floor = np.full(len(counts), np.percentile(shares, PERCENTILE))
    for c, own in zip(looked_at, np.split(shares, np.cumsum(list(map(len, rows)))[:-1]), strict=True):
        if len(own) >= ENOUGH:
            floor[c] = np.percentile(own, PERCENTILE)
    return floor


def _left_out_shares(
    model: "PathModel", images: NDArray[Any], own: NDArray[np.intp], counts: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Explained share of training images, as if each had been left out of the fit; else new images all look strange.

    Without an image its class's mean is ``n / (n - 1)`` times as far from it, and the within-class covariance loses it:
    with ``r = x - mean`` an inner product ``<a, b>`` of the whitened space becomes ``<a, b> + g <a, r> <b, r>`` (see
    `hcep.classify.left_out.LeftOut`). What the path leaves is nearly along r.
    """
    transform, tree, dictionary = model.dictionary.transform, model.hierarchy.path_tree, model.dictionary
    x, atoms = dictionary.embed(images).astype(np.float32), dictionary.atoms.astype(np.float32)
    leaves = np.array([model.hierarchy.index(leaf) for leaf in model.leaves.tolist()])
    r = x - dictionary.synset_embeddings[leaves[own]].astype(np.float32)
    squares, left = np.einsum("ij,ij->i", x, x), np.full(len(x), np.inf)
    nodes = tree.ancestors()[tree.leaf_nodes][:, : model.options.max_steps]
    columns, first = model._paths_by_class
    number = np.diff(np.append(first, len(columns)))
    for k in range(number.max()):
        with_one = np.flatnonzero(number[own] > k)
        for rows in np.array_split(with_one, -(-len(with_one) // 256)):
            path = nodes[columns[first[own[rows]] + k]]
            along = np.where(path[..., None] >= 0, atoms[tree.edge[path]], 0.0)
            left[rows] = np.minimum(left[rows], _left_by(x[rows], along, model.options.anchor))
    grown, g = counts[own] / (counts[own] - 1.0), np.zeros(len(x))
    if transform.shrinkage is not None:
        n_free = max(counts.sum() - np.count_nonzero(counts), 1)
        loss = (1.0 - transform.shrinkage) / n_free / transform.scale**2 * grown
        g = loss / np.maximum(1.0 - loss * np.einsum("ij,ij->i", r, r), 1e-12)
    along = np.einsum("ij,ij->i", x, r)
    left_out: NDArray[np.float64] = grown**2 * (left + g * left**2) / np.maximum(squares + g * along**2, 1e-300)
    return 1.0 - left_out


def _left_by(x: NDArray[Any], atoms: NDArray[Any], anchor: float) -> NDArray[Any]:
    """What the atoms of a path, (n_images, length, n_dims), leave of ``||x||**2``, with the pursuit's coefficients."""
    gram = (atoms @ atoms.swapaxes(1, 2)).astype(np.float64)
    right = (atoms @ x[:, :, None]).astype(np.float64) + anchor
    anchored = gram + anchor * np.eye(gram.shape[1])
    if anchor > 1e-9 * gram.max(initial=0.0):
        coefficients = np.linalg.solve(anchored, right)
    else:  # atoms may depend on each other
        coefficients = np.linalg.pinv(anchored, rcond=1e-12, hermitian=True) @ right
    rest = x - np.einsum("nl,nld->nd", coefficients[:, :, 0].astype(np.float32), atoms)
    return np.asarray(np.einsum("ij,ij->i", rest, rest))


def unknown_scores(model: "PathModel", found: "Inference") -> NDArray[np.float64]:
    """Higher for images that are less like the model's classes, (n_images,), from an inference with explained shares.

    ``H + 12 (u - u_c / 2)``: H is the entropy of order one half of the class probabilities, ``2 log sum sqrt(p)``,
    which minds the long tail of classes more than the first few; u is the share of the image that its path leaves
    unexplained and u_c the share above which an image is unlike the training images of that class.
    """
    typical = 0.0 if model.explained_floor is None else 1.0 - model.explained_floor[found.class_index]
    entropy = 2.0 * np.log(np.sqrt(np.maximum(found.probabilities, 0.0)).sum(axis=1))
    return np.asarray(entropy + WEIGHT * (1.0 - found.paths.explained - 0.5 * typical))
