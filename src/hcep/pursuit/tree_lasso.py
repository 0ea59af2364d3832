"""The tree-structured l1 penalty: one parameter from a flat lasso to supports that respect the hierarchy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive, require_share
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, working_dtype
from hcep.pursuit.blocks import block_size, for_blocks
from hcep.pursuit.result import FlatResult
from hcep.pursuit.sparsity import (
    Collected,
    NotConvergedWarning,
    alpha_for,
    embedded,
    most_atoms,
    spread,
    strongest,
)


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
    X : (n_images, n_dims) array
        Raw embeddings, as for `hb_omp`.
    dictionary : ConceptDictionary
    n_nonzero : int, optional
        Most atoms a code may use; the depth of the hierarchy where `alpha` is not given either.
    alpha : float in (0, 1], optional
        Penalty, as a share of each image's own smallest one at which its code is empty. By default the share at which
        the images given use `n_nonzero` atoms on average (see `tree_lasso_alpha`).
    mixing : float in [0, 1]
        0 is the flat `lasso`, 1 penalises subtrees only: an atom is then used only where all atoms above it are.
    max_iter : int
        Most iterations an image.
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

    by FISTA with the exact proximal operator (Jenatton et al., "Proximal methods for hierarchical sparse coding",
    2011), on the products of atoms alone. All groups weigh the same. ``z = w / ||d||`` are the coefficients of the
    dictionary's atoms.

    A code of more than `n_nonzero` nodes keeps those whose own term of the sum is largest, as they are: nothing is
    fitted again. At ``mixing=1`` a node's term is never below its children's, so that what is kept is closed under
    ancestors too; at ``mixing=0`` it is the largest ``|w|``, as in `lasso`.

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
    rows = check_shape(X, dictionary.n_dims)
    limit = most_atoms(n_nonzero, alpha, dictionary)
    problem = _Problem(dictionary, mixing, max_iter, tol)
    share = problem.alpha(rows, limit, n_jobs) if alpha is None else float(alpha)
    collected = Collected(dictionary, len(rows), working_dtype(rows))
    unfinished: list[int] = []

    def work(block: slice) -> None:
        x = embedded(rows, dictionary, block)
        w, n_unfinished = problem.solve(x, share)
        unfinished.append(n_unfinished)
        nodes = strongest(problem.terms(w), limit)
        coefficients = np.take_along_axis(w, nodes.astype(np.intp), axis=1) / problem.norms[nodes]
        collected.add(block, x, *problem.atoms_of(nodes, coefficients))

    for_blocks(len(rows), work, n_jobs, block=block_size(len(problem.norms)))
    if sum(unfinished):
        warnings.warn(
            f"{sum(unfinished):,} of {len(rows):,} codes were still moving after max_iter={max_iter:,} iterations; "
            "raise max_iter, tol or alpha",
            NotConvergedWarning,
            stacklevel=2,
        )
    return collected.result()


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

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import tree_lasso_alpha
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "car": [0.0, 2.0]})
    >>> tree_lasso_alpha([[2.0, 1.0], [1.0, 3.0]], d, 2)
    0.5
    """
    require_positive("n_nonzero", n_nonzero)
    return _Problem(dictionary, mixing, max_iter, tol).alpha(check_shape(X, dictionary.n_dims), n_nonzero, n_jobs)


class _Problem:
    """The unit-norm atoms of all nodes but the root's, and how to solve for their coefficients.

    Attributes
    ----------
    norms : (n_nodes - 1,) norms of the nodes' atoms, 1 for a zero atom
    unit : (n_nodes - 1, n_dims) atoms of norm 1, or 0
    gram : (n_nodes - 1, n_nodes - 1) their products
    parent : (n_nodes - 1,) int32
        -1 below the root.
    """

    def __init__(self, dictionary: ConceptDictionary, mixing: float, max_iter: int, tol: float) -> None:
        self.mixing = require_share("mixing", mixing)
        require_positive("max_iter", max_iter)
        self.max_iter, self.tol = int(max_iter), require_not_negative("tol", tol)
        self.dictionary, self.tree = dictionary, dictionary.hierarchy.path_tree
        self.parent = np.ascontiguousarray(self.tree.parent[1:] - 1)
        atoms = dictionary.atoms[self.tree.edge[1:]]
        norms = np.linalg.norm(atoms, axis=1)
        self.norms = np.where(norms > 0, norms, 1.0)
        self.unit = atoms / self.norms[:, None]
        self.gram = self.unit @ self.unit.T
        # Of two matrices with the same nonzero eigenvalues, the smaller.
        small = self.gram if len(atoms) <= atoms.shape[1] else self.unit.T @ self.unit
        self.lipschitz = float(np.linalg.eigvalsh(small)[-1]) * (1 + 1e-9) or 1.0

    def solve(self, x: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], int]:
        """Coefficients of the unit atoms of every node, and how many images did not converge."""
        from hcep.pursuit import tree_kernels

        products = x @ self.unit.T
        largest = np.empty(len(x))
        tree_kernels.penalties_at_zero(products, self.mixing, self.parent, largest)
        scale = np.where(largest > 0, largest, 1.0)[:, None]
        codes = np.zeros_like(products)
        # In units of its largest useful penalty, alpha and tol are the same for all images.
        n_unfinished = tree_kernels.fista(
            self.gram, self.lipschitz, products / scale, alpha * (1 - self.mixing), alpha * self.mixing, self.parent,
            self.max_iter, self.tol, codes,
        )  # fmt: skip
        return codes * scale, n_unfinished

    def terms(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each node's own term of the penalty, 0 where its coefficient is."""
        squares = w**2
        for v in range(len(self.parent) - 1, -1, -1):
            if self.parent[v] >= 0:
                squares[:, self.parent[v]] += squares[:, v]
        terms = (1 - self.mixing) * np.abs(w) + self.mixing * np.sqrt(squares)
        return np.where(w != 0, terms, 0.0)

    def atoms_of(
        self, nodes: NDArray[np.int32], coefficients: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The atoms of the chosen nodes; where two nodes share an atom, the first holds the sum."""
        atoms = np.where(nodes >= 0, self.tree.edge[1:][nodes], -1).astype(np.int32)
        if self.dictionary.hierarchy.is_tree:
            return atoms, coefficients
        coefficients = coefficients.copy()
        for late in range(1, atoms.shape[1]):
            for early in range(late):
                same = (atoms[:, late] >= 0) & (atoms[:, late] == atoms[:, early])
                coefficients[same, early] += coefficients[same, late]
                atoms[same, late] = -1
        order = np.argsort(atoms < 0, axis=1, kind="stable")
        return np.take_along_axis(atoms, order, axis=1), np.take_along_axis(coefficients, order, axis=1)

    def alpha(self, rows: NDArray[Any], n_nonzero: int, n_jobs: int | None) -> float:
        """The penalty at which a sample of images uses about `n_nonzero` nodes on average."""
        sample = spread(rows)
        if not len(sample):
            return 1.0
        x = self.dictionary.embed(sample).astype(np.float64)
        counts = np.zeros(len(x))

        def mean_support(alpha: float) -> float:
            def work(block: slice) -> None:
                counts[block] = np.count_nonzero(self.solve(x[block], alpha)[0], axis=1)

            for_blocks(len(x), work, n_jobs, block=32)
            return float(counts.mean())

        return alpha_for(n_nonzero, mean_support)
