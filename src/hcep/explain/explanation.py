"""One image's rooted path as steps a person can read: concept, coefficient, how much is explained by then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hcep.errors import HCEPError
from hcep.pursuit import Hypothesis, PathResult

if TYPE_CHECKING:
    from hcep.explain.naming import AtomNames


@dataclass(frozen=True)
class Step:
    """One concept on the way from the root to the leaf.

    Attributes
    ----------
    synset, name : str
    merged : tuple of str
        Names of the single-child chain that `collapse` merged into this synset, highest first.
    coefficient : float
        1 for an image that is exactly the synset's embedding; negative where the image points away from it.
    explained : float
        Share of the image's squared norm that the path explains up to here.
    meaning : str or None
        What the step's atom adds to the synset above it, in words, where the atoms have names.
    """

    synset: str
    name: str
    merged: tuple[str, ...]
    coefficient: float
    explained: float
    meaning: str | None = None


@dataclass(frozen=True)
class Explanation:
    """The rooted path of one image.

    Attributes
    ----------
    root : str
        Name of the root.
    steps : tuple of Step
    residual_norm : float
    runners_up : tuple of Hypothesis
        Other paths of the final beam, the nearest first, where the pursuit was asked for ``n_best``.
    """

    root: str
    steps: tuple[Step, ...]
    residual_norm: float
    runners_up: tuple[Hypothesis, ...]

    @property
    def leaf(self) -> str:
        """Id of the last synset; '' for an empty path."""
        return self.steps[-1].synset if self.steps else ""

    def trail(self) -> str:
        """The path in one line: ``animal 0.98 → mammal 0.95 → cat 1.02``."""
        return " → ".join(f"{step.name} {step.coefficient:.2f}" for step in self.steps) or "(no concept)"


def explain(
    X: ArrayLike, result: PathResult, images: Iterable[int] | None = None, *, names: AtomNames | None = None
) -> list[Explanation]:
    """Explain what a pursuit found.

    Parameters
    ----------
    X : (n_images, n_dims) array
        The raw embeddings that the pursuit was given.
    result : PathResult
    images : iterable of int, optional
        Rows to explain; all by default.
    names : AtomNames, optional
        Words for the atoms, such as `hcep.models.load_atom_names` gives; steps then have a ``meaning``.

    Raises
    ------
    HCEPError
        When `X` and `result` have different lengths.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy, hb_omp
    >>> from hcep.explain import explain
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.0], "car": [0.0, 0.0, 3.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> X = np.array([[2.0, 1.2, 0.0]])
    >>> explain(X, hb_omp(X, d, signed=True))[0].trail()
    'animal 1.00 → cat 1.20'
    """
    rows = np.atleast_2d(np.asarray(X))
    if len(rows) != len(result):
        raise HCEPError(f"X has {len(rows):,} images, the result {len(result):,}; give the images of that pursuit")
    chosen = list(range(len(rows))) if images is None else [int(i) for i in images]
    return [_explain_one(rows[i], result, i, names) for i in chosen]


def _explain_one(row: ArrayLike, result: PathResult, i: int, names: AtomNames | None) -> Explanation:
    dictionary, hierarchy = result.dictionary, result.dictionary.hierarchy
    x = dictionary.embed(row)[0].astype(np.float64)
    left, steps = x.copy(), []
    square = float(x @ x) or 1.0
    atoms = result.codes.indices[result.codes.indptr[i] : result.codes.indptr[i + 1]]
    for synset, atom, coefficient in zip(result.paths[i], atoms, result.coefficients(i), strict=True):
        left -= float(coefficient) * dictionary.atoms[atom]
        merged = tuple(name for _, name in hierarchy.merged(synset))
        explained = 1.0 - float(left @ left) / square
        meaning = None if names is None else names.meaning(*dictionary.edges[atom])
        steps.append(Step(synset, hierarchy.name(synset), merged, float(coefficient), explained, meaning))
    return Explanation(
        root=hierarchy.name(hierarchy.root),
        steps=tuple(steps),
        residual_norm=float(result.residual_norms[i]),
        runners_up=tuple(result.hypotheses(i)[1:]),
    )
