"""DOT and Mermaid, and graphs of networkx."""

import re

import pytest

from hcep import Hierarchy, HierarchyError
from hcep.errors import MissingExtraError
from hcep.hierarchy import write_hierarchy

ODD = Hierarchy.from_edges([("r", 'a"b\\'), ("r", "n1", "two\nlines"), ("r", "end")])


def test_dot(tmp_path, diamond):
    assert write_hierarchy(diamond, tmp_path / "h.dot") == ()
    text = (tmp_path / "h.dot").read_text()
    assert text.startswith('digraph hierarchy {\n  node [shape=box];\n  "root" [label="root"];\n')
    assert text.count(" -> ") == 6
    assert '  "feline" -> "cat";\n' in text
    assert text.endswith("}\n")


def test_dot_escapes(tmp_path):
    write_hierarchy(ODD, tmp_path / "h.gv")
    text = (tmp_path / "h.gv").read_text()
    assert '  "r" -> "a\\"b\\\\";\n' in text
    assert '  "n1" [label="two\\nlines"];\n' in text


def test_mermaid(tmp_path, diamond):
    assert write_hierarchy(diamond, tmp_path / "h.mmd") == ()
    assert (tmp_path / "h.mmd").read_text().startswith('flowchart TD\n  s0["root"]\n  s1["pet"]\n')
    assert "  s2 --> s3\n" in (tmp_path / "h.mmd").read_text()


def test_mermaid_escapes_labels_and_reports_lost_ids(tmp_path):
    assert write_hierarchy(ODD, tmp_path / "h.mermaid") == ("mermaid: names kept, ids lost (1 concept)",)
    labels = re.findall(r'\["(.*)"\]', (tmp_path / "h.mermaid").read_text())
    assert labels == ["r", "a#34;b#92;", "two#10;lines", "end"]


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
