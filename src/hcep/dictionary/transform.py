"""The transform of raw embeddings: a power, unit norm, centring, the whitened metric, a scale and a block for words."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.checks import Embeddings, working_dtype
from hcep.dictionary.path_problem import namespace
from hcep.errors import DictionaryError, quote


@dataclass(frozen=True, eq=False)
class EmbeddingTransform:
    """The map from raw embeddings into a dictionary's space.

    Training images determine it, and new images go through it too. Every part is optional.

    Parameters
    ----------
    unit_norm : bool
        Scale each embedding to norm 1.
    mean : array of shape (n_dims,), optional
        Subtracted from each embedding.
    whitener : array of shape (n_dims, n_dims), optional
    scale : float
        The scale of the picture block, which is compared with images; 0 leaves this block out.
    shrinkage : float, optional
        The shrinkage that the whitener was computed with, for the record.
    constants : array of shape (n_constants,), optional
        Appended to each embedding.
    power : float
        Applied to the absolute value of every number, which keeps its sign.
    words : float
        The scale of the word block, which is compared with texts; 0 leaves this block out.

    Notes
    -----
    The map is affine, apart from the power and the unit norm. With ``p = x**power / ||x**power||`` it is::

        x -> [scale * (p - mean) @ W, words * p, constants]

    The whitener W is an inverse root of the shrunk within-class covariance C,
    ``W W^T = ((1 - a) C + a tr(C)/d I)^-1``, so that Euclidean distances after the map are Mahalanobis distances before
    it.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep.dictionary.transform import EmbeddingTransform
    >>> EmbeddingTransform(unit_norm=True, mean=np.array([0.0, 1.0]))(np.array([[3.0, 4.0]])).round(6)
    array([[ 0.6, -0.2]])
    """

    unit_norm: bool = False
    mean: NDArray[np.float64] | None = None
    whitener: NDArray[np.float64] | None = None
    scale: float = 1.0
    shrinkage: float | None = None
    constants: NDArray[np.float64] | None = None
    power: float = 1.0
    words: float = 0.0

    @property
    def n_constants(self) -> int:
        """The number of constants that are appended to each embedding."""
        return 0 if self.constants is None else len(self.constants)

    def n_dims(self, n_columns: int) -> int:
        """Return the number of dimensions of raw embeddings that have this many columns after the transform."""
        return (n_columns - self.n_constants) // ((self.scale > 0.0) + (self.words > 0.0))

    def n_pictures(self, n_columns: int) -> int:
        """Return the number of columns of the picture block, which comes first."""
        return self.n_dims(n_columns) if self.scale > 0.0 else 0

    @cached_property
    def pictures(self) -> "EmbeddingTransform":
        """The transform of the picture block alone."""
        return replace(self, words=0.0) if self.words else self

    def pulled_back(self, directions: Embeddings) -> tuple[Embeddings, Embeddings]:
        """Return directions for `prepared` embeddings, shape (n_directions, n_dims), and a constant for each.

        Their products, plus the constant, are those of `directions`, shape (n_directions, n_columns), and transformed
        embeddings.
        """
        n_columns = directions.shape[1]
        n_dims, n_pictures = self.n_dims(n_columns), self.n_pictures(n_columns)
        back, constant = np.zeros((len(directions), n_dims)), np.zeros(len(directions))
        if n_pictures:
            pictures = directions[:, :n_pictures]
            back = self.scale * (pictures if self.whitener is None else pictures @ self.whitener.T)
            constant = constant if self.mean is None else -(back @ self.mean)
        if self.words:
            back = back + self.words * directions[:, n_pictures : n_pictures + n_dims]
        if self.constants is not None:
            constant = constant + directions[:, n_columns - self.n_constants :] @ self.constants
        return back, constant

    def working_dtype(self, X: NDArray[Any]) -> np.dtype[Any]:
        """Return the precision for images: double for texts alone, whose cosines are divided by a small temperature."""
        return working_dtype(X) if self.scale > 0.0 else np.dtype(np.float64)

    def covariance_weight(self, n_free: float) -> float:
        """Return what an image of weight 1 adds to the covariance in this metric; 0 if the metric is Euclidean.

        `n_free` are the degrees of freedom of the covariance.
        """
        return 0.0 if self.shrinkage is None or not n_free else (1.0 - self.shrinkage) / n_free / self.scale**2

    @property
    def is_identity(self) -> bool:
        """Whether the map leaves every embedding as it is."""
        parts = (self.mean, self.whitener, self.constants)
        return self.is_affine and self.scale == 1.0 and not self.words and all(part is None for part in parts)

    @property
    def is_affine(self) -> bool:
        """Whether the map is affine, so that the parts of a sum can be transformed separately."""
        return not self.unit_norm and self.power == 1.0

    def __call__(self, X: Embeddings) -> Embeddings:
        """Transform the rows of X and keep their dtype."""
        if self.is_identity:
            return X
        transformed: Embeddings = self.after_unit_norm(self.prepared(X))
        return transformed

    def prepared(self, X: Embeddings) -> Embeddings:
        """Apply only the power and the unit norm, which come before class moments are taken."""
        return prepared_rows(X, self.power, self.unit_norm)

    def after_unit_norm(self, X: Any) -> Any:
        """Apply only the affine part, which is what the means of `prepared` vectors still need; X may be a tensor."""
        xp, place = namespace(X), (str(getattr(X, "device", "cpu")), X.dtype)
        if place not in self._folded:
            whitener = None if self.whitener is None else self.scale * self.whitener
            parts = self.mean, whitener, self.constants
            self._folded[place] = tuple(None if part is None else _like(X, part) for part in parts)
        mean, whitener, constants = self._folded[place]
        pictures = X if mean is None else X - mean
        if whitener is not None:
            pictures = pictures @ whitener
        elif self.scale != 1.0:
            pictures = pictures * float(self.scale)
        blocks = [pictures] if self.scale > 0.0 else []
        if self.words:
            blocks.append(X * float(self.words))
        if constants is not None:
            blocks.append(xp.broadcast_to(constants, (len(X), len(constants))))
        return blocks[0] if len(blocks) == 1 else xp.concatenate(blocks, 1)

    @cached_property
    def _folded(self) -> dict[Any, tuple[Any, ...]]:
        """The mean, the whitener times the scale, and the constants, for each device and precision of images."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _like(X: Any, array: NDArray[np.float64]) -> Any:
    """Return an array in the precision of X, as a tensor on its device if X is one."""
    return array.astype(X.dtype) if namespace(X) is np else namespace(X).from_numpy(array.copy()).to(X)


def unit_rows(X: Embeddings) -> Embeddings:
    """Scale each row to norm 1; a zero row stays zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.where(norms > 0, norms, 1).astype(X.dtype))


def prepared_rows(X: Embeddings, power: float, unit_norm: bool) -> Embeddings:
    """Raise the rows to `power`, then scale them to norm 1 if `unit_norm` is set."""
    if power == 0.5 and X.min(initial=0.0) >= 0.0:
        X = np.sqrt(X)
    elif power != 1.0:
        size = np.abs(X)
        size = np.sqrt(size, out=size) if power == 0.5 else np.power(size, X.dtype.type(power), out=size)
        X = np.copysign(size, X, out=size)
    return unit_rows(X) if unit_norm else X


def shrunk_inverse_root(covariance: NDArray[Any], shrinkage: float) -> NDArray[Any]:
    """Return a triangular W with ``W W^T = ((1 - a) C + a tr(C)/d I)^-1``, in the precision of the covariance C."""
    from scipy.linalg import LinAlgError, cholesky, lapack

    if not 0.0 < shrinkage <= 1.0:
        raise DictionaryError(f"shrinkage must be a number in (0, 1], or None for no whitening; got {quote(shrinkage)}")
    n_dims = len(covariance)
    mean = float(np.trace(covariance)) / n_dims
    if not mean > 0.0:
        raise DictionaryError(
            "all images of a class are equal, so there is no within-class covariance to whiten by; "
            "pass shrinkage=None, or check the embeddings"
        )
    shrunk = covariance * covariance.dtype.type(1.0 - shrinkage)
    shrunk[np.diag_indices(n_dims)] += shrinkage * mean
    try:
        lower = cholesky(shrunk, lower=True, check_finite=False)
    except LinAlgError:  # rounding made an eigenvalue more negative than a tiny shrinkage corrects
        variances, axes = np.linalg.eigh(covariance)
        shrunk_variances = (1.0 - shrinkage) * np.maximum(variances, 0.0) + shrinkage * mean
        return np.asarray(axes / np.sqrt(shrunk_variances), dtype=covariance.dtype)
    inverse_of = lapack.strtri if covariance.dtype == np.float32 else lapack.dtrtri
    return np.asarray(inverse_of(lower, lower=1, overwrite_c=1)[0].T)
