"""`hcep audit`: checks that a model may fail, and what it may be used for."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from hcep import evaluate, evaluate as auditing, models
from hcep._files import refuse_existing, write_text
from hcep.cli import options as opt
from hcep.cli.console import say, show_notes
from hcep.cli.model import own_labels
from hcep.cli.options import option
from hcep.errors import HCEPError, near_matches


def audit(
    model: opt.Model,
    data: opt.Data,
    *,
    split: opt.Split = None,
    coverage: opt.Coverage = 0.9,
    output: opt.OptionalOutput = None,
    figures: Annotated[Path | None, option("Folder for figures (PDF, PNG, HTML).", "--figures FOLDER")] = None,
    by: Annotated[str | None, option("Column of --groups: check each of its values.", "--by COLUMN")] = None,
    groups: Annotated[
        Path | None, option(".csv or .parquet with that column and `id` (default: DATA).", "--groups FILE")
    ] = None,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    train_split: opt.TrainSplit = "train",
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
) -> None:
    """Audit a model on labelled images it has not seen; the exit code is 1 if a check fails.

    Checks: deletion and insertion of concepts, concepts removed and exchanged, leakage, noise, other training images,
    shuffled labels, a random tree, calibration and coverage by branch, small classes, groups. The split `val` is used
    if there is one. --output writes an HTML report and a JSON file beside it.
    """
    from hcep.explain.neighbours import fitted_on
    from hcep.models.fitting import IN_MEMORY

    beside = None if output is None else output.with_suffix(".json")
    for path in (output, beside):
        refuse_existing(path, overwrite, "--output")
    is_empty = figures is None or not figures.exists() or (figures.is_dir() and not any(figures.iterdir()))
    if not is_empty and not overwrite:
        how = "pass --overwrite to add to it, or give another name"
        raise HCEPError(f"--figures: {str(figures)!r} exists already; {how}")
    saved, options = models.read_model(model), opt.columns(vectors, labels)
    # Figures need all images at once.
    options |= {"encoder": encoder, "progress": not as_json, "in_memory": IN_MEMORY if figures is None else None}
    test = opt.embeddings_for(saved, data, split, default_split="val", **options)
    if n := int(fitted_on(saved, test.hashes).sum()):
        show_notes([f"{n:,} of {len(test.y):,} images are training images of the model; it may do worse on new ones"])
    train = None
    if split != train_split:
        try:
            controls = opt.embeddings_for(saved, data, train_split, **options)
            train = controls.X, _own(controls.y, saved.classifier)
        except HCEPError as error:
            show_notes([f"no controls are fitted: {error}"])
    y = _own(test.y, saved.classifier)
    report = auditing.audit(
        saved.classifier,
        test.X,
        y,
        train=train,
        groups=None if by is None else _groups(groups or data, by, test.image_ids),
        coverage=0.9 if coverage is None else coverage,
        name=str(model),
        progress=not as_json,
    )
    if output is not None and beside is not None:
        write_text(output, report.to_html())
        write_text(beside, report.to_json())
    if figures is not None:
        evaluate.write_figures(figures, saved.classifier, test.X, y)
    if as_json:
        say(report.to_json())
    else:
        for check in report.checks:
            mark = {True: "✓", False: "✗", None: "–"}[check.passed]
            say(f"{mark} {check.name}: {check.measured}")
        say("\n" + "\n".join(report.sentences) + (f"\nreport: {output}, {beside}" if output else ""))
    if report.failed:
        raise typer.Exit(1)


def _own(y: NDArray[Any], classifier: Any) -> NDArray[Any]:
    """Labels of the type of the model's classes."""
    labels, index = np.unique(y, return_inverse=True)
    return np.array(own_labels(classifier, labels.tolist()))[index]


def _groups(table: Path, column: str, ids: NDArray[Any]) -> NDArray[Any]:
    """The column of a table for each image, matched by `id`, or by row if the table has no ids."""
    import pyarrow.csv
    import pyarrow.parquet

    if table.suffix not in (".csv", ".parquet"):
        raise HCEPError(f"--by {column}: give the table that has this column with --groups (.csv or .parquet)")
    read = pyarrow.parquet.read_table if table.suffix == ".parquet" else pyarrow.csv.read_csv
    rows = read(table)
    if column not in rows.column_names:
        raise HCEPError(f"--by: {table} has no column {column!r}.{near_matches(column, rows.column_names)}")
    values = [str(value) for value in rows.column(column).to_pylist()]
    if "id" not in rows.column_names:
        if len(values) != len(ids):
            raise HCEPError(f"--groups: {table} has {len(values):,} rows for {len(ids):,} images and no column `id`")
        return np.array(values)
    by_id = dict(zip(map(str, rows.column("id").to_pylist()), values, strict=True))
    return np.array([by_id.get(str(i), "unknown") for i in ids.tolist()])
