"""What all baselines share: a dictionary over a hierarchy, a code per image, a linear head on the codes."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from hcep.classify.base import ConceptEstimator, HierarchyLike
from hcep.classify.heads import make_head, n_iterations
from hcep.pursuit import FlatResult, PathResult

Result = PathResult | FlatResult


class CodeClassifier(ClassifierMixin, ConceptEstimator):  # type: ignore[misc]
    """Base of the baselines: ``fit``, ``pursue`` (codes and supports), ``predict``, ``predict_proba``, ``score``.

    A method is a subclass with ``_code``; where it has more to fit than the dictionary, with ``_fit_method`` as well;
    where a classifier sees its codes, with ``_make_head``. Parameters and fitted attributes are those of
    `ConceptEstimator`, and ``head_``: None where there is one class only, or the method has no head.
    """

    head_: Any
    n_iter_: int

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the dictionary, fit what the method needs, fit the head on the codes of the training images."""
        images, index = self._fit_dictionary(X, y, *self._metric())
        self._fit_method(images, index)
        head = self._make_head(index) if len(self.classes_) > 1 else None
        self.head_ = None if head is None else head.fit(self._head_input(images), index)
        self.n_iter_ = n_iterations(self.head_)
        return self

    def pursue(self, X: ArrayLike) -> Result:
        """Codes and supports of new images."""
        return self._code(self._checked_images(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each image."""
        images = self._checked_images(X)
        if self.head_ is None:
            return np.repeat(self.classes_, len(images))
        return self.classes_[np.asarray(self.head_.predict(self._head_input(images)), dtype=np.intp)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes)."""
        images = self._checked_images(X)
        if self.head_ is None:
            return np.ones((len(images), 1))
        return np.asarray(self.head_.predict_proba(self._head_input(images)))

    def _metric(self) -> tuple[Any, ...]:
        """Shrinkage and anchor of the dictionary, and what else `_fit_dictionary` takes."""
        return None, 0.0

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        """Fit what the method needs beside the dictionary."""

    def _make_head(self, index: NDArray[np.intp]) -> Any:
        """The unfitted classifier on the codes, or None."""
        return None

    def _code(self, images: NDArray[Any]) -> Result:
        raise NotImplementedError

    def _head_input(self, images: NDArray[Any]) -> Any:
        """What the head sees of checked images: their codes."""
        return self._code(images).codes

    @property
    def _n_atoms_kept(self) -> int:
        return min(self.max_steps or self.hierarchy_.depth, self.dictionary_.n_atoms)


class ConceptMethod(CodeClassifier):
    """A baseline with a head to choose.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, max_steps, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    head : {"logistic", "adamw"} or a scikit-learn classifier
        What predicts the class from a code; a classifier that is given is cloned.
    """

    def __init__(self, hierarchy: HierarchyLike | None = None, *, head: Any = "logistic", **shared: Any) -> None:
        super().__init__(hierarchy, **shared)
        self.head = head

    def _make_head(self, index: NDArray[np.intp]) -> Any:
        return make_head(self.head)
