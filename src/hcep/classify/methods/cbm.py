"""The concept bottleneck model: one sigmoid a synset on the embeddings, trained by Adam, then the linear head."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.base import HierarchyLike
from hcep.classify.heads import AdamW
from hcep.classify.methods.base import ConceptMethod
from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.pursuit import FlatResult
from hcep.pursuit.blocks import for_blocks

#: Concepts trained at a time. Fixed, so that the answer is the same on any number of threads.
CONCEPTS_A_BLOCK = 64
Floats = NDArray[np.float32]


class CBMClassifier(ConceptMethod):
    """Predict every synset from the embedding, then the class from the scores of all synsets, as published.

    An image's concepts are its class and all ancestors of the class, by any path. A score is the logit of
    a concept's probability: on training images the probabilities are all but 0 and 1, which leaves a head on them
    nothing to weigh. In the code, a synset's score stands at the atom of its first parent; residual norms are NaN.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs : as in `ConceptMethod`
    max_steps : synsets to report as the support, those with the highest scores; the head sees all scores
    concept_epochs, batch_size, random_state : of the concept predictor: Adam with learning rate 0.1
    """

    predictor_: "ConceptPredictor"

    def __init__(
        self,
        hierarchy: HierarchyLike | None = None,
        *,
        concept_epochs: int = 500,
        batch_size: int = 4096,
        random_state: int | None = 0,
        **shared: Any,
    ) -> None:
        super().__init__(hierarchy, **shared)
        self.concept_epochs, self.batch_size, self.random_state = concept_epochs, batch_size, random_state

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        options: dict[str, Any] = {name: getattr(self, name) for name in ("batch_size", "random_state", "n_jobs")}
        # Which synsets, but for the root, hold for each class: its leaf and all ancestors, by any path.
        targets = leaf_shares(self.hierarchy_, self._leaves.tolist()).toarray().T[:, 1:] > 0.0
        x = self.dictionary_.embed(images)
        self.predictor_ = fit_concept_predictor(x, targets[index], epochs=self.concept_epochs, **options)

    def _code(self, images: NDArray[Any]) -> FlatResult:
        scores, hierarchy = self._head_input(images), self.hierarchy_
        atom_of = {edge: k for k, edge in enumerate(hierarchy.edges)}
        atoms = np.array([atom_of[hierarchy.parents(s)[0], s] for s in hierarchy.ids[1:]], dtype=np.int32)
        highest = np.argsort(-scores, axis=1, kind="stable")[:, : self._n_atoms_kept]
        codes = np.zeros((len(images), len(atom_of)), dtype=scores.dtype)
        codes[:, atoms] = scores
        return FlatResult(self.dictionary_, sparse.csr_array(codes), np.full(len(images), np.nan), atoms[highest])

    def _head_input(self, images: NDArray[Any]) -> Floats:
        """All scores, dense: as sparse codes they would only be slower."""
        return self.predictor_(self.dictionary_.embed(images))


class ConceptPredictor(NamedTuple):
    """A linear predictor of concepts from images, centred by the mean and divided by the scale first."""

    weight: Floats  # (n_dims, n_concepts)
    bias: Floats
    mean: Floats
    scale: float

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
    """Train the predictor on binary cross entropy with `targets`, (n_images, n_concepts).

    Images are centred and divided by the root of their mean square norm: Adam moves every weight by about `lr` a step,
    so that a step of 0.1 changes a logit by up to ``0.1 * ||x||_1``, which is moderate for vectors of norm 1 alone.
    Concepts are independent problems: the answer is the same on any number of threads.
    """
    rng, n_concepts = np.random.default_rng(random_state), targets.shape[1]
    mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = float(np.sqrt(np.mean(np.square(_scaled(X, mean, 1.0)).sum(axis=1, dtype=np.float64)))) or 1.0
    order = rng.permutation(len(X))
    images, wanted = _scaled(X, mean, scale)[order], targets[order].astype(np.float32)
    batches = np.array([rng.permutation(-(-len(X) // batch_size)) for _ in range(epochs)]) * batch_size
    weight, bias = np.zeros((X.shape[1], n_concepts), dtype=np.float32), np.zeros(n_concepts, dtype=np.float32)

    def work(some: slice) -> None:
        columns = np.ascontiguousarray(wanted[:, some])
        parameters = np.zeros((X.shape[1] + 1, columns.shape[1]), dtype=np.float32)  # the last row is the bias
        gradient, adam = np.empty_like(parameters), AdamW(parameters, lr)
        buffer = np.empty((min(batch_size, len(images)), columns.shape[1]), dtype=np.float32)
        for start in batches.ravel():
            x = images[start : start + batch_size]
            error = np.matmul(x, parameters[:-1], out=buffer[: len(x)])
            error += parameters[-1]
            sigmoid(error)
            error -= columns[start : start + batch_size]
            error *= np.float32(1.0 / n_concepts / len(x))
            np.matmul(x.T, error, out=gradient[:-1])
            error.sum(axis=0, out=gradient[-1])
            adam.step(gradient[None])
        weight[:, some], bias[some] = parameters[:-1], parameters[-1]

    for_blocks(n_concepts, work, n_jobs, block=CONCEPTS_A_BLOCK)
    return ConceptPredictor(weight, bias, mean, scale)


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
