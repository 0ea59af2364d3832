"""From the probabilities of classes to one answer: what to return depends on what a mistake costs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hcep.classify.right_level import Levels
from hcep.dictionary.checks import blocks
from hcep.errors import HCEPError, quote
from hcep.hierarchy import PathTree

Floats = NDArray[np.float64]
#: What an answer is to be best at, in expectation (see `decode`).
Decode = Literal["class", "distance", "f1", "sure"]
DECODERS: tuple[Decode, ...] = ("class", "distance", "f1", "sure")


def require_decoder(decode: str) -> None:
    """Raise an HCEPError unless this is the name of a decoder."""
    if decode not in DECODERS:
        raise HCEPError(f"decode must be one of {', '.join(map(repr, DECODERS))}; got {quote(decode)}")


def decode(
    levels: Levels, probabilities: Floats, rule: Literal["class", "distance", "f1"]
) -> tuple[NDArray[np.intp], Floats]:
    """Return the synset that is the best answer for each image by a rule, and its probability, both (n_images,).

    Parameters
    ----------
    levels : Levels
        The classes and the concepts above them.
    probabilities : array of shape (n_images, n_classes)
    rule : {"class", "distance", "f1"}
        "class" is the most probable class. "distance" is the concept of the least expected tree distance to the true
        class. "f1" is the concept whose path has the best expected F1 against the path of the true class.

    Notes
    -----
    The last two follow from P(v), the probability that the true class is below v, by running sums down the tree of
    paths. With s the number of concepts on the path of a class and l the length of the path to v::

        E distance(v) = E s + sum over u on the path to v of (1 - 2 P(u))
        E F1(v)       = sum over s of 2 / (s + l) * sum over u on the path to v of P(u and a class with s concepts)

    So the concept of least expected distance is the most specific one that is more likely than not. In a DAG, the path
    of the true class is replaced by all concepts above it.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import Hierarchy
    >>> from hcep.classify.decoding import decode
    >>> from hcep.classify.right_level import Levels
    >>> h = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car")])
    >>> levels = Levels.of(h, ["car", "cat", "dog"])
    >>> [h.ids[decode(levels, np.array([[0.36, 0.32, 0.32]]), rule)[0][0]] for rule in ("class", "distance", "f1")]
    ['car', 'animal', 'cat']
    """
    find = {"class": _most_probable, "distance": _least_distance, "f1": _best_f1}[rule]
    synsets, values = np.zeros(len(probabilities), dtype=np.intp), np.zeros(len(probabilities))
    for block in blocks(0, len(probabilities), 4 * levels.hierarchy.path_tree.n_nodes):
        classes = np.asarray(probabilities[block], dtype=np.float64)
        concepts = classes @ levels.below
        synsets[block] = find(levels, classes, concepts)
        values[block] = np.minimum(concepts[np.arange(len(concepts)), synsets[block]], 1.0)
    return synsets, values


def _most_probable(levels: Levels, classes: Floats, concepts: Floats) -> NDArray[np.intp]:
    return np.asarray(levels.own[np.argmax(classes, axis=1)])


def _least_distance(levels: Levels, classes: Floats, concepts: Floats) -> NDArray[np.intp]:
    tree = levels.hierarchy.path_tree
    distance = _running_sums(tree, 1.0 - 2.0 * concepts[:, tree.synset])
    distance[:, 0] = np.inf
    return np.asarray(tree.synset[np.argmin(distance, axis=1)], dtype=np.intp)


def _best_f1(levels: Levels, classes: Floats, concepts: Floats) -> NDArray[np.intp]:
    tree = levels.hierarchy.path_tree
    sizes = np.asarray(levels.below.sum(axis=1)).ravel() - 1.0  # the root is on no path
    expected = np.zeros((len(classes), tree.n_nodes))
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        common = _running_sums(tree, (classes[:, same] @ levels.below[same])[:, tree.synset])
        expected += common * (2.0 / (size + tree.level))
    expected[:, 0] = -1.0
    return np.asarray(tree.synset[np.argmax(expected, axis=1)], dtype=np.intp)


def _running_sums(tree: PathTree, values: Floats) -> Floats:
    """Return the sums of the values of all nodes along each path, (n_images, n_nodes), in place; the root's is 0."""
    values[:, 0] = 0.0
    ends = np.searchsorted(tree.level, np.arange(1, tree.depth + 2))
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        values[:, start:stop] += values[:, tree.parent[start:stop]]
    return values
