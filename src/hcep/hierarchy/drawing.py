"""A hierarchy drawn as text."""

from typing import TYPE_CHECKING

from hcep.errors import cut
from hcep.hierarchy.names import tidy

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

MAX_DRAWN = 100
#: Concept, text before it, text before its children, depth, whether the text is the whole line.
TreeLine = tuple[str, str, str, int, bool]


def draw_tree(hierarchy: "Hierarchy", max_depth: int | None, max_children: int | None) -> str:
    """Draw the hierarchy; a concept that comes again is drawn without what is below it.

    At most 100 levels are drawn: indentation would grow with the square of the depth.
    """
    max_depth = MAX_DRAWN if max_depth is None else min(max_depth, MAX_DRAWN)
    lines: list[str] = []
    seen: set[str] = set()
    waiting: list[TreeLine] = [(hierarchy.root, "", "", 0, False)]
    while waiting:
        synset, before, indent, depth, bare = waiting.pop()
        if bare:
            lines.append(before)
            continue
        label = _label(hierarchy, synset)
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


def _label(hierarchy: "Hierarchy", synset: str) -> str:
    """The name, after the ranks that were merged into it and before other names: "Iridaceae → Iris (irises)"."""
    name, merged = hierarchy.name(synset), hierarchy.merged(synset)
    ranks = [other for one, other in merged if one in hierarchy.ranks and other != name]
    others = [other for _, other in merged if other not in (name, *ranks)]
    shown = [[cut(tidy(one)) for one in some] for some in ([*ranks, name], others)]  # one line for each concept
    return " → ".join(shown[0]) + (f" ({', '.join(shown[1])})" if others else "")
