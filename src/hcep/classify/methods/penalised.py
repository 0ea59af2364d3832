"""Codes by a convex penalty: the non-negative lasso, basis pursuit, and the tree-structured l1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.methods.base import ConceptMethod
from hcep.hierarchy import Hierarchy
from hcep.pursuit import FlatResult, lasso, lasso_alpha, tree_lasso, tree_lasso_alpha


class _PenalisedMethod(ConceptMethod):
    """A penalty whose weight is a share of each image's own largest useful one, the same share for all images."""

    alpha_: float

    def __init__(self, hierarchy: Hierarchy | None = None, *, alpha: float | None = None, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.alpha = alpha

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        self.alpha_ = self._choose_alpha(images) if self.alpha is None else float(self.alpha)

    def _choose_alpha(self, images: NDArray[Any]) -> float:
        raise NotImplementedError


class BasisPursuitClassifier(_PenalisedMethod):
    """Basis pursuit denoising (the lasso, any sign) over all atoms, then a linear head.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs
        As in `ConceptMethod`.
    max_steps : int, optional
        Most atoms a code may use; the depth of the hierarchy by default.
    alpha : float in (0, 1], optional
        Penalty as in `hcep.pursuit.lasso`; by default the one at which training images use `max_steps` atoms on
        average.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.

    Examples
    --------
    >>> from hcep.classify.methods import BasisPursuitClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = BasisPursuitClassifier(data.hierarchy).fit(data.X, data.y)
    >>> max(len(support) for support in model.pursue(data.X).supports)
    2
    """

    _positive = False

    def _choose_alpha(self, images: NDArray[Any]) -> float:
        return lasso_alpha(images, self.dictionary_, self._n_atoms_kept, positive=self._positive)

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return lasso(
            images,
            self.dictionary_,
            self._n_atoms_kept,
            alpha=self.alpha_,
            positive=self._positive,
            n_jobs=self.n_jobs,
        )


class NonNegativeLassoClassifier(BasisPursuitClassifier):
    """The lasso with coefficients of at least 0 over all atoms, then a linear head.

    Parameters and fitted attributes are those of `BasisPursuitClassifier`.

    Notes
    -----
    SpLiCE decomposes CLIP's embeddings by this program over a vocabulary of words; here the atoms are those of the
    hierarchy, so that it is not SpLiCE.

    Examples
    --------
    >>> from hcep.classify.methods import NonNegativeLassoClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = NonNegativeLassoClassifier(data.hierarchy).fit(data.X, data.y)
    >>> bool(model.pursue(data.X).codes.data.min() > 0)
    True
    """

    _positive = True


class TreeLassoClassifier(_PenalisedMethod):
    """The tree-structured l1 of Jenatton et al., then a linear head: one parameter from flat to hierarchical.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs
        As in `ConceptMethod`.
    max_steps : int, optional
        Most atoms a code may use; the depth of the hierarchy by default.
    mixing : float in [0, 1]
        0 is the flat lasso, 1 penalises whole subtrees only (see `hcep.pursuit.tree_lasso`).
    alpha : float in (0, 1], optional
        Penalty; by default the one at which training images use `max_steps` atoms on average.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.

    Examples
    --------
    >>> from hcep.classify.methods import TreeLassoClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = TreeLassoClassifier(data.hierarchy, mixing=1.0).fit(data.X, data.y)
    >>> max(len(support) for support in model.pursue(data.X).supports)
    2
    """

    def __init__(self, hierarchy: Hierarchy | None = None, *, mixing: float = 0.5, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.mixing = mixing

    def _choose_alpha(self, images: NDArray[Any]) -> float:
        return tree_lasso_alpha(images, self.dictionary_, self._n_atoms_kept, mixing=self.mixing, n_jobs=self.n_jobs)

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return tree_lasso(
            images,
            self.dictionary_,
            self._n_atoms_kept,
            alpha=self.alpha_,
            mixing=self.mixing,
            n_jobs=self.n_jobs,
        )
