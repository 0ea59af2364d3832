"""`hcep audit`: checks that a model may fail, and what it may be used for."""

from pathlib import Path
from typing import Annotated

import typer

from hcep._files import refuse_existing, write_text
from hcep.cli import options as opt
from hcep.cli.console import say, tell
from hcep.cli.options import option


def audit(
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    sure: opt.Sure = 0.9,
    output: opt.OptionalOutput = None,
    figures: Annotated[Path | None, option("Folder to write figures to (PDF, PNG, HTML).", "--figures FOLDER")] = None,
    by: Annotated[str | None, option("Check each value of this column of --groups.", "--by COLUMN")] = None,
    groups: Annotated[
        Path | None,
        option("Table with the column of --by and `id` (.csv or .parquet; default: DATA).", "--groups FILE"),
    ] = None,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    train_split: opt.TrainSplit = "train",
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Audit a model on labelled images it has not seen; exit code 1 if a check fails.

    Checks: deletion and insertion of concepts, concepts removed and exchanged, leakage, noise, other training images,
    shuffled labels, a random tree, calibration and coverage by branch, small classes, groups. The split `val` is used
    if there is one. --output writes an HTML report and a JSON file beside it.
    """
    from hcep.evaluate.audit_report import audit_model

    beside = None if output is None else output.with_suffix(".json")
    for path in (output, beside):
        refuse_existing(path, overwrite, "--output")
    refuse_existing(figures, overwrite, "--figures", folder=True)
    report = audit_model(
        model,
        data,
        split,
        train_split=train_split,
        by=by,
        groups=groups,
        sure=sure,
        figures=figures,
        progress=not as_json,
        on_note=tell,
        encoder=encoder,
        **opt.columns(vectors, labels),
    )
    if output is not None and beside is not None:
        write_text(output, report.to_html())
        write_text(beside, report.to_json())
    if as_json:
        say(report.to_json())
    else:
        for check in report.checks:
            mark = {True: "✓", False: "✗", None: "–"}[check.passed]
            say(f"{mark} {check.name}: {check.measured}")
        say("\n" + "\n".join(report.sentences) + (f"\nreport: {output}, {beside}" if output else ""))
    if report.failed:
        raise typer.Exit(1)
