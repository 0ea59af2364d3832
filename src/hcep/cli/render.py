"""How explanations look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.tree import Tree

from hcep._escape import markup as escape
from hcep.explain.explained import percent

if TYPE_CHECKING:
    from hcep.explain import ExplainedImage, Explanation


def verdict(one: ExplainedImage) -> str:
    """Class and probability, marked; green only where nothing speaks against them."""
    colour = "green" if one.sure else "yellow" if one.doubt else "default"
    doubt = f", [yellow]{one.doubt}[/]" if one.doubt else ""
    return f"[bold {colour}]{escape(one.name)}[/], {percent(one.probability)}{doubt}"


def path_tree(explanation: Explanation) -> Tree:
    """The path as a rich tree, each concept with its coefficient and its own share of the image, its meaning below."""
    tree = Tree(f"[dim]{escape(explanation.root)}[/]", guide_style="dim")
    branch = tree
    for step in explanation.steps:
        merged = f" [dim]({escape(', '.join(step.merged))})[/]" if step.merged else ""
        meaning = f"\n[italic]{escape(step.meaning)}[/]" if step.meaning else ""
        colour = "red" if step.coefficient < 0 else "default"
        branch = branch.add(
            f"[bold]{escape(step.name)}[/]  [{colour}]{step.coefficient:+.2f}[/]  "
            f"[cyan]{percent(step.share)} of the image[/]{merged}{meaning}"
        )
    return tree
