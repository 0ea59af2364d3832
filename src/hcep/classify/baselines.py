"""Nearest-embedding baselines on the same dictionary: NN over classes, HNN down the hierarchy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.result import PathResult, path_codes

Pick = Callable[[NDArray[Any]], NDArray[np.int32]]


def nn(X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None) -> PathResult:
    """Nearest class embedding; the path is the class's first, its code all ones.

    Notes
    -----
    The paper's black-box baseline: ``argmin over leaves of ||x - a(leaf)||``.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.classify import nn
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 1.0], "dog": [2.0, -1.0], "car": [0.0, 3.0]})
    >>> nn([[1.9, 0.8]], d).paths
    [('animal', 'cat')]
    """
    tree = dictionary.hierarchy.path_tree
    leaves = dictionary.hierarchy.leaf_index
    complete = tree.leaf_nodes
    _, first = np.unique(tree.synset[complete], return_index=True)
    first_path = complete[first].astype(np.int32)

    def pick(distances: NDArray[Any]) -> NDArray[np.int32]:
        chosen: NDArray[np.int32] = first_path[np.argmin(distances[:, leaves], axis=1)]
        return chosen

    return _nearest(X, dictionary, pick, n_jobs)


def hnn(X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None) -> PathResult:
    """Hierarchical nearest neighbour: from the root, step to the child nearest to the image until a leaf.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.classify import hnn
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 1.0], "dog": [2.0, -1.0], "car": [0.0, 3.0]})
    >>> hnn([[0.9, 2.0]], d).paths
    [('car',)]
    """
    tree = dictionary.hierarchy.path_tree

    def pick(distances: NDArray[Any]) -> NDArray[np.int32]:
        nodes = np.zeros(len(distances), dtype=np.int32)
        for _ in range(tree.depth):
            for node in np.unique(nodes[tree.n_children[nodes] > 0]):
                children = np.arange(tree.first_child[node], tree.first_child[node] + tree.n_children[node])
                here = np.flatnonzero(nodes == node)
                nodes[here] = children[np.argmin(distances[np.ix_(here, tree.synset[children])], axis=1)]
        return nodes

    return _nearest(X, dictionary, pick, n_jobs)


def _nearest(X: ArrayLike, dictionary: ConceptDictionary, pick: Pick, n_jobs: int | None) -> PathResult:
    """Let `pick` choose a path-tree node from the squared distances (less ``||x||**2``) to every synset."""
    rows = check_shape(X, dictionary.n_dims)
    dtype = working_dtype(rows)
    synsets = dictionary.synset_embeddings.astype(dtype)
    squares = np.einsum("ij,ij->i", synsets, synsets)
    tree = dictionary.hierarchy.path_tree
    nodes = np.zeros(len(rows), dtype=np.int32)
    norms = np.zeros(len(rows))

    def work(block: slice) -> None:
        raw = rows[block].astype(dtype, copy=False)
        refuse_non_finite(raw, first_row=block.start)
        x = dictionary.transform(raw)
        nodes[block] = pick(squares - 2.0 * (x @ synsets.T))
        norms[block] = np.linalg.norm(x - synsets[tree.synset[nodes[block]]], axis=1)

    for_blocks(len(rows), work, n_jobs)
    codes = path_codes(dictionary, nodes, np.ones((len(rows), tree.depth), dtype=dtype))
    return PathResult(dictionary, codes, norms, nodes, nodes[:, None], norms[:, None])
