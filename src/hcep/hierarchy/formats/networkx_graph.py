"""Hierarchies as networkx graphs: edges go from parent to child, the attribute ``name`` holds the names."""

from __future__ import annotations

from typing import Any

from hcep._optional import require
from hcep.errors import HierarchyError
from hcep.hierarchy.graph import Hierarchy


def to_networkx(hierarchy: Hierarchy) -> Any:
    """A DiGraph with the synsets in index order."""
    graph = require("networkx", "formats", "a networkx graph").DiGraph()
    for synset in hierarchy:
        graph.add_node(synset, name=hierarchy.name(synset))
    for child in hierarchy:
        graph.add_edges_from((parent, child) for parent in hierarchy.parents(child))
    return graph


def from_networkx(graph: Any, root: str | None) -> Hierarchy:
    """The hierarchy of a directed graph from parents to children."""
    if not hasattr(graph, "is_directed") or not graph.is_directed():
        raise HierarchyError(
            f"expected a directed networkx graph with edges from parent to child, got {type(graph).__name__}"
        )
    place = {node: i for i, node in enumerate(graph.nodes)}
    alone = [node for node in graph.nodes if not graph.degree(node)]
    if alone:
        raise HierarchyError(f"node {alone[0]!r} has no edge; connect it to its parent, or remove it")
    # By child, as a hierarchy numbers its synsets: what to_networkx wrote comes back the same.
    edges = [(parent, child) for child in place for parent in graph.predecessors(child)]
    names = {node: str(name) for node, name in graph.nodes(data="name") if name is not None}
    return Hierarchy.from_edges(edges, names, root=root)
