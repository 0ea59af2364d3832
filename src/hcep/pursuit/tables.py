"""What the searches take: a path problem, a block of images, the rules of the search. None of it needs a compiler."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.path_problem import CANCELLED, PathProblem
from hcep.pursuit.blocks import squared_norms

Array = NDArray[Any]
#: Images that the exact kernel has side by side: loops over as many, known when compiled, are vectorised.
LANES = 16


class Images(NamedTuple):
    """A block of images x in the dictionary's space, their products p with its directions, their squared norms.

    p has no columns where products with `directions`, in the images' precision, are taken as they are needed.
    `limit` is the row of ``Tables.state`` that holds for each image; empty where all paths are open to all.
    """

    x: Array
    p: Array
    squares: Array
    cancelled: float
    limit: Array
    directions: Array

    @classmethod
    def of(cls, x: Array, p: Array, limit: Array | None = None, directions: Array | None = None) -> Images:
        """A block of rows in memory order; x is read-only, as kernels are compiled once more per kind of array."""
        x = x.view()
        x.flags.writeable = False
        limit = np.zeros(0, np.int32) if limit is None else limit
        return cls(x, p, squared_norms(x), CANCELLED[x.dtype.name], limit, x[:0] if directions is None else directions)


class Tables(NamedTuple):
    """A path problem as the kernels take it, and which nodes are open to whom.

    The value of node v is ``offset[v]`` plus ``weight[k] * p[column[k]]`` over k from ``pointer[v]`` up to
    ``pointer[v + 1]``: one product, or none, or several where one follows from others.
    """

    parent: Array
    level: Array
    first_child: Array
    n_children: Array
    edge: Array
    pointer: Array
    column: Array
    weight: Array
    offset: Array
    share: Array
    triangle: Array
    atoms: Array
    state: Array

    @classmethod
    def of(cls, problem: PathProblem, state: Array | None = None) -> Tables:
        """Nothing of size is copied."""
        tree, there = problem.tree, problem.column >= 0
        return cls(
            tree.parent, tree.level, tree.first_child, tree.n_children, tree.edge,
            np.concatenate([[0], np.cumsum(there)]), problem.column[there].astype(np.int64), problem.sign[there],
            problem.sign * problem.offset[problem.column], problem.share, problem.triangle, problem.atoms,
            np.zeros((0, 0), np.int8) if state is None else state,
        )  # fmt: skip


class Rules(NamedTuple):
    """Options of one search, as far as the tree goes.

    A step has at most `n_tried` hypotheses before the best `width` are kept, a synset `widest` children; `n_within`
    nodes, the first ones, are within `max_steps`.
    """

    width: int
    widest: int
    n_tried: int
    max_steps: int
    n_within: int
    tol: float
    signed: bool
    anchor: float
