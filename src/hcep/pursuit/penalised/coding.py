"""From penalised coefficients to codes of a given size: the penalty that gives it, and what is kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hcep._checks import is_number, require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import refuse_non_finite, working_dtype
from hcep.errors import HCEPError
from hcep.pursuit.blocks import block_size, for_blocks, n_threads
from hcep.pursuit.result import FlatResult, codes_of

#: Images on which a penalty is chosen, spread evenly over those given.
N_SAMPLE = 200
#: The smallest penalty tried, as a share of the largest useful one; below it the solvers crawl.
MIN_ALPHA = 1e-3
#: The largest, beyond which codes are all but empty.
MAX_ALPHA = 0.95
#: A mean support within this share of the one wanted is near enough.
TOLERANCE = 0.05

Floats = NDArray[np.float64]


class NotConvergedWarning(UserWarning):
    """A solver stopped at its last iteration before it reached its tolerance."""


class PenalisedCoder:
    """Unit-norm atoms, one for each variable of a penalised least-squares problem, and what becomes of its solutions.

    Subclasses solve; all else is here.

    Attributes
    ----------
    atoms : (n,) int32; the dictionary's atom of each variable; several may have the same
    norms : (n,) norms of these atoms, 1 for a zero atom
    unit : (n, n_dims) the atoms with norm 1, or 0
    gram : (n, n) their products
    """

    #: Whether blocks of images may be solved on several threads.
    parallel: ClassVar[bool] = True
    #: What is said of images that a solver gave up on.
    unfinished: str

    def __init__(self, dictionary: ConceptDictionary, atoms: NDArray[Any]) -> None:
        self.dictionary, self.atoms = dictionary, atoms
        norms = np.linalg.norm(dictionary.atoms[atoms], axis=1)
        self.norms = np.where(norms > 0, norms, 1.0)
        self.unit = dictionary.atoms[atoms] / self.norms[:, None]
        self.gram = self.unit @ self.unit.T

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        """Coefficients of the unit atoms from their products with images, and how many images did not converge."""
        raise NotImplementedError

    def terms(self, w: Floats) -> Floats:
        """What each coefficient adds to the penalty: the largest terms are kept."""
        return np.abs(w)

    def codes(self, rows: NDArray[Any], n_nonzero: int | None, alpha: float | None, n_jobs: int | None) -> FlatResult:
        """Codes of at most `n_nonzero` atoms, with the penalty that gives them that many where `alpha` is None."""
        limit = self._most_atoms(n_nonzero, alpha)
        share = self.alpha(rows, limit, n_jobs) if alpha is None else float(alpha)
        dtype, n_atoms = working_dtype(rows), self.dictionary.n_atoms
        residual_norms, n_unfinished = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        found: dict[int, tuple[NDArray[np.int32], NDArray[Any]]] = {-1: (np.zeros((0, 0), np.int32), np.zeros((0, 0)))}

        def work(block: slice) -> None:
            x = self._embedded(rows[block], block.start)
            w, n_unfinished[block.start] = self.solve(x @ self.unit.T, share)
            kept = strongest(self.terms(w), limit)
            selected, values = self._merged(kept, np.take_along_axis(w, kept.astype(np.intp), axis=1))
            found[block.start] = selected, values.astype(dtype)
            codes = codes_of(*found[block.start], n_atoms)
            residual_norms[block] = np.linalg.norm(x - codes @ self.dictionary.atoms, axis=1)

        for_blocks(len(rows), work, self._threads(n_jobs), block=block_size(len(self.atoms)))
        if n_unfinished.any():
            warnings.warn(
                f"{n_unfinished.sum():,} of {len(rows):,} codes {self.unfinished}", NotConvergedWarning, stacklevel=3
            )
        blocks = [found[start] for start in sorted(found)]
        width = max(selected.shape[1] for selected, _ in blocks)
        selected, values = (
            np.concatenate([np.pad(b[k], ((0, 0), (0, width - b[k].shape[1])), constant_values=-1) for b in blocks])
            for k in (0, 1)
        )
        codes = codes_of(selected.astype(np.int32), values.astype(dtype), n_atoms)
        return FlatResult(self.dictionary, codes, residual_norms, selected.astype(np.int32))

    def alpha(self, rows: NDArray[Any], n_nonzero: int, n_jobs: int | None) -> float:
        """The penalty at which a sample of images uses about `n_nonzero` variables on average."""
        require_positive("n_nonzero", n_nonzero)
        sample = spread(rows)
        products = self._embedded(sample, 0) @ self.unit.T
        counts = np.zeros(len(sample))

        def mean_support(alpha: float) -> float:
            def work(block: slice) -> None:
                counts[block] = np.count_nonzero(self.solve(products[block], alpha)[0], axis=1)

            for_blocks(len(counts), work, self._threads(n_jobs), block=32)
            return float(counts.mean())

        return alpha_for(n_nonzero, mean_support) if len(sample) else 1.0

    def _most_atoms(self, n_nonzero: int | None, alpha: float | None) -> int:
        """Atoms a code may keep: as asked, the depth of the hierarchy where nothing is, all where `alpha` alone is."""
        require_positive("n_nonzero", n_nonzero, "the depth of the hierarchy")
        require_fraction("alpha", alpha)
        if n_nonzero is None:
            return self.dictionary.hierarchy.depth if alpha is None else self.dictionary.n_atoms
        return min(n_nonzero, self.dictionary.n_atoms)

    def _threads(self, n_jobs: int | None) -> int:
        return n_threads(n_jobs) if self.parallel else min(n_threads(n_jobs), 1)

    def _embedded(self, rows: NDArray[Any], first_row: int) -> Floats:
        """Images in the dictionary's space, in double precision: the solvers iterate."""
        raw = rows.astype(working_dtype(rows), copy=False)
        refuse_non_finite(raw, first_row=first_row)
        x: Floats = self.dictionary.transform(raw).astype(np.float64)
        return x

    def _merged(self, kept: NDArray[np.int32], w: Floats) -> tuple[NDArray[np.int32], Floats]:
        """The atoms of the variables kept and their coefficients; of variables with one atom, the first has the sum."""
        atoms = np.where(kept >= 0, self.atoms[kept], -1).astype(np.int32)
        coefficients = np.where(kept >= 0, w / self.norms[kept], 0.0)
        if len(np.unique(self.atoms)) == len(self.atoms):
            return atoms, coefficients
        for late in range(1, atoms.shape[1]):
            for early in range(late):
                same = (atoms[:, late] >= 0) & (atoms[:, late] == atoms[:, early])
                coefficients[same, early] += coefficients[same, late]
                atoms[same, late] = -1
        order = np.argsort(atoms < 0, axis=1, kind="stable")
        return np.take_along_axis(atoms, order, axis=1), np.take_along_axis(coefficients, order, axis=1)


def require_fraction(name: str, value: Any) -> None:
    """Refuse a penalty that is neither None nor a number above 0 and at most 1."""
    if value is not None and not (is_number(value) and 0.0 < float(value) <= 1.0):
        raise HCEPError(
            f"{name} must be a number above 0 and at most 1, a share of the penalty at which a code is empty; "
            f"got {value!r}"
        )


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
