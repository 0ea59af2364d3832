"""What the compiled searches take: a dictionary's tree of rooted paths, a block of images, the rules of the search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.pursuit.blocks import squared_norms

Array = NDArray[Any]

#: Below this share of ||x||**2 (plus the anchor's part) a residual is a difference of nearly equal numbers, and is
#: measured instead.
CANCELLED = {np.dtype(np.float32): 1e-2, np.dtype(np.float64): 1e-6}
#: What a path may do at a node: pass or end; nothing; pass whatever its sign, but not end; either, whatever its sign.
OPEN, CLOSED, ON_THE_WAY, REACHED = 0, 1, 2, 3


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
        return cls(x, p, squared_norms(x), CANCELLED[x.dtype], limit, x[:0] if directions is None else directions)


class Tables(NamedTuple):
    """The tree of rooted paths (see `PathTree`), the directions of its nodes (see `PathBasis`), and which are open."""

    parent: Array
    level: Array
    first_child: Array
    n_children: Array
    edge: Array
    column: Array
    sign: Array
    share: Array
    offset: Array
    triangle: Array
    atoms: Array
    state: Array

    @classmethod
    def of(cls, dictionary: ConceptDictionary, basis: PathBasis, state: Array | None = None) -> Tables:
        """The tables of one dictionary and anchor: nothing is copied."""
        tree = basis.tree
        return cls(
            tree.parent, tree.level, tree.first_child, tree.n_children, tree.edge,
            basis.column, basis.sign, basis.share, basis.offset, basis.triangle, dictionary.atoms,
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
