"""Charts of a collection, as Plotly takes them: plain dictionaries that look well in light and dark."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._escape import terminal
from hcep.web.collection import Collection, Rows

#: Colours of groups that colour-blind people tell apart, and of all that is in none.
COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#5d9a17", "#e0a102", "#3b82c4", "#a6761d", "#12a0b0", "#b05bc4")
OTHER = "#98a0aa"
#: Levels of concepts that are seen at a time.
SHOWN = 3
INK = "#1c2430"
LAYOUT = {
    "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": "Roboto, system-ui, sans-serif", "size": 13},
    "hoverlabel": {"bgcolor": "#1c2430", "bordercolor": "#1c2430", "font": {"color": "#fff"}},
}
CONFIG = {"displayModeBar": False, "displaylogo": False}


def plain(text: str) -> str:
    """Text that Plotly shows as it is: it reads some tags and entities.

    >>> plain("a<b>")
    'a&lt;b&gt;'
    """
    return terminal(text, keep="").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def concepts(collection: Collection, counts: NDArray[np.int64], node: int, kind: str) -> dict[str, Any]:
    """Photos by concept as a sunburst or an icicle, from a node down; each child of it in a colour of its own."""
    tree, generations = collection.model.hierarchy.path_tree, [[node]]
    while len(generations) <= SHOWN and generations[-1]:
        generations.append([child for at in generations[-1] for child in collection.children(at, counts)])
    order = [v for generation in generations for v in generation]
    # Colours begin at the first generation that is large enough to need them.
    first = next((g for g in generations[1:] if len(g) >= 4), generations[1])
    colours = dict.fromkeys(order, "#dfe6e4")
    for v in order[1:]:
        above = colours.get(int(tree.parent[v]))
        if v in first:
            colours[v] = _paler(COLOURS[first.index(v) % len(COLOURS)], 0.4)
        elif above is not None and tree.level[v] > tree.level[first[0]]:
            colours[v] = _paler(above, 0.22)
    trace = {
        "type": kind,
        "ids": [str(v) for v in order],
        "labels": [plain(collection.node_name(v)) for v in order],
        "parents": ["" if v == node else str(int(tree.parent[v])) for v in order],
        "values": [int(counts[v]) for v in order],
        "branchvalues": "total",
        "marker": {"colors": [colours[v] for v in order], "line": {"width": 1.5, "color": "rgba(255,255,255,.75)"}},
        "insidetextfont": {"color": INK},
        "leaf": {"opacity": 1},
        "hovertemplate": "%{label}: %{value} photos<extra></extra>",
        **({} if kind == "sunburst" else {"pathbar": {"visible": False}}),
    }
    return {"data": [trace], "layout": {**LAYOUT, "uniformtext": {"minsize": 9, "mode": "hide"}}, "config": CONFIG}


def groups(collection: Collection, level: int) -> tuple[list[tuple[str, int, str]], list[str]]:
    """The commonest concepts at a level of the paths on the map: name, photos and colour; and each photo's colour."""
    at = collection.at_level(collection.on_map, level)
    nodes, counts = np.unique(at, return_counts=True)
    order = np.argsort(-counts, kind="stable").tolist()
    colour = {int(nodes[i]): COLOURS[k] for k, i in enumerate(order[: len(COLOURS)])}
    shown = [
        (collection.node_name(int(nodes[i])), int(counts[i]), colour[int(nodes[i])]) for i in order[: len(COLOURS)]
    ]
    rest = int(sum(counts[i] for i in order[len(COLOURS) :]))
    if rest:
        shown.append((f"{len(order) - len(COLOURS):,} others", rest, OTHER))
    return shown, [colour.get(node, OTHER) for node in at.tolist()]


def map_of(collection: Collection, colours: list[str], group: Rows | None) -> dict[str, Any]:
    """The photos as points to draw a lasso around; those of the group stand out."""
    lit = None if group is None else np.isin(collection.on_map, group)
    trace = {
        "type": "scattergl",
        "mode": "markers",
        "x": np.round(collection.plane[:, 0], 3).tolist(),
        "y": np.round(collection.plane[:, 1], 3).tolist(),
        "customdata": collection.on_map.tolist(),
        "text": [plain(collection.class_names[c]) for c in collection.predicted[collection.on_map].tolist()],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colours, "size": 7, "opacity": 0.85 if lit is None else np.where(lit, 1.0, 0.12).tolist()},
    }
    axis = {"visible": False, "zeroline": False}
    layout = {
        **LAYOUT,
        "xaxis": axis,
        "yaxis": {**axis, "scaleanchor": "x"},
        "dragmode": "lasso",
        "hovermode": "closest",
    }
    return {"data": [trace], "layout": layout, "config": {**CONFIG, "scrollZoom": True}}


def _paler(colour: str, by: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * by):02x}" for part in parts)
