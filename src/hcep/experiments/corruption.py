"""Wrong hierarchies on purpose: leaves moved, subtrees swapped, classes shuffled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy


def corrupt(hierarchy: Hierarchy, kind: str, share: float, seed: int) -> Hierarchy:
    """Make a share of a tree wrong.

    Parameters
    ----------
    hierarchy : a tree
    kind : {"leaves", "subtrees", "random"}; "leaves" hangs a share of the leaves from another parent of leaves;
        "subtrees" swaps a share of the inner synsets with another that is neither above nor below; "random" shuffles a
        share of the classes over their places, so that at 1 only the shape of the tree is left
    share : float in [0, 1]

    Returns
    -------
    Hierarchy
        Of the same classes, chains collapsed.

    Examples
    --------
    >>> from hcep.datasets import cifar10_hierarchy
    >>> wrong = corrupt(cifar10_hierarchy(), "random", 1.0, seed=0)
    >>> sorted(wrong.leaves) == sorted(cifar10_hierarchy().leaves), wrong.depth
    (True, 3)
    """
    if kind not in KINDS:
        raise HCEPError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    if not 0.0 <= share <= 1.0:
        raise HCEPError(f"share must be between 0 and 1, got {share!r}")
    if not hierarchy.is_tree:
        raise HCEPError("only trees can be corrupted; take hierarchy.as_tree() first")
    parent = {child: hierarchy.parents(child)[0] for child in hierarchy.ids[1:]}
    parent = KINDS[kind](hierarchy, parent, share, np.random.default_rng(seed))
    names = {synset: hierarchy.name(synset) for synset in hierarchy.ids}
    edges = [(above, child) for child, above in parent.items()]
    return Hierarchy.from_edges(edges, names, root=hierarchy.root).restrict(hierarchy.leaves).collapse()


Parents = dict[str, str]


def _chosen(synsets: list[str], share: float, rng: np.random.Generator) -> list[str]:
    n = round(share * len(synsets))
    return [synsets[i] for i in rng.permutation(len(synsets))[:n]]


def _move_leaves(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    homes = sorted({parent[leaf] for leaf in hierarchy.leaves})
    moved = dict(parent)
    for leaf in _chosen(list(hierarchy.leaves), share, rng):
        others = [home for home in homes if home != parent[leaf]]
        if others:
            moved[leaf] = others[rng.integers(len(others))]
    return moved


def _swap_subtrees(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    inner = [s for s in hierarchy.ids[1:] if not hierarchy.is_leaf(s)]
    moved, waiting = dict(parent), _chosen(inner, share, rng)
    while waiting:
        first = waiting.pop()
        # No swap where one is above the other, nor of siblings, where it would change nothing.
        free = (s for s in reversed(waiting) if moved[first] != moved[s])
        partner = next((s for s in free if first not in _above(moved, s) and s not in _above(moved, first)), None)
        if partner is not None:
            waiting.remove(partner)
            moved[first], moved[partner] = moved[partner], moved[first]
    return moved


def _above(parent: Parents, synset: str) -> set[str]:
    found = set()
    while synset in parent:
        synset = parent[synset]
        found.add(synset)
    return found


def _shuffle_classes(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    chosen = _chosen(list(hierarchy.leaves), share, rng)
    places = [parent[leaf] for leaf in chosen]
    return parent | {leaf: places[i] for leaf, i in zip(chosen, rng.permutation(len(chosen)), strict=True)}


KINDS: dict[str, Callable[[Hierarchy, Parents, float, np.random.Generator], Parents]] = {
    "leaves": _move_leaves,
    "subtrees": _swap_subtrees,
    "random": _shuffle_classes,
}
