"""The tree of rooted paths: a DAG unfolded so that every node stands for exactly one path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HierarchyError

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

MAX_NODES = 5_000_000


@dataclass(frozen=True, slots=True, eq=False)
class PathTree:
    """Every rooted path of a hierarchy as one node, in breadth-first order.

    Node 0 is the empty path at the root. Siblings are contiguous, parents come before children and levels are
    contiguous, which is what lets the kernels run over slices.

    Attributes
    ----------
    synset : (n_nodes,) int32; index of the path's last synset in the hierarchy
    edge : (n_nodes,) int32; index of the path's last edge, and so of its atom; -1 at node 0
    parent : (n_nodes,) int32; node of the path without its last synset; -1 at node 0
    level : (n_nodes,) int32; number of synsets on the path, the root left out
    first_child, n_children : (n_nodes,) int32; children of v are ``first_child[v] : first_child[v] + n_children[v]``
    """

    synset: NDArray[np.int32]
    edge: NDArray[np.int32]
    parent: NDArray[np.int32]
    level: NDArray[np.int32]
    first_child: NDArray[np.int32]
    n_children: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        return len(self.synset)

    @property
    def depth(self) -> int:
        return int(self.level[-1])

    @property
    def leaf_nodes(self) -> NDArray[np.intp]:
        """Nodes whose path is complete: it ends in a leaf of the hierarchy."""
        return np.flatnonzero(self.n_children == 0)

    def ancestors(self) -> NDArray[np.int32]:
        """Nodes along each path, (n_nodes, depth), position l - 1 holding the one at level l; -1 beyond the path."""
        table = np.full((self.n_nodes, self.depth), -1, dtype=np.int32)
        for level in range(1, self.depth + 1):
            nodes = np.flatnonzero(self.level == level)
            table[nodes] = table[self.parent[nodes]]
            table[nodes, level - 1] = nodes
        return table


def unfold(hierarchy: Hierarchy) -> PathTree:
    """Unfold a DAG into its tree of rooted paths, one level at a time."""
    _refuse_explosion(hierarchy)
    pointer, below = hierarchy.child_pointer, hierarchy.child_index
    synsets = [np.zeros(1, dtype=np.int32)]
    edges = [np.full(1, -1, dtype=np.int32)]
    parents = [np.full(1, -1, dtype=np.int32)]
    start = 0
    while len(synsets[-1]):
        owner, edge = _entries(pointer, synsets[-1])
        parents.append((owner + start).astype(np.int32))
        start += len(synsets[-1])
        synsets.append(below[edge])
        edges.append(edge)
    synset = np.concatenate(synsets)
    n_children = (pointer[synset + 1] - pointer[synset]).astype(np.int32)
    level = np.repeat(np.arange(len(synsets), dtype=np.int32), [len(s) for s in synsets])
    first_child = (1 + np.cumsum(n_children) - n_children).astype(np.int32)
    arrays = (synset, np.concatenate(edges), np.concatenate(parents), level, first_child, n_children)
    for array in arrays:
        array.setflags(write=False)
    return PathTree(*arrays)


def _entries(pointer: NDArray[np.int32], rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Every entry of some compressed rows: which of the rows it belongs to, and where it stands."""
    counts = pointer[rows + 1] - pointer[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, (pointer[rows][owner] + rank).astype(np.int32)


def _refuse_explosion(hierarchy: Hierarchy) -> None:
    if hierarchy.is_tree:
        return
    # Floats: the count itself may overflow an integer.
    n_paths = np.zeros(len(hierarchy))
    n_paths[0] = 1.0
    for level in range(1, hierarchy.depth + 1):
        synsets = np.flatnonzero(hierarchy.levels == level)
        owner, entry = _entries(hierarchy.parent_pointer, synsets)
        np.add.at(n_paths, synsets[owner], n_paths[hierarchy.parent_index[entry]])
    if n_paths.sum() > MAX_NODES:
        worst = hierarchy.ids[int(np.argmax(n_paths))]
        raise HierarchyError(
            f"the hierarchy has {n_paths.sum():.3g} rooted paths, more than {MAX_NODES:,}; concept {worst!r} alone "
            f"has {n_paths.max():.3g}. Give concepts fewer parents, or use hierarchy.as_tree(policy='shortest')"
        )
