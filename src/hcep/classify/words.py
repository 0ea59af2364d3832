"""Words and pictures in one space: how much the names of classes count beside their images.

Images become ``[W x ; u x]`` and concepts ``[W m ; v t]``, where x and the texts t have norm 1. Squared distances add
up over the two blocks, so that the pursuit, its paths and all that is exact about them stay as they are. Only the
product u v decides between words and pictures: held-out images choose it. The ratio of u and v changes no nearest
class. An image's cosine with the text of its class is small, because encoders put texts and images into different
regions; the ratio makes it a typical coefficient of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.classify.calibration import Calibration, fit_calibration, fit_temperature
from hcep.classify.choosing import N_RIVALS, best_score
from hcep.classify.fitting import FittedDictionary, HeldOutFit, calibrate
from hcep.classify.left_out import MAX_IMAGES, spread
from hcep.classify.training import TrainingSet
from hcep.classify.tree_prior import TreePrior
from hcep.dictionary import ConceptDictionary
from hcep.errors import HCEPError, near_matches, quoted
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: Spreads of the word scores over the classes that are tried, in spreads of the picture scores, and the first one.
WEIGHTS = (0.05, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0)
FIRST = WEIGHTS.index(2.0)
#: How much a log probability by pictures counts beside one by words, if no image can be held out: with one image of
#: each class the temperature of pictures is a guess.
FALLBACK_PICTURES = 0.5
#: The least anchor that "auto" chooses: a text does not say how images of a class vary.
ANCHOR = 1.0
#: The least mean cosine of images and texts that coefficients are scaled by.
LEAST_COSINE = 0.02


class Words(NamedTuple):
    """What a fit decided about words.

    Attributes
    ----------
    share : how much words count for the evidence, from 0 to 1; pictures count for the rest
    text_scale : norm of the word part of a class
    concepts : inner concepts whose own text is used; the word part of all others is the mean of their children
    """

    share: float
    text_scale: float
    concepts: tuple[str, ...] = ()


class _Scores(NamedTuple):
    """Scores of training images, from words and from pictures: for all classes but their own, less their mean."""

    words: Floats
    pictures: Floats
    cosine: float  # mean cosine of an image and the text of its class

    def scales(self, weight: float) -> tuple[float, float]:
        """Scales of the word blocks of images and texts, if words weigh so much."""
        product = weight * float(np.linalg.norm(self.pictures) / (np.linalg.norm(self.words) or 1.0)) or 1.0
        ratio = 1.0 / max(self.cosine, LEAST_COSINE)
        return (product * ratio) ** 0.5, (product / ratio) ** 0.5

    def share(self, scales: tuple[float, float]) -> float:
        """The part of the variance of the joint scores that is due to the words."""
        words = scales[0] * scales[1] * self.words
        both = words + self.pictures
        return float(np.clip(np.vdot(words, both) / (np.vdot(both, both) or 1.0), 0.0, 1.0))


def refuse_missing_texts(texts: Mapping[str, Any], labels: Sequence[str]) -> None:
    """Raise HCEPError if a class has no text."""
    missing = [label for label in labels if label not in texts]
    if missing:
        lacks = f"texts lacks {len(missing):,} of {len(labels):,} classes: {quoted(missing)}; add their texts."
        raise HCEPError(lacks + near_matches(missing[0], texts))


def texts_of_synsets(texts: Mapping[str, Floats], hierarchy: Hierarchy, labels: Sequence[str]) -> dict[str, Floats]:
    """The texts of the leaves of all classes and of inner concepts, by their ids in the hierarchy of the classes."""
    refuse_missing_texts(texts, labels)
    leaves, above = {hierarchy.leaf_of(label): texts[label] for label in labels}, set(hierarchy.ids[1:])
    return leaves | {one: text for one, text in texts.items() if one in above and not hierarchy.is_leaf(one)}


def add_words(
    training: TrainingSet, fitted: FittedDictionary, texts: Mapping[str, Floats], anchor: float | None
) -> tuple[FittedDictionary, Words]:
    """Add a word block to a fitted dictionary, with the weight of lowest held-out log loss.

    Parameters
    ----------
    training : the labelled images
    fitted : what they gave without words
    texts : unit vectors of the leaves and of some inner concepts, by id
    anchor : the anchor to use; None for the default
    """
    own = {leaf: texts[leaf] for leaf in training.leaves.tolist()}
    inner = tuple(concept for concept in texts if concept not in own)
    at = max(fitted.choice.anchor, ANCHOR) if anchor is None else anchor
    prior = None if fitted.prior is None else TreePrior.over(training.hierarchy, [*own], fitted.prior)
    scores = _scores(training, fitted.dictionary, np.stack(list(own.values())))

    def calibrated(weight: float, n_rivals: int | None, used: Mapping[str, Floats]) -> HeldOutFit:
        joint, share = fitted.dictionary.with_words(used, *scores.scales(weight)), scores.share(scores.scales(weight))
        return calibrate(training, joint, fitted.choice.moments, at, prior, 1.0 - share, n_rivals)

    if len(training.folds.rows) and training.n_classes > 1:
        weight, without = _lowest(lambda weight: calibrated(weight, N_RIVALS, own))
        with_inner = calibrated(weight, N_RIVALS, texts) if inner else without
        own = own if best_score([without.score, with_inner.score]) is without.score else dict(texts)
        calibration, score = calibrated(weight, None, own)
        tried = [*fitted.choice.tried, score]
    else:
        tried = fitted.choice.tried
        weight, calibration = _uncalibrated(training, np.stack(list(own.values())), scores, fitted.calibration)
    dictionary = fitted.dictionary.with_words(own, *scores.scales(weight))
    words = Words(scores.share(scores.scales(weight)), scores.scales(weight)[1], tuple(c for c in inner if c in own))
    choice = fitted.choice._replace(anchor=at, tried=tried)
    return fitted._replace(choice=choice, dictionary=dictionary, calibration=calibration), words


def _lowest(held_out: Callable[[float], HeldOutFit]) -> tuple[float, HeldOutFit]:
    """The weight of lowest held-out log loss and what it gives, found by walking down from the first weight."""
    place, scores = FIRST, {FIRST: held_out(WEIGHTS[FIRST])}
    while True:
        for neighbour in (place - 1, place + 1):
            if 0 <= neighbour < len(WEIGHTS) and neighbour not in scores:
                scores[neighbour] = held_out(WEIGHTS[neighbour])
        best = min(scores, key=lambda i: scores[i].score.log_loss)
        if best == place:
            return WEIGHTS[place], scores[place]
        place = best


def _scores(training: TrainingSet, dictionary: ConceptDictionary, texts: Floats) -> _Scores:
    rows = spread(np.arange(len(training.own[: training.n_exact])), MAX_IMAGES)
    own, each = training.own[rows], np.arange(len(rows))
    prepared = training.prepared(rows, 1.0).astype(np.float64)
    cosines, images = prepared @ texts.T, dictionary.transform.after_unit_norm(prepared)
    means = np.stack([dictionary.synset_embedding(leaf) for leaf in training.leaves.tolist()])
    both = []
    for scores in (2.0 * cosines, 2.0 * images @ means.T - np.einsum("ij,ij->i", means, means)):
        if len(texts) > 2:  # of two classes the other one alone has no spread
            scores[each, own] = np.nan
        both.append(np.nan_to_num(scores - np.nanmean(scores, axis=1, keepdims=True)))
    return _Scores(both[0], both[1], float(np.einsum("ij,ij->i", prepared, texts[own]).mean()))


def _uncalibrated(
    training: TrainingSet, texts: Floats, scores: _Scores, pictures: Calibration | None
) -> tuple[float, Calibration]:
    """A weight and a calibration from those of words alone, which never saw an image, and of pictures alone."""
    if training.n_classes == 1 or pictures is None:
        return 1.0, Calibration(1.0)
    rows = spread(np.arange(len(training.own)), MAX_IMAGES)
    objectives = -2.0 * training.prepared(rows, 1.0).astype(np.float64) @ texts.T
    alone = fit_calibration(objectives, training.own[rows], training.weights[rows])
    words, looks = (float(np.sqrt(np.mean(part**2))) or 1.0 for part in (scores.words, scores.pictures))
    by_words = 1.0 / fit_temperature(-objectives / words, training.own[rows])
    weight = float(np.clip(by_words * pictures.temperature / (FALLBACK_PICTURES * looks), WEIGHTS[0], WEIGHTS[-1]))
    wider = float(np.prod(scores.scales(weight))) * (1.0 + 1.0 / weight)  # by what the pictures add to the scores
    return weight, replace(alone, temperature=alone.temperature * wider, typical_gap=alone.typical_gap * wider)
