"""The concept bottleneck model: one sigmoid per synset on the embeddings, trained by Adam, then a linear head."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from experiments.baselines.penalised import require_positive
from hcep.classify.heads import AdamW
from hcep.classify.methods import ConceptMethod
from hcep.pursuit import FlatResult

#: Concepts that one thread trains at a time. The number is fixed, so the answer does not depend on the threads.
BLOCK = 64
Floats = NDArray[np.float32]


class CBMClassifier(ConceptMethod):
    """Predict every synset from the embedding, then the class from the scores of all synsets, as published.

    An image's concepts are its class and all ancestors of the class, by any path. A score is the logit of a concept's
    probability: on training images the probabilities are almost 0 and 1, which would leave the head nothing to weigh.
    In the code, a synset's score stands at the atom of its first parent. Residual norms are NaN.

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs : as in `hcep.classify.methods.ConceptMethod`
    max_steps : number of synsets in the support with the highest scores; the head sees all scores
    support : {"highest", "probable", "path"}
        The synsets in the support: those with the highest scores, those with a probability above 0.5, or those of the
        complete rooted path with the highest sum of logits. That is the most probable set of concepts that is one path
    concept_epochs, batch_size, random_state : settings of the concept predictor, which is trained by Adam with a
        learning rate of 0.1
    """

    predictor_: "ConceptPredictor"

    def __init__(
        self,
        hierarchy: Any = None,
        *,
        support: str = "highest",
        concept_epochs: int = 500,
        batch_size: int = 4096,
        random_state: int | None = 0,
        **shared: Any,
    ) -> None:
        super().__init__(hierarchy, **shared)
        self.support = support
        self.concept_epochs, self.batch_size, self.random_state = concept_epochs, batch_size, random_state

    def fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        require_positive("concept_epochs", self.concept_epochs)
        require_positive("batch_size", self.batch_size)
        hierarchy = self.hierarchy_
        leaves = [hierarchy.leaf_of(str(label)) for label in self.classes_.tolist()]
        # The synsets, except the root, that hold for each class.
        above = [{leaf, *hierarchy.ancestors(leaf)} for leaf in leaves]
        targets = np.array([[synset in held for synset in hierarchy.ids[1:]] for held in above])
        options = {name: getattr(self, name) for name in ("batch_size", "random_state", "n_jobs")}
        x = self.dictionary_.embed(images)
        self.predictor_ = fit_concept_predictor(x, targets[index], epochs=self.concept_epochs, **options)

    def code(self, images: NDArray[Any]) -> FlatResult:
        scores, hierarchy = self.head_input(images), self.hierarchy_
        atom_of = {edge: k for k, edge in enumerate(hierarchy.edges)}
        atoms = np.array([atom_of[hierarchy.parents(s)[0], s] for s in hierarchy.ids[1:]], dtype=np.int32)
        codes = np.zeros((len(images), self.dictionary_.n_atoms), dtype=scores.dtype)
        codes[:, atoms] = scores
        if self.support == "path":
            selected = self._best_paths(scores)
        else:
            order = np.argsort(-scores, axis=1, kind="stable")
            selected = atoms[order]
            if self.support == "probable":
                selected[np.take_along_axis(scores, order, axis=1) <= 0.0] = -1
            else:
                selected = selected[:, : self._n_atoms_kept]
        return FlatResult(self.dictionary_, sparse.csr_array(codes), np.full(len(images), np.nan), selected)

    def _best_paths(self, scores: Floats) -> NDArray[np.int32]:
        """Return the atoms of the complete path with the highest sum of logits, (n_images, depth), padded with -1."""
        tree = self.hierarchy_.path_tree
        sums = np.zeros((len(scores), tree.n_nodes), dtype=scores.dtype)
        for node in range(1, tree.n_nodes):
            sums[:, node] = sums[:, tree.parent[node]] + scores[:, tree.synset[node] - 1]
        nodes = tree.leaf_nodes[np.argmax(sums[:, tree.leaf_nodes], axis=1)]
        return np.asarray(tree.edge[np.maximum(tree.ancestors()[nodes], 0)])  # the edge of the root is -1

    def head_input(self, images: NDArray[Any]) -> Floats:
        """All scores as a dense array: a sparse one would only be slower."""
        return self.predictor_(self.dictionary_.embed(images))


class ConceptPredictor(NamedTuple):
    """A linear predictor of concepts from images, which are centred by the mean and divided by the scale first."""

    weight: Floats  # (n_dims, n_concepts)
    bias: Floats
    mean: Floats
    scale: float

    def __call__(self, X: NDArray[Any]) -> Floats:
        """Return the score of every concept, (n_images, n_concepts): the logit of its probability."""
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

    Images are centred and divided by the root of their mean square norm. Adam moves every weight by about `lr` per
    step, so a step of 0.1 changes a logit by up to ``0.1 * ||x||_1``, which is moderate only for vectors of norm 1.
    Concepts are independent problems, so the answer is the same on any number of threads.
    """
    rng, n_concepts = np.random.default_rng(random_state), targets.shape[1]
    mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = float(np.sqrt(np.mean(np.square(_scaled(X, mean, 1.0)).sum(axis=1, dtype=np.float64)))) or 1.0
    order = rng.permutation(len(X))
    images, wanted = _scaled(X, mean, scale)[order], targets[order].astype(np.float32)
    batches = np.array([rng.permutation(-(-len(X) // batch_size)) for _ in range(epochs)]) * batch_size

    def train(start: int) -> Floats:
        """Train one block of concepts; the last row of the weights is the bias."""
        columns = np.ascontiguousarray(wanted[:, start : start + BLOCK])
        weights = np.zeros((X.shape[1] + 1, columns.shape[1]), dtype=np.float32)
        gradient, adam = np.empty_like(weights), AdamW(weights, lr)
        for first in batches.ravel():
            x = images[first : first + batch_size]
            error = sigmoid(x @ weights[:-1] + weights[-1])
            error -= columns[first : first + batch_size]
            error *= np.float32(1.0 / n_concepts / len(x))
            np.matmul(x.T, error, out=gradient[:-1])
            error.sum(axis=0, out=gradient[-1])
            adam.step(gradient)
        return weights

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(n_jobs or os.cpu_count()) as pool:
        weights = np.hstack(list(pool.map(train, range(0, n_concepts, BLOCK))))
    return ConceptPredictor(weights[:-1], weights[-1], mean, scale)


def sigmoid(logits: Floats) -> Floats:
    """Compute ``1 / (1 + exp(-logits))`` in place, with logits clipped to 16: single precision resolves no more."""
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
