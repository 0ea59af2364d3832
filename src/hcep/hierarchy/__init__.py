"""Graphs and names only: the rooted DAG of synsets, its files, and what may be wrong with it."""

from hcep.errors import HierarchyError
from hcep.hierarchy.files import read_hierarchy, write_hierarchy
from hcep.hierarchy.formats import FORMATS, Format
from hcep.hierarchy.graph import VIRTUAL_ROOT, Hierarchy
from hcep.hierarchy.lint import Finding, fix, lint
from hcep.hierarchy.path_tree import PathTree
from hcep.hierarchy.raw_lint import lint_edges, lint_file
from hcep.hierarchy.repair import Add, Collapse, Cut, Edit, Merge, Move, Remove, Rename, apply_edits, diff

__all__ = [
    "FORMATS",
    "VIRTUAL_ROOT",
    "Add",
    "Collapse",
    "Cut",
    "Edit",
    "Finding",
    "Format",
    "Hierarchy",
    "HierarchyError",
    "Merge",
    "Move",
    "PathTree",
    "Remove",
    "Rename",
    "apply_edits",
    "diff",
    "fix",
    "lint",
    "lint_edges",
    "lint_file",
    "read_hierarchy",
    "write_hierarchy",
]
