"""A space whose axes are words, so that the right phrase for an atom can be seen by eye."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hcep import ConceptDictionary, Hierarchy
from hcep.embeddings.encoders import FunctionEncoder

AXES = ("fur", "metal", "white", "brown", "long", "short")

BEARS = Hierarchy.from_edges(
    [
        ("thing", "bear"),
        ("thing", "vehicle"),
        ("bear", "polar_bear"),
        ("bear", "grizzly"),
        ("vehicle", "bus"),
        ("vehicle", "car"),
    ],
    names={"polar_bear": "polar bear"},
)
LEAVES = {
    "polar_bear": [3.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    "grizzly": [3.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    "bus": [0.0, 3.0, 0.0, 0.0, 1.0, 0.0],
    "car": [0.0, 3.0, 0.0, 0.0, 0.0, 1.0],
}
PHRASES = ("a fur coat", "shiny metal panels", "all white", "dark brown", "very long", "rather short")
#: (parent, child) -> the phrase an eye would pick.
RIGHT = {
    ("thing", "bear"): "a fur coat",
    ("thing", "vehicle"): "shiny metal panels",
    ("bear", "polar_bear"): "all white",
    ("bear", "grizzly"): "dark brown",
    ("vehicle", "bus"): "very long",
    ("vehicle", "car"): "rather short",
}


def bears() -> ConceptDictionary:
    return ConceptDictionary.from_leaf_embeddings(BEARS, LEAVES)


def counted_words(texts: Sequence[str]) -> np.ndarray:
    """How often each axis' word is in a text; the same small vector for texts without one."""
    return np.array([[text.split().count(axis) for axis in AXES] for text in texts], dtype=np.float32) + 0.01


def bear_encoder() -> FunctionEncoder:
    return FunctionEncoder(
        lambda batch: np.zeros((len(batch), len(AXES))), name="words", preprocessing={"size": 8}, texts=counted_words
    )


def bear_images(n_per_class: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images scattered around the leaves."""
    rng = np.random.default_rng(seed)
    y = np.repeat(sorted(LEAVES), n_per_class)
    X = np.array([LEAVES[label] for label in y.tolist()])
    return X + 0.1 * rng.normal(size=X.shape), y


def colour_vectors(batch: np.ndarray) -> np.ndarray:
    """An image encoder to see through: red photos are polar bears, green ones cars, blue ones buses."""
    return batch.mean(axis=(2, 3)) @ np.array([LEAVES["polar_bear"], LEAVES["car"], LEAVES["bus"]])
