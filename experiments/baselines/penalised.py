"""Sparse codes by a convex penalty: the lasso over all atoms, solved by skglm, and the tree-structured l1."""

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from experiments.baselines.tree_penalty import Penalty, fista, penalties_at_zero
from hcep import ConceptDictionary
from hcep.errors import HCEPError, MissingExtraError
from hcep.pursuit import FlatResult

#: Images on which a penalty is chosen, spread evenly over those passed.
N_SAMPLE = 200
#: The smallest and the largest penalty tried, relative to the largest useful one; the solvers crawl below the smallest.
MIN_ALPHA, MAX_ALPHA = 1e-3, 0.95
#: How far a mean support may be from the wanted one, relative to it.
TOLERANCE = 0.05
#: The largest violation of the lasso's optimality conditions, relative to an image's largest useful penalty.
TOL = 1e-4
#: Limits of one run of the solver, and of the number of runs. Each run starts from the coefficients of the last one,
#: because rounding errors add up within a run when atoms are nearly equal.
LIMITS = {"max_iter": 20, "max_epochs": 200}
MAX_ROUNDS = 50
#: Images that one thread solves at a time.
BLOCK = 64

Floats = NDArray[np.float64]


class NotConvergedWarning(UserWarning):
    """A solver stopped at its iteration limit before it reached its tolerance."""


def lasso(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    n_nonzero: int | None = None,
    *,
    alpha: float | None = None,
    positive: bool = False,
) -> FlatResult:
    """Recover a sparse code for every image by an l1 penalty that ignores the hierarchy.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings
    n_nonzero : maximum number of atoms in a code; without `alpha` the default is the depth of the hierarchy
    alpha : penalty, relative to the smallest one at which an image's code is empty. By default it is chosen so that
        up to 200 of the images use `n_nonzero` atoms on average, within 0.001 and 0.95
    positive : require coefficients of at least 0, as SpLiCE does; otherwise this is basis pursuit denoising

    Notes
    -----
    For unit-norm atoms u and the penalty ``alpha_max(x) = max |<u, x>|`` (positive: ``max <u, x>``)::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * ||w||_1

    ``z = w / ||d||`` are the coefficients of the dictionary's atoms. A code that is too long keeps its largest ``|w|``
    unchanged. Of atoms with equal directions (or opposite ones, if signs are free) only the first is used. A
    `NotConvergedWarning` counts the images that violate the optimality conditions by more than
    ``1e-4 * alpha_max(x)``.

    References
    ----------
    Tibshirani, Regression shrinkage and selection via the lasso, JRSS B 58, 1996; Bertrand et al., Beyond L1: faster
    and better sparse models with skglm, NeurIPS 2022.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> lasso(np.array([[2.0, 0.1]]), d, alpha=0.5).codes.toarray()
    array([[1., 0., 0.]])
    """
    return Lasso(dictionary, positive).codes(X, n_nonzero, alpha)


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

    Parameters
    ----------
    X, dictionary, n_nonzero, alpha : as for `lasso`
    mixing : 0 is the flat `lasso`; 1 penalises subtrees only, so that an atom is used only with all atoms above it
    max_iter : maximum number of iterations per image; a `NotConvergedWarning` counts the images that need more
    tol : largest step, relative to an image's largest useful penalty
    n_jobs : number of threads (default: all cores); the answer does not depend on it

    Notes
    -----
    As `lasso`, by FISTA with the exact proximal operator, one variable for every node v of the tree of rooted paths (in
    a DAG an atom can have several, whose coefficients are added up afterwards), and the penalty::

        sum over v of  (1 - mixing) |w_v| + mixing ||w of v and of all nodes below it||

    A code that is too long keeps the nodes whose own term of the sum is largest. At ``mixing=1`` a node's term is never
    below its children's, so the code that is kept is closed under ancestors too.

    References
    ----------
    R. Jenatton, J. Mairal, G. Obozinski, F. Bach. Proximal methods for hierarchical sparse coding. JMLR 12, 2011.
    A. Beck, M. Teboulle. A fast iterative shrinkage-thresholding algorithm. SIAM J. Imaging Sci. 2, 2009.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> edges = [("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("animal", "fox"), ("thing", "car")]
    >>> leaves = {"cat": [2, 1, 0, 0], "dog": [2, -0.5, 0, 1], "fox": [2, -0.5, 0, -1], "car": [0, 0, 3, 0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(Hierarchy.from_edges(edges), leaves)
    >>> tree_lasso(np.array([[2.0, 1.2, 0.1, 0.0]]), d, alpha=0.1, mixing=1.0).supports
    [('animal', 'cat')]
    """
    return TreeLasso(dictionary, mixing, max_iter, tol).codes(X, n_nonzero, alpha, n_jobs)


class PenalisedSolver:
    """A penalised least-squares problem over unit-norm atoms, one for each variable; subclasses solve it.

    Parameters
    ----------
    atoms : the dictionary's atom of each variable; several variables can share one atom
    """

    #: What the warning says about images that did not converge.
    unfinished: str

    def __init__(self, dictionary: ConceptDictionary, atoms: NDArray[np.intp]) -> None:
        self.dictionary, self.atoms = dictionary, atoms
        norms = np.linalg.norm(dictionary.atoms[atoms], axis=1)
        self.norms = np.where(norms > 0, norms, 1.0)
        self.unit = dictionary.atoms[atoms] / self.norms[:, None]
        self.gram = self.unit @ self.unit.T

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        """Return the coefficients of the unit atoms from their products with images, and how many did not converge."""
        raise NotImplementedError

    def terms(self, w: Floats) -> Floats:
        """Return what each coefficient adds to the penalty: a code that is too long keeps the largest terms."""
        return np.abs(w)

    def codes(
        self, X: ArrayLike, n_nonzero: int | None = None, alpha: float | None = None, n_jobs: int | None = None
    ) -> FlatResult:
        """Return codes of at most `n_nonzero` atoms; without `alpha`, choose the penalty that gives about as many."""
        if n_nonzero is not None:
            require_positive("n_nonzero", n_nonzero, ", or None for the depth of the hierarchy")
        if alpha is not None:
            require_fraction("alpha", alpha)
        n_atoms, depth = self.dictionary.n_atoms, self.dictionary.hierarchy.depth
        limit = min(n_nonzero or (depth if alpha is None else n_atoms), n_atoms)
        embedded = self.dictionary.embed(X)
        x = embedded.astype(np.float64)  # the solvers iterate, so they need double precision
        share = self.alpha(X, limit, n_jobs) if alpha is None else float(alpha)
        w, n_unfinished = self._solve_in_blocks(x @ self.unit.T, share, n_jobs)
        if n_unfinished:
            message = f"{n_unfinished:,} of {len(x):,} codes {self.unfinished}"
            warnings.warn(message, NotConvergedWarning, stacklevel=3)
        columns = strongest(self.terms(w), limit)
        selected, values = self._merged(columns, np.take_along_axis(w, columns.astype(np.intp), axis=1))
        codes = sparse_codes(selected, values.astype(embedded.dtype), n_atoms)
        residual_norms = np.linalg.norm(x - codes @ self.dictionary.atoms, axis=1)
        return FlatResult(self.dictionary, codes, residual_norms, selected)

    def alpha(self, X: ArrayLike, n_nonzero: int, n_jobs: int | None = None) -> float:
        """Return the penalty at which a sample of images uses about `n_nonzero` variables on average.

        Groups enter a code together, so a size can be jumped over.
        """
        sample = spread(np.asarray(X))
        products = self.dictionary.embed(sample).astype(np.float64) @ self.unit.T

        def mean_support(alpha: float) -> float:
            w, _ = self._solve_in_blocks(products, alpha, n_jobs)
            return float(np.count_nonzero(w, axis=1).mean())

        return alpha_for(n_nonzero, mean_support) if len(sample) else 1.0

    def _solve_in_blocks(self, products: Floats, alpha: float, n_jobs: int | None) -> tuple[Floats, int]:
        if n_jobs is not None:
            require_positive("n_jobs", n_jobs, ", or None for all cores")
        blocks = [products[i : i + BLOCK] for i in range(0, len(products), BLOCK)]
        with ThreadPoolExecutor(n_jobs or os.cpu_count()) as pool:
            solved = list(pool.map(lambda block: self.solve(block, alpha), blocks))
        return np.concatenate([np.empty_like(products[:0]), *(w for w, _ in solved)]), sum(n for _, n in solved)

    def _merged(self, columns: NDArray[np.int32], w: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Return atoms and coefficients of the variables; the first of several variables of one atom gets their sum."""
        atoms = np.where(columns >= 0, self.atoms[columns], -1).astype(np.int32)
        coefficients = np.where(columns >= 0, w / self.norms[columns], 0.0)
        if len(np.unique(self.atoms)) == len(self.atoms):
            return atoms, coefficients
        for late in range(1, atoms.shape[1]):
            for early in range(late):
                same = (atoms[:, late] >= 0) & (atoms[:, late] == atoms[:, early])
                coefficients[same, early] += coefficients[same, late]
                atoms[same, late] = -1
        order = np.argsort(atoms < 0, axis=1, kind="stable")
        return np.take_along_axis(atoms, order, axis=1), np.take_along_axis(coefficients, order, axis=1)


class Lasso(PenalisedSolver):
    """All atoms that are not zero; if signs are free, only the first atom of each direction."""

    unfinished = f"violate the conditions of optimality by more than {TOL:g}; raise alpha"

    def __init__(self, dictionary: ConceptDictionary, positive: bool) -> None:
        norms = np.linalg.norm(dictionary.atoms, axis=1)
        super().__init__(
            dictionary, np.flatnonzero(norms > 0) if positive else distinct_directions(dictionary.atoms, norms)
        )
        self.positive = bool(positive)

    def _solve_in_blocks(self, products: Floats, alpha: float, n_jobs: int | None) -> tuple[Floats, int]:
        return self.solve(products, alpha)  # skglm's solver holds the interpreter, so threads would not help

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        try:
            from skglm.datafits import QuadraticHessian
            from skglm.penalties import L1
            from skglm.solvers import AndersonCD
        except ImportError:
            raise MissingExtraError("the lasso needs skglm, which is not installed: pip install skglm") from None
        descent = AndersonCD(tol=TOL / 2, fit_intercept=False, **LIMITS)
        quadratic, penalty = QuadraticHessian(), L1(alpha, positive=self.positive)
        codes, n_unfinished = np.zeros_like(products), 0
        # In units of an image's largest product, the penalty and the tolerance are the same for all images.
        largest = (products if self.positive else np.abs(products)).max(axis=1, initial=0.0)
        for i in np.flatnonzero((largest > 0.0) & (alpha < 1.0)):
            c, w = products[i] / largest[i], codes[i]
            for _ in range(MAX_ROUNDS):
                # The solver's extrapolation can divide by zero; it then drops the result itself.
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
        """Return the distance of 0 from the subdifferential, without the rounding errors that the solver carries."""
        gradient = self._gram_times(w) - c
        unused = (-gradient if self.positive else np.abs(gradient)) - alpha
        return float(np.where(w == 0, unused, np.abs(gradient + np.sign(w) * alpha)).max())


class TreeLasso(PenalisedSolver):
    """The atoms of all nodes of the tree of rooted paths except the root; ``parent`` is -1 below the root."""

    def __init__(self, dictionary: ConceptDictionary, mixing: float, max_iter: int = 5000, tol: float = 1e-5) -> None:
        require_share("mixing", mixing)
        require_positive("max_iter", max_iter)
        require_not_negative("tol", tol)
        self.mixing, self.max_iter, self.tol = float(mixing), int(max_iter), float(tol)
        self.unfinished = f"were still moving after max_iter={max_iter:,} iterations; raise max_iter, tol or alpha"
        tree = dictionary.hierarchy.path_tree
        super().__init__(dictionary, tree.edge[1:].astype(np.intp))
        self.parent = np.ascontiguousarray(tree.parent[1:] - 1)
        # Both matrices have the same nonzero eigenvalues, so the smaller one is enough.
        small = self.gram if len(self.unit) <= self.unit.shape[1] else self.unit.T @ self.unit
        self.lipschitz = float(np.linalg.eigvalsh(small)[-1]) * (1 + 1e-9) or 1.0

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        largest = np.empty(len(products))
        penalties_at_zero(products, self.mixing, self.parent, largest)
        scale = np.where(largest > 0, largest, 1.0)[:, None]
        codes = np.zeros_like(products)
        # In units of an image's largest useful penalty, alpha and tol are the same for all images.
        penalty = Penalty(alpha * (1 - self.mixing), alpha * self.mixing, self.parent)
        n_unfinished = fista(self.gram, self.lipschitz, products / scale, penalty, self.max_iter, self.tol, codes)
        return codes * scale, n_unfinished

    def terms(self, w: Floats) -> Floats:
        """Return each node's own term of the penalty, 0 if its coefficient is 0."""
        squares = w**2
        for v in range(len(self.parent) - 1, -1, -1):
            if self.parent[v] >= 0:
                squares[:, self.parent[v]] += squares[:, v]
        terms = (1 - self.mixing) * np.abs(w) + self.mixing * np.sqrt(squares)
        return np.where(w != 0, terms, 0.0)


def require_positive(name: str, value: Any, otherwise: str = "") -> None:
    """Raise HCEPError unless a number is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise HCEPError(f"{name} must be a positive integer{otherwise}; got {value!r}")


def require_share(name: str, value: Any) -> None:
    """Raise HCEPError unless a number is in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
        raise HCEPError(f"{name} must be a number from 0 to 1, got {value!r}")


def require_not_negative(name: str, value: Any) -> None:
    """Raise HCEPError unless a number is finite and at least 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) < np.inf:
        raise HCEPError(f"{name} must be a finite number of at least 0, got {value!r}")


def require_fraction(name: str, value: Any) -> None:
    """Raise HCEPError unless a penalty is above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise HCEPError(
            f"{name} must be a number above 0 and at most 1, a share of the penalty at which a code is empty; "
            f"got {value!r}"
        )


def distinct_directions(atoms: Floats, norms: Floats) -> NDArray[np.intp]:
    """Return the atoms that are not zero and not parallel to an earlier atom.

    Only rounding would distinguish parallel atoms, so the choice between them would depend on the machine.
    """
    candidates = np.flatnonzero(norms > 0)
    unit = atoms[candidates] / norms[candidates, None]
    first_parallel = np.argmax(np.abs(unit @ unit.T) > 1 - 1e-12, axis=1)
    distinct: NDArray[np.intp] = candidates[first_parallel == np.arange(len(candidates))]
    return distinct


def spread(X: NDArray[Any]) -> NDArray[Any]:
    """Return up to `N_SAMPLE` rows at even distances."""
    return X[np.unique(np.linspace(0, len(X) - 1, min(len(X), N_SAMPLE)).astype(np.intp))]


def alpha_for(n_nonzero: float, mean_support: Callable[[float], float]) -> float:
    """Return the penalty whose `mean_support`, which falls as the penalty grows, is nearest to `n_nonzero`.

    The support of a group penalty can jump over the wanted size. Then the better side of the jump is returned, but
    never one that leaves less than half of the wanted size: a code that is too long can be cut later.
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
    """Return the columns of the `limit` largest positive weights of every row, largest first, then -1.

    Ties go to the lowest column.
    """
    columns = np.argsort(-weights, axis=1, kind="stable")[:, :limit].astype(np.int32)
    columns[np.take_along_axis(weights, columns.astype(np.intp), axis=1) <= 0] = -1
    return columns[:, : int((columns >= 0).sum(axis=1).max(initial=0))]


def sparse_codes(selected: NDArray[np.int32], coefficients: NDArray[Any], n_atoms: int) -> sparse.csr_array:
    """Return CSR codes from the atoms of every image, -1 for none, and their coefficients."""
    inside = selected >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int32)
    codes = sparse.csr_array((coefficients[inside], selected[inside], pointer), shape=(len(selected), n_atoms))
    codes.sort_indices()
    return codes
