"""Graphs and names only: the rooted DAG of synsets, its files, WordNet."""

from hcep.errors import HierarchyError
from hcep.hierarchy.edges import VIRTUAL_ROOT, PathTree
from hcep.hierarchy.files import match_classes, read_described, read_hierarchy, write_hierarchy
from hcep.hierarchy.formats import FORMATS, Format
from hcep.hierarchy.graph import Hierarchy

__all__ = [
    "FORMATS",
    "VIRTUAL_ROOT",
    "Format",
    "Hierarchy",
    "HierarchyError",
    "PathTree",
    "match_classes",
    "read_described",
    "read_hierarchy",
    "write_hierarchy",
]
