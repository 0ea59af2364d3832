"""A hierarchy for people and other tools: a tree of box characters, Graphviz DOT, Mermaid."""

from hcep.hierarchy.graph import Hierarchy

DOT_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
Branch = tuple[str, str, str, int, bool]  # synset, text before it, text before its children, depth, whether a bare line


def tree(hierarchy: Hierarchy, max_depth: int | None, max_children: int | None) -> str:
    """Draw the hierarchy; a synset reached a second time is drawn once more without what is below it."""
    lines: list[str] = []
    seen: set[str] = set()
    waiting: list[Branch] = [(hierarchy.root, "", "", 0, False)]
    while waiting:
        synset, before, indent, depth, bare = waiting.pop()
        if bare:
            lines.append(before)
            continue
        merged = ", ".join(name for _, name in hierarchy.merged(synset))
        label = hierarchy.name(synset) + (f" ({merged})" if merged else "")
        children = hierarchy.children(synset)
        again = " ↑" if children and synset in seen else ""
        n_below = len(hierarchy.descendants(synset)) if children and depth == max_depth else 0
        hidden = f" … {n_below:,} concept{'s' if n_below > 1 else ''} below" if n_below else ""
        lines.append(before + label + (again or hidden))
        if again or hidden:
            continue
        seen.add(synset)
        shown, more = children[:max_children], len(children[max_children:]) if max_children is not None else 0
        branches: list[Branch] = [(c, f"{indent}├── ", f"{indent}│   ", depth + 1, False) for c in shown]
        if more:
            branches.append(("", f"{indent}└── … {more:,} more", "", depth, True))
        elif branches:
            branches[-1] = (shown[-1], f"{indent}└── ", f"{indent}    ", depth + 1, False)
        waiting += branches[::-1]
    return "\n".join(lines)


def write(hierarchy: Hierarchy, format: str) -> str:
    """Every synset, then every edge, in index order.

    In DOT ids are the nodes, names the labels. Mermaid's nodes are numbered: its own ids allow few characters and some
    words, such as end, break it; of its labels all but letters, digits and plain punctuation become #code; entities.
    """
    if format == "dot":
        quoted = {s: f'"{s.translate(DOT_ESCAPES)}"' for s in hierarchy}
        nodes = [f'  {quoted[s]} [label="{hierarchy.name(s).translate(DOT_ESCAPES)}"];' for s in hierarchy]
        edges = [f"  {quoted[parent]} -> {quoted[child]};" for parent, child in hierarchy.edges]
        return "\n".join(["digraph hierarchy {", "  node [shape=box];", *nodes, *edges, "}"]) + "\n"
    plain, index = set(" .,-()/"), hierarchy.index
    names = ["".join(c if c.isalnum() or c in plain else f"#{ord(c)};" for c in hierarchy.name(s)) for s in hierarchy]
    nodes = [f'  s{i}["{name}"]' for i, name in enumerate(names)]
    edges = [f"  s{index(parent)} --> s{index(child)}" for parent, child in hierarchy.edges]
    return "\n".join(["flowchart TD", *nodes, *edges]) + "\n"
