"""Labels as every metric takes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hcep.errors import HCEPError


def as_labels(y: ArrayLike, name: str) -> list[str]:
    """Return one string per image."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise HCEPError(f"{name} must hold one label per image; got {type(y).__name__} of shape {labels.shape}")
    return [str(label) for label in labels.tolist()]
