"""What the diagnostics share: directions, who is above and below whom, and computations in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError

if TYPE_CHECKING:
    from hcep.dictionary.concept_dictionary import ConceptDictionary
    from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]

#: Comparisons of everything with everything stop here: 20,000 synsets, minutes on two cores.
MAX_PAIRS = 20_000**2
#: Numbers held at once by the blocked computations (64 MB of float64).
BLOCK = 8_000_000


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


def blocks(start: int, stop: int, row_size: int) -> Iterator[slice]:
    """Slices of rows of `row_size` numbers each that keep memory flat."""
    step = max(1, BLOCK // max(row_size, 1))
    return (slice(at, min(at + step, stop)) for at in range(start, stop, step))


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
