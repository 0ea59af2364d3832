"""Nearest embeddings: NN over the classes, HNN down the hierarchy; as functions on a dictionary, and as estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.classify.base import Auto, HierarchyLike
from hcep.classify.calibration import Calibration
from hcep.classify.choosing import MEAN_ANCHOR
from hcep.classify.methods.base import CodeClassifier, ConceptMethod
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape, working_dtype
from hcep.pursuit import PathResult
from hcep.pursuit.blocks import for_blocks
from hcep.pursuit.result import path_codes

Pick = Callable[[NDArray[Any]], NDArray[np.int32]]


def nn(
    X: ArrayLike, dictionary: ConceptDictionary, *, n_jobs: int | None = None, max_steps: int | None = None
) -> PathResult:
    """Nearest class embedding; the path is the class's first, or `max_steps` synsets of it, its code all ones.

    The paper's black-box baseline: ``argmin over leaves of ||x - a(leaf)||``.

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
    """Hierarchical nearest neighbour: from the root, step to the child nearest to the image until a leaf."""
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
    """Let `pick` choose a path-tree node from the squared distances (less ``||x||**2``) to every synset."""
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
        # Atoms are differences, so that ones along a path add up to its last synset's embedding.
        norms[block] = np.linalg.norm(x - synsets[tree.synset[nodes[block]]], axis=1)

    for_blocks(len(rows), work, n_jobs)
    codes = path_codes(dictionary, nodes, np.ones((len(rows), tree.depth), dtype=dtype))
    return PathResult(dictionary, codes, norms, nodes, nodes[:, None], norms[:, None])


class HNNClassifier(ConceptMethod):
    """Step to the nearest child until a leaf; the 0/1 code of the path goes to a linear head, as published."""

    def _code(self, images: NDArray[Any]) -> PathResult:
        return hnn(images, self.dictionary_, n_jobs=self.n_jobs, max_steps=self.max_steps)


class NNClassifier(CodeClassifier):
    """The class whose embedding is nearest: the paper's black box. It has no head.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, n_jobs : as in `hcep.classify.base.ConceptEstimator`
    max_steps : synsets of the class's path to report as the support; the prediction does not depend on it
    shrinkage : float in (0, 1], None or "auto"; metric: None is Euclidean, as published; "auto" picks by held-out
        training images, on which the probabilities are calibrated too
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
        means = np.stack([self.dictionary_.synset_embedding(leaf) for leaf in self._leaves])
        distances = np.einsum("ij,ij->i", means, means) - 2.0 * (self.dictionary_.embed(images) @ means.T)
        scores = self.calibration_.probabilities(np.asarray(distances, dtype=np.float64))
        # The prediction is made in the images' own precision; where rounding decides, it has the last word.
        scores[np.arange(len(scores)), self._nearest(images)] = scores.max(axis=1) * (1.0 + 1e-12)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def _code(self, images: NDArray[Any]) -> PathResult:
        return nn(images, self.dictionary_, n_jobs=self.n_jobs, max_steps=self.max_steps)

    def _nearest(self, images: NDArray[Any]) -> NDArray[np.intp]:
        class_of_leaf = {leaf: i for i, leaf in enumerate(self._leaves.tolist())}
        leaves = nn(images, self.dictionary_, n_jobs=self.n_jobs).leaves
        return np.array([class_of_leaf[leaf] for leaf in leaves.tolist()], dtype=np.intp)
