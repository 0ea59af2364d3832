"""How sure an answer is: answers at an inner concept, prediction sets with guaranteed coverage, novelty scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.decoding import Decode, decode as decode_probabilities
from hcep.classify.path_model import Inference, PathModel
from hcep.classify.right_level import SURE, AnswerConcepts, ChosenLevels, HeldOutLevels, conformal_quantile
from hcep.dictionary.checks import blocks
from hcep.dictionary.path_problem import OPEN
from hcep.dictionary.transform import prepared_rows, unit_rows
from hcep.errors import HCEPError
from hcep.pursuit.limits import PathLimits

if TYPE_CHECKING:
    from hcep.classify.training import TrainingSet

Floats = NDArray[np.float64]
#: Most training images that the explained floor is computed from, per class and in all.
PER_CLASS, IN_ALL = 50, 10_000
#: The explained floor of a class is this percentile of its training images.
PERCENTILE = 5.0
#: Of the typical images of an opened network, these percentages are called atypical, and below the explained floor.
ATYPICAL, FLOOR = 1.0, 2.0
#: Weight of an image's unexplained share in `unknown_scores`, relative to the entropy of its classes.
WEIGHT = 12.0
#: Fewest images for which a class has a percentile of its own; with fewer, it gets that of all images.
ENOUGH = 20
#: Columns of `HeldOutScores.scores`: the probability of the first concept on the answer's path that the true class is
#: not below, or 0; 1 minus the probability of the true class; like the first, with the true class taken away from the
#: model, as if it were unknown; the novelty score; the score of `Levels.held_out`, and the probability of the answer.
#: Models of earlier releases lack the last two.
SCORES = ("concept", "classes", "kind", "unknown", "level", "confidence")
N_EARLIER = 4


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores of labelled images that the model was not fitted on, from which guarantees are computed."""

    class_index: NDArray[np.int64]  # (n_images,); the true class of each
    scores: Floats  # (n_images, 6)
    only: tuple[str, ...] = ()  # the only possible concepts, if the images were answered with a list of them
    by_group: bool = False  # whether the rows are groups of photos instead of photos

    def __len__(self) -> int:
        return len(self.class_index)

    def quantile(self, which: str, alpha: float, of: Any = slice(None)) -> float:
        """The conformal quantile of one of `SCORES`, over all images or a selection."""
        return conformal_quantile(self.scores[of, SCORES.index(which)], alpha)


def class_quantiles(model: PathModel, which: str, alpha: float, by_class: bool) -> Floats:
    """The conformal quantile that holds for each class, (n_classes,): one for all, or each class's own."""
    held = scores_of(model)
    if not by_class:
        return np.full(len(model.classes), held.quantile(which, alpha))
    return np.array([held.quantile(which, alpha, held.class_index == c) for c in range(len(model.classes))])


def held_out_levels(model: PathModel, by_group: bool = False) -> HeldOutLevels | None:
    """What turns the model's estimates into a promise; None if no images, or none by this release, calibrated it.

    Photos promise nothing about groups of photos, and groups nothing about single photos.
    """
    held_out = model.held_out
    if held_out is None or held_out.scores.shape[1] == N_EARLIER or held_out.by_group != by_group:
        return None
    return HeldOutLevels(*(held_out.scores[:, SCORES.index(name)] for name in ("level", "confidence")))


def is_limited(model: PathModel, limits: PathLimits | None, n_images: int) -> NDArray[np.bool_]:
    """Whether images have other limits than the held-out images had, so that these promise nothing, (n_images,)."""
    held_out = model.limits(only=() if model.held_out is None else model.held_out.only)
    if limits is None:
        return np.full(n_images, held_out is not None)
    expected = OPEN if held_out is None else held_out.state[0]
    differs: NDArray[np.bool_] = (limits.state != expected).any(axis=1)
    return differs[limits.limit(slice(0, n_images))]


def right_levels(
    model: PathModel,
    inference: Inference,
    sure: float = SURE,
    limited: NDArray[np.bool_] | None = None,
    by_group: bool = False,
    decode: Decode = "sure",
) -> ChosenLevels:
    """Choose the synset that answers for each image: see `Levels.choose`, or for another decoder `decoding.decode`.

    Nothing is sure about an atypical image, however likely its class seems. What held-out images promise does not hold
    for images that are `limited`, (n_images,), in another way than they were. Other decoders always answer.
    """
    if decode != "sure":
        synsets, estimates = decode_probabilities(model.levels, inference.probabilities, decode)
        return ChosenLevels(synsets, estimates, estimates)
    held_out = held_out_levels(model, by_group)
    chosen = model.levels.choose(inference.probabilities, inference.class_index, sure, held_out)
    if held_out is not None and limited is not None and limited.any():
        own = model.levels.choose(inference.probabilities, inference.class_index, sure)
        chosen = ChosenLevels(*(np.where(limited, a, b) for a, b in zip(own, chosen, strict=True)))
    if inference.atypical is None:
        return chosen
    return chosen._replace(synsets=np.where(inference.atypical, 0, chosen.synsets))


def answer_concepts(
    model: PathModel,
    inference: Inference,
    sure: float = SURE,
    limited: NDArray[np.bool_] | None = None,
    rank: str | None = None,
    by_group: bool = False,
    decode: Decode = "sure",
) -> AnswerConcepts:
    """`right_levels` as concepts, at a rank or above it (see `Levels.concepts`)."""
    chosen = right_levels(model, inference, sure, limited, by_group, decode)
    return model.levels.concepts(chosen, inference.probabilities, model.classes.tolist(), rank)


def hedged_nodes(
    model: PathModel, inference: Inference, alpha: float = 0.1, *, by_class: bool = False
) -> NDArray[np.intp]:
    """The concept that each answer stops at with one threshold for all images, or with one per class, as a node.

    With ``v_1, v_2, …`` the path of the answer and ``P(v)`` the probability of the classes below v, the score of a
    class is ``P(v_l)`` for the first v_l that it is not below. The walk goes on to v_l while P(v_l) is above the
    quantiles of all classes that it would leave behind: the answer is above all classes whose score is at most theirs.
    """
    nodes = _descend(model, inference, class_quantiles(model, "concept", alpha, by_class))
    return nodes if inference.atypical is None else np.where(inference.atypical, 0, nodes)


def kinds(model: PathModel, inference: Inference, alpha: float = 0.2) -> NDArray[np.intp]:
    """For images of an unknown class, the concept they are a kind of, as a node of the path tree."""
    return _descend(model, inference, class_quantiles(model, "kind", alpha, False))


def unknown_kinds(model: PathModel, inference: Inference, false_alarms: float = 0.05) -> list[str | None]:
    """What each image is a kind of, by name, if it seems to belong to no class of the model; needs explained shares.

    `false_alarms` is the share of known images that may be taken for unknown ones. None for all images of a model
    without held-out scores.
    """
    if model.held_out is None:
        return [None] * len(inference.class_index)
    h, threshold = model.hierarchy, model.held_out.quantile("unknown", false_alarms)
    is_unknown, synsets = unknown_scores(model, inference) > threshold, h.path_tree.synset[kinds(model, inference)]
    return [h.name(h.ids[i]) if unknown else None for i, unknown in zip(synsets, is_unknown, strict=True)]


def class_sets(
    model: PathModel, inference: Inference, alpha: float = 0.1, *, by_class: bool = False
) -> NDArray[np.bool_]:
    """Which classes each image may belong to, (n_images, n_classes), always including the predicted one."""
    sets = 1.0 - inference.probabilities <= class_quantiles(model, "classes", alpha, by_class)
    sets[np.arange(len(sets)), inference.class_index] = True
    return np.asarray(sets)


def as_subtrees(model: PathModel, sets: NDArray[np.bool_]) -> list[tuple[str, ...]]:
    """Sets of classes as the highest concepts without a class outside the set, ids in the hierarchy's order."""
    hierarchy, below = model.hierarchy, model.classes_below
    sizes, answers = np.asarray(below.sum(axis=0)).ravel(), []
    parents = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.child_pointer))
    for block in blocks(0, len(sets), len(hierarchy)):
        whole = sets[block].astype(np.float64) @ below > sizes - 0.5
        highest = whole.copy()
        for parent, child in zip(parents.tolist(), hierarchy.child_index.tolist(), strict=True):
            highest[:, child] &= ~whole[:, parent]
        answers += [tuple(hierarchy.ids[i] for i in np.flatnonzero(row)) for row in highest]
    return answers


def held_out_scores(model: PathModel, inference: Inference, own: NDArray[np.intp]) -> HeldOutScores:
    """The scores of labelled images, of classes `own`, that the model was not fitted on."""
    rows, probabilities = np.arange(len(own)), inference.probabilities
    others = probabilities.copy()
    others[rows, own] = 0.0
    others /= np.maximum(others.sum(axis=1, keepdims=True), 1e-300)
    rival, nodes = np.argmax(others, axis=1), _answer_nodes(model, inference)
    rival_nodes = np.where(rival == inference.class_index, nodes, _first_nodes(model)[rival])
    concept, kind = _scores(model, probabilities, nodes, own), _scores(model, others, rival_nodes, own)
    levels = model.levels.held_out(probabilities, inference.class_index, own)
    scores = [concept, 1.0 - probabilities[rows, own], kind, unknown_scores(model, inference)]
    scores += [levels.scores, levels.confidence]
    return HeldOutScores(own.astype(np.int64), np.column_stack(scores))


def scores_of(model: PathModel) -> HeldOutScores:
    """The held-out scores of a model; raises HCEPError if it has none."""
    if model.held_out is None:
        raise HCEPError(
            "the model has no held-out scores, which a promise needs: call model.calibrate(X, y) with "
            "labelled images that it was not fitted on (`hcep model calibrate MODEL LABELLED_PHOTOS`)"
        )
    return model.held_out


def _first_nodes(model: PathModel) -> NDArray[np.intp]:
    """The first complete path of each class."""
    columns, first = model.paths_by_class
    return np.asarray(model.hierarchy.path_tree.leaf_nodes[columns[first]])


def _answer_nodes(model: PathModel, inference: Inference) -> NDArray[np.intp]:
    """A complete path of the predicted class: the path of the inference if it leads there, or else the first."""
    of_path = model.class_of_synset[model.hierarchy.path_tree.synset[inference.nodes]]
    return np.where(of_path == inference.class_index, inference.nodes, _first_nodes(model)[inference.class_index])


def _along(model: PathModel, probabilities: Floats, nodes: NDArray[np.intp]) -> tuple[NDArray[np.intp], Floats]:
    """The path of every node and the probability of each concept on it, both (n_images, depth); 0 beyond its end."""
    tree = model.hierarchy.path_tree
    paths = np.maximum(tree.ancestors()[nodes], 0).astype(np.intp)
    values = np.empty(paths.shape)
    for block in blocks(0, len(nodes), len(model.hierarchy)):
        concepts = np.minimum(probabilities[block] @ model.classes_below, 1.0)
        values[block] = np.take_along_axis(concepts, tree.synset[paths[block]].astype(np.intp), axis=1)
    values[paths == 0] = 0.0
    return paths, values


def _scores(model: PathModel, probabilities: Floats, nodes: NDArray[np.intp], own: NDArray[np.intp]) -> Floats:
    """Probability of the first concept of a path that the own class is not below; 0 if there is none."""
    paths, values = _along(model, probabilities, nodes)
    leaves_own = ~model.levels.is_below(own[:, None], model.hierarchy.path_tree.synset[paths]) & (paths > 0)
    first = np.argmax(leaves_own, axis=1)
    return np.where(leaves_own.any(axis=1), values[np.arange(len(own)), first], 0.0)


def _descend(model: PathModel, inference: Inference, quantiles: Floats) -> NDArray[np.intp]:
    """Go down each path while the next concept is more probable than the quantiles of all classes it excludes."""
    paths, values = _along(model, inference.probabilities, _answer_nodes(model, inference))
    sure = (values > _excluded_quantiles(model, quantiles)[paths]) & (paths > 0)
    steps = np.cumprod(sure, axis=1).sum(axis=1)
    return np.where(steps > 0, paths[np.arange(len(paths)), np.maximum(steps - 1, 0)], 0)


def _excluded_quantiles(model: PathModel, quantiles: Floats) -> Floats:
    """The largest quantile of the classes below a node's parent and not below the node, (n_nodes,)."""
    tree, largest = model.hierarchy.path_tree, np.full(model.hierarchy.path_tree.n_nodes, quantiles[0])
    if (quantiles == quantiles[0]).all():
        return largest
    below = model.classes_below.tocsc()
    for block in blocks(0, tree.n_nodes, len(model.classes)):
        above, here = (below[:, s[block]].toarray() > 0 for s in (tree.synset[np.maximum(tree.parent, 0)], tree.synset))
        largest[block] = np.where(above & ~here, quantiles[:, None], -np.inf).max(axis=0)
    return largest


def explained_floor(model: PathModel, training: TrainingSet) -> NDArray[np.float64] | None:
    """The explained share of every class below which an image is unlike the training images, (n_classes,).

    None if no class has two images.
    """
    from hcep.classify.left_out import MAX_SHARE, spread  # here: explaining a photo needs no compiler

    can_be_left_out = np.flatnonzero(training.shares < MAX_SHARE)
    counts = np.bincount(training.own[can_be_left_out], minlength=training.n_classes)
    enough = np.flatnonzero(counts)
    if not len(enough):
        return None
    most = max(2, min(PER_CLASS, IN_ALL // len(enough)))
    # With more classes than can be looked at, a few stand for all, and no class has a percentile of its own.
    looked_at = enough[:: -(-2 * len(enough) // IN_ALL)]
    by_class = can_be_left_out[np.argsort(training.own[can_be_left_out], kind="stable")]
    of_class = np.split(by_class, np.cumsum(counts)[:-1])
    rows = [spread(of_class[c], most) for c in looked_at]
    shares = _left_out_shares(model, training, np.concatenate(rows))
    floor = np.full(training.n_classes, np.percentile(shares, PERCENTILE))
    for c, own in zip(looked_at, np.split(shares, np.cumsum(list(map(len, rows)))[:-1]), strict=True):
        if len(own) >= ENOUGH:
            floor[c] = np.percentile(own, PERCENTILE)
    return floor


def typical_direction(images: NDArray[Any]) -> NDArray[np.float64]:
    """`PathModel.typical` of raw embeddings of typical images, (n_dims,).

    Photos, whatever they show, share much of their direction: they activate many features a little. Noise, plain
    colours, pages of text and drawings activate a few features strongly, also where this makes a class look sure. The
    score is the cosine of an embedding and the mean direction; the fourth root of the mean depends less on the classes
    that the typical images happen to have.
    """
    unit = unit_rows(np.asarray(images, dtype=np.float64))
    mean = unit.mean(axis=0, keepdims=True)
    direction = prepared_rows(mean, 0.25, unit_norm=True)[0]
    lowest = np.percentile(unit @ direction, ATYPICAL)
    return np.asarray(direction / max(lowest, 1e-12))


def unlike(model: PathModel, inference: Inference) -> NDArray[np.bool_] | None:
    """Whether each image is unlike the training images, (n_images,); needs explained shares.

    It is if it is atypical, or if less of it is explained than of nearly all training images of its class. None if the
    model does not know what its training images are like.
    """
    if model.explained_floor is None:
        return inference.atypical
    low = inference.explained < model.explained_floor[inference.class_index]
    return np.asarray(low if inference.atypical is None else low | inference.atypical)


def _left_out_shares(model: PathModel, training: TrainingSet, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Explained share of training images, as if each had been left out of the fit: else all new images look unlike.

    Without an image its class's mean is ``W / (W - w)`` times as far from it, and an inner product ``<a, b>`` of the
    whitened space becomes ``<a, b> + g <a, r> <b, r>`` with ``r = x - mean`` (see `hcep.classify.left_out.LeftOut`).
    What the path leaves is nearly along r. A text does not depend on the images, so that what it leaves stays.
    """
    transform, tree, dictionary = model.dictionary.transform, model.hierarchy.path_tree, model.dictionary
    own, images = training.own[rows], training.images[rows]
    problem, x = dictionary.path_problem(model.options.anchor), dictionary.embed(images).astype(np.float32)
    r, names = np.split(
        x - dictionary.synset_embeddings[model.leaf_index[own]].astype(np.float32), [dictionary.n_pictures], axis=1
    )
    squares, left = np.einsum("ij,ij->i", x, x), np.full(len(x), np.inf)
    columns, first = model.paths_by_class
    number = np.diff(np.append(first, len(columns)))
    ends = tree.cut(tree.leaf_nodes[columns], model.options.max_steps)
    for k in range(number.max()):
        part = np.flatnonzero(number[own] > k)
        nodes = ends[first[own[part]] + k]
        along = problem.along_images(nodes, x[part])
        a = problem.coefficients(nodes, along)
        residuals = problem.squared_residuals(x[part], squares[part].astype(np.float64), nodes, along, a)
        left[part] = np.minimum(left[part], residuals)
    grown = 1.0 / (1.0 - training.shares[rows])
    lost = transform.covariance_weight(training.n_free) * training.weights[rows] * grown
    g = lost / np.maximum(1.0 - lost * np.einsum("ij,ij->i", r, r), 1e-12)
    along, words = np.einsum("ij,ij->i", x[:, : r.shape[1]], r), np.einsum("ij,ij->i", names, names)
    left = np.maximum(left - words, 0.0)
    left_out: NDArray[np.float64] = grown**2 * (left + g * left**2) + words
    return np.asarray(1.0 - left_out / np.maximum(squares + g * along**2, 1e-300))


def unknown_scores(model: PathModel, inference: Inference) -> NDArray[np.float64]:
    """Novelty scores, (n_images,), higher for images less like the model's classes; needs explained shares.

    ``H + 12 (u - u_c / 2)``: H is the entropy of order one half of the class probabilities, ``2 log sum sqrt(p)``,
    which depends on the long tail of classes more than on the first few; u is the share of the image that its path
    leaves unexplained and u_c the share above which an image is unlike the training images of that class.
    """
    typical = 0.0 if model.explained_floor is None else 1.0 - model.explained_floor[inference.class_index]
    entropy = 2.0 * np.log(np.sqrt(np.maximum(inference.probabilities, 0.0)).sum(axis=1))
    return np.asarray(entropy + WEIGHT * (1.0 - inference.explained - 0.5 * typical))
