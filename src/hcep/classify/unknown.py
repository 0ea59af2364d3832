"""None of these: how little an image looks like the classes of a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import Inference, PathModel

#: What the unexplained share of an image counts for, beside the entropy of its classes.
WEIGHT = 12.0


def unknown_scores(model: PathModel, found: Inference) -> NDArray[np.float64]:
    """Higher for images that are less like the model's classes, (n_images,).

    ``H + 12 (u - u_c / 2)``: H is the entropy of order one half of the class probabilities, ``2 log sum sqrt(p)``,
    which minds the long tail of classes more than the first few; u is the share of the image that its path leaves
    unexplained and u_c the share above which an image is unlike the training images of that class.

    `found`: with explained shares.
    """
    typical = 0.0 if model.explained_floor is None else 1.0 - model.explained_floor[found.class_index]
    entropy = 2.0 * np.log(np.sqrt(np.maximum(found.probabilities, 0.0)).sum(axis=1))
    return np.asarray(entropy + WEIGHT * (1.0 - found.paths.explained - 0.5 * typical))
