"""Images with several labels: an indicator matrix in, a sum of rooted paths per image, an indicator matrix out."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep.classify.base import HierarchyLike
from hcep.classify.classifier import HCEPClassifier
from hcep.classify.objects import counted_rule, stopping_rule
from hcep.errors import HCEPError
from hcep.pursuit import PathSums, Stopping, search_several

#: Weight, in images, that keeps a class's embedding near the mean of the images with that label.
PRIOR_WEIGHT = 0.1
#: Options of the default estimator. They cannot be chosen by leaving images out: the objects unmixed from one image
#: share its residual, so that one tells about the other.
FIXED: dict[str, Any] = {"shrinkage": 0.6, "anchor": 0.3, "refine": False}
#: Number of paths in the sums whose shares rank the labels.
N_RANKED = 3


class MultiLabelHCEP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label images of several objects by the sum of rooted paths that explains each.

    An encoder that averages over an image makes the embedding of k objects nearly the mean of k embeddings. So the
    class embeddings A are the least-squares solution of ``X ~ W A``, with W the rows of Y divided by their sums, and
    each image stands for one object of every label it has: the class's embedding plus the residual of the image, times
    ``sqrt(k)`` because averaging made that smaller. Images with one label stay as they are. A one-dimensional y is
    classified as by `HCEPClassifier`.

    Parameters
    ----------
    hierarchy : as for `HCEPClassifier`
    labels : the class of each column of Y, a concept of the hierarchy; required with a hierarchy unless Y is a data
        frame
    n_paths : int or "auto"; most labels of an image, see `hcep.pursuit.search_several`
    estimator : an `HCEPClassifier` with options of its own; its hierarchy is ignored

    Attributes
    ----------
    classes_ : (n_classes,) array; the labels, in the order of the columns of Y
    model_ : the classifier of single objects, fitted on the unmixed images
    stopping_ : when "auto" adds no further path
    """

    classes_: NDArray[Any]
    model_: HCEPClassifier
    stopping_: Stopping | None
    n_features_in_: int

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
        *,
        labels: Sequence[str] | None = None,
        n_paths: int | Literal["auto"] = "auto",
        estimator: HCEPClassifier | None = None,
    ) -> None:
        self.hierarchy, self.labels, self.n_paths, self.estimator = hierarchy, labels, n_paths, estimator

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Unmix the images and fit a classifier of single objects on them; y is an indicator matrix."""
        names = getattr(y, "columns", None) if self.labels is None else self.labels
        images, targets = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True)
        targets = targets.ravel() if targets.ndim == 2 and targets.shape[1] == 1 else targets
        self.multilabel_, self.stopping_ = targets.ndim == 2, None
        model = clone(self.estimator or HCEPClassifier(**(FIXED if self.multilabel_ else {})))
        model.set_params(hierarchy=self.hierarchy)
        if self.multilabel_:
            check_classification_targets(targets)
            return self._fit_matrix(model, images, _indicators(targets), names)
        self.model_ = model.fit(images, targets)
        self.classes_, self._columns = self.model_.classes_, np.arange(len(self.model_.classes_))
        return self

    def _fit_matrix(self, model: HCEPClassifier, images: NDArray[Any], truth: NDArray[np.bool_], names: Any) -> Self:
        self.classes_ = self._names(names, truth.shape[1])
        objects, column, image = unmixed(images, truth)
        labels = self.classes_.astype(str)
        self.model_ = model.fit(objects, labels[column])
        place = {label: i for i, label in enumerate(labels.tolist())}
        self._columns = np.array([place[label] for label in self.model_.classes_.tolist()])
        fitted, own = self.model_.path_model(), np.searchsorted(self.model_.classes_, labels[column])
        counted = counted_rule(fitted, objects, own, image, images)
        self.stopping_ = stopping_rule(fitted, objects, own) if counted is None else counted
        return self

    def _names(self, names: Any, n_columns: int) -> NDArray[Any]:
        if names is None and self.hierarchy is not None:
            raise HCEPError("labels is missing: give the class of the hierarchy for each column of y")
        labels = np.arange(n_columns) if names is None else np.asarray(names, dtype=str)
        if labels.shape != (n_columns,) or len(np.unique(labels)) < n_columns:
            raise HCEPError(f"labels must be {n_columns} distinct names, one per column of y; got {labels.shape}")
        return labels

    def pursue(self, X: ArrayLike, n_paths: int | Literal["auto"] | None = None, *, progress: bool = False) -> PathSums:
        """Return the sum of paths of each image: its concepts, their shares and coefficients."""
        images, model = self._checked(X), self.model_.path_model()
        most = self.n_paths if n_paths is None else n_paths
        return search_several(images, model.dictionary, model.options, most, stopping=self.stopping_, progress=progress)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the indicator matrix of the labels of each image, (n_images, n_classes)."""
        images = self._checked(X)
        if not self.multilabel_:
            return self.model_.predict(images)
        return (self._shares(self.pursue(images)) > 0.0).astype(int)

    def label_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return a score of every label, (n_images, n_classes), from 0 to 1, to rank by; it is not a probability.

        The score is the share of the class in a sum of three paths, whether or not the rule would stop before. A class
        that is not in the sum scores less than any share, by its probability as a single object.
        """
        images = self._checked(X)
        alone = np.zeros((len(images), len(self.classes_)))
        alone[:, self._columns] = self.model_.infer(images).probabilities
        shares = self._shares(self.pursue(images, N_RANKED)) if self.multilabel_ else alone
        return np.where(shares > 0.0, shares, alone * 0.01)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return `label_scores`, less 1 for labels that are not predicted, so that predicted labels are above 0."""
        scores = self.label_scores(X)
        if not self.multilabel_:
            return scores[:, 1] - 0.5 if scores.shape[1] == 2 else scores
        return np.where(self.predict(X) > 0, np.maximum(scores, 1e-9), scores - 1.0)

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def _shares(self, sums: PathSums) -> NDArray[np.float64]:
        """Share of every label in the sums, (n_images, n_classes)."""
        leaves, shares = self.model_.path_model().leaves, np.zeros((len(sums), len(self.classes_)))
        place = dict(zip(leaves.tolist(), self._columns.tolist(), strict=True))
        for row, ends, parts in zip(shares, sums.leaves, sums.shares, strict=True):
            for leaf, share in zip(ends, parts, strict=False):
                row[place[leaf]] += share
        return shares

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        return tags


def _indicators(y: NDArray[Any]) -> NDArray[np.bool_]:
    if type_of_target(y) not in ("multilabel-indicator", "binary"):
        raise HCEPError(f"y must be an indicator matrix of zeros and ones, got {type_of_target(y)} targets")
    truth: NDArray[np.bool_] = y.astype(bool)
    if not truth.any():
        raise HCEPError("y has no label: every row is zero")
    return truth


def unmixed(X: NDArray[Any], truth: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Single objects, one for each label of each image; the column of each label, and the row of each image."""
    labelled = np.flatnonzero(truth.any(axis=1))
    x, n_labels = X[labelled].astype(np.float64), truth[labelled].sum(axis=1, keepdims=True)
    weights = truth[labelled] / n_labels
    means = weights.T @ x / np.maximum(weights.sum(axis=0), 1e-12)[:, None]
    gram = weights.T @ weights + PRIOR_WEIGHT * np.eye(weights.shape[1])
    classes = means + np.linalg.solve(gram, weights.T @ (x - weights @ means))
    residuals = x - weights @ classes
    row, column = np.nonzero(truth[labelled])
    objects = classes[column] + np.sqrt(n_labels[row]) * residuals[row]
    alone = n_labels[row, 0] == 1
    objects[alone] = x[row[alone]]
    if X.min() >= 0.0:  # features that are never negative stay so
        objects = np.maximum(objects, 0.0)
    return objects.astype(X.dtype), column, labelled[row]
