"""From penalised coefficients to supports of a given size: the penalty that gives it, and what to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._checks import require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import refuse_non_finite, working_dtype
from hcep.errors import HCEPError
from hcep.pursuit.result import FlatResult

#: Images on which a penalty is chosen, spread evenly over those given.
N_SAMPLE = 200
#: The smallest penalty tried, as a share of the largest useful one; below it the solvers crawl.
MIN_ALPHA = 1e-3
#: The largest, beyond which codes are all but empty.
MAX_ALPHA = 0.95
#: A mean support within this share of the one wanted is near enough.
TOLERANCE = 0.05


class NotConvergedWarning(UserWarning):
    """A solver stopped at its last iteration before it reached its tolerance."""


def require_fraction(name: str, value: object) -> None:
    """Refuse a penalty that is neither None nor a number above 0 and at most 1."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if value is not None and not (number and 0.0 < float(value) <= 1.0):  # type: ignore[arg-type]
        raise HCEPError(
            f"{name} must be a number above 0 and at most 1, a share of the penalty at which a code is empty; "
            f"got {value!r}"
        )


def most_atoms(n_nonzero: int | None, alpha: float | None, dictionary: ConceptDictionary) -> int:
    """Atoms a code may keep: as asked, the depth of the hierarchy where nothing is, all where `alpha` alone is."""
    require_positive("n_nonzero", n_nonzero, "the depth of the hierarchy")
    require_fraction("alpha", alpha)
    if n_nonzero is None:
        return dictionary.hierarchy.depth if alpha is None else dictionary.n_atoms
    return min(n_nonzero, dictionary.n_atoms)


def embedded(rows: NDArray[Any], dictionary: ConceptDictionary, block: slice) -> NDArray[np.float64]:
    """A block of images in the dictionary's space, in double precision: the solvers iterate."""
    raw = rows[block].astype(working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x: NDArray[np.float64] = dictionary.transform(raw).astype(np.float64)
    return x


def spread(X: NDArray[Any]) -> NDArray[Any]:
    """Up to `N_SAMPLE` rows at even distances."""
    return X[np.unique(np.linspace(0, len(X) - 1, min(len(X), N_SAMPLE)).astype(np.intp))]


def alpha_for(n_nonzero: float, mean_support: Callable[[float], float]) -> float:
    """The penalty whose `mean_support`, which falls as the penalty grows, is nearest to `n_nonzero`.

    The support of a group penalty may jump over the size that is wanted: then the better side of the jump, and never
    one that leaves less than half, as what is too much is cut to size later.
    """
    low, alpha, high = MIN_ALPHA / 2, 0.5, MAX_ALPHA
    tried: dict[float, float] = {}
    while alpha >= MIN_ALPHA and high / low > 1.01:
        tried[alpha] = mean_support(alpha)
        if abs(tried[alpha] - n_nonzero) <= TOLERANCE * n_nonzero:
            return alpha
        low, high = (alpha, high) if tried[alpha] > n_nonzero else (low, alpha)
        alpha = high / 2 if low < MIN_ALPHA else float(np.sqrt(low * high))
    return min(tried, key=lambda a: (tried[a] < n_nonzero / 2, abs(tried[a] - n_nonzero)))


def strongest(weights: NDArray[Any], limit: int) -> NDArray[np.int32]:
    """Columns of the `limit` largest positive weights of every row, largest first, -1 beyond; ties to the first."""
    columns = np.argsort(-weights, axis=1, kind="stable")[:, :limit].astype(np.int32)
    columns[np.take_along_axis(weights, columns.astype(np.intp), axis=1) <= 0] = -1
    return columns[:, : int((columns >= 0).sum(axis=1).max(initial=0))]


def codes_of(selected: NDArray[np.int32], coefficients: NDArray[Any], n_atoms: int) -> sparse.csr_array:
    """CSR codes from the atoms of every image, -1 for none, and their coefficients."""
    inside = selected >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1), dtype=np.int64)])
    codes = sparse.csr_array((coefficients[inside], selected[inside], pointer), shape=(len(selected), n_atoms))
    codes.sort_indices()
    return codes


class Collected:
    """Results of blocks of images, put together at the end."""

    def __init__(self, dictionary: ConceptDictionary, n_images: int, dtype: np.dtype[Any]) -> None:
        self.dictionary = dictionary
        self.dtype = dtype
        self.residual_norms = np.zeros(n_images)
        self._blocks: dict[int, tuple[NDArray[np.int32], NDArray[Any]]] = {}

    def add(self, block: slice, x: NDArray[Any], selected: NDArray[np.int32], coefficients: NDArray[Any]) -> None:
        """Keep the atoms and coefficients of a block, and measure what they leave of its images x."""
        values = np.where(selected >= 0, coefficients, 0.0).astype(self.dtype)
        self._blocks[block.start] = selected, values
        codes = codes_of(selected, values, self.dictionary.n_atoms)
        self.residual_norms[block] = np.linalg.norm(x - codes @ self.dictionary.atoms, axis=1)

    def result(self) -> FlatResult:
        """All blocks as one result, as wide as the largest support."""
        blocks = [self._blocks[start] for start in sorted(self._blocks)]
        width = max((selected.shape[1] for selected, _ in blocks), default=0)
        wide = [np.pad(s, ((0, 0), (0, width - s.shape[1])), constant_values=-1) for s, _ in blocks]
        selected = np.concatenate([*wide, np.zeros((0, width), np.int32)]).astype(np.int32)
        values = [np.pad(v, ((0, 0), (0, width - v.shape[1]))) for _, v in blocks]
        coefficients = np.concatenate([*values, np.zeros((0, width), self.dtype)]).astype(self.dtype)
        codes = codes_of(selected, coefficients, self.dictionary.n_atoms)
        return FlatResult(self.dictionary, codes, self.residual_norms, selected)
