"""Graphs of networkx."""

import pytest

from hcep import Hierarchy, HierarchyError
from hcep.errors import MissingExtraError

ODD = Hierarchy.from_edges([("r", 'a"b\\'), ("r", "n1", "two\nlines"), ("r", "end")])


def test_networkx_there_and_back(diamond, pets):
    networkx = pytest.importorskip("networkx", reason="comes with the extra formats")
    graph = diamond.to_networkx()
    assert networkx.is_directed_acyclic_graph(graph)
    assert list(graph.nodes) == list(diamond.ids)
    assert Hierarchy.from_networkx(graph) == diamond
    assert Hierarchy.from_networkx(ODD.to_networkx(), root="r") == ODD


def test_networkx_graphs_that_are_not_a_hierarchy(pets):
    networkx = pytest.importorskip("networkx", reason="comes with the extra formats")
    with pytest.raises(HierarchyError, match=r"expected a directed networkx graph .* got Graph"):
        Hierarchy.from_networkx(networkx.Graph([("a", "b")]))
    with pytest.raises(HierarchyError, match=r"expected a directed networkx graph .* got list"):
        Hierarchy.from_networkx([("a", "b")])
    alone = networkx.DiGraph([("a", "b")])
    alone.add_node("c")
    with pytest.raises(HierarchyError, match="node 'c' has no edge"):
        Hierarchy.from_networkx(alone)
    with pytest.raises(HierarchyError, match="the hierarchy has a cycle"):
        Hierarchy.from_networkx(networkx.DiGraph([("a", "b"), ("b", "a")]))
    with pytest.raises(HierarchyError, match=r"concept ids must be strings or integers, got 1.5 \(float\)"):
        Hierarchy.from_networkx(networkx.DiGraph([(1.5, 2)]))


def test_without_networkx(pets, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r'a networkx graph needs networkx, .* pip install "hcep\[formats\]"'):
        pets.to_networkx()
