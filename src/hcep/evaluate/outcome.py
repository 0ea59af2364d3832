"""How images fare in one hierarchy, and what a class drawn at random would have scored there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hcep.evaluate.support import SupportScores
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """How images fared in one hierarchy."""

    hierarchy: Hierarchy  # restricted to the classes and collapsed, as a model has it
    #: y, predicted: (n_images,) arrays of str
    y: NDArray[np.str_]
    predicted: NDArray[np.str_]
    support: SupportScores  # each path against those of the image's class *in this hierarchy*

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.predicted == self.y))

    @property
    def support_f1(self) -> float:
        return float(self.support.f1.mean())

    @cached_property
    def chance_f1(self) -> float:
        """Support F1 of the path of a class drawn as often as it occurs: what a deep common trunk gives for free."""
        classes, counts = np.unique(self.y, return_counts=True)
        table = class_f1(self.hierarchy, classes.tolist())
        share = counts / counts.sum()
        return float(share @ table @ share)


def class_f1(hierarchy: Hierarchy, classes: list[str]) -> Floats:
    """F1 of class i's first path against the closest path of class j, (n_classes, n_classes)."""
    paths = [hierarchy.paths(hierarchy.leaf_of(label)) for label in classes]
    owner = np.repeat(np.arange(len(classes)), [len(p) for p in paths])
    flat = [path for several in paths for path in several]
    member = np.zeros((len(flat), len(hierarchy)), dtype=np.float32)
    for row, path in enumerate(flat):
        member[row, [hierarchy.index(synset) for synset in path]] = 1.0
    length = member.sum(axis=1)
    first = np.searchsorted(owner, np.arange(len(classes)))
    f1 = 2.0 * (member[first] @ member.T) / (length[first, None] + length[None, :])
    closest: Floats = np.maximum.reduceat(f1, first, axis=1).astype(np.float64)
    return closest
