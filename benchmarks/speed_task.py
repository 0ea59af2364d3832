"""The task of the speed benchmark: a random tree of ImageNet's size, its dictionary, and noisy images of its leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcep import ConceptDictionary, Hierarchy


@dataclass(frozen=True)
class SpeedTask:
    """The input of every solver."""

    dictionary: ConceptDictionary
    X: NDArray[np.float32]
    n_nonzero: int


def random_tree(n_leaves: int, rng: np.random.Generator) -> Hierarchy:
    """Join random groups of two to eight synsets under a new one until one is left."""
    ends = [f"leaf{i}" for i in range(n_leaves)]
    edges: list[tuple[str, str]] = []
    while len(ends) > 1:
        n_children = min(int(rng.choice([2, 3, 4, 8], p=[0.6, 0.25, 0.1, 0.05])), len(ends))
        children = [ends.pop(int(rng.integers(len(ends)))) for _ in range(n_children)]
        parent = f"s{len(edges)}"
        edges += [(parent, child) for child in children]
        ends.append(parent)
    return Hierarchy.from_edges(edges)


def make_task(n_images: int = 20_000, n_dims: int = 768, n_leaves: int = 1_000, n_nonzero: int = 14) -> SpeedTask:
    rng = np.random.default_rng(0)
    hierarchy = random_tree(n_leaves, rng)
    means = {leaf: rng.standard_normal(n_dims) for leaf in hierarchy.leaves}
    dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, means)
    picked = rng.integers(len(dictionary.leaf_embeddings), size=n_images)
    X = dictionary.leaf_embeddings[picked] + 0.7 * rng.standard_normal((n_images, n_dims))
    return SpeedTask(dictionary, X.astype(np.float32), n_nonzero)
