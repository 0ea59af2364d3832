"""The rooted DAG of concepts and its rooted paths; reading and writing it in files."""

from hcep.errors import HierarchyError
from hcep.hierarchy.edges import VIRTUAL_ROOT, PathTree
from hcep.hierarchy.files import read_described, read_hierarchy, write_hierarchy
from hcep.hierarchy.graph import Hierarchy

__all__ = [
    "VIRTUAL_ROOT",
    "Hierarchy",
    "HierarchyError",
    "PathTree",
    "read_described",
    "read_hierarchy",
    "write_hierarchy",
]
