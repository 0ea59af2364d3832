"""Atoms + vectors -> rooted paths and sparse codes."""

from hcep.pursuit.flat import omp
from hcep.pursuit.hierarchical import hb_omp, path_objectives
from hcep.pursuit.lasso import lasso, lasso_alpha
from hcep.pursuit.result import FlatResult, Hypothesis, PathResult
from hcep.pursuit.tree_lasso import tree_lasso, tree_lasso_alpha

__all__ = [
    "FlatResult",
    "Hypothesis",
    "PathResult",
    "hb_omp",
    "lasso",
    "lasso_alpha",
    "omp",
    "path_objectives",
    "tree_lasso",
    "tree_lasso_alpha",
]
