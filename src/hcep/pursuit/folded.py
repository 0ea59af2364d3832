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
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import CHUNK, Embeddings, check_shape, refuse_non_finite, working_dtype
from hcep.dictionary.transform import EmbeddingTransform, prepared_rows
from hcep.pursuit.blocks import FEW, block_size, for_blocks, squared_norms
from hcep.pursuit.search import score_labels
from hcep.pursuit.tables import Tables

#: A block of images, the score of the best path of each class, and the class of the best path of all.
OnScores = Callable[[slice, NDArray[np.float64], NDArray[np.intp]], None]
#: Images per block.
BLOCK = 1024
#: Most that rounding may be of an image's largest product, before products are taken in double precision.
ROUNDING = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-8}
#: So many times more directions than they span are worth a look, up to so many; what is left of one, as a share of the
#: longest, is rounding: far below that of single precision, in which alone this is done.
WORTH, MOST_SPANNED, SPANNED = 1.1, 512, 1e-10
#: Atoms of one parent's children that add up to less than this share of the largest add up to zero.
ZERO_SUM = 1e-12


@dataclass(frozen=True, eq=False)
class Fold:
    """The directions of a path basis as raw images meet them, in one precision; with none, as transformed ones do.

    An inner synset that is the mean of its children has atoms below it that add up to zero, and so do their parts
    outside the span of the atoms above. One product per family is therefore derived from the others, that of the
    largest part, which adds no rounding: a tree of such means has as many products as leaves. A DAG has more paths
    than leaves; what its directions have in common is left to `others`, products as sums of the first ones.
    """

    dictionary: ConceptDictionary
    problem: PathProblem
    directions: Embeddings
    others: Embeddings
    tables: Tables
    longest: float
    folded: bool

    @classmethod
    def of(cls, dictionary: ConceptDictionary, problem: PathProblem, precision: str | None) -> Fold:
        """Made once for each basis and precision."""
        kept = _KEPT.setdefault(problem, {})
        if precision not in kept:
            kept[precision] = cls._made(dictionary, problem, precision)
        return kept[precision]

    @classmethod
    def _made(cls, dictionary: ConceptDictionary, problem: PathProblem, precision: str | None) -> Fold:
        tree, directions, offset = problem.tree, problem.directions, problem.offset
        if precision is not None:
            directions, constant = _folded(dictionary.transform, directions)
            offset = offset + constant
        norm = np.zeros(tree.n_nodes)
        norm[1:] = problem.triangle[np.arange(1, tree.n_nodes), tree.level[1:] - 1]
        weights = _weights(problem, norm)
        used = np.unique(weights.indices)
        longest = float(np.linalg.norm(directions, axis=1).max(initial=0.0))
        order, others = _spanned(directions[used], len(dictionary.hierarchy.leaves), precision == "float32")
        place = np.zeros(len(directions), dtype=np.int64)
        place[used[order]] = np.arange(len(used))
        tables = Tables.of(problem)._replace(
            pointer=weights.indptr.astype(np.int64), column=place[weights.indices], weight=weights.data,
            offset=problem.sign * offset[problem.column],
        )  # fmt: skip
        longest *= max(1.0, float(np.abs(others).sum(axis=0).max(initial=0.0)))
        dtype, own = np.dtype(precision or np.float64), directions[used[order[: len(others)]]]
        folded = precision is not None
        return cls(dictionary, problem, own.astype(dtype), others.astype(dtype), tables, longest, folded)

    def values(self, products: Embeddings) -> NDArray[np.float64]:
        """``p_v`` of every node, (n_nodes, n_images), as `PathProblem.values` gives them."""
        return np.asarray(self._weights @ products.T.astype(np.float64)) + self.tables.offset[:, None]

    @cached_property
    def _weights(self) -> sparse.csr_array:
        tables, shape = self.tables, (self.problem.tree.n_nodes, len(self.directions) + self.others.shape[1])
        return sparse.csr_array((tables.weight, tables.column, tables.pointer), shape=shape)

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


_KEPT: WeakKeyDictionary[PathProblem, dict[str | None, Fold]] = WeakKeyDictionary()


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
    problem = dictionary.path_problem(anchor)
    precisions = (working_dtype(rows).name, "float64", None)
    Fold.of(dictionary, problem, precisions[0])  # once, before threads ask for it
    own = threading.local()

    def work(block: slice) -> None:
        for precision in precisions:
            fold = Fold.of(dictionary, problem, precision)
            p = fold.products(rows[block], block.start, vars(own))
            if p is not None:
                break
        assert p is not None  # without a fold products are always there
        if len(rows) <= FEW:
            keep(block, *_few_scores(fold, p, class_of_node, n_classes))
            return
        scores, best = score_labels(p, fold.tables, float(anchor), class_of_node, n_classes)
        keep(block, scores.T, best)

    for_blocks(len(rows), work, n_jobs, block=min(BLOCK, block_size(len(problem.directions))))


def _few_scores(
    fold: Fold, p: Embeddings, class_of_node: NDArray[np.int32], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """As `score_labels` for a few images, by the path problem's own lines."""
    ends = np.flatnonzero(class_of_node >= 0)
    scores = fold.problem.scores(fold.values(p))[ends]
    by_class = np.full((n_classes, len(p)), -np.inf)
    if n_classes:
        np.maximum.at(by_class, class_of_node[ends], scores)
    return by_class.T, class_of_node[ends[scores.argmax(axis=0)]].astype(np.intp)


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


def _weights(problem: PathProblem, norm: NDArray[np.float64]) -> sparse.csr_array:
    """The value of each node, but for its offset, as a sum of products with directions: (n_nodes, n_columns).

    Where the atoms of a family add up to zero, that of the largest part follows from its siblings'.
    """
    tree, derived = problem.tree, _derived(problem, norm)
    first, n_children = tree.first_child[tree.parent[derived]], tree.n_children[tree.parent[derived]]
    of_family = np.repeat(np.arange(len(derived)), n_children)
    sibling = np.repeat(first - np.cumsum(n_children) + n_children, n_children) + np.arange(len(of_family))
    own = derived[of_family]
    other = (sibling != own) & (problem.column[sibling] >= 0)
    own, sibling = own[other], sibling[other]
    direct = np.setdiff1d(np.flatnonzero(problem.column >= 0), derived)
    rows, nodes = np.concatenate([direct, own]), np.concatenate([direct, sibling])
    data = problem.sign[nodes] * np.concatenate([np.ones(len(direct)), -norm[sibling] / norm[own]])
    return sparse.csr_array((data, (rows, problem.column[nodes])), (tree.n_nodes, len(problem.directions)))


def _derived(problem: PathProblem, norm: NDArray[np.float64]) -> NDArray[np.intp]:
    """Nodes whose product follows from their siblings': of each family whose atoms add up to zero the largest."""
    tree, sums = problem.tree, []
    inner = np.flatnonzero(tree.n_children)
    for some in np.array_split(inner, min(len(inner), 1 + tree.n_nodes // CHUNK)):
        nodes = np.arange(tree.first_child[some[0]], tree.first_child[some[-1]] + tree.n_children[some[-1]])
        parts = (norm * problem.sign)[nodes, None] * problem.directions[problem.column[nodes]]
        sums.append(np.linalg.norm(np.add.reduceat(parts, tree.first_child[some] - nodes[0]), axis=1))
    largest = np.lexsort((norm[1:], tree.parent[1:]))[np.cumsum(tree.n_children[inner]) - 1] + 1
    n_users = np.bincount(problem.column[problem.column >= 0], minlength=len(problem.directions) + 1)
    alone = (problem.column[largest] >= 0) & (n_users[problem.column[largest]] == 1)
    return np.asarray(largest[alone & (np.concatenate(sums) <= ZERO_SUM * norm[largest])])
