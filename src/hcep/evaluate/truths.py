"""What is known of each image: its class, a concept above the classes, or several concepts of which one is right.

An answer is right if it is the true concept or below it. A truth above the classes says nothing about what is below it,
so that nothing below it is judged: the true path ends at the true concept, concepts of the answer below it count
neither as right nor as wrong, and deeper levels have no score. An answer above the true concept is judged as for a
class: what it names is right, and what it leaves out is missing. If several concepts may be right, the answer is
compared with the one that it agrees with best. An image that is labelled with the root is unlabelled: it has no scores.
Measures that need the class itself (confidence against accuracy, scores per class) use images labelled with a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: The synsets of which one is right; one for an image labelled with its class, none for an unlabelled image.
Truth = tuple[str, ...]


class Truths:
    """The truths of images; the module's documentation has the rule by which answers are judged.

    Parameters
    ----------
    y : (n_images,) labels: classes, concepts above them, lists of concepts or texts such as ``oak|beech``
    hierarchy : of the supports
    name : of the argument, for messages

    Attributes
    ----------
    labels : the labels as tables write them
    concepts : the synsets of which one is right, for each image
    coarse : (n_images,) array; 1 if the truth is above the classes, 0 if it is a class, NaN for an unlabelled image
    """

    def __init__(self, y: Any, hierarchy: Hierarchy, name: str = "y") -> None:
        from hcep.classify.base import as_labels as with_lists  # here: both need a compiler, which is slow to import
        from hcep.classify.coarse import EITHER, SEVERAL, read_labels

        labels = np.asarray(with_lists(y))
        several = labels.ndim == 1 and any(isinstance(label, SEVERAL) for label in labels.tolist())
        texts = labels.tolist() if several else as_labels(y, name)
        read = read_labels(texts, hierarchy, classes=[hierarchy.class_of(leaf) for leaf in hierarchy.leaves])
        for row in np.flatnonzero(read.unknown)[:1]:
            hierarchy.index(texts[row])  # raises an error that names near matches
        names = [EITHER.join(map(str, one)) if isinstance(one, SEVERAL) else str(one) for one in texts]
        own = read.own.tolist()
        self.labels = tuple(read.classes[i] if i >= 0 else name for i, name in zip(own, names, strict=True))
        leaf = cache(lambda i: (hierarchy.leaf_of(read.classes[i]),))
        pairs = zip(own, read.label.tolist(), strict=True)
        self.concepts: list[Truth] = [leaf(i) if i >= 0 else read.concepts[k] if k >= 0 else () for i, k in pairs]
        self.coarse = np.where(read.dropped, np.nan, (read.label >= 0).astype(np.float64))
        self._hierarchy, self._read = hierarchy, read

    def __len__(self) -> int:
        return len(self.labels)

    def correct(self, answers: Sequence[str]) -> Floats:
        """Return 1 for each right answer, a class or a concept, otherwise 0; NaN for unlabelled images."""
        h = self._hierarchy
        below = cache(lambda concept: frozenset((concept, *h.descendants(concept))))
        right = np.array([answer == label for answer, label in zip(answers, self.labels, strict=True)], dtype=float)
        for row in np.flatnonzero(self.coarse == 1.0).tolist():
            synset = h.own_leaves.get(answers[row], answers[row])
            right[row] = any(synset in below(concept) for concept in self.concepts[row])
        return np.where(np.isnan(self.coarse), np.nan, right)

    def true_columns(self, probabilities: Floats, classes: Sequence[str]) -> NDArray[np.intp]:
        """Return the column of each image's class, or of the most probable class that its truth allows; -1 for none."""
        columns, known = class_index(self.labels, classes), class_index(self._read.classes, classes)
        for k, allowed in enumerate(self._read.sets):
            rows, own = np.flatnonzero(self._read.label == k), np.sort(known[allowed])
            own = own[own >= 0]
            columns[rows] = own[np.argmax(probabilities[np.ix_(rows, own)], axis=1)] if len(own) else -1
        return columns


def as_labels(y: ArrayLike, name: str) -> list[str]:
    """Return labels as a list of one string per image."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise HCEPError(f"{name} must hold one label per image; got {type(y).__name__} of shape {labels.shape}")
    return [str(label) for label in labels.tolist()]


def class_index(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.intp]:
    """Return the position of each label among the classes; -1 for a label that is not a class."""
    place = {label: i for i, label in enumerate(classes)}
    return np.array([place.get(label, -1) for label in labels], dtype=np.intp)
