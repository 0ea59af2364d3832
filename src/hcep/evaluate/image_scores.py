"""Every metric of every image in one place: `score_images`, and the `ImageScores` it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, near_matches
from hcep.evaluate.calibration import expected_calibration_error
from hcep.evaluate.energy import energy_columns
from hcep.evaluate.label_scores import checked_predictions, checked_probabilities, label_columns
from hcep.evaluate.labels import as_labels
from hcep.evaluate.path_scores import path_columns
from hcep.evaluate.support import as_supports
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class ImageScores:
    """Metrics of a batch of images, one value an image.

    Attributes
    ----------
    labels : tuple of str
        True class of each image.
    predicted : tuple of str, or None
        Predicted class of each image, where predictions were given.
    columns : mapping of str to (n_images,) float64
        Each metric by name (docs/metrics.md defines them); NaN where it is not defined for an image.
    """

    labels: tuple[str, ...]
    predicted: tuple[str, ...] | None
    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Values of one metric, (n_images,)."""
        try:
            return self.columns[name]
        except KeyError:
            raise HCEPError(f"there is no metric {name!r}.{near_matches(name, self.columns)}") from None

    def summary(self) -> dict[str, float]:
        """Mean of every metric over the images it is defined for, and ``ece``; NaN where it is defined for none."""
        means = {name: _mean(values) for name, values in self.columns.items()}
        return {**means, "ece": expected_calibration_error(self["confidence"], self["correct"])}

    def take(self, images: ArrayLike) -> ImageScores:
        """The scores of some images, by index or mask."""
        chosen = np.arange(len(self))[np.asarray(images)]
        return ImageScores(
            tuple(self.labels[i] for i in chosen),
            None if self.predicted is None else tuple(self.predicted[i] for i in chosen),
            {name: values[chosen] for name, values in self.columns.items()},
        )

    def to_table(self, ids: Sequence[str] | None = None) -> pa.Table:
        """The scores as a pyarrow table, a row an image: id (where given), label, predicted, then every metric.

        What is not defined is null.
        """
        import pyarrow as pa

        columns: dict[str, Any] = {} if ids is None else {"id": pa.array([str(i) for i in ids], pa.string())}
        columns["label"] = pa.array(self.labels, pa.string())
        if self.predicted is not None:
            columns["predicted"] = pa.array(self.predicted, pa.string())
        columns |= {name: pa.array(values, from_pandas=True) for name, values in self.columns.items()}
        return pa.table(columns)

    def __repr__(self) -> str:
        return f"ImageScores({len(self):,} images, {len(self.columns)} metrics)"


def score_images(
    result: Any,
    y: ArrayLike,
    hierarchy: Hierarchy,
    *,
    predicted: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    X: ArrayLike | None = None,
    top_k: Sequence[int] = (1, 5),
) -> ImageScores:
    """Score recovered supports and predicted classes against the true classes, image by image.

    Parameters
    ----------
    result : PathResult, FlatResult, or sequence of tuples of synset ids
        What a pursuit found.
    y : (n_images,) array of str
        True classes.
    hierarchy : Hierarchy
        The one the supports come from (``estimator.hierarchy_``, ``dictionary.hierarchy``).
    predicted : (n_images,) array of str, optional
        Predicted classes; the most probable ones where only `probabilities` are given.
    probabilities : (n_images, n_classes) array, optional
        For top-k and confidence.
    classes : (n_classes,) array of str
        What the columns of `probabilities` stand for.
    X : (n_images, n_dims) array, optional
        The raw embeddings, for reconstruction error and explained energy.
    top_k : sequence of int

    Returns
    -------
    ImageScores
        docs/metrics.md defines the columns.

    Raises
    ------
    HCEPError
        Different lengths, probabilities without classes, ids that are not in the hierarchy.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.evaluate import score_images
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> scores = score_images([("animal", "cat"), ("animal", "dog")], ["cat", "cat"], h, predicted=["cat", "dog"])
    >>> scores["support_f1"], scores["prefix_1"], scores["prefix_2"], scores["tree_distance"]
    (array([1. , 0.5]), array([1., 1.]), array([1., 0.]), array([nan,  2.]))
    >>> scores.summary()["correct"]
    0.5
    """
    labels, supports = as_labels(y, "y"), as_supports(result)
    if len(supports) != len(labels):
        raise HCEPError(f"{len(supports):,} supports but {len(labels):,} labels; give one label a support")
    table, names = checked_probabilities(probabilities, classes, len(labels))
    answers = checked_predictions(predicted, table, names, len(labels))
    columns = label_columns(labels, answers, table, names, hierarchy, top_k)
    columns |= path_columns(supports, labels, hierarchy)
    columns["n_atoms"] = np.array([len(support) for support in supports], dtype=np.float64)
    if not _names_concepts(result):
        columns |= {name: np.full(len(labels), np.nan) for name in (*path_columns([], [], hierarchy), "n_atoms")}
    columns |= energy_columns(result, X, len(labels), hierarchy.depth)
    return ImageScores(tuple(labels), None if answers is None else tuple(answers), columns)


def evaluate_method(estimator: Any, X: ArrayLike, y: ArrayLike, *, top_k: Sequence[int] = (1, 5)) -> ImageScores:
    """Score a fitted classifier on labelled images.

    Parameters
    ----------
    estimator : classifier with ``pursue``, ``predict_proba``, ``classes_`` and ``hierarchy_``
        `HCEPClassifier` or a method of `hcep.classify.methods`. Its prediction is the most probable class; one without
        ``predict_proba`` is asked to ``predict``.
    X : (n_images, n_dims) array
        Raw embeddings.
    y : (n_images,) array of str
    top_k : sequence of int

    Examples
    --------
    >>> from hcep import HCEPClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> from hcep.evaluate import evaluate_method
    >>> data = make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=1e-4)
    >>> scores = evaluate_method(HCEPClassifier(data.hierarchy).fit(data.X, data.y), data.X, data.y)
    >>> scores.summary()["one_path"]
    1.0
    """
    result, hierarchy = estimator.pursue(X), estimator.hierarchy_
    if not hasattr(estimator, "predict_proba"):
        return score_images(result, y, hierarchy, predicted=estimator.predict(X), X=X, top_k=top_k)
    # The most probable class is the predicted one; asking for both would search every image once more.
    probabilities = estimator.predict_proba(X)
    return score_images(result, y, hierarchy, probabilities=probabilities, classes=estimator.classes_, X=X, top_k=top_k)


def _names_concepts(result: Any) -> bool:
    """Whether a method has supports at all: a black box has a flat result without room for an atom."""
    selected = getattr(result, "selected", None)
    return selected is None or np.shape(selected)[1] > 0


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
