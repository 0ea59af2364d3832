"""Refined class embeddings: means moved to where training images, each left out, are classified best."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hcep.classify.choosing import ANCHOR, FEW
from hcep.classify.left_out import MAX_SHARE, LeftOut, in_parts, in_tree_order, nearest_rivals, rank_in_class
from hcep.classify.left_out_kernel import Batch, Gradient, Loss, left_out_gradient, subtract_atoms
from hcep.classify.training import TrainingSet
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.moments import ClassMoments
from hcep.pursuit.blocks import n_threads

Floats = NDArray[np.float64]
#: What the parameter `refine` of the estimators can be.
Refine = bool | Literal["auto", "atoms"]

#: Weight of the prior that a leaf is its class mean, in images; a third of it lowered accuracy at 50 per class.
PRIOR = 30.0
#: Classes of the nearest means that each image is told apart from. More changed nothing.
N_RIVALS = 20
#: Rivals that are more than so many temperatures from the best have no effect.
N_TEMPERATURES = 5.0
#: Iterations of L-BFGS; after these the loss is flat.
MAX_ITERATIONS = 8
#: Most images, and most images times classes; more are not needed, or cost more than they improve.
MAX_IMAGES, MAX_SIZE = 20_000, 40_000_000


def is_worth_it(training: TrainingSet, anchor: float) -> bool:
    """Whether refining is worth its time: with few images per class, or at small anchors, it changed nothing."""
    n_classes = training.n_classes
    is_affordable = n_classes > 1 and min(MAX_IMAGES, MAX_SIZE // n_classes) >= FEW * n_classes
    return bool(is_affordable and anchor >= ANCHOR and np.median(training.exact_counts) >= FEW)


def refine(
    training: TrainingSet,
    dictionary: ConceptDictionary,
    moments: ClassMoments,
    anchor: float,
    temperature: float,
    prior: float = PRIOR,
) -> Floats:
    """Shifts of the leaves from their means, (n_classes, n_dims), to a lower left-out cross entropy of their images.

    Minimises, over one shift s_c per class, by L-BFGS::

        mean_i -log softmax(-J_i / T)[own class]  +  prior / (n_images T) * sum_c ||s_c||**2

    where J_ik is the anchored objective of image i on the best path of class k in a dictionary without image i: the
    image is taken out of the means of its class and of every concept above it, and its residual out of the metric. The
    mean over images is weighted. Inner synsets stay the means of their children, so that a shift moves every atom above
    it. Divided by n_images the penalty is a prior of fixed weight, in images: one number serves 5 and 50 per class.
    """
    from scipy.optimize import minimize

    space = _space(training, dictionary, moments)
    shape, n = space.means.shape, len(space.own)
    nearest = nearest_rivals(space.images, space.own, space.means, min(N_RIVALS, shape[0] - 1))
    rivals = in_tree_order(nearest, space.tree)
    objectives = loss_and_gradient(space, space.means, rivals, anchor, temperature, needs_gradient=False)[2]
    far = objectives[:, 1:] - objectives.min(axis=1, keepdims=True) > N_TEMPERATURES * temperature
    rivals = np.take_along_axis(np.where(far, -1, rivals), np.argsort(far, axis=1, kind="stable"), axis=1)
    weight = prior / (n * temperature)

    def loss(flat: Floats) -> tuple[float, Floats]:
        shift = flat.reshape(shape)
        value, gradient, _ = loss_and_gradient(space, space.means + shift, rivals, anchor, temperature)
        return value + weight * float(np.vdot(shift, shift)), (gradient + 2.0 * weight * shift).ravel()

    options = {"maxiter": MAX_ITERATIONS, "maxcor": 8, "ftol": 1e-5}
    shifts = minimize(loss, np.zeros(space.means.size), jac=True, method="L-BFGS-B", options=options).x
    return np.asarray(shifts.reshape(shape))


def _space(training: TrainingSet, dictionary: ConceptDictionary, moments: ClassMoments) -> LeftOut:
    """Images that can be left out, sorted by class; equally many of each class where there are too many."""
    own, n_classes = training.own[: training.n_exact], training.n_classes
    per_class = max(FEW, min(MAX_IMAGES, MAX_SIZE // n_classes) // n_classes)
    kept = (training.shares[: training.n_exact] < MAX_SHARE) & (
        rank_in_class(own, np.random.default_rng(0)) < per_class
    )
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(own[rows], kind="stable")]
    return training.left_out(rows, dictionary.transform, moments)


def loss_and_gradient(
    space: LeftOut,
    leaves: Floats,
    rivals: NDArray[np.int64],
    anchor: float,
    temperature: float,
    needs_gradient: bool = True,
) -> tuple[float, Floats, Floats]:
    """Weighted mean of the left-out cross entropy over own class and rivals, its gradient by `leaves`, the objectives.

    The images of `space` are sorted by class; `rivals` are (n_images, n_rivals), -1 beyond the last.
    """
    tree, n, n_classes = space.tree, len(space.own), len(leaves)
    atoms = tree.atoms(leaves)
    single, means, gram = atoms.astype(np.float32), space.means.astype(np.float32), tree.gram(atoms)
    start = np.searchsorted(space.own, np.arange(n_classes + 1))
    batch = Batch(start, space.images, space.norms, rivals, means)
    loss, objectives = Loss(single, gram, float(anchor), float(temperature)), np.full((n, 1 + rivals.shape[1]), np.inf)

    def work(classes: NDArray[np.intp]) -> tuple[float, NDArray[np.float32], Floats]:
        by_atom, by_gram = np.zeros(single.shape if needs_gradient else (0, 0), np.float32), np.zeros_like(gram)
        total = left_out_gradient(classes, batch, loss, tree.paths, Gradient(objectives, by_atom, by_gram))
        return total, by_atom, by_gram

    # Each part has the same number of images; more cores change nothing but the rounding of the sum.
    ends = np.searchsorted(start, np.linspace(0, n, n_threads(None) + 1)[1:-1])
    losses, by_atoms, by_grams = zip(*in_parts(np.split(np.arange(n_classes), ends), work, n), strict=True)
    if not needs_gradient:
        return sum(losses) / n, np.zeros_like(leaves), objectives
    by_atom: Floats = np.asarray(np.sum(by_atoms, axis=0, dtype=np.float64))
    subtract_atoms(atoms, np.asarray(np.sum(by_grams, axis=0)), tree.paths, by_atom)
    return sum(losses) / n, (-2.0 / n) * tree.by_leaves(by_atom), objectives
