"""Training images scored by dictionaries that never saw them, in closed form: nothing is fitted again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.left_out_kernel import Paths, Products, held_out_objectives, path_gram
from hcep.classify.path_model import PathModel
from hcep.classify.tree_prior import TreePrior
from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.dictionary.moments import degrees_of_freedom
from hcep.hierarchy import Hierarchy
from hcep.pursuit.blocks import n_threads, single_threaded_blas

Floats = NDArray[np.float64]
Images = NDArray[np.float32]
Index = NDArray[np.intp]

#: Most images that are scored; of more, a stratified sample.
MAX_IMAGES = 1024
#: Most pairs of an image and a class that `left_out_probabilities` scores.
MAX_OBJECTIVES = 20_000_000
#: Most folds of a class; with more images each fold takes out several.
MAX_FOLDS = 50
#: The largest leverage of an image on the metric; above it, ``1 / (1 - leverage)`` would be rounding.
MAX_LEVERAGE = 0.999
#: An image with a larger share in the weight of its class is not left out: the mean of the others would be rounding.
MAX_SHARE = 0.999
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class ClassTree:
    """The paths of every class's leaf, and how leaf embeddings make atoms."""

    paths: Paths
    #: (n_synsets, n_classes) sparse; what each leaf embedding adds to each synset's; the root's row is zero
    shares: sparse.csr_array
    parents: Index  # (n_atoms,)
    children: Index  # (n_atoms,)
    #: (n_synsets, n_words); what texts of inner synsets add to the means of the leaves' texts; None if there are none
    own_texts: Floats | None = None

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Classes in the order in which a walk through the tree visits them."""
        nodes = self.paths.nodes[self.paths.first]
        return np.lexsort(nodes.T[::-1]).astype(np.int64)

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """Position of each class in that order."""
        return np.argsort(self.order).astype(np.int64)

    @classmethod
    def of(cls, hierarchy: Hierarchy, leaves: list[str]) -> ClassTree:
        tree, shares = hierarchy.path_tree, leaf_shares(hierarchy, leaves)
        shares.data[: shares.indptr[1]] = 0.0
        by_class = shares.tocsc()
        place = np.zeros(len(hierarchy), dtype=np.int64)
        place[[hierarchy.index(leaf) for leaf in leaves]] = np.arange(len(leaves))
        klass = place[tree.synset[tree.leaf_nodes]]
        nodes = tree.ancestors()[tree.leaf_nodes[np.argsort(klass, kind="stable")]].astype(np.int64)
        number = np.bincount(klass, minlength=len(leaves))
        of_tree = (tree.edge, tree.synset, tree.parent, tree.level, by_class.indptr, by_class.indices)
        edge, synset, parent, level, above, above_synset = (a.astype(np.int64) for a in of_tree)
        lengths, first = (nodes >= 0).sum(axis=1), np.cumsum(number) - number
        paths = Paths(nodes, lengths, first, number, edge, synset, parent, level, above, above_synset, by_class.data)
        parents = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.child_pointer))
        return cls(paths, shares, parents, np.asarray(hierarchy.child_index))

    def atoms(self, leaves: Floats) -> Floats:
        """Differences of children and parents, (n_atoms, n_dims)."""
        synsets = self.shares @ leaves
        if self.own_texts is not None:
            synsets[:, -self.own_texts.shape[1] :] += self.own_texts
        return np.asarray(synsets[self.children] - synsets[self.parents])

    def by_leaves(self, by_atom: Floats) -> Floats:
        """A gradient by the atoms as one by the leaves."""
        synsets = np.zeros((self.shares.shape[0], by_atom.shape[1]))
        np.add.at(synsets, self.children, by_atom)
        np.subtract.at(synsets, self.parents, by_atom)
        return np.asarray(self.shares.T @ synsets)

    def gram(self, atoms: Floats) -> Floats:
        """Products of atoms that share a path, as `path_gram` stores them."""
        out = np.zeros((len(self.paths.edge), self.paths.nodes.shape[1]))
        path_gram(atoms, self.paths, out)
        return out


@dataclass(frozen=True, eq=False)
class Folds:
    """Which images each fold takes out, and which of those it scores.

    A fold takes the same number of images, mostly one, out of *every* class that has two, so that an image's own class
    and its rivals rest on equally many. Leaving out only the scored image would weaken no mean but that of its class.
    """

    rows: Index  # (n_out,); images that some fold takes out
    fold: Index  # (n_out,); the fold that takes each out
    scored: NDArray[np.bool_]  # (n_out,); whether the image is scored

    @classmethod
    def of(cls, own: Index, shares: Floats, random_state: int = 0) -> Folds:
        """Folds that score up to `MAX_IMAGES` images, the same number of every class as far as they have them.

        Parameters
        ----------
        own : (n_images,); class of each image
        shares : (n_images,); each image's share in the weight of its class
        """
        counts, leaves_others = np.bincount(own), shares < MAX_SHARE
        rng = np.random.default_rng(random_state)
        rank = rank_in_class(own, rng)
        per_class = max(1, MAX_IMAGES // max(len(np.unique(own[leaves_others])), 1))
        rows = np.flatnonzero(leaves_others & (rank < per_class))
        size = np.clip(counts // MAX_FOLDS, 1, -(-per_class // MAX_FOLDS))[own[rows]]
        scored = np.ones(len(rows), dtype=bool)
        scored[rng.permutation(len(rows))[MAX_IMAGES:]] = False
        return cls(rows, rank[rows] // size, scored)

    def only(self, n_images: int) -> Folds:
        """The same folds with at most so many images scored, spread evenly."""
        scored = np.zeros_like(self.scored)
        scored[spread(np.flatnonzero(self.scored), n_images)] = True
        return replace(self, scored=scored)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Training images in a metric that they fixed themselves.

    Without image x, of weight w in a class of mean m and weight W, and with ``r = x - m``, the mean moves by
    ``-w r / (W - w)``, every atom d_v by its share of that, and by Sherman and Morrison ``<a, b>`` becomes
    ``<a, b> + g <a, r> <b, r>``. (The covariance's trace and degrees of freedom are kept.) The last `n_words` columns
    are the word block. Texts know nothing of the images, so that r is zero there.
    """

    images: Images  # (n_images, n_dims) float32; after the transform
    own: Index  # (n_images,); class of each
    weights: Floats  # (n_images,); how much each counts
    class_weights: Floats  # (n_classes,); weight of all training images of each class
    means: Floats  # (n_classes, n_dims) float64; after the transform
    gamma: float  # what a weight of 1 adds to the covariance, in the metric; 0 if the metric is Euclidean
    tree: ClassTree
    #: of the class means, applied after images are left out, and the number of images that each is the mean of
    prior: TreePrior | None = None
    n_images: Floats | None = None  # (n_classes,)
    n_words: int = 0

    @property
    def n_pictures(self) -> int:
        return int(self.means.shape[1]) - self.n_words

    @cached_property
    def norms(self) -> Floats:
        """x.x, x.r, r.r, g, the share of r that the mean moves by, and the weight (1 on average), (6, n_images)."""
        residuals = self.images - self.means.astype(np.float32)[self.own]
        residuals[:, self.n_pictures :] = 0.0
        pairs = ((self.images, self.images), (self.images, residuals), (residuals, residuals))
        x_x, x_r, r_r = (np.einsum("ij,ij->i", a, b).astype(np.float64) for a, b in pairs)
        total = self.class_weights[self.own]
        # An image that is all of its class stays in the mean, and its residual never was in the covariance.
        moved = np.where(self.weights < MAX_SHARE * total, self.weights / np.maximum(total - self.weights, TINY), 0.0)
        lost = self.gamma * moved * total
        g = lost / np.maximum(1.0 - lost * r_r, 1.0 - MAX_LEVERAGE)
        return np.stack([x_x, x_r, r_r, g, moved, self.weights / (self.weights.mean() or 1.0)])

    def held_out(self, folds: Folds, anchor: float, n_rivals: int) -> Floats:
        """Objectives (n_scored, 1 + n_rivals) by dictionaries without the fold's images; the own class comes first.

        The images are those of `folds.rows`. Rivals are the other classes of the nearest means.
        """
        n_rivals = min(n_rivals, len(self.means) - 1)
        out = np.zeros((len(self.own), 1 + n_rivals))
        in_parts(np.unique(folds.fold), lambda f: self._score_fold(folds, f, anchor, out), len(out))
        return out[folds.scored]

    def _means_without(self, rows: Index) -> Floats:
        """Class means without some images, (n_classes, n_dims), under the prior if there is one."""
        means, words = self.means[:, : self.n_pictures].copy(), self.means[:, self.n_pictures :]
        own, place = np.unique(self.own[rows], return_inverse=True)
        by_class = sparse.csr_array((self.weights[rows], (place, np.arange(len(rows)))))
        total, gone = self.class_weights[own][:, None], by_class.sum(axis=1)[:, None]
        left = np.maximum(total - gone, TINY)
        without = (total * means[own] - by_class @ self.images[rows, : self.n_pictures]) / left
        means[own] = np.where(gone < MAX_SHARE * total, without, means[own])
        if self.prior is not None and self.n_images is not None:
            n_left = self.n_images.copy()
            n_left[own] *= np.where(gone < MAX_SHARE * total, left / total, 1.0)[:, 0]
            means = self.prior.posterior(means, n_left)[0]
        return np.hstack([means, words]) if self.n_words else means

    def _score_fold(self, folds: Folds, fold: int, anchor: float, out: Floats) -> None:
        rows = np.flatnonzero((folds.fold == fold) & folds.scored)
        if not len(rows):
            return
        leaves = self._means_without(np.flatnonzero(folds.fold == fold))
        atoms = self.tree.atoms(leaves)
        single, x = atoms.astype(np.float32), self.images[rows]
        mine, mean = np.unique(self.own[rows], return_inverse=True)
        norms = np.ascontiguousarray(self.norms[:, rows])
        of_means = self.means[mine].astype(np.float32) @ single.T
        if self.n_words:  # x - r of each image: the mean of its class, but the image's own word block
            mean = np.arange(len(rows))
            own_means = self.means[self.own[rows], : self.n_pictures].astype(np.float32)
            of_means = np.hstack([own_means, x[:, self.n_pictures :]]) @ single.T
        products = Products(x @ single.T, of_means, self.tree.gram(atoms), *norms[:4])
        rivals = in_tree_order(nearest_rivals(x, self.own[rows], leaves, out.shape[1] - 1), self.tree)
        slots = np.column_stack([self.own[rows], rivals])
        objectives = np.empty(slots.shape)

        def work(part: Index) -> None:
            held_out_objectives(part, mean, slots, products, self.tree.paths, float(anchor), objectives)

        in_parts(np.array_split(np.arange(len(rows)), n_threads(None)), work, len(rows))
        out[rows] = objectives


def left_out_probabilities(model: PathModel, X: NDArray[Any], own: Index, counts: Floats) -> Floats | None:
    """Class probabilities (n_images, n_classes) of training images, each by a model that was fitted without it.

    The means of classes whose training images are all given are taken without the shifts of a refinement, as these
    follow the labels of single images. None if a head predicts the class, for fewer than two classes, and if there are
    too many images and classes.

    Parameters
    ----------
    X : (n_images, n_dims); raw embeddings of images that the model was fitted on
    own : (n_images,); the class that each was labelled with
    counts : (n_classes,); images that the mean of each class is of
    """
    n_classes, dictionary, leaves = len(model.classes), model.dictionary, model.leaves.tolist()
    if model.head is not None or n_classes < 2 or len(X) * n_classes > MAX_OBJECTIVES:
        return None
    transform, texts = dictionary.transform, dictionary.word_block
    tree, images = ClassTree.of(model.hierarchy, leaves), np.asarray(dictionary.embed(X), dtype=np.float32)
    means = np.asarray(dictionary.synset_embeddings[[model.hierarchy.index(leaf) for leaf in leaves]], dtype=np.float64)
    n_here, n_pictures = np.bincount(own, minlength=n_classes), means.shape[1] - texts.shape[1]
    if texts.size:
        tree = replace(tree, own_texts=texts - tree.shares @ means[:, n_pictures:])
    for c in np.flatnonzero((n_here > 0) & (n_here >= counts)):
        means[c, :n_pictures] = images[own == c, :n_pictures].mean(axis=0, dtype=np.float64)
    n_images = float(counts.sum())
    gamma = transform.covariance_weight(degrees_of_freedom(int(n_images), n_images, n_classes))
    space = LeftOut(images, own, np.ones(len(X)), counts, means, gamma, tree, n_words=texts.shape[1])
    fold = rank_in_class(own, np.random.default_rng(0)) // max(1, -(-int(n_here.max()) // MAX_FOLDS))
    folds = Folds(np.arange(len(X)), fold, np.ones(len(X), dtype=bool))
    by_slot = space.held_out(folds, float(model.options.anchor), n_classes)
    others = np.array([[c for c in tree.order.tolist() if c != k] for k in range(n_classes)])
    objectives = np.empty_like(by_slot)
    np.put_along_axis(objectives, np.column_stack([own, others[own]]), by_slot, axis=1)
    return model.calibration.probabilities(objectives, model.priors)


def nearest_rivals(x: Images, own: Index, leaves: Floats, n_rivals: int) -> NDArray[np.int64]:
    """The classes, other than its own, with the nearest embeddings to each image, (n_images, n_rivals), unordered."""
    if n_rivals == len(leaves) - 1:
        others = np.arange(n_rivals, dtype=np.int64)
        return np.asarray(others + (others >= own[:, None]))
    squares = np.einsum("ij,ij->i", leaves, leaves).astype(np.float32)
    single, found = leaves.T.astype(np.float32), np.empty((len(x), n_rivals), dtype=np.int64)
    step = max(1, 2**24 // len(leaves))
    for start in range(0, len(x) if n_rivals else 0, step):
        rows = slice(start, start + step)
        distance = squares - 2.0 * (x[rows] @ single)
        distance[np.arange(len(distance)), own[rows]] = np.inf
        found[rows] = np.argpartition(distance, n_rivals - 1, axis=1)[:, :n_rivals]
    return found


def in_tree_order(rivals: NDArray[np.int64], tree: ClassTree) -> NDArray[np.int64]:
    """Rivals in the order of the tree, so that each path shares as much as possible with the one before."""
    return np.asarray(tree.order[np.sort(tree.rank[rivals], axis=1)])


def spread(rows: Index, most: int) -> Index:
    """At most so many of the rows, spread evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)]


def rank_in_class(own: Index, rng: np.random.Generator) -> Index:
    """Position of each image among those of its class, in random order."""
    shuffled = rng.permutation(len(own))
    order = shuffled[np.argsort(own[shuffled], kind="stable")]
    first = np.flatnonzero(np.diff(own[order], prepend=-1))
    rank = np.empty(len(own), dtype=np.intp)
    rank[order] = np.arange(len(own)) - np.repeat(first, np.diff(np.append(first, len(own))))
    return rank


def in_parts(parts: Any, work: Callable[[Any], Any], n_images: int) -> list[Any]:
    """Call `work` on each part, on all cores if there are enough images to pay for the threads."""
    if len(parts) == 1 or n_images < 256 or n_threads(None) == 1:
        return [work(part) for part in parts]
    with single_threaded_blas(), ThreadPoolExecutor(n_threads(None)) as pool:
        return list(pool.map(work, parts))
