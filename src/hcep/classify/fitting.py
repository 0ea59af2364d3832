"""From labelled images to a dictionary: choose the metric, average, calibrate, refine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration
from hcep.classify.choosing import UNSCORED, Auto, Choice, LeaveOneOutScore, choose, score_held_out, values_to_try
from hcep.classify.refining import Refine, is_worth_it, refine
from hcep.classify.training import TrainingSet
from hcep.classify.tree_prior import Prior, TreePrior, Variances, fit_prior
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import CHUNK
from hcep.dictionary.moments import ClassMoments
from hcep.hierarchy import Hierarchy
from hcep.pursuit import learn_atoms, path_objectives

Floats = NDArray[np.float64]
#: Images per class from which on a prior for class means changes nothing.
MANY = 12
#: Objectives computed for the calibration; with many classes it looks at fewer images, but at no fewer than these.
CALIBRATION_SIZE, CALIBRATION_IMAGES = 500_000, 256
#: How the best temperature grows with the variance v of class means, as 1 + c v.
MEAN_NOISE = 0.7
#: The temperature if no image can be held out, as a share of the mean gap between classes: the best share was 0.04 for
#: 200 and for ten classes of one network, and 0.07 to 0.13 for ten classes of another.
FALLBACK_TEMPERATURE = 0.05


class FittedDictionary(NamedTuple):
    """What a fit settled on."""

    choice: Choice
    dictionary: ConceptDictionary
    calibration: Calibration | None  # None if none was asked for
    leaf_moves: Floats | None = None  # (n_classes,); how far each class was moved from its mean; None if it was not
    prior: Variances | None = None  # of the class means, which the dictionary's leaves are under; None without one
    class_means: Floats | None = None  # (n_classes, n_dims); before the prior, if there is one


def fit_dictionary(
    training: TrainingSet,
    *,
    shrinkage: float | Auto | None,
    anchor: float | Auto,
    power: float | Auto,
    refined: Refine,
    calibrated: bool | float,
    prior: Prior = None,
) -> FittedDictionary:
    """Choose power, metric and anchor where "auto", build the dictionary, calibrate it, refine its leaves.

    Parameters
    ----------
    training : the labelled images
    shrinkage, anchor, power, refined, prior : as the parameters of `HCEPClassifier`
    calibrated : whether to calibrate; a number is the anchor to calibrate at, instead of the fitted one
    """
    if shrinkage == "auto" and not _varies(training):
        shrinkage = None  # there is no covariance to whiten by
    choice = choose(training, *values_to_try(training, power, shrinkage, anchor, has_prior=prior is not None))
    how: dict[str, Any] = {"unit_norm": training.unit_norm, "center": training.center, "power": choice.power}
    dictionary = dictionary_of(training.hierarchy, choice.moments, choice.shrinkage, choice.anchor, **how)
    if refined == "auto":
        refined = is_worth_it(training, choice.anchor)
    is_moved = bool(refined) and training.n_classes > 1
    if not is_moved and calibrated is False:
        return FittedDictionary(choice, dictionary, None)
    at = choice.anchor if isinstance(calibrated, bool) else calibrated
    held_out = calibrate(training, dictionary, choice.moments, at)
    fitted = FittedDictionary(choice, dictionary, held_out.calibration)
    if is_moved:
        if refined == "atoms":
            shifts = _learned_shifts(training, dictionary, choice.anchor)
        else:
            shifts = refine(training, dictionary, choice.moments, choice.anchor, held_out.calibration.temperature)
        moves = np.linalg.norm(shifts, axis=1)
        fitted = fitted._replace(dictionary=dictionary.moved(_by_leaf(training, shifts)), leaf_moves=moves)
    if prior is None or training.n_classes < 2 or (prior == "auto" and training.counts.min() >= MANY):
        return fitted
    return _with_prior(training, fitted, held_out, prior, at)


def _with_prior(
    training: TrainingSet, fitted: FittedDictionary, without: HeldOutFit, kind: Prior, anchor: float
) -> FittedDictionary:
    """The dictionary with class means under a prior; "auto" keeps it as it was where held-out images fare no better.

    If a class has a single image, that cannot be seen on held-out images: its images are those that a prior helps.
    """
    dictionary, moments, n_images = fitted.dictionary, fitted.choice.moments, training.effective_counts
    noise = training.noise(dictionary.transform, moments)
    means = np.stack([dictionary.synset_embedding(leaf) for leaf in training.leaves])
    prior = fit_prior(training.hierarchy, training.leaves.tolist(), means, n_images, noise, kind == "flat")
    if prior is None:
        return fitted
    moved = dictionary.moved(_by_leaf(training, prior.posterior(means, n_images)[0] - means))
    held_out = calibrate(training, moved, moments, anchor, prior)
    if kind == "auto" and training.exact_counts.min() > 1 and held_out.score.log_loss > without.score.log_loss:
        return fitted
    calibration, variances = held_out.calibration, prior.variances
    return fitted._replace(dictionary=moved, calibration=calibration, prior=variances, class_means=means)


def _learned_shifts(training: TrainingSet, dictionary: ConceptDictionary, anchor: float) -> Floats:
    """Shifts of the leaves from their means, (n_classes, n_dims), to atoms that explain the images better."""
    y, weights = training.leaves[training.own], training.weights
    learned, _ = learn_atoms(training.images, dictionary, y, anchor=anchor, sample_weight=weights)
    index = [dictionary.hierarchy.index(leaf) for leaf in training.leaves.tolist()]
    return np.asarray(learned.synset_embeddings[index] - dictionary.synset_embeddings[index])


def _by_leaf(training: TrainingSet, shifts: Floats) -> dict[str, Floats]:
    return dict(zip(training.leaves.tolist(), shifts, strict=True))


def dictionary_of(
    hierarchy: Hierarchy, moments: ClassMoments, shrinkage: float | None, anchor: float, **options: Any
) -> ConceptDictionary:
    """The dictionary of the class means, in a metric; options are those of `ConceptDictionary.from_images`."""
    # Without an anchor a common scale cancels in every coefficient; residuals then keep the images' units.
    return ConceptDictionary.from_images(hierarchy, moments, shrinkage=shrinkage, rescale=anchor > 0, **options)


class HeldOutFit(NamedTuple):
    """A calibration, and how well the held-out images it is from did."""

    calibration: Calibration
    score: LeaveOneOutScore = UNSCORED


def calibrate(
    training: TrainingSet,
    dictionary: ConceptDictionary,
    moments: ClassMoments,
    anchor: float,
    prior: TreePrior | None = None,
    pictures: float = 1.0,
    n_rivals: int | None = None,
) -> HeldOutFit:
    """Temperature and exponent on held-out images against all classes; a typical temperature if none can be held out.

    Means without the fold's images are noisier than those that predict. Temperatures measured on both follow
    ``1 + c v`` with c = `MEAN_NOISE` and v the variance of a mean, in variances of an image (1 / n without a prior),
    from 1 to 50 images; they are divided by the ratio of both.

    `dictionary`: of all images; its leaves matter only if no image can be held out. `moments`: what it is made from.
    `prior`: of the class means. `pictures`: their share of the evidence beside words, which do not depend on images.
    `n_rivals`: the classes that each image is compared with, those of the nearest means; all by default.
    """
    n_classes = training.n_classes
    folds = training.folds.only(max(CALIBRATION_IMAGES, CALIBRATION_SIZE // n_classes))
    if not len(folds.rows) or n_classes == 1:
        return HeldOutFit(_uncalibrated(training, dictionary, anchor, prior))
    options: dict[str, Any] = {"prior": prior, "words": dictionary.word_block}
    space, scored = training.left_out(folds.rows, dictionary.transform, moments, **options), folds.rows[folds.scored]
    weights, own = training.weights[scored], training.own[scored]
    objectives, transform = space.held_out(folds, anchor, n_rivals or n_classes), dictionary.transform
    calibration, score = score_held_out(objectives, weights, transform.shrinkage, anchor, transform.power)
    n = np.maximum(training.counts, 2.0)
    fewer, all_of_them = _mean_noise(prior, n - 1.0)[own], _mean_noise(prior, n)[own]
    noisier = float(np.average((1.0 + MEAN_NOISE * fewer) / (1.0 + MEAN_NOISE * all_of_them), weights=weights))
    return HeldOutFit(replace(calibration, temperature=calibration.temperature / noisier**pictures), score)


def _mean_noise(prior: TreePrior | None, n_images: Floats) -> Floats:
    """Variance of the mean of so many images, in variances of one image, (n_classes,)."""
    if prior is None:
        return 1.0 / n_images
    return np.asarray(prior.posterior(np.zeros((len(n_images), 1)), n_images)[1] / prior.variances.noise)


def _uncalibrated(
    training: TrainingSet, dictionary: ConceptDictionary, anchor: float, prior: TreePrior | None
) -> Calibration:
    """A typical temperature, from how the objectives of other classes than its own differ for a training image."""
    rows = slice(None, None, -(-len(training.images) // CALIBRATION_IMAGES))
    objectives = path_objectives(training.images[rows].astype(np.float64), dictionary, anchor=min(anchor, 1e6))
    if prior is None:
        gaps = np.mean(objectives - objectives.min(axis=1, keepdims=True), axis=1)
        return Calibration(FALLBACK_TEMPERATURE * float(np.median(gaps)) or 1.0)
    tree, hierarchy = dictionary.hierarchy.path_tree, dictionary.hierarchy
    own = np.array([hierarchy.index(leaf) for leaf in training.leaves])[training.own[rows]]
    objectives[tree.synset[tree.leaf_nodes] == own[:, None]] = np.nan
    return Calibration(float(np.median(np.nanstd(objectives, axis=1))) or 1.0)


def _varies(training: TrainingSet) -> bool:
    """Whether images of a class (of all classes, if each has one image) differ by more than rounding."""
    X = training.prepared(slice(None), 1.0)
    if len(X) < 3:
        return False
    groups = training.own if len(X) > training.n_classes else np.zeros_like(training.own)
    _, first = np.unique(groups, return_index=True)
    rounding = 10 * np.finfo(X.dtype).eps * max(X.max(), -X.min())
    return any(
        bool(np.abs(X[i : i + CHUNK] - X[first[groups[i : i + CHUNK]]]).max() > rounding)
        for i in range(0, len(X), CHUNK)
    )
