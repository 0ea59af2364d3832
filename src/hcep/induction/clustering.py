"""Agglomerative clustering of class embeddings, cut into a multi-way tree where the gaps between merges are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Linkage = Literal["ward", "average"]


@dataclass(frozen=True)
class Cluster:
    """A group of classes, or one class: `height` is how far apart its parts are, 0 for one class."""

    members: tuple[int, ...]
    height: float
    children: tuple[Cluster, ...] = ()

    def groups(self) -> Iterator[Cluster]:
        """Itself and all groups below, larger before smaller along every branch."""
        waiting = [self]
        while waiting:
            cluster = waiting.pop()
            if cluster.children:
                yield cluster
            waiting += cluster.children[::-1]


def binary_tree(vectors: NDArray[np.float64], linkage: Linkage) -> Cluster:
    """The dendrogram of some vectors, (n, d); SciPy's linkage on Euclidean distances."""
    from scipy.cluster.hierarchy import linkage as merges
    from scipy.spatial.distance import pdist

    clusters = [Cluster((i,), 0.0) for i in range(len(vectors))]
    for a, b, height, _ in merges(pdist(vectors), method=linkage).tolist():
        pair = sorted((clusters[int(a)], clusters[int(b)]), key=lambda cluster: min(cluster.members))
        clusters.append(Cluster(tuple(sorted((*pair[0].members, *pair[1].members))), height, tuple(pair)))
    return clusters[-1]


def cut(tree: Cluster, gap: float, max_branching: int | None = None) -> Cluster:
    """Dissolve groups whose merge is hardly lower than that of the group above them.

    A group stays only where its height is at most ``(1 - gap)`` times the height of the group it ends up under; its
    parts go to that group otherwise, the highest first, as long as the group has at most `max_branching` of them.
    """
    order = [(tree, _parts(tree, gap, max_branching))]
    for _, parts in order:  # grows while it is walked; no recursion: a thousand classes may merge one by one
        order += [(part, _parts(part, gap, max_branching)) for part in parts if part.children]
    built: dict[tuple[int, ...], Cluster] = {}
    for group, parts in order[::-1]:
        below = tuple(built.get(part.members, part) for part in parts)
        built[group.members] = Cluster(group.members, group.height, below)
    return built[tree.members]


def _parts(group: Cluster, gap: float, max_branching: int | None) -> list[Cluster]:
    parts = list(group.children)
    while max_branching is None or len(parts) < max_branching:
        at = max(range(len(parts)), key=lambda i: parts[i].height)
        if not parts[at].children or parts[at].height <= (1 - gap) * group.height:
            break
        parts[at : at + 1] = parts[at].children
    return sorted(parts, key=lambda part: min(part.members))
