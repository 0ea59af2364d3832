"""What happens to an embedding before anything else: unit norm, centring, the whitened metric, one scale."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.checks import Embeddings
from hcep.dictionary.moments import ClassMoments
from hcep.errors import DictionaryError


@dataclass(frozen=True, eq=False)
class EmbeddingTransform:
    """The affine map that training images fixed and new images go through as well.

    Notes
    -----
    ``x -> [scale * (x / ||x|| - mean) @ whitener, constants]``, each part optional. The whitener is the inverse square
    root of the shrunk within-class covariance ``(1 - a) C + a tr(C)/d I``, so that Euclidean distances after it are
    Mahalanobis distances before it.
    """

    unit_norm: bool = False
    mean: NDArray[np.float64] | None = None
    whitener: NDArray[np.float64] | None = None
    scale: float = 1.0
    shrinkage: float | None = None
    constants: NDArray[np.float64] | None = None

    @property
    def n_constants(self) -> int:
        return 0 if self.constants is None else len(self.constants)

    @property
    def is_identity(self) -> bool:
        parts = (self.mean, self.whitener, self.constants)
        return not self.unit_norm and self.scale == 1.0 and all(part is None for part in parts)

    def __call__(self, X: Embeddings) -> Embeddings:
        """Transform rows; the dtype stays."""
        if self.is_identity:
            return X
        out = unit_rows(X) if self.unit_norm else X
        return self.after_unit_norm(out)

    def after_unit_norm(self, X: Embeddings) -> Embeddings:
        """The affine part alone: what class means, already averages of unit vectors, still need."""
        if X.dtype not in self._folded:
            whitener = None if self.whitener is None else (self.scale * self.whitener).astype(X.dtype)
            self._folded[X.dtype] = None if self.mean is None else self.mean.astype(X.dtype), whitener
        mean, whitener = self._folded[X.dtype]
        if mean is not None:
            X = X - mean
        if whitener is not None:
            X = X @ whitener
        elif self.scale != 1.0:
            X = X * X.dtype.type(self.scale)
        if self.constants is None:
            return X
        return np.hstack([X, np.broadcast_to(self.constants.astype(X.dtype), (len(X), len(self.constants)))])

    @cached_property
    def _folded(self) -> dict[np.dtype[Any], tuple[Embeddings | None, Embeddings | None]]:
        """The mean, and the whitener times the scale, in each precision that images came in."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def unit_rows(X: Embeddings) -> Embeddings:
    """Scale rows to norm 1; a zero row stays zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    unit: Embeddings = X / np.where(norms > 0, norms, 1).astype(X.dtype)
    return unit


def fit_transform_parameters(
    moments: ClassMoments, *, unit_norm: bool, center: bool, shrinkage: float | None, rescale: bool
) -> EmbeddingTransform:
    """Fix the transform from the moments of the training images (of their unit vectors, where `unit_norm`)."""
    mean = moments.total_mean() if center else None
    whitener = None
    if shrinkage is not None:
        whitener = shrunk_inverse_root(*moments.within_spectrum(), shrinkage)
    scale = 1.0 / np.sqrt(moments.mean_square_norm(mean, whitener)) if rescale else 1.0
    return EmbeddingTransform(unit_norm, mean, whitener, float(scale), shrinkage)


def shrunk_inverse_root(
    variances: NDArray[np.float64], axes: NDArray[np.float64], shrinkage: float
) -> NDArray[np.float64]:
    """Inverse square root of ``(1 - a) C + a tr(C)/d I``, given the eigenvalues and eigenvectors of C."""
    if not 0.0 < shrinkage <= 1.0:
        raise DictionaryError(f"shrinkage must be above 0 and at most 1, or None for no whitening; got {shrinkage!r}")
    variances = np.maximum(variances, 0.0)
    if variances.mean() == 0.0:
        raise DictionaryError(
            "the images of every class are all equal: there is no within-class covariance to whiten by"
        )
    shrunk = (1.0 - shrinkage) * variances + shrinkage * variances.mean()
    root: NDArray[np.float64] = (axes / np.sqrt(shrunk)) @ axes.T
    return root
