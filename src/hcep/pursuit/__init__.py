"""Find the rooted path and the sparse code of each image."""

from hcep.pursuit.flat import omp
from hcep.pursuit.learning import learn_atoms
from hcep.pursuit.result import FlatResult, Hypothesis, PathResult
from hcep.pursuit.search import SearchOptions, hb_omp, path_objectives, search
from hcep.pursuit.several import PathSums, Stopping, search_several

__all__ = [
    "FlatResult",
    "Hypothesis",
    "PathResult",
    "PathSums",
    "SearchOptions",
    "Stopping",
    "hb_omp",
    "learn_atoms",
    "omp",
    "path_objectives",
    "search",
    "search_several",
]
