"""Scores of all complete paths from one product with raw images: the metric is folded into the directions.

With ``T(x) = [s W^T (x - m); k]`` the transform of a prepared image (see `EmbeddingTransform`), each product is
``q_v . T(x) = (s W q_v) . x + const``. So no image is multiplied by the metric, and ``||T(x)||**2``, the same for all
paths, is never needed: differences of scores pick a path and make probabilities. They equal those of the search up to
rounding, so that answers can differ from its only where two paths are as near as that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.dictionary.checks import CHUNK, Embeddings, check_shape, refuse_non_finite, working_dtype
from hcep.dictionary.transform import EmbeddingTransform, prepared_rows
from hcep.pursuit.blocks import block_size, for_blocks, squared_norms
from hcep.pursuit.compiled import kernel
from hcep.pursuit.tables import Array

#: A block of images, the score of the best path of each class, and the class of the best path of all.
OnScores = Callable[[slice, NDArray[np.float64], NDArray[np.intp]], None]
#: Images per block.
BLOCK = 1024
#: Images that the kernel has side by side.
LANES = 16
#: Most that rounding may be of an image's largest product, before products are taken in double precision.
ROUNDING = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-8}
#: So many times more directions than they span are worth a look, up to so many; what is left of one, as a share of the
#: longest, is rounding: far below that of single precision, in which alone this is done.
WORTH, MOST_SPANNED, SPANNED = 1.1, 512, 1e-10
#: Atoms of one parent's children that add up to less than this share of the largest add up to zero.
ZERO_SUM = 1e-12


class Nodes(NamedTuple):
    """What the kernel needs of each node of the path tree; `column` is -1 where a value is derived, or always zero."""

    parent: Array
    column: Array
    sign: Array
    offset: Array
    norm: Array
    derived: Array
    first: Array
    last: Array


@dataclass(frozen=True, eq=False)
class Fold:
    """The directions of a path basis as raw images meet them, in one precision; with none, as transformed ones do.

    An inner synset that is the mean of its children has atoms below it that add up to zero, and so do their parts
    outside the span of the atoms above. One product per family is therefore derived from the others, that of the
    largest part, which adds no rounding: a tree of such means has as many products as leaves. A DAG has more paths
    than leaves; what its directions have in common is left to `others`, products as sums of the first ones.
    """

    dictionary: ConceptDictionary
    directions: Embeddings
    others: Embeddings
    nodes: Nodes
    longest: float
    folded: bool

    @classmethod
    def of(cls, dictionary: ConceptDictionary, basis: PathBasis, precision: str | None) -> Fold:
        """Made once for each basis and precision."""
        kept = _KEPT.setdefault(basis, {})
        if precision not in kept:
            kept[precision] = cls._made(dictionary, basis, precision)
        return kept[precision]

    @classmethod
    def _made(cls, dictionary: ConceptDictionary, basis: PathBasis, precision: str | None) -> Fold:
        tree, directions, offset = basis.tree, basis.directions, basis.offset
        if precision is not None:
            directions, constant = _folded(dictionary.transform, directions)
            offset = offset + constant
        norm = np.zeros(tree.n_nodes)
        norm[1:] = basis.triangle[np.arange(1, tree.n_nodes), tree.level[1:] - 1]
        derived, column = _derived(basis, norm), basis.column.copy()
        column[derived] = -1
        used, column[column >= 0] = np.unique(column[column >= 0], return_inverse=True)
        first, n_children = (each[tree.parent[derived]] for each in (tree.first_child, tree.n_children))
        of_node = np.where(basis.column >= 0, basis.sign * offset[basis.column], 0.0)
        nodes = Nodes(tree.parent, column, basis.sign, of_node, norm, derived, first, first + n_children)
        longest = float(np.linalg.norm(directions, axis=1).max(initial=0.0))
        order, others = _spanned(directions[used], len(dictionary.hierarchy.leaves), precision == "float32")
        place = np.argsort(order)
        nodes = nodes._replace(column=np.where(column >= 0, place[column], -1) if len(place) else column)
        longest *= max(1.0, float(np.abs(others).sum(axis=0).max(initial=0.0)))
        dtype, own = np.dtype(precision or np.float64), directions[used[order[: len(others)]]]
        return cls(dictionary, own.astype(dtype), others.astype(dtype), nodes, longest, precision is not None)

    def products(self, rows: Embeddings, first_row: int, kept: dict[str, Embeddings]) -> Embeddings | None:
        """Products of raw images; None where rounding could decide an answer. Refuses NaN and infinite values.

        They are in `kept`, a thread's own, and so is the next block's: fresh memory costs more than the roots in it.
        """
        transform = self.dictionary.transform
        rows = rows.astype(self.directions.dtype, copy=False)
        if not self.folded:
            refuse_non_finite(rows, first_row)
            return self._times(transform(rows), kept)
        x, p = rows, np.full((1, 1), np.nan, rows.dtype)
        if transform.power in (0.5, 1.0):
            with np.errstate(invalid="ignore"):
                # A negative number under the root, and any that is not finite, becomes NaN in all products of its row.
                x = np.sqrt(rows, out=_room(kept, "roots", rows.shape, rows)) if transform.power == 0.5 else rows
                p = self._times(x, kept)
        if not (p.shape[1] and np.isfinite(p[:, 0].sum())):
            refuse_non_finite(rows, first_row)
            x = prepared_rows(rows, transform.power, False)
            p = self._times(x, kept)
        if transform.unit_norm:
            norms = np.sqrt(squared_norms(x))[:, None]
            p /= np.where(norms > 0, norms, 1).astype(p.dtype)
            x = np.ones((len(x), 1))
        some = slice(None, None, 1 + len(x) // 16)
        rounding = np.finfo(p.dtype).eps * self.longest * np.sqrt(squared_norms(x[some]))
        return p if (rounding <= ROUNDING[p.dtype] * np.abs(p[some]).max(axis=1, initial=0.0)).all() else None

    def _times(self, x: Embeddings, kept: dict[str, Embeddings]) -> Embeddings:
        first = len(self.directions)
        p = _room(kept, "products", (len(x), first + self.others.shape[1]), x)
        np.matmul(x, self.directions.T, out=p[:, :first])
        np.matmul(p[:, :first], self.others, out=p[:, first:])
        return p


def _room(kept: dict[str, Embeddings], name: str, shape: tuple[int, int], like: Embeddings) -> Embeddings:
    """Room for an array as a slice of that of an earlier block, where there is one as large."""
    if name not in kept or len(kept[name]) < shape[0] or kept[name].dtype != like.dtype:
        kept[name] = np.empty(shape, like.dtype)
    return kept[name][: shape[0]]


_KEPT: WeakKeyDictionary[PathBasis, dict[str | None, Fold]] = WeakKeyDictionary()


def for_scores(
    X: NDArray[Any],
    dictionary: ConceptDictionary,
    anchor: float,
    class_of_node: NDArray[np.int32],
    n_classes: int,
    keep: OnScores,
    n_jobs: int | None = None,
) -> None:
    """Score all complete paths of each image, block after block, as the exact search does.

    Parameters
    ----------
    X, dictionary, anchor, n_jobs : as for `hcep.hb_omp`
    class_of_node : (n_nodes,) int32; the class of each complete path, by its node; -1 for all other nodes
    n_classes : classes whose scores are kept: all, or 0 where the best is enough
    keep : callable; called as ``keep(block, scores, best)`` for every block of images, a slice of X: the best score
        among each class's paths, (n_images of the block, n_classes), and the class of the best of all, of the lowest
        node where some are equal. Blocks come from several threads and in any order.
    """
    rows = check_shape(X, dictionary.n_dims)
    basis = dictionary.anchored_path_basis(anchor)
    precisions = (working_dtype(rows).name, "float64", None)
    Fold.of(dictionary, basis, precisions[0])  # once, before threads ask for it
    own = threading.local()

    def work(block: slice) -> None:
        for precision in precisions:
            fold = Fold.of(dictionary, basis, precision)
            p = fold.products(rows[block], block.start, vars(own))
            if p is not None:
                break
        assert p is not None  # without a fold products are always there
        n, more = len(p), -len(p) % LANES
        p = np.pad(p, ((0, more), (0, 0))) if more else p
        scores, best = np.empty((n_classes, n + more)), np.empty(n + more, np.intp)
        class_scores(p, fold.nodes, float(anchor), class_of_node, scores, best)
        keep(block, scores[:, :n].T, best[:n])

    for_blocks(len(rows), work, n_jobs, block=min(BLOCK, block_size(len(basis.directions))))


@kernel
def class_scores(p: Array, nodes: Nodes, anchor: float, class_of_node: Array, out: Array, best: Array) -> None:
    """Score all paths of each image: ``out`` (n_classes, n) the best of each class, ``best`` (n,) the best class.

    LANES images at a time, of which n is a multiple: loops over as many, known when compiled, are vectorised.
    """
    parent, column, sign, offset, norm, derived, first, last = nodes
    value, score, top = np.zeros((len(parent), LANES)), np.zeros((len(parent), LANES)), np.zeros(LANES)
    for start in range(0, len(p), LANES):
        for v in range(1, len(parent)):
            c, signed = column[v], sign[v]
            for i in range(LANES):
                value[v, i] = p[start + i, c] * signed if c >= 0 else 0.0
        for k in range(len(derived)):
            own = derived[k]
            for v in range(first[k], last[k]):
                share = -norm[v] / norm[own] if v != own else 0.0
                for i in range(LANES):
                    value[own, i] += share * value[v, i]
        out[:, start : start + LANES] = -np.inf
        top[:] = -np.inf
        for v in range(1, len(parent)):
            above, constant, c = parent[v], offset[v], class_of_node[v]
            for i in range(LANES):
                full = value[v, i] + constant
                score[v, i] = score[above, i] + full * full - anchor
            if c >= 0 and len(out):
                for i in range(LANES):
                    out[c, start + i] = max(out[c, start + i], score[v, i])
            if c >= 0:
                for i in range(LANES):
                    if score[v, i] > top[i]:
                        top[i], best[start + i] = score[v, i], c


def _folded(transform: EmbeddingTransform, q: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions ``s W q``, and the constant of each product."""
    n_own = q.shape[1] - transform.n_constants
    directions = transform.scale * (q[:, :n_own] if transform.whitener is None else q[:, :n_own] @ transform.whitener.T)
    constant = np.zeros(len(q)) if transform.mean is None else -(directions @ transform.mean)
    return directions, constant if transform.constants is None else constant + q[:, n_own:] @ transform.constants


def _spanned(q: NDArray[np.float64], n_leaves: int, wanted: bool) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """An order of directions, and those after the first as sums of these; none where hardly any product is saved."""
    nothing = np.arange(len(q)), np.zeros((len(q), 0))
    if not wanted or not WORTH * n_leaves < len(q) <= MOST_SPANNED:
        return nothing
    triangle, order = qr(q.T, mode="r", pivoting=True)
    sizes = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(sizes > SPANNED * sizes[0]))
    if WORTH * rank >= len(q):
        return nothing
    return order, solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])


def _derived(basis: PathBasis, norm: NDArray[np.float64]) -> NDArray[np.intp]:
    """Nodes whose product follows from their siblings': of each family whose atoms add up to zero the largest."""
    tree, sums = basis.tree, []
    inner = np.flatnonzero(tree.n_children)
    for some in np.array_split(inner, min(len(inner), 1 + tree.n_nodes // CHUNK)):
        nodes = np.arange(tree.first_child[some[0]], tree.first_child[some[-1]] + tree.n_children[some[-1]])
        parts = (norm * basis.sign)[nodes, None] * basis.directions[basis.column[nodes]]
        sums.append(np.linalg.norm(np.add.reduceat(parts, tree.first_child[some] - nodes[0]), axis=1))
    largest = np.lexsort((norm[1:], tree.parent[1:]))[np.cumsum(tree.n_children[inner]) - 1] + 1
    n_users = np.bincount(basis.column[basis.column >= 0], minlength=len(basis.directions) + 1)
    alone = (basis.column[largest] >= 0) & (n_users[basis.column[largest]] == 1)
    return np.asarray(largest[alone & (np.concatenate(sums) <= ZERO_SUM * norm[largest])])
