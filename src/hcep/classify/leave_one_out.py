"""Choosing the metric and the anchor on the training images themselves, each left out in turn, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.dictionary.moments import ClassMoments
from hcep.hierarchy import Hierarchy

#: An anchor that leaves, for all purposes, the nearest class mean.
MEAN_ANCHOR = 1000.0
#: Anchors tried by default.
ANCHORS = (0.01, 0.03, 0.1, 0.3, 1.0, MEAN_ANCHOR)
#: Shrinkages tried by default.
SHRINKAGES = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
#: What images too few to choose by get: the best on average at one and two images per class (docs/defaults.md).
FALLBACK_ANCHOR = 0.03
FALLBACK_SHRINKAGE = 0.8
#: Where the choice leans among pairs that the images cannot tell apart.
PRIOR_ANCHOR = 0.03
PRIOR_SHRINKAGE = 0.6
#: Images a class needs before one of them may be left out: a mean of one image says nothing about a mean of two.
MIN_IMAGES = 3
#: Images left out at most; a stratified sample beyond.
MAX_IMAGES = 4096
#: Wrong classes that each left-out image is compared with: those of the nearest means.
N_RIVALS = 24


@dataclass(frozen=True)
class LeaveOneOutScore:
    """How one (shrinkage, anchor) did on left-out training images."""

    shrinkage: float | None
    anchor: float
    accuracy: float
    log_loss: float
    temperature: float
    correct: NDArray[np.bool_] = field(repr=False, compare=False)


def leave_one_out_scores(
    hierarchy: Hierarchy,
    X: NDArray[np.floating],
    y: NDArray[np.str_],
    shrinkages: Sequence[float | None] = SHRINKAGES,
    anchors: Sequence[float] = ANCHORS,
    random_state: int = 0,
    min_images: int = MIN_IMAGES,
    *,
    moments: ClassMoments | None = None,
    center: bool = False,
) -> list[LeaveOneOutScore]:
    """Score every pair of shrinkage and anchor by leaving training images out, one at a time.

    Parameters
    ----------
    hierarchy : Hierarchy
        Its leaves are the classes in `y`.
    X : (n_images, n_dims)
        After unit norm, where that is wanted.
    y : (n_images,) leaf ids
    shrinkages : None is the Euclidean metric
    anchors : weights lambda of the prior, at least 0
    random_state : picks the sample where there are more than `MAX_IMAGES`
    min_images : images of classes with fewer are not left out
    moments : ClassMoments, optional
        Of `X` and `y`, where they are known already; with a second moment, unless all `shrinkages` are None.
    center : bool
        Whether the mean of all images is subtracted.

    Returns
    -------
    list of LeaveOneOutScore
        Empty where no class has `min_images` images.

    Notes
    -----
    Without image x of class c (n_c images, mean m, r = x - m) the mean of c moves by ``-r / (n_c - 1)``, every synset
    above it by its share of that, and every atom d_v by ``-u_v r / (n_c - 1)``: a rank-one change of each path. The
    within-class covariance loses ``n_c / (n_c - 1) r r^T``, which by Sherman and Morrison turns the inner product
    ``<a, b>`` of the whitened space into ``<a, b> + g <a, r> <b, r>``. (Its trace and degrees of freedom are kept.) So
    the objective of a left-out image on a path is a small ridge problem whose numbers are already there, no refit:

        min_b ||e - D^T b||**2 + lambda ||b||**2,        e = x - a(leaf), b = coefficients - 1
    """
    classes, own, counts = np.unique(y, return_inverse=True, return_counts=True)
    sample = _sample(own, counts, min_images, random_state)
    if not len(sample):
        return []
    if moments is None:
        moments = ClassMoments(second_moment=any(s is not None for s in shrinkages))
        moments.update(X, [str(c) for c in classes], own)
    centre = moments.total_mean() if center else np.zeros(moments.n_dims)
    means = moments.class_means()[[moments.labels[str(c)] for c in classes]] - centre
    images = X[sample].astype(np.float64) - centre
    n_free, tried, scores = len(X) - len(classes), np.asarray(anchors, dtype=np.float64), []
    if any(shrinkage is not None for shrinkage in shrinkages):
        variances, axes = moments.within_spectrum()
        rotated, rotated_means = images @ axes, means @ axes
        # The second moment about the centre along each eigenvector: within classes and between them.
        square = (n_free * np.maximum(variances, 0.0) + counts @ rotated_means**2) / len(X)
    for shrinkage in shrinkages:
        if shrinkage is None:
            scale = 1.0 / np.sqrt(moments.mean_square_norm(centre, None))
            x, m, gamma = images * scale, means * scale, 0.0
        else:
            weights = shrunk_weights(variances, shrinkage)
            mean_square = float(square @ weights**2) or 1.0
            x, m = (a * weights / np.sqrt(mean_square) for a in (rotated, rotated_means))
            gamma = (1.0 - shrinkage) / n_free * mean_square
        dictionary = ConceptDictionary(
            hierarchy, average_upwards(hierarchy, dict(zip(map(str, classes), m, strict=True)))
        )
        objectives = _left_out_objectives(x, own[sample], counts, gamma, dictionary, classes, tried)
        scores += [_score(shrinkage, a, objectives[:, :, k]) for k, a in enumerate(anchors)]
    return scores


def shrunk_weights(variances: NDArray[np.float64], shrinkage: float) -> NDArray[np.float64]:
    """What whitening multiplies each eigenvector's coordinate by; 1 where nothing varies."""
    variances = np.maximum(variances, 0.0)
    shrunk = (1.0 - shrinkage) * variances + shrinkage * variances.mean()
    return 1.0 / np.sqrt(shrunk) if variances.any() else np.ones_like(variances)


def _sample(own: NDArray[np.intp], counts: NDArray[np.intp], min_images: int, random_state: int) -> NDArray[np.intp]:
    """Up to `MAX_IMAGES` images of classes with enough of them, as evenly over classes as may be."""
    usable = np.flatnonzero(counts[own] >= max(min_images, 2))
    if len(usable) <= MAX_IMAGES:
        return usable
    shuffled = np.random.default_rng(random_state).permutation(usable)
    by_class = shuffled[np.argsort(own[shuffled], kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(own[by_class]))])[own[by_class]]
    rank = np.arange(len(by_class)) - start
    return np.sort(by_class[np.argsort(rank, kind="stable")[:MAX_IMAGES]])


def _left_out_objectives(
    x: NDArray[np.float64],
    own: NDArray[np.intp],
    counts: NDArray[np.intp],
    gamma: float,
    dictionary: ConceptDictionary,
    classes: NDArray[np.str_],
    anchors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Objectives (n_images, 1 + n_rivals, n_anchors) of the left-out images, their own class first."""
    from hcep.classify import leave_one_out_kernel

    hierarchy, tree, atoms = dictionary.hierarchy, dictionary.hierarchy.path_tree, dictionary.atoms
    leaf = np.array([hierarchy.index(str(c)) for c in classes])
    means = dictionary.synset_embeddings[leaf]
    squares, x_means = np.einsum("ij,ij->i", x, x), x @ means.T
    rivals = _rivals(x_means, np.einsum("ij,ij->i", means, means), own)
    share = average_upwards(hierarchy, dict(zip(map(str, classes), np.eye(len(classes)), strict=True)))
    grouped = tree.leaf_nodes[np.argsort(tree.synset[tree.leaf_nodes], kind="stable")]
    first_path = np.searchsorted(tree.synset[grouped], leaf, side="left")
    n_paths = np.searchsorted(tree.synset[grouped], leaf, side="right") - first_path
    out = np.empty((len(x), 1 + rivals.shape[1], len(anchors)))
    leave_one_out_kernel.left_out_objectives(
        own, rivals, counts, gamma, squares, x_means, means @ means.T, x @ atoms.T, means @ atoms.T, atoms @ atoms.T,
        share, tree.synset, tree.parent, tree.edge, tree.level, grouped, first_path, n_paths, anchors, tree.depth, out,
    )  # fmt: skip
    return out


def _rivals(x_means: NDArray[np.float64], squares: NDArray[np.float64], own: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each image the classes, other than its own, whose means are nearest."""
    n_rivals = min(N_RIVALS, x_means.shape[1] - 1)
    distance = squares - 2.0 * x_means
    distance[np.arange(len(own)), own] = np.inf
    # In memory order, as the kernel is compiled once more for any other.
    return np.ascontiguousarray(np.argpartition(distance, n_rivals - 1, axis=1)[:, :n_rivals])


def _score(shrinkage: float | None, anchor: float, objectives: NDArray[np.float64]) -> LeaveOneOutScore:
    own, best_rival = objectives[:, 0], objectives[:, 1:].min(axis=1, initial=np.inf)
    temperature, loss = fit_temperature(objectives)
    correct = own < best_rival
    return LeaveOneOutScore(shrinkage, anchor, float(np.mean(correct)), loss, temperature, correct)


def choose(scores: Sequence[LeaveOneOutScore]) -> LeaveOneOutScore:
    """The pair to use: of those within one standard error of the best, the one nearest to the prior.

    The standard error is that of the paired difference to the best, so that pairs which fail on the same images are
    told apart even by few of them.
    """
    best = max(scores, key=lambda s: s.accuracy)
    equal = [s for s in scores if best.accuracy - s.accuracy <= _paired_error(best.correct, s.correct)]
    return min(equal, key=_distance_to_prior)


def _paired_error(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    return float(np.std(a.astype(float) - b.astype(float)) / np.sqrt(len(a)))


def _distance_to_prior(score: LeaveOneOutScore) -> tuple[float, float]:
    shrinkage = 1.0 if score.shrinkage is None else score.shrinkage
    distance = abs(np.log10(max(score.anchor, 1e-9) / PRIOR_ANCHOR)) + 2.0 * abs(shrinkage - PRIOR_SHRINKAGE)
    return float(distance), -score.accuracy


def fit_temperature(objectives: NDArray[np.float64]) -> tuple[float, float]:
    """Temperature t of ``softmax(-objective / t)`` that makes column 0 most likely, and the mean log loss there."""
    gaps = objectives - objectives[:, :1]
    typical = float(np.median(np.abs(gaps[:, 1:]))) if gaps.shape[1] > 1 else 0.0
    if typical <= 0.0:
        return 1.0, 0.0

    def loss(log_t: float) -> float:
        exponent = -gaps / np.exp(log_t)
        top = exponent.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(exponent - top).sum(axis=1)) + top[:, 0]))

    from scipy.optimize import minimize_scalar

    found = minimize_scalar(loss, bounds=(np.log(typical) - 8, np.log(typical) + 3), method="bounded")
    return float(np.exp(found.x)), float(found.fun)
