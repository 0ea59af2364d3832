"""Checks of embedding arrays: shape, dtype, finite values and scale, with errors that say what to change."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import DictionaryError as DictionaryError, quoted

#: The number of images that are checked, or converted to double precision, at a time.
CHUNK = 8192
#: The most numbers that computations in blocks hold at once (64 MB of float64).
BLOCK = 8_000_000
#: The range of values whose squares, and sums of many squares, neither underflow nor overflow in single precision.
SCALES = (1e-15, 1e15)

#: float32 or float64, (n_images, n_dims).
Embeddings = NDArray[Any]


def blocks(start: int, stop: int, row_size: int) -> Iterator[slice]:
    """Yield slices of rows, each row of `row_size` numbers, so that a block stays within a fixed memory."""
    step = max(1, BLOCK // max(row_size, 1))
    return (slice(at, min(at + step, stop)) for at in range(start, stop, step))


def check_shape(X: ArrayLike, n_dims: int | None = None, name: str = "X") -> NDArray[Any]:
    """Return `X` as a two-dimensional array of real numbers, without a copy if it already is one.

    A single image of shape (n_dims,) becomes (1, n_dims). The values are not checked; see `refuse_non_finite`.
    """
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise DictionaryError(f"{name} must be an array of shape (n_images, n_dims): {error}") from None
    if array.dtype.kind not in "fiub":
        raise DictionaryError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    if array.ndim == 1 and len(array) == n_dims:
        array = array[None, :]
    if array.ndim != 2:
        raise DictionaryError(
            f"{name} must be a two-dimensional array of shape (n_images, n_dims); got shape {array.shape}"
        )
    if n_dims is not None and array.shape[1] != n_dims:
        raise DictionaryError(
            f"{name} has {array.shape[1]:,} dimensions, but the dictionary has {n_dims:,}; "
            "encode the images with the encoder that the dictionary was built with"
        )
    return array


def working_dtype(X: NDArray[Any]) -> np.dtype[Any]:
    """Return float32 for single and half precision, and float64 for everything else."""
    return np.dtype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)


def as_embeddings(X: ArrayLike, n_dims: int | None = None, name: str = "X") -> NDArray[Any]:
    """Return `X` as a two-dimensional float32 or float64 array, without a copy if it already is one."""
    array = check_shape(X, n_dims, name)
    return array.astype(working_dtype(array), copy=False)


def refuse_non_finite(X: NDArray[Any], first_row: int = 0, name: str = "X") -> None:
    """Raise an error if `X` has NaN or infinite values; it counts the rows and names the first ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of squares is finite only if every term is, so one cheap pass accepts almost all arrays.
        chunks = (X[start : start + CHUNK].astype(working_dtype(X), copy=False) for start in range(0, len(X), CHUNK))
        if all(np.isfinite(np.vdot(rows, rows)) for rows in chunks):
            return
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise DictionaryError(
            f"{name} has NaN or infinite values in {len(bad):,} of {len(X):,} rows, "
            f"such as rows {quoted(first_row + bad, 5)}; drop these images or encode them again"
        )


def refuse_odd_scale(X: NDArray[Any]) -> None:
    """Raise an error if the values are so large or so small that their squares overflow or underflow."""
    rows = X[:: max(1, len(X) // 1000)].astype(np.float64)
    typical = float(np.median(np.abs(rows).max(axis=1))) if rows.size else 1.0
    if typical and not SCALES[0] < typical < SCALES[1]:
        raise DictionaryError(
            f"the largest values of the embeddings are about {typical:.0e}, which is too "
            f"{'small' if typical < 1 else 'large'} to compute with; divide all embeddings by {typical:.0e}"
        )
