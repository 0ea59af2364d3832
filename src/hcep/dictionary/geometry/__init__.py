"""The paper's geometric conditions, measured: cones, orthogonality, simplices, and what is provably recovered."""

import numpy as np

from hcep._escape import html as escape
from hcep._tables import html, number
from hcep.dictionary.geometry.conditions import Floats, Ints
from hcep.dictionary.geometry.recovery import Recoverable


class Geometry(Recoverable):
    """Diagnostics of a dictionary's geometry; get one as ``dictionary.geometry``.

    Arrays over synsets are in the hierarchy's index order, angles in degrees. The root has no direction: its entries
    are NaN. Another synset whose embedding is zero counts as 90 degrees away from everything. The level of a synset
    with several parents is the length of its longest rooted path.

    >>> from hcep.datasets import make_hierarchical_concepts
    >>> data = make_hierarchical_concepts(depth=2, dim=8, half_angle=40, reduction=0.3, orientation="random")
    >>> data.dictionary.geometry.recovery().greedily_recovered.all()
    np.True_
    """

    def __repr__(self) -> str:
        n_atoms, n_dims = self.dictionary.n_atoms, self.dictionary.n_dims
        return f"Geometry({len(self.hierarchy):,} synsets, {n_atoms:,} atoms, {n_dims:,} dimensions)"

    def _repr_html_(self) -> str:
        rows = [[key.replace("_", " "), number(value)] for key, value in self.summary().items()]
        return f"<p>{escape(repr(self))}</p>{html(['diagnostic', 'value'], rows)}"

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


def _mean(values: Floats, weights: Ints | None = None) -> float:
    """Mean of what is not NaN; NaN of nothing."""
    there = ~np.isnan(values)
    if not there.any():
        return np.nan
    return float(np.average(values[there], weights=None if weights is None else weights[there]))
