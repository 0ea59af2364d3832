"""A hierarchy drawn as an indented tree of box characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy


def label(hierarchy: Hierarchy, synset: str) -> str:
    """Name of a synset with the names merged into it in brackets."""
    merged = [name for _, name in hierarchy.merged(synset)]
    return hierarchy.name(synset) + (f" ({', '.join(merged)})" if merged else "")


def tree(hierarchy: Hierarchy, max_depth: int | None, max_children: int | None) -> str:
    """Draw the hierarchy; a synset reached a second time is drawn once more without what is below it."""
    lines: list[str] = []
    seen: set[str] = set()
    # (synset or None for a bare line, text before it on its line, text before its children's lines, depth)
    waiting: list[tuple[str | None, str, str, int]] = [(hierarchy.root, "", "", 0)]
    while waiting:
        synset, before, indent, depth = waiting.pop()
        if synset is None:
            lines.append(before)
            continue
        children = hierarchy.children(synset)
        again = " ↑" if children and synset in seen else ""
        n_below = len(hierarchy.descendants(synset)) if children and depth == max_depth else 0
        hidden = f" … {n_below:,} synset{'s' if n_below > 1 else ''} below" if n_below else ""
        lines.append(before + label(hierarchy, synset) + (again or hidden))
        if not (again or hidden):
            seen.add(synset)
            waiting += _branches(children, indent, depth + 1, max_children)[::-1]
    return "\n".join(lines)


def _branches(
    children: tuple[str, ...], indent: str, depth: int, max_children: int | None
) -> list[tuple[str | None, str, str, int]]:
    shown = children[:max_children]
    n_more = len(children) - len(shown)
    branches: list[tuple[str | None, str, str, int]] = [
        (child, f"{indent}├── ", f"{indent}│   ", depth) for child in shown
    ]
    if n_more:
        return [*branches, (None, f"{indent}└── … {n_more:,} more", "", depth)]
    return [*branches[:-1], *((child, f"{indent}└── ", f"{indent}    ", depth) for child in shown[-1:])]
