"""Baselines with a linear head: what they share, flat OMP, and two that see the embeddings instead of codes."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from hcep.classify.base import ConceptEstimator, HierarchyLike
from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.heads import make_head, n_iterations
from hcep.pursuit import FlatResult, PathResult, omp

Result = PathResult | FlatResult


class CodeClassifier(ClassifierMixin, ConceptEstimator):  # type: ignore[misc]
    """Base of the baselines: ``fit``, ``pursue`` (codes and supports), ``predict``, ``predict_proba``, ``score``.

    A subclass implements ``code``. It can also override ``fit_method`` to fit more than the dictionary, and
    ``make_head`` to put a classifier on its codes. Parameters and fitted attributes are those of `ConceptEstimator`,
    plus ``head_``, which is None for a single class or a method without a head.
    """

    head_: Any
    n_iter_: int

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the dictionary, fit the method, and fit the head on the codes of the training images."""
        training = self._fit_dictionary(X, y, *self._metric())
        images, index = training.images, training.own
        self.fit_method(images, index)
        head = self.make_head(index) if len(self.classes_) > 1 else None
        self.head_ = None if head is None else head.fit(self.head_input(images), index)
        self.n_iter_ = n_iterations(self.head_)
        return self

    def pursue(self, X: ArrayLike) -> Result:
        """Return the codes and supports of new images, (n_images, n_dims)."""
        return self.code(self._checked_images(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each image, (n_images,)."""
        images = self._checked_images(X)
        if self.head_ is None:
            return np.repeat(self.classes_, len(images))
        return self.classes_[np.asarray(self.head_.predict(self.head_input(images)), dtype=np.intp)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, (n_images, n_classes)."""
        images = self._checked_images(X)
        if self.head_ is None:
            return np.ones((len(images), 1))
        return np.asarray(self.head_.predict_proba(self.head_input(images)))

    def _metric(self) -> tuple[Any, ...]:
        """Arguments of `_fit_dictionary` after the labels: shrinkage, anchor, and so on."""
        return None, 0.0

    def fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        """Fit what the method needs besides the dictionary."""

    def make_head(self, index: NDArray[np.intp]) -> Any:
        """Return the unfitted classifier on the codes, or None."""
        return None

    def code(self, images: NDArray[Any]) -> Result:
        """Return the codes and supports of checked images, as `hcep.hb_omp` or `hcep.omp` returns them."""
        raise NotImplementedError

    def head_input(self, images: NDArray[Any]) -> Any:
        """Return what the head sees: the codes, unless a subclass says otherwise."""
        return self.code(images).codes

    @property
    def _n_atoms_kept(self) -> int:
        return min(self.max_steps or self.hierarchy_.depth, self.dictionary_.n_atoms)


class ConceptMethod(CodeClassifier):
    """A baseline whose head can be chosen.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    head : {"logistic", "adamw"} or a scikit-learn classifier
        Predicts the class from a code. A classifier is cloned before it is fitted.
    """

    def __init__(self, hierarchy: HierarchyLike | None = None, *, head: Any = "logistic", **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.head = head

    def make_head(self, index: NDArray[np.intp]) -> Any:
        return make_head(self.head)


class OMPClassifier(ConceptMethod):
    """Orthogonal matching pursuit over all atoms, then a linear head: the paper's flat baseline."""

    def code(self, images: NDArray[Any]) -> FlatResult:
        return omp(images, self.dictionary_, self._n_atoms_kept, n_jobs=self.n_jobs)


class _OnEmbeddings(CodeClassifier):
    """A method whose head sees the embeddings; its codes are empty and its residuals NaN."""

    def code(self, images: NDArray[Any]) -> FlatResult:
        codes = sparse.csr_array((len(images), self.dictionary_.n_atoms), dtype=images.dtype)
        nothing = np.zeros((len(images), 0), dtype=np.int32)
        return FlatResult(self.dictionary_, codes, np.full(len(images), np.nan), nothing)

    def head_input(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.dictionary_.embed(images)


class LinearProbe(_OnEmbeddings, ConceptMethod):
    """A linear head on the embeddings: a black box that names no concepts. `max_steps` has no effect."""


class LDAClassifier(_OnEmbeddings):
    """Linear discriminant analysis from scikit-learn, with a shrunk covariance: a black box.

    Its ``shrinkage_`` is the one at which the nearest class mean is most accurate on held-out training images, from the
    grid of `HCEPClassifier`. With one image per class there is no covariance within classes; the classifier then
    predicts the class of the nearest training image in the metric of the total covariance. `max_steps` has no effect.
    """

    def _metric(self) -> tuple[Any, ...]:
        return "auto", MEAN_ANCHOR

    def make_head(self, index: NDArray[np.intp]) -> Any:
        if len(index) == len(self.classes_):
            return KNeighborsClassifier(1)
        return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=self.shrinkage_)
