"""`hcep hierarchy compare`: what changed between two hierarchies, or how well several of them score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import numpy as np

from hcep import taxonomy
from hcep._checks import NO_NUMBER
from hcep.cli import options as opt
from hcep.cli.console import Console, escape, say_json, table_of, tell
from hcep.cli.hierarchy import read
from hcep.cli.hierarchy_edits import labelled, report
from hcep.cli.options import argument, more, option
from hcep.errors import HCEPError
from hcep.taxonomy import induction

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
Scores = dict[str, dict[str, float]]


def compare(
    trees: Annotated[list[str], argument("Hierarchies: files, `imagenet`, model folders.", metavar="TREES")],
    *,
    gold: Annotated[str | None, option("Reference hierarchy to score against.", "--gold TREE")] = None,
    data: opt.LabelledData = None,
    split: opt.Split = None,
    as_json: opt.Json = False,
    val_split: Annotated[
        str | None, more("Split to score on (default: val, or a part of each class).", "--val-split NAME")
    ] = None,
    options: opt.ReaderOptions = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Show what changed between two hierarchies, or score hierarchies of the same classes.

    Without --gold and --data: - and + are edges, ~ names, = merged concepts; ids are in brackets. With them, a table of
    scores: agreement with the reference, geometry in the embedding space, and classification by models fitted to the
    split `train`.
    """
    if gold is None and data is None:
        if len(trees) != 2:
            raise HCEPError(f"give two hierarchies to compare, or --gold, --data or both; got {len(trees)}")
        before, after = (read(tree, options) for tree in trees)
        report([], before, taxonomy.diff(before, after), {}, True, None, as_json)
        return
    reference = None if gold is None else read(gold, options)
    images: dict[str, Any] = {}
    if data is not None:
        columns = opt.columns(vectors, labels)
        train, held_out = labelled(data, split, **columns), labelled(data, val_split, "val", **columns)
        images = {"X": train.X, "y": train.y}
        if not np.array_equal(train.image_ids, held_out.image_ids):  # without splits, a part of the images is held out
            images |= {"X_val": held_out.X, "y_val": held_out.y}
    rows: Scores = {}
    with Console(stderr=True, quiet=as_json).status("scoring …") as status:
        for tree in trees:
            status.update(f"scoring {escape(tree)} …")
            candidate = read(tree, options)
            try:
                rows[tree] = induction.score_induced(candidate, reference, **images)
            except HCEPError as error:
                raise HCEPError(f"{tree}: {error}") from None
    if as_json:
        say_json({t: {k: None if math.isnan(v) else v for k, v in row.items()} for t, row in rows.items()})
    else:
        _print(rows)


def _print(rows: Scores) -> None:
    """Print a table of scores, the best of each column in bold; warn about trees of other classes."""
    for name, row in rows.items():
        n_shared = row.get("n_leaves_compared")
        if n_shared is not None and not n_shared == row["n_leaves"] == row["n_leaves_gold"]:
            left = f"{row['n_leaves'] - n_shared:,.0f} of its own left out"
            message = f"{name}: {_classes(row)} classes of --gold compared, {left}"
            tell(f"{message}; scores over different classes cannot be compared", "warning")
    cells = {name: [escape(name)] for name in rows}
    heads = ["hierarchy"]
    if any("n_leaves_gold" in row for row in rows.values()):
        heads.append("classes")
        cells = {name: [*shown, _classes(rows[name])] for name, shown in cells.items()}
    for column, (title, better) in COLUMNS.items():
        values = {name: row[column] for name, row in rows.items() if column in row}
        known = [value for value in values.values() if not math.isnan(value)]
        best = better(known) if better and known and len(rows) > 1 else None
        heads += [title] if values else []
        for name, value in values.items():
            shown = NO_NUMBER if math.isnan(value) else f"{value:.3f}" if better else f"{value:,.0f}"
            cells[name].append(f"[bold]{shown}[/]" if value == best else shown)
    Console().print(table_of(heads, cells.values()))


def _classes(row: dict[str, float]) -> str:
    return f"{row['n_leaves_compared']:,.0f} of {row['n_leaves_gold']:,.0f}"
