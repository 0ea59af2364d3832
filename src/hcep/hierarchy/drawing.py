"""A hierarchy drawn as text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

#: Concept, text before it, text before its children, depth, whether the text is the whole line.
TreeLine = tuple[str, str, str, int, bool]


def draw_tree(hierarchy: "Hierarchy", max_depth: int | None, max_children: int | None) -> str:
    """Draw the hierarchy; a concept that comes again is drawn without what is below it."""
    lines: list[str] = []
    seen: set[str] = set()
    waiting: list[TreeLine] = [(hierarchy.root, "", "", 0, False)]
    while waiting:
        synset, before, indent, depth, bare = waiting.pop()
        if bare:
            lines.append(before)
            continue
        name = hierarchy.name(synset)
        merged = ", ".join(other for _, other in hierarchy.merged(synset) if other != name)
        label = name + (f" ({merged})" if merged else "")
        children = hierarchy.children(synset)
        again = " ↑" if children and synset in seen else ""
        n_below = len(hierarchy.descendants(synset)) if children and depth == max_depth else 0
        hidden = f" … {n_below:,} concept{'s' if n_below > 1 else ''} below" if n_below else ""
        lines.append(before + label + (again or hidden))
        if again or hidden:
            continue
        seen.add(synset)
        listed, more = children[:max_children], len(children[max_children:]) if max_children is not None else 0
        branches: list[TreeLine] = [(c, f"{indent}├── ", f"{indent}│   ", depth + 1, False) for c in listed]
        if more:
            branches.append(("", f"{indent}└── … {more:,} more", "", depth, True))
        elif branches:
            branches[-1] = (listed[-1], f"{indent}└── ", f"{indent}    ", depth + 1, False)
        waiting += branches[::-1]
    return "\n".join(lines)
