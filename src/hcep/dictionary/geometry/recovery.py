"""Provable recovery of rooted paths, and the summary of all geometric diagnostics."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from hcep._checks import escape_html as escape, html_table, rounded
from hcep.dictionary.checks import blocks
from hcep.dictionary.geometry.conditions import Conditions, Floats, Ints, refuse_quadratic
from hcep.dictionary.geometry.plotting import Axes, histogram, new_axes
from hcep.dictionary.path_problem import PathProblem

#: A recovery coefficient must be this far below 1, because opposite atoms make it 1 up to rounding.
RECOVERY_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Recovery:
    """Which rooted paths are provably recovered; see `Geometry.recovery`.

    Attributes
    ----------
    leaves : tuple of str
    paths : tuple of tuple of str
        Every rooted path to these leaves.
    leaf_of_path : integer array of shape (n_paths,)
        The position of each path's leaf in `leaves`.
    path_nested : array of shape (n_paths, depth + 1)
        The exact recovery coefficient ERC(S | T_l) of each path for l = 0, 1, ...; NaN beyond the end of the path, and
        infinite if its atoms are linearly dependent, as with a zero atom.
    path_radius : array of shape (n_paths,)
        The exact distance from the leaf's embedding within which HB-OMP with a beam of 1 follows the path. It is 0 if
        HB-OMP does not follow it even without noise, and infinite if no synset on the path has a sibling.
    """

    leaves: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    leaf_of_path: Ints
    path_nested: Floats
    path_radius: Floats

    @cached_property
    def best_path(self) -> Ints:
        """The row of each leaf's path with the smallest ERC over all atoms, shape (n_leaves,); ties go to the first."""
        order = np.lexsort((self.path_nested[:, 0], self.leaf_of_path))
        return order[np.searchsorted(self.leaf_of_path[order], np.arange(len(self.leaves)))]

    @property
    def nested(self) -> Floats:
        """ERC(S | T_l) of each leaf's best path for l = 0, 1, ..., shape (n_leaves, depth + 1)."""
        return np.asarray(self.path_nested[self.best_path])

    @property
    def coefficient(self) -> Floats:
        """ERC(S) of each leaf's best path over the full dictionary, shape (n_leaves,)."""
        return self.nested[:, 0]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Whether ERC(S) < 1, so that OMP recovers the path from every image in the span of its atoms; (n_leaves,)."""
        return self.coefficient < 1.0 - RECOVERY_TOLERANCE

    @property
    def certified_from(self) -> Ints:
        """The smallest l with ERC(S | T_l) < 1, shape (n_leaves,); -1 for dependent atoms.

        OMP recovers the path if it may only use atoms of the path and of the subtree of its synset at level l.
        """
        below = self.nested < 1.0 - RECOVERY_TOLERANCE
        return np.where(below.any(axis=1), below.argmax(axis=1), -1)

    @property
    def radius(self) -> Floats:
        """The largest `path_radius` of each leaf's paths, shape (n_leaves,)."""
        radius = np.zeros(len(self.leaves))
        np.maximum.at(radius, self.leaf_of_path, self.path_radius)
        return radius

    @property
    def greedily_recovered(self) -> NDArray[np.bool_]:
        """Whether HB-OMP with a beam of 1 finds a path to the leaf from the leaf's embedding, shape (n_leaves,)."""
        return self.radius > 0.0

    def plot(self, ax: Axes = None) -> Axes:
        """Plot the exact recovery coefficients of the leaves, of which those below 1 are certified; return the axes."""
        labels = {"xlabel": "exact recovery coefficient", "ylabel": "leaves"}
        return histogram({"": self.coefficient}, ax, 1.0, **labels)


class Geometry(Conditions):
    """Diagnostics of a dictionary's geometry, available as ``dictionary.geometry``.

    Arrays over synsets are in the order of ``hierarchy.ids``, and angles are in degrees. The root has no direction, so
    its entries are NaN. Any other synset with a zero embedding counts as 90 degrees away from everything. The level of
    a synset with several parents is the length of its longest rooted path.

    Examples
    --------
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(depth=2, dim=8, half_angle=40, reduction=0.3, orientation="random")
    >>> data.dictionary.geometry.recovery().greedily_recovered.all()
    np.True_
    """

    def __repr__(self) -> str:
        n_atoms, n_dims = self.dictionary.n_atoms, self.dictionary.n_dims
        return f"Geometry({len(self.hierarchy):,} synsets, {n_atoms:,} atoms, {n_dims:,} dimensions)"

    def _repr_html_(self) -> str:
        rows = [[key.replace("_", " "), rounded(value)] for key, value in self.summary().items()]
        return f"<p>{escape(repr(self))}</p>{html_table(['diagnostic', 'value'], rows)}"

    def summary(self) -> dict[str, float]:
        """Return every diagnostic as one or two numbers.

        They are means over inner synsets, sibling pairs or atoms, and shares or medians over leaves. A diagnostic that
        does not apply, for example because only the root has children, is NaN.
        """
        containment, disjointness, siblings = self.containment(), self.disjointness(), self.sibling_cones()
        schedule, orthogonality = self.half_angle_schedule(), self.orthogonality()
        simplex, dimension, recovery = self.simplex(), self.dimension_bound(), self.recovery()
        return {
            "containment_fraction_outside": _mean(containment.fraction),
            "containment_mean_violation": _mean(containment.mean_violation),
            "disjointness_fraction_inside": _mean(disjointness.fraction[self._inner]),
            "disjointness_mean_violation": _mean(disjointness.mean_violation[self._inner]),
            "sibling_cones_fraction_intersecting": _mean(siblings.fraction, siblings.n_compared),
            "sibling_cones_mean_overlap": _mean(siblings.mean_violation, siblings.n_compared),
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
        """Return `summary` as a text table with one diagnostic per line."""
        rows = self.summary()
        width = max(map(len, rows))
        return "\n".join(f"{name.replace('_', ' '):<{width}}  {value:>10.4g}" for name, value in rows.items())

    def plot(self) -> NDArray[Any]:
        """Plot all diagnostics in one figure, and return the axes, shape (6,); each diagnostic has its own `plot`."""
        plots: dict[str, Any] = {
            "containment in cones": self.containment(),
            "other concepts in cones": self.disjointness(),
            "sibling cones": self.sibling_cones(),
            "half-angles": self.half_angle_schedule(),
            "orthogonality": self.orthogonality(),
            "recovery": self.recovery(),
        }
        axes = new_axes(len(plots))
        for ax, (title, diagnostic) in zip(axes, plots.items(), strict=True):
            diagnostic.plot(ax).set_title(title)
        return axes

    def recovery(self, leaves: Iterable[str] | None = None) -> Recovery:
        r"""Compute the exact recovery coefficients and the radius of greedy recovery of rooted paths.

        Parameters
        ----------
        leaves : iterable of str, optional
            The leaves whose paths to examine; all by default.

        Returns
        -------
        Recovery

        Notes
        -----
        Let all atoms have norm 1, let S be the atoms of a rooted path, and let T_l contain S and the atoms of all edges
        below the path's synset at level l, so that T_0 contains all atoms. The exact recovery coefficient is::

            ERC(S | T) = max over j in T \ S of || pinv(D_S) d_j ||_1

        If it is below 1, OMP over the atoms T recovers S, in some order, from every ``x = D_S z`` in which no entry of
        z is zero. It never increases with l, and zero atoms are not counted.

        HB-OMP must take atoms from the top down, so ``ERC < 1`` does *not* imply that it succeeds with a beam of 1. Its
        certificate is the radius. Let u_v be the atom of v made orthogonal to the atoms above it and divided by the
        atom's norm. HB-OMP prefers child v to child w as long as ``|<x, u_v>| > |<x, u_w>|``. The boundary of this
        region is two hyperplanes, at the distances::

            |<x, u_v - u_w>| / ||u_v - u_w||    and    |<x, u_v + u_w>| / ||u_v + u_w||

        The smallest distance along the path, from x = a(leaf), is the radius. It applies to the paper's rule with
        tolerance 0 and no step limit.
        """
        if leaves is None:
            return self._recovery_of_all
        return self._recovery(tuple(dict.fromkeys(map(self.hierarchy.leaf_of, leaves))))

    @cached_property
    def _recovery_of_all(self) -> Recovery:
        return self._recovery(self.hierarchy.leaves)

    def _recovery(self, leaves: tuple[str, ...]) -> Recovery:
        problem = self.dictionary.path_problem()
        tree = problem.tree
        place = np.full(len(self.hierarchy), -1, dtype=np.int64)
        place[[self.hierarchy.index(leaf) for leaf in leaves]] = np.arange(len(leaves))
        ends = tree.leaf_nodes[place[tree.synset[tree.leaf_nodes]] >= 0]
        what = "recovery compares every rooted path with every atom"
        refuse_quadratic(len(ends), self.dictionary.n_atoms, what, "; pass leaves=[...]")
        paths = [problem.nodes_of_path[v, : tree.level[v]] for v in ends]
        return Recovery(
            leaves=leaves,
            paths=tuple(tuple(self.hierarchy.ids[i] for i in tree.synset[path]) for path in paths),
            leaf_of_path=place[tree.synset[ends]],
            path_nested=self._nested_coefficients(problem, paths),
            path_radius=self._greedy_radii(problem, ends),
        )

    def _nested_coefficients(self, problem: PathProblem, paths: list[NDArray[np.int32]]) -> Floats:
        """Compute ERC(S | T_l) of every path, (n_paths, depth + 1), in blocks of neighbours that share ancestors."""
        atoms = self._unit_atoms
        nested = np.full((len(paths), problem.tree.depth + 1), np.nan)
        for rows in blocks(0, len(paths), len(atoms) * problem.tree.depth):
            nodes = np.unique(np.concatenate(paths[rows]))
            along = problem.path_directions(nodes)[0] @ atoms.T
            for row, path in enumerate(paths[rows], rows.start):
                nested[row, : len(path) + 1] = self._coefficients_of(problem, path, along[np.searchsorted(nodes, path)])
        return nested

    def _coefficients_of(self, problem: PathProblem, path: NDArray[np.int32], along: Floats) -> Floats:
        """Compute ERC(S | T_l) for l = 0 to len(path) from ``along = Q_S^T D``, as pinv(D_S) is R^-1 Q_S^T."""
        if (problem.column[path] < 0).any():
            return np.full(len(path) + 1, np.inf)
        edges = problem.tree.edge[path]
        triangle = problem.triangle[path, : len(path)].T / np.linalg.norm(self.dictionary.atoms[edges], axis=1)
        competitors: Floats = np.abs(solve_triangular(triangle, along, check_finite=False)).sum(axis=0)
        competitors[edges] = 0.0
        # The deepest l whose T_l has the atom. The sets below the path's synsets are nested, so deeper ones overwrite.
        deepest = np.zeros(len(self.hierarchy), dtype=np.int64)
        for level, synset in enumerate(problem.tree.synset[path], 1):
            deepest[synset] = level
            deepest[self._below[synset]] = level
        largest = np.zeros(len(path) + 1)
        np.maximum.at(largest, deepest[self._edge_parents], competitors)
        return np.maximum.accumulate(largest[::-1])[::-1]

    def _greedy_radii(self, problem: PathProblem, ends: Ints) -> Floats:
        """Compute the exact radius around a(leaf) in which HB-OMP with a beam of 1 follows the path to each end."""
        tree = problem.tree
        nodes = problem.nodes_of_path[ends]
        radius = np.full(len(ends), np.inf)
        for level in range(tree.level[ends].max(initial=0)):
            rows = np.flatnonzero(nodes[:, level] >= 0)
            parents = tree.parent[nodes[rows, level]]
            for parent in np.unique(parents):
                group = rows[parents == parent]
                children = tree.first_child[parent] + np.arange(tree.n_children[parent])
                u = problem.share[children, None] * problem.path_directions(children)[0]
                images = self.dictionary.synset_embeddings[tree.synset[ends[group]]]
                reach = _step_radius(u, images, nodes[group, level] - children[0])
                radius[group] = np.minimum(radius[group], reach)
        dependent = ((problem.column[nodes] < 0) & (nodes >= 0)).any(axis=1)
        radius[dependent] = 0.0
        return radius


def _mean(values: Floats, weights: Ints | None = None) -> float:
    """Return the mean of all values that are not NaN; NaN if there are none."""
    valid = ~np.isnan(values)
    if not valid.any():
        return np.nan
    return float(np.average(values[valid], weights=None if weights is None else weights[valid]))


def _step_radius(u: Floats, images: Floats, chosen: NDArray[np.int32]) -> Floats:
    """Return how far each image may move before another row of `u` beats its `chosen` one; 0 if one already does."""
    score = images @ u.T
    of_chosen = score[np.arange(len(score)), chosen][:, None]
    gram = u @ u.T
    square = np.diagonal(gram)
    sums = square[chosen, None] + square[None, :]
    apart = np.sqrt(np.maximum(sums - 2 * gram[chosen], 0.0))
    together = np.sqrt(np.maximum(sums + 2 * gram[chosen], 0.0))
    distance = np.minimum(_ratio(np.abs(of_chosen - score), apart), _ratio(np.abs(of_chosen + score), together))
    # A lead no larger than rounding counts as a tie, and a tie certifies nothing.
    lead = np.abs(of_chosen) - np.abs(score)
    distance[lead <= RECOVERY_TOLERANCE * np.linalg.norm(images, axis=1)[:, None]] = 0.0
    distance[np.arange(len(score)), chosen] = np.inf
    return np.asarray(distance.min(axis=1))


def _ratio(a: Floats, b: Floats) -> Floats:
    """Return a / b, or 0 where b vanishes, because two equal directions tie everywhere."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 1e-12)
