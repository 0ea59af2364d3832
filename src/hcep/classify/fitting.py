"""From labelled images to a dictionary: choose the metric, average, calibrate, refine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration, fit_calibration
from hcep.classify.choosing import Auto, Choice, choose, values_to_try
from hcep.classify.refining import is_worth_it, refine
from hcep.classify.training import TrainingSet
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import CHUNK
from hcep.dictionary.moments import ClassMoments
from hcep.hierarchy import Hierarchy
from hcep.pursuit import path_objectives

#: Objectives computed for the calibration; with many classes it looks at fewer images, but at no fewer than these.
CALIBRATION_SIZE, CALIBRATION_IMAGES = 500_000, 256
#: How the best temperature grows with the noise of class means of n images, as 1 + c / n.
MEAN_NOISE = 0.7
#: The temperature if no image can be held out, as a share of the mean gap between classes: the best share was 0.04 for
#: 200 and for ten classes of one network, and 0.07 to 0.13 for ten classes of another.
FALLBACK_TEMPERATURE = 0.05


class FittedDictionary(NamedTuple):
    """What a fit settled on."""

    choice: Choice
    dictionary: ConceptDictionary
    calibration: Calibration | None  # None if none was asked for
    leaf_moves: NDArray[np.float64] | None  # (n_classes,); how far refining moved each class; None if it did not


def fit_dictionary(
    training: TrainingSet,
    *,
    shrinkage: float | Auto | None,
    anchor: float | Auto,
    power: float | Auto,
    refined: bool | Auto,
    calibrated: bool | float,
) -> FittedDictionary:
    """Choose power, metric and anchor where "auto", build the dictionary, calibrate it, refine its leaves.

    Parameters
    ----------
    training : the labelled images
    shrinkage, anchor, power, refined : as the parameters of `HCEPClassifier`
    calibrated : whether to calibrate; a number is the anchor to calibrate at, instead of the fitted one
    """
    if shrinkage == "auto" and not _varies(training):
        shrinkage = None  # there is no covariance to whiten by
    choice = choose(training, *values_to_try(training, power, shrinkage, anchor))
    how: dict[str, Any] = {"unit_norm": training.unit_norm, "center": training.center, "power": choice.power}
    dictionary = dictionary_of(training.hierarchy, choice.moments, choice.shrinkage, choice.anchor, **how)
    is_refined = is_worth_it(training, choice.anchor) if refined == "auto" else refined and training.n_classes > 1
    calibration = None
    if is_refined or calibrated is not False:
        at = choice.anchor if isinstance(calibrated, bool) else calibrated
        calibration = calibrate(training, dictionary, choice.moments, at)
    if not is_refined or calibration is None:
        return FittedDictionary(choice, dictionary, calibration, None)
    shifts = refine(training, dictionary, choice.moments, choice.anchor, calibration.temperature)
    moved = dictionary.moved(dict(zip(training.leaves.tolist(), shifts, strict=True)))
    return FittedDictionary(choice, moved, calibration, np.linalg.norm(shifts, axis=1))


def dictionary_of(
    hierarchy: Hierarchy, moments: ClassMoments, shrinkage: float | None, anchor: float, **options: Any
) -> ConceptDictionary:
    """The dictionary of the class means, in a metric; options are those of `ConceptDictionary.from_images`."""
    # Without an anchor a common scale cancels in every coefficient; residuals then keep the images' units.
    return ConceptDictionary.from_images(hierarchy, moments, shrinkage=shrinkage, rescale=anchor > 0, **options)


def calibrate(
    training: TrainingSet, dictionary: ConceptDictionary, moments: ClassMoments, anchor: float
) -> Calibration:
    """Temperature and exponent on held-out images against all classes; a typical temperature if none can be held out.

    Means without the fold's images are noisier than those that predict. Temperatures measured on both follow
    ``1 + c / n`` with c = `MEAN_NOISE` from n = 1 to 50, and are divided by that ratio.

    `dictionary`: of all images, before refining. `moments`: what the dictionary is made from.
    """
    transform, n_classes = dictionary.transform, training.n_classes
    folds = training.folds.only(max(CALIBRATION_IMAGES, CALIBRATION_SIZE // n_classes))
    if not len(folds.rows) or n_classes == 1:
        some = training.images[:: -(-len(training.images) // CALIBRATION_IMAGES)].astype(np.float64)
        objectives = path_objectives(some, dictionary, anchor=min(anchor, 1e6))
        gaps = np.mean(objectives - objectives.min(axis=1, keepdims=True), axis=1)
        return Calibration(FALLBACK_TEMPERATURE * float(np.median(gaps)) or 1.0)
    space, scored = training.left_out(folds.rows, transform, moments), folds.rows[folds.scored]
    calibration = fit_calibration(space.held_out(folds, anchor, n_classes), weights=training.weights[scored])
    n = np.maximum(training.counts[training.own[scored]], 2)
    noise = (1.0 + MEAN_NOISE / (n - 1.0)) / (1.0 + MEAN_NOISE / n)
    noisier = float(np.average(noise, weights=training.weights[scored]))
    return replace(calibration, temperature=calibration.temperature / noisier)


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
