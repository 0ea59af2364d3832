"""The lasso over all atoms, through skglm: basis pursuit denoising, and the non-negative one of SpLiCE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_positive
from hcep._optional import require
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, working_dtype
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.flat import distinct_directions
from hcep.pursuit.result import FlatResult
from hcep.pursuit.sparsity import Collected, alpha_for, embedded, most_atoms, spread, strongest

#: Largest violation of the optimality conditions, where an image's largest useful penalty is 1.
TOL = 1e-4
#: Bounds of the solver, for atoms so nearly equal that coordinate descent would go on and on between them.
LIMITS = {"max_iter": 20, "max_epochs": 200}


def lasso(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    n_nonzero: int | None = None,
    *,
    alpha: float | None = None,
    positive: bool = False,
    n_jobs: int | None = None,
) -> FlatResult:
    """Recover a sparse code for every image by an l1 penalty, blind to the hierarchy.

    Parameters
    ----------
    X : (n_images, n_dims) array
        Raw embeddings, as for `hb_omp`.
    dictionary : ConceptDictionary
    n_nonzero : int, optional
        Most atoms a code may use; the depth of the hierarchy where `alpha` is not given either.
    alpha : float in (0, 1], optional
        Penalty, as a share of each image's own smallest one at which its code is empty. By default the share at which
        the images given use `n_nonzero` atoms on average (see `lasso_alpha`).
    positive : bool
        Coefficients of at least 0, as in SpLiCE; else of any sign: basis pursuit denoising.
    n_jobs : int, optional
        Threads of the matrix products; the solver itself runs on one.

    Returns
    -------
    FlatResult
        ``selected`` runs from the largest share ``|z| ||d||`` down.

    Raises
    ------
    HCEPError
        A bad option, NaN or infinite values, a wrong number of dimensions.
    MissingExtraError
        skglm is not installed.

    Notes
    -----
    For unit-norm atoms u and the penalty ``alpha_max(x) = max |<u, x>|`` (positive: ``max <u, x>``)::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * ||w||_1

    is solved by skglm's coordinate descent on the products of atoms alone; ``z = w / ||d||`` are the coefficients of
    the dictionary's atoms. A code of more than `n_nonzero` atoms keeps those with the largest ``|w|``, as they are:
    nothing is fitted again. Of atoms with equal directions (equal or opposite, where coefficients have any sign) only
    the first is used, which changes nothing in the optimum.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import lasso
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> lasso(np.array([[2.0, 0.1]]), d, alpha=0.5).codes.toarray()
    array([[1., 0., 0.]])
    """
    rows = check_shape(X, dictionary.n_dims)
    limit = most_atoms(n_nonzero, alpha, dictionary)
    share = lasso_alpha(rows, dictionary, limit, positive=positive) if alpha is None else float(alpha)
    problem = _Problem(dictionary, positive)
    solve = problem.solver(share)
    collected = Collected(dictionary, len(rows), working_dtype(rows))
    products = np.zeros((len(rows), len(problem.atoms)))

    def project(block: slice) -> None:
        products[block] = embedded(rows, dictionary, block) @ problem.unit.T

    for_blocks(len(rows), project, n_jobs)

    def work(block: slice) -> None:
        w = np.stack([solve(c) for c in products[block]])
        columns = strongest(np.abs(w), limit)
        coefficients = np.take_along_axis(w, columns.astype(np.intp), axis=1) / problem.norms[columns]
        atoms = np.where(columns >= 0, problem.atoms[columns], -1).astype(np.int32)
        collected.add(block, embedded(rows, dictionary, block), atoms, coefficients)

    for_blocks(len(rows), work, 1)
    return collected.result()


def lasso_alpha(X: ArrayLike, dictionary: ConceptDictionary, n_nonzero: int, *, positive: bool = False) -> float:
    """The `alpha` of `lasso` at which images use about `n_nonzero` atoms on average.

    Found by bisection on up to 200 of the images, spread evenly: within 5%, or as near as a penalty from 0.001 to 0.95
    comes.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import lasso_alpha
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> lasso_alpha([[2.0, 1.0], [1.0, 3.0]], d, 2)
    0.5
    """
    require_positive("n_nonzero", n_nonzero)
    rows = spread(check_shape(X, dictionary.n_dims))
    problem = _Problem(dictionary, positive)
    products = dictionary.embed(rows).astype(np.float64) @ problem.unit.T

    def mean_support(alpha: float) -> float:
        solve = problem.solver(alpha)
        return float(np.mean([np.count_nonzero(solve(c)) for c in products]))

    return alpha_for(n_nonzero, mean_support) if len(rows) else 1.0


class _Problem:
    """The products of unit-norm atoms, all that the lasso needs of them.

    Attributes
    ----------
    atoms : (n,) int32
        The dictionary's atoms that take part.
    norms : (n,) their norms
    unit : (n, n_dims) atoms of norm 1
    gram : (n, n) their products
    """

    def __init__(self, dictionary: ConceptDictionary, positive: bool) -> None:
        norms = np.linalg.norm(dictionary.atoms, axis=1)
        self.positive = bool(positive)
        self.atoms = np.flatnonzero(norms > 0) if positive else distinct_directions(dictionary.atoms, norms)
        self.norms = norms[self.atoms]
        self.unit = dictionary.atoms[self.atoms] / self.norms[:, None]
        self.gram = np.asfortranarray(self.unit @ self.unit.T)

    def solver(self, alpha: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """Products ``<u, x>`` of one image -> its coefficients w."""
        solvers, datafits, penalties = (
            require(f"skglm.{part}", "baselines", "the lasso") for part in ("solvers", "datafits", "penalties")
        )
        descent = solvers.AndersonCD(tol=TOL, fit_intercept=False, **LIMITS)
        quadratic, penalty = datafits.QuadraticHessian(), penalties.L1(alpha, positive=self.positive)

        def solve(products: NDArray[np.float64]) -> NDArray[np.float64]:
            largest = float((products if self.positive else np.abs(products)).max(initial=0.0))
            if largest <= 0.0 or alpha == 1.0:
                return np.zeros(len(products))
            # In units of the largest product the penalty and the tolerance are the same for all images. Where the
            # solver's extrapolation divides by zero it drops the result itself.
            with np.errstate(divide="ignore", invalid="ignore"):
                w, _, _ = descent.solve(self.gram, -products / largest, quadratic, penalty, run_checks=False)
            return np.asarray(w * largest)

        return solve
