"""The right level: for each image the most specific concept that is sure enough, from the probabilities of classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hcep._checks import is_number
from hcep.dictionary.checks import blocks
from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: How sure an answer is unless the caller says otherwise.
SURE = 0.9
#: Held-out images are compared with images of about the same confidence, the probability of the likeliest class:
#: between two of these edges, or between edges further apart if a bin would have fewer images than this.
EDGES, FEWEST = (0.2, 0.4, 0.6, 0.8, 0.95), 50
#: An image is rare if fewer held-out images than this share of the fewest of a bin lie between the same two edges. Over
#: four data sets with 100 to 1,000 held-out images, this keeps the promise for doubtful images; with 1, sure answers
#: were up to a sixth of the path less specific.
RARE = 0.4
#: However well answers do on held-out images, an answer is more likely than not.
LEAST = 0.5
#: Rows of probabilities may exceed 1 by this much: files round. Sums of probabilities are rounded by less than this.
ROUNDING, ROUNDED = 0.01, 1e-9


def require_sure(sure: Any, name: str = "sure") -> float:
    """The number, or an HCEPError unless it is between 0 and 1."""
    if not (is_number(sure) and 0.0 < sure < 1.0):
        raise HCEPError(
            f"{name} must be a number between 0 and 1, such as 0.9 for answers that are 90 % sure; got {quote(sure)}"
        )
    return float(sure)


class AnswerConcept(NamedTuple):
    """A concept that answers for an image: its id, or the label of a class, with its name and rank."""

    id: str
    name: str
    rank: str | None


class ChosenLevels(NamedTuple):
    """The synset that answers for each image, 0 if nothing is sure, and how likely it is, all (n_images,)."""

    synsets: NDArray[np.intp]
    sureness: Floats  #: the model's estimate or, if that is higher, what held-out images promise
    estimates: Floats  #: the model's own estimate: the probability of the classes below the synset


class AnswerConcepts(NamedTuple):
    """The concept that answers for each image, None if nothing is sure, with the numbers of `ChosenLevels`."""

    concepts: list[AnswerConcept | None]
    sureness: list[float]
    estimates: list[float]


@dataclass(frozen=True, eq=False)
class Levels:
    """The concepts that an answer can be: for each class the concept it is, and those above it, without the root.

    Attributes
    ----------
    own : (n_classes,) int; the synset that each class is
    below : (n_classes, n_synsets) sparse; 1 where a class is below a synset, or is that synset
    """

    hierarchy: Hierarchy
    own: NDArray[np.intp]
    below: sparse.csr_array

    @classmethod
    def of(cls, hierarchy: Hierarchy, leaves: Sequence[str]) -> Levels:
        """The levels of classes that are these concepts, which may also be inner ones."""
        below = leaf_shares(hierarchy, leaves).T.tolil()
        below[:, 0] = 1.0
        own = np.array([hierarchy.index(leaf) for leaf in leaves], dtype=np.intp)
        return cls(hierarchy, own, (below.tocsr() > 0).astype(np.float64))

    @cached_property
    def n_below(self) -> NDArray[np.intp]:
        """Number of classes below each synset, (n_synsets,)."""
        return np.asarray(self.below.sum(axis=0)).ravel().astype(np.intp)

    @cached_property
    def above(self) -> NDArray[np.intp]:
        """The synsets that each class is below or is, the deepest first, (n_classes, most); 0 fills the rows."""
        rows = [row[row > 0] for row in np.split(self.below.indices, self.below.indptr[1:-1])]
        table = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.intp)
        for synsets, row in zip(table, rows, strict=True):
            synsets[: len(row)] = row[np.lexsort((row, -self.hierarchy.levels[row]))]
        return table

    def candidates(self, probabilities: Floats, class_index: NDArray[np.intp]) -> tuple[NDArray[np.intp], Floats]:
        """The concepts above the best class of each image, the most specific first, and their probabilities.

        Both are (n_images, most). The most specific concept has the fewest classes below it; of concepts with equally
        many, the more probable comes first, then the deeper. Rows are filled with the root, of probability 0.
        """
        synsets, values = self.above[class_index], np.empty((len(class_index), self.above.shape[1]))
        for block in blocks(0, len(values), len(self.hierarchy)):
            concepts = np.minimum(probabilities[block] @ self.below, 1.0)
            values[block] = np.take_along_axis(concepts, synsets[block], axis=1)
        # A concept above all classes says as little as the root, unless some probability belongs to no class.
        is_all = (self.n_below[synsets] == len(self.own)) & (synsets != self.own[class_index][:, None])
        values[(synsets == 0) | (is_all & (values > 1.0 - 1e-5))] = 0.0
        sizes = np.where(synsets == 0, len(self.own) + 1, self.n_below[synsets])
        order = np.lexsort((-values, sizes), axis=1)
        return np.take_along_axis(synsets, order, axis=1), np.take_along_axis(values, order, axis=1)

    def choose(
        self,
        probabilities: Floats,
        class_index: NDArray[np.intp],
        sure: float = SURE,
        held_out: HeldOutLevels | None = None,
    ) -> ChosenLevels:
        """Choose the synset that answers for each image."""
        sure = require_sure(sure)
        synsets, values = self.candidates(probabilities, class_index)
        thresholds, promised = np.full(len(values), sure - ROUNDED), np.zeros(len(values), dtype=bool)
        if held_out is not None:
            thresholds, promised = held_out.rule(probabilities[np.arange(len(values)), class_index], sure)
        is_sure = values > thresholds[:, None]
        rows, first, is_answered = np.arange(len(values)), np.argmax(is_sure, axis=1), is_sure.any(axis=1)
        estimates = np.where(is_answered, values[rows, first], 0.0)
        sureness = np.where(promised & is_answered, np.maximum(estimates, sure), estimates)
        return ChosenLevels(np.where(is_answered, synsets[rows, first], 0), sureness, estimates)

    def concepts(
        self, chosen: ChosenLevels, probabilities: Floats, labels: Sequence[Any], rank: str | None
    ) -> AnswerConcepts:
        """What `choose` returned as concepts.

        With a `rank`, a more specific answer becomes the concept at that rank above it, or the next above the rank.
        What is right for the answer is right for a concept above it, so a promise holds. An answer that is a class is
        called by its label.
        """
        synsets, sureness, estimates = chosen.synsets, chosen.sureness.copy(), chosen.estimates.copy()
        own = {int(synset): str(label) for synset, label in zip(self.own, labels, strict=True)}
        concepts: dict[int, AnswerConcept | None] = {0: None}
        for i in np.unique(synsets[synsets > 0]).tolist():
            concepts[i], above = self._at_rank(i, own, rank)
            if above != i:
                rows = np.flatnonzero(synsets == i)
                below = probabilities[rows] @ self.below[:, [above]].toarray()[:, 0]
                estimates[rows] = np.minimum(below, 1.0)
                sureness[rows] = np.maximum(sureness[rows], estimates[rows])
        return AnswerConcepts([concepts[i] for i in synsets.tolist()], sureness.tolist(), estimates.tolist())

    def _at_rank(self, i: int, own: dict[int, str], rank: str | None) -> tuple[AnswerConcept | None, int]:
        """A synset as an answer, at the rank or above it, and the synset that is answered; None if all are below it."""
        h = self.hierarchy
        shown, synset = (h.at_rank(h.ids[i], rank) or (None, h.ids[i])) if rank is not None else (h.ids[i], h.ids[i])
        if shown is None:
            return None, i
        concept, index = h.class_of(synset), h.index(synset)
        if shown not in (concept, synset):
            return AnswerConcept(shown, dict(h.merged(synset))[shown], h.rank(shown)), index
        return AnswerConcept(own.get(index, concept), h.name(concept), h.rank(concept)), index

    def held_out(self, probabilities: Floats, class_index: NDArray[np.intp], own: NDArray[np.intp]) -> HeldOutLevels:
        """What labelled images that the classifier never saw, of classes `own`, say about its answers.

        The score of an image is the largest probability of a wrong answer: with any higher threshold, what
        `choose` answers is above the image's class.
        """
        synsets, values = self.candidates(probabilities, class_index)
        highest_before = np.maximum.accumulate(np.pad(values, ((0, 0), (1, 0))), axis=1)[:, :-1]
        can_be_answered = values > highest_before
        wrong = can_be_answered & ~self.is_below(own[:, None], synsets)
        scores = np.where(wrong, values, 0.0).max(axis=1, initial=0.0)
        return HeldOutLevels(scores, probabilities[np.arange(len(own)), class_index])

    def possible(self, concepts: Sequence[str]) -> NDArray[np.bool_]:
        """Which classes are among some concepts, by id or name, or below one, (n_classes,)."""
        places = [self.hierarchy.index(self.hierarchy.find(concept)) for concept in concepts]
        return np.asarray(self.below[:, places].sum(axis=1)).ravel() > 0

    def is_below(self, classes: NDArray[Any], synsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether classes are below synsets, or equal to them, pair by pair."""
        pair = np.asarray(classes, dtype=np.int64) * len(self.hierarchy) + synsets
        keys = self._pairs
        return np.asarray(keys[np.minimum(np.searchsorted(keys, pair), len(keys) - 1)] == pair)

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        pairs = self.below.tocoo()
        return np.sort(pairs.row.astype(np.int64) * len(self.hierarchy) + pairs.col)


@dataclass(frozen=True, eq=False)
class HeldOutLevels:
    """Labelled images that a classifier never saw: what turns "this likely" into "right this often".

    Attributes
    ----------
    scores : (n_images,); the largest probability of a wrong answer, or 0 (see `Levels.held_out`)
    confidence : (n_images,); the probability of the likeliest class

    Notes
    -----
    Split conformal prediction by confidence (Mondrian): a new image is compared with held-out images in the same bin of
    confidence. If the threshold is the ``ceil((n + 1) sure)``-th smallest of their n scores, the answer is right with
    probability at least `sure`, for doubtful images as well as for sure ones, as long as new images are like the
    held-out ones.
    """

    scores: Floats
    confidence: Floats

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def _sorted(self) -> Floats:
        """The confidences in ascending order."""
        return np.sort(self.confidence)

    def edges(self, fewest: int) -> Floats:
        """The edges that leave at least `fewest` images in each bin, as far as there are so many."""
        edges: list[float] = []
        n_used = 0
        for edge in EDGES:
            n_below = int(np.searchsorted(self._sorted, edge))
            if n_below - n_used >= fewest and len(self) - n_below >= fewest:
                edges.append(edge)
                n_used = n_below
        return np.array(edges)

    def bins(self, fewest: int) -> tuple[Floats, list[Floats]]:
        """The edges and, for each bin, the scores of its images in ascending order."""
        edges = self.edges(fewest)
        which = np.searchsorted(edges, self.confidence, side="right")
        return edges, [np.sort(self.scores[which == b]) for b in range(len(edges) + 1)]

    def rule(self, confidence: Floats, sure: float) -> tuple[Floats, NDArray[np.bool_]]:
        """What the probability of an answer must exceed, and whether that promises anything, both (n_images,).

        With too few held-out images for a promise, answers must be as likely as `sure` says.
        """
        thresholds, promised = self._rule(confidence, sure, _fewest(sure))
        # A level that needs larger bins is no less strict than the strictest one that the usual bins allow.
        usual, _ = self._rule(confidence, min(sure, FEWEST / (FEWEST + 1.0)), FEWEST)
        return np.maximum(thresholds, usual), promised

    def _rule(self, confidence: Floats, sure: float, fewest: int) -> tuple[Floats, NDArray[np.bool_]]:
        edges, bins = self.bins(fewest)
        quantiles = np.array([conformal_quantile(scores, 1.0 - sure) for scores in bins])
        which = np.searchsorted(edges, confidence, side="right")
        own = np.array([max(sure - ROUNDED, scores.max(initial=0.0)) for scores in bins])
        promised = np.isfinite(quantiles)
        thresholds = np.where(promised, np.maximum(quantiles, min(LEAST, sure)), own)[which]
        # Where few held-out images are as doubtful as an image, surer ones must not speak for it: its answer is also
        # as likely as asked by the model's own estimate. A higher threshold never breaks the promise.
        counts = np.bincount(np.searchsorted(EDGES, self.confidence, side="right"), minlength=len(EDGES) + 1)
        is_rare = counts[np.searchsorted(EDGES, confidence, side="right")] < RARE * fewest
        return np.where(is_rare, np.maximum(thresholds, sure - ROUNDED), thresholds), promised[which]


def promise(sure: float, held_out: HeldOutLevels | None, what: str = "photos") -> str | None:
    """What answers of this level promise, in one sentence; None without enough held-out images.

    >>> promise(0.9, None)
    """
    if held_out is None or len(held_out) < needed(sure):
        return None
    among = f" among doubtful {what} and among sure ones," if len(held_out.edges(_fewest(sure))) else ""
    return (
        f"At least {100 * sure:g} % of such answers are right,{among} for {what} like the "
        f"{len(held_out):,} held-out ones that the model was calibrated with."
    )


def _fewest(sure: float) -> int:
    """Fewest held-out images of a bin that can promise this much."""
    return max(FEWEST, needed(sure))


def needed(sure: float) -> int:
    """Fewest held-out images that can promise this much at all."""
    return int(np.ceil(1.0 / (1.0 - sure) - 1.0 - 1e-9))


def conformal_quantile(scores: Floats, alpha: float) -> float:
    """The ``ceil((n + 1) (1 - alpha))``-th smallest of n held-out scores, infinite if n is too small.

    The score of a new image of the same kind is at most this with probability at least ``1 - alpha``.

    >>> conformal_quantile(np.arange(1.0, 20.0), 0.1), conformal_quantile(np.arange(3.0), 0.1)
    (18.0, inf)
    """
    if not (is_number(alpha) and 0.0 < alpha < 1.0):
        raise HCEPError(
            f"alpha must be a number between 0 and 1, such as 0.1 for a coverage of 90 %; got {quote(alpha)}"
        )
    rank = int(np.ceil((len(scores) + 1) * (1.0 - alpha) - 1e-9))
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else float("inf")


@dataclass(frozen=True, eq=False)
class RolledUp:
    """The right level of each row of `roll_up`.

    Attributes
    ----------
    answer : (n_images,) object; id of the most specific concept that is sure enough, None if nothing is
    answer_name : (n_images,) object; its display name
    answer_probability : (n_images,) float; how likely the answer is: `answer_estimate` or, if that is higher, what
        held-out images promise; nan if nothing is sure enough
    answer_estimate : (n_images,) float; the probability of the classes below the answer; nan if nothing is sure enough
    class_index : (n_images,) int; the best guess below the answer, as a column of the probabilities
    class_probability : (n_images,) float
    """

    answer: NDArray[np.object_]
    answer_name: NDArray[np.object_]
    answer_probability: Floats
    answer_estimate: Floats
    class_index: NDArray[np.intp]
    class_probability: Floats

    def __len__(self) -> int:
        return len(self.answer)


def roll_up(
    probabilities: ArrayLike,
    hierarchy: Hierarchy,
    *,
    sure: float = SURE,
    classes: Sequence[str] | None = None,
    temperature: float | None = None,
    only: Sequence[str] = (),
    rank: str | None = None,
    calibration: HeldOutLevels | None = None,
) -> RolledUp:
    """Answer with the most specific concept that is sure enough, from the probabilities of any classifier.

    A concept is as likely as the classes below it together, each counted once. Of the concepts above the likeliest
    class, the answer is the one with the fewest classes below it that is at least `sure` likely. The root is never an
    answer: if nothing else is likely enough, the answer is None.

    Parameters
    ----------
    probabilities : (n_images, n_classes) array
        Rows may add up to less than 1, as in a file of the best few classes: the rest belongs to no concept.
    hierarchy : Hierarchy
    sure : float between 0 and 1
    classes : the concept of each column, by id or name; by default the columns are ``hierarchy.leaves``
    temperature : take `probabilities` as logits, and divide them by this number before the softmax
    only : the only possible classes, or concepts above them, at this place or time; others have probability 0
    rank : answer at this rank of the hierarchy, such as "family", or above it, even if a more specific concept is sure
    calibration : HeldOutLevels
        Made by `calibrate_levels`, with the same `only`. Answers are then right at least as often as `sure` says, for
        images like those.

    Returns
    -------
    RolledUp

    Examples
    --------
    >>> from hcep import Hierarchy, roll_up
    >>> h = Hierarchy.from_edges([("thing", "pet"), ("pet", "cat"), ("pet", "dog"), ("thing", "car")])
    >>> answers = roll_up([[0.5, 0.45, 0.05], [0.02, 0.02, 0.96], [0.4, 0.1, 0.5]], h, classes=["cat", "dog", "car"])
    >>> answers.answer.tolist(), answers.answer_probability.round(2).tolist()
    (['pet', 'car', None], [0.95, 0.96, nan])
    """
    levels, values = _read(probabilities, hierarchy, classes, temperature, only)
    index = np.argmax(values, axis=1)
    labels = [hierarchy.class_of(hierarchy.ids[i]) for i in levels.own]
    at_rank = None if rank is None else hierarchy.find_rank(rank)
    answers = levels.concepts(levels.choose(values, index, sure, calibration), values, labels, at_rank)
    ids, names = (np.array([one and one[field] for one in answers.concepts], dtype=object) for field in (0, 1))
    is_answered = [one is not None for one in answers.concepts]
    sureness, estimates = (np.where(is_answered, column, np.nan) for column in (answers.sureness, answers.estimates))
    return RolledUp(ids, names, sureness, estimates, index, values[np.arange(len(values)), index])


def calibrate_levels(
    probabilities: ArrayLike,
    labels: Sequence[str],
    hierarchy: Hierarchy,
    *,
    classes: Sequence[str] | None = None,
    temperature: float | None = None,
    only: Sequence[str] = (),
) -> HeldOutLevels:
    """What labelled images that a classifier never saw say about its answers, for `roll_up`.

    Parameters
    ----------
    probabilities, hierarchy, classes, temperature, only : as for `roll_up`
    labels : the class of each image, by id or name; images of classes that are not possible are ignored
    """
    levels, values = _read(probabilities, hierarchy, classes, temperature, only)
    if len(labels) != len(values):
        raise HCEPError(
            f"labels must have one entry for each of {len(values):,} rows of probabilities; got {len(labels):,}"
        )
    own = class_indices(levels, labels)
    if len(only):
        is_listed = levels.possible(only)[own]
        values, own = values[is_listed], own[is_listed]
    return levels.held_out(values, np.argmax(values, axis=1), own)


def class_indices(levels: Levels, labels: Sequence[str]) -> NDArray[np.intp]:
    """The class of each label, by id or name, (n_labels,); raises HCEPError for a label that is not a class."""
    h = levels.hierarchy
    place = {int(synset): c for c, synset in enumerate(levels.own)}
    known = {label: place.get(h.index(h.own_leaves.get(label) or h.find(label))) for label in set(map(str, labels))}
    own = [known[str(label)] for label in labels]
    if None in own:
        raise HCEPError(f"labels must be among the classes; {quote(labels[own.index(None)])} is not one of them")
    return np.array(own, dtype=np.intp)


def _read(
    probabilities: ArrayLike,
    hierarchy: Hierarchy,
    classes: Sequence[str] | None,
    temperature: float | None,
    only: Sequence[str],
) -> tuple[Levels, Floats]:
    """The levels of the classes and the checked probabilities, (n_images, n_classes)."""
    values = np.asarray(probabilities, dtype=np.float64)
    labels = list(hierarchy.leaves if classes is None else map(str, classes))
    if values.ndim != 2 or values.shape[1] != len(labels):
        expected = "the number of leaves of the hierarchy" if classes is None else "the number of classes"
        raise HCEPError(f"probabilities must have {len(labels):,} columns, {expected}; got shape {values.shape}")
    if not np.isfinite(values).all():
        raise HCEPError("probabilities must be finite numbers; replace classes without a score by 0")
    if temperature is not None:
        values = softmax(values, temperature)
    if (values < 0.0).any() or (values.sum(axis=1) > 1.0 + ROUNDING).any():
        raise HCEPError(
            "probabilities must be at least 0, and rows must add up to at most 1; "
            "for logits, pass temperature=1.0, or the temperature they were calibrated with"
        )
    levels = levels_of(hierarchy, labels)
    return levels, among(values, levels.possible(only)) if len(only) else values


def among(probabilities: Floats, possible: NDArray[np.bool_]) -> Floats:
    """The probabilities of classes, given that an image is of a possible one; 0 for the others.

    Parameters
    ----------
    probabilities : (n_images, n_classes); what a row lacks to 1 may belong to any class, so it stays unassigned
    possible : bool array of shape (n_classes,), or (n_images, n_classes)
    """
    left = np.where(possible, probabilities, 0.0)
    total = left.sum(axis=1)
    excluded = probabilities.sum(axis=1) - total
    return np.asarray(left / np.maximum(np.maximum(total, 1.0 - excluded), 1e-12)[:, None])


def levels_of(hierarchy: Hierarchy, classes: Sequence[str]) -> Levels:
    """The levels above classes, by id or name; raises HCEPError unless they are different concepts."""
    own = hierarchy.own_leaves
    leaves = [own.get(label) or hierarchy.find(label) for label in classes]
    twice = next((leaf for leaf, n in Counter(leaves).items() if n > 1), None)
    if twice is not None:
        raise HCEPError(f"classes must be different concepts; {quote(twice)} occurs twice")
    return Levels.of(hierarchy, leaves)


def softmax(logits: Floats, temperature: float) -> Floats:
    """Probabilities of logits, (n_images, n_classes), that are divided by a temperature."""
    if not (is_number(temperature) and temperature > 0.0):
        raise HCEPError(f"temperature must be a number above 0, got {quote(temperature)}")
    scaled = logits / temperature
    odds = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
