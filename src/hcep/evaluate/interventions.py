"""How far a little help goes: accuracy after the first levels of every path are corrected by the truth."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hcep.errors import HCEPError, quoted
from hcep.evaluate.statistics import bootstrap_interval, paired_bootstrap
from hcep.evaluate.support import as_labels
from hcep.pursuit.limits import PathLimits


class Corrected(NamedTuple):
    """Accuracy with some levels corrected, and what the last of them brought; each with a 95 % bootstrap interval."""

    n_levels: int
    accuracy: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def intervention_curve(estimator: Any, X: ArrayLike, y: ArrayLike) -> list[Corrected]:
    """Accuracy of a fitted classifier after 0, 1, 2, … levels of each image's path are forced to the true ones.

    Parameters
    ----------
    X : (n_images, n_dims) raw embeddings
    y : (n_images,) labels, all of them classes of the estimator
    """
    model, labels, images = estimator.path_model(), as_labels(y, "y"), np.asarray(X)
    position = {str(c): i for i, c in enumerate(model.classes.tolist())}
    unknown = sorted(set(labels) - set(position))
    if unknown:
        raise HCEPError(f"y: {quoted(unknown)} are no classes of the model")
    truth, tree, curve = np.array([position[label] for label in labels]), model.hierarchy.path_tree, []
    above = tree.ancestors()
    ends = [np.flatnonzero(tree.synset == model.hierarchy.index(leaf)) for leaf in model.leaves.tolist()]
    before = np.zeros(len(truth))
    for k in range(tree.depth + 1):
        # The true concept at level k of each of the class's paths, or its leaf where that is higher.
        nodes = [np.where(above[some, k - 1] >= 0, above[some, k - 1], some) for some in ends] if k else []
        limits = PathLimits.through(model.hierarchy, nodes, truth) if k else None
        correct = (model.predict(images, limits) == truth).astype(float)
        gained = paired_bootstrap(correct, before if k else correct)
        curve.append(Corrected(k, *bootstrap_interval(correct), *gained[:3]))
        before = correct
    return curve


def limited(estimator: Any, limits: PathLimits) -> Any:
    """A fitted classifier that keeps to limits, for the images that they are of: to be graded as it answers then."""
    own = copy(estimator)
    own.infer = partial(estimator.path_model().infer, limits=limits)
    return own
