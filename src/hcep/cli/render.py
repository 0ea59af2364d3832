"""How explanations look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.tree import Tree

if TYPE_CHECKING:
    from hcep.explain import Explanation


def path_tree(explanation: Explanation) -> Tree:
    """The path as a rich tree, each concept with its coefficient and the share explained so far, its meaning below."""
    tree = Tree(f"[dim]{escape(explanation.root)}[/]", guide_style="dim")
    branch = tree
    for step in explanation.steps:
        merged = f" [dim]({escape(', '.join(step.merged))})[/]" if step.merged else ""
        meaning = f"\n[italic]{escape(step.meaning)}[/]" if step.meaning else ""
        colour = "red" if step.coefficient < 0 else "green"
        branch = branch.add(
            f"[bold]{escape(step.name)}[/]  [{colour}]{step.coefficient:+.2f}[/]  "
            f"[cyan]{step.explained:.0%} explained[/]{merged}{meaning}"
        )
    return tree
