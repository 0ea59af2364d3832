"""Codes over all atoms, whatever the tree: greedy, and by a convex penalty; then a linear head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.base import HierarchyLike
from hcep.classify.methods.base import ConceptMethod
from hcep.pursuit import FlatResult, lasso, lasso_alpha, omp, tree_lasso, tree_lasso_alpha


class OMPClassifier(ConceptMethod):
    """Orthogonal matching pursuit over all atoms, then a linear head: the paper's flat baseline.

    Parameters and fitted attributes are those of `ConceptMethod`.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=1e-4)
    >>> model = OMPClassifier(data.hierarchy, max_steps=2).fit(data.X, data.y)
    >>> max(len(support) for support in model.pursue(data.X).supports)
    2
    """

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return omp(images, self.dictionary_, self._n_atoms_kept, n_jobs=self.n_jobs)


class PenalisedMethod(ConceptMethod):
    """Base of the penalties, whose weight is the same share of each image's own largest useful one.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, head, n_jobs : as in `ConceptMethod`
    alpha : penalty as in `hcep.pursuit.lasso`; by default the one at which training images use `max_steps` atoms on
        average

    Attributes
    ----------
    alpha_ : the penalty that was used
    """

    alpha_: float
    _coder: Callable[..., FlatResult]
    _alpha: Callable[..., float]

    def __init__(self, hierarchy: HierarchyLike | None = None, *, alpha: float | None = None, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.alpha = alpha

    def _penalty(self) -> dict[str, Any]:
        """Further options of the penalty."""
        return {}

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        chosen = self.alpha
        if chosen is None:
            chosen = self._alpha(images, self.dictionary_, self._n_atoms_kept, **self._penalty())
        self.alpha_ = float(chosen)

    def _code(self, images: NDArray[Any]) -> FlatResult:
        options = {"alpha": self.alpha_, "n_jobs": self.n_jobs, **self._penalty()}
        return self._coder(images, self.dictionary_, self._n_atoms_kept, **options)


class BasisPursuitClassifier(PenalisedMethod):
    """Basis pursuit denoising (the lasso, any sign) over all atoms, then a linear head.

    Parameters and fitted attributes are those of `PenalisedMethod`.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = BasisPursuitClassifier(data.hierarchy).fit(data.X, data.y)
    >>> max(len(support) for support in model.pursue(data.X).supports)
    2
    """

    _coder, _alpha = staticmethod(lasso), staticmethod(lasso_alpha)


class NonNegativeLassoClassifier(BasisPursuitClassifier):
    """The lasso with coefficients of at least 0 over all atoms, then a linear head.

    Parameters and fitted attributes are those of `PenalisedMethod`.

    SpLiCE decomposes CLIP's embeddings by this program over a vocabulary of words; here the atoms are those of the
    hierarchy, so that it is not SpLiCE.
    """

    def _penalty(self) -> dict[str, Any]:
        return {"positive": True}


class TreeLassoClassifier(PenalisedMethod):
    """The tree-structured l1 of Jenatton et al., then a linear head: one parameter from flat to hierarchical.

    Parameters and fitted attributes are those of `PenalisedMethod`, and:

    Parameters
    ----------
    mixing : 0 is the flat lasso, 1 penalises whole subtrees only (see `hcep.pursuit.tree_lasso`)
    """

    _coder, _alpha = staticmethod(tree_lasso), staticmethod(tree_lasso_alpha)

    def __init__(self, hierarchy: HierarchyLike | None = None, *, mixing: float = 0.5, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.mixing = mixing

    def _penalty(self) -> dict[str, Any]:
        return {"mixing": self.mixing, "n_jobs": self.n_jobs}
