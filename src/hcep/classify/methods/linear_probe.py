"""Linear classifiers on the embeddings themselves: black boxes, for reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.methods.base import CodeClassifier, ConceptMethod
from hcep.pursuit import FlatResult


class _OnEmbeddings(CodeClassifier):
    """The head sees the embeddings; supports and codes are empty, so that one table holds all methods."""

    def _code(self, images: NDArray[Any]) -> FlatResult:
        codes = sparse.csr_array((len(images), self.dictionary_.n_atoms), dtype=images.dtype)
        nothing = np.zeros((len(images), 0), dtype=np.int32)
        return FlatResult(self.dictionary_, codes, np.full(len(images), np.nan), nothing)

    def _head_input(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.dictionary_.embed(images)


class LinearProbe(_OnEmbeddings, ConceptMethod):
    """A linear head on the embeddings themselves; it names no concepts.

    Parameters and fitted attributes are those of `ConceptMethod`; `max_steps` has no effect.

    `pursue` gives empty supports and codes, and residual norms of NaN, so that one table holds all methods.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> LinearProbe(data.hierarchy).fit(data.X, data.y).pursue(data.X[:2]).supports
    [(), ()]
    """


class LDAClassifier(_OnEmbeddings):
    """Scikit-learn's linear discriminant analysis with a shrunk covariance, the shrinkage chosen as ours is.

    Parameters and fitted attributes are those of `ConceptEstimator`; `max_steps` has no effect.

    With one image per class there is no covariance within classes, and scikit-learn refuses: then the class of the
    nearest image in the metric of the total covariance is taken.

    Attributes
    ----------
    shrinkage_ : by held-out training images for the nearest class mean, from the same grid as `HCEPClassifier`'s
    """

    def _metric(self) -> tuple[Any, ...]:
        return "auto", MEAN_ANCHOR

    def _make_head(self, index: NDArray[np.intp]) -> Any:
        if len(index) == len(self.classes_):
            return KNeighborsClassifier(1)
        return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=self.shrinkage_)
