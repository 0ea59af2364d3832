"""Figures from rows: lines over a setting, one panel per metric, and one style per method in all figures."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.claims import TITLES, labels_of, series
from experiments.records import TEXTS, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is loaded when a figure is drawn
    Axes = Figure = Any

STYLES: dict[str, tuple[str, str, str]] = TEXTS["styles"]
#: Shades of HB-OMP's blue, the wider the beam the darker.
BEAMS = {1: "#9ecae1", 2: "#6baed6", 4: "#6baed6", 8: "#1f77b4", 16: "#2150a0", 32: "#08306b"}

#: The widths, in inches, of a legend's handle with its margins, and of a letter. A legend that is too wide is cut off.
HANDLE, LETTER = 0.66, 0.077


def style(label: str) -> dict[str, Any]:
    """Return the line properties of a method; a beam in the label changes the shade."""
    name = next((prefix for prefix in sorted(STYLES, key=len, reverse=True) if label.startswith(prefix)), "")
    colour, marker, line = STYLES.get(name, ("#444444", ".", "-"))
    beam = re.search(r"\(beam (\d+)\)", label)
    colour = BEAMS.get(int(beam[1]), colour) if beam else colour
    convex = label.endswith("convex head")  # the same code under another head: thin and dotted
    line, width = (":", 0.8) if convex else (line, 1.3)
    return {"color": colour, "marker": marker, "linestyle": line, "markersize": 3 if convex else 4, "linewidth": width}


def canvas(width: float, height: float) -> Figure:
    """Make an empty figure; its size is in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _lines(axes: Axes, rows: Sequence[Row], x: str, y: str, categories: Sequence[Any] | None) -> None:
    """Draw one line per label, with a band for its interval."""
    place = None if categories is None else {value: i for i, value in enumerate(categories)}
    for label in labels_of(rows):
        xs, means, lows, highs = series((r for r in rows if r["label"] == label), x, y)
        if not xs:
            continue
        at, look = xs if place is None else [place[value] for value in xs], style(label)
        axes.plot(at, means, label=label, **look)
        if any(high > low for low, high in zip(lows, highs, strict=True)):
            low, high = ([min(max(v, 0.0), 1.0) for v in values] for values in (lows, highs))  # all metrics are shares
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)
    if categories is not None:
        axes.set_xticks(range(len(categories)), [str(c) for c in categories])
    elif all(isinstance(row[x], int) for row in rows):
        axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.25)


def panels(
    groups: Mapping[str, Sequence[Row]], x: str, metrics: Sequence[str], x_label: str, categories: Any = None
) -> Figure:
    """Draw a row of panels for every group, a column for every metric, and one legend below."""
    figure = canvas(3.4 * len(metrics), 2.6 * len(groups) + 0.9)
    grid = figure.subplots(len(groups), len(metrics), squeeze=False)
    handles: dict[str, Any] = {}
    for (title, rows), line in zip(groups.items(), grid, strict=True):
        for metric, axes in zip(metrics, line, strict=True):
            _lines(axes, rows, x, metric, None if categories is None else categories[title])
            axes.set_title(f"{title}: {TITLES.get(metric, metric)}" if title else TITLES.get(metric, metric))
            axes.set_xlabel(x_label)
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    n_columns = columns_of(list(handles), figure.get_figwidth())
    n_lines = -(-len(handles) // n_columns)
    figure.set_figheight(2.6 * len(groups) + max(0.9, 0.3 + 0.2 * n_lines))  # a long legend must not squeeze the panels
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=n_columns, frameon=False)
    return figure


def columns_of(labels: Sequence[str], width: float) -> int:
    """Return the number of columns of a legend, at most 6, that fit into a width in inches."""
    for n in range(min(6, len(labels)), 1, -1):
        columns = np.array_split(np.array([HANDLE + LETTER * len(label) for label in labels]), n)
        if sum(column.max() for column in columns) <= width:
            return n
    return 1


def curves(
    x: str, metrics: Sequence[str], x_label: str, *, by: str | None = "data", places: bool = False
) -> Callable[[Sequence[Row]], Figure]:
    """Return a function that draws panels over a setting `x`, one row of panels per value of `by`.

    With `places`, the values of the setting are evenly spaced.
    """

    def draw(rows: Sequence[Row]) -> Figure:
        names = dict.fromkeys(r[by] for r in rows) if by else [""]
        groups = {name: [r for r in rows if by is None or r[by] == name] for name in names}
        marks = {name: sorted({r[x] for r in group}) for name, group in groups.items()}
        return panels(groups, x, metrics, x_label, categories=marks if places else None)

    return draw


def bars(axes: Axes, rows: Sequence[Row], metric: str) -> None:
    """Draw a horizontal bar per label, with its interval; the metric is a share."""
    for i, label in enumerate(labels_of(rows)):
        _, (mean,), (low,), (high,) = series([r for r in rows if r["label"] == label], "label", metric)
        axes.barh(i, mean, xerr=[[mean - low], [high - mean]], color="#4573b8", capsize=3)
    axes.set_yticks(range(len(labels_of(rows))), labels_of(rows))
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
