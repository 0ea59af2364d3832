"""The one grader: fit and score methods on the same images; and score a model whose paths are corrected."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hcep.classify import hedging
from hcep.classify.decoding import DECODERS
from hcep.errors import HCEPError, MissingExtraError, quoted
from hcep.evaluate.compare import RunningScores
from hcep.evaluate.image_scores import ImageScores, score_images
from hcep.evaluate.statistics import mean_interval
from hcep.evaluate.truths import as_labels
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import PathLimits

#: Raw embeddings and their classes.
Labelled = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False)
class Graded:
    """One fitted method on labelled images.

    Attributes
    ----------
    estimator : fitted classifier
    result : the paths or supports that were scored
    warnings : messages of the warnings that the method raised
    """

    estimator: Any
    scores: ImageScores
    result: Any
    warnings: tuple[str, ...] = ()


def evaluate_method(estimator: Any, X: ArrayLike, y: ArrayLike, *, top_k: Sequence[int] = (1, 5)) -> ImageScores:
    """Score a fitted classifier on labelled images.

    Parameters
    ----------
    estimator : `HCEPClassifier` or a method of `hcep.classify.methods`
        A classifier with ``pursue``, ``classes_`` and ``hierarchy_``. Its prediction is the most probable class, or
        the result of ``predict`` if it has no ``predict_proba``.
    X : (n_images, n_dims) array of raw embeddings
    y : (n_images,) labels; see `score_images`
    """
    return grade(estimator, (X, y), top_k=top_k).scores


def evaluate_blocks(
    estimator: Any, blocks: Iterable[tuple[Any, Any]], *, top_k: Sequence[int] = (1, 5)
) -> RunningScores:
    """Score a fitted classifier on blocks of images and classes, such as those of `EmbeddingStore.batches`."""
    running = RunningScores()
    for X, y in blocks:
        running.add(evaluate_method(estimator, X, y, top_k=top_k))
    return running


def grade(
    estimator: Any, test: Labelled, *, top_k: Sequence[int] = (1, 5), hierarchy: Hierarchy | None = None
) -> Graded:
    """Score one fitted method on labelled images. Each image is searched once.

    Parameters
    ----------
    estimator : classifier as for `evaluate_method`
    test : (X, y); raw embeddings and classes
    hierarchy : hierarchy to score supports and mistakes against (default: the estimator's)
    """
    if not hasattr(estimator, "pursue"):
        raise HCEPError(
            f"a {type(estimator).__name__} does not find concepts (it has no `pursue`); use make_method("
            "'linear-probe') of hcep.classify for a LogisticRegression, or pass predictions to score_images"
        )
    X, y = test
    result, answers = _answers(estimator, X)
    scores = score_images(result, y, hierarchy or estimator.hierarchy_, top_k=top_k, **answers)
    return Graded(estimator, scores, result)


def _answers(estimator: Any, X: ArrayLike) -> tuple[Any, dict[str, Any]]:
    """Return the supports of images, and their predictions as arguments of `score_images`."""
    if hasattr(estimator, "infer"):
        inference = estimator.infer(X)
        return inference, {"probabilities": inference.probabilities, "classes": estimator.classes_}
    result = estimator.pursue(X)
    if hasattr(estimator, "predict_proba"):
        return result, {"probabilities": estimator.predict_proba(X), "classes": estimator.classes_}
    return result, {"predicted": estimator.predict(X)}


def grade_methods(
    methods: Mapping[str, Any],
    test: Labelled,
    train: Labelled | None = None,
    *,
    optional: Collection[str] = (),
    top_k: Sequence[int] = (1, 5),
    on_method: Callable[[str], None] = lambda label: None,
    on_skip: Callable[[str, str], None] = lambda label, reason: None,
) -> dict[str, Graded]:
    """Grade several methods on the same images.

    Parameters
    ----------
    methods : estimators by label; those that are not fitted are fitted on `train`
    test, train : (X, y)
    optional : labels of methods to skip if they cannot run; any other method that cannot run is an error
    on_method : called with each label before its turn
    on_skip : called with the label and the reason of each method that is skipped
    """
    graded: dict[str, Graded] = {}
    for label, estimator in methods.items():
        on_method(label)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if train is not None and not hasattr(estimator, "classes_"):
                    estimator.fit(*train)
                one = grade(estimator, test, top_k=top_k)
        except (HCEPError, MissingExtraError) as error:
            if label not in optional:
                raise
            on_skip(label, str(error))
            continue
        messages = dict.fromkeys(str(warning.message) for warning in caught)
        graded[label] = replace(one, warnings=tuple(messages))
    return graded


def grade_decoders(label: str, graded: Graded, y: ArrayLike, limits: PathLimits | None = None) -> dict[str, Graded]:
    """Score what each other decoder answers from the probabilities of a graded model (see `hcep.classify.decoding`).

    The support is the path to the answer; no answer is the root, which has no path.

    Parameters
    ----------
    label : of the model, which starts the labels of the decoders
    graded : an `HCEPClassifier` that `grade` has scored, with its most probable classes as answers
    y : (n_images,) labels; see `score_images`
    limits : the limits that its images were searched with
    """
    model, h = graded.estimator.path_model(), graded.estimator.hierarchy_
    is_limited = hedging.is_limited(model, limits, len(graded.scores))
    rows = {}
    for rule in (one for one in DECODERS if one != "class"):
        synsets = hedging.right_levels(model, graded.result, limited=is_limited, decode=rule).synsets
        concepts = [h.ids[i] for i in synsets.tolist()]
        paths = [() if concept == h.root else h.paths(concept)[0] for concept in concepts]
        scores = score_images(paths, y, h, predicted=[h.class_of(concept) for concept in concepts], top_k=())
        rows[f"{label} --decode {rule}"] = replace(graded, scores=scores)
    return rows


class Corrected(NamedTuple):
    """Accuracy with some levels corrected, and the gain of the last one, each with a 95 % bootstrap interval."""

    n_levels: int
    accuracy: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def intervention_curve(estimator: Any, X: ArrayLike, y: ArrayLike) -> list[Corrected]:
    """Return the accuracy of a fitted classifier after 0, 1, 2, … levels of each path are forced to the true ones.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings
    y : (n_images,) array of labels, all of them classes of the estimator
    """
    model, labels, images = estimator.path_model(), as_labels(y, "y"), np.asarray(X)
    position = {str(c): i for i, c in enumerate(model.classes.tolist())}
    unknown = sorted(set(labels) - set(position))
    if unknown:
        raise HCEPError(f"y: {quoted(unknown)} are not classes of the model")
    truth, tree, curve = np.array([position[label] for label in labels]), model.hierarchy.path_tree, []
    above = tree.ancestors()
    ends = [np.flatnonzero(tree.synset == model.hierarchy.index(leaf)) for leaf in model.leaves.tolist()]
    before = np.zeros(len(truth))
    for k in range(tree.depth + 1):
        # The true concept at level k of each path of the class, or its leaf if that is higher up.
        nodes = [np.where(above[paths, k - 1] >= 0, above[paths, k - 1], paths) for paths in ends] if k else []
        limits = PathLimits.through(model.hierarchy, nodes, truth) if k else None
        correct = (model.predict(images, limits) == truth).astype(float)
        gain = correct - before if k else np.zeros(len(truth))
        curve.append(Corrected(k, *mean_interval(correct), *mean_interval(gain)))
        before = correct
    return curve


def limited(estimator: Any, limits: PathLimits) -> Any:
    """Return a fitted classifier that keeps to limits for the images that these belong to."""
    own = copy(estimator)
    own.infer = partial(estimator.path_model().infer, limits=limits)
    return own
