"""The path basis: what turns the pursuit of a rooted path into one matrix product and a search."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import quoted
from hcep.hierarchy import Hierarchy, PathTree

#: An atom whose part outside the span of its ancestors is below this share of its norm counts as dependent on them.
DEPENDENT = 1e-10


class DependentAtomsWarning(UserWarning):
    """Some atoms are zero or lie in the span of their ancestors; their coefficient is 0."""


@dataclass(frozen=True, eq=False)
class PathBasis:
    """Orthonormal directions of every rooted path, prepared once for all images.

    With P the projection onto the atoms of the parent's path::

        q_v = (d_v - P d_v) / ||d_v - P d_v||        s_v = ||d_v - P d_v|| / ||d_v||

    and ``p_v = <x, q_v>``, the residual after the path to v has squared norm ``||x||**2`` less the ``p_u**2`` along it,
    and ``|p_v| * s_v`` is the cosine (times the residual's norm) by which the pursuit picks v. The anchored problem
    is the same one on atoms ``[d_v; sqrt(lambda) e_level]`` and images ``[x; sqrt(lambda) 1]``.
    """

    tree: PathTree  # its node v stands for one rooted path, with atom d_v at the end
    anchor: float  # weight lambda of the prior on coefficients; 0 is least squares
    #: (n_columns, n_dims) float64; the distinct q_v. Two siblings whose atoms are opposite or equal share one, so that
    #: they tie exactly.
    directions: NDArray[np.float64]
    offset: NDArray[np.float64]  # (n_columns,) float64; what the anchor adds to <x, q_v>; zero without one
    #: (n_nodes,) int32; row of `directions` for a node; -1 for the root and for dependent atoms, whose q_v is zero
    column: NDArray[np.int32]
    sign: NDArray[np.float64]  # (n_nodes,) float64; 1, -1, or 0 where there is no column
    #: (n_nodes,) float64; s_v, the part of the atom's norm outside the span of its ancestors' atoms
    share: NDArray[np.float64]
    #: (n_nodes, depth) float64; row v is the last column of the R of the path's QR: ``<q_u, d_v>`` for u along the path
    triangle: NDArray[np.float64]

    @cached_property
    def directions32(self) -> NDArray[np.float32]:
        return self.directions.astype(np.float32)

    @cached_property
    def nodes_of_path(self) -> NDArray[np.int32]:
        """Nodes along each path, (n_nodes, depth), -1 beyond its end."""
        return self.tree.ancestors()


def build_path_basis(hierarchy: Hierarchy, atoms: NDArray[np.float64], anchor: float) -> PathBasis:
    """Orthogonalise every atom against its ancestors, level by level; warns once of atoms that depend on them."""
    tree, n_dims = hierarchy.path_tree, atoms.shape[1]
    q, triangle, share = _orthogonalise(tree, atoms, anchor)
    column, sign = _share_columns(tree, q, share)
    if not share[1:].all():
        _warn_dependent(hierarchy, np.unique(tree.edge[1:][share[1:] == 0]))
    rows = np.flatnonzero(column == np.arange(tree.n_nodes))
    kept = q[rows]
    return PathBasis(
        tree=tree,
        anchor=anchor,
        directions=np.ascontiguousarray(kept[:, :n_dims]),
        offset=np.sqrt(anchor) * kept[:, n_dims:].sum(axis=1),
        column=np.where(column >= 0, np.searchsorted(rows, column), -1).astype(np.int32),
        sign=sign,
        share=share,
        triangle=triangle,
    )


def _orthogonalise(
    tree: PathTree, atoms: NDArray[np.float64], anchor: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """q, triangle and share of every node, level by level, in chunks that keep the gathered ancestors small."""
    nodes, n_dims = tree.ancestors(), atoms.shape[1]
    q = np.zeros((tree.n_nodes, n_dims + (tree.depth if anchor else 0)))
    triangle, share = np.zeros((tree.n_nodes, tree.depth)), np.zeros(tree.n_nodes)
    for level in range(1, tree.depth + 1):
        at_level = np.flatnonzero(tree.level == level)
        step = max(1, 4_000_000 // (level * q.shape[1]))
        for chunk in (at_level[start : start + step] for start in range(0, len(at_level), step)):
            vectors = np.zeros((len(chunk), q.shape[1]))
            vectors[:, :n_dims] = atoms[tree.edge[chunk]]
            if anchor:
                vectors[:, n_dims + level - 1] = np.sqrt(anchor)
            norms = np.linalg.norm(vectors, axis=1)
            above = q[nodes[chunk, : level - 1]]
            for _ in range(2):  # once more: after cancellation one pass is not orthogonal to working precision
                along = np.einsum("nld,nd->nl", above, vectors)
                vectors -= np.einsum("nld,nl->nd", above, along)
                triangle[chunk, : level - 1] += along
            left = np.linalg.norm(vectors, axis=1)
            kept = (left > DEPENDENT * norms) & (norms > 0)
            at, left = chunk[kept], left[kept]
            q[at], triangle[at, level - 1], share[at] = vectors[kept] / left[:, None], left, left / norms[kept]
    return q, triangle, share


def equal_or_opposite(units: NDArray[np.float64], group: NDArray[Any]) -> Iterator[tuple[int, int, float]]:
    """Pairs of rows of norm 1 and of one group that are parallel, and their cosine; all of them are linked by pairs."""
    key = np.abs(units @ np.random.default_rng(0).standard_normal(units.shape[1]))
    order = np.lexsort((key, group))
    close = (np.diff(group[order]) == 0) & (np.diff(key[order]) < 1e-9)
    for u, v in zip(order[:-1][close].tolist(), order[1:][close].tolist(), strict=True):
        cosine = float(units[u] @ units[v])
        if abs(cosine) > 1 - 1e-12:
            yield u, v, cosine


def _share_columns(
    tree: PathTree, q: NDArray[np.float64], share: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Let siblings with equal or opposite directions use one of them, that of the lowest index.

    In a two-way split the atoms are opposite; only rounding would tell ``|p|`` of one from that of the other, and the
    pick would then depend on the machine. Sharing the product makes the tie exact.
    """
    found = share > 0
    column = np.where(found, np.arange(tree.n_nodes), -1).astype(np.int32)
    sign = np.where(found, 1.0, 0.0)
    for u, v, cosine in equal_or_opposite(q, tree.parent):
        first = tree.first_child[tree.parent[u]]
        siblings = np.arange(first, first + tree.n_children[tree.parent[u]])
        low, high = sorted((column[u], column[v]))
        moved = siblings[column[siblings] == high]
        sign[moved] *= np.sign(cosine) * sign[u] * sign[v]
        column[moved] = low
        if abs(share[u] - share[v]) <= 1e-9 * share[u]:
            share[v] = share[u]
    return column, sign


def _warn_dependent(hierarchy: Hierarchy, edges: NDArray[np.int32]) -> None:
    examples = [" → ".join(hierarchy.edges[e]) for e in edges[:3]]
    warnings.warn(
        f"{len(edges):,} of {hierarchy.n_edges:,} atoms are zero or lie in the span of the atoms above them "
        f"(such as {quoted(examples, 3)}); their coefficient is 0. Single-child chains do this, "
        "which hierarchy.collapse() merges, and so do synsets that hang from a parent and from its parent too",
        DependentAtomsWarning,
        stacklevel=4,
    )
