"""Power, metric and anchor by the log loss of held-out training images, and the calibration of probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration, fit_calibration, log_losses
from hcep.classify.left_out import ClassTree, Folds, LeftOut, rank_in_class
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import EmbeddingTransform, prepared_rows, shrunk_inverse_root
from hcep.hierarchy import Hierarchy
from hcep.pursuit import path_objectives

#: An anchor that leaves, for all purposes, the nearest class mean.
MEAN_ANCHOR = 1000.0
#: Values tried where one is "auto". Anchors are tried in the Euclidean metric alone.
POWERS = (0.5, 1.0, 0.7)
SHRINKAGES = (0.6, 0.1, 0.2, 0.3, 0.45, 0.8)
ANCHORS = (0.3, 0.03, 0.1, 1.0, MEAN_ANCHOR)
#: The anchor of a whitened metric, and that where the median class has fewer than `FEW` images.
ANCHOR, FEW_ANCHOR, FEW = 0.3, 0.1, 4
#: The shrinkage where no image can be held out, and the temperature as a share of what lies between classes: the best
#: was 0.04 for 200 and for ten classes of one network, 0.07 to 0.13 for ten of another.
FALLBACK_SHRINKAGE, FALLBACK_TEMPERATURE = 0.8, 0.05
#: Classes that each held-out image is compared with for the choice: those of the nearest means.
N_RIVALS = 32
#: Images that the powers are compared on, and how many of each class at least.
POWER_IMAGES, POWER_PER_CLASS = 2048, 5
#: Images scored for the choice, times classes; of many classes fewer, but not fewer than these.
TRIAL_SIZE, TRIAL_IMAGES = 200_000, 512
#: Objectives computed for the calibration; of many classes fewer images are looked at, but not fewer than these.
CALIBRATION_SIZE, CALIBRATION_IMAGES = 500_000, 256
#: How the best temperature grows with the noise of class means of n images, as 1 + c / n.
MEAN_NOISE = 0.7


@dataclass(frozen=True)
class LeaveOneOutScore:
    """How one triple of power, shrinkage and anchor did on held-out training images.

    `correct` says which of them it got right; of a saved model it is filled up with False to the longest.
    """

    shrinkage: float | None
    anchor: float
    accuracy: float
    log_loss: float
    temperature: float
    correct: NDArray[np.bool_] = field(repr=False, compare=False)
    power: float = 1.0
    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


#: How a shrinkage and an anchor do.
Trial = Callable[[float | None, float], LeaveOneOutScore]


@dataclass(frozen=True, eq=False)
class Training:
    """Labelled images under a hierarchy: all that the choice and the refinement look at."""

    hierarchy: Hierarchy  # its leaves are the classes
    images: NDArray[Any]  # (n_images, n_dims); raw
    own: NDArray[np.intp]  # (n_images,) int; class of each
    leaves: NDArray[np.str_]  # (n_classes,) array of str
    #: unit_norm, center: what is done to every image, after the power
    unit_norm: bool = False
    center: bool = False

    @cached_property
    def tree(self) -> ClassTree:
        return ClassTree.of(self.hierarchy, self.leaves.tolist())

    @cached_property
    def folds(self) -> Folds:
        return Folds.of(self.own, len(self.leaves))

    def sums(self, power: float, second_moment: bool) -> ClassMoments:
        """Moments of the images after power and unit norm, classes in their order."""
        moments, labels = ClassMoments(second_moment), self.leaves.tolist()
        for start in range(0, len(self.images), 1024):  # few enough to stay in cache
            rows = slice(start, start + 1024)
            moments.update(self.prepared(self.images[rows], power), labels, self.own[rows])
        return moments

    def prepared(self, images: NDArray[Any], power: float) -> NDArray[Any]:
        return prepared_rows(images, power, self.unit_norm)

    def sample(self) -> Training:
        """As many images of each class as comparing powers takes; itself where there are no more."""
        per_class = max(POWER_PER_CLASS, POWER_IMAGES // len(self.leaves))
        rows = np.flatnonzero(rank_in_class(self.own, np.random.default_rng(0)) < per_class)
        if len(rows) == len(self.own):
            return self
        return replace(self, images=self.images[rows], own=self.own[rows])


def _trials(training: Training, power: float, moments: ClassMoments) -> Trial:
    """Held-out scores at one power, in single precision and scaled by the held-out images: near enough to compare."""
    folds = training.folds.only(max(TRIAL_IMAGES, TRIAL_SIZE // len(training.leaves)))
    rows = training.prepared(training.images[training.folds.rows], power).astype(np.float32)
    centre = moments.total_mean().astype(np.float32) if training.center else np.float32(0.0)
    centred = rows - centre, moments.class_means().astype(np.float32) - centre
    covariance = cache(lambda: moments.within_covariance().astype(np.float32))

    def score(shrinkage: float | None, anchor: float) -> LeaveOneOutScore:
        whitener = None if shrinkage is None else shrunk_inverse_root(covariance(), shrinkage)
        images, means = (a if whitener is None else a @ whitener for a in centred)
        scale = 1.0 / np.sqrt(np.vdot(images, images) / len(images) or 1.0)
        metric = EmbeddingTransform(scale=float(scale), shrinkage=shrinkage)
        space = LeftOut.of(metric, images, folds.own, folds.counts, means.astype(np.float64), training.tree)
        objectives = space.held_out(folds, anchor, N_RIVALS)
        calibration = fit_calibration(objectives)
        losses = log_losses(objectives, calibration)
        right = objectives[:, 0] < objectives[:, 1:].min(axis=1, initial=np.inf)
        numbers = (float(right.mean()), float(losses.mean()), calibration.temperature)
        return LeaveOneOutScore(shrinkage, anchor, *numbers, right, power, losses)

    return score


def choose(
    training: Training, powers: Sequence[float], shrinkages: Sequence[float | None], anchors: Sequence[float]
) -> tuple[float, float | None, float, ClassMoments, list[LeaveOneOutScore]]:
    """The triple of lowest held-out log loss, the moments at its power, and all that was tried.

    First the power, at the starting metric, then the metric, then the anchor: they hardly interact, so that ten trials
    do for fifty-four. Powers are compared on a sample, as each has a covariance of its own.

    `powers`, `shrinkages`, `anchors`: Values to try. The first is where the search starts, and is left only for a gain
    of more than a standard error.
    """
    if len(training.own) <= training.images.shape[1]:
        # A covariance of fewer images than dimensions is not known well enough to be trusted more than at the start.
        shrinkages = [value for value in shrinkages if value is None or value >= (shrinkages[0] or 0.0)]
    second = any(s is not None for s in shrinkages)
    power, shrinkage, anchor = powers[0], shrinkages[0], anchors[0]
    if len(powers) == len(shrinkages) == len(anchors) == 1 or not len(training.folds.rows):
        return power, shrinkage, anchor, training.sums(power, second), []
    sample = training if len(powers) == 1 else training.sample()
    moments = {p: sample.sums(p, second) for p in powers}
    trials = {p: _trials(sample, p, moments[p]) for p in powers}
    tried = [trials[p](shrinkage, anchor) for p in powers]
    power = _best(tried).power
    if sample is not training:
        moments[power] = training.sums(power, second)
        trials[power] = _trials(training, power, moments[power])
        tried.append(trials[power](shrinkage, anchor))
    score, best = trials[power], next(one for one in reversed(tried) if one.power == power)
    found = [score(value, anchor) for value in shrinkages[1:]]
    best = _best([best, *found])
    found += [score(best.shrinkage, value) for value in anchors[1:]]
    best = _best([best, *found[len(shrinkages) - 1 :]])
    return power, best.shrinkage, best.anchor, moments[power], tried + found


def _best(scores: Sequence[LeaveOneOutScore]) -> LeaveOneOutScore:
    """The lowest log loss, if lower than the first's by more than a standard error of the paired difference."""
    start, best = scores[0], min(scores, key=lambda score: score.log_loss)
    gain = start.losses - best.losses
    return best if gain.mean() > gain.std() / np.sqrt(len(gain)) else start


def calibrate(training: Training, dictionary: ConceptDictionary, moments: ClassMoments, anchor: float) -> Calibration:
    """Temperature and exponent on held-out images against all classes; a typical one where none can be held out.

    Means without the fold's images are noisier than those that predict. Temperatures measured on both follow
    ``1 + c / n`` with c = `MEAN_NOISE` from n = 1 to 50, and are divided by that ratio.

    `dictionary`: of all its images, not refined. `moments`: what the dictionary is made from.
    """
    transform, n_classes = dictionary.transform, len(training.leaves)
    folds = training.folds.only(max(CALIBRATION_IMAGES, CALIBRATION_SIZE // n_classes))
    if not len(folds.rows) or n_classes == 1:
        some = training.images[:: -(-len(training.images) // CALIBRATION_IMAGES)].astype(np.float64)
        objectives = path_objectives(some, dictionary, anchor=min(anchor, 1e6))
        gaps = np.mean(objectives - objectives.min(axis=1, keepdims=True), axis=1)
        return Calibration(FALLBACK_TEMPERATURE * float(np.median(gaps)) or 1.0)
    images = training.prepared(training.images[folds.rows], transform.power)
    space = LeftOut.of(transform, images, folds.own, folds.counts, moments.class_means(), training.tree)
    found = fit_calibration(space.held_out(folds, anchor, n_classes))
    n = folds.counts[folds.own[folds.scored]]
    noisier = float(np.mean((1.0 + MEAN_NOISE / (n - 1.0)) / (1.0 + MEAN_NOISE / n)))
    return replace(found, temperature=found.temperature / noisier)
