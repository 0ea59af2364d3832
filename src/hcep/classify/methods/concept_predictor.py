"""One sigmoid a synset on the embeddings, trained by Adam: the concept predictor of a concept bottleneck model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.adamw import AdamW
from hcep.hierarchy import Hierarchy
from hcep.pursuit.blocks import for_blocks

#: Concepts trained at a time. Fixed, so that the answer is the same on any number of threads.
CONCEPTS_A_BLOCK = 64

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ConceptPredictor:
    """A linear predictor of concepts."""

    weight: Floats  # (n_dims, n_concepts) float32
    bias: Floats  # (n_concepts,) float32
    mean: Floats  # (n_dims,) float32
    scale: float  # images are centred by the mean and divided by the scale first

    def __call__(self, X: NDArray[Any]) -> Floats:
        """Score of every concept, (n_images, n_concepts): the logit of its probability."""
        return np.asarray(_scaled(X, self.mean, self.scale) @ self.weight + self.bias)


def fit_concept_predictor(
    X: NDArray[Any],
    targets: NDArray[np.bool_],
    *,
    epochs: int = 500,
    batch_size: int = 4096,
    lr: float = 0.1,
    random_state: int | None = 0,
    n_jobs: int | None = None,
) -> ConceptPredictor:
    """Train the predictor on binary cross entropy.

    Images are centred and divided by the root of their mean square norm. Adam moves every weight by about `lr` a step,
    whatever the gradient, so that a step of 0.1 changes a logit by up to ``0.1 * ||x||_1``: moderate for vectors of
    norm 1, which CLIP's are and raw features of other encoders are not.

    `X`: (n_images, n_dims) array. `targets`: (n_images, n_concepts) bool. `epochs`, `batch_size`, `lr`: of Adam; as
    published. `random_state`: shuffles the images once, and the order of the batches in every epoch. `n_jobs`: threads
    over concepts, which are independent problems: the answer is the same on any number.
    """
    rng = np.random.default_rng(random_state)
    mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = float(np.sqrt(np.mean(np.square(_scaled(X, mean, 1.0)).sum(axis=1, dtype=np.float64)))) or 1.0
    order = rng.permutation(len(X))
    images, wanted = _scaled(X, mean, scale)[order], targets[order].astype(np.float32)
    n_batches = -(-len(X) // batch_size)
    batch_order = np.array([rng.permutation(n_batches) for _ in range(epochs)])
    weight = np.zeros((X.shape[1], targets.shape[1]), dtype=np.float32)
    bias = np.zeros(targets.shape[1], dtype=np.float32)

    def work(concepts: slice) -> None:
        columns = np.ascontiguousarray(wanted[:, concepts])
        weight[:, concepts], bias[concepts] = _train(
            images, columns, batch_order, batch_size, lr, 1.0 / targets.shape[1]
        )

    for_blocks(targets.shape[1], work, n_jobs, block=CONCEPTS_A_BLOCK)
    return ConceptPredictor(weight, bias, mean, scale)


def concept_targets(hierarchy: Hierarchy, leaves: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which synsets hold for each leaf: itself and all its ancestors, by any path; (n_leaves, n_synsets - 1).

    Column i is synset i + 1: the root, which holds for everything, is left out.
    """
    targets = np.zeros((len(leaves), len(hierarchy)), dtype=bool)
    for row, leaf in zip(targets, leaves.tolist(), strict=True):
        row[[hierarchy.index(synset) for synset in (leaf, *hierarchy.ancestors(leaf))]] = True
    return targets[:, 1:]


def sigmoid(logits: Floats) -> Floats:
    """``1 / (1 + exp(-logits))`` in place, logits beyond 16 taken for 16: single precision resolves no more."""
    # Smaller errors would have squares below the smallest normal number, with which processors are very slow.
    np.clip(logits, -16.0, 16.0, out=logits)
    np.negative(logits, out=logits)
    np.exp(logits, out=logits)
    logits += 1.0
    return np.reciprocal(logits, out=logits)


def _scaled(X: NDArray[Any], mean: Floats, scale: float) -> Floats:
    scaled = X.astype(np.float32)
    scaled -= mean
    scaled /= np.float32(scale)
    return scaled


def _train(
    images: Floats, wanted: Floats, batch_order: NDArray[np.intp], batch_size: int, lr: float, share: float
) -> tuple[Floats, Floats]:
    """Adam on the mean binary cross entropy, of which these concepts are a `share` each."""
    n_dims, n_concepts = images.shape[1], wanted.shape[1]
    # The last row is the bias.
    parameters = np.zeros((n_dims + 1, n_concepts), dtype=np.float32)
    gradient = np.empty_like(parameters)
    adam = AdamW(parameters, lr)
    buffer = np.empty((min(batch_size, len(images)), n_concepts), dtype=np.float32)
    for epoch in batch_order:
        for batch in epoch * batch_size:
            x, t = images[batch : batch + batch_size], wanted[batch : batch + batch_size]
            error = np.matmul(x, parameters[:-1], out=buffer[: len(x)])
            error += parameters[-1]
            sigmoid(error)
            error -= t
            error *= np.float32(share / len(x))
            np.matmul(x.T, error, out=gradient[:-1])
            error.sum(axis=0, out=gradient[-1])
            adam.step(gradient[None])
    return parameters[:-1], parameters[-1]
