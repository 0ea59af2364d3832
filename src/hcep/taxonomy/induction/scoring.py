"""Scores of an induced hierarchy: against a reference, in the embedding space, and for classification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, quote, quoted
from hcep.evaluate.grade import evaluate_method
from hcep.evaluate.statistics import mean_known
from hcep.evaluate.truths import as_labels
from hcep.hierarchy import Hierarchy
from hcep.taxonomy.induction.induced import normal_form

Given = ArrayLike | None
Leaves = frozenset[str]
ROOT = "\0root"
HELD_OUT = 0.3


def score_induced(
    tree: Hierarchy,
    gold: Hierarchy | None = None,
    X: Given = None,
    y: Given = None,
    X_val: Given = None,
    y_val: Given = None,
) -> dict[str, float]:
    """Score an induced hierarchy.

    Parameters
    ----------
    tree : the hierarchy to score
    gold : a reference hierarchy over the same classes
    X, y : (n_images, n_dims) array and (n_images,) array of str; embeddings and classes of training images
    X_val, y_val : held-out images; 30% of each class in `y` by default

    Notes
    -----
    Both hierarchies are restricted to the leaves they share (by id, or else by name) and collapsed; a merged concept
    has all of its names. docs/induction.md defines every score.
    """
    if (X is None) != (y is None) or (X_val is None) != (y_val is None) or (X is None and X_val is not None):
        raise HCEPError("give X together with y, and X_val together with y_val (which need X and y)")
    flat = tree.collapse()
    sizes = {"n_leaves": len(flat.leaves), "n_synsets": len(flat), "depth": flat.depth}
    scores = {name: float(n) for name, n in {**sizes, "max_branching": flat.max_branching}.items()}
    if gold is not None:
        scores |= _against_gold(tree, gold)
    if X is not None and y is not None:
        images, labels = np.asarray(X), np.array(as_labels(y, "y"))
        if X_val is None or y_val is None:
            train = _training_rows(labels)
            scores |= _on_images(tree, images[train], labels[train], images[~train], labels[~train])
        else:
            scores |= _on_images(tree, images, labels, np.asarray(X_val), np.array(as_labels(y_val, "y_val")))
    return scores


def _against_gold(tree: Hierarchy, gold: Hierarchy) -> dict[str, float]:
    shared = _shared_leaves(tree, gold)
    induced, wanted = _Named(tree, {label: label for label in shared}), _Named(gold, shared)
    names = induced.matched_to(wanted)
    own = {synset: synset for synset in wanted.hierarchy}
    return {
        "n_leaves_gold": float(len(gold.leaves)),
        "n_leaves_compared": float(len(shared)),
        "edge_f1": _f1(induced.edges(names), wanted.edges(own)),
        "ancestor_f1": _f1(induced.ancestors(names), wanted.ancestors(own)),
        "cluster_f1": _f1(induced.clusters(), wanted.clusters()),
        "overlap": _overlap(induced.clusters(), wanted.clusters()),
    }


def _shared_leaves(tree: Hierarchy, gold: Hierarchy) -> dict[str, str]:
    """Each class of the tree that gold has too, by id or else by name, and its class in gold."""
    by_name: dict[str, list[str]] = {}
    for leaf in gold.leaves:
        by_name.setdefault(normal_form(gold.name(leaf)), []).append(gold.class_of(leaf))
    known = {label for labels in by_name.values() for label in labels}
    shared: dict[str, str] = {}
    for leaf in tree.leaves:
        label = tree.class_of(leaf)
        namesakes = [label] if label in known else by_name.get(normal_form(tree.name(leaf)), [])
        if label in known or (len(namesakes) == 1 and namesakes[0] not in shared.values()):
            shared[label] = namesakes[0]
    if len(shared) < 2:
        raise HCEPError(
            f"tree and gold share {len(shared)} leaves; tree has {quoted(tree.leaves, 3)} and gold "
            f"{quoted(gold.leaves, 3)}: use the same ids or names for the classes"
        )
    return shared


class _Named:
    """A hierarchy over some classes, without chains, with its leaves by the tree's class and its concepts by name."""

    def __init__(self, hierarchy: Hierarchy, own_class: dict[str, str]) -> None:
        self.hierarchy = hierarchy.restrict(own_class.values()).collapse()
        self.leaf_of = {label: self.hierarchy.leaf_of(own) for label, own in own_class.items()}
        self.class_of = {leaf: label for label, leaf in self.leaf_of.items()}
        # The inner concepts above each class, without the root.
        self.above = {label: self.hierarchy.ancestors(leaf)[1:] for leaf, label in self.class_of.items()}

    def known_as(self, synset: str) -> tuple[list[str], list[str]]:
        """All ids and all names of a concept, its own first, then those merged into it."""
        both = [(synset, self.hierarchy.name(synset)), *self.hierarchy.merged(synset)[::-1]]
        return [own for own, _ in both], [normal_form(name) or name for _, name in both]

    def matched_to(self, gold: _Named) -> dict[str, str]:
        """The counterpart of each concept in gold, or a name that gold cannot have if there is none."""
        by_id: dict[str, str] = {}
        by_name: dict[str, str] = {}
        for synset in gold.hierarchy:
            if synset not in gold.class_of and synset != gold.hierarchy.root:
                ids, names = gold.known_as(synset)
                by_id.update(dict.fromkeys(ids, synset))
                by_name = {**dict.fromkeys(names, synset), **by_name}
        matched = {leaf: gold.leaf_of[label] for leaf, label in self.class_of.items()}
        for synset in self.hierarchy:
            ids, names = self.known_as(synset)
            known = [*(by_id[i] for i in ids if i in by_id), *(by_name[n] for n in names if n in by_name)]
            matched.setdefault(synset, known[0] if known else f"\0{synset}")
        return matched

    def edges(self, names: dict[str, str]) -> set[tuple[str, str]]:
        known = {**names, self.hierarchy.root: ROOT}
        return {(known[parent], known[child]) for parent, child in self.hierarchy.edges}

    def ancestors(self, names: dict[str, str]) -> set[tuple[str, str]]:
        return {(names[synset], label) for label, above in self.above.items() for synset in above}

    def clusters(self) -> set[Leaves]:
        """The leaves below each inner concept except the root."""
        below: dict[str, set[str]] = {}
        for label, above in self.above.items():
            for synset in above:
                below.setdefault(synset, set()).add(label)
        return {frozenset(leaves) for leaves in below.values()}


def _f1(predicted: set[Any], wanted: set[Any]) -> float:
    """1 if both are empty: there was nothing to find."""
    total = len(predicted) + len(wanted)
    return 2 * len(predicted & wanted) / total if total else 1.0


def _overlap(predicted: set[Leaves], wanted: set[Leaves]) -> float:
    if not predicted or not wanted:
        return float(not predicted and not wanted)
    jaccard = np.array([[len(a & b) / len(a | b) for b in wanted] for a in predicted])
    return float((jaccard.max(axis=1).mean() + jaccard.max(axis=0).mean()) / 2)


def _on_images(
    tree: Hierarchy, images: NDArray[Any], labels: NDArray[np.str_], images_val: NDArray[Any], labels_val: Any
) -> dict[str, float]:
    from hcep.classify import HCEPClassifier
    from hcep.dictionary import ConceptDictionary

    restricted = tree.restrict(dict.fromkeys(labels.tolist())).collapse()
    leaf_ids = np.array([restricted.leaf_of(label) for label in labels.tolist()])
    geometry = ConceptDictionary.from_images(restricted, images, leaf_ids).geometry
    held_out = evaluate_method(HCEPClassifier(tree).fit(images, labels), images_val, labels_val)
    return {
        "containment_outside": mean_known(geometry.containment().fraction),
        "orthogonality": mean_known(np.abs(geometry.orthogonality().cosine)),
        "support_f1": mean_known(held_out["support_f1"]),
        "accuracy": mean_known(held_out["correct"]),
    }


def _training_rows(labels: NDArray[np.str_]) -> NDArray[np.bool_]:
    """All images but a share of each class, with at least one image of it on either side."""
    rng = np.random.default_rng(0)
    train = np.ones(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) < 2:
            raise HCEPError(f"class {quote(label.item())} has one image; give X_val and y_val, or two images per class")
        n_out = min(max(1, round(HELD_OUT * len(rows))), len(rows) - 1)
        train[rng.permutation(rows)[:n_out]] = False
    return train
