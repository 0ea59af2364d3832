"""How explanations and scores look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.tree import Tree

from hcep._escape import markup as escape
from hcep._tables import NOTHING, number
from hcep.cli.console import Console, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from hcep.evaluate import Score, ScoreTable
    from hcep.explain import ExplainedImage, Explanation

#: A terminal narrower than this gets means without intervals.
WIDE = 120
#: What metrics are called for people; those left out, by their name.
TITLES = {
    "n_images": "images",
    "mistake_tree_distance": "mistakes: steps to the truth",
    "mistake_lca_height": "mistakes: height they share",
    "support_precision": "concepts named that are right",
    "support_recall": "right concepts that are named",
    "support_f1": "these two as one (F1)",
    "one_path": "answers that are one path",
    "complete_path": "paths that end in a class",
    "prefix_accuracy": "right down to level 1, 2, …",
    "n_atoms": "concepts per answer",
    "reconstruction_error": "image left unexplained",
    "explained_energy": "explained to level 1, 2, …",
    "ece": "confidence off by (ECE)",
}


def verdict(one: ExplainedImage) -> str:
    """Class and probability, marked; green only where nothing speaks against them."""
    from hcep.explain.explained import percent

    colour = "green" if one.sure else "yellow" if one.doubt else "default"
    doubt = f", [yellow]{one.doubt}[/]" if one.doubt else ""
    return f"[bold {colour}]{escape(one.name)}[/], {percent(one.probability)}{doubt}"


def path_tree(explanation: Explanation) -> Tree:
    """The path as a rich tree, each concept with its coefficient and its own share of the image, its meaning below."""
    from hcep.explain.explained import percent

    branch = tree = Tree(f"[dim]{escape(explanation.root)}[/]", guide_style="dim")
    for step in explanation.steps:
        merged = f" [dim]({escape(', '.join(step.merged))})[/]" if step.merged else ""
        meaning = f"\n[italic]{escape(step.meaning)}[/]" if step.meaning else ""
        colour = "red" if step.coefficient < 0 else "default"
        branch = branch.add(
            f"[bold]{escape(step.name)}[/]  [{colour}]{step.coefficient:+.2f}[/]  "
            f"[cyan]{percent(step.share)} of the image[/]{merged}{meaning}"
        )
    return tree


def show_scores(facts: dict[str, Any], table: ScoreTable | None) -> None:
    """Print one model's metrics, or the table of several methods; classes below, where they were asked for."""
    console = Console()
    if table is None:
        console.print(_fact_table(facts))
        read = (
            "last column: 95 % intervals over images; a mistake two steps away is a sibling; docs/metrics.md tells more"
        )
        console.print(f"\n[dim]{escape(facts['data'])}; {read}[/]", highlight=False, soft_wrap=True)
    else:
        console.print(_method_table(table, console.width))
        note = table.note if console.is_terminal else table.plain_note
        console.print(f"\n[dim]{escape(facts['data'])}: {escape(note)}[/]", highlight=False)
    if facts["classes"] is not None:
        metrics = ("accuracy", "support_precision", "support_recall")
        rows = [
            (r["class"], r["name"], f"{r['n_images']:,}", *(f"{r[m]:.3f}" for m in metrics)) for r in facts["classes"]
        ]
        console.print(table_of(("class", "name", "images", "accuracy", "precision", "recall"), rows, n_left=2))
    if facts.get("interventions"):
        console.print("\nwith the first levels of every path corrected by the truth:")
        console.print(_curve_table(facts["interventions"]))


def _fact_table(facts: dict[str, Any]) -> Table:
    shown = []
    for key in (key for key in facts if key not in ("data", "intervals", "classes", "interventions")):
        low, high = facts["intervals"].get(key, (None, None))
        between = "" if low is None else f"[dim]{_shown(low)} to {_shown(high)}[/]"
        title = TITLES.get(key, key.replace("top_", "right among the first ").replace("_", " "))
        shown.append((title, escape(_shown(facts[key])), between))
    return table_of(None, shown)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(NOTHING if one is None else f"{one:.3f}" for one in value)
    if isinstance(value, float):
        return f"{value:.4f}"
    return NOTHING if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _curve_table(rows: list[dict[str, Any]]) -> Table:
    shown = []
    for row in rows:
        between, gained = (f"[dim]{row[f'{of}low']:.3f} to {row[f'{of}high']:.3f}[/]" for of in ("", "gain_"))
        more = (f"{row['gain']:+.3f}", gained) if row["n_levels"] else ("", "")
        shown.append((str(row["n_levels"]), f"{row['accuracy']:.3f}", between, *more))
    return table_of(("levels", "accuracy", "", "more by this level", ""), shown, n_left=0)


def _method_table(table: ScoreTable, width: int) -> Table:
    """Methods as rows, with intervals where the terminal is wide enough."""

    def cell(score: Score) -> str:
        text = f"[bold green]{number(score.mean)}[/]" if score.best else number(score.mean)
        text += "†" if table.is_significant(score) else ""
        return f"{text}\n[dim]{escape(score.between)}[/]" if width >= WIDE and score.n_images else text

    rows = [[escape(m), *(cell(table.score(m, metric)) for metric in table.metrics)] for m in table.methods]
    return table_of(["method", *table.titles], rows, gap=2 if width >= WIDE else 1)
