"""What all baselines share: a dictionary over a hierarchy, a code an image, a linear head on the codes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep._checks import require_positive
from hcep.classify.heads import HeadKind, fit_head, require_head
from hcep.classify.training import checked_training, class_hierarchy, class_leaves
from hcep.dictionary import ConceptDictionary
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.graph import TreePolicy
from hcep.pursuit import FlatResult, PathResult

Result = PathResult | FlatResult


class ConceptMethod(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the baselines: ``fit``, ``pursue`` (codes and supports), ``predict``, ``predict_proba``, ``score``.

    Parameters
    ----------
    hierarchy : Hierarchy, optional
        A rooted DAG that contains every class in y; it is restricted to them. None is a flat one.
    tree : {"first", "shortest", "longest"} or None
        Keep one parent a synset (see `Hierarchy.as_tree`); None keeps the DAG.
    collapse : bool
        Merge single-child chains, whose atoms are zero.
    unit_norm, center : bool
        Done to every embedding first.
    max_steps : int, optional
        Most atoms a code may use; the depth of the hierarchy by default.
    head : {"logistic", "adamw"}
        What predicts the class from a code (see `hcep.classify.heads.fit_head`).
    C, max_iter
        Of the logistic head.
    epochs, batch_size, random_state
        Of the head "adamw".
    n_jobs : int, optional
        Threads of the pursuit.

    Attributes
    ----------
    classes_ : (n_classes,) array
    hierarchy_ : Hierarchy
        Restricted to the classes and collapsed.
    dictionary_ : ConceptDictionary
    head_ : object or None
        None where there is one class only, or the method has no head.
    n_iter_ : int
        Iterations of the head.

    Notes
    -----
    A method is a subclass with ``_code``; where it has more to fit than the dictionary, with ``_fit_method`` as well.
    """

    classes_: NDArray[Any]
    hierarchy_: Hierarchy
    dictionary_: ConceptDictionary
    head_: Any
    n_iter_: int
    n_features_in_: int

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        *,
        tree: TreePolicy | None = None,
        collapse: bool = True,
        unit_norm: bool = False,
        center: bool = False,
        max_steps: int | None = None,
        head: HeadKind = "logistic",
        C: float = 1.0,
        max_iter: int = 1000,
        epochs: int = 500,
        batch_size: int = 4096,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self.tree = tree
        self.collapse = collapse
        self.unit_norm = unit_norm
        self.center = center
        self.max_steps = max_steps
        self.head = head
        self.C = C
        self.max_iter = max_iter
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Build the dictionary, fit what the method needs, fit the head on the codes of the training images."""
        self._check_options()
        images, index, self.classes_ = checked_training(self, X, y)
        self.hierarchy_ = class_hierarchy(self.hierarchy, self.classes_, self.tree, self.collapse)
        self._leaves = class_leaves(self.hierarchy_, self.classes_)
        self.dictionary_ = ConceptDictionary.from_images(
            self.hierarchy_, images, self._leaves[index], unit_norm=self.unit_norm, center=self.center
        )
        self._fit_method(images, index)
        self.head_, self.n_iter_ = None, 1
        if len(self.classes_) > 1:
            self._fit_head(images, index)
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

    def _check_options(self) -> None:
        require_positive("max_steps", self.max_steps, "the depth of the hierarchy")
        require_head(self.head)

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        """Fit what the method needs beside the dictionary."""

    def _code(self, images: NDArray[Any]) -> Result:
        raise NotImplementedError

    def _head_input(self, images: NDArray[Any]) -> Any:
        """What the head sees of checked images: their codes."""
        return self._code(images).codes

    def _fit_head(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        self.head_ = fit_head(
            self.head,
            self._head_input(images),
            index,
            C=self.C,
            max_iter=self.max_iter,
            epochs=self.epochs,
            batch_size=self.batch_size,
            random_state=self.random_state,
        )
        self.n_iter_ = int(self.head_.n_iter_.max())

    @property
    def _n_atoms_kept(self) -> int:
        return min(self.max_steps or self.hierarchy_.depth, self.dictionary_.n_atoms)

    def _checked_images(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "dictionary_")
        images: NDArray[Any] = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return images
