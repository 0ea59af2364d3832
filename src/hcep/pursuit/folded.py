"""Scores of all complete paths from one product with raw images, because the metric is folded into the directions.

The transform of a prepared image is ``T(x) = [s W^T (x - m); k]`` (see `EmbeddingTransform`), so each product is
``q_v . T(x) = (s W q_v) . x + const`` and no image is multiplied by the metric. ``||T(x)||**2`` is the same for all
paths and is not needed, because only differences of scores decide the path and the probabilities. The scores equal
those of the search up to rounding, so answers differ only if two paths are equally good up to rounding.
"""

from __future__ import annotations

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
from hcep.dictionary.checks import CHUNK, Embeddings, check_shape, refuse_non_finite
from hcep.dictionary.transform import prepared_rows
from hcep.pursuit.blocks import FEW, block_size, for_blocks, squared_norms
from hcep.pursuit.search import score_labels
from hcep.pursuit.tables import Tables

#: Called with a block of images, the score of the best path of each class, and the class of the best path of all.
OnScores = Callable[[slice, NDArray[np.float64], NDArray[np.intp]], None]
#: The number of images per block.
BLOCK = 1024
#: The largest rounding error, relative to an image's largest product; beyond it, double precision is used.
ROUNDING = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-8}
#: Directions are expressed by others if there are WORTH times as many as dimensions they span, and at most
#: MOST_SPANNED. A remainder below SPANNED, relative to the longest, is rounding. It is far below the rounding of single
#: precision, which is the only precision for which this is done.
WORTH, MOST_SPANNED, SPANNED = 1.1, 512, 1e-10
#: Sibling atoms whose sum is below this share of the largest one count as adding up to zero.
ZERO_SUM = 1e-12


@dataclass(frozen=True, eq=False)
class Fold:
    """The directions of a path problem for products with raw images, in one precision.

    If an inner synset is the mean of its children, their atoms add up to zero, and so do the parts of these atoms
    outside the span of the atoms above. One product per family therefore follows from the others. It is that of the
    largest part, which adds no rounding. A tree of such means then has as many products as leaves. A DAG has more paths
    than leaves, and directions that depend on others become `others`.

    Attributes
    ----------
    directions : array of shape (n_directions, n_dims)
    others : array of shape (n_directions, n_others)
        Further products, as linear combinations of the products with `directions`.
    tables : Tables
        The value of each node as a combination of all products.
    longest : float
        The norm of the longest direction, for the bound on rounding.
    folded : bool
        Whether raw images are multiplied. If False, images must be transformed first.
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
        """Build the fold once for each problem and precision; None as precision means that nothing is folded."""
        folds = _FOLDS.setdefault(problem, {})
        if precision not in folds:
            folds[precision] = cls._build(dictionary, problem, precision)
        return folds[precision]

    @classmethod
    def _build(cls, dictionary: ConceptDictionary, problem: PathProblem, precision: str | None) -> Fold:
        tree, directions, offset = problem.tree, problem.directions, problem.offset
        if precision is not None:
            directions, constant = dictionary.transform.pulled_back(directions)
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
        dtype, first = np.dtype(precision or np.float64), directions[used[order[: len(others)]]]
        folded = precision is not None
        return cls(dictionary, problem, first.astype(dtype), others.astype(dtype), tables, longest, folded)

    def values(self, products: Embeddings) -> NDArray[np.float64]:
        """Return ``p_v`` of every node, shape (n_nodes, n_images), as `PathProblem.values` does."""
        return np.asarray(self._weights @ products.T.astype(np.float64)) + self.tables.offset[:, None]

    @cached_property
    def _weights(self) -> sparse.csr_array:
        tables, shape = self.tables, (self.problem.tree.n_nodes, len(self.directions) + self.others.shape[1])
        return sparse.csr_array((tables.weight, tables.column, tables.pointer), shape=shape)

    def products(self, rows: Embeddings, first_row: int) -> Embeddings | None:
        """Multiply raw images by the directions; return None if rounding could decide an answer.

        Raises an error for NaN and infinite values.
        """
        transform = self.dictionary.transform
        rows = rows.astype(self.directions.dtype, copy=False)
        refuse_non_finite(rows, first_row)
        if not self.folded:
            return self._times(transform(rows))
        x = prepared_rows(rows, transform.power, False)
        p = self._times(x)
        if transform.unit_norm:
            norms = np.sqrt(squared_norms(x))[:, None]
            p /= np.where(norms > 0, norms, 1).astype(p.dtype)
            x = np.ones((len(x), 1))
        sample = slice(None, None, 1 + len(x) // 16)
        rounding = np.finfo(p.dtype).eps * self.longest * np.sqrt(squared_norms(x[sample]))
        return p if (rounding <= ROUNDING[p.dtype] * np.abs(p[sample]).max(axis=1, initial=0.0)).all() else None

    def _times(self, x: Embeddings) -> Embeddings:
        p = x @ self.directions.T
        return np.hstack([p, p @ self.others]) if self.others.shape[1] else p


_FOLDS: WeakKeyDictionary[PathProblem, dict[str | None, Fold]] = WeakKeyDictionary()


def for_scores(
    X: NDArray[Any],
    dictionary: ConceptDictionary,
    anchor: float,
    class_of_node: NDArray[np.int32],
    n_classes: int,
    keep: OnScores,
    n_jobs: int | None = None,
) -> None:
    """Score all complete paths of each image, block by block, as the exact search does.

    Parameters
    ----------
    X, dictionary, anchor, n_jobs : see `hcep.hb_omp`
    class_of_node : (n_nodes,) int32; the class of each complete path, by its last node; -1 for all other nodes
    n_classes : the number of classes, or 0 if only the best class is needed
    keep : called as ``keep(block, scores, best)`` for every block of images, a slice of X. `scores`, of shape
        (n_images_of_block, n_classes), is the best score among each class's paths, and `best` the class of the best
        path; ties go to the lowest node. Blocks come from several threads and in any order.
    """
    rows = check_shape(X, dictionary.n_dims)
    problem = dictionary.path_problem(anchor)
    precisions = (dictionary.transform.working_dtype(rows).name, "float64", None)
    Fold.of(dictionary, problem, precisions[0])  # build it once, before the threads start

    def work(block: slice) -> None:
        for precision in precisions:
            fold = Fold.of(dictionary, problem, precision)
            p = fold.products(rows[block], block.start)
            if p is not None:
                break
        assert p is not None  # products that are not folded are always accepted
        if len(rows) <= FEW:
            keep(block, *_few_scores(fold, p, class_of_node, n_classes))
            return
        scores, best = score_labels(p, fold.tables, float(problem.anchor), class_of_node, n_classes)
        keep(block, scores.T, best)

    for_blocks(len(rows), work, n_jobs, block=min(BLOCK, block_size(len(problem.directions))))


def _few_scores(
    fold: Fold, p: Embeddings, class_of_node: NDArray[np.int32], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return what `score_labels` does, for a few images, with array operations."""
    ends = np.flatnonzero(class_of_node >= 0)
    scores = fold.problem.scores(fold.values(p))[ends]
    by_class = np.full((n_classes, len(p)), -np.inf)
    if n_classes:
        np.maximum.at(by_class, class_of_node[ends], scores)
    return by_class.T, class_of_node[ends[scores.argmax(axis=0)]].astype(np.intp)


def _spanned(q: NDArray[np.float64], n_leaves: int, allowed: bool) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return an order of the directions, and the later ones as combinations of the first.

    There are no later ones if that would save hardly any product.
    """
    nothing = np.arange(len(q)), np.zeros((len(q), 0))
    if not allowed or not WORTH * n_leaves < len(q) <= MOST_SPANNED:
        return nothing
    triangle, order = qr(q.T, mode="r", pivoting=True)
    sizes = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(sizes > SPANNED * sizes[0]))
    if WORTH * rank >= len(q):
        return nothing
    return order, solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])


def _weights(problem: PathProblem, norm: NDArray[np.float64]) -> sparse.csr_array:
    """Return the value of each node, without its offset, as a combination of products, shape (n_nodes, n_columns).

    If the atoms of a family add up to zero, the product of the largest part follows from those of its siblings.
    """
    tree, derived = problem.tree, _derived(problem, norm)
    first, n_children = tree.first_child[tree.parent[derived]], tree.n_children[tree.parent[derived]]
    of_family = np.repeat(np.arange(len(derived)), n_children)
    sibling = np.repeat(first - np.cumsum(n_children) + n_children, n_children) + np.arange(len(of_family))
    target = derived[of_family]
    other = (sibling != target) & (problem.column[sibling] >= 0)
    target, sibling = target[other], sibling[other]
    direct = np.setdiff1d(np.flatnonzero(problem.column >= 0), derived)
    rows, nodes = np.concatenate([direct, target]), np.concatenate([direct, sibling])
    data = problem.sign[nodes] * np.concatenate([np.ones(len(direct)), -norm[sibling] / norm[target]])
    return sparse.csr_array((data, (rows, problem.column[nodes])), (tree.n_nodes, len(problem.directions)))


def _derived(problem: PathProblem, norm: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the nodes whose product follows from their siblings: the largest of each family that adds up to zero."""
    tree, sums = problem.tree, []
    inner = np.flatnonzero(tree.n_children)
    for parents in np.array_split(inner, min(len(inner), 1 + tree.n_nodes // CHUNK)):
        nodes = np.arange(tree.first_child[parents[0]], tree.first_child[parents[-1]] + tree.n_children[parents[-1]])
        parts = (norm * problem.sign)[nodes, None] * problem.directions[problem.column[nodes]]
        sums.append(np.linalg.norm(np.add.reduceat(parts, tree.first_child[parents] - nodes[0]), axis=1))
    largest = np.lexsort((norm[1:], tree.parent[1:]))[np.cumsum(tree.n_children[inner]) - 1] + 1
    n_users = np.bincount(problem.column[problem.column >= 0], minlength=len(problem.directions) + 1)
    alone = (problem.column[largest] >= 0) & (n_users[problem.column[largest]] == 1)
    return np.asarray(largest[alone & (np.concatenate(sums) <= ZERO_SUM * norm[largest])])
