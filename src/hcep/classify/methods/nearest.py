"""Nearest embeddings: NN over the classes and HNN down the hierarchy, as functions and as estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.classify.base import Auto, HierarchyLike
from hcep.classify.calibration import Calibration
from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.methods.baselines import CodeClassifier, ConceptMethod
from hcep.classify.path_model import settled
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, working_dtype
from hcep.pursuit import PathResult
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.result import path_codes

Pick = Callable[[NDArray[Any]], NDArray[np.int32]]


def nn(
    X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None, max_steps: int | None = None
) -> PathResult:
    """Find the nearest class embedding: ``argmin over leaves of ||x - a(leaf)||``, the paper's black-box baseline.

    The path is the class's first path, or its first `max_steps` synsets. Its coefficients are all 1.

    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 1.0], "dog": [2.0, -1.0], "car": [0.0, 3.0]})
    >>> nn([[1.9, 0.8]], d).paths
    [('animal', 'cat')]
    """
    tree, leaves = dictionary.hierarchy.path_tree, dictionary.hierarchy.leaf_index
    _, first = np.unique(tree.synset[tree.leaf_nodes], return_index=True)
    paths = tree.leaf_nodes[first].astype(np.int32)
    return _nearest_path(X, dictionary, lambda far: paths[np.argmin(far[:, leaves], axis=1)], n_jobs, max_steps)


def hnn(
    X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None, max_steps: int | None = None
) -> PathResult:
    """Find a path by hierarchical nearest neighbours: from the root, step to the nearest child until a leaf."""
    tree = dictionary.hierarchy.path_tree

    def pick(distances: NDArray[Any]) -> NDArray[np.int32]:
        nodes = np.zeros(len(distances), dtype=np.int32)
        for _ in range(tree.depth):
            for node in np.unique(nodes[tree.n_children[nodes] > 0]):
                children = np.arange(tree.first_child[node], tree.first_child[node] + tree.n_children[node])
                here = np.flatnonzero(nodes == node)
                nodes[here] = children[np.argmin(distances[np.ix_(here, tree.synset[children])], axis=1)]
        return nodes

    return _nearest_path(X, dictionary, pick, n_jobs, max_steps)


def _nearest_path(
    X: ArrayLike, dictionary: ConceptDictionary, pick: Pick, n_jobs: int | None, max_steps: int | None
) -> PathResult:
    """Let `pick` choose a path-tree node from the squared distances (minus ``||x||**2``) to every synset."""
    rows, tree = check_shape(X, dictionary.n_dims), dictionary.hierarchy.path_tree
    dtype = working_dtype(rows)
    synsets = dictionary.synset_embeddings.astype(dtype)
    squares = np.einsum("ij,ij->i", synsets, synsets)
    nodes, norms = np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows))

    def work(block: slice) -> None:
        x = dictionary.embed(rows[block], block.start)
        ends = pick(squares - 2.0 * (x @ synsets.T))
        while (beyond := tree.level[ends] > (max_steps or tree.depth)).any():
            ends[beyond] = tree.parent[ends[beyond]]
        nodes[block] = ends
        # Atoms are differences, so coefficients of 1 along a path add up to the embedding of its last synset.
        norms[block] = np.linalg.norm(x - synsets[tree.synset[nodes[block]]], axis=1)

    for_blocks(len(rows), work, n_jobs)
    codes = path_codes(dictionary, nodes, np.ones((len(rows), tree.depth), dtype=dtype))
    return PathResult(dictionary, codes, norms, nodes, nodes[:, None], norms[:, None])


class HNNClassifier(ConceptMethod):
    """Step to the nearest child until a leaf, then classify the 0/1 code of the path by a linear head, as published."""

    def code(self, images: NDArray[Any]) -> PathResult:
        return hnn(images, self.dictionary_, n_jobs=self.n_jobs, max_steps=self.max_steps)


class NNClassifier(CodeClassifier):
    """Predict the class whose embedding is nearest: the paper's black box. It has no head.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    max_steps : number of synsets of the class's path in the support; the prediction does not depend on it
    shrinkage : float in (0, 1], None or "auto"; None is the Euclidean metric, as published. "auto" chooses a metric on
        held-out training images, on which the probabilities are calibrated too
    """

    calibration_: Calibration

    def __init__(
        self, hierarchy: HierarchyLike | None = None, *, shrinkage: float | Auto | None = None, **shared: Any
    ) -> None:
        super().__init__(hierarchy, **shared)
        self.shrinkage = shrinkage

    def _metric(self) -> tuple[Any, ...]:
        # The calibration is at an infinite anchor, where objectives are squared distances.
        return self.shrinkage, MEAN_ANCHOR if self.shrinkage is not None else 0.0, 1.0, False, np.inf

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each image, (n_images,)."""
        images = self._checked_images(X)
        return np.asarray(self.classes_[self._nearest(images)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the calibrated probability of each class, (n_images, n_classes)."""
        images = self._checked_images(X)
        means = np.stack([self.dictionary_.synset_embedding(leaf) for leaf in self._leaves])
        distances = np.einsum("ij,ij->i", means, means) - 2.0 * (self.dictionary_.embed(images) @ means.T)
        scores = self.calibration_.probabilities(np.asarray(distances, dtype=np.float64))
        # `predict` works in the images' own precision; if rounding decides, its class must have the largest number.
        return settled(scores, self._nearest(images))

    def code(self, images: NDArray[Any]) -> PathResult:
        return nn(images, self.dictionary_, n_jobs=self.n_jobs, max_steps=self.max_steps)

    def _nearest(self, images: NDArray[Any]) -> NDArray[np.intp]:
        class_of_leaf = {leaf: i for i, leaf in enumerate(self._leaves.tolist())}
        leaves = nn(images, self.dictionary_, n_jobs=self.n_jobs).leaves
        return np.array([class_of_leaf[leaf] for leaf in leaves.tolist()], dtype=np.intp)
