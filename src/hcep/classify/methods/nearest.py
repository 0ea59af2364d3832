"""Nearest embeddings: NN over the classes, HNN down the hierarchy; as functions on a dictionary, and as estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.classify.base import Auto, HierarchyLike
from hcep.classify.calibration import Calibration
from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.methods.base import CodeClassifier, ConceptMethod
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.pursuit import PathResult
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.result import path_codes

Pick = Callable[[NDArray[Any]], NDArray[np.int32]]


def nn(X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None) -> PathResult:
    """Nearest class embedding; the path is the class's first, its code all ones.

    The paper's black-box baseline: ``argmin over leaves of ||x - a(leaf)||``.

    >>> from hcep import ConceptDictionary, Hierarchy
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
        return np.asarray(first_path[np.argmin(distances[:, leaves], axis=1)])

    return _nearest_path(X, dictionary, pick, n_jobs)


def hnn(X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None) -> PathResult:
    """Hierarchical nearest neighbour: from the root, step to the child nearest to the image until a leaf.

    >>> from hcep import ConceptDictionary, Hierarchy
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

    return _nearest_path(X, dictionary, pick, n_jobs)


def _nearest_path(X: ArrayLike, dictionary: ConceptDictionary, pick: Pick, n_jobs: int | None) -> PathResult:
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


class HNNClassifier(ConceptMethod):
    """Step to the nearest child until a leaf; the 0/1 code of the path goes to a linear head, as published.

    Parameters and fitted attributes are those of `ConceptMethod`.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=1e-4)
    >>> model = HNNClassifier(data.hierarchy, max_steps=2).fit(data.X, data.y)
    >>> {len(path) for path in model.pursue(data.X).paths}
    {2}
    """

    def _code(self, images: NDArray[Any]) -> PathResult:
        return cut_paths(hnn(images, self.dictionary_, n_jobs=self.n_jobs), images, self.max_steps)


class NNClassifier(CodeClassifier):
    """The class whose embedding is nearest: the paper's black box. It has no head.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> float(NNClassifier(data.hierarchy).fit(data.X, data.y).score(data.X, data.y))
    1.0

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    max_steps : synsets of the class's path to report as the support; the prediction does not depend on it
    shrinkage : float in (0, 1], None or "auto"
        Metric: None is Euclidean, as published; "auto" picks by held-out training images.

    Attributes
    ----------
    calibration_ : from squared distances to probabilities, fitted on held-out training images
    """

    calibration_: Calibration

    def __init__(
        self, hierarchy: HierarchyLike | None = None, *, shrinkage: float | Auto | None = None, **shared: Any
    ) -> None:
        super().__init__(hierarchy, **shared)
        self.shrinkage = shrinkage

    def _metric(self) -> tuple[Any, ...]:
        # Calibrated at an infinite anchor, where objectives are squared distances.
        return self.shrinkage, MEAN_ANCHOR if self.shrinkage is not None else 0.0, 1.0, False, np.inf

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each image."""
        images = self._checked_images(X)
        return np.asarray(self.classes_[self._nearest(images)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Those of `Calibration` by squared distances, (n_images, n_classes); the largest is the predicted class's."""
        images = self._checked_images(X)
        scores = self.calibration_.probabilities(self._squared_distances(images))
        # The prediction is made in the images' own precision; where rounding decides, it has the last word.
        scores[np.arange(len(scores)), self._nearest(images)] = scores.max(axis=1) * (1.0 + 1e-12)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def _code(self, images: NDArray[Any]) -> PathResult:
        return cut_paths(nn(images, self.dictionary_, n_jobs=self.n_jobs), images, self.max_steps)

    def _nearest(self, images: NDArray[Any]) -> NDArray[np.intp]:
        class_of_leaf = {leaf: i for i, leaf in enumerate(self._leaves.tolist())}
        leaves = nn(images, self.dictionary_, n_jobs=self.n_jobs).leaves
        return np.array([class_of_leaf[leaf] for leaf in leaves.tolist()], dtype=np.intp)

    def _squared_distances(self, images: NDArray[Any]) -> NDArray[np.float64]:
        """To every class embedding, less the image's own square, (n_images, n_classes)."""
        x = self.dictionary_.embed(images)
        means = np.stack([self.dictionary_.synset_embedding(leaf) for leaf in self._leaves])
        return np.asarray(np.einsum("ij,ij->i", means, means) - 2.0 * (x @ means.T), dtype=np.float64)


def cut_paths(found: PathResult, images: NDArray[Any], max_steps: int | None) -> PathResult:
    """The first `max_steps` synsets of paths whose coefficients are all 1."""
    dictionary = found.dictionary
    tree = dictionary.hierarchy.path_tree
    if max_steps is None or max_steps >= tree.depth:
        return found
    nodes = found.nodes.copy()
    while (beyond := tree.level[nodes] > max_steps).any():
        nodes[beyond] = tree.parent[nodes[beyond]]
    ones = np.ones((len(nodes), tree.depth), dtype=found.codes.dtype)
    # Atoms are differences, so that ones along a path add up to its last synset's embedding.
    ends = dictionary.synset_embeddings[tree.synset[nodes]]
    norms = np.linalg.norm(dictionary.embed(images) - ends, axis=1)
    return PathResult(dictionary, path_codes(dictionary, nodes, ones), norms, nodes, nodes[:, None], norms[:, None])
