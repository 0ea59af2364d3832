"""The lasso over all atoms, through skglm: basis pursuit denoising, and the non-negative one of SpLiCE."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hcep._optional import require
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape
from hcep.pursuit.flat import distinct_directions
from hcep.pursuit.penalised.coding import Floats, PenalisedCoder
from hcep.pursuit.result import FlatResult

#: Largest violation of the optimality conditions, where an image's largest useful penalty is 1.
TOL = 1e-4
#: Bounds of one run of the solver, and of the runs: each starts anew from the coefficients of the last, as rounding
#: adds up within a run where atoms are nearly equal.
LIMITS = {"max_iter": 20, "max_epochs": 200}
MAX_ROUNDS = 50


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
        Accepted as everywhere; the solver runs on one thread.

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
    the first is used, which changes nothing in the optimum. The conditions of optimality hold within
    ``1e-4 * alpha_max(x)``; images for which they do not are counted in a `NotConvergedWarning`.

    References
    ----------
    R. Tibshirani. Regression shrinkage and selection via the lasso. Journal of the Royal Statistical Society B 58,
    1996.
    S. S. Chen, D. L. Donoho, M. A. Saunders. Atomic decomposition by basis pursuit. SIAM Journal on Scientific
    Computing 20, 1998.
    Q. Bertrand, Q. Klopfenstein, P.-A. Bannier, G. Gidel, M. Massias. Beyond L1: faster and better sparse models with
    skglm. NeurIPS 2022.

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
    return _Lasso(dictionary, positive).codes(check_shape(X, dictionary.n_dims), n_nonzero, alpha, n_jobs)


def lasso_alpha(X: ArrayLike, dictionary: ConceptDictionary, n_nonzero: int, *, positive: bool = False) -> float:
    """The `alpha` of `lasso` at which images use about `n_nonzero` atoms on average.

    Found by bisection on up to 200 of the images, spread evenly: within 5%, or as near as a penalty from 0.001 to 0.95
    comes.

    Parameters
    ----------
    X, dictionary, n_nonzero, positive : as for `lasso`

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import lasso_alpha
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> lasso_alpha([[2.0, 1.0], [1.0, 3.0]], d, 2)
    0.5
    """
    return _Lasso(dictionary, positive).alpha(check_shape(X, dictionary.n_dims), n_nonzero, 1)


class _Lasso(PenalisedCoder):
    """All atoms that are not zero; of those with one direction the first, where signs are free."""

    parallel = False  # skglm's solver holds the interpreter
    unfinished = f"violate the conditions of optimality by more than {TOL:g}; raise alpha"

    def __init__(self, dictionary: ConceptDictionary, positive: bool) -> None:
        norms = np.linalg.norm(dictionary.atoms, axis=1)
        super().__init__(
            dictionary, np.flatnonzero(norms > 0) if positive else distinct_directions(dictionary.atoms, norms)
        )
        self.positive = bool(positive)

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        solvers, datafits, penalties = (
            require(f"skglm.{part}", "baselines", "the lasso") for part in ("solvers", "datafits", "penalties")
        )
        descent = solvers.AndersonCD(tol=TOL / 2, fit_intercept=False, **LIMITS)
        quadratic, penalty = datafits.QuadraticHessian(), penalties.L1(alpha, positive=self.positive)
        codes, n_unfinished = np.zeros_like(products), 0
        # In units of an image's largest product the penalty and the tolerance are the same for all.
        largest = (products if self.positive else np.abs(products)).max(axis=1, initial=0.0)
        for i in np.flatnonzero((largest > 0.0) & (alpha < 1.0)):
            c, w = products[i] / largest[i], codes[i]
            for _ in range(MAX_ROUNDS):
                # Where the solver's extrapolation divides by zero it drops the result itself.
                with np.errstate(divide="ignore", invalid="ignore"):
                    w, _, _ = descent.solve(
                        self.gram.T, -c, quadratic, penalty, w_init=w, Xw_init=self._gram_times(w), run_checks=False
                    )
                if self._violation(c, w, alpha) <= TOL:
                    break
            else:
                n_unfinished += 1
            codes[i] = w * largest[i]
        return codes, n_unfinished

    def _gram_times(self, w: Floats) -> Floats:
        used = np.flatnonzero(w)
        product: Floats = w[used] @ self.gram[used]
        return product

    def _violation(self, c: Floats, w: Floats, alpha: float) -> float:
        """Distance of 0 from the subdifferential, measured anew: the solver's own number carries its rounding along."""
        gradient = self._gram_times(w) - c
        unused = (-gradient if self.positive else np.abs(gradient)) - alpha
        return float(np.where(w == 0, unused, np.abs(gradient + np.sign(w) * alpha)).max())
