"""Orthogonal matching pursuit over all atoms: the flat baseline, in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.pursuit.blocks import for_blocks, squared_norms
from hcep.pursuit.result import FlatResult, require_not_negative, require_positive


def omp(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    n_nonzero: int | None = None,
    tol: float = 0.0,
    *,
    progress: bool = False,
    n_jobs: int | None = None,
) -> FlatResult:
    """Recover a sparse code for every image, blind to the hierarchy.

    Parameters
    ----------
    X : (n_images, n_dims) array
        Raw embeddings, as for `hb_omp`.
    dictionary : ConceptDictionary
    n_nonzero : int, optional
        Most atoms to select; the depth of the hierarchy by default.
    tol : float
        Stop when the residual's norm (not its square, as in scikit-learn) is below.
    progress : bool
    n_jobs : int, optional

    Returns
    -------
    FlatResult

    Notes
    -----
    Algorithm 1 of the paper: select the atom of highest ``|cos(r, d)|``, project, repeat. The Gram matrix of the
    normalised atoms is computed once; selecting stops early when no atom correlates with the residual any more.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy, omp
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> omp(np.array([[2.0, 1.0]]), d, n_nonzero=2).supports
    [('dog', 'car')]
    """
    rows = check_shape(X, dictionary.n_dims)
    require_positive("n_nonzero", n_nonzero, "the depth of the hierarchy")
    tolerance = require_not_negative("tol", tol)
    n_steps = min(n_nonzero or dictionary.hierarchy.depth, dictionary.n_atoms, dictionary.n_dims)
    dtype = working_dtype(rows)
    norms = np.linalg.norm(dictionary.atoms, axis=1)
    unit = (dictionary.atoms / np.where(norms > 0, norms, 1.0)[:, None]).astype(dtype)
    gram = unit @ unit.T
    selected = np.full((len(rows), n_steps), -1, dtype=np.int32)
    coefficients = np.zeros((len(rows), n_steps), dtype=dtype)
    residuals = np.zeros(len(rows))

    def work(block: slice) -> None:
        from hcep.pursuit import kernels

        raw = rows[block].astype(dtype, copy=False)
        refuse_non_finite(raw, first_row=block.start)
        x = np.ascontiguousarray(dictionary.transform(raw))
        cancelled = kernels.CANCELLED_32 if dtype == np.float32 else kernels.CANCELLED_64
        kernels.search_flat(
            x, x @ unit.T, squared_norms(x), gram, unit, n_steps, tolerance, cancelled, 10 * np.finfo(dtype).eps,
            selected[block], coefficients[block], residuals[block],
        )  # fmt: skip

    for_blocks(len(rows), work, n_jobs, progress, "OMP")
    return FlatResult(dictionary, _codes(selected, coefficients, norms, dictionary.n_atoms), residuals, selected)


def _codes(
    selected: NDArray[np.int32], coefficients: NDArray[Any], norms: NDArray[np.float64], n_atoms: int
) -> sparse.csr_array:
    """CSR codes of the original atoms from those of the unit-norm ones."""
    inside = selected >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1), dtype=np.int64)])
    indices = selected[inside]
    values = (coefficients[inside] / norms[indices]).astype(coefficients.dtype)
    codes = sparse.csr_array((values, indices, pointer), shape=(len(selected), n_atoms))
    codes.sort_indices()
    return codes
