"""What a format cannot hold of a hierarchy, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcep.hierarchy.formats.all_formats import Format
from hcep.hierarchy.formats.source import counted
from hcep.hierarchy.formats.walk import order_survives

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy


def graph_loss(format: Format, hierarchy: Hierarchy) -> str | None:
    """What the format would change in the graph itself; None when it holds it."""
    if "parents" in format.keeps or hierarchy.is_tree:
        return None
    n_shared = sum(len(hierarchy.parents(s)) > 1 for s in hierarchy)
    n_dropped = len(hierarchy) - len(hierarchy.as_tree())
    dropped = f" and {counted(n_dropped, 'inner synset')} left without children {_are(n_dropped)} dropped"
    return (
        f"{format.name} keeps one parent a synset: {counted(n_shared, 'synset')} "
        f"{'loses' if n_shared == 1 else 'lose'} the others{dropped if n_dropped else ''}"
    )


def detail_losses(format: Format, hierarchy: Hierarchy) -> tuple[str, ...]:
    """What else is lost, a sentence each: ids, numbering, merged chains, classes that are inner synsets."""
    n_renamed = sum(hierarchy.name(s) != s for s in hierarchy)
    n_merged = sum(bool(hierarchy.merged(s)) for s in hierarchy)
    some_share = len({hierarchy.name(s) for s in hierarchy}) < len(hierarchy)
    shared = "; a name that several share has the id behind it" if some_share and format.reads else ""
    n_own = len(hierarchy.own_leaves)
    lost = [
        ("ids", n_renamed, f"names kept, ids lost ({counted(n_renamed, 'synset')}){shared}"),
        ("merged", n_merged, f"what collapse merged into {counted(n_merged, 'synset')} is lost"),
        ("classes", n_own, f"the own leaf of {counted(n_own, 'inner class')} is a plain leaf: its class is lost"),
    ]
    said = [text for kept, n, text in lost if n and kept not in format.keeps]
    if format.reads and "order" not in format.keeps and not order_survives(hierarchy):
        said.append("synsets will be numbered in another order, and with them a dictionary's atoms")
    return tuple(f"{format.name}: {text}" for text in said)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
