"""Paths and labels against truth."""

from hcep.evaluate.support import SupportScores, support_scores
from hcep.evaluate.tree import accuracy, lca_heights, tree_distances

__all__ = ["SupportScores", "accuracy", "lca_heights", "support_scores", "tree_distances"]
