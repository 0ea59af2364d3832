"""Cones: subtrees nested in them, other synsets out of them, siblings' apart, half-angles that shrink by level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.checks import blocks
from hcep.dictionary.geometry.space import Floats, Space, mean_of, pairs, refuse_quadratic
from hcep.errors import DictionaryError

#: Degrees. The arc cosine of equal directions is off by up to some 1e-6 degrees; less than this is no violation.
ANGLE_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Containment:
    """Subtree containment: do the descendants of a synset lie in its cone?"""

    half_angles: Floats  # (depth,) Half-angle of the cones of each level in degrees, level 1 first
    fraction: Floats  # (n_synsets,) Share of a synset's descendants outside its cone; NaN for the root and for leaves
    #: (n_synsets,) Mean of the degrees by which descendants miss the cone, those inside counted as 0; NaN likewise
    mean_violation: Floats

    @property
    def satisfied(self) -> bool:
        """Whether every cone contains its subtree."""
        return not np.any(self.fraction > 0)


@dataclass(frozen=True, eq=False)
class Disjointness:
    """How far other synsets reach into the cone of a synset, as in the paper's figure of well-clustered synsets.

    The others of a synset are neither the root, nor itself, nor above or below it. Its ancestors are counted apart:
    they lie near it by construction, and sibling-cone disjointness says nothing about them.
    """

    half_angles: Floats  # (n_synsets,) Half-angles of the cones in degrees; NaN for the root
    n_others: NDArray[np.int64]
    fraction: Floats  # (n_synsets,) Share of the others inside the cone; 0 where there are none, NaN for the root
    #: (n_synsets,) Mean of the degrees by which the others are inside, those outside counted as 0; NaN for the root
    mean_violation: Floats
    #: (n_synsets,) Share of the ancestors below the root inside the cone; 0 where there are none, NaN for the root
    ancestor_fraction: Floats


@dataclass(frozen=True, eq=False)
class SiblingCones:
    """Sibling-cone disjointness, the pairwise statement: the cones of two children of one parent do not intersect."""

    n_pairs: NDArray[np.int64]  # (n_synsets,) Pairs of children
    #: (n_synsets,) Share of the pairs whose cones intersect; NaN for synsets with fewer than two children
    fraction: Floats
    mean_violation: Floats  # (n_synsets,) Mean degrees of overlap, disjoint cones counted as 0; NaN likewise
    smallest_margin: Floats  # (n_synsets,) Least angle between two axes less both half-angles; NaN likewise

    @property
    def satisfied(self) -> bool:
        """Whether no two siblings' cones intersect."""
        return not np.any(self.fraction > 0)


@dataclass(frozen=True, eq=False)
class HalfAngleSchedule:
    """The observed half-angles by level, against the geometric decrease that suffices for well-clustered synsets."""

    level: NDArray[np.int64]
    largest: Floats  # (depth,) Largest half-angle among the synsets of the level, in degrees
    mean: Floats  # (depth,) Mean over the level's inner synsets; NaN where all are leaves
    ratio: Floats  # (depth,) Largest half-angle over that of the level above; NaN at level 1 and below zero half-angles
    bound: float  # What the ratio may be at most, ``min(r, 1/b)``
    satisfied: NDArray[np.bool_]


class Cones(Space):
    """The conditions on cones."""

    @cached_property
    def half_angles(self) -> Floats:
        """(n_synsets,) Largest angle between a synset and any of its descendants; 0 for leaves."""
        largest = np.array([angles.max(initial=0.0) for angles in self._angles_below])
        largest[0] = np.nan
        return largest

    @cached_property
    def parent_angles(self) -> Floats:
        """(n_atoms,) Angle between the child and the parent of each edge; NaN for the root's edges."""
        units, parents = self._units, self._edge_parents
        angles = _degrees(np.einsum("nd,nd->n", units[parents], units[self.hierarchy.child_index]))
        angles[parents == 0] = np.nan
        return angles

    def geometric_schedule(self, reduction: float = 0.5) -> Floats:
        """Half-angles by level, (depth,), that decrease just fast enough for well-clustered synsets.

        They start at the largest half-angle observed at level 1 and decrease by ``min(reduction, 1/b)``, b the largest
        number of children of any synset (the paper's proposition on the half-angle schedule).
        """
        schedule = self.half_angle_schedule(reduction)
        return np.asarray(schedule.largest[0] * schedule.bound ** np.arange(self.hierarchy.depth))

    def containment(self, half_angles: ArrayLike | None = None) -> Containment:
        """Which descendants j of each synset i break ``angle(a(i), a(j)) <= theta_level(i)``, and by how much.

        `half_angles` has the theta of levels 1, 2, ... in degrees; it is `geometric_schedule` when left out. Raises
        DictionaryError: when `half_angles` is not one angle per level between 0 and 180.
        """
        schedule = self.geometric_schedule() if half_angles is None else self._checked_schedule(half_angles)
        fraction, violation = (np.full(len(self.hierarchy), np.nan) for _ in range(2))
        for i in self._inner:
            excess = self._angles_below[i] - schedule[self.hierarchy.levels[i] - 1]
            outside = excess > ANGLE_TOLERANCE
            fraction[i] = outside.mean()
            violation[i] = np.where(outside, excess, 0.0).mean()
        return Containment(schedule, fraction, violation)

    def disjointness(self, half_angles: ArrayLike | None = None) -> Disjointness:
        """How many other synsets lie inside the cone of each synset, and how deep.

        The violation of synset j in the cone of i is ``max(0, theta_i - angle(a(i), a(j)))``. `half_angles` has the
        theta of each level; when left out, each cone is the narrowest that holds its descendants. Raises
        DictionaryError: for a wrong `half_angles`, or more than 20,000 synsets.
        """
        n = len(self.hierarchy)
        refuse_quadratic(n, n, "disjointness compares every synset with every other")
        cones = self._cones(half_angles)
        n_others = np.zeros(n, dtype=np.int64)
        fraction, violation, ancestors = (np.full(n, np.nan) for _ in range(3))
        for rows in blocks(1, n, n):
            depth = cones[rows, None] - _degrees(self._units[rows] @ self._units.T)
            inside = depth >= -ANGLE_TOLERANCE
            related, above = self._related(rows)
            others = ~related
            n_others[rows] = others.sum(axis=1)
            fraction[rows] = _share(inside & others, others)
            violation[rows] = np.where(others, np.maximum(depth, 0.0), 0.0).sum(axis=1) / np.maximum(n_others[rows], 1)
            ancestors[rows] = _share(inside & above, above)
        return Disjointness(cones, n_others, fraction, violation, ancestors)

    def sibling_cones(self, half_angles: ArrayLike | None = None) -> SiblingCones:
        """Which pairs of children have cones that intersect, for every parent, the root among them.

        Disjoint means ``angle(a(j), a(j')) > theta_j + theta_j'``, with `half_angles` as for `disjointness`.
        """
        cones = self._cones(half_angles)
        n = len(self.hierarchy)
        n_pairs = np.zeros(n, dtype=np.int64)
        fraction, violation, smallest = (np.full(n, np.nan) for _ in range(3))
        for p in self._branching_parents:
            children = self._children(p)
            refuse_quadratic(len(children), len(children), "sibling_cones compares the children of one synset")
            widths = cones[children]
            n_pairs[p] = len(children) * (len(children) - 1) // 2
            fraction[p], violation[p], smallest[p] = 0.0, 0.0, np.inf
            for i, j, cosines in pairs(self._units[children]):
                margin = _degrees(cosines) - widths[i] - widths[j]
                fraction[p] += np.count_nonzero(margin <= ANGLE_TOLERANCE) / n_pairs[p]
                violation[p] += np.maximum(-margin, 0.0).sum() / n_pairs[p]
                smallest[p] = margin.min(initial=smallest[p])
        return SiblingCones(n_pairs, fraction, violation, smallest)

    def half_angle_schedule(self, reduction: float = 0.5) -> HalfAngleSchedule:
        """The observed half-angles by level against the decrease the paper asks for.

        ``theta_{l+1} <= min(r, 1/b) theta_l`` with a `reduction` r < 1/2 is enough for a placement with nested subtrees
        and disjoint sibling cones to exist. It is not necessary, and it is strict: b is the largest branching anywhere.
        Raises DictionaryError: when `reduction` does not lie in (0, 1/2].
        """
        if not 0.0 < reduction <= 0.5:
            raise DictionaryError(f"reduction must lie in (0, 1/2], got {reduction!r}")
        levels, cones = self.hierarchy.levels, self.half_angles
        level = np.arange(1, self.hierarchy.depth + 1, dtype=np.int64)
        largest = np.array([cones[levels == at].max() for at in level])
        inner = np.diff(self.hierarchy.child_pointer) > 0
        mean = np.array([mean_of(cones[(levels == at) & inner]) for at in level])
        bound = min(reduction, 1.0 / self.hierarchy.max_branching)
        above = np.concatenate([[np.inf], largest[:-1]])
        ratio = np.divide(largest, above, out=np.full(len(level), np.nan), where=above > 0)
        ratio[0] = np.nan
        satisfied = largest <= bound * above + ANGLE_TOLERANCE
        return HalfAngleSchedule(level, largest, mean, ratio, bound, satisfied)

    @cached_property
    def _angles_below(self) -> list[Floats]:
        """Angle between each synset and each of its descendants; empty for the root."""
        units = self._units
        return [np.empty(0)] + [_degrees(units[self._below[i]] @ units[i]) for i in range(1, len(units))]

    def _related(self, rows: slice) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each row's synset: which are the root, itself, above or below it; and which are above it."""
        related = np.zeros((rows.stop - rows.start, len(self.hierarchy)), dtype=np.bool_)
        above = np.zeros_like(related)
        related[:, 0] = True
        for row, i in enumerate(range(rows.start, rows.stop)):
            above[row, self._above[i]] = True
            related[row, self._below[i]] = True
            related[row, i] = True
        return related | above, above

    def _cones(self, half_angles: ArrayLike | None) -> Floats:
        """Half-angle of every synset's cone: as observed, or that of its level."""
        if half_angles is None:
            return self.half_angles
        cones = self._checked_schedule(half_angles)[self.hierarchy.levels - 1]
        cones[0] = np.nan
        return cones

    def _checked_schedule(self, half_angles: ArrayLike) -> Floats:
        schedule = np.array(half_angles, dtype=np.float64)
        if schedule.shape != (self.hierarchy.depth,):
            raise DictionaryError(
                f"half_angles must hold one angle for each of the {self.hierarchy.depth} levels below the root, "
                f"got shape {schedule.shape}"
            )
        if not np.all((schedule >= 0) & (schedule <= 180)):
            raise DictionaryError(f"half_angles must lie between 0 and 180 degrees, got {schedule.tolist()}")
        return schedule


def _degrees(cosines: Floats) -> Floats:
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))


def _share(hits: NDArray[np.bool_], of: NDArray[np.bool_]) -> Floats:
    return np.asarray(hits.sum(axis=1) / np.maximum(of.sum(axis=1), 1))
