"""The rooted DAG of concepts and its rooted paths; `hcep.taxonomy` reads hierarchies from files and improves them."""

from hcep.errors import HierarchyError
from hcep.hierarchy.edges import VIRTUAL_ROOT, PathTree
from hcep.hierarchy.graph import Hierarchy

__all__ = ["VIRTUAL_ROOT", "Hierarchy", "HierarchyError", "PathTree"]
