"""Random hierarchies with random embeddings, small enough for the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcep import ConceptDictionary, Hierarchy

BEAMS = (1, 2, 3, 8, None)
STEPS = (None, None, 1, 2, 3)
TOLERANCES = (0.0, 0.0, 0.5, 1.0, 2.0)
ANCHORS = (0.0, 0.0, 0.03, 1.0, 50.0)


@dataclass(frozen=True)
class Problem:
    dictionary: ConceptDictionary
    X: np.ndarray
    options: dict[str, Any]


def random_hierarchy(rng: np.random.Generator, several_parents: bool) -> Hierarchy:
    """Return a hierarchy of up to 24 synsets; in a DAG, some have two parents."""
    synsets = ["root", *(f"n{i}" for i in range(int(rng.integers(4, 25))))]
    edges = [(synsets[int(rng.integers(i))], synsets[i]) for i in range(1, len(synsets))]
    second = [i for i in range(3, len(synsets)) if several_parents and rng.random() < 0.3]
    return Hierarchy.from_edges(edges + [(synsets[int(rng.integers(i))], synsets[i]) for i in second])


def hierarchy_of(parents: Sequence[int], second_parents: Sequence[tuple[int, int]] = ()) -> Hierarchy:
    """Build a hierarchy in which ``parents[i] % (i + 1)`` is a parent of synset i + 1; second parents likewise."""
    edges = [(p % (i + 1), i + 1) for i, p in enumerate(parents)]
    edges += [(p % (c % len(parents) + 1), c % len(parents) + 1) for p, c in second_parents]
    return Hierarchy.from_edges((str(p), str(c)) for p, c in edges)


def random_dictionary(rng: np.random.Generator, hierarchy: Hierarchy, leaf_means: bool) -> ConceptDictionary:
    """Return a dictionary with random embeddings of the leaves, if `leaf_means`, or of all synsets."""
    n_dims = int(rng.integers(2, 12))
    if leaf_means:
        leaves = {leaf: rng.standard_normal(n_dims) for leaf in hierarchy.leaves}
        return ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)
    synsets = {synset: rng.standard_normal(n_dims) for synset in hierarchy.ids[1:]}
    return ConceptDictionary.from_synset_embeddings(hierarchy, synsets)


def random_joint_problem(seed: int, n_images: int = 3) -> Problem:
    """Return a problem whose concepts also have texts, some inner ones of their own; the images are in that space."""
    problem, rng = random_problem(seed, n_images), np.random.default_rng([seed, 1])
    hierarchy, n_dims = problem.dictionary.hierarchy, problem.dictionary.n_dims
    inner = [synset for synset in hierarchy.ids[1:] if not hierarchy.is_leaf(synset) and rng.random() < 0.5]
    texts = {synset: rng.standard_normal(n_dims) for synset in (*hierarchy.leaves, *inner)}
    joint = problem.dictionary.with_words(texts, image_scale=1.5, text_scale=0.7)
    return Problem(joint.without_transform(), joint.embed(problem.X), problem.options)


def random_problem(seed: int, n_images: int = 3) -> Problem:
    """Return a dictionary, images, and options of `hb_omp`."""
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, several_parents=bool(rng.integers(2)))
    dictionary = random_dictionary(rng, hierarchy, leaf_means=bool(rng.integers(2)))
    options = {
        "beam_width": BEAMS[int(rng.integers(5))],
        "max_steps": STEPS[int(rng.integers(5))],
        "tol": TOLERANCES[int(rng.integers(5))],
        "signed": bool(rng.integers(2)),
        "anchor": ANCHORS[int(rng.integers(5))] / dictionary.anchor_unit,
    }
    return Problem(dictionary, rng.standard_normal((n_images, dictionary.n_dims)), options)
