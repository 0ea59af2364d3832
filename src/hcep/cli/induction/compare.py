"""`hcep induce compare`: several candidate hierarchies, scored in one table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from hcep._escape import markup as escape
from hcep._tables import NOTHING
from hcep.cli.console import Console, say
from hcep.cli.data_options import Label, Labels, Vectors
from hcep.cli.hierarchy.files import Options, read
from hcep.cli.hierarchy.report import labelled
from hcep.errors import HCEPError

#: Columns, and what makes the best of one.
COLUMNS: dict[str, tuple[str, Callable[[Iterable[float]], float] | None]] = {
    "n_synsets": ("concepts", None),
    "depth": ("depth", None),
    "edge_f1": ("edge F1", max),
    "ancestor_f1": ("ancestor F1", max),
    "cluster_f1": ("cluster F1", max),
    "overlap": ("overlap", max),
    "containment_outside": ("outside cone", min),
    "orthogonality": ("|cos|", min),
    "support_f1": ("support F1", max),
    "accuracy": ("accuracy", max),
}


def compare(
    trees: Annotated[list[str], typer.Argument(help="Hierarchies to compare: files, `imagenet`, model folders.")],
    *,
    gold: Annotated[str | None, typer.Option(help="Hierarchy they should be like.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Labelled embeddings or photos, in any form that `hcep fit` takes.")
    ] = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, typer.Option(help="Split to fit on; train where there is one.")] = None,
    val_split: Annotated[
        str | None, typer.Option(help="Split to score on; val where there is one, else a share of each class.")
    ] = None,
    options: Options = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Score hierarchies of the same classes: against a gold one, in the embedding space, and at classifying.

    [bold]Examples[/]

      hcep induce compare llm.json clusters.json hearst.json --gold wordnet.json --data store/

      hcep induce compare a.json b.json --data embeddings.npz --json
    """
    from hcep.induction.scoring import score_induced

    if gold is None and data is None:
        raise typer.BadParameter("give --gold, --data or both; there is nothing to compare by", param_hint="--gold")
    reference = None if gold is None else read(gold, options=options)
    parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels}
    images = {} if data is None else _images(data, split, val_split, parts)
    rows: dict[str, dict[str, float]] = {}
    with Console(stderr=True, quiet=as_json).status("scoring …") as status:
        for tree in trees:
            status.update(f"scoring {escape(tree)} …")
            candidate = read(tree, options=options)
            try:
                rows[tree] = score_induced(candidate, reference, **images)
            except HCEPError as error:
                raise HCEPError(f"{tree}: {error}") from None
    _warn_of_other_classes(rows, Console(stderr=True, quiet=as_json, soft_wrap=True))
    if as_json:
        known = {t: {k: None if math.isnan(v) else v for k, v in row.items()} for t, row in rows.items()}
        say(json.dumps(known, indent=2, ensure_ascii=False))
        return
    Console().print(_table(rows))


def _images(data: Path, split: str | None, val_split: str | None, parts: dict[str, Any]) -> dict[str, Any]:
    train, held_out = labelled(data, split, **parts), labelled(data, val_split, "val", **parts)
    if np.array_equal(train.ids, held_out.ids):  # no splits: a share of the images is held out
        return {"X": train.X, "y": train.y}
    return {"X": train.X, "y": train.y, "X_val": held_out.X, "y_val": held_out.y}


def _warn_of_other_classes(rows: dict[str, dict[str, float]], console: Console) -> None:
    """Scores over fewer classes, or other ones, do not compare with those over all."""
    for name, row in rows.items():
        n_shared = row.get("n_leaves_compared")
        if n_shared is not None and not n_shared == row["n_leaves"] == row["n_leaves_gold"]:
            text = (
                f"{name}: {_classes(row)} classes of --gold compared, {row['n_leaves'] - n_shared:,.0f} of its own "
                "left out; scores over different classes do not compare"
            )
            console.print(f"[yellow]warning:[/] {escape(text)}", highlight=False)


def _classes(row: dict[str, float]) -> str:
    return f"{row['n_leaves_compared']:,.0f} of {row['n_leaves_gold']:,.0f}"


def _table(rows: dict[str, dict[str, float]]) -> Table:
    """One line per tree, the best of each column in bold."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("hierarchy")
    cells = {name: [escape(name)] for name in rows}
    if any("n_leaves_gold" in row for row in rows.values()):
        table.add_column("classes", justify="right")
        cells = {name: [*shown, _classes(rows[name])] for name, shown in cells.items()}
    for column, (title, better) in COLUMNS.items():
        values = {name: row[column] for name, row in rows.items() if column in row}
        if not values:
            continue
        table.add_column(title, justify="right")
        known = [value for value in values.values() if not math.isnan(value)]
        best = better(known) if better and known and len(rows) > 1 else None
        for name, value in values.items():
            text = NOTHING if math.isnan(value) else f"{value:.3f}" if better else f"{value:,.0f}"
            cells[name].append(f"[bold]{text}[/]" if value == best else text)
    for row in cells.values():
        table.add_row(*row)
    return table
