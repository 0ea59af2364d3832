"""The paper's geometric conditions, measured: cones, orthogonality, simplices, and what is provably recovered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError

if TYPE_CHECKING:
    from hcep.dictionary.concept_dictionary import ConceptDictionary
    from hcep.dictionary.path_basis import PathBasis
    from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]

#: Degrees. The arc cosine of equal directions is off by up to some 1e-6 degrees; less than this is no violation.
ANGLE_TOLERANCE = 1e-5
#: A recovery coefficient must be this far below 1: opposite atoms make it 1 up to rounding, on either side.
RECOVERY_TOLERANCE = 1e-9
#: Comparisons of everything with everything stop here: 20,000 synsets, minutes on two cores.
MAX_PAIRS = 20_000**2
#: Numbers held at once by the blocked computations (64 MB of float64).
BLOCK = 8_000_000


@dataclass(frozen=True, eq=False)
class Containment:
    """Subtree containment: do the descendants of a synset lie in its cone?

    Attributes
    ----------
    half_angles : (depth,) float64
        Half-angle of the cones of each level in degrees, level 1 first.
    fraction : (n_synsets,) float64
        Share of a synset's descendants outside its cone; NaN for the root and for leaves.
    mean_violation : (n_synsets,) float64
        Mean of the degrees by which descendants miss the cone, those inside counted as 0; NaN likewise.
    """

    half_angles: Floats
    fraction: Floats
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

    Attributes
    ----------
    half_angles : (n_synsets,) float64
        Half-angles of the cones in degrees; NaN for the root.
    n_others : (n_synsets,) int64
    fraction : (n_synsets,) float64
        Share of the others inside the cone; 0 where there are none, NaN for the root.
    mean_violation : (n_synsets,) float64
        Mean of the degrees by which the others are inside, those outside counted as 0; NaN for the root.
    ancestor_fraction : (n_synsets,) float64
        Share of the ancestors, the root left out, inside the cone; 0 where there are none, NaN for the root.
    """

    half_angles: Floats
    n_others: NDArray[np.int64]
    fraction: Floats
    mean_violation: Floats
    ancestor_fraction: Floats


@dataclass(frozen=True, eq=False)
class SiblingCones:
    """Sibling-cone disjointness, the pairwise statement: the cones of two children of one parent do not intersect.

    Attributes
    ----------
    n_pairs : (n_synsets,) int64
        Pairs of children.
    fraction : (n_synsets,) float64
        Share of the pairs whose cones intersect; NaN for synsets with fewer than two children.
    mean_violation : (n_synsets,) float64
        Mean degrees of overlap, disjoint cones counted as 0; NaN likewise.
    smallest_margin : (n_synsets,) float64
        Least angle between two axes less both half-angles; NaN likewise.
    """

    n_pairs: NDArray[np.int64]
    fraction: Floats
    mean_violation: Floats
    smallest_margin: Floats

    @property
    def satisfied(self) -> bool:
        """Whether no two siblings' cones intersect."""
        return not np.any(self.fraction > 0)


@dataclass(frozen=True, eq=False)
class HalfAngleSchedule:
    """The observed half-angles by level, against the geometric decrease that suffices for well-clustered synsets.

    Attributes
    ----------
    level : (depth,) int64
    largest : (depth,) float64
        Largest half-angle among the synsets of the level, in degrees.
    mean : (depth,) float64
        Mean over the level's inner synsets; NaN where all are leaves.
    ratio : (depth,) float64
        Largest half-angle over that of the level above; NaN at level 1 and below a level of zero half-angles.
    bound : float
        What the ratio may be at most, ``min(r, 1/b)``.
    satisfied : (depth,) bool
    """

    level: NDArray[np.int64]
    largest: Floats
    mean: Floats
    ratio: Floats
    bound: float
    satisfied: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Orthogonality:
    """Hierarchical orthogonality: the cosine between an atom and its parent's embedding, which should be 0.

    Attributes
    ----------
    atom : (n_pairs,) int64
        The atoms compared: those that are not zero and do not hang from the root.
    cosine : (n_pairs,) float64
        Cosine of the atom and its own parent's embedding.
    random_cosine : (n_pairs,) float64
        The control: cosine of the same atom and a random other parent's embedding; NaN where there is no other.
    """

    atom: NDArray[np.int64]
    cosine: Floats
    random_cosine: Floats


@dataclass(frozen=True, eq=False)
class SimplexRegularity:
    """How near the children of a synset are to a regular simplex around their mean.

    Attributes
    ----------
    parent : (n_parents,) int64
        Index of the synsets with at least two children.
    mean_deviation, largest_deviation : (n_parents,) float64
        Absolute difference between the cosines of centred children and ``-1/(b - 1)``, over all pairs.
    norm_spread : (n_parents,) float64
        Standard deviation of the centred children's norms over their mean; NaN where all children coincide.
    """

    parent: NDArray[np.int64]
    mean_deviation: Floats
    largest_deviation: Floats
    norm_spread: Floats


@dataclass(frozen=True)
class DimensionBound:
    """The dimension that orthogonality and regular simplices need.

    Attributes
    ----------
    depth, branching, n_dims : int
    required : int
        ``depth + branching - 1``, the paper's bound.
    required_by_parents : int
        Largest ``level(p) + n_children(p) - 1`` over parents p, which is what they really need: p and the synsets above
        it take a dimension each, the zero root none, and the simplex of the children the rest. Below `required`, which
        counts the root as a direction and adds up the deepest and the widest place wherever they are.
    """

    depth: int
    branching: int
    n_dims: int
    required: int
    required_by_parents: int

    @property
    def satisfied(self) -> bool:
        """Whether the dimensions suffice for every parent; ``required <= n_dims`` is enough for that."""
        return self.required_by_parents <= self.n_dims


@dataclass(frozen=True, eq=False)
class Recovery:
    """What is provably recovered from images without noise, leaf by leaf.

    Attributes
    ----------
    leaves : tuple of str
    paths : tuple of tuple of str
        Every rooted path of these leaves.
    leaf_of_path : (n_paths,) int64
        Position in `leaves`.
    path_nested : (n_paths, depth + 1) float64
        Exact recovery coefficient ERC(S | T_l) of each path along the nested restriction; NaN beyond the path's end and
        infinite where its atoms are linearly dependent (a zero atom is).
    path_radius : (n_paths,) float64
        How far from the leaf's embedding an image may be for HB-OMP with a beam of 1 to follow the path: exact, 0 where
        it does not even without noise, infinite where no synset on the path has a sibling.
    """

    leaves: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    leaf_of_path: NDArray[np.int64]
    path_nested: Floats
    path_radius: Floats

    @cached_property
    def best_path(self) -> NDArray[np.int64]:
        """(n_leaves,) Row of each leaf's path with the smallest ERC over the full dictionary; ties: the first."""
        order = np.lexsort((self.path_nested[:, 0], self.leaf_of_path))
        return order[np.searchsorted(self.leaf_of_path[order], np.arange(len(self.leaves)))]

    @property
    def nested(self) -> Floats:
        """(n_leaves, depth + 1) ERC(S | T_l) of each leaf's best path, l = 0 first; see `path_nested`."""
        rows: Floats = self.path_nested[self.best_path]
        return rows

    @property
    def coefficient(self) -> Floats:
        """(n_leaves,) ERC(S) over the full dictionary."""
        return self.nested[:, 0]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """(n_leaves,) Whether ERC(S) < 1: OMP recovers the path from every image in the span of its atoms."""
        return self.coefficient < 1.0 - RECOVERY_TOLERANCE

    @property
    def certified_from(self) -> NDArray[np.int64]:
        """(n_leaves,) The least l with ERC(S | T_l) < 1; -1 for dependent atoms.

        OMP recovers the path once it is confined to the subtree of the path's synset at this level.
        """
        below = self.nested < 1.0 - RECOVERY_TOLERANCE
        return np.where(below.any(axis=1), below.argmax(axis=1), -1)

    @property
    def radius(self) -> Floats:
        """(n_leaves,) The largest `path_radius` of each leaf's paths."""
        radius = np.zeros(len(self.leaves))
        np.maximum.at(radius, self.leaf_of_path, self.path_radius)
        return radius

    @property
    def greedily_recovered(self) -> NDArray[np.bool_]:
        """(n_leaves,) Whether HB-OMP with a beam of 1 finds a path to the leaf from the leaf's own embedding."""
        return self.radius > 0.0


class Geometry:
    """Diagnostics of a dictionary's geometry; get one as ``dictionary.geometry``.

    Arrays over synsets are in the hierarchy's index order, angles in degrees. The root has no direction: its entries
    are NaN. Another synset whose embedding is zero counts as 90 degrees away from everything. The level of a synset
    with several parents is the length of its longest rooted path.

    Parameters
    ----------
    dictionary : ConceptDictionary

    Examples
    --------
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(depth=2, dim=8, half_angle=40, reduction=0.3, orientation="random")
    >>> geometry = data.dictionary.geometry
    >>> geometry
    Geometry(14 synsets, 13 atoms, 8 dimensions)
    >>> bool(abs(geometry.orthogonality().cosine).max() < 1e-12)
    True
    >>> geometry.parent_angles[1:4].round(6)
    array([40., 40., 40.])
    >>> geometry.sibling_cones().satisfied
    True
    >>> geometry.recovery().greedily_recovered.all()
    np.True_
    """

    def __init__(self, dictionary: ConceptDictionary) -> None:
        self.dictionary = dictionary
        self.hierarchy: Hierarchy = dictionary.hierarchy

    def __repr__(self) -> str:
        return (
            f"Geometry({len(self.hierarchy):,} synsets, {self.dictionary.n_atoms:,} atoms, "
            f"{self.dictionary.n_dims:,} dimensions)"
        )

    # -- cones --------------------------------------------------------------------------------------------------------

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

        Parameters
        ----------
        reduction : float
            The r of the Notes, in (0, 1/2].

        Notes
        -----
        Starts at the largest half-angle observed at level 1 and multiplies by ``min(r, 1/b)``, b the largest number of
        children of any synset (the paper's proposition on the half-angle schedule).
        """
        schedule = self.half_angle_schedule(reduction)
        geometric: Floats = schedule.largest[0] * schedule.bound ** np.arange(self.hierarchy.depth)
        return geometric

    def containment(self, half_angles: ArrayLike | None = None) -> Containment:
        """Which descendants of each synset lie outside its cone.

        Parameters
        ----------
        half_angles : (depth,) array, optional
            Half-angle of the cones of levels 1, 2, ... in degrees; `geometric_schedule` when left out.

        Raises
        ------
        DictionaryError
            When `half_angles` is not one angle a level between 0 and 180.

        Notes
        -----
        ``angle(a(i), a(j)) <= theta_level(i)`` for every descendant j of i.
        """
        schedule = self.geometric_schedule() if half_angles is None else self._checked_schedule(half_angles)
        fraction = np.full(len(self.hierarchy), np.nan)
        violation = np.full(len(self.hierarchy), np.nan)
        for i in self._inner:
            excess = self._angles_below[i] - schedule[self.hierarchy.levels[i] - 1]
            outside = excess > ANGLE_TOLERANCE
            fraction[i] = outside.mean()
            violation[i] = np.where(outside, excess, 0.0).mean()
        return Containment(schedule, fraction, violation)

    def disjointness(self, half_angles: ArrayLike | None = None) -> Disjointness:
        """How many other synsets lie inside the cone of each synset, and how deep.

        Parameters
        ----------
        half_angles : (depth,) array, optional
            Half-angle of the cones by level in degrees. When left out, each synset's cone is the narrowest that holds
            its descendants (`half_angles` of this object).

        Raises
        ------
        DictionaryError
            For a wrong `half_angles`, or more than 20,000 synsets.

        Notes
        -----
        The violation of synset j in the cone of i is ``max(0, theta_i - angle(a(i), a(j)))``.
        """
        n = len(self.hierarchy)
        _refuse_quadratic(n, n, "disjointness compares every synset with every other")
        cones = self._cones(half_angles)
        n_others = np.zeros(n, dtype=np.int64)
        fraction, violation, ancestors = (np.full(n, np.nan) for _ in range(3))
        step = max(1, BLOCK // n)
        for start in range(1, n, step):
            rows = np.arange(start, min(start + step, n))
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

        Parameters
        ----------
        half_angles : (depth,) array, optional
            As for `disjointness`.

        Notes
        -----
        Disjoint means ``angle(a(j), a(j')) > theta_j + theta_j'``.
        """
        cones = self._cones(half_angles)
        n = len(self.hierarchy)
        n_pairs = np.zeros(n, dtype=np.int64)
        fraction, violation, smallest = (np.full(n, np.nan) for _ in range(3))
        for p in self._branching_parents:
            children = self._children(p)
            _refuse_quadratic(len(children), len(children), "sibling_cones compares the children of one synset")
            widths = cones[children]
            n_pairs[p] = len(children) * (len(children) - 1) // 2
            fraction[p], violation[p], smallest[p] = 0.0, 0.0, np.inf
            for i, j, cosines in _pairs(self._units[children]):
                margin = _degrees(cosines) - widths[i] - widths[j]
                fraction[p] += np.count_nonzero(margin <= ANGLE_TOLERANCE) / n_pairs[p]
                violation[p] += np.maximum(-margin, 0.0).sum() / n_pairs[p]
                smallest[p] = margin.min(initial=smallest[p])
        return SiblingCones(n_pairs, fraction, violation, smallest)

    def half_angle_schedule(self, reduction: float = 0.5) -> HalfAngleSchedule:
        """The observed half-angles by level against the decrease the paper asks for.

        Parameters
        ----------
        reduction : float
            The r of the Notes, in (0, 1/2]; the default is the limit of what the paper allows.

        Raises
        ------
        DictionaryError
            When `reduction` is out of its range.

        Notes
        -----
        ``theta_{l+1} <= min(r, 1/b) theta_l`` with r < 1/2 is enough for a placement with nested subtrees and disjoint
        sibling cones to exist. It is not necessary, and it is strict: b is the largest branching anywhere.
        """
        if not 0.0 < reduction <= 0.5:
            raise DictionaryError(f"reduction must lie in (0, 1/2], got {reduction!r}")
        levels, cones = self.hierarchy.levels, self.half_angles
        level = np.arange(1, self.hierarchy.depth + 1, dtype=np.int64)
        largest = np.array([cones[levels == at].max() for at in level])
        inner = np.diff(self.hierarchy.child_pointer) > 0
        mean = np.array([_mean(cones[(levels == at) & inner]) for at in level])
        bound = min(reduction, 1.0 / self.hierarchy.max_branching)
        above = np.concatenate([[np.inf], largest[:-1]])
        ratio = np.divide(largest, above, out=np.full(len(level), np.nan), where=above > 0)
        ratio[0] = np.nan
        satisfied = largest <= bound * above + ANGLE_TOLERANCE
        return HalfAngleSchedule(level, largest, mean, ratio, bound, satisfied)

    # -- orthogonality, simplices, dimensions -------------------------------------------------------------------------

    def orthogonality(self, random_state: int | np.random.Generator | None = 0) -> Orthogonality:
        """Cosines between atoms and their parents' embeddings, and between atoms and random other parents'.

        Parameters
        ----------
        random_state : int, numpy.random.Generator or None
            Draws the random pairings: one of the other synsets that have children, the root left out, for each atom.

        Notes
        -----
        ``cos(a(c) - a(p), a(p))``, which is 0 when the refinement leaves the coarser concept alone.
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

        Notes
        -----
        With ``c_j = a(j) - mean of the b children``, a regular simplex has ``cos(c_j, c_k) = -1/(b - 1)`` and equal
        norms. Two children always have both.
        """
        parents = self._branching_parents
        most = self.hierarchy.max_branching
        _refuse_quadratic(most, most, "simplex compares the children of one synset")
        results = np.array([_simplex_of(self.dictionary.synset_embeddings[self._children(p)]) for p in parents])
        mean, largest, spread = results.reshape(-1, 3).T
        return SimplexRegularity(parents, mean, largest, spread)

    def dimension_bound(self) -> DimensionBound:
        """Whether the dictionary has the dimensions that orthogonality and regular simplices need.

        Notes
        -----
        ``d >= depth + branching - 1`` is enough; see `DimensionBound` for what is necessary.
        """
        depth, branching = self.hierarchy.depth, self.hierarchy.max_branching
        n_children = np.diff(self.hierarchy.child_pointer)
        inner = n_children > 0
        by_parents = int((self.hierarchy.levels[inner] + n_children[inner] - 1).max())
        return DimensionBound(depth, branching, self.dictionary.n_dims, depth + branching - 1, by_parents)

    # -- recovery -----------------------------------------------------------------------------------------------------

    def recovery(self, leaves: Iterable[str] | None = None) -> Recovery:
        r"""Exact recovery coefficients and the radius of greedy recovery, for every rooted path of every leaf.

        Parameters
        ----------
        leaves : iterable of str, optional
            The leaves to look at; all when left out. Their atoms are still compared with the whole dictionary's.

        Raises
        ------
        HierarchyError
            For an id that is not a leaf of the hierarchy.
        DictionaryError
            When paths times atoms exceed 400 million.

        Notes
        -----
        With normalised atoms, S the atoms of a rooted path and T_l those of S and of the edges below the path's synset
        at level l (T_0 is everything)::

            ERC(S | T) = max over j in T \ S of || pinv(D_S) d_j ||_1

        Below 1, OMP confined to T recovers S from every ``x = D_S z`` without a zero in z. The maximum is over fewer
        atoms as l grows, so it never increases; at the leaf nothing competes and it is 0. Zero atoms cannot be picked
        and do not compete.

        The coefficient speaks of OMP, which may pick the path's atoms in any order. HB-OMP must take them from the top
        down, so ``ERC < 1`` does *not* imply that it succeeds with a beam of 1. Its own certificate is the radius: with
        u_v the atom of v made orthogonal to the atoms above and divided by the atom's norm, HB-OMP prefers child v
        over w as long as ``|<x, u_v>| > |<x, u_w>|``, whose boundary is two hyperplanes at distances::

            |<x, u_v - u_w>| / ||u_v - u_w||    and    |<x, u_v + u_w>| / ||u_v + u_w||

        The least of these along the path, from x = a(leaf), is the radius (with the paper's rule, tolerance 0 and no
        step limit).
        """
        if leaves is None:
            return self._recovery_of_all
        return self._recovery(tuple(dict.fromkeys(map(self.hierarchy.leaf_of, leaves))))

    # -- in short -----------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, float]:
        """Every diagnostic as one or two floats: means over inner synsets, sibling pairs or atoms, shares of leaves.

        NaN where nothing applies (no inner synset but the root, say).
        """
        containment, disjointness, siblings = self.containment(), self.disjointness(), self.sibling_cones()
        schedule, orthogonality = self.half_angle_schedule(), self.orthogonality()
        simplex, dimension, recovery = self.simplex(), self.dimension_bound(), self.recovery()
        return {
            "containment_fraction_outside": _mean(containment.fraction),
            "containment_mean_violation": _mean(containment.mean_violation),
            "disjointness_fraction_inside": _mean(disjointness.fraction[self._inner]),
            "disjointness_mean_violation": _mean(disjointness.mean_violation[self._inner]),
            "sibling_cones_fraction_intersecting": _mean(siblings.fraction, siblings.n_pairs),
            "sibling_cones_mean_overlap": _mean(siblings.mean_violation, siblings.n_pairs),
            "half_angle_largest_at_level_1": float(schedule.largest[0]),
            "half_angle_levels_on_schedule": float(schedule.satisfied.mean()),
            "orthogonality_mean_abs_cosine": _mean(np.abs(orthogonality.cosine)),
            "orthogonality_mean_abs_cosine_random": _mean(np.abs(orthogonality.random_cosine)),
            "simplex_mean_deviation": _mean(simplex.mean_deviation),
            "simplex_mean_norm_spread": _mean(simplex.norm_spread),
            "dimension_required": float(dimension.required),
            "dimension_available": float(dimension.n_dims),
            "recovery_median_coefficient": float(np.median(recovery.coefficient)),
            "recovery_certified": float(recovery.certified.mean()),
            "recovery_by_beam_1": float(recovery.greedily_recovered.mean()),
            "recovery_median_radius": float(np.median(recovery.radius)),
        }

    def format_summary(self) -> str:
        """`summary` as a table of text, one diagnostic a line."""
        rows = self.summary()
        width = max(map(len, rows))
        return "\n".join(f"{name.replace('_', ' '):<{width}}  {value:>10.4g}" for name, value in rows.items())

    # -- private: what the diagnostics share --------------------------------------------------------------------------

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

    @cached_property
    def _angles_below(self) -> list[Floats]:
        """Angle between each synset and each of its descendants; empty for the root."""
        units = self._units
        return [np.empty(0)] + [_degrees(units[self._below[i]] @ units[i]) for i in range(1, len(units))]

    def _children(self, i: int) -> NDArray[np.int64]:
        pointer = self.hierarchy.child_pointer
        return self.hierarchy.child_index[pointer[i] : pointer[i + 1]].astype(np.int64)

    def _related(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each row's synset: which are the root, itself, above or below it; and which are above it."""
        related = np.zeros((len(rows), len(self.hierarchy)), dtype=np.bool_)
        above = np.zeros_like(related)
        related[:, 0] = True
        for row, i in enumerate(rows):
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

    @cached_property
    def _recovery_of_all(self) -> Recovery:
        return self._recovery(self.hierarchy.leaves)

    def _recovery(self, leaves: tuple[str, ...]) -> Recovery:
        basis = self.dictionary.path_basis
        tree = basis.tree
        place = np.full(len(self.hierarchy), -1, dtype=np.int64)
        place[[self.hierarchy.index(leaf) for leaf in leaves]] = np.arange(len(leaves))
        ends = tree.leaf_nodes[place[tree.synset[tree.leaf_nodes]] >= 0]
        _refuse_quadratic(
            len(ends),
            self.dictionary.n_atoms,
            "recovery compares every rooted path with every atom",
            "; pass leaves=[...]",
        )
        paths = [basis.nodes_of_path[v, : tree.level[v]] for v in ends]
        return Recovery(
            leaves=leaves,
            paths=tuple(tuple(self.hierarchy.ids[i] for i in tree.synset[path]) for path in paths),
            leaf_of_path=place[tree.synset[ends]],
            path_nested=self._nested_coefficients(basis, paths),
            path_radius=self._greedy_radii(basis, ends),
        )

    def _nested_coefficients(self, basis: PathBasis, paths: list[NDArray[np.int32]]) -> Floats:
        """ERC(S | T_l) of every path, (n_paths, depth + 1), in blocks of neighbouring paths that share ancestors."""
        atoms = self._unit_atoms
        nested = np.full((len(paths), basis.tree.depth + 1), np.nan)
        step = max(1, BLOCK // (len(atoms) * basis.tree.depth))
        for start in range(0, len(paths), step):
            block = paths[start : start + step]
            nodes = np.unique(np.concatenate(block))
            along = _directions(basis, nodes) @ atoms.T
            for row, path in enumerate(block, start):
                nested[row, : len(path) + 1] = self._coefficients_of(basis, path, along[np.searchsorted(nodes, path)])
        return nested

    def _coefficients_of(self, basis: PathBasis, path: NDArray[np.int32], along: Floats) -> Floats:
        """ERC(S | T_l), l = 0 .. len(path), from ``along = Q_S^T D``: pinv(D_S) is R^-1 Q_S^T."""
        if (basis.column[path] < 0).any():
            return np.full(len(path) + 1, np.inf)
        edges = basis.tree.edge[path]
        triangle = basis.triangle[path, : len(path)].T / np.linalg.norm(self.dictionary.atoms[edges], axis=1)
        competitors: Floats = np.abs(solve_triangular(triangle, along, check_finite=False)).sum(axis=0)
        competitors[edges] = 0.0
        # Deepest l with the atom in T_l. The sets below the path's synsets are nested: deeper ones overwrite.
        deepest = np.zeros(len(self.hierarchy), dtype=np.int64)
        for level, synset in enumerate(basis.tree.synset[path], 1):
            deepest[synset] = level
            deepest[self._below[synset]] = level
        largest = np.zeros(len(path) + 1)
        np.maximum.at(largest, deepest[self._edge_parents], competitors)
        return np.maximum.accumulate(largest[::-1])[::-1]

    def _greedy_radii(self, basis: PathBasis, ends: NDArray[np.int64]) -> Floats:
        """Exact radius around a(leaf) in which HB-OMP with a beam of 1 follows the path to each node of `ends`."""
        tree = basis.tree
        nodes = basis.nodes_of_path[ends]
        radius = np.full(len(ends), np.inf)
        for level in range(tree.level[ends].max(initial=0)):
            rows = np.flatnonzero(nodes[:, level] >= 0)
            for parent, group in _grouped(tree.parent[nodes[rows, level]], rows):
                children = tree.first_child[parent] + np.arange(tree.n_children[parent])
                u = basis.share[children, None] * _directions(basis, children)
                images = self.dictionary.synset_embeddings[tree.synset[ends[group]]]
                reach = _step_radius(u, images, nodes[group, level] - children[0])
                radius[group] = np.minimum(radius[group], reach)
        dependent = ((basis.column[nodes] < 0) & (nodes >= 0)).any(axis=1)
        radius[dependent] = 0.0
        return radius


def _step_radius(u: Floats, images: Floats, chosen: NDArray[np.int32]) -> Floats:
    """How far each image is from a step that would not take its `chosen` row of `u`; 0 where it does not now.

    Parameters
    ----------
    u : (n_children, n_dims)
    images : (n_images, n_dims)
    chosen : (n_images,)
    """
    score = images @ u.T
    own = score[np.arange(len(score)), chosen][:, None]
    gram = u @ u.T
    square = np.diagonal(gram)
    sums = square[chosen, None] + square[None, :]
    apart = np.sqrt(np.maximum(sums - 2 * gram[chosen], 0.0))
    together = np.sqrt(np.maximum(sums + 2 * gram[chosen], 0.0))
    distance = np.minimum(_ratio(np.abs(own - score), apart), _ratio(np.abs(own + score), together))
    # A lead within rounding of a tie is a tie, and a tie is no certificate.
    lead = np.abs(own) - np.abs(score)
    distance[lead <= RECOVERY_TOLERANCE * np.linalg.norm(images, axis=1)[:, None]] = 0.0
    distance[np.arange(len(score)), chosen] = np.inf
    nearest: Floats = distance.min(axis=1)
    return nearest


def _simplex_of(children: Floats) -> tuple[float, float, float]:
    """Mean and largest deviation of the cosines from a regular simplex's, and the spread of the norms."""
    centred = children - children.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1)
    centred[norms <= 1e-12 * np.linalg.norm(children, axis=1).max()] = 0.0  # rounding of the mean, not a direction
    regular = -1.0 / (len(centred) - 1)
    n_pairs = len(centred) * (len(centred) - 1) // 2
    mean, largest = 0.0, 0.0
    for _, _, cosines in _pairs(unit_rows(centred)):
        deviation = np.abs(cosines - regular)
        mean += float(deviation.sum()) / n_pairs
        largest = float(deviation.max(initial=largest))
    spread = float(norms.std() / norms.mean()) if centred.any() else np.nan
    return mean, largest, spread


def _grouped(keys: NDArray[np.int32], rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct key with its rows."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(rows[order], first[1:]), strict=True)


def _pairs(units: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """All i < j and the products of rows i and j, in blocks that keep memory flat."""
    step = max(1, BLOCK // len(units))
    for start in range(0, len(units), step):
        products = units[start : start + step] @ units[start:].T
        i, j = np.triu_indices(len(products), k=1, m=products.shape[1])
        yield start + i, start + j, products[i, j]


def _directions(basis: PathBasis, nodes: NDArray[np.integer[Any]]) -> Floats:
    """q_v of each node; zero for dependent atoms."""
    rows = np.zeros((len(nodes), basis.directions.shape[1]))
    found = basis.column[nodes] >= 0
    rows[found] = basis.sign[nodes[found], None] * basis.directions[basis.column[nodes[found]]]
    return rows


def _degrees(cosines: Floats) -> Floats:
    angles: Floats = np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0)))
    return angles


def _share(hits: NDArray[np.bool_], of: NDArray[np.bool_]) -> Floats:
    shares: Floats = hits.sum(axis=1) / np.maximum(of.sum(axis=1), 1)
    return shares


def _ratio(a: Floats, b: Floats) -> Floats:
    """A / b, and 0 where b vanishes: two directions that agree tie everywhere."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 1e-12)


def _mean(values: Floats, weights: NDArray[np.int64] | None = None) -> float:
    """Mean of what is not NaN; NaN of nothing."""
    there = ~np.isnan(values)
    if not there.any():
        return np.nan
    return float(np.average(values[there], weights=None if weights is None else weights[there]))


def _refuse_quadratic(rows: int, columns: int, what: str, way_out: str = "") -> None:
    if rows * columns > MAX_PAIRS:
        raise DictionaryError(
            f"{what}: {rows:,} x {columns:,} pairs are more than {MAX_PAIRS:,}; "
            f"restrict the hierarchy to fewer leaves{way_out}"
        )
