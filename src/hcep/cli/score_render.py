"""How scores look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from hcep._escape import markup as escape
from hcep.cli.console import Console

if TYPE_CHECKING:
    from hcep.evaluate import Score, ScoreTable

#: A terminal narrower than this gets means without intervals.
WIDE = 120


def show_scores(facts: dict[str, Any], table: ScoreTable | None) -> None:
    """Print one model's metrics, or the table of several methods; classes below, where they were asked for."""
    console = Console()
    if table is None:
        console.print(_fact_table(facts))
    else:
        console.print(_method_table(table, console.width))
        note = table.note if console.is_terminal else table.plain_note
        console.print(f"\n[dim]{escape(facts['data'])}: {escape(note)}[/]", highlight=False)
    if facts["classes"] is not None:
        console.print(_class_table(facts["classes"]))
    if facts.get("interventions"):
        console.print("\nwith the first levels of every path corrected by the truth:")
        console.print(_curve_table(facts["interventions"]))


def _fact_table(facts: dict[str, Any]) -> Table:
    shown = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for key, value in facts.items():
        if key in ("intervals", "classes", "interventions"):
            continue
        low, high = facts["intervals"].get(key, (None, None))
        between = "" if low is None else f"[dim]{_shown(low)} to {_shown(high)}[/]"
        shown.add_row(key.replace("_", " "), escape(_shown(value)), between)
    return shown


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return " ".join("–" if one is None else f"{one:.3f}" for one in value)
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _class_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("class", "name", "images", "accuracy", "precision", "recall"):
        table.add_column(column, justify="left" if column in ("class", "name") else "right")
    for row in rows:
        numbers = (row["accuracy"], row["support_precision"], row["support_recall"])
        table.add_row(row["class"], row["name"], f"{row['n_images']:,}", *(f"{number:.3f}" for number in numbers))
    return table


def _curve_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("levels", "accuracy", "", "more by this level", ""):
        table.add_column(column, justify="right")
    for row in rows:
        between, gained = (f"[dim]{row[f'{of}low']:.3f} to {row[f'{of}high']:.3f}[/]" for of in ("", "gain_"))
        more = (f"{row['gain']:+.3f}", gained) if row["n_levels"] else ("", "")
        table.add_row(str(row["n_levels"]), f"{row['accuracy']:.3f}", between, *more)
    return table


def _method_table(table: ScoreTable, width: int) -> Table:
    """Methods as rows, with intervals where the terminal is wide enough."""
    from hcep._tables import number

    def cell(score: Score) -> str:
        text = f"[bold green]{number(score.mean)}[/]" if score.best else number(score.mean)
        text += "†" if table.is_significant(score) else ""
        return f"{text}\n[dim]{escape(score.between)}[/]" if width >= WIDE and score.n_images else text

    shown = Table(box=None, padding=(0, 2 if width >= WIDE else 1, 0, 0), header_style="bold")
    shown.add_column("method")
    for title in table.titles:
        shown.add_column(title, justify="right")
    for method in table.methods:
        shown.add_row(escape(method), *(cell(table.score(method, metric)) for metric in table.metrics))
    return shown
