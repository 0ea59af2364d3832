"""Atoms + vectors -> rooted paths and sparse codes."""

from hcep.pursuit.flat import omp
from hcep.pursuit.hierarchical import hb_omp, path_objectives
from hcep.pursuit.result import FlatResult, Hypothesis, PathResult

__all__ = ["FlatResult", "Hypothesis", "PathResult", "hb_omp", "omp", "path_objectives"]
