"""The lasso over all atoms through skglm (basis pursuit denoising, SpLiCE's non-negative one), and that of the tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hcep._checks import require_not_negative, require_positive, require_share
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

    Raises HCEPError: a bad option, NaN or infinite values, a wrong number of dimensions. Raises MissingExtraError:
    skglm is not installed.

    Parameters
    ----------
    X : (n_images, n_dims) array; raw embeddings, as for `hb_omp`
    n_nonzero : most atoms a code may use; the depth of the hierarchy where `alpha` is not given either
    alpha : penalty, as a share of each image's own smallest one at which its code is empty. By default the share at
        which the images given use `n_nonzero` atoms on average (see `lasso_alpha`).
    positive : coefficients of at least 0, as in SpLiCE; else of any sign: basis pursuit denoising
    n_jobs : accepted as everywhere; the solver runs on one thread

    Notes
    -----
    For unit-norm atoms u and the penalty ``alpha_max(x) = max |<u, x>|`` (positive: ``max <u, x>``)::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * ||w||_1

    (``selected`` runs from the largest ``|w|`` down) is solved by skglm's coordinate descent on the products of atoms
    alone; ``z = w / ||d||`` are the coefficients of the dictionary's atoms. A code of more than `n_nonzero` atoms keeps
    those with the largest ``|w|``, as they are: nothing is fitted again. Of atoms with equal directions (equal or
    opposite, where coefficients have any sign) only the first is used, which changes nothing in the optimum. The
    conditions of optimality hold within ``1e-4 * alpha_max(x)``; images for which they do not are counted in a
    `NotConvergedWarning`.

    References
    ----------
    Tibshirani, Regression shrinkage and selection via the lasso, JRSS B 58, 1996; Chen, Donoho, Saunders, Atomic
    decomposition by basis pursuit, SIAM J. Sci. Comput. 20, 1998; Bertrand et al., Beyond L1: faster and better sparse
    models with skglm, NeurIPS 2022.

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


def tree_lasso(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    n_nonzero: int | None = None,
    *,
    alpha: float | None = None,
    mixing: float = 0.5,
    max_iter: int = 5000,
    tol: float = 1e-5,
    n_jobs: int | None = None,
) -> FlatResult:
    """Recover a sparse code for every image by a penalty on atoms and on whole subtrees.

    Raises HCEPError: a bad option, NaN or infinite values, a wrong number of dimensions.

    Parameters
    ----------
    X, dictionary, n_nonzero, alpha : as for `lasso`
    mixing : 0 is the flat `lasso`, 1 penalises subtrees only: an atom is then used only where all atoms above it are
    max_iter : most iterations per image; those whose codes are still moving are counted in a `NotConvergedWarning`
    tol : largest step, where an image's largest useful penalty is 1
    n_jobs : threads; all cores by default. The answer does not depend on it.

    Notes
    -----
    For unit-norm atoms u, one variable for every node v of the tree of rooted paths (in a DAG an atom may have
    several, which are added up afterwards), and ``w_below(v)`` those of v and of all nodes below it::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * penalty(w)
        penalty(w) = sum over v of  (1 - mixing) |w_v| + mixing ||w_below(v)||

    by FISTA with the exact proximal operator, on the products of atoms alone. All groups weigh the same.
    ``z = w / ||d||`` are the coefficients of the dictionary's atoms.

    ``selected`` runs from the largest term of the penalty down. A code of more than `n_nonzero` nodes keeps those whose
    own term of the sum is largest, as they are: nothing is fitted again. At ``mixing=1`` a node's term is never below
    its children's, so that what is kept is closed under ancestors too; at ``mixing=0`` it is the largest ``|w|``, as in
    `lasso`.

    References
    ----------
    R. Jenatton, J. Mairal, G. Obozinski, F. Bach. Proximal methods for hierarchical sparse coding. JMLR 12, 2011.
    A. Beck, M. Teboulle. A fast iterative shrinkage-thresholding algorithm. SIAM J. Imaging Sci. 2, 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import tree_lasso
    >>> edges = [("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox"), ("thing", "car")]
    >>> leaves = {"cat": [2, 1, 0, 0], "dog": [2, -0.5, 0, 1], "fox": [2, -0.5, 0, -1], "car": [0, 0, 3, 0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(Hierarchy.from_edges(edges), leaves)
    >>> tree_lasso(np.array([[2.0, 1.2, 0.1, 0.0]]), d, alpha=0.1, mixing=1.0).supports
    [('animal', 'cat')]
    """
    coder = _TreeLasso(dictionary, mixing, max_iter, tol)
    return coder.codes(check_shape(X, dictionary.n_dims), n_nonzero, alpha, n_jobs)


def tree_lasso_alpha(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    n_nonzero: int,
    *,
    mixing: float = 0.5,
    max_iter: int = 5000,
    tol: float = 1e-5,
    n_jobs: int | None = None,
) -> float:
    """The `alpha` of `tree_lasso` at which images use about `n_nonzero` atoms on average.

    As `lasso_alpha`; groups enter a code together, so that a size may be jumped over.

    Parameters
    ----------
    X, dictionary, n_nonzero, mixing, max_iter, tol, n_jobs : as for `tree_lasso`
    """
    return _TreeLasso(dictionary, mixing, max_iter, tol).alpha(check_shape(X, dictionary.n_dims), n_nonzero, n_jobs)


class _TreeLasso(PenalisedCoder):
    """The atoms of all nodes of the tree of rooted paths but the root's; ``parent`` is -1 below the root."""

    def __init__(self, dictionary: ConceptDictionary, mixing: float, max_iter: int, tol: float) -> None:
        self.mixing = require_share("mixing", mixing)
        require_positive("max_iter", max_iter)
        self.max_iter, self.tol = int(max_iter), require_not_negative("tol", tol)
        self.unfinished = f"were still moving after max_iter={max_iter:,} iterations; raise max_iter, tol or alpha"
        tree = dictionary.hierarchy.path_tree
        super().__init__(dictionary, tree.edge[1:])
        self.parent = np.ascontiguousarray(tree.parent[1:] - 1)
        # Of two matrices with the same nonzero eigenvalues, the smaller.
        small = self.gram if len(self.unit) <= self.unit.shape[1] else self.unit.T @ self.unit
        self.lipschitz = float(np.linalg.eigvalsh(small)[-1]) * (1 + 1e-9) or 1.0

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        from hcep.pursuit.penalised.tree_kernel import Penalty, fista, penalties_at_zero

        largest = np.empty(len(products))
        penalties_at_zero(products, self.mixing, self.parent, largest)
        scale = np.where(largest > 0, largest, 1.0)[:, None]
        codes = np.zeros_like(products)
        # In units of its largest useful penalty, alpha and tol are the same for all images.
        penalty = Penalty(alpha * (1 - self.mixing), alpha * self.mixing, self.parent)
        n_unfinished = fista(self.gram, self.lipschitz, products / scale, penalty, self.max_iter, self.tol, codes)
        return codes * scale, n_unfinished

    def terms(self, w: Floats) -> Floats:
        """Each node's own term of the penalty, 0 where its coefficient is."""
        squares = w**2
        for v in range(len(self.parent) - 1, -1, -1):
            if self.parent[v] >= 0:
                squares[:, self.parent[v]] += squares[:, v]
        terms = (1 - self.mixing) * np.abs(w) + self.mixing * np.sqrt(squares)
        return np.where(w != 0, terms, 0.0)
