"""The dense linear classifier on the embeddings: a black box, for reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.methods.base import ConceptMethod
from hcep.pursuit import FlatResult


class LinearProbe(ConceptMethod):
    """A linear head on the embeddings themselves; it names no concepts.

    Parameters and fitted attributes are those of `ConceptMethod`; `max_steps` has no effect.

    Notes
    -----
    `pursue` gives empty supports and codes, and residual norms of NaN, so that one table holds all methods.

    Examples
    --------
    >>> from hcep.classify.methods import LinearProbe
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=1e-4)
    >>> LinearProbe(data.hierarchy).fit(data.X, data.y).pursue(data.X[:2]).supports
    [(), ()]
    """

    def _code(self, images: NDArray[Any]) -> FlatResult:
        codes = sparse.csr_array((len(images), self.dictionary_.n_atoms), dtype=images.dtype)
        nothing = np.zeros((len(images), 0), dtype=np.int32)
        return FlatResult(self.dictionary_, codes, np.full(len(images), np.nan), nothing)

    def _head_input(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.dictionary_.embed(images)
