"""Paths, classes and probabilities of one batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel


def infer(model: PathModel, X: NDArray[Any], n_best: int = 1) -> Any:
    """What ``PathModel.infer`` gives, for models that have none yet."""
    if hasattr(model, "infer"):
        return model.infer(X, n_best=n_best, explained=True)
    paths, probabilities = model.pursue(X, n_best=n_best), model.probabilities(X)
    index = np.argmax(probabilities, axis=1)
    return SimpleNamespace(paths=paths, class_index=index, probabilities=probabilities, labels=model.classes[index])
