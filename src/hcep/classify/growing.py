"""Changes of a fitted model without a refit: edits of its hierarchy, and class means that take more images."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import HCEPError, HierarchyError, quote, quoted
from hcep.hierarchy import Hierarchy


class ClassMean(NamedTuple):
    """The embedding of a class, in the metric of the dictionary, and the images that it is the mean of.

    `words` is the word part of its embedding, if the model has texts.
    """

    mean: NDArray[np.float64]
    n_images: int
    weight: float
    words: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, images: NDArray[Any], weights: NDArray[np.float64], transform: EmbeddingTransform) -> "ClassMean":
        """Average raw images; the affine part of the transform may come after the mean."""
        mean = np.average(transform.prepared(images.astype(np.float64)), axis=0, weights=weights)
        return cls(transform.pictures.after_unit_norm(mean[None])[0], len(images), float(weights.sum()))

    def joined(self, other: "ClassMean") -> "ClassMean":
        """The mean of the images of both."""
        weight = self.weight + other.weight
        mean = self.mean + (other.mean - self.mean) * (other.weight / weight)
        return ClassMean(mean, self.n_images + other.n_images, weight, self.words)


#: The mean of every class, by its label.
ClassMeans = Mapping[Any, ClassMean]


def parent_of_class(graph: Hierarchy, name: str, parent: str | None) -> str:
    """The concept that a new class can be added below; `parent` is its id or name, or None for the root.

    Raises HierarchyError for an unknown parent, HCEPError for a name that is a concept elsewhere.
    """
    try:
        above = graph.root if parent is None else graph.find(parent)
    except HierarchyError as error:
        top = f"The groups at the top are {quoted(map(graph.name, graph.children(graph.root)))}"
        raise HierarchyError(
            f"{error} {top}. To add a new group, edit the hierarchy and fit the model again."
        ) from None
    if name in graph and not graph.is_leaf(name) and above not in graph.parents(name):
        raise HCEPError(
            f"{quote(name)} is a concept above {quoted(graph.children(name), 3)}; give the class another name"
        )
    return above


def with_class(graph: Hierarchy, name: str, parent: str) -> Hierarchy:
    """The hierarchy with a class below a concept."""
    if name in graph:
        return graph if graph.parents(name) == (parent,) else moved(graph, name, parent)
    ranks = {**graph.ranks, **({name: rank} if (rank := graph.rank_of_place(parent)) else {})}
    return graph._with(ids=[*graph, name], parents=[*graph._parent_lists(), [graph.index(parent)]], ranks=ranks)


def moved(graph: Hierarchy, synset: str, parent: str) -> Hierarchy:
    """The hierarchy with a synset, and everything below it, under one other parent."""
    if synset == graph.root:
        raise HierarchyError(f"{quote(graph.name(synset))} is the root and cannot be moved")
    if parent == synset or parent in graph.descendants(synset):
        raise HierarchyError(
            f"{quote(graph.name(parent))} is below {quote(graph.name(synset))} and cannot be its parent"
        )
    parents = graph._parent_lists()
    parents[graph.index(synset)] = [graph.index(parent)]
    # A concept that loses its last child is no class: restricting the hierarchy to the classes drops it.
    return graph._with(parents=parents)


def without(graph: Hierarchy, synset: str) -> Hierarchy:
    """The hierarchy without an inner synset, whose children go to its parents."""
    if synset == graph.root:
        raise HierarchyError(f"{quote(graph.name(synset))} is the root and cannot be removed")
    if graph.is_leaf(synset):
        raise HierarchyError(f"{quote(graph.name(synset))} has no concept below it; remove_class removes a class")
    gone, above = graph.index(synset), graph._parents(graph.index(synset))
    lists = [[q for p in own for q in (above if p == gone else [p])] for own in graph._parent_lists()]
    # Positions behind the removed one move up by one.
    parents = [[p - (p > gone) for p in dict.fromkeys(own)] for i, own in enumerate(lists) if i != gone]
    return graph._with(ids=[one for one in graph if one != synset], parents=parents)


def renamed(graph: Hierarchy, synset: str, name: str) -> Hierarchy:
    """The hierarchy with another display name for a synset, in the same order: a linear head relies on that."""
    names, merged = graph._parts()["names"], graph._parts()["merged"]
    label = graph.class_of(synset) if synset in graph else synset
    synset = label if label in graph else synset  # an own leaf has the name of its class
    chains = {s: tuple((one, name if one == synset else n) for one, n in chain) for s, chain in merged.items()}
    return graph._with(names={**names, synset: name}, merged=chains)


def unmerged(graph: Hierarchy) -> Hierarchy:
    """The hierarchy with chains that were merged as concepts of their own again, so that classes can go between."""
    parts = graph._parts()
    if not parts["merged"]:
        return graph
    ids, names, parents = list(graph), dict(parts["names"]), parts["parents"]
    for synset, chain in parts["merged"].items():
        at = graph.index(synset)
        above = parents[at]
        for one, names[one] in chain:
            ids.append(one)
            parents.append(above)
            above = [len(ids) - 1]
        parents[at] = above
    return graph._with(ids=ids, parents=parents, names=names, merged=None)
