"""The conditions on cones, atoms and children: nested subtrees, siblings apart, orthogonal atoms, regular simplices."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.checks import blocks
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.dictionary.concept_dictionary import ConceptDictionary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Comparisons of everything with everything stop here: 20,000 synsets, minutes on two cores.
MAX_PAIRS = 20_000**2
#: Degrees. The arc cosine of equal directions is off by up to some 1e-6 degrees; less than this is no violation.
ANGLE_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Violations:
    """How often a condition on cones is broken, (n_synsets,), and by how many degrees on average, 0 where it holds."""

    fraction: Floats
    mean_violation: Floats

    @property
    def satisfied(self) -> bool:
        """Whether the condition holds everywhere."""
        return not np.any(self.fraction > 0)


@dataclass(frozen=True, eq=False)
class Containment(Violations):
    """Which share of a synset's descendants lies outside its cone; NaN for the root and for leaves."""

    half_angles: Floats  # (depth,) of the cones of each level in degrees, level 1 first


@dataclass(frozen=True, eq=False)
class Disjointness(Violations):
    """Which share of the other synsets lies inside the cone of a synset, as in the paper; NaN for the root.

    The others of a synset are neither the root, nor itself, nor above or below it. Its ancestors are counted apart:
    they lie near it by construction, and sibling-cone disjointness says nothing about them.
    """

    half_angles: Floats  # (n_synsets,)
    n_others: Ints
    ancestor_fraction: Floats  # (n_synsets,) share of the ancestors below the root inside the cone; 0 without any


@dataclass(frozen=True, eq=False)
class SiblingCones(Violations):
    """Which share of the pairs of a synset's children have cones that intersect; NaN without a pair."""

    n_pairs: Ints  # (n_synsets,)


class HalfAngleSchedule(NamedTuple):
    """The observed half-angles by level, against the geometric decrease that suffices for well-clustered synsets."""

    largest: Floats  # (depth,) largest half-angle among the synsets of each level, level 1 first, in degrees
    bound: float  # what a level may have of the level above at most, ``min(r, 1/b)``
    satisfied: NDArray[np.bool_]  # (depth,)


class Orthogonality(NamedTuple):
    """Hierarchical orthogonality: the cosine between an atom and its parent's embedding, which should be 0."""

    atom: Ints  # (n_pairs,) the atoms compared: those that are not zero and do not hang from the root
    cosine: Floats  # (n_pairs,)
    random_cosine: Floats  # (n_pairs,) the control: with a random other parent's embedding; NaN where there is none


class SimplexRegularity(NamedTuple):
    """How near the children of a synset are to a regular simplex around their mean."""

    parent: Ints  # (n_parents,) index of the synsets with at least two children
    mean_deviation: Floats  # (n_parents,) mean difference between cosines of centred children and ``-1/(b - 1)``
    norm_spread: Floats  # (n_parents,) deviation of centred children's norms over their mean; NaN where all coincide


class DimensionBound(NamedTuple):
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


class Conditions:
    """A dictionary's synsets and atoms as directions, and what is asked of them."""

    def __init__(self, dictionary: "ConceptDictionary") -> None:
        self.dictionary = dictionary
        self.hierarchy: Hierarchy = dictionary.hierarchy
        self._n_children = np.diff(self.hierarchy.child_pointer)
        self._edge_parents = np.repeat(np.arange(len(self.hierarchy)), self._n_children)
        #: Synsets with children, the root left out.
        self._inner = np.flatnonzero(self._n_children[1:] > 0) + 1

    @cached_property
    def _units(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.synset_embeddings), dtype=np.float64)

    @cached_property
    def _unit_atoms(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.atoms), dtype=np.float64)

    @cached_property
    def _below(self) -> list[Ints]:
        """Descendants of each synset. A list, not a matrix: in all there are about as many as synsets times depth."""
        below: list[Ints] = [np.empty(0, dtype=np.int64)] * len(self.hierarchy)
        for i in range(len(self.hierarchy) - 1, -1, -1):  # children come after their parents
            children = self._children(i)
            below[i] = np.unique(np.concatenate([children, *(below[c] for c in children)]))
        return below

    @cached_property
    def _angles_below(self) -> list[Floats]:
        """Angle between each synset and each of its descendants; empty for the root."""
        units = self._units
        return [np.empty(0)] + [_degrees(units[self._below[i]] @ units[i]) for i in range(1, len(units))]

    def _children(self, i: Any) -> Ints:
        pointer = self.hierarchy.child_pointer
        return self.hierarchy.child_index[pointer[i] : pointer[i + 1]].astype(np.int64)

    @cached_property
    def half_angles(self) -> Floats:
        """(n_synsets,) Largest angle between a synset and any of its descendants; 0 for leaves."""
        largest = np.array([angles.max(initial=0.0) for angles in self._angles_below])
        largest[0] = np.nan
        return largest

    def geometric_schedule(self, reduction: float = 0.5) -> Floats:
        """Half-angles by level, (depth,), that decrease just fast enough for well-clustered synsets.

        They start at the largest half-angle observed at level 1 and decrease by ``min(reduction, 1/b)``, b the largest
        number of children of any synset (the paper's proposition on the half-angle schedule).
        """
        schedule = self.half_angle_schedule(reduction)
        return np.asarray(schedule.largest[0] * schedule.bound ** np.arange(self.hierarchy.depth))

    def half_angle_schedule(self, reduction: float = 0.5) -> HalfAngleSchedule:
        """The observed half-angles by level against the decrease the paper asks for.

        ``theta_{l+1} <= min(r, 1/b) theta_l`` with a `reduction` r < 1/2 is enough for a placement with nested subtrees
        and disjoint sibling cones to exist. It is not necessary, and it is strict: b is the largest branching anywhere.
        """
        if not 0.0 < reduction <= 0.5:
            raise DictionaryError(f"reduction must lie in (0, 1/2], got {reduction!r}")
        levels = self.hierarchy.levels
        largest = np.array([self.half_angles[levels == at].max() for at in range(1, self.hierarchy.depth + 1)])
        bound = min(reduction, 1.0 / self.hierarchy.max_branching)
        satisfied = largest <= bound * np.concatenate([[np.inf], largest[:-1]]) + ANGLE_TOLERANCE
        return HalfAngleSchedule(largest, bound, satisfied)

    def containment(self, half_angles: ArrayLike | None = None) -> Containment:
        """Which descendants j of each synset i break ``angle(a(i), a(j)) <= theta_level(i)``, and by how much.

        `half_angles` has the theta of levels 1, 2, ... in degrees; it is `geometric_schedule` when left out.
        """
        schedule = self.geometric_schedule() if half_angles is None else np.array(half_angles, dtype=np.float64)
        if schedule.shape != (self.hierarchy.depth,):
            raise DictionaryError(
                f"half_angles must hold one angle for each of the {self.hierarchy.depth} levels below the root, "
                f"got shape {schedule.shape}"
            )
        if not np.all((schedule >= 0) & (schedule <= 180)):
            raise DictionaryError(f"half_angles must lie between 0 and 180 degrees, got {schedule.tolist()}")
        fraction, violation = (np.full(len(self.hierarchy), np.nan) for _ in range(2))
        for i in self._inner:
            excess = self._angles_below[i] - schedule[self.hierarchy.levels[i] - 1]
            outside = excess > ANGLE_TOLERANCE
            fraction[i], violation[i] = outside.mean(), np.where(outside, excess, 0.0).mean()
        return Containment(fraction, violation, schedule)

    def disjointness(self) -> Disjointness:
        """How many other synsets lie inside the cone of each synset, as wide as its descendants need, and how deep.

        The violation of synset j in the cone of i is ``max(0, theta_i - angle(a(i), a(j)))``.
        """
        n = len(self.hierarchy)
        refuse_quadratic(n, n, "disjointness compares every synset with every other")
        cones, n_others = self.half_angles, np.zeros(n, dtype=np.int64)
        fraction, violation, ancestors = (np.full(n, np.nan) for _ in range(3))
        for rows in blocks(1, n, n):
            depth = cones[rows, None] - _degrees(self._units[rows] @ self._units.T)
            inside = depth >= -ANGLE_TOLERANCE
            others, above = np.ones(depth.shape, dtype=bool), np.zeros(depth.shape, dtype=bool)
            for row, i in enumerate(range(rows.start, rows.stop)):
                up = [self.hierarchy.index(a) for a in self.hierarchy.ancestors(self.hierarchy.ids[i])]
                above[row, up] = True
                others[row, [i, *up, *self._below[i]]] = False
            above[:, 0] = others[:, 0] = False
            n_others[rows] = others.sum(axis=1)
            fraction[rows] = _share(inside & others, others)
            violation[rows] = np.where(others, np.maximum(depth, 0.0), 0.0).sum(axis=1) / np.maximum(n_others[rows], 1)
            ancestors[rows] = _share(inside & above, above)
        return Disjointness(fraction, violation, cones, n_others, ancestors)

    def sibling_cones(self) -> SiblingCones:
        """Which pairs of children have cones that intersect, for every parent, the root among them.

        Disjoint means ``angle(a(j), a(j')) > theta_j + theta_j'``.
        """
        cones, n_pairs = self.half_angles, self._n_children * (self._n_children - 1) // 2
        fraction, violation = (np.where(n_pairs > 0, 0.0, np.nan) for _ in range(2))
        for p in np.flatnonzero(n_pairs):
            children = self._children(p)
            refuse_quadratic(len(children), len(children), "sibling_cones compares the children of one synset")
            for i, j, cosines in _pairs(self._units[children]):
                margin = _degrees(cosines) - cones[children[i]] - cones[children[j]]
                fraction[p] += np.count_nonzero(margin <= ANGLE_TOLERANCE) / n_pairs[p]
                violation[p] += np.maximum(-margin, 0.0).sum() / n_pairs[p]
        return SiblingCones(fraction, violation, n_pairs)

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
        parents, most = np.flatnonzero(self._n_children > 1), self.hierarchy.max_branching
        refuse_quadratic(most, most, "simplex compares the children of one synset")
        results = np.array([_simplex_of(self.dictionary.synset_embeddings[self._children(p)]) for p in parents])
        return SimplexRegularity(parents, *results.reshape(-1, 2).T)

    def dimension_bound(self) -> DimensionBound:
        """Whether the dictionary has the dimensions that orthogonality and regular simplices need."""
        depth, branching, inner = self.hierarchy.depth, self.hierarchy.max_branching, self._n_children > 0
        by_parents = int((self.hierarchy.levels[inner] + self._n_children[inner] - 1).max())
        return DimensionBound(depth, branching, self.dictionary.n_dims, depth + branching - 1, by_parents)


def refuse_quadratic(rows: int, columns: int, what: str, way_out: str = "") -> None:
    """Refuse to compare everything with everything where that would take hours."""
    if rows * columns > MAX_PAIRS:
        raise DictionaryError(
            f"{what}: {rows:,} x {columns:,} pairs are more than {MAX_PAIRS:,}; "
            f"restrict the hierarchy to fewer leaves{way_out}"
        )


def _pairs(units: NDArray[Any]) -> Iterator[tuple[Ints, Ints, Floats]]:
    """All i < j and the products of rows i and j, in blocks that keep memory flat."""
    for rows in blocks(0, len(units), len(units)):
        products = units[rows] @ units[rows.start :].T
        i, j = np.triu_indices(len(products), k=1, m=products.shape[1])
        yield rows.start + i, rows.start + j, products[i, j]


def _simplex_of(children: Floats) -> tuple[float, float]:
    """Mean deviation of the cosines from a regular simplex's, and the spread of the norms."""
    centred = children - children.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1)
    centred[norms <= 1e-12 * np.linalg.norm(children, axis=1).max()] = 0.0  # rounding of the mean, not a direction
    regular, n_pairs = -1.0 / (len(centred) - 1), len(centred) * (len(centred) - 1) // 2
    mean = sum(float(np.abs(cosines - regular).sum()) / n_pairs for *_, cosines in _pairs(unit_rows(centred)))
    return mean, float(norms.std() / norms.mean()) if centred.any() else np.nan


def _degrees(cosines: Floats) -> Floats:
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))


def _share(hits: NDArray[np.bool_], of: NDArray[np.bool_]) -> Floats:
    return np.asarray(hits.sum(axis=1) / np.maximum(of.sum(axis=1), 1))
