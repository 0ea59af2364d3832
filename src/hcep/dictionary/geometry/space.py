"""A dictionary as directions, which all diagnostics share, and the conditions on a synset's atoms and children.

These are: atoms orthogonal to what they refine, children in a regular simplex, dimensions enough for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.checks import blocks
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError

if TYPE_CHECKING:
    from hcep.dictionary.concept_dictionary import ConceptDictionary
    from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]

#: Comparisons of everything with everything stop here: 20,000 synsets, minutes on two cores.
MAX_PAIRS = 20_000**2


class Space:
    """A dictionary's synsets and atoms as directions, and the hierarchy as arrays."""

    def __init__(self, dictionary: ConceptDictionary) -> None:
        self.dictionary = dictionary
        self.hierarchy: Hierarchy = dictionary.hierarchy

    @cached_property
    def _units(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.synset_embeddings), dtype=np.float64)

    @cached_property
    def _unit_atoms(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.atoms), dtype=np.float64)

    @cached_property
    def _edge_parents(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.hierarchy)), np.diff(self.hierarchy.child_pointer))

    @cached_property
    def _inner(self) -> NDArray[np.int64]:
        """Synsets with children, the root left out."""
        return np.flatnonzero(np.diff(self.hierarchy.child_pointer)[1:] > 0) + 1

    @cached_property
    def _branching_parents(self) -> NDArray[np.int64]:
        return np.flatnonzero(np.diff(self.hierarchy.child_pointer) > 1)

    @cached_property
    def _below(self) -> list[NDArray[np.int64]]:
        """Descendants of each synset. A list, not a matrix: in all there are about as many as synsets times depth."""
        below: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(self.hierarchy)
        for i in range(len(self.hierarchy) - 1, -1, -1):  # children come after their parents
            children = self._children(i)
            below[i] = np.unique(np.concatenate([children, *(below[c] for c in children)]))
        return below

    @cached_property
    def _above(self) -> list[NDArray[np.int64]]:
        """Ancestors of each synset, the root left out."""
        lower = np.concatenate(self._below[1:])
        upper = np.repeat(np.arange(1, len(self.hierarchy)), [len(b) for b in self._below[1:]])
        order = np.argsort(lower, kind="stable")
        counts = np.bincount(lower, minlength=len(self.hierarchy))
        return np.split(upper[order], np.cumsum(counts)[:-1])

    def _children(self, i: int) -> NDArray[np.int64]:
        pointer = self.hierarchy.child_pointer
        return self.hierarchy.child_index[pointer[i] : pointer[i + 1]].astype(np.int64)


def pairs(units: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """All i < j and the products of rows i and j, in blocks that keep memory flat."""
    for rows in blocks(0, len(units), len(units)):
        products = units[rows] @ units[rows.start :].T
        i, j = np.triu_indices(len(products), k=1, m=products.shape[1])
        yield rows.start + i, rows.start + j, products[i, j]


def mean_of(values: Floats, weights: NDArray[np.int64] | None = None) -> float:
    """Mean of what is not NaN; NaN of nothing."""
    there = ~np.isnan(values)
    if not there.any():
        return np.nan
    return float(np.average(values[there], weights=None if weights is None else weights[there]))


def refuse_quadratic(rows: int, columns: int, what: str, way_out: str = "") -> None:
    if rows * columns > MAX_PAIRS:
        raise DictionaryError(
            f"{what}: {rows:,} x {columns:,} pairs are more than {MAX_PAIRS:,}; "
            f"restrict the hierarchy to fewer leaves{way_out}"
        )


@dataclass(frozen=True, eq=False)
class Orthogonality:
    """Hierarchical orthogonality: the cosine between an atom and its parent's embedding, which should be 0."""

    atom: NDArray[np.int64]  # (n_pairs,) The atoms compared: those that are not zero and do not hang from the root
    cosine: Floats  # (n_pairs,) Cosine of the atom and its own parent's embedding
    #: (n_pairs,) The control: cosine with a random other parent's embedding; NaN where there is no other
    random_cosine: Floats


@dataclass(frozen=True, eq=False)
class SimplexRegularity:
    """How near the children of a synset are to a regular simplex around their mean."""

    parent: NDArray[np.int64]  # (n_parents,) Index of the synsets with at least two children
    mean_deviation: Floats
    #: (n_parents,) Absolute difference between the cosines of centred children and ``-1/(b - 1)``, over all pairs
    largest_deviation: Floats
    #: (n_parents,) Standard deviation of the centred children's norms over their mean; NaN where all coincide
    norm_spread: Floats


@dataclass(frozen=True)
class DimensionBound:
    """The dimension that orthogonality and regular simplices need."""

    depth: int
    branching: int
    n_dims: int
    required: int  # ``depth + branching - 1``, the paper's bound
    #: Largest ``level(p) + n_children(p) - 1`` over parents p, which is what they really need: p and the synsets above
    #: it take a dimension each, the zero root none, and the simplex of the children the rest. Below `required`, which
    #: counts the root as a direction and adds up the deepest and the widest place wherever they are.
    required_by_parents: int

    @property
    def satisfied(self) -> bool:
        """Whether the dimensions suffice for every parent; ``required <= n_dims`` is enough for that."""
        return self.required_by_parents <= self.n_dims


class Refinements(Space):
    """The conditions on a synset's atoms and children."""

    def orthogonality(self, random_state: int | np.random.Generator | None = 0) -> Orthogonality:
        """Cosines between atoms and their parents' embeddings, and between atoms and random other parents'.

        ``cos(a(c) - a(p), a(p))`` is 0 when the refinement leaves the coarser concept alone. `random_state` draws, for
        each atom, one of the other synsets that have children, the root left out.
        """
        atoms, parents = self._unit_atoms, self._edge_parents
        atom = np.flatnonzero((parents > 0) & atoms.any(axis=1)).astype(np.int64)
        cosine = np.einsum("nd,nd->n", atoms[atom], self._units[parents[atom]])
        candidates = self._inner
        if len(candidates) < 2:
            return Orthogonality(atom, cosine, np.full(len(atom), np.nan))
        rng = np.random.default_rng(random_state)
        own = np.searchsorted(candidates, parents[atom])
        # A shift by 1 .. m - 1 places never comes back to the atom's own parent.
        other = candidates[(own + rng.integers(1, len(candidates), size=len(atom))) % len(candidates)]
        return Orthogonality(atom, cosine, np.einsum("nd,nd->n", atoms[atom], self._units[other]))

    def simplex(self) -> SimplexRegularity:
        """How far the children of each synset are from a regular simplex.

        With ``c_j = a(j) - mean of the b children``, a regular simplex has ``cos(c_j, c_k) = -1/(b - 1)`` and equal
        norms. Two children always have both.
        """
        parents = self._branching_parents
        most = self.hierarchy.max_branching
        refuse_quadratic(most, most, "simplex compares the children of one synset")
        results = np.array([_simplex_of(self.dictionary.synset_embeddings[self._children(p)]) for p in parents])
        mean, largest, spread = results.reshape(-1, 3).T
        return SimplexRegularity(parents, mean, largest, spread)

    def dimension_bound(self) -> DimensionBound:
        """Whether the dictionary has the dimensions that orthogonality and regular simplices need."""
        depth, branching = self.hierarchy.depth, self.hierarchy.max_branching
        n_children = np.diff(self.hierarchy.child_pointer)
        inner = n_children > 0
        by_parents = int((self.hierarchy.levels[inner] + n_children[inner] - 1).max())
        return DimensionBound(depth, branching, self.dictionary.n_dims, depth + branching - 1, by_parents)


def _simplex_of(children: Floats) -> tuple[float, float, float]:
    """Mean and largest deviation of the cosines from a regular simplex's, and the spread of the norms."""
    centred = children - children.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1)
    centred[norms <= 1e-12 * np.linalg.norm(children, axis=1).max()] = 0.0  # rounding of the mean, not a direction
    regular = -1.0 / (len(centred) - 1)
    n_pairs = len(centred) * (len(centred) - 1) // 2
    mean, largest = 0.0, 0.0
    for _, _, cosines in pairs(unit_rows(centred)):
        deviation = np.abs(cosines - regular)
        mean += float(deviation.sum()) / n_pairs
        largest = float(deviation.max(initial=largest))
    spread = float(norms.std() / norms.mean()) if centred.any() else np.nan
    return mean, largest, spread
