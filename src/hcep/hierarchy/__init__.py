"""Graphs and names only: the rooted DAG of synsets."""

from hcep.errors import HierarchyError
from hcep.hierarchy.graph import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.path_tree import PathTree

__all__ = ["VIRTUAL_ROOT", "Hierarchy", "HierarchyError", "PathTree"]
