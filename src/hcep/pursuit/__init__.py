"""Atoms + vectors -> rooted paths and sparse codes."""

from hcep.pursuit.flat import omp
from hcep.pursuit.penalised import lasso, lasso_alpha, tree_lasso, tree_lasso_alpha
from hcep.pursuit.result import FlatResult, Hypothesis, PathResult
from hcep.pursuit.search import SearchOptions, hb_omp, path_objectives, search

__all__ = [
    "FlatResult",
    "Hypothesis",
    "PathResult",
    "SearchOptions",
    "hb_omp",
    "lasso",
    "lasso_alpha",
    "omp",
    "path_objectives",
    "search",
    "tree_lasso",
    "tree_lasso_alpha",
]
