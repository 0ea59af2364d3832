"""The inputs of the searches: a path problem, a block of images and the rules. They do not import the compiler."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.path_problem import CANCELLED, PathProblem
from hcep.pursuit.blocks import squared_norms

Array = NDArray[Any]
#: The number of images that the exact kernel processes together; a constant, so that its loops are vectorised.
LANES = 16


class Images(NamedTuple):
    """A block of images x in the dictionary's space, their products p with its directions, and their squared norms.

    If products are computed as needed, p has no columns, and `directions` holds the directions in the precision of the
    images. `limit` is the row of ``Tables.state`` that applies to each image; it is empty if all paths are open to all.
    `keys` is how much each image likes each node if a rule of the caller's own says so; otherwise it has no rows.
    """

    x: Array
    p: Array
    squares: Array
    cancelled: float
    limit: Array
    directions: Array
    keys: Array

    @classmethod
    def of(cls, x: Array, p: Array, limit: Array | None = None, directions: Array | None = None) -> Images:
        """Build a block; x becomes read-only, because numba would compile the kernels again for writable arrays."""
        x = x.view()
        x.flags.writeable = False
        limit = np.zeros(0, np.int32) if limit is None else limit
        directions = x[:0] if directions is None else directions
        return cls(x, p, squared_norms(x), CANCELLED[x.dtype.name], limit, directions, np.zeros((0, 0)))

    def at(self, block: slice) -> Images:
        """Return some of the images."""
        parts = {name: getattr(self, name)[block] for name in ("x", "p", "squares", "limit", "keys")}
        return self._replace(**parts)


class Tables(NamedTuple):
    """A path problem as a record of arrays for the kernels, and the states of its nodes under limits.

    The value of node v is ``offset[v]`` plus the sum of ``weight[k] * p[column[k]]`` for k from ``pointer[v]`` to
    ``pointer[v + 1] - 1``. This is one product, none, or several if the value follows from those of other nodes.
    """

    parent: Array
    first_child: Array
    n_children: Array
    pointer: Array
    column: Array
    weight: Array
    offset: Array
    share: Array
    state: Array

    @classmethod
    def of(cls, problem: PathProblem, state: Array | None = None) -> Tables:
        """Build the record without copying any large array."""
        tree, has_column = problem.tree, problem.column >= 0
        return cls(
            tree.parent, tree.first_child, tree.n_children,
            np.concatenate([[0], np.cumsum(has_column)]), problem.column[has_column].astype(np.int64),
            problem.sign[has_column], problem.sign * problem.offset[problem.column], problem.share,
            np.zeros((0, 0), np.int8) if state is None else state,
        )  # fmt: skip


class Beams(NamedTuple):
    """The hypotheses of each image: scores and nodes (n_images, width), their number, and if its search goes on."""

    scores: Array
    nodes: Array
    sizes: Array
    goes_on: Array

    @classmethod
    def at_root(cls, n_images: int, width: int) -> Beams:
        """Build beams that hold only the empty path."""
        scores, nodes = np.zeros((n_images, width)), np.zeros((n_images, width), np.int32)
        return cls(scores, nodes, np.ones(n_images, np.int64), np.ones(n_images, dtype=bool))


class Rules(NamedTuple):
    """The options of one search, limited by the size of the tree.

    A step tries at most `n_tried` hypotheses and keeps the best `width`. A node has at most `widest` children. The
    first `n_within` nodes are at most `max_steps` deep.
    """

    width: int
    widest: int
    n_tried: int
    max_steps: int
    n_within: int
    tol: float
    signed: bool
    anchor: float
