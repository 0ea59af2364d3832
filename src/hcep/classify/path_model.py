"""What prediction needs of a fitted classifier, without scikit-learn: loading and explaining one image stays quick."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary import ConceptDictionary
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.pursuit import PathResult, SearchOptions, search
from hcep.pursuit.limits import Concepts, PathLimits

#: The least probability of a class that is left when others are ruled out.
TINY = float(np.finfo(np.float64).tiny)


class Head(Protocol):
    """Codes to class indices, such as a fitted ``LogisticRegression``."""

    def predict(self, codes: sparse.csr_array) -> NDArray[Any]:
        """Class index of each code."""
        ...


@dataclass(frozen=True, eq=False)
class Inference:
    """All that one search says of some images.

    Attributes
    ----------
    paths : PathResult
    class_index : (n_images,) int
        The predicted class, as a position in `classes`.
    probabilities : (n_images, n_classes) float64
        The largest belongs to the predicted class.
    classes : (n_classes,) array
    """

    paths: PathResult
    class_index: NDArray[np.intp]
    probabilities: NDArray[np.float64]
    classes: NDArray[Any]

    @property
    def labels(self) -> NDArray[Any]:
        """The predicted class of each image."""
        return np.asarray(self.classes[self.class_index])


@dataclass(frozen=True, eq=False)
class PathModel:
    """A fitted classifier: dictionary, search options, and how a path becomes a class.

    Attributes
    ----------
    classes : (n_classes,) array
    leaves : (n_classes,) array of str
        The leaf that stands for each class.
    dictionary : ConceptDictionary
    options : SearchOptions
    temperature : float
        Scale of objectives in the path head's probabilities.
    head : Head or None
        None takes the class of the path's leaf.
    explained_floor : (n_classes,) array or None
        Explained share below which an image is unlike the training images of a class; None where that is not known.
    """

    classes: NDArray[Any]
    leaves: NDArray[np.str_]
    dictionary: ConceptDictionary
    options: SearchOptions
    temperature: float = float("nan")
    head: Head | None = None
    explained_floor: NDArray[np.float64] | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        return self.dictionary.hierarchy

    def limits(self, force: Concepts = (), forbid: Concepts = ()) -> PathLimits | None:
        """What forced and forbidden concepts leave open (see `PathLimits.of`)."""
        return PathLimits.of(self.hierarchy, force, forbid)

    def pursue(
        self,
        images: NDArray[Any],
        *,
        n_best: int = 1,
        trace: bool = False,
        progress: bool = False,
        limits: PathLimits | None = None,
    ) -> PathResult:
        """Rooted paths of raw embeddings, with the model's options."""
        asked: dict[str, Any] = {"n_best": n_best, "trace": trace, "progress": progress, "limits": limits}
        return search(images, self.dictionary, self.options, **asked)

    def predict(self, images: NDArray[Any], limits: PathLimits | None = None) -> NDArray[np.intp]:
        """Class of raw embeddings, as positions in `classes`."""
        if limits is not None and self.head is not None:  # which may not keep to the path
            return self.infer(images, limits=limits).class_index
        return self.class_index(images, self.pursue(images, limits=limits), limits)

    def infer(
        self,
        images: NDArray[Any],
        *,
        n_best: int = 1,
        trace: bool = False,
        progress: bool = False,
        explained: bool = False,
        limits: PathLimits | None = None,
    ) -> Inference:
        """Paths, classes and probabilities of raw embeddings, each image projected once.

        Parameters
        ----------
        images : (n_images, n_dims) array
        n_best, trace, progress
            As for `hcep.hb_omp`.
        explained : bool
            Fill ``paths.explained_shares``.
        limits : PathLimits, optional
            Paths that each image may take; classes of no such path have probability 0.

        Notes
        -----
        With the path head probabilities are ``softmax(-objective / temperature)`` over the best complete path of every
        class; a finite beam leaves only the classes of its final hypotheses.
        """
        asked: dict[str, Any] = {"trace": trace, "progress": progress, "explained": explained, "limits": limits}
        if self.head is not None:
            if not hasattr(self.head, "predict_proba"):
                raise HCEPError(f"the head, a {type(self.head).__name__}, gives no probabilities (no predict_proba)")
            found = search(images, self.dictionary, self.options, n_best=n_best, **asked)
            odds = np.asarray(self.head.predict_proba(found.codes))
            if limits is None:
                return Inference(found, self.class_index(images, found), odds, self.classes)
            odds = np.where(self._open_classes(limits), np.maximum(odds, TINY), 0.0)
            return Inference(found, odds.argmax(axis=1), odds / odds.sum(axis=1, keepdims=True), self.classes)
        n_kept = min(self.options.beam_width or 1, len(self.hierarchy.path_tree.leaf_nodes))
        scores = np.empty((len(images), len(self.classes)))

        def reduce(block: slice, objectives: NDArray[np.float64], nodes: NDArray[np.int32]) -> None:
            own = None if limits is None else limits.at(block)
            scores[block] = -self._class_objectives(objectives, nodes, own) / self.temperature
            if own is not None:
                scores[block] = np.where(self._open_classes(own), scores[block], -np.inf)

        found = search(images, self.dictionary, self.options, n_best=max(n_best, n_kept), on_objectives=reduce, **asked)
        index = self.class_index(images, found, limits)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        # The search itself has the last word: ties and paths that end early are settled as the class is. One part in
        # 10**12 more than the largest, so that the division cannot round it to a tie again.
        scores[np.arange(len(scores)), index] = 1.0 + 1e-12
        scores /= scores.sum(axis=1, keepdims=True)
        best = {name: getattr(found, name)[:, :n_best] for name in ("n_best_nodes", "n_best_residual_norms")}
        return Inference(replace(found, **best), index, scores, self.classes)

    def class_index(
        self, images: NDArray[Any], found: PathResult, limits: PathLimits | None = None
    ) -> NDArray[np.intp]:
        """Predicted class of each path: the head's, or the leaf's; a path that ends above the leaves takes the
        class, of those below its end that `limits` leave open, whose embedding is nearest.
        """
        if self.head is not None:
            return np.asarray(self.head.predict(found.codes), dtype=np.intp)
        index = self._class_of_synset[self.hierarchy.path_tree.synset[found.nodes]]
        early = np.flatnonzero(index < 0)
        if len(early):
            index[early] = self._nearest_below(images[early], found.nodes[early], limits and limits.at(early))
        return index

    @cached_property
    def _leaf_index(self) -> NDArray[np.intp]:
        """The synset that stands for each class."""
        return np.array([self.hierarchy.index(leaf) for leaf in self.leaves.tolist()], dtype=np.intp)

    @cached_property
    def _class_of_synset(self) -> NDArray[np.intp]:
        """The class each synset stands for; -1 for none."""
        classes = np.full(len(self.hierarchy), -1, dtype=np.intp)
        classes[self._leaf_index] = np.arange(len(self.leaves))
        return classes

    @cached_property
    def _paths_by_class(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Columns of complete paths, class after class, and where each class's begin."""
        tree = self.hierarchy.path_tree
        index = self._class_of_synset[tree.synset[tree.leaf_nodes]]
        columns = np.argsort(index, kind="stable")
        return columns, np.searchsorted(index[columns], np.arange(len(self.leaves)))

    def _open_classes(self, limits: PathLimits) -> NDArray[np.bool_]:
        """Whether a class has a path that is open, (n_images, n_classes), or one row for all images."""
        columns, first = self._paths_by_class
        is_open = limits.open_at(self.hierarchy.path_tree.leaf_nodes[columns])
        return np.asarray(np.logical_or.reduceat(is_open, first, axis=1))

    def _nearest_below(
        self, images: NDArray[Any], nodes: NDArray[np.int32], limits: PathLimits | None
    ) -> NDArray[np.intp]:
        x = self.dictionary.embed(images)
        means = self.dictionary.synset_embeddings[self._leaf_index]
        distances = np.einsum("ij,ij->i", means, means) - 2.0 * (x @ means.T)
        ends = self.hierarchy.path_tree.synset[nodes]
        for synset in np.unique(ends):
            below = set(self.hierarchy.descendants(self.hierarchy.ids[synset]))
            outside = np.array([leaf not in below for leaf in self.leaves.tolist()])
            distances[np.ix_(ends == synset, outside)] = np.inf
        if limits is not None:
            distances = np.where(self._open_classes(limits), distances, np.inf)
        return np.asarray(np.argmin(distances, axis=1))

    def _class_objectives(
        self, objectives: NDArray[np.float64], nodes: NDArray[np.int32], limits: PathLimits | None = None
    ) -> NDArray[np.float64]:
        """Lowest objective among each class's complete paths, (n_images, n_classes), of those the search kept.

        Of a class with an open path it is the lowest of those that are; of any other, what it would be.
        """
        tree = self.hierarchy.path_tree
        if self.options.beam_width is not None:
            kept = np.zeros((len(objectives), tree.n_nodes), dtype=bool)
            np.put_along_axis(kept, np.maximum(nodes, 0).astype(np.intp), True, axis=1)
            objectives[~kept[:, tree.leaf_nodes]] = np.inf
        columns, first = self._paths_by_class
        best = objectives[:, columns]
        if limits is not None:
            is_open = limits.open_at(tree.leaf_nodes[columns])
            has_one = np.repeat(self._open_classes(limits), np.diff([*first, len(columns)]), axis=1)
            best = np.where(is_open | ~has_one, best, np.inf)
        best = np.minimum.reduceat(best, first, axis=1)
        # Finite, so that a class the signed rule bars everywhere still has a (vanishing) probability.
        ceiling = np.where(np.isfinite(best), best, -np.inf).max(axis=1, initial=0.0, keepdims=True)
        return np.where(np.isfinite(best), best, ceiling + 100.0 * self.temperature)
