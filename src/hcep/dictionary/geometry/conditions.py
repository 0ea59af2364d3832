"""The paper's conditions: nested cones, disjoint sibling cones, orthogonal atoms and regular simplices of children."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.checks import blocks
from hcep.dictionary.geometry.plotting import Axes, histogram, new_axes
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError, quote
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.dictionary.concept_dictionary import ConceptDictionary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The most pairs to compare: those of 20,000 synsets, which take minutes on two cores.
MAX_PAIRS = 20_000**2
#: In degrees. The arc cosine of equal directions is wrong by about 1e-6 degrees, so less than this is no violation.
ANGLE_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Violations:
    """How often each synset violates a condition on cones, and by how much; NaN if there is nothing to compare.

    Attributes
    ----------
    fraction : array of shape (n_synsets,)
        The share of comparisons that violate the condition.
    mean_violation : array of shape (n_synsets,)
        The mean violation in degrees, where a comparison that meets the condition counts as 0.
    n_compared : integer array of shape (n_synsets,)
    half_angles : array
        The half-angles of the cones in degrees: of each synset, or for `Conditions.containment` of each level.
    ancestor_fraction : array of shape (n_synsets,), optional
        The share of the ancestors, without the root, that lie inside the cone, from `Conditions.disjointness`; 0 if
        there are none.
    """

    fraction: Floats
    mean_violation: Floats
    n_compared: Ints
    half_angles: Floats
    ancestor_fraction: Floats | None = None

    @property
    def satisfied(self) -> bool:
        """Whether every synset meets the condition."""
        return not np.any(self.fraction > 0)

    def plot(self, ax: Axes = None) -> Axes:
        """Plot how many synsets violate the condition how often, and return the axes."""
        labels = {"xlabel": "share of comparisons that violate the condition", "ylabel": "concepts"}
        return histogram({"": self.fraction}, ax, None, **labels)


class HalfAngleSchedule(NamedTuple):
    """The half-angles of each level, compared with the geometric decrease that suffices for well-clustered synsets.

    Attributes
    ----------
    largest : array of shape (depth,)
        The largest half-angle of each level in degrees, starting with level 1.
    bound : float
        The largest allowed ratio of one level's half-angle to that of the level above, ``min(r, 1/b)``.
    satisfied : boolean array of shape (depth,)
    """

    largest: Floats
    bound: float
    satisfied: NDArray[np.bool_]

    def plot(self, ax: Axes = None) -> Axes:
        """Plot the largest half-angle of each level beside the schedule, and return the axes."""
        ax, levels = new_axes()[0] if ax is None else ax, np.arange(1, len(self.largest) + 1)
        ax.plot(levels, self.largest, "o-", label="largest half-angle")
        ax.plot(levels, self.largest[0] * self.bound ** (levels - 1.0), "k:", label="schedule")
        ax.legend(frameon=False)
        ax.set(xlabel="level", ylabel="degrees", xticks=levels)
        return ax


class Orthogonality(NamedTuple):
    """Hierarchical orthogonality: the cosine between each atom and its parent's embedding, which should be 0.

    Attributes
    ----------
    atom : integer array of shape (n_pairs,)
        The compared atoms: those that are not zero and do not start at the root.
    cosine : array of shape (n_pairs,)
    random_cosine : array of shape (n_pairs,)
        The same with the embedding of another parent chosen at random, as a control; NaN if there is no other.
    """

    atom: Ints
    cosine: Floats
    random_cosine: Floats

    def plot(self, ax: Axes = None) -> Axes:
        """Plot the cosines of atoms with their own and with random parents, and return the axes."""
        cosines = {"own parent": self.cosine, "random parent": self.random_cosine}
        return histogram(cosines, ax, 0.0, xlabel="cosine of atom and parent", ylabel="atoms")


class SimplexRegularity(NamedTuple):
    """How close the children of each synset are to a regular simplex around their mean.

    Attributes
    ----------
    parent : integer array of shape (n_parents,)
        The indices of the synsets with at least two children.
    mean_deviation : array of shape (n_parents,)
        The mean absolute difference between the cosines of centred children and ``-1/(b - 1)``.
    norm_spread : array of shape (n_parents,)
        The standard deviation of the centred children's norms divided by their mean; NaN if all children coincide.
    """

    parent: Ints
    mean_deviation: Floats
    norm_spread: Floats

    def plot(self, ax: Axes = None) -> Axes:
        """Plot how far the children of each synset are from a regular simplex, and return the axes."""
        values = {"cosines": self.mean_deviation, "norms": self.norm_spread}
        return histogram(values, ax, 0.0, xlabel="deviation from a regular simplex", ylabel="parents")


class DimensionBound(NamedTuple):
    """The number of dimensions that orthogonality and regular simplices need, and that there are.

    Attributes
    ----------
    required : int
        The paper's bound, ``depth + branching - 1``.
    required_by_parents : int
        The largest ``level(p) + n_children(p) - 1`` of any parent p, which is enough: p and each synset above it take
        one dimension, except the root, which is zero, and the simplex of the children takes the rest. It is below
        `required`, which counts the root and combines the deepest and the widest part of the hierarchy.
    """

    n_dims: int
    required: int
    required_by_parents: int

    @property
    def satisfied(self) -> bool:
        """Whether there are enough dimensions for every parent, which ``required <= n_dims`` implies."""
        return self.required_by_parents <= self.n_dims

    def plot(self, ax: Axes = None) -> Axes:
        """Plot the numbers of dimensions as bars, and return the axes."""
        ax = new_axes()[0] if ax is None else ax
        ax.barh(["there are", "required", "required by parents"], list(self))
        ax.set(xlabel="dimensions")
        return ax


class Conditions:
    """The conditions on the directions of a dictionary's synsets and atoms."""

    def __init__(self, dictionary: "ConceptDictionary") -> None:
        self.dictionary = dictionary
        self.hierarchy: Hierarchy = dictionary.hierarchy
        self._n_children = np.diff(self.hierarchy.child_pointer)
        self._edge_parents = np.repeat(np.arange(len(self.hierarchy)), self._n_children)
        #: Synsets with children, without the root.
        self._inner = np.flatnonzero(self._n_children[1:] > 0) + 1

    @cached_property
    def _units(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.synset_embeddings), dtype=np.float64)

    @cached_property
    def _unit_atoms(self) -> Floats:
        return np.asarray(unit_rows(self.dictionary.atoms), dtype=np.float64)

    @cached_property
    def _below(self) -> list[Ints]:
        """The descendants of each synset, as a list of arrays because a matrix would be mostly empty."""
        below: list[Ints] = [np.empty(0, dtype=np.int64)] * len(self.hierarchy)
        for i in range(len(self.hierarchy) - 1, -1, -1):  # children come after their parents
            children = self._children(i)
            below[i] = np.unique(np.concatenate([children, *(below[c] for c in children)]))
        return below

    @cached_property
    def _angles_below(self) -> list[Floats]:
        """The angles between each synset and its descendants in degrees; empty for the root."""
        units = self._units
        return [np.empty(0)] + [_degrees(units[self._below[i]] @ units[i]) for i in range(1, len(units))]

    def _children(self, i: Any) -> Ints:
        pointer = self.hierarchy.child_pointer
        return self.hierarchy.child_index[pointer[i] : pointer[i + 1]].astype(np.int64)

    @cached_property
    def half_angles(self) -> Floats:
        """The largest angle between each synset and any of its descendants, shape (n_synsets,); 0 for leaves."""
        largest = np.array([angles.max(initial=0.0) for angles in self._angles_below])
        largest[0] = np.nan
        return largest

    def geometric_schedule(self, reduction: float = 0.5) -> Floats:
        """Return half-angles for each level, shape (depth,), that decrease just fast enough for well-clustered synsets.

        They start at the largest half-angle of level 1 and shrink by ``min(reduction, 1/b)`` per level, where b is the
        largest number of children of any synset (the paper's proposition on the half-angle schedule).
        """
        schedule = self.half_angle_schedule(reduction)
        return np.asarray(schedule.largest[0] * schedule.bound ** np.arange(self.hierarchy.depth))

    def half_angle_schedule(self, reduction: float = 0.5) -> HalfAngleSchedule:
        """Compare the half-angles of each level with the decrease in the paper's condition.

        If ``theta_{l+1} <= min(r, 1/b) theta_l`` with a `reduction` r < 1/2, then a placement with nested subtrees and
        disjoint sibling cones exists. The condition is sufficient but not necessary, and it is strict, because b is the
        largest branching anywhere in the hierarchy.
        """
        if not 0.0 < reduction <= 0.5:
            raise DictionaryError(f"reduction must be a number in (0, 1/2], got {quote(reduction)}")
        levels = self.hierarchy.levels
        largest = np.array([self.half_angles[levels == at].max() for at in range(1, self.hierarchy.depth + 1)])
        bound = min(reduction, 1.0 / self.hierarchy.max_branching)
        satisfied = largest <= bound * np.concatenate([[np.inf], largest[:-1]]) + ANGLE_TOLERANCE
        return HalfAngleSchedule(largest, bound, satisfied)

    def containment(self, half_angles: ArrayLike | None = None) -> Violations:
        """Find the descendants j of each synset i that violate ``angle(a(i), a(j)) <= theta_level(i)``.

        The root and leaves are not compared. `half_angles` holds the theta of levels 1, 2, ... in degrees; the default
        is `geometric_schedule`.
        """
        schedule = self.geometric_schedule() if half_angles is None else np.array(half_angles, dtype=np.float64)
        if schedule.shape != (self.hierarchy.depth,):
            raise DictionaryError(
                f"half_angles must have one angle for each of the {self.hierarchy.depth} levels below the root, "
                f"got shape {schedule.shape}"
            )
        if not np.all((schedule >= 0) & (schedule <= 180)):
            raise DictionaryError(f"half_angles must be between 0 and 180 degrees, got {schedule.tolist()}")
        fraction, violation = (np.full(len(self.hierarchy), np.nan) for _ in range(2))
        for i in self._inner:
            excess = self._angles_below[i] - schedule[self.hierarchy.levels[i] - 1]
            outside = excess > ANGLE_TOLERANCE
            fraction[i], violation[i] = outside.mean(), np.where(outside, excess, 0.0).mean()
        return Violations(fraction, violation, np.array([len(angles) for angles in self._angles_below]), schedule)

    def disjointness(self) -> Violations:
        """Find the other synsets that lie inside the cone of each synset, as in the paper.

        The cone of i is just wide enough for its descendants. Synset j violates the condition by
        ``max(0, theta_i - angle(a(i), a(j)))``. The others are all synsets except the root, the synset itself, its
        ancestors and its descendants. Ancestors are counted separately: they are close by construction, and the paper's
        condition on sibling cones does not cover them.
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
        return Violations(fraction, violation, n_others, cones, ancestors)

    def sibling_cones(self) -> Violations:
        """Find the pairs of children whose cones intersect, for every parent including the root.

        Two cones are disjoint if ``angle(a(j), a(k)) > theta_j + theta_k``.
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
        return Violations(fraction, violation, n_pairs, cones)

    def orthogonality(self, random_state: int | np.random.Generator | None = 0) -> Orthogonality:
        """Compute the cosines between atoms and their parents' embeddings, and between atoms and random other parents.

        ``cos(a(c) - a(p), a(p))`` is 0 if the step to the child does not change the coarser concept. `random_state`
        seeds the choice of another parent for each atom, among all inner synsets except the root.
        """
        atoms, parents = self._unit_atoms, self._edge_parents
        atom = np.flatnonzero((parents > 0) & atoms.any(axis=1)).astype(np.int64)
        cosine = np.einsum("nd,nd->n", atoms[atom], self._units[parents[atom]])
        candidates = self._inner
        if len(candidates) < 2:
            return Orthogonality(atom, cosine, np.full(len(atom), np.nan))
        rng = np.random.default_rng(random_state)
        place = np.searchsorted(candidates, parents[atom])
        # A cyclic shift by 1 to m - 1 places never returns the atom's own parent.
        other = candidates[(place + rng.integers(1, len(candidates), size=len(atom))) % len(candidates)]
        return Orthogonality(atom, cosine, np.einsum("nd,nd->n", atoms[atom], self._units[other]))

    def simplex(self) -> SimplexRegularity:
        """Measure how far the children of each synset are from a regular simplex.

        Let ``c_j`` be a(j) minus the mean of the b children. In a regular simplex, ``cos(c_j, c_k) = -1/(b - 1)`` and
        all norms are equal. Two children always form one.
        """
        parents, most = np.flatnonzero(self._n_children > 1), self.hierarchy.max_branching
        refuse_quadratic(most, most, "simplex compares the children of one synset")
        results = np.array([_simplex_of(self.dictionary.synset_embeddings[self._children(p)]) for p in parents])
        return SimplexRegularity(parents, *results.reshape(-1, 2).T)

    def dimension_bound(self) -> DimensionBound:
        """Compare the dictionary's dimensions with those that orthogonality and regular simplices need."""
        depth, branching, inner = self.hierarchy.depth, self.hierarchy.max_branching, self._n_children > 0
        by_parents = int((self.hierarchy.levels[inner] + self._n_children[inner] - 1).max())
        return DimensionBound(self.dictionary.n_dims, depth + branching - 1, by_parents)


def refuse_quadratic(rows: int, columns: int, what: str, way_out: str = "") -> None:
    """Raise an error if there are so many pairs that comparing them would take hours."""
    if rows * columns > MAX_PAIRS:
        raise DictionaryError(
            f"{what}, and {rows:,} x {columns:,} pairs are more than {MAX_PAIRS:,}; "
            f"restrict the hierarchy to fewer leaves{way_out}"
        )


def _pairs(units: NDArray[Any]) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield all pairs i < j and the products of rows i and j, in blocks that bound memory."""
    for rows in blocks(0, len(units), len(units)):
        products = units[rows] @ units[rows.start :].T
        i, j = np.triu_indices(len(products), k=1, m=products.shape[1])
        yield rows.start + i, rows.start + j, products[i, j]


def _simplex_of(children: Floats) -> tuple[float, float]:
    """Return the mean deviation of the cosines from those of a regular simplex, and the spread of the norms."""
    centred = children - children.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1)
    centred[norms <= 1e-12 * np.linalg.norm(children, axis=1).max()] = 0.0  # rounding, not a direction
    regular, n_pairs = -1.0 / (len(centred) - 1), len(centred) * (len(centred) - 1) // 2
    mean = sum(float(np.abs(cosines - regular).sum()) / n_pairs for *_, cosines in _pairs(unit_rows(centred)))
    return mean, float(norms.std() / norms.mean()) if centred.any() else np.nan


def _degrees(cosines: Floats) -> Floats:
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))


def _share(hits: NDArray[np.bool_], of: NDArray[np.bool_]) -> Floats:
    return np.asarray(hits.sum(axis=1) / np.maximum(of.sum(axis=1), 1))
