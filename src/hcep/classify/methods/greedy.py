"""Flat OMP with a linear head."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hcep.classify.methods.base import ConceptMethod
from hcep.pursuit import FlatResult, omp


class OMPClassifier(ConceptMethod):
    """Orthogonal matching pursuit over all atoms, then a linear head: the paper's flat baseline.

    Parameters and fitted attributes are those of `ConceptMethod`.

    Examples
    --------
    >>> from hcep.classify.methods import OMPClassifier
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=3, dim=12, noise=1e-4)
    >>> model = OMPClassifier(data.hierarchy, max_steps=2).fit(data.X, data.y)
    >>> max(len(support) for support in model.pursue(data.X).supports)
    2
    """

    def _code(self, images: NDArray[Any]) -> FlatResult:
        return omp(images, self.dictionary_, self._n_atoms_kept, n_jobs=self.n_jobs)
