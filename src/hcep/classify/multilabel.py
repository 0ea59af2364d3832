"""Pictures with several labels: an indicator matrix in, a sum of rooted paths per picture, an indicator matrix out."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import average_precision_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep.classify.base import HierarchyLike
from hcep.classify.classifier import HCEPClassifier
from hcep.classify.objects import counted_rule, stopping_rule
from hcep.errors import HCEPError
from hcep.pursuit import PathSums, Stopping, search_several

#: Weight, in images, by which a class's embedding is held to the mean of the images that have it.
HELD = 0.1
#: Not chosen by leaving images out: those unmixed from one picture share what is left of it, so one tells of the other.
CHOSEN: dict[str, Any] = {"shrinkage": 0.6, "anchor": 0.3, "refine": False}
#: Paths of the sums whose shares rank classes.
RANKED = 3


class MultiLabelHCEP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label pictures of several objects by the sum of rooted paths that explains each.

    Encoders that average over a picture make one of k objects nearly the mean of k pictures. So class embeddings A are
    those of least squares, ``X ~ W A`` with W the rows of Y divided by their sums, and each picture stands for one of
    every label it has: the class's embedding plus what ``W A`` leaves of the picture, times ``sqrt(k)`` as averaging
    made that smaller. Pictures of one label stay as they are; a one-dimensional y is classified as by `HCEPClassifier`.

    Parameters
    ----------
    hierarchy : what `HCEPClassifier` takes
    labels : class of each column of Y, as the hierarchy has it. Needed with a hierarchy, unless Y is a data frame.
    n_paths : int or "auto"; most labels of a picture, see `hcep.pursuit.search_several`
    estimator : with options of its own; its hierarchy is not looked at. The default has a fixed metric and anchor.

    Attributes
    ----------
    classes_ : (n_classes,) array; the labels, in the order of the columns of Y
    model_, stopping_ : of single objects, fitted on the unmixed pictures; when "auto" adds no further path
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
        """Unmix the pictures and fit a classifier of single objects on them; y is an indicator matrix."""
        names = getattr(y, "columns", None) if self.labels is None else self.labels
        images, given = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True)
        given = given.ravel() if given.ndim == 2 and given.shape[1] == 1 else given
        self.multilabel_ = given.ndim == 2
        model = clone(self.estimator or HCEPClassifier(**(CHOSEN if self.multilabel_ else {})))
        model.set_params(hierarchy=self.hierarchy)
        if not self.multilabel_:
            self.model_ = model.fit(images, given)
            self.classes_, self._columns = self.model_.classes_, np.arange(len(self.model_.classes_))
        else:
            check_classification_targets(given)
            truth = self._checked_labels(given)
            self.classes_ = self._names(names, truth.shape[1])
            single, column, picture = unmixed(images, truth)
            self.model_ = model.fit(single, self.classes_.astype(str)[column])
            place = {str(label): i for i, label in enumerate(self.classes_.tolist())}
            self._columns = np.array([place[label] for label in self.model_.classes_.tolist()])
            index = np.searchsorted(self.model_.classes_, self.classes_.astype(str)[column])
            fitted = self.model_.path_model()
            self.stopping_ = counted_rule(fitted, single, index, picture, images)
            self.stopping_ = self.stopping_ or stopping_rule(fitted, single, index)
        return self

    @staticmethod
    def _checked_labels(y: NDArray[Any]) -> NDArray[np.bool_]:
        if type_of_target(y) not in ("multilabel-indicator", "binary"):
            raise HCEPError(f"y must be an indicator matrix of zeros and ones, got {type_of_target(y)} targets")
        truth: NDArray[np.bool_] = y.astype(bool)
        if not truth.any():
            raise HCEPError("y has no label at all: every row is zero")
        return truth

    def _names(self, names: Any, n_columns: int) -> NDArray[Any]:
        if names is None and self.hierarchy is not None:
            raise HCEPError("labels is missing: say which class of the hierarchy each column of y is")
        found = np.arange(n_columns) if names is None else np.asarray(names, dtype=str)
        if found.shape != (n_columns,) or len(np.unique(found)) < n_columns:
            raise HCEPError(f"labels must be {n_columns} distinct names, one per column of y; got {found.shape}")
        return found

    def pursue(self, X: ArrayLike, n_paths: int | Literal["auto"] | None = None, *, progress: bool = False) -> PathSums:
        """The sum of paths of each picture: which concepts, with what shares and coefficients."""
        images = self._checked(X)
        model, asked = self.model_.path_model(), self.n_paths if n_paths is None else n_paths
        stopping = getattr(self, "stopping_", None)
        return search_several(images, model.dictionary, model.options, asked, stopping=stopping, progress=progress)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Indicator matrix of the labels of each picture, (n_images, n_classes)."""
        images = self._checked(X)
        if not self.multilabel_:
            return self.model_.predict(images)
        return (self._shares(self.pursue(images)) > 0.0).astype(int)

    def label_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Score of every label, (n_images, n_classes), from 0 to 1, to rank pictures and labels by; no probability.

        The share of the class in a sum of three paths, whether or not the rule would stop before; of classes that are
        not in it, less than any share and by the probability of the class alone.
        """
        images = self._checked(X)
        alone = np.zeros((len(images), len(self.classes_)))
        alone[:, self._columns] = self.model_.infer(images).probabilities
        shares = self._shares(self.pursue(images, RANKED)) if self.multilabel_ else alone
        return np.where(shares > 0.0, shares, alone * 0.01)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """As `label_scores`, 1 less for labels that are not predicted: above 0 where they are."""
        found = self.label_scores(X)
        if not self.multilabel_:
            return found[:, 1] - 0.5 if found.shape[1] == 2 else found
        return np.where(self.predict(X) > 0, np.maximum(found, 1e-9), found - 1.0)

    def scores(self, X: ArrayLike, y: ArrayLike) -> dict[str, float]:
        """Mean F1 over pictures of the labels predicted, and mean average precision over labels that occur."""
        truth = self._checked_labels(np.asarray(y))
        guessed, ranked = self.predict(X).astype(bool), self.label_scores(X)
        occur = truth.any(axis=0)
        precision = average_precision_score(truth[:, occur], ranked[:, occur], average="macro")
        return {"example_f1": float(example_f1(truth, guessed).mean()), "average_precision": float(precision)}

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def _shares(self, found: PathSums) -> NDArray[np.float64]:
        """Share of every label, (n_images, n_classes)."""
        leaves, shares = self.model_.path_model().leaves, np.zeros((len(found), len(self.classes_)))
        place = dict(zip(leaves.tolist(), self._columns.tolist(), strict=True))
        for row, ends, own in zip(shares, found.leaves, found.shares, strict=True):
            for leaf, share in zip(ends, own, strict=False):
                row[place[leaf]] += share
        return shares

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        return tags


def unmixed(X: NDArray[Any], truth: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Pictures of single objects, one for each label of each picture, the label's column, and the picture's row."""
    labelled = np.flatnonzero(truth.any(axis=1))
    x, n_labels = X[labelled].astype(np.float64), truth[labelled].sum(axis=1, keepdims=True)
    weights = truth[labelled] / n_labels
    means = weights.T @ x / np.maximum(weights.sum(axis=0), 1e-12)[:, None]
    gram = weights.T @ weights + HELD * np.eye(weights.shape[1])
    classes = means + np.linalg.solve(gram, weights.T @ (x - weights @ means))
    rest = x - weights @ classes
    row, column = np.nonzero(truth[labelled])
    single = classes[column] + np.sqrt(n_labels[row]) * rest[row]
    alone = n_labels[row, 0] == 1
    single[alone] = x[row[alone]]
    if X.min() >= 0.0:  # features that are never negative stay so
        single = np.maximum(single, 0.0)
    return single.astype(X.dtype), column, labelled[row]


def example_f1(truth: NDArray[np.bool_], guessed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """F1 of the labels of each picture; 1 where there are none and none is guessed."""
    total = truth.sum(axis=1) + guessed.sum(axis=1)
    return np.asarray(np.where(total > 0, 2.0 * (truth & guessed).sum(axis=1) / np.maximum(total, 1), 1.0))
