"""Markdown tables from rows: methods down, a setting across, means with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hcep.experiments.figures import series
from hcep.experiments.records import Row


def by_method(
    rows: Sequence[Row],
    across: str,
    metrics: Sequence[str],
    *,
    interval: bool = False,
    columns: Sequence[Any] | None = None,
    lower: Sequence[Any] = (),
) -> str:
    """One line a label, one column a value of `across`; several metrics are separated by slashes, the best of each
    column in bold: the highest, or the lowest in the columns named by `lower`.

    Examples
    --------
    >>> rows = [{"label": "OMP", "shots": 1, "accuracy": 0.5}, {"label": "HCEP", "shots": 1, "accuracy": 0.75}]
    >>> print(by_method(rows, "shots", ["accuracy"]), end="")
    | | 1 |
    |---|---|
    | OMP | .500 |
    | HCEP | **.750** |
    """
    columns = columns or sorted({row[across] for row in rows}, key=_order)
    labels = list(dict.fromkeys(row["label"] for row in rows))
    cells = {
        (label, column, metric): _cell(rows, label, across, column, metric)
        for label in labels
        for column in columns
        for metric in metrics
    }
    best = {
        (column, metric): (min if column in lower else max)(
            (c[0] for label in labels if (c := cells[label, column, metric])), default=None
        )
        for column in columns
        for metric in metrics
    }
    lines = ["| | " + " | ".join(_head(c) for c in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for label in labels:
        found = [
            " / ".join(_text(cells[label, column, m], best[column, m], interval) for m in metrics) for column in columns
        ]
        lines.append(f"| {label} | " + " | ".join(found) + " |")
    return "\n".join(lines) + "\n"


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of every data set, in the order in which they were measured."""
    return {data: [r for r in rows if r["data"] == data] for data in dict.fromkeys(r["data"] for r in rows)}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def short(value: float) -> str:
    """Three decimals without the leading zero.

    >>> short(0.5), short(1.0), short(-0.25)
    ('.500', '1.000', '-.250')
    """
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text


def _cell(rows: Sequence[Row], label: str, across: str, column: Any, metric: str) -> tuple[float, float, float] | None:
    chosen = [r for r in rows if r["label"] == label and r[across] == column]
    _, means, lows, highs = series(chosen, across, metric)
    return (means[0], lows[0], highs[0]) if means else None


def _text(cell: tuple[float, float, float] | None, best: float | None, interval: bool) -> str:
    if cell is None:
        return "–"
    mean, low, high = cell
    text = short(mean)
    text = f"**{text}**" if best is not None and abs(mean - best) < 5e-4 else text
    return f"{text} ± {short((high - low) / 2)}" if interval and high > low else text


def _order(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, str) else (0, value)


def _head(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
