"""The one grader: methods fitted, timed and scored on the same images, with paired tests; and with a little help."""

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hcep.errors import HCEPError, MissingExtraError, quoted
from hcep.evaluate.compare import DEFAULT_COLUMNS, compare_scores
from hcep.evaluate.image_scores import ImageScores, score_estimator
from hcep.evaluate.statistics import bootstrap_interval, paired_bootstrap
from hcep.evaluate.support import as_labels
from hcep.evaluate.table import ScoreTable
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import PathLimits

#: Raw embeddings and their classes.
Labelled = tuple[ArrayLike, ArrayLike]
#: Columns of a row that get an interval over the images.
INTERVALS = ("correct", "support_precision", "support_recall", "support_f1", "ece")
#: What a column is called in a row, where that is not its name.
TITLES = {"correct": "accuracy"}
#: Images a speed is measured on, at least; fewer are repeated.
N_TIMED = 4096


@dataclass(frozen=True, eq=False)
class Graded:
    """One fitted method on labelled images."""

    estimator: Any  # fitted classifier
    scores: ImageScores
    result: Any  # what it found in the images
    #: fit_seconds, seconds: of fitting (0 where it came fitted), and of searching and scoring the images
    fit_seconds: float
    seconds: float

    def row(self, n_resamples: int = 500) -> dict[str, Any]:
        """Means of all metrics (``correct`` as ``accuracy``), with ``_low`` and ``_high`` for the main ones."""
        table = compare_scores({"": self.scores}, columns=INTERVALS, n_resamples=n_resamples)
        row = {TITLES.get(name, name): mean for name, mean in self.scores.summary().items()}
        for score in table.scores:
            name = TITLES.get(score.metric, score.metric)
            row[f"{name}_low"], row[f"{name}_high"] = score.low, score.high
        return {**row, "fit_seconds": self.fit_seconds, "evaluate_seconds": self.seconds}

    def speed(self, X: ArrayLike, repeats: int = 3) -> float:
        """Images that are searched per second, median of some repeats; kernels are compiled by now."""
        images = np.asarray(X)
        many = np.tile(images, (-(-N_TIMED // len(images)), 1))
        return len(many) / median(timed(lambda: self.estimator.pursue(many))[1] for _ in range(repeats))


@dataclass
class Grades:
    """Methods on the same images, by label."""

    graded: dict[str, Graded] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # dict of label to reason; methods that could not run
    warnings: dict[str, list[str]] = field(default_factory=dict)  # dict of text to labels; who warned of what

    def table(self, columns: Sequence[str] = DEFAULT_COLUMNS, reference: str | None = None) -> ScoreTable:
        """Means with intervals, and paired tests against a reference (the first by default)."""
        return compare_scores({label: one.scores for label, one in self.graded.items()}, reference, columns)


def grade(
    estimator: Any,
    test: Labelled,
    train: Labelled | None = None,
    *,
    top_k: Sequence[int] = (1, 5),
    energy: bool = True,
    hierarchy: Hierarchy | None = None,
) -> Graded:
    """Fit one method where training images are given, and score it.

    Parameters
    ----------
    estimator : classifier; as `evaluate_method` takes; fitted where `train` is None
    test, train : (X, y); raw embeddings and classes
    energy : whether reconstruction error and explained energy are measured too
    hierarchy : what supports and mistakes are scored against; the estimator's own by default
    """
    fit_seconds = 0.0 if train is None else timed(lambda: estimator.fit(*train))[1]
    options: dict[str, Any] = {"top_k": top_k, "energy": energy, "hierarchy": hierarchy}
    (scores, result), seconds = timed(lambda: score_estimator(estimator, *test, **options))
    return Graded(estimator, scores, result, fit_seconds, seconds)


def grade_methods(
    methods: Mapping[str, Any],
    test: Labelled,
    train: Labelled | None = None,
    *,
    optional: Collection[str] = (),
    top_k: Sequence[int] = (1, 5),
    on_method: Callable[[str], None] = lambda label: None,
) -> Grades:
    """Grade several methods on the same images.

    Parameters
    ----------
    methods : mapping of label to estimator; one that is not fitted is fitted on `train`
    test, train : (X, y)
    optional : labels; what is skipped, with the reason, where it cannot run; any other method that cannot is an error
    on_method : callable; called with each label before its turn
    """
    grades = Grades()
    for label, estimator in methods.items():
        on_method(label)
        try:
            # Several methods warn of the same atoms: each text is kept once.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                own = None if hasattr(estimator, "classes_") else train
                grades.graded[label] = grade(estimator, test, own, top_k=top_k)
        except (HCEPError, MissingExtraError) as error:
            if label not in optional:
                raise
            grades.skipped[label] = str(error)
            continue
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            grades.warnings.setdefault(text, []).append(label)
    return grades


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


class Corrected(NamedTuple):
    """Accuracy with some levels corrected, and what the last of them brought; each with a 95 % bootstrap interval."""

    n_levels: int
    accuracy: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def intervention_curve(estimator: Any, X: ArrayLike, y: ArrayLike) -> list[Corrected]:
    """Accuracy of a fitted classifier after 0, 1, 2, … levels of each image's path are forced to the true ones.

    `X`: (n_images, n_dims) raw embeddings. `y`: (n_images,) labels, all of them classes of the estimator.
    """
    model, labels, images = estimator.path_model(), as_labels(y, "y"), np.asarray(X)
    position = {str(c): i for i, c in enumerate(model.classes.tolist())}
    unknown = sorted(set(labels) - set(position))
    if unknown:
        raise HCEPError(f"y: {quoted(unknown)} are no classes of the model")
    truth, tree, curve = np.array([position[label] for label in labels]), model.hierarchy.path_tree, []
    above = tree.ancestors()
    ends = [np.flatnonzero(tree.synset == model.hierarchy.index(leaf)) for leaf in model.leaves.tolist()]
    before = np.zeros(len(truth))
    for k in range(tree.depth + 1):
        # The true concept at level k of each of the class's paths, or its leaf where that is higher.
        nodes = [np.where(above[some, k - 1] >= 0, above[some, k - 1], some) for some in ends] if k else []
        limits = PathLimits.through(model.hierarchy, nodes, truth) if k else None
        correct = (model.predict(images, limits) == truth).astype(float)
        gained = paired_bootstrap(correct, before if k else correct)
        curve.append(Corrected(k, *bootstrap_interval(correct), *gained[:3]))
        before = correct
    return curve


def limited(estimator: Any, limits: PathLimits) -> Any:
    """A fitted classifier that keeps to limits, for the images that they are of: to be graded as it answers then."""
    own = copy(estimator)
    own.infer = partial(estimator.path_model().infer, limits=limits)
    return own
