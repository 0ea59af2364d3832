"""Every metric of every image: `score_images`, which returns `ImageScores`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, near_matches, quote
from hcep.evaluate.statistics import expected_calibration_error, mean_known
from hcep.evaluate.support import lca_heights, path_columns, supports_of, tree_distances
from hcep.evaluate.truths import Truths, as_labels, class_index
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Columns = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class ImageScores:
    """Metrics of a batch of images, one value per image.

    Attributes
    ----------
    labels : true class of each image, or the concept that is known; ``oak|beech`` if either is right
    predicted : predicted class of each image, or None without predictions
    columns : each metric by name, (n_images,); NaN for images without a value. docs/metrics.md defines the metrics
    """

    labels: tuple[str, ...]
    predicted: tuple[str, ...] | None
    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, name: str) -> Floats:
        """Return the values of one metric, (n_images,)."""
        try:
            return self.columns[name]
        except KeyError:
            raise HCEPError(f"there is no metric {quote(name)}.{near_matches(name, self.columns)}") from None

    def summary(self) -> dict[str, float]:
        """Return the mean of every metric over the images that have a value, and ``ece``; NaN if no image has one."""
        means = {name: mean_known(values) for name, values in self.columns.items()}
        return {**means, "ece": expected_calibration_error(self.exact_confidence, self["correct"])}

    @property
    def exact_confidence(self) -> Floats:
        """The confidence of images that are labelled with a class, and NaN for others.

        An answer to an image with a coarse truth is right more often than its probability says.
        """
        known = self.columns.get("coarse", np.zeros(len(self)))
        return np.where(known == 0.0, self["confidence"], np.nan)

    @property
    def n_coarse(self) -> int:
        """Number of images whose truth is above the classes."""
        return int(np.nansum(self.columns.get("coarse", 0.0)))

    @property
    def n_unlabelled(self) -> int:
        """Number of images that are labelled with the root and have no scores."""
        return int(np.isnan(self.columns.get("coarse", 0.0)).sum())

    def take(self, images: ArrayLike) -> ImageScores:
        """Return the scores of the images at these indices, or of those in a mask."""
        chosen = np.arange(len(self))[np.asarray(images)]
        return ImageScores(
            tuple(self.labels[i] for i in chosen),
            None if self.predicted is None else tuple(self.predicted[i] for i in chosen),
            {name: values[chosen] for name, values in self.columns.items()},
        )

    def to_table(self, ids: Sequence[str] | None = None) -> pa.Table:
        """Return a pyarrow table with a row per image: id (if passed), label, prediction and every metric, or null."""
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
    top_k: Sequence[int] = (1, 5),
) -> ImageScores:
    """Score supports and predicted classes against the truths; docs/metrics.md defines the metrics.

    A truth may be a concept above the classes, or several concepts: `hcep.evaluate.truths` has the rule.

    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> scores = score_images([("animal", "cat"), ("animal", "dog")], ["cat", "cat"], h, predicted=["cat", "dog"])
    >>> scores["support_f1"], scores["prefix_1"], scores["prefix_2"], scores["tree_distance"]
    (array([1. , 0.5]), array([1., 1.]), array([1., 0.]), array([nan,  2.]))
    >>> scores.summary()["correct"]
    0.5

    Parameters
    ----------
    result : PathResult, FlatResult, or sequence of tuples of synset ids; the supports
    y : (n_images,) labels; true classes, concepts above them, or lists of concepts of which one is right
    hierarchy : the hierarchy of the supports (``estimator.hierarchy_`` or ``dictionary.hierarchy``)
    predicted : (n_images,) array of str; predicted classes (default: the most probable ones)
    probabilities : (n_images, n_classes) array, for top-k and confidence
    classes : (n_classes,) array of str; the classes of the columns of `probabilities`
    """
    truths = Truths(y, hierarchy)
    supports, labels = supports_of(result, len(truths)), truths.labels
    table, names = _checked_probabilities(probabilities, classes, len(labels))
    answers = None if table is None else [names[i] for i in np.argmax(table, axis=1)]
    if predicted is not None:
        answers = as_labels(predicted, "predicted")
        if len(answers) != len(labels):
            raise HCEPError(
                f"predicted has {len(answers):,} labels and y has {len(labels):,}; pass one label per image"
            )
    columns = _label_columns(truths, answers, table, names, top_k)
    wrong = np.flatnonzero(columns["correct"] == 0.0)
    for name, measure in (("tree_distance", tree_distances), ("lca_height", lca_heights)):
        columns[name] = np.full(len(labels), np.nan)
        if answers is not None and len(wrong):
            pairs = [(concept, answers[i]) for i in wrong for concept in truths.concepts[i]]
            first = np.cumsum([0, *(len(truths.concepts[i]) for i in wrong[:-1])])
            costs = measure([truth for truth, _ in pairs], [answer for _, answer in pairs], hierarchy)
            columns[name][wrong] = np.minimum.reduceat(costs, first)
    columns["answer_distance"] = np.where(columns["correct"] == 1.0, 0.0, columns["tree_distance"])
    columns |= path_columns(supports, truths.concepts, hierarchy)
    columns["n_atoms"] = np.array([len(support) for support in supports], dtype=np.float64)
    selected = getattr(result, "selected", None)
    if selected is not None and np.shape(selected)[1] == 0:  # a black box has no supports at all
        columns |= {name: np.full(len(labels), np.nan) for name in (*path_columns([], [], hierarchy), "n_atoms")}
    columns["coarse"] = truths.coarse
    unlabelled = np.isnan(truths.coarse)
    columns = {name: np.where(unlabelled, np.nan, values) for name, values in columns.items()}
    return ImageScores(labels, None if answers is None else tuple(answers), columns)


def _checked_probabilities(
    probabilities: ArrayLike | None, classes: ArrayLike | None, n_images: int
) -> tuple[Floats | None, list[str]]:
    """Return the probabilities as an array, and the classes of its columns; (None, []) without probabilities."""
    if probabilities is None:
        return None, []
    if classes is None:
        raise HCEPError("classes is missing: pass the class of each column of probabilities")
    table, names = np.asarray(probabilities, dtype=np.float64), as_labels(classes, "classes")
    if table.shape != (n_images, len(names)):
        raise HCEPError(
            f"probabilities must have a row per image and a column per class, ({n_images:,}, {len(names):,}); "
            f"got shape {table.shape}"
        )
    return table, names


def _label_columns(
    truths: Truths, answers: list[str] | None, table: Floats | None, names: list[str], top_k: Sequence[int]
) -> Columns:
    """Return accuracy, top-k and the probability of the predicted class; NaN if they are not known."""
    for k in top_k:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise HCEPError(f"top_k must hold positive integers, got {quote(k)}")
    columns = {name: np.full(len(truths), np.nan) for name in ("correct", *(f"top_{k}" for k in top_k), "confidence")}
    if answers is not None:
        columns["correct"] = truths.correct(answers)
    if table is not None:
        ranks = true_class_ranks(table, truths.true_columns(table, names))
        columns |= {f"top_{k}": (ranks <= k).astype(np.float64) for k in top_k}
    if table is not None and answers is not None:
        index = class_index(answers, names)
        own = np.take_along_axis(table, np.maximum(index, 0)[:, None], axis=1)[:, 0]
        columns["confidence"] = np.where(index >= 0, own, np.nan)
    return columns


def true_class_ranks(probabilities: Floats, true_index: NDArray[np.intp]) -> Floats:
    """Return the rank of each image's true class, 1 for the most probable; ties go to the lower index."""
    own = np.take_along_axis(probabilities, np.maximum(true_index, 0)[:, None], axis=1)
    before = np.arange(probabilities.shape[1]) < true_index[:, None]
    ahead = (probabilities > own) | ((probabilities == own) & before)
    return np.where(true_index >= 0, 1.0 + ahead.sum(axis=1), np.inf)
