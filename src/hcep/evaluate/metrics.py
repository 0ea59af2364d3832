"""What each metric is called in tables, and which way is better.

To add one: its row here, and its values per image as a column of `hcep.evaluate.image_scores.score_images`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A column of a table: its title, and which side is better; None where neither is, and no method the best."""

    title: str
    better: Literal["higher", "lower"] | None

    @property
    def sign(self) -> float:
        """1 where higher is better, -1 where lower is, 0 where neither."""
        return {"higher": 1.0, "lower": -1.0, None: 0.0}[self.better]


METRICS = {
    "correct": Metric("accuracy", "higher"),
    "top": Metric("top", "higher"),
    "support_precision": Metric("precision", "higher"),
    "support_recall": Metric("recall", "higher"),
    "support_f1": Metric("F1", "higher"),
    "one_path": Metric("one path", "higher"),
    "complete_path": Metric("complete path", "higher"),
    "prefix": Metric("prefix", "higher"),
    "tree_distance": Metric("mistake distance", "lower"),
    "lca_height": Metric("mistake LCA height", "lower"),
    # Methods measure these two in their own metric, and a support that explains more need not be a better one.
    "reconstruction_error": Metric("error", None),
    "explained": Metric("explained", None),
    "n_atoms": Metric("atoms", None),
    "confidence": Metric("confidence", None),
    "ece": Metric("ECE", "lower"),
}


def metric_of(column: str) -> Metric:
    """The metric a column of `ImageScores` belongs to: ``prefix_3`` is the prefix metric at level 3."""
    if column in METRICS:
        return METRICS[column]
    stem, _, number = column.rpartition("_")
    family = METRICS[stem]
    return Metric(f"{family.title}{'-' if stem == 'top' else ' '}{number}", family.better)
