"""The concept bottleneck model: a supervised concept predictor, then the linear head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.base import HierarchyLike
from hcep.classify.methods.base import ConceptMethod
from hcep.classify.methods.concept_predictor import ConceptPredictor, concept_targets, fit_concept_predictor
from hcep.hierarchy import Hierarchy
from hcep.pursuit import FlatResult


class CBMClassifier(ConceptMethod):
    """Predict every synset from the embedding, then the class from the scores of all synsets, as published.

    An image's concepts are its class and all ancestors of the class, by any path. A score is the logit of
    a concept's probability: on training images the probabilities are all but 0 and 1, which leaves a head on them
    nothing to weigh. In the code, a synset's score stands at the atom of its first parent; nothing is reconstructed, so
    that residual norms are NaN.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> model = CBMClassifier(data.hierarchy, concept_epochs=50).fit(data.X, data.y)
    >>> model.score(data.X, data.y), len(model.pursue(data.X).supports[0])
    (1.0, 2)

    Parameters
    ----------
    hierarchy, tree, collapse, unit_norm, center, head, n_jobs : as in `ConceptMethod`
    max_steps : synsets to report as the support, those with the highest scores; the head sees all scores
    concept_epochs, batch_size, random_state : of the concept predictor: Adam with learning rate 0.1

    Attributes
    ----------
    predictor_ : ConceptPredictor
    """

    predictor_: ConceptPredictor

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
        self.concept_epochs = concept_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def _fit_method(self, images: NDArray[Any], index: NDArray[np.intp]) -> None:
        self.predictor_ = fit_concept_predictor(
            self.dictionary_.embed(images),
            concept_targets(self.hierarchy_, self._leaves)[index],
            epochs=self.concept_epochs,
            batch_size=self.batch_size,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

    def _code(self, images: NDArray[Any]) -> FlatResult:
        scores = self.predictor_(self.dictionary_.embed(images))
        atoms = first_parent_atoms(self.hierarchy_)
        highest = np.argsort(-scores, axis=1, kind="stable")[:, : self._n_atoms_kept]
        return FlatResult(
            self.dictionary_,
            dense_codes(scores, atoms, self.dictionary_.n_atoms),
            np.full(len(images), np.nan),
            atoms[highest],
        )

    def _head_input(self, images: NDArray[Any]) -> Any:
        """All scores, dense: as sparse codes they would only be slower."""
        return self.predictor_(self.dictionary_.embed(images))


def first_parent_atoms(hierarchy: Hierarchy) -> NDArray[np.int32]:
    """The atom of each synset's first parent; entry i is synset i + 1's."""
    atom_of = {edge: k for k, edge in enumerate(hierarchy.edges)}
    return np.array([atom_of[hierarchy.parents(s)[0], s] for s in hierarchy.ids[1:]], dtype=np.int32)


def dense_codes(scores: NDArray[Any], atoms: NDArray[np.int32], n_atoms: int) -> sparse.csr_array:
    """Scores of every synset as codes with an entry at each of `atoms`."""
    n_images, n_concepts = scores.shape
    order = np.argsort(atoms)
    pointer = np.arange(n_images + 1, dtype=np.int64) * n_concepts
    return sparse.csr_array((scores[:, order].ravel(), np.tile(atoms[order], n_images), pointer), (n_images, n_atoms))
