"""Classes of the hierarchy that no image shows: which they are, and how likely they must be to be an answer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.hierarchy import Hierarchy
from hcep.pursuit import path_objectives

Unseen = Literal["ignore", "use"]

#: Share of training images, each left out of its class, that classes without images may take from the right ones.
TAKEN = 0.02
#: Images that this is measured on.
MAX_IMAGES = 1024


def unseen_classes(hierarchy: Hierarchy | None, classes: NDArray[Any]) -> list[str]:
    """Leaves of a hierarchy that are not classes; those below a class belong to it."""
    if hierarchy is None:
        return []
    labels = list(map(str, classes.tolist()))
    covered = {leaf for label in labels if label in hierarchy for leaf in (label, *hierarchy.descendants(label))}
    return [leaf for leaf in hierarchy.leaves if leaf not in covered and hierarchy.class_of(leaf) not in labels]


def unseen_odds(model: PathModel, images: NDArray[Any], own: NDArray[np.intp], n_images: NDArray[Any]) -> float:
    """Prior odds of a class without images, to one with images, at which few images are taken for one without.

    Parameters
    ----------
    model : with equal priors
    images, own : training images, and the class of each
    n_images : (n_classes,); images of each class
    """
    rows = np.flatnonzero(n_images[own] > 1)
    rows = rows[:: max(1, -(-len(rows) // MAX_IMAGES))]
    if not len(rows):
        return TAKEN
    own, anchor = own[rows], model.options.anchor
    by_path = path_objectives(images[rows].astype(np.float64), model.dictionary, anchor=anchor)
    objectives = model.lowest_by_class(by_path)
    # Without the image, the mean of its class is n / (n - 1) times as far away.
    objectives[np.arange(len(rows)), own] *= (n_images[own] / (n_images[own] - 1.0)) ** 2
    probabilities = model.calibration.probabilities(objectives)
    seen, unseen = (probabilities[:, side].max(axis=1) for side in (n_images > 0, n_images == 0))
    odds = seen / np.maximum(unseen, np.finfo(np.float64).tiny)
    return float(np.clip(np.quantile(odds, TAKEN), 1e-6, 1.0))
