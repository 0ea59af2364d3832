"""Graphviz DOT and Mermaid: for tools that draw; written, not read."""

from __future__ import annotations

from hcep.hierarchy.graph import Hierarchy

DOT_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def write(hierarchy: Hierarchy, format: str) -> str:
    """Every synset, then every edge, in index order."""
    return dot(hierarchy) if format == "dot" else mermaid(hierarchy)


def dot(hierarchy: Hierarchy) -> str:
    """Ids are the nodes, names the labels."""
    lines = ["digraph hierarchy {", "  node [shape=box];"]
    for synset in hierarchy:
        lines.append(f"  {_dot(synset)} [label={_dot(hierarchy.name(synset))}];")
    lines += [f"  {_dot(parent)} -> {_dot(child)};" for parent, child in hierarchy.edges]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(hierarchy: Hierarchy) -> str:
    """Nodes are numbered: Mermaid's own ids allow few characters and some words, such as end, break it."""
    lines = ["flowchart TD"]
    lines += [f'  s{i}["{_mermaid(hierarchy.name(synset))}"]' for i, synset in enumerate(hierarchy)]
    index = hierarchy.index
    lines += [f"  s{index(parent)} --> s{index(child)}" for parent, child in hierarchy.edges]
    return "\n".join(lines) + "\n"


def _dot(text: str) -> str:
    return f'"{text.translate(DOT_ESCAPES)}"'


def _mermaid(text: str) -> str:
    """Letters, digits and plain punctuation as they are, everything else as Mermaid's #code; entities."""
    plain = set(" .,-()/")
    return "".join(c if c.isalnum() or c in plain else f"#{ord(c)};" for c in text)
