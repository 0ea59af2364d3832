"""Codes over all atoms, whatever the tree: greedy, by a convex penalty, or none at all; then a linear head."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from hcep.classify.base import HierarchyLike
from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.methods.base import CodeClassifier, ConceptMethod
from hcep.pursuit import FlatResult, omp
from hcep.pursuit.penalised import Lasso, Penalised, TreeLasso


class OMPClassifier(ConceptMethod):
    """Orthogonal matching pursuit over all atoms, then a linear head: the paper's flat baseline."""

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return omp(images, self.dictionary_, self._n_atoms_kept, n_jobs=self.n_jobs)


class PenalisedMethod(ConceptMethod):
    """Base of the penalties, whose weight is the same share of each image's own largest useful one.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, head, n_jobs : as in `ConceptMethod`
    alpha : penalty as in `hcep.pursuit.lasso`; by default, and then kept as ``alpha_``, the one at which training
        images use `max_steps` atoms on average
    """

    alpha_: float

    def __init__(self, hierarchy: HierarchyLike | None = None, *, alpha: float | None = None, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.alpha = alpha

    def _coder(self) -> Penalised:
        """The penalty, over the fitted dictionary."""
        raise NotImplementedError

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        chosen = self.alpha or self._coder().alpha(images, self._n_atoms_kept, self.n_jobs)
        self.alpha_ = float(chosen)

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return self._coder().codes(images, self._n_atoms_kept, self.alpha_, self.n_jobs)


class BasisPursuitClassifier(PenalisedMethod):
    """Basis pursuit denoising (the lasso, any sign) over all atoms, then a linear head."""

    def _coder(self) -> Penalised:
        return Lasso(self.dictionary_, positive=False)


class NonNegativeLassoClassifier(PenalisedMethod):
    """The lasso with coefficients of at least 0 over all atoms, then a linear head.

    SpLiCE decomposes CLIP's embeddings by this program over a vocabulary of words; here the atoms are those of the
    hierarchy, so that it is not SpLiCE.
    """

    def _coder(self) -> Penalised:
        return Lasso(self.dictionary_, positive=True)


class TreeLassoClassifier(PenalisedMethod):
    """The tree-structured l1 of Jenatton et al., then a linear head: one parameter from flat to hierarchical.

    `mixing` 0 is the flat lasso, 1 penalises whole subtrees only (see `hcep.pursuit.tree_lasso`); other parameters are
    those of `PenalisedMethod`.
    """

    def __init__(self, hierarchy: HierarchyLike | None = None, *, mixing: float = 0.5, **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.mixing = mixing

    def _coder(self) -> Penalised:
        return TreeLasso(self.dictionary_, self.mixing)


class _OnEmbeddings(CodeClassifier):
    """The head sees the embeddings; supports and codes are empty, residuals NaN: one table holds all methods."""

    def _code(self, images: NDArray[Any]) -> FlatResult:
        codes = sparse.csr_array((len(images), self.dictionary_.n_atoms), dtype=images.dtype)
        nothing = np.zeros((len(images), 0), dtype=np.int32)
        return FlatResult(self.dictionary_, codes, np.full(len(images), np.nan), nothing)

    def _head_input(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.dictionary_.embed(images)


class LinearProbe(_OnEmbeddings, ConceptMethod):
    """A linear head on the embeddings themselves: a black box that names no concepts; `max_steps` has no effect."""


class LDAClassifier(_OnEmbeddings):
    """Scikit-learn's linear discriminant analysis with a shrunk covariance: a black box; `max_steps` has no effect.

    Its ``shrinkage_`` is that of the nearest class mean by held-out training images, from the grid of `HCEPClassifier`.
    With one image per class there is no covariance within classes, and scikit-learn refuses: then the class of the
    nearest image in the metric of the total covariance is taken.
    """

    def _metric(self) -> tuple[Any, ...]:
        return "auto", MEAN_ANCHOR

    def _make_head(self, index: NDArray[np.intp]) -> Any:
        if len(index) == len(self.classes_):
            return KNeighborsClassifier(1)
        return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=self.shrinkage_)
