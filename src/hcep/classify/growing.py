"""Growing without refitting: classes added, moved, renamed and removed, images added, in the metric that was chosen."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from hcep.classify.base import ConceptEstimator, as_hierarchy, checked_weights, class_hierarchy, class_leaves
from hcep.classify.calibration import Priors, class_priors
from hcep.classify.hedging import HeldOut
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.errors import HCEPError, HierarchyError, near_matches, quoted
from hcep.hierarchy import Hierarchy

#: Of new images, the share unlike the training images of their class from which on the metric is in doubt; of training
#: images it is one in twenty.
UNLIKE = 0.2


class ClassMean(NamedTuple):
    """The embedding of a class, in the metric, and the images that it is the mean of."""

    mean: NDArray[np.float64]
    n_images: int
    weight: float

    def joined(self, other: "ClassMean") -> "ClassMean":
        """The mean of both."""
        weight = self.weight + other.weight
        mean = self.mean + (other.mean - self.mean) * (other.weight / weight)
        return ClassMean(mean, self.n_images + other.n_images, weight)


class GrowingMixin(ConceptEstimator):
    """Changes of a fitted classifier in place; metric, anchor and temperature stay.

    A class's embedding is the mean of its images in that metric, so it and the number of its images are all that new
    images must be averaged with. The result is, to rounding, a fit to all images with the same metric and anchor. What
    was computed on held-out images no longer holds: call `calibrate` again.
    """

    explained_floor_: NDArray[np.float64] | None
    held_out_: HeldOut | None
    priors: Priors
    priors_: NDArray[np.float64] | None
    head_: Any
    #: Images per class; None for models of releases that did not count them.
    images_per_class_: NDArray[np.int64] | None = None
    #: Weight of the images of each class; None where each counts once.
    class_weights_: NDArray[np.float64] | None = None
    #: Images that came or went since the metric was chosen, and those that were unlike the training images.
    n_grown_: int = 0
    n_unlike_: int = 0

    def add_class(self, name: Any, parent: str | None, X: ArrayLike) -> Self:
        """Add a class, labelled like the others, with its images (n_images, n_dims) below a concept, by id or name.

        A class that gets one below it stays a class. A parent of None is the root.
        """
        images, graph = self._may_grow(X), self._graph()
        above = self.place_of_class(name, parent)
        if str(name) in graph:
            graph = _moved(graph, str(name), above)
        else:
            ids, parents, *rest = graph._state()
            graph = Hierarchy([*ids, str(name)], [*parents, [graph.index(above)]], *rest)
        self._rebuild(graph, {**self._known(), name: self._summed_up(images)})
        self.n_grown_ += len(images)
        return self

    def place_of_class(self, name: Any, parent: str | None) -> str:
        """The concept that `add_class` hangs a class from, whose images it need not have yet; raises as that does."""
        self._may_grow()
        if str(name) in set(map(str, self.classes_.tolist())):
            how = "`hcep model add`, or partial_fit(X, y), adds images to it"
            raise HCEPError(f"{name!r} is a class of the model already; {how}")
        if isinstance(name, str) != (self.classes_.dtype.kind in "UO"):
            raise HCEPError(f"name must be of the type of the other classes, {self.classes_.dtype}; got {name!r}")
        graph = self._graph()
        try:
            above = graph.root if parent is None else graph.find(parent)
        except HierarchyError as error:
            top = f"The groups at the top are {quoted(map(graph.name, graph.children(graph.root)))}"
            raise HierarchyError(f"{error} {top}; a new one goes into the tree: then fit again.") from None
        if str(name) in graph and not graph.is_leaf(str(name)) and above not in graph.parents(str(name)):
            raise HCEPError(
                f"{name!r} is a concept above {quoted(graph.children(str(name)), 3)}; name the class otherwise"
            )
        return above

    def remove_class(self, name: Any) -> Self:
        """Remove a class; a concept that is left with one child is merged into it, as in a fit."""
        self._may_grow()
        label, known = self._label(name), self._known()
        if len(known) < 3:
            raise HCEPError("a model keeps at least two classes")
        self.n_grown_ += known.pop(label).n_images
        self._rebuild(self._graph(), known)
        return self

    def move(self, concept: str, parent: str) -> Self:
        """Hang a concept, with all that is below it, under another parent and no other."""
        self._may_grow()
        graph = self._graph()
        self._rebuild(_moved(graph, graph.find(concept), graph.find(parent)), self._known())
        return self

    def rename(self, concept: str, name: str) -> Self:
        """Give a concept another display name; its id, and the label of a class, stay."""
        check_is_fitted(self, "dictionary_")
        if not (isinstance(name, str) and name.strip()):
            raise HCEPError(f"name must be a text, got {name!r}")
        graph = self._graph()
        synset = graph.find(concept)
        # In the order they are in: a linear head counts on that of the atoms.
        self.hierarchy = None if self.hierarchy is None else _renamed(graph, synset, name)
        self.hierarchy_ = _renamed(self.hierarchy_, synset, name)
        old = self.dictionary_
        self.dictionary_ = ConceptDictionary(self.hierarchy_, old.synset_embeddings, old.transform)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add images to existing classes; fit the model if it is not fitted yet.

        `classes` are ignored but for a fit, whose classes they must be, as scikit-learn's loops give them.
        """
        if not hasattr(self, "dictionary_"):
            absent = [] if classes is None else np.setdiff1d(np.asarray(classes), np.asarray(y)).tolist()
            if absent:
                raise HCEPError(
                    f"classes {quoted(absent)} have no image in y; the first call needs images of every class"
                )
            fitted: Self = self.fit(X, y, sample_weight)
            return fitted
        images, labels = self._may_grow(X), column_or_1d(y)
        if len(labels) != len(images):
            raise HCEPError(f"X has {len(images):,} images, y {len(labels):,} labels")
        known, weights = self._known(), checked_weights(sample_weight, images)
        images, labels, weights = (array[weights > 0.0] for array in (images, labels, weights))
        for label in dict.fromkeys(labels.tolist()):
            own = labels == self._label(label)
            known[label] = known[label].joined(self._summed_up(images[own], weights[own]))
        floor = self.explained_floor_
        if floor is not None:
            shares = np.nanmax(self.infer(images, explained=True).paths.explained_shares, axis=1, initial=0.0)
            self.n_unlike_ += int((shares < floor[np.searchsorted(self.classes_, labels)]).sum())
        self.n_grown_ += len(images)
        self._rebuild(self._graph(), known)
        return self

    update = partial_fit

    def drift(self) -> str | None:
        """Why metric and anchor should be chosen again, by a new fit; None where nothing speaks for that."""
        check_is_fitted(self, "dictionary_")
        n_images = sum(known.n_images for known in self._known().values())
        if self.n_unlike_ > UNLIKE * max(self.n_grown_, 20):
            return (
                f"{self.n_unlike_:,} of {self.n_grown_:,} images added since the fit are unlike the training images "
                "of their class: fit again, so that the metric is chosen for these too"
            )
        changed = f"{self.n_grown_:,} images were added or removed since the metric was chosen"
        return f"{changed}, of {n_images:,} now: fit again" if self.n_grown_ > n_images / 2 else None

    def _start_growing(self, counts: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> None:
        """After a fit to so many images of each class, of these weights in all."""
        self.images_per_class_, self.class_weights_ = counts.astype(np.int64), weights
        self.n_grown_, self.n_unlike_, self.held_out_ = 0, 0, None

    def _known(self) -> "dict[Any, ClassMean]":
        """The embedding of each class, in the metric, and how many images it is the mean of."""
        counts = self.images_per_class_
        if counts is None:
            raise HCEPError("the model does not say how many images each class had; fit it again with this release")
        weights = counts if self.class_weights_ is None else self.class_weights_
        index = [self.hierarchy_.index(leaf) for leaf in self._leaves.tolist()]
        means = zip(self.dictionary_.synset_embeddings[index], counts.tolist(), weights.tolist(), strict=True)
        return {label: ClassMean(*mean) for label, mean in zip(self.classes_.tolist(), means, strict=True)}

    def _may_grow(self, X: ArrayLike | None = None) -> NDArray[Any]:
        check_is_fitted(self, "dictionary_")
        if self.head_ is not None:
            raise HCEPError("a linear head on the codes cannot grow; fit with head='path', or fit again")
        return np.zeros((0, self.n_features_in_)) if X is None else self._checked_images(X)

    def _label(self, name: Any) -> Any:
        """A class as it is in `classes_`."""
        known = self.classes_.tolist()
        if name not in known:
            raise HCEPError(
                f"{quoted([name])} is no class of the model.{near_matches(str(name), map(str, known))} "
                "add_class(name, parent, X) adds one"
            )
        return known[known.index(name)]

    def _summed_up(self, images: NDArray[Any], weights: NDArray[np.float64] | None = None) -> "ClassMean":
        """Mean of images in the metric: the affine part of the transform may come after it."""
        weights = np.ones(len(images)) if weights is None else weights
        transform = self.dictionary_.transform
        mean = np.average(transform.prepared(images.astype(np.float64)), axis=0, weights=weights)
        return ClassMean(transform.after_unit_norm(mean[None])[0], len(images), float(weights.sum()))

    def _graph(self) -> Hierarchy:
        """The hierarchy as it was given, chains not merged: where a class may hang."""
        return self.hierarchy_ if self.hierarchy is None else _unmerged(as_hierarchy(self.hierarchy))

    def _rebuild(self, graph: Hierarchy, known: "dict[Any, ClassMean]") -> None:
        classes = np.unique(np.array(list(known), dtype=object if self.classes_.dtype.kind == "O" else None))
        labels = classes.tolist()
        hierarchy = class_hierarchy(graph, classes, self.tree, self.collapse)
        leaves = class_leaves(hierarchy, classes)
        by_leaf = {leaf: known[label].mean for leaf, label in zip(leaves.tolist(), labels, strict=True)}
        dictionary = ConceptDictionary(hierarchy, average_upwards(hierarchy, by_leaf), self.dictionary_.transform)
        counts = np.array([known[label].n_images for label in labels], dtype=np.int64)
        weights = np.array([known[label].weight for label in labels])
        priors = class_priors(self.priors, weights) if self.priors_ is not None else None
        # From here on nothing fails: the model is the old one or the new one.
        floor, moves = self.explained_floor_, self.leaf_moves_
        self.explained_floor_ = None if floor is None else self._by_class(floor, labels, float(np.median(floor)))
        self.leaf_moves_ = None if moves is None else self._by_class(moves, labels, 0.0)
        self.hierarchy, self.hierarchy_, self.dictionary_ = graph, hierarchy, dictionary
        self.classes_, self._leaves, self.images_per_class_, self.priors_ = classes, leaves, counts, priors
        self.class_weights_ = None if (weights == counts).all() else weights
        self.held_out_ = None

    def _by_class(self, numbers: NDArray[np.float64], labels: list[Any], new: float) -> NDArray[np.float64]:
        """Numbers of the classes there are for those there will be."""
        known = dict(zip(self.classes_.tolist(), numbers.tolist(), strict=True))
        return np.array([known.get(label, new) for label in labels])


def _moved(graph: Hierarchy, synset: str, parent: str) -> Hierarchy:
    if synset == graph.root:
        raise HierarchyError(f"{graph.name(synset)!r} is the root and cannot be moved")
    if parent == synset or parent in graph.descendants(synset):
        raise HierarchyError(f"{graph.name(parent)!r} is below {graph.name(synset)!r} and cannot be its parent")
    ids, parents, *rest = graph._state()
    parents[graph.index(synset)] = [graph.index(parent)]
    # A concept that loses its last child is no class: the restriction to the classes drops it.
    return Hierarchy(ids, parents, *rest)


def _renamed(graph: Hierarchy, synset: str, name: str) -> Hierarchy:
    ids, parents, names, merged, own_leaf = graph._state()
    chains = {s: tuple((one, name if one == synset else n) for one, n in chain) for s, chain in merged.items()}
    return Hierarchy(ids, parents, {**names, synset: name}, chains, own_leaf)


def _unmerged(graph: Hierarchy) -> Hierarchy:
    """The chains that a collapse merged, as concepts of their own again: something may be hung between them."""
    ids, parents, names, merged, own_leaf = graph._state()
    if not merged:
        return graph
    ids, names = list(ids), dict(names)
    for synset, chain in merged.items():
        at = graph.index(synset)
        above = parents[at]
        for one, names[one] in chain:
            ids.append(one)
            parents.append(above)
            above = [len(ids) - 1]
        parents[at] = above
    return Hierarchy(ids, parents, names, None, own_leaf)
