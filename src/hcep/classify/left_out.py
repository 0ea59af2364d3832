"""Training images scored by dictionaries that never saw them: folds in closed form, nothing is fitted again."""

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
from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.dictionary.transform import EmbeddingTransform
from hcep.hierarchy import Hierarchy
from hcep.pursuit.blocks import n_threads, single_threaded_blas

Floats = NDArray[np.float64]
Images = NDArray[np.float32]
Index = NDArray[np.intp]

#: Images scored at most; a stratified sample beyond.
MAX_IMAGES = 1024
#: Folds at most in a class that has more images: each then takes out several.
MAX_FOLDS = 50
#: The most of its norm an image may lend to the metric; beyond, one over one minus it is rounding.
MAX_LEVERAGE = 0.999


@dataclass(frozen=True, eq=False)
class ClassTree:
    """The paths of every class's leaf, and how leaf embeddings make atoms."""

    paths: Paths
    #: (n_synsets, n_classes) sparse; what each leaf embedding adds to each synset's; the root's row is zero
    shares: sparse.csr_array
    parents: Index  # (n_atoms,)
    children: Index  # (n_atoms,)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Classes in the order of a walk through the tree."""
        nodes = self.paths.nodes[self.paths.first]
        return np.lexsort(nodes.T[::-1]).astype(np.int64)

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """Place of each class in that order."""
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
        return np.asarray(synsets[self.children] - synsets[self.parents])

    def by_leaves(self, by_atom: Floats) -> Floats:
        """A gradient by the atoms as one by the leaves."""
        synsets = np.zeros((self.shares.shape[0], by_atom.shape[1]))
        np.add.at(synsets, self.children, by_atom)
        np.subtract.at(synsets, self.parents, by_atom)
        return np.asarray(self.shares.T @ synsets)

    def gram(self, atoms: Floats) -> Floats:
        """Products of atoms that share a path, as `path_gram` keeps them."""
        out = np.zeros((len(self.paths.edge), self.paths.nodes.shape[1]))
        path_gram(atoms, self.paths, out)
        return out


@dataclass(frozen=True, eq=False)
class Folds:
    """Which images each fold takes out, and which of those it scores.

    A fold takes as many images, mostly one, out of *every* class that has two, so that own class and rivals stand on
    equally many. Leaving out the scored image alone would make its own class's mean the only one that is worse.
    """

    rows: Index  # (n_out,) int; images taken out by some fold
    own: Index  # (n_out,) int; class of each
    fold: Index  # (n_out,) int; the fold that takes it out
    scored: NDArray[np.bool_]  # (n_out,) bool
    counts: Index  # (n_classes,) int; images of each class

    @classmethod
    def of(cls, own: Index, n_classes: int, random_state: int = 0) -> Folds:
        """Folds that score up to `MAX_IMAGES` images, the same number of every class as far as they have them."""
        counts = np.bincount(own, minlength=n_classes)
        rng = np.random.default_rng(random_state)
        rank = rank_in_class(own, rng)
        per_class = max(1, MAX_IMAGES // max(int(np.count_nonzero(counts > 1)), 1))
        rows = np.flatnonzero((counts[own] > 1) & (rank < per_class))
        size = np.clip(counts // MAX_FOLDS, 1, -(-per_class // MAX_FOLDS))[own[rows]]
        scored = np.ones(len(rows), dtype=bool)
        scored[rng.permutation(len(rows))[MAX_IMAGES:]] = False
        return cls(rows, own[rows], rank[rows] // size, scored, counts)

    def only(self, n_images: int) -> Folds:
        """The same with at most so many images scored, evenly."""
        kept = np.zeros_like(self.scored)
        kept[spread(np.flatnonzero(self.scored), n_images)] = True
        return replace(self, scored=kept)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Training images in a metric that they fixed themselves.

    Without image x (class c of n images, ``r = x - m``) the mean moves by ``-r / (n - 1)``, every atom d_v by its
    share of that, and by Sherman and Morrison ``<a, b>`` becomes ``<a, b> + g <a, r> <b, r>``. (The covariance's trace
    and degrees of freedom are kept.)
    """

    images: Images  # (n_images, n_dims) float32; after the transform
    own: Index  # (n_images,) int; class of each
    counts: Index  # (n_classes,) int; images of each class in training
    means: Floats  # (n_classes, n_dims) float64; after the transform
    gamma: float  # what one image's share in the covariance is worth; 0 where the metric is Euclidean
    tree: ClassTree

    @classmethod
    def of(
        cls, transform: EmbeddingTransform, prepared: NDArray[Any], own: Index, counts: Index, means: Floats, tree: Any
    ) -> LeftOut:
        """Images after power and unit norm, and their class means, through the rest of a transform."""
        n_free = int(counts.sum() - np.count_nonzero(counts))
        shrinkage = 1.0 if transform.shrinkage is None or n_free < 1 else transform.shrinkage
        gamma = (1.0 - shrinkage) / max(n_free, 1) / transform.scale**2
        images = transform.after_unit_norm(np.asarray(prepared, dtype=np.float32))
        return cls(images, own, counts, transform.after_unit_norm(means), gamma, tree)

    @cached_property
    def norms(self) -> Floats:
        """x.x, x.r, r.r and g of each image, (4, n_images)."""
        residuals = self.images - self.means.astype(np.float32)[self.own]
        pairs = ((self.images, self.images), (self.images, residuals), (residuals, residuals))
        x_x, x_r, r_r = (np.einsum("ij,ij->i", a, b).astype(np.float64) for a, b in pairs)
        n = np.maximum(self.counts[self.own], 2)
        # An image alone in its class never was in the covariance.
        lost = np.where(self.counts[self.own] > 1, self.gamma * n / (n - 1.0), 0.0)
        return np.stack([x_x, x_r, r_r, lost / np.maximum(1.0 - lost * r_r, 1.0 - MAX_LEVERAGE)])

    def held_out(self, folds: Folds, anchor: float, n_rivals: int) -> Floats:
        """Objectives (n_scored, 1 + n_rivals) by dictionaries without the fold's images; the own class comes first.

        The images are those of `folds.rows`. Rivals are the other classes of the nearest means.
        """
        n_rivals = min(n_rivals, len(self.means) - 1)
        out = np.zeros((len(self.own), 1 + n_rivals))
        in_parts(np.unique(folds.fold), lambda f: self._score_fold(folds, f, anchor, out), len(out))
        return out[folds.scored]

    def _score_fold(self, folds: Folds, fold: int, anchor: float, out: Floats) -> None:
        away, rows = np.flatnonzero(folds.fold == fold), np.flatnonzero((folds.fold == fold) & folds.scored)
        if not len(rows):
            return
        leaves = self.means.copy()
        own, place, n_out = np.unique(self.own[away], return_inverse=True, return_counts=True)
        sums = sparse.csr_array((np.ones(len(away)), (place, np.arange(len(away))))) @ self.images[away]
        n = self.counts[own][:, None]
        leaves[own] = (n * leaves[own] - sums) / (n - n_out[:, None])
        atoms = self.tree.atoms(leaves)
        single, x = atoms.astype(np.float32), self.images[rows]
        mine, mean = np.unique(self.own[rows], return_inverse=True)
        norms = np.ascontiguousarray(self.norms[:, rows])
        of_means = self.means[mine].astype(np.float32) @ single.T
        products = Products(x @ single.T, of_means, self.tree.gram(atoms), *norms[:3])
        rivals = in_tree_order(nearest_rivals(x, self.own[rows], leaves, out.shape[1] - 1), self.tree)
        slots = np.column_stack([self.own[rows], rivals])
        found = np.empty(slots.shape)

        def work(some: Index) -> None:
            held_out_objectives(some, mean, slots, norms[3], products, self.tree.paths, float(anchor), found)

        in_parts(np.array_split(np.arange(len(rows)), n_threads(None)), work, len(rows))
        out[rows] = found


def nearest_rivals(x: Images, own: Index, leaves: Floats, n_rivals: int) -> NDArray[np.int64]:
    """The classes other than their own whose embeddings are nearest to images, (n_images, n_rivals), in no order."""
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
    """Rivals as a walk through the tree meets them, so that each path shares as much as may be with the one before."""
    return np.asarray(tree.order[np.sort(tree.rank[rivals], axis=1)])


def spread(rows: Index, most: int) -> Index:
    """At most so many of the rows, evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)]


def rank_in_class(own: Index, rng: np.random.Generator) -> Index:
    """Place of each image among those of its class, in random order."""
    shuffled = rng.permutation(len(own))
    order = shuffled[np.argsort(own[shuffled], kind="stable")]
    first = np.flatnonzero(np.diff(own[order], prepend=-1))
    rank = np.empty(len(own), dtype=np.intp)
    rank[order] = np.arange(len(own)) - np.repeat(first, np.diff(np.append(first, len(own))))
    return rank


def in_parts(parts: Any, work: Callable[[Any], Any], n_images: int) -> list[Any]:
    """Call `work` on each part; on all cores, where there are images enough to pay for it."""
    if len(parts) == 1 or n_images < 256 or n_threads(None) == 1:
        return [work(part) for part in parts]
    with single_threaded_blas(), ThreadPoolExecutor(n_threads(None)) as pool:
        return list(pool.map(work, parts))
