"""Graphs and names only: the rooted DAG of synsets, its files, and what may be wrong with it."""

from hcep.errors import HierarchyError
from hcep.hierarchy.files import read_hierarchy, write_hierarchy
from hcep.hierarchy.graph import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.lint import Finding, lint
from hcep.hierarchy.path_tree import PathTree

__all__ = [
    "VIRTUAL_ROOT",
    "Finding",
    "Hierarchy",
    "HierarchyError",
    "PathTree",
    "lint",
    "read_hierarchy",
    "write_hierarchy",
]
