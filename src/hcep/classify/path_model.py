"""What prediction needs of a fitted classifier, without scikit-learn: loading and explaining one image stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary import ConceptDictionary
from hcep.hierarchy import Hierarchy
from hcep.pursuit import PathResult, hb_omp, path_objectives


class Head(Protocol):
    """Codes to class indices, such as a fitted ``LogisticRegression``."""

    def predict(self, codes: sparse.csr_array) -> NDArray[Any]:
        """Class index of each code."""
        ...

    def predict_proba(self, codes: sparse.csr_array) -> NDArray[Any]:
        """Probability of each class index."""
        ...


@dataclass(frozen=True, eq=False)
class PathModel:
    """A fitted classifier: dictionary, search options, and how a path becomes a class.

    Attributes
    ----------
    classes : (n_classes,) array
    leaves : (n_classes,) array of str
        The leaf that stands for each class.
    dictionary : ConceptDictionary
    beam_width, max_steps, tol, signed, anchor, n_jobs : of the pursuit
    temperature : float
        Scale of objectives in the path head's probabilities.
    head : Head or None
        None takes the class of the path's leaf.
    """

    classes: NDArray[Any]
    leaves: NDArray[np.str_]
    dictionary: ConceptDictionary
    beam_width: int | None
    max_steps: int | None
    tol: float
    signed: bool
    anchor: float
    temperature: float
    head: Head | None
    n_jobs: int | None

    @property
    def hierarchy(self) -> Hierarchy:
        return self.dictionary.hierarchy

    def pursue(
        self, images: NDArray[Any], *, n_best: int = 1, trace: bool = False, progress: bool = False
    ) -> PathResult:
        """Rooted paths of raw embeddings, with the model's options."""
        return hb_omp(
            images,
            self.dictionary,
            beam_width=self.beam_width,
            max_steps=self.max_steps,
            tol=self.tol,
            signed=self.signed,
            anchor=self.anchor,
            n_best=n_best,
            trace=trace,
            progress=progress,
            n_jobs=self.n_jobs,
        )

    def class_index(self, images: NDArray[Any], found: PathResult) -> NDArray[np.intp]:
        """Predicted class of each path: the head's, or the leaf's; a path that ends above the leaves takes the
        class, of those below its end, whose embedding is nearest.
        """
        if self.head is not None:
            return np.asarray(self.head.predict(found.codes), dtype=np.intp)
        class_of_leaf = {leaf: i for i, leaf in enumerate(self.leaves.tolist())}
        index = np.array([class_of_leaf.get(leaf, -1) for leaf in found.leaves.tolist()], dtype=np.intp)
        early = np.flatnonzero(index < 0)
        if len(early):
            index[early] = self._nearest_below(images[early], found.nodes[early])
        return index

    def _nearest_below(self, images: NDArray[Any], nodes: NDArray[np.int32]) -> NDArray[np.intp]:
        x = self.dictionary.embed(images)
        means = np.stack([self.dictionary.synset_embedding(leaf) for leaf in self.leaves])
        distances = np.einsum("ij,ij->i", means, means) - 2.0 * (x @ means.T)
        ends = self.hierarchy.path_tree.synset[nodes]
        for synset in np.unique(ends):
            below = set(self.hierarchy.descendants(self.hierarchy.ids[synset]))
            outside = np.array([leaf not in below for leaf in self.leaves.tolist()])
            distances[np.ix_(ends == synset, outside)] = np.inf
        nearest: NDArray[np.intp] = np.argmin(distances, axis=1)
        return nearest

    def probabilities(self, images: NDArray[Any]) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes); the largest belongs to the predicted class.

        With the path head ``softmax(-objective / temperature)`` over the best complete path of every class; a finite
        beam leaves only the classes of its final hypotheses.
        """
        n_leaf_paths = len(self.hierarchy.path_tree.leaf_nodes)
        found = self.pursue(images, n_best=1 if self.beam_width is None else min(self.beam_width, n_leaf_paths))
        if self.head is not None:
            return np.asarray(self.head.predict_proba(found.codes))
        scores = -self._class_objectives(images, found) / self.temperature
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        # The search itself has the last word: ties and paths that end early are settled as the class is. One part in
        # 10**12 more than the largest, so that the division cannot round it to a tie again.
        scores[np.arange(len(scores)), self.class_index(images, found)] = 1.0 + 1e-12
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def _class_objectives(self, images: NDArray[Any], found: PathResult) -> NDArray[np.float64]:
        """Lowest objective among each class's complete paths, (n_images, n_classes)."""
        tree = self.hierarchy.path_tree
        objectives = path_objectives(images, self.dictionary, self.signed, self.anchor, n_jobs=self.n_jobs)
        if self.beam_width is not None:
            kept = np.zeros((len(objectives), tree.n_nodes), dtype=bool)
            np.put_along_axis(kept, np.maximum(found.n_best_nodes, 0).astype(np.intp), True, axis=1)
            objectives[~kept[:, tree.leaf_nodes]] = np.inf
        out = np.full((len(objectives), len(self.classes)), np.inf)
        synsets = tree.synset[tree.leaf_nodes]
        for i, leaf in enumerate(self.leaves.tolist()):
            out[:, i] = objectives[:, synsets == self.hierarchy.index(leaf)].min(axis=1)
        # Finite, so that a class the signed rule bars everywhere still has a (vanishing) probability.
        ceiling = np.where(np.isfinite(out), out, -np.inf).max(axis=1, initial=0.0, keepdims=True)
        return np.where(np.isfinite(out), out, ceiling + 100.0 * self.temperature)
