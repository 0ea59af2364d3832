"""The tree-structured l1 penalty: one parameter from a flat lasso to supports that respect the hierarchy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hcep._checks import require_not_negative, require_positive, require_share
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape
from hcep.pursuit.penalised.coding import Floats, PenalisedCoder
from hcep.pursuit.result import FlatResult


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
    mixing : float in [0, 1]
        0 is the flat `lasso`, 1 penalises subtrees only: an atom is then used only where all atoms above it are.
    max_iter : int
        Most iterations per image.
    tol : float
        Largest step, where an image's largest useful penalty is 1.
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Returns
    -------
    FlatResult
        ``selected`` runs from the largest term of the penalty down.

    Raises
    ------
    HCEPError
        A bad option, NaN or infinite values, a wrong number of dimensions.

    Warns
    -----
    NotConvergedWarning
        Images whose codes are still moving after `max_iter` iterations, counted.

    Notes
    -----
    For unit-norm atoms u, one variable for every node v of the tree of rooted paths (in a DAG an atom may have
    several, which are added up afterwards), and ``w_below(v)`` those of v and of all nodes below it::

        minimise over w   1/2 ||x - U^T w||**2 + alpha * alpha_max(x) * penalty(w)
        penalty(w) = sum over v of  (1 - mixing) |w_v| + mixing ||w_below(v)||

    by FISTA with the exact proximal operator, on the products of atoms alone. All groups weigh the same.
    ``z = w / ||d||`` are the coefficients of the dictionary's atoms.

    A code of more than `n_nonzero` nodes keeps those whose own term of the sum is largest, as they are: nothing is
    fitted again. At ``mixing=1`` a node's term is never below its children's, so that what is kept is closed under
    ancestors too; at ``mixing=0`` it is the largest ``|w|``, as in `lasso`.

    References
    ----------
    R. Jenatton, J. Mairal, G. Obozinski, F. Bach. Proximal methods for hierarchical sparse coding. JMLR 12, 2011.
    A. Beck, M. Teboulle. A fast iterative shrinkage-thresholding algorithm for linear inverse problems. SIAM Journal
    on Imaging Sciences 2, 2009.

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

    Found by bisection on up to 200 of the images, spread evenly: within 5%, or as near as a penalty from 0.001 to 0.95
    comes; groups enter a code together, so that a size may be jumped over.

    Parameters
    ----------
    X, dictionary, n_nonzero, mixing, max_iter, tol, n_jobs : as for `tree_lasso`

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import tree_lasso_alpha
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> tree_lasso_alpha([[2.0, 1.0], [1.0, 3.0]], d, 2)
    0.5
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
