"""Codes by a penalty: the lasso over all atoms through skglm (SpLiCE's non-negative one too), and that of the tree."""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import is_number, require, require_not_negative, require_positive, require_share
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, working_dtype
from hcep.errors import HCEPError
from hcep.pursuit.blocks import block_size, for_blocks, n_threads
from hcep.pursuit.flat import distinct_directions
from hcep.pursuit.result import FlatResult, codes_of

#: Images on which a penalty is chosen, spread evenly over those given.
N_SAMPLE = 200
#: The smallest penalty tried, as a share of the largest useful one, below which the solvers crawl, and the largest.
MIN_ALPHA, MAX_ALPHA = 1e-3, 0.95
#: A mean support within this share of the one wanted is near enough.
TOLERANCE = 0.05
#: Largest violation of the lasso's optimality conditions, where an image's largest useful penalty is 1.
TOL = 1e-4
#: Bounds of one run of the solver, and of the runs: each starts anew from the coefficients of the last, as rounding
#: adds up within a run where atoms are nearly equal.
LIMITS = {"max_iter": 20, "max_epochs": 200}
MAX_ROUNDS = 50

Floats = NDArray[np.float64]


class NotConvergedWarning(UserWarning):
    """A solver stopped at its last iteration before it reached its tolerance."""


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
    X : (n_images, n_dims) array; raw embeddings, as for `hb_omp`
    n_nonzero : most atoms a code may use; the depth of the hierarchy where `alpha` is not given either
    alpha : penalty, as a share of each image's own smallest one at which its code is empty. By default the share at
        which up to 200 of the images use `n_nonzero` atoms on average, or that from 0.001 to 0.95 which comes nearest
    positive : coefficients of at least 0, as in SpLiCE; else of any sign: basis pursuit denoising
    n_jobs : accepted as everywhere; the solver, skglm's coordinate descent, runs on one thread

    Notes
    -----
    For unit-norm atoms u and the penalty ``alpha_max(x) = max |<u, x>|`` (positive: ``max <u, x>``)::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * ||w||_1

    ``z = w / ||d||`` are the coefficients of the dictionary's atoms. Longer codes keep the largest ``|w|``, as they
    are. Of atoms with equal directions (or opposite ones, where signs are free) only the first is used. Images for
    which the conditions of optimality do not hold within ``1e-4 * alpha_max(x)`` are counted in a
    `NotConvergedWarning`.

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
    return Lasso(dictionary, positive).codes(check_shape(X, dictionary.n_dims), n_nonzero, alpha, n_jobs)


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
    mixing : 0 is the flat `lasso`, 1 penalises subtrees only: an atom is then used only where all atoms above it are
    max_iter : most iterations per image; those whose codes are still moving are counted in a `NotConvergedWarning`
    tol : largest step, where an image's largest useful penalty is 1
    n_jobs : threads; all cores by default. The answer does not depend on it.

    Notes
    -----
    As `lasso`, by FISTA with the exact proximal operator, one variable for every node v of the tree of rooted paths (in
    a DAG an atom may have several, which are added up afterwards), and the penalty::

        sum over v of  (1 - mixing) |w_v| + mixing ||w of v and of all nodes below it||

    Longer codes keep the nodes whose own term of the sum is largest, as they are. At ``mixing=1`` a node's term is
    never below its children's, so that what is kept is closed under ancestors too.

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
    coder = TreeLasso(dictionary, mixing, max_iter, tol)
    return coder.codes(check_shape(X, dictionary.n_dims), n_nonzero, alpha, n_jobs)


class Penalised:
    """Unit-norm atoms, one for each variable of a penalised least-squares problem, and what becomes of its solutions.

    `atoms` are the dictionary's of each variable, several of which may have the same. Subclasses solve.
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
        require_positive("n_nonzero", n_nonzero, "the depth of the hierarchy")
        require_fraction("alpha", alpha)
        n_atoms, depth = self.dictionary.n_atoms, self.dictionary.hierarchy.depth
        limit = min(n_nonzero or (depth if alpha is None else n_atoms), n_atoms)
        share = self.alpha(rows, limit, n_jobs) if alpha is None else float(alpha)
        residual_norms, n_unfinished = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        found: dict[int, tuple[NDArray[np.int32], Floats]] = {}

        def work(block: slice) -> None:
            # In double precision: the solvers iterate.
            x = self.dictionary.embed(rows[block], block.start).astype(np.float64)
            w, n_unfinished[block.start] = self.solve(x @ self.unit.T, share)
            kept = strongest(self.terms(w), limit)
            selected, values = self._merged(kept, np.take_along_axis(w, kept.astype(np.intp), axis=1))
            values = values.astype(working_dtype(rows))
            found[block.start] = selected, values
            left = x - codes_of(selected, values, n_atoms) @ self.dictionary.atoms
            residual_norms[block] = np.linalg.norm(left, axis=1)

        for_blocks(len(rows), work, self._threads(n_jobs), block=block_size(len(self.atoms)))
        if n_unfinished.any():
            warnings.warn(
                f"{n_unfinished.sum():,} of {len(rows):,} codes {self.unfinished}", NotConvergedWarning, stacklevel=3
            )
        width = max((selected.shape[1] for selected, _ in found.values()), default=0)
        selected, values = np.full((len(rows), width), -1, np.int32), np.zeros((len(rows), width), working_dtype(rows))
        for start, (some, numbers) in found.items():
            place = slice(start, start + len(some)), slice(some.shape[1])
            selected[place], values[place] = some, numbers
        return FlatResult(self.dictionary, codes_of(selected, values, n_atoms), residual_norms, selected)

    def alpha(self, rows: NDArray[Any], n_nonzero: int, n_jobs: int | None = None) -> float:
        """The penalty at which a sample of images uses about `n_nonzero` variables on average.

        Groups enter a code together, so that a size may be jumped over.
        """
        require_positive("n_nonzero", n_nonzero)
        sample = spread(rows)
        products = self.dictionary.embed(sample).astype(np.float64) @ self.unit.T
        counts = np.zeros(len(sample))

        def mean_support(alpha: float) -> float:
            def work(block: slice) -> None:
                counts[block] = np.count_nonzero(self.solve(products[block], alpha)[0], axis=1)

            for_blocks(len(counts), work, self._threads(n_jobs), block=32)
            return float(counts.mean())

        return alpha_for(n_nonzero, mean_support) if len(sample) else 1.0

    def _threads(self, n_jobs: int | None) -> int:
        return n_threads(n_jobs) if self.parallel else min(n_threads(n_jobs), 1)

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


class Lasso(Penalised):
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


class TreeLasso(Penalised):
    """The atoms of all nodes of the tree of rooted paths but the root's; ``parent`` is -1 below the root."""

    def __init__(self, dictionary: ConceptDictionary, mixing: float, max_iter: int = 5000, tol: float = 1e-5) -> None:
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
        from hcep.pursuit.flat_kernel import Penalty, fista, penalties_at_zero

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
