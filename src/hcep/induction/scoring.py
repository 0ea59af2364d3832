"""How good is a hierarchy that was induced: against a gold one, in the embedding space, and at its work."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, quoted
from hcep.evaluate.labels import as_labels
from hcep.evaluate.support import support_scores
from hcep.evaluate.tree import accuracy
from hcep.hierarchy import Hierarchy
from hcep.induction.leaf_names import normal_form

Leaves = frozenset[str]
ROOT = "\0root"


def score_induced(
    tree: Hierarchy,
    gold: Hierarchy | None = None,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    X_val: ArrayLike | None = None,
    y_val: ArrayLike | None = None,
    *,
    held_out: float = 0.3,
    random_state: int = 0,
) -> dict[str, float]:
    """Score an induced hierarchy by everything that is given.

    Parameters
    ----------
    tree : Hierarchy
        The candidate.
    gold : Hierarchy, optional
        What it should be like.
    X : (n_images, n_dims) array, optional
    y : (n_images,) array of str, optional
        Embeddings and classes of training images.
    X_val, y_val : optional
        Held-out images. Without them a share `held_out` of each class in `y` is held out, drawn by `random_state`.

    Returns
    -------
    dict of str to float
        ``n_leaves, n_synsets, depth, max_branching`` of the tree without chains. With `gold`: ``n_leaves_gold``, of
        which ``n_leaves_compared`` are in the tree too; ``edge_f1, ancestor_f1`` by ids and names, ``cluster_f1,
        overlap`` by leaves alone. With images: ``containment_outside, orthogonality``, and on the held-out ones
        ``support_f1, accuracy``.

    Raises
    ------
    HCEPError
        Leaves that do not fit, X without y, a class with too few images to hold one out.

    Notes
    -----
    Both hierarchies are restricted to the leaves they share (by id, or else by name), and chains are collapsed; a
    merged synset goes by any of its names. The root is not an ancestor worth a point, but edges from it count.

    - *edge*: (parent, child) pairs; *ancestor*: (ancestor, leaf) pairs; equal when the ids are, or else the names,
      case, spacing and plural aside.
    - *cluster*: the sets of leaves below inner synsets, equal or not, whatever they are called.
    - *overlap*: each such set's Jaccard index with the nearest set of the other hierarchy, averaged over the sets of
      either and then between the two: a group that misses one leaf is nearly right here and wrong above.
    - *containment_outside*: share of descendants outside their ancestors' cones (0 is best); *orthogonality*: mean
      absolute cosine between atoms and their parents' embeddings (0 is best). See `hcep.dictionary.geometry.measures`.
    - *support_f1*: mean F1 of the paths that `HCEPClassifier` with its defaults finds against the class's paths in this
      same tree. A flat tree has only its accuracy to show there, so compare trees of similar depth, or by `gold`.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.induction.scoring import score_induced
    >>> gold = Hierarchy.from_edges([("r", "animal"), ("animal", "cat"), ("animal", "dog"), ("r", "car"), ("r", "bus")])
    >>> tree = Hierarchy.from_edges(
    ...     [("r", "Animals"), ("Animals", "cat"), ("Animals", "dog"), ("r", "road"), ("road", "car"), ("road", "bus")]
    ... )
    >>> scores = score_induced(tree, gold)
    >>> [round(scores[name], 2) for name in ("edge_f1", "ancestor_f1", "cluster_f1", "overlap")]
    [0.55, 0.67, 0.67, 0.75]
    """
    if (X is None) != (y is None) or (X_val is None) != (y_val is None) or (X is None and X_val is not None):
        raise HCEPError("give X with y, and X_val with y_val on top of them; one came without the other")
    flat = tree.collapse()
    scores: dict[str, float] = {
        "n_leaves": float(len(flat.leaves)),
        "n_synsets": float(len(flat)),
        "depth": float(flat.depth),
        "max_branching": float(flat.max_branching),
    }
    if gold is not None:
        scores.update(_against_gold(tree, gold))
    if X is not None and y is not None:
        scores.update(_on_images(tree, X, y, X_val, y_val, held_out, random_state))
    return scores


# -- against a gold hierarchy --------------------------------------------------------------------------------------


def _against_gold(tree: Hierarchy, gold: Hierarchy) -> dict[str, float]:
    shared = _shared_leaves(tree, gold)
    found, wanted = _Named(tree, {label: label for label in shared}), _Named(gold, shared)
    names = found.matched_to(wanted)
    own = {synset: synset for synset in wanted.hierarchy}
    return {
        "n_leaves_gold": float(len(gold.leaves)),
        "n_leaves_compared": float(len(shared)),
        "edge_f1": _f1(found.edges(names), wanted.edges(own)),
        "ancestor_f1": _f1(found.ancestors(names), wanted.ancestors(own)),
        "cluster_f1": _f1(found.clusters(), wanted.clusters()),
        "overlap": _overlap(found.clusters(), wanted.clusters()),
    }


def _shared_leaves(tree: Hierarchy, gold: Hierarchy) -> dict[str, str]:
    """Each class of the tree that gold has, by id or else by name, and its class in gold."""
    known = {gold.class_of(leaf) for leaf in gold.leaves}
    by_name: dict[str, list[str]] = {}
    for leaf in gold.leaves:
        by_name.setdefault(normal_form(gold.name(leaf)), []).append(gold.class_of(leaf))
    shared: dict[str, str] = {}
    for leaf in tree.leaves:
        label = tree.class_of(leaf)
        namesakes = by_name.get(normal_form(tree.name(leaf)), [])
        if label in known:
            shared[label] = label
        elif len(namesakes) == 1 and namesakes[0] not in shared.values():
            shared[label] = namesakes[0]
    if len(shared) < 2:
        raise HCEPError(
            f"tree and gold share {len(shared)} leaves; there is {quoted(tree.leaves, 3)} in the one and "
            f"{quoted(gold.leaves, 3)} in the other: use the same ids or names for the classes"
        )
    return shared


class _Named:
    """A hierarchy on some classes, without chains, its leaves by the tree's class and its synsets by name."""

    def __init__(self, hierarchy: Hierarchy, own_class: dict[str, str]) -> None:
        self.hierarchy = hierarchy.restrict(own_class.values()).collapse()
        self.leaf_of = {label: self.hierarchy.leaf_of(own) for label, own in own_class.items()}
        self.class_of = {leaf: label for label, leaf in self.leaf_of.items()}

    def ids(self, synset: str) -> list[str]:
        """All ids of a synset, its own first."""
        return [synset, *(other for other, _ in self.hierarchy.merged(synset)[::-1])]

    def names(self, synset: str) -> list[str]:
        """All names of a synset, its own first."""
        merged = [name for _, name in self.hierarchy.merged(synset)[::-1]]
        return [normal_form(name) or name for name in (self.hierarchy.name(synset), *merged)]

    def matched_to(self, gold: _Named) -> dict[str, str]:
        """Each synset's counterpart in gold; itself, marked as foreign, where gold has none of its ids and names."""
        by_id: dict[str, str] = {}
        by_name: dict[str, str] = {}
        for synset in gold.hierarchy:
            if synset not in gold.class_of and synset != gold.hierarchy.root:
                by_id.update(dict.fromkeys(gold.ids(synset), synset))
                for name in gold.names(synset):
                    by_name.setdefault(name, synset)
        matched = {leaf: gold.leaf_of[label] for leaf, label in self.class_of.items()}
        for synset in self.hierarchy:
            if synset not in matched:
                same_id = (by_id[other] for other in self.ids(synset) if other in by_id)
                same_name = (by_name[name] for name in self.names(synset) if name in by_name)
                known = next(chain(same_id, same_name), None)
                matched[synset] = f"\0{synset}" if known is None else known
        return matched

    def edges(self, names: dict[str, str]) -> set[tuple[str, str]]:
        known = {**names, self.hierarchy.root: ROOT}
        return {(known[parent], known[child]) for parent, child in self.hierarchy.edges}

    def ancestors(self, names: dict[str, str]) -> set[tuple[str, str]]:
        return {(names[above], label) for leaf, label in self.class_of.items() for above in self._inner_above(leaf)}

    def clusters(self) -> set[Leaves]:
        """Leaves below each inner synset but the root."""
        below: dict[str, set[str]] = {}
        for leaf, label in self.class_of.items():
            for above in self._inner_above(leaf):
                below.setdefault(above, set()).add(label)
        return {frozenset(leaves) for leaves in below.values()}

    def _inner_above(self, leaf: str) -> tuple[str, ...]:
        return self.hierarchy.ancestors(leaf)[1:]


def _f1(found: set[Any], wanted: set[Any]) -> float:
    """1 where both are empty: there was nothing to find."""
    total = len(found) + len(wanted)
    return 2 * len(found & wanted) / total if total else 1.0


def _overlap(found: Iterable[Leaves], wanted: Iterable[Leaves]) -> float:
    here, there = list(found), list(wanted)
    if not here or not there:
        return float(not here and not there)
    jaccard = np.array([[len(a & b) / len(a | b) for b in there] for a in here])
    return float((jaccard.max(axis=1).mean() + jaccard.max(axis=0).mean()) / 2)


# -- on images -----------------------------------------------------------------------------------------------------


def _on_images(
    tree: Hierarchy,
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike | None,
    y_val: ArrayLike | None,
    held_out: float,
    random_state: int,
) -> dict[str, float]:
    from hcep.classify import HCEPClassifier
    from hcep.dictionary import ConceptDictionary

    images, labels = np.asarray(X), np.array(as_labels(y, "y"))
    if X_val is None or y_val is None:
        train = _training_rows(labels, held_out, random_state)
        images_val, labels_val = images[~train], labels[~train]
        images, labels = images[train], labels[train]
    else:
        images_val, labels_val = np.asarray(X_val), np.array(as_labels(y_val, "y_val"))
    restricted = tree.restrict(dict.fromkeys(labels.tolist())).collapse()
    leaf_ids = np.array([restricted.leaf_of(label) for label in labels.tolist()])
    geometry = ConceptDictionary.from_images(restricted, images, leaf_ids).geometry
    model = HCEPClassifier(tree).fit(images, labels)
    found = model.pursue(images_val)
    return {
        "containment_outside": _mean(geometry.containment().fraction),
        "orthogonality": _mean(np.abs(geometry.orthogonality().cosine)),
        "support_f1": float(np.mean(support_scores(found, labels_val, model.hierarchy_).f1)),
        "accuracy": accuracy(labels_val, model.predict(images_val)),
    }


def _training_rows(labels: NDArray[np.str_], held_out: float, random_state: int) -> NDArray[np.bool_]:
    """All images but a share of each class: at least one of it on either side."""
    if not 0 < held_out < 1:
        raise HCEPError(f"held_out must be a share between 0 and 1, got {held_out!r}")
    rng = np.random.default_rng(random_state)
    train = np.ones(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) < 2:
            raise HCEPError(f"class {label.item()!r} has one image; give X_val and y_val, or two images a class")
        n_out = min(max(1, round(held_out * len(rows))), len(rows) - 1)
        train[rng.permutation(rows)[:n_out]] = False
    return train


def _mean(values: NDArray[np.float64]) -> float:
    """Mean of the numbers there are; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
