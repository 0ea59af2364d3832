"""What happens to an embedding before anything else: a power, unit norm, centring, the whitened metric, one scale."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.checks import Embeddings
from hcep.errors import DictionaryError


@dataclass(frozen=True, eq=False)
class EmbeddingTransform:
    """The map that training images fixed and new images go through as well; affine but for power and unit norm.

    ``x -> [scale * (x**power / ||x**power|| - mean) @ whitener, constants]``, each part optional. The whitener W is an
    inverse root of the shrunk within-class covariance, ``W W^T = ((1 - a) C + a tr(C)/d I)^-1``, so that Euclidean
    distances after it are Mahalanobis distances before it. A negative number under a power keeps its sign.
    """

    unit_norm: bool = False
    mean: NDArray[np.float64] | None = None
    whitener: NDArray[np.float64] | None = None
    scale: float = 1.0
    shrinkage: float | None = None
    constants: NDArray[np.float64] | None = None
    power: float = 1.0

    @property
    def n_constants(self) -> int:
        return 0 if self.constants is None else len(self.constants)

    @property
    def is_identity(self) -> bool:
        parts = (self.mean, self.whitener, self.constants)
        return self.is_affine and self.scale == 1.0 and all(part is None for part in parts)

    @property
    def is_affine(self) -> bool:
        """Whether the parts of an embedding that is a sum go through it one by one."""
        return not self.unit_norm and self.power == 1.0

    def __call__(self, X: Embeddings) -> Embeddings:
        """Transform rows; the dtype stays."""
        if self.is_identity:
            return X
        return self.after_unit_norm(self.prepared(X))

    def prepared(self, X: Embeddings) -> Embeddings:
        """The first part alone, power and unit norm: what is summed up into class moments."""
        return prepared_rows(X, self.power, self.unit_norm)

    def after_unit_norm(self, X: Embeddings) -> Embeddings:
        """The affine part alone: what class means, already averages of prepared vectors, still need."""
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
    return np.asarray(X / np.where(norms > 0, norms, 1).astype(X.dtype))


def prepared_rows(X: Embeddings, power: float, unit_norm: bool) -> Embeddings:
    """Rows to a power, then to norm 1; each where it is asked for."""
    if power != 1.0:
        size = np.abs(X)
        size = np.sqrt(size, out=size) if power == 0.5 else np.power(size, X.dtype.type(power), out=size)
        X = np.copysign(size, X, out=size)
    return unit_rows(X) if unit_norm else X


def shrunk_inverse_root(covariance: NDArray[Any], shrinkage: float) -> NDArray[Any]:
    """W, triangular, with ``W W^T`` the inverse of ``(1 - a) C + a tr(C)/d I``, in the covariance's precision."""
    from scipy.linalg import LinAlgError, cholesky, lapack

    if not 0.0 < shrinkage <= 1.0:
        raise DictionaryError(f"shrinkage must be above 0 and at most 1, or None for no whitening; got {shrinkage!r}")
    n_dims = len(covariance)
    mean = float(np.trace(covariance)) / n_dims
    if not mean > 0.0:
        raise DictionaryError(
            "the images of every class are all equal: there is no within-class covariance to whiten by"
        )
    shrunk = covariance * covariance.dtype.type(1.0 - shrinkage)
    shrunk[np.diag_indices(n_dims)] += shrinkage * mean
    try:
        lower = cholesky(shrunk, lower=True, check_finite=False)
    except LinAlgError:  # rounding made a direction without variance negative by more than a tiny shrinkage repairs
        variances, axes = np.linalg.eigh(covariance)
        shrunk_variances = (1.0 - shrinkage) * np.maximum(variances, 0.0) + shrinkage * mean
        return np.asarray(axes / np.sqrt(shrunk_variances), dtype=covariance.dtype)
    inverse_of = lapack.strtri if covariance.dtype == np.float32 else lapack.dtrtri
    return np.asarray(inverse_of(lower, lower=1, overwrite_c=1)[0].T)
