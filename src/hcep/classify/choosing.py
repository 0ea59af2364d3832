"""Power, metric and anchor, chosen by the log loss of training images that are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration, fit_calibration, log_losses
from hcep.classify.training import TrainingSet
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import EmbeddingTransform, shrunk_inverse_root
from hcep.errors import HCEPError, quote

Auto = Literal["auto"]
#: An anchor so large that the nearest class mean decides.
MEAN_ANCHOR = 1000.0
#: Values tried for a parameter that is "auto". Anchors are tried in the Euclidean metric only.
POWERS = (0.5, 1.0, 0.7)
SHRINKAGES = (0.6, 0.1, 0.2, 0.3, 0.45, 0.8)
ANCHORS = (0.3, 0.03, 0.1, 1.0, MEAN_ANCHOR)
#: The anchor of a whitened metric, and the anchor if the median class has fewer than `FEW` images.
ANCHOR, FEW_ANCHOR, FEW = 0.3, 0.1, 4
#: The shrinkage if no image can be held out. With a prior for class means it is ``1 / (1 + c n_images / n_dims)``,
#: near the best of 37 to 1,000 images of CLIP.
FALLBACK_SHRINKAGE, FALLBACK_RATE = 0.8, 0.4
#: The shrinkage if there are more than twice as many images as dimensions: any from 0.3 to 0.6 did equally well.
MANY_SHRINKAGE = 0.45
#: Classes that each held-out image is compared with for the choice: those of the nearest means.
N_RIVALS = 32
#: Images that the powers are compared on, and the fewest of each class.
POWER_IMAGES, POWER_PER_CLASS = 2048, 5
#: Images scored for the choice, times classes; with many classes fewer images, but no fewer than these.
TRIAL_SIZE, TRIAL_IMAGES = 200_000, 512


@dataclass(frozen=True)
class LeaveOneOutScore:
    """How well a power, a shrinkage and an anchor did on held-out training images, by their weights.

    `correct` says for which images the class was right. In a saved model it is padded with False to one length, and
    `losses` and `weights` are empty.
    """

    shrinkage: float | None
    anchor: float
    accuracy: float
    log_loss: float
    temperature: float
    correct: NDArray[np.bool_] = field(repr=False, compare=False)
    power: float = 1.0
    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


#: The score if no image can be held out.
UNSCORED = LeaveOneOutScore(None, 0.0, np.nan, np.nan, np.nan, np.zeros(0, dtype=bool))


#: Scores a shrinkage and an anchor.
Trial = Callable[[float | None, float], LeaveOneOutScore]


class Choice(NamedTuple):
    """The power, shrinkage and anchor that a model uses, the moments at that power, and everything that was tried."""

    power: float
    shrinkage: float | None
    anchor: float
    moments: ClassMoments
    tried: list[LeaveOneOutScore]


def values_to_try(
    training: TrainingSet,
    power: float | Auto,
    shrinkage: float | Auto | None,
    anchor: float | Auto,
    has_prior: bool = False,
) -> tuple[Sequence[float], Sequence[float | None], Sequence[float]]:
    """Powers, shrinkages and anchors, the one that the choice starts from first; a single one where none is "auto"."""
    negative = power != 1.0 and bool(training.images.min() < 0.0)
    if negative and power != "auto":
        raise HCEPError(f"power must be 1 or 'auto' for embeddings with negative numbers, got {quote(power)}")
    per_class = np.median(training.counts)
    # With classes of two, a held-out image meets means of one image, where other powers are best than for means of two.
    powers = (1.0,) if negative else POWERS if per_class > 2 else POWERS[:1]
    n_images, n_dims = training.images.shape
    fallback = 1.0 / (1.0 + FALLBACK_RATE * n_images / n_dims) if has_prior else FALLBACK_SHRINKAGE
    shrinkages = SHRINKAGES if len(training.folds.rows) else (fallback,)
    anchors = ANCHORS if shrinkage is None else (ANCHOR if per_class >= FEW else FEW_ANCHOR,)
    return (
        powers if power == "auto" else (power,),
        shrinkages if shrinkage == "auto" else (shrinkage,),
        anchors if anchor == "auto" else (anchor,),
    )


def shrinkage_of_many(n_images: int, n_dims: int) -> float | None:
    """The shrinkage for more images than dimensions, whose classes are partly guessed; None for fewer images.

    Leaving single images out would mislead: those with guessed classes still know where they were.
    """
    return MANY_SHRINKAGE if n_images > 2 * n_dims else SHRINKAGES[0] if n_images > n_dims else None


def choose(
    training: TrainingSet, powers: Sequence[float], shrinkages: Sequence[float | None], anchors: Sequence[float]
) -> Choice:
    """The values of lowest held-out log loss.

    The power is chosen first, in the starting metric, then the metric, then the anchor: they hardly interact, so ten
    trials replace fifty-four. Powers are compared on a sample, because each has a covariance of its own.

    `powers`, `shrinkages`, `anchors`: values to try. The search starts from the first, which another replaces only if
    its gain exceeds a standard error.
    """
    if len(training.own) <= training.images.shape[1]:
        # The covariance of fewer images than dimensions is too uncertain to be trusted more than at the start.
        shrinkages = [value for value in shrinkages if value is None or value >= (shrinkages[0] or 0.0)]
    second = any(s is not None for s in shrinkages)
    power, shrinkage, anchor = powers[0], shrinkages[0], anchors[0]
    if len(powers) == len(shrinkages) == len(anchors) == 1 or not len(training.folds.rows):
        return Choice(power, shrinkage, anchor, training.moments(power, second), [])
    per_class = max(POWER_PER_CLASS, POWER_IMAGES // training.n_classes)
    sample = training if len(powers) == 1 else training.sample(per_class)
    moments = {p: sample.moments(p, second) for p in powers}
    trials = {p: _trials(sample, p, moments[p]) for p in powers}
    tried = [trials[p](shrinkage, anchor) for p in powers]
    power = best_score(tried).power
    if sample is not training:
        moments[power] = training.moments(power, second)
        trials[power] = _trials(training, power, moments[power])
        tried.append(trials[power](shrinkage, anchor))
    score, best = trials[power], next(one for one in reversed(tried) if one.power == power)
    in_metric = [score(value, anchor) for value in shrinkages[1:]]
    best = best_score([best, *in_metric])
    at_anchor = [score(best.shrinkage, value) for value in anchors[1:]]
    best = best_score([best, *at_anchor])
    return Choice(power, best.shrinkage, best.anchor, moments[power], tried + in_metric + at_anchor)


def _trials(training: TrainingSet, power: float, moments: ClassMoments) -> Trial:
    """Held-out scores at one power, in single precision and scaled by the held-out images: near enough to compare."""
    folds = training.folds.only(max(TRIAL_IMAGES, TRIAL_SIZE // training.n_classes))
    rows = training.prepared(folds.rows, power).astype(np.float32)
    centre = moments.total_mean().astype(np.float32) if training.center else np.float32(0.0)
    centred = rows - centre, moments.class_means().astype(np.float32) - centre
    covariance = cache(lambda: moments.within_covariance().astype(np.float32))
    weights = training.weights[folds.rows[folds.scored]]

    def score(shrinkage: float | None, anchor: float) -> LeaveOneOutScore:
        whitener = None if shrinkage is None else shrunk_inverse_root(covariance(), shrinkage)
        images, means = (a if whitener is None else a @ whitener for a in centred)
        scale = 1.0 / np.sqrt(np.vdot(images, images) / len(images) or 1.0)
        metric = EmbeddingTransform(scale=float(scale), shrinkage=shrinkage)
        space = training.left_out(folds.rows, metric, moments, prepared=images, means=means.astype(np.float64))
        return score_held_out(space.held_out(folds, anchor, N_RIVALS), weights, shrinkage, anchor, power)[1]

    return score


def score_held_out(
    objectives: NDArray[np.float64], weights: NDArray[np.float64], shrinkage: float | None, anchor: float, power: float
) -> tuple[Calibration, LeaveOneOutScore]:
    """The calibration of held-out objectives, whose first column is that of the own class, and what it gives."""
    calibration = fit_calibration(objectives, weights=weights)
    losses = log_losses(objectives, calibration)
    correct = objectives[:, 0] < objectives[:, 1:].min(axis=1, initial=np.inf)
    accuracy, log_loss = (float(np.average(values, weights=weights)) for values in (correct, losses))
    tried = (shrinkage, anchor, accuracy, log_loss, calibration.temperature, correct, power, losses, weights)
    return calibration, LeaveOneOutScore(*tried)


def best_score(scores: Sequence[LeaveOneOutScore]) -> LeaveOneOutScore:
    """The lowest log loss, if lower than the first's by more than a standard error of the paired difference."""
    start, best = scores[0], min(scores, key=lambda score: score.log_loss)
    gains, shares = start.losses - best.losses, best.weights / best.weights.sum()
    gain = gains @ shares
    variance, n_images = (gains - gain) ** 2 @ shares, 1.0 / (shares @ shares)
    return best if gain > np.sqrt(variance / n_images) else start
