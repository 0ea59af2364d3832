"""What a fitted classifier predicts with, free of scikit-learn, so that loading it and explaining an image is quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.calibration import Calibration
from hcep.classify.right_level import Levels
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.pursuit import PathResult, PathSums, SearchOptions, Stopping, search, search_several
from hcep.pursuit.limits import Concepts, PathLimits

if TYPE_CHECKING:
    from hcep.classify.hedging import HeldOutScores

#: Called with a block of images, the probabilities of all classes and the predicted class of each.
OnProbabilities = Callable[[slice, NDArray[np.float64], NDArray[np.intp]], None]
#: The least probability of a class that is left when others are ruled out.
TINY = float(np.finfo(np.float64).tiny)
#: The calibration if a head gives the probabilities.
UNCALIBRATED = Calibration(float("nan"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Inference(PathResult):
    """The paths of images with their classes and probabilities, from one search.

    Attributes
    ----------
    class_index : (n_images,) int; the predicted class, as a position in `classes`
    probabilities : (n_images, n_classes) float64; the largest belongs to the predicted class
    classes : (n_classes,) array
    atypical : (n_images,) bool, or None; images unlike typical ones, which no class explains (see `PathModel.typical`)
    """

    class_index: NDArray[np.intp]
    probabilities: NDArray[np.float64]
    classes: NDArray[Any]
    atypical: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, paths: PathResult, index: NDArray[np.intp], probabilities: NDArray[np.float64], classes: NDArray[Any]
    ) -> Inference:
        """The result of a search with the class and the probabilities of each image."""
        arrays = {part.name: getattr(paths, part.name) for part in fields(paths)}
        return cls(**arrays, class_index=index, probabilities=probabilities, classes=classes)

    def take(self, rows: NDArray[Any]) -> Inference:
        """The inference for a selection of the images, without runners-up and codes."""
        shares = None if self.explained_shares is None else self.explained_shares[rows]
        own = {"class_index": self.class_index[rows], "probabilities": self.probabilities[rows]}
        atypical = None if self.atypical is None else self.atypical[rows]
        return replace(self, nodes=self.nodes[rows], explained_shares=shares, atypical=atypical, **own)

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
    leaves : (n_classes,) array of str; the leaf that stands for each class
    calibration : from objectives to the path head's probabilities
    priors : (n_classes,) array or None; probability of each class before the image is seen; None if all are equal
    head : a fitted classifier of codes, such as ``LogisticRegression``; None takes the class of the path's leaf
    explained_floor : (n_classes,) array or None
        Explained share below which an image is unlike the training images of a class; None if it is unknown.
    typical : (n_dims,) array or None
        Its product with an embedding of norm 1 is below 1 if the image is unlike typical images of any class.
    held_out : scores of images that the model was not fitted on; None before `HCEPClassifier.calibrate`
    stopping : when ``n_paths="auto"`` adds no further path; None before `HCEPClassifier.fit_objects`
    """

    classes: NDArray[Any]
    leaves: NDArray[np.str_]
    dictionary: ConceptDictionary
    options: SearchOptions
    calibration: Calibration = UNCALIBRATED
    priors: NDArray[np.float64] | None = None
    head: Any = None
    explained_floor: NDArray[np.float64] | None = None
    typical: NDArray[np.float64] | None = None
    held_out: HeldOutScores | None = None
    stopping: Stopping | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        return self.dictionary.hierarchy

    def limits(self, force: Concepts = (), forbid: Concepts = (), only: Concepts = ()) -> PathLimits | None:
        """What forced, forbidden and only possible concepts leave open (see `PathLimits.of`), or None."""
        return PathLimits.of(self.hierarchy, force, forbid, only)

    def pursue(
        self,
        images: NDArray[Any],
        *,
        n_best: int = 1,
        trace: bool = False,
        progress: bool = False,
        limits: PathLimits | None = None,
    ) -> PathResult:
        """Rooted paths of raw embeddings, with the model's options; with priors, those of the most probable classes."""
        options: dict[str, Any] = {"n_best": n_best, "trace": trace, "progress": progress, "limits": limits}
        if self.priors is None or self.head is not None:
            return search(images, self.dictionary, self.options, **options)
        return self._search(images, lambda *_: None, **options)

    def pursue_several(
        self, images: NDArray[Any], n_paths: int | Literal["auto"] = "auto", *, progress: bool = False
    ) -> PathSums:
        """Raw embeddings as sums of up to `n_paths` paths, with the model's options (see `hcep.hb_omp`)."""
        return search_several(images, self.dictionary, self.options, n_paths, stopping=self.stopping, progress=progress)

    def predict(self, images: NDArray[Any], limits: PathLimits | None = None) -> NDArray[np.intp]:
        """Class of raw embeddings, as positions in `classes`."""
        if limits is not None and self.head is not None:  # the head may not keep to the path
            return self.infer(images, limits=limits).class_index
        if self.head is not None or (self.priors is None and not self.is_exhaustive(limits)):
            return self.class_index(images, self.pursue(images, limits=limits), limits)
        index = np.empty(len(images), dtype=np.intp)

        def keep(block: slice, _: NDArray[np.float64], best: NDArray[np.intp]) -> None:
            index[block] = best

        if self.priors is None:
            self._score(images, keep, n_classes=0)
        else:
            self._each_block(images, keep, limits)
        return index

    def probabilities(self, images: NDArray[Any], limits: PathLimits | None = None) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes), as `infer` gives it, without paths."""
        out = np.empty((len(images), len(self.classes)))

        def keep(block: slice, probabilities: NDArray[np.float64], _: NDArray[np.intp]) -> None:
            out[block] = probabilities

        self._each_block(images, keep, limits)
        return out

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
        n_best, trace, progress : as for `hcep.hb_omp`
        explained : fill ``paths.explained_shares``
        limits : paths that each image may take; classes of no such path have probability 0

        Notes
        -----
        With the path head probabilities are those of `Calibration`, from the objective of the best complete path of
        every class; a finite beam leaves only the classes of its final hypotheses.
        """
        options: dict[str, Any] = {"n_best": n_best, "trace": trace, "progress": progress, "explained": explained}
        options["limits"] = limits
        if self.head is not None:
            return replace(self._infer_by_head(images, **options), atypical=self.atypical(images))
        probabilities, index = np.empty((len(images), len(self.classes))), np.empty(len(images), dtype=np.intp)

        def keep(block: slice, values: NDArray[np.float64], best: NDArray[np.intp]) -> None:
            probabilities[block], index[block] = values, best

        inference = Inference.of(self._search(images, keep, **options), index, probabilities, self.classes)
        return replace(inference, atypical=self.atypical(images))

    def atypical(self, images: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether raw embeddings are unlike typical ones, (n_images,); None if the model cannot tell."""
        return None if self.typical is None else np.asarray(unit_rows(images) @ self.typical < 1.0)

    def _infer_by_head(self, images: NDArray[Any], *, limits: PathLimits | None, **options: Any) -> Inference:
        if not hasattr(self.head, "predict_proba"):
            raise HCEPError(f"the head, a {type(self.head).__name__}, gives no probabilities (no predict_proba)")
        paths = search(images, self.dictionary, self.options, limits=limits, **options)
        odds = np.asarray(self.head.predict_proba(paths.codes))
        if limits is None:
            return Inference.of(paths, self.class_index(images, paths), odds, self.classes)
        odds = np.where(self._open_classes(limits), np.maximum(odds, TINY), 0.0)
        return Inference.of(paths, odds.argmax(axis=1), odds / odds.sum(axis=1, keepdims=True), self.classes)

    def top_classes(self, images: NDArray[Any], k: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The k most probable classes of raw embeddings, best first, and their probabilities, both (n_images, k)."""
        k = min(k, len(self.classes))
        top, probability = np.empty((len(images), k), dtype=np.intp), np.empty((len(images), k))

        def keep(block: slice, values: NDArray[np.float64], _: NDArray[np.intp]) -> None:
            largest = np.argpartition(-values, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(values, largest, axis=1), axis=1, kind="stable")
            top[block] = np.take_along_axis(largest, order, axis=1)
            probability[block] = np.take_along_axis(values, top[block], axis=1)

        self._each_block(images, keep)
        return top, probability

    def node_probabilities(self, images: NDArray[Any], limits: PathLimits | None = None) -> NDArray[np.float64]:
        """Probability of every concept, (n_images, n_synsets) in the hierarchy's order; the root's is 1.

        It is the sum over the classes below the concept, each counted once, however many paths lead to it.
        """
        out = np.empty((len(images), len(self.hierarchy)))

        def keep(block: slice, values: NDArray[np.float64], _: NDArray[np.intp]) -> None:
            out[block] = np.minimum(values @ self.classes_below, 1.0)

        self._each_block(images, keep, limits)
        return out

    def _each_block(self, images: NDArray[Any], keep: OnProbabilities, limits: PathLimits | None = None) -> None:
        """Probabilities one block at a time, not those of all images at once unless a head gives them."""
        if self.head is not None:
            inference = self.infer(images, limits=limits)
            keep(slice(0, len(images)), inference.probabilities, inference.class_index)
            return
        if not self.is_exhaustive(limits):
            self._search(images, keep, limits=limits)
            return

        def reduce(block: slice, scores: NDArray[np.float64], best: NDArray[np.intp]) -> None:
            probabilities = self.calibration.probabilities(np.negative(scores, out=scores), self.priors)
            index = best if self.priors is None else np.argmax(probabilities, axis=1)
            keep(block, settled(probabilities, index), index)

        self._score(images, reduce, len(self.classes))

    def is_exhaustive(self, limits: PathLimits | None = None) -> bool:
        """Whether the scores of all complete paths decide everything; one product with raw images gives them."""
        options, depth = self.options, self.hierarchy.path_tree.depth
        exact = options.beam_width is None and options.tol == 0.0 and (options.max_steps or depth) >= depth
        return exact and not options.signed and limits is None

    def _score(self, images: NDArray[Any], keep: OnProbabilities, n_classes: int) -> None:
        from hcep.pursuit.folded import for_scores

        anchor, n_jobs = self.options.anchor, self.options.n_jobs
        for_scores(images, self.dictionary, anchor, self._class_of_node, n_classes, keep, n_jobs)

    def _search(
        self,
        images: NDArray[Any],
        keep: OnProbabilities,
        *,
        n_best: int = 1,
        limits: PathLimits | None = None,
        **options: Any,
    ) -> PathResult:
        """Search, and pass the probabilities of every block to `keep`."""
        n_kept = min(self.options.beam_width or 1, len(self.hierarchy.path_tree.leaf_nodes))

        def reduce(block: slice, objectives: NDArray[np.float64], nodes: NDArray[np.int32]) -> None:
            own = None if limits is None else limits.at(block)
            lowest = self._class_objectives(objectives, nodes, own)
            probabilities = self.calibration.probabilities(lowest, self.priors)
            if own is not None:
                probabilities = np.where(self._open_classes(own), np.maximum(probabilities, TINY), 0.0)
            if self.priors is None:
                index = self._class_at(images[block], nodes[:, 0], own)
            else:
                index = np.argmax(probabilities, axis=1)
                self._put_first(nodes, objectives, index)
            keep(block, settled(probabilities, index), index)

        options |= {"n_best": max(n_best, n_kept), "limits": limits}
        paths = search(images, self.dictionary, self.options, on_objectives=reduce, **options)
        best = {name: getattr(paths, name)[:, :n_best] for name in ("n_best_nodes", "n_best_residual_norms")}
        return replace(paths, **best)

    def _put_first(self, nodes: NDArray[np.int32], objectives: NDArray[np.float64], index: NDArray[np.intp]) -> None:
        """Make the best path of the chosen class the answer if the search, which knows no priors, found another."""
        tree = self.hierarchy.path_tree
        steps = self.options.max_steps or tree.depth
        of_path = self.class_of_synset[tree.synset[tree.leaf_nodes]]
        for i in np.flatnonzero(self.class_of_synset[tree.synset[nodes[:, 0]]] != index):
            columns = np.flatnonzero(of_path == index[i])
            node = tree.leaf_nodes[columns[np.argmin(objectives[i, columns])]]
            while tree.level[node] > steps:
                node = tree.parent[node]
            others = nodes[i][nodes[i] != node]
            nodes[i, 0], nodes[i, 1:] = node, others[: len(nodes[i]) - 1]

    def class_index(
        self, images: NDArray[Any], paths: PathResult, limits: PathLimits | None = None
    ) -> NDArray[np.intp]:
        """Predicted class of each path: by the head, or the class of its leaf.

        A path that ends above the leaves takes the class with the nearest embedding, of those below its end that
        `limits` leave open.
        """
        if self.head is not None:
            return np.asarray(self.head.predict(paths.codes), dtype=np.intp)
        return self._class_at(images, paths.nodes, limits)

    def _class_at(self, images: NDArray[Any], nodes: NDArray[np.int32], limits: PathLimits | None) -> NDArray[np.intp]:
        index = self.class_of_synset[self.hierarchy.path_tree.synset[nodes]]
        early = np.flatnonzero(index < 0)
        if len(early):
            index[early] = self._nearest_below(images[early], nodes[early], limits and limits.at(early))
        return index

    @cached_property
    def leaf_index(self) -> NDArray[np.intp]:
        """The synset that stands for each class, (n_classes,)."""
        return np.array([self.hierarchy.index(leaf) for leaf in self.leaves.tolist()], dtype=np.intp)

    @cached_property
    def class_of_synset(self) -> NDArray[np.intp]:
        """The class that each synset stands for, (n_synsets,); -1 for none."""
        classes = np.full(len(self.hierarchy), -1, dtype=np.intp)
        classes[self.leaf_index] = np.arange(len(self.leaves))
        return classes

    @cached_property
    def _class_of_node(self) -> NDArray[np.int32]:
        """The class of each complete path, by its node in the path tree; -1 for all other nodes."""
        tree = self.hierarchy.path_tree
        return np.where(tree.n_children == 0, self.class_of_synset[tree.synset], -1).astype(np.int32)

    @cached_property
    def levels(self) -> Levels:
        """The concepts that an answer can be."""
        return Levels.of(self.hierarchy, self.leaves.tolist())

    @property
    def classes_below(self) -> sparse.csr_array:
        """1 where a class is below a synset, or is that synset, (n_classes, n_synsets)."""
        return self.levels.below

    @cached_property
    def paths_by_class(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Columns of complete paths, class after class, and where those of each class begin."""
        tree = self.hierarchy.path_tree
        index = self.class_of_synset[tree.synset[tree.leaf_nodes]]
        columns = np.argsort(index, kind="stable")
        return columns, np.searchsorted(index[columns], np.arange(len(self.leaves)))

    def lowest_by_class(self, by_path: NDArray[np.float64]) -> NDArray[np.float64]:
        """The lowest of the objectives of each class's complete paths, (n_images, n_classes)."""
        columns, first = self.paths_by_class
        return np.asarray(np.minimum.reduceat(by_path[:, columns], first, axis=1))

    def _open_classes(self, limits: PathLimits) -> NDArray[np.bool_]:
        """Whether a class has a path that is open, (n_images, n_classes), or one row for all images."""
        columns, first = self.paths_by_class
        is_open = limits.open_at(self.hierarchy.path_tree.leaf_nodes[columns])
        return np.asarray(np.logical_or.reduceat(is_open, first, axis=1))

    def _nearest_below(
        self, images: NDArray[Any], nodes: NDArray[np.int32], limits: PathLimits | None
    ) -> NDArray[np.intp]:
        x = self.dictionary.embed(images)
        means = self.dictionary.synset_embeddings[self.leaf_index]
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
        """Lowest objective among each class's complete paths that the search kept, (n_images, n_classes).

        For a class with an open path this is the lowest of its open paths; for any other, what it would be if open.
        """
        tree = self.hierarchy.path_tree
        if self.options.beam_width is not None:
            kept = np.zeros((len(objectives), tree.n_nodes), dtype=bool)
            np.put_along_axis(kept, np.maximum(nodes, 0).astype(np.intp), True, axis=1)
            objectives[~kept[:, tree.leaf_nodes]] = np.inf
        columns, first = self.paths_by_class
        best = objectives[:, columns]
        if limits is not None:
            is_open = limits.open_at(tree.leaf_nodes[columns])
            has_open = np.repeat(self._open_classes(limits), np.diff([*first, len(columns)]), axis=1)
            best = np.where(is_open | ~has_open, best, np.inf)
        best = np.minimum.reduceat(best, first, axis=1) if len(first) < len(columns) else best
        finite = np.isfinite(best)
        if finite.all():
            return np.asarray(best)
        # Finite, so that a class the signed rule bars everywhere still has a (vanishing) probability.
        ceiling = np.where(finite, best, -np.inf).max(axis=1, initial=0.0, keepdims=True)
        return np.where(finite, best, ceiling + 100.0 * self.calibration.temperature)


def settled(probabilities: NDArray[np.float64], index: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities that add up to 1, the largest that of the predicted class.

    The search decides ties and paths that end early. The predicted class gets one part in 10**12 more than the largest,
    so that the division cannot round it to a tie again.
    """
    probabilities[np.arange(len(probabilities)), index] = probabilities.max(axis=1) * (1.0 + 1e-12)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities
