"""Charts of a collection for Plotly: plain dictionaries that work in light and dark."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import escape_terminal
from hcep.web.collection import Collection

#: Colours of groups that colour-blind people can tell apart, of photos in no group, and of concepts without a colour.
COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#5d9a17", "#e0a102", "#3b82c4", "#a6761d", "#12a0b0", "#b05bc4")
OTHER, PALE, INK = "#98a0aa", "#dfe6e4", "#1c2430"
#: Levels shown at a time, and the number of concepts from which on a level is coloured.
SHOWN, SEVERAL = 3, 4
#: A concept with this share of the photos gets no ring of its own.
NEARLY_ALL = 0.95
CLEAR = "rgba(0,0,0,0)"
LAYOUT = {
    "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "font": {"family": "Roboto, system-ui, sans-serif", "size": 13},
    "hoverlabel": {"bgcolor": INK, "bordercolor": INK, "font": {"color": "#fff"}},
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
    "uniformtext": {"minsize": 9, "mode": "hide"},
}
CONFIG = {"displayModeBar": False, "scrollZoom": True}


def plain(text: str) -> str:
    """Text that Plotly shows as it is, although it interprets some tags and entities.

    >>> plain("a<b>")
    'a&lt;b&gt;'
    """
    return escape_terminal(text, keep="").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def concepts(collection: Collection, counts: NDArray[np.int64], node: int) -> dict[str, Any]:
    """A sunburst of photos by concept, from a node down, with `counts` photos at each node."""
    tree = collection.model.hierarchy.path_tree
    levels = [[node]]
    for _ in range(SHOWN):
        levels.append([child for above in levels[-1] for child in collection.children(above, counts)])
    order = [v for level in levels for v in level]
    first = next((level for level in levels[1:] if len(level) >= SEVERAL), levels[1])
    colours = dict.fromkeys(order, PALE) | {v: _paler(COLOURS[i % len(COLOURS)], 0.4) for i, v in enumerate(first)}
    for v in order:
        if first and tree.level[v] > tree.level[first[0]]:
            colours[v] = _paler(colours[int(tree.parent[v])], 0.22)
    trace = {
        "type": "sunburst",
        "ids": [str(v) for v in order],
        "labels": [plain(collection.node_name(v)) if v else "All" for v in order],
        "parents": ["" if v == node else str(int(tree.parent[v])) for v in order],
        "values": [int(counts[v]) for v in order],
        "branchvalues": "total",
        "marker": {"colors": [colours[v] for v in order], "line": {"width": 1.5, "color": "rgba(255,255,255,.75)"}},
        "insidetextfont": {"color": INK},
        "leaf": {"opacity": 1},
        "hovertemplate": "%{label}: %{value} photos<extra></extra>",
    }
    return {"data": [trace], "layout": LAYOUT, "config": CONFIG}


def groups(collection: Collection, level: int) -> tuple[list[tuple[str, int, str]], list[str]]:
    """The most frequent concepts at a level of the paths on the map (name, photos, colour), and each photo's colour."""
    at = collection.at_level(collection.on_map, level)
    nodes, counts = np.unique(at, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    common = dict(zip(nodes[order].tolist(), COLOURS, strict=False))
    shown = [(collection.node_name(node), int((at == node).sum()), colour) for node, colour in common.items()]
    if rest := int(counts[order[len(COLOURS) :]].sum()):
        shown.append((f"{len(nodes) - len(COLOURS):,} others", rest, OTHER))
    return shown, [common.get(node, OTHER) for node in at.tolist()]


def map_of(collection: Collection, colours: list[str], group: Sequence[int] | None) -> dict[str, Any]:
    """The photos as points for a lasso; the points of the group stand out."""
    lit = np.isin(collection.on_map, collection.on_map if group is None else group)
    trace = {
        "type": "scattergl",
        "mode": "markers",
        "x": np.round(collection.plane[:, 0], 3).tolist(),
        "y": np.round(collection.plane[:, 1], 3).tolist(),
        "customdata": collection.on_map.tolist(),
        "text": [plain(collection.class_names[c]) for c in collection.predicted[collection.on_map].tolist()],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colours, "size": 7, "opacity": np.where(lit, 0.85, 0.12).tolist()},
    }
    axes = {"xaxis": {"visible": False}, "yaxis": {"visible": False, "scaleanchor": "x"}}
    layout = {**LAYOUT, **axes, "dragmode": "lasso", "selections": []}
    return {"data": [trace], "layout": layout, "config": CONFIG}


def _paler(colour: str, by: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * by):02x}" for part in parts)
