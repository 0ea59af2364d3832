"""What every array of embeddings must be, and the sentence that says what it is instead."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import DictionaryError as DictionaryError, quoted

#: Images looked at, or turned to double precision, at a time.
CHUNK = 8192
#: Numbers held at once by computations in blocks (64 MB of float64).
BLOCK = 8_000_000
#: Largest values of an image between which squares, and sums of many, are exact to their precision.
SCALES = (1e-15, 1e15)

#: float32 or float64, (n_images, n_dims).
Embeddings = NDArray[Any]


def blocks(start: int, stop: int, row_size: int) -> Iterator[slice]:
    """Slices of rows of `row_size` numbers each that keep memory flat."""
    step = max(1, BLOCK // max(row_size, 1))
    return (slice(at, min(at + step, stop)) for at in range(start, stop, step))


def check_shape(X: ArrayLike, n_dims: int | None = None, name: str = "X") -> NDArray[Any]:
    """Return `X` as a two-dimensional array of real numbers, neither copied nor read where it already is one.

    One image of shape (n_dims,) becomes (1, n_dims). Values are not looked at; see `refuse_non_finite`.
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
            f"{name} must have shape (n_images, n_dims); got an array of {array.ndim} dimensions, shape {array.shape}"
        )
    if n_dims is not None and array.shape[1] != n_dims:
        raise DictionaryError(
            f"{name} has {array.shape[1]:,} dimensions, the dictionary {n_dims:,}; "
            "encode the images with the encoder the dictionary was made with"
        )
    return array


def working_dtype(X: NDArray[Any]) -> np.dtype[Any]:
    """float32 for single and half precision, float64 for everything else."""
    return np.dtype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)


def as_embeddings(X: ArrayLike, n_dims: int | None = None, name: str = "X") -> NDArray[Any]:
    """Return `X` as a two-dimensional float32 or float64 array, without a copy of one that already is."""
    array = check_shape(X, n_dims, name)
    return array.astype(working_dtype(array), copy=False)


def refuse_non_finite(X: NDArray[Any], first_row: int = 0, name: str = "X") -> None:
    """Raise when `X` has NaN or infinite values, with the number of rows and the first of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of squares is finite only if every term is: one cheap pass decides; only trouble pays for the look.
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
    """Raise when squares of the images' norms leave what their precision can hold, so that nothing could be learnt."""
    rows = X[:: max(1, len(X) // 1000)].astype(np.float64)
    typical = float(np.median(np.abs(rows).max(axis=1))) if rows.size else 1.0
    if typical and not SCALES[0] < typical < SCALES[1]:
        raise DictionaryError(
            f"the embeddings' largest values are about {typical:.0e}, too {'small' if typical < 1 else 'large'} to "
            f"compute with; divide them all by {typical:.0e}"
        )
