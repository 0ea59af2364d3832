"""`hcep audit`: checks of a model that can fail, and what it may be used for."""

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
    split: Annotated[str | None, option("Split to look at; val where there is one.")] = None,
    train_split: Annotated[str, option("Split that controls are fitted to, if there is one.")] = "train",
    by: Annotated[str | None, option("Column of --groups: a line for each of its values.")] = None,
    groups: Annotated[Path | None, option(".csv or .parquet with the column and `id`; the data by default.")] = None,
    coverage: Annotated[float, option("The promise to look at.", min=0.5, max=0.999)] = 0.9,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    encoder: opt.Encoder = None,
    output: Annotated[Path | None, option("HTML file; JSON is written beside it.", "--output", "-o")] = None,
    figures: Annotated[Path | None, option("Folder for figures: PDF, PNG, icicles as HTML.")] = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Look at a model with labelled images it was neither fitted nor calibrated on; exit code 1 where a check fails.

    Deletion and insertion of concepts, concepts removed and exchanged, leakage, noise, other training images, shuffled
    labels, a random tree, calibration and coverage by branch, thin classes, groups.
    """
    from hcep.explain.neighbours import fitted_on
    from hcep.models.fitting import IN_MEMORY

    beside = None if output is None else output.with_suffix(".json")
    for path in (output, beside):
        refuse_existing(path, force, "--output")
    if figures is not None and not force and figures.exists() and not (figures.is_dir() and not any(figures.iterdir())):
        how = "pass --force to add to it, or give another name"
        raise HCEPError(f"--figures: {str(figures)!r} is there already; {how}")
    saved, options = models.read_model(model), dict[str, Any](vectors=vectors, label=label, labels=labels)
    # Figures are of all images at once.
    options |= {"encoder": encoder, "progress": not as_json, "in_memory": IN_MEMORY if figures is None else None}
    test = opt.embeddings_for(saved, data, split, default_split="val", **options)
    if n := int(fitted_on(saved, test.hashes).sum()):
        show_notes([f"{n:,} of {len(test.y):,} images are those that the model was fitted on; new ones may fare worse"])
    train = None
    if split != train_split:
        try:
            controls = opt.embeddings_for(saved, data, train_split, **options)
            train = controls.X, _own(controls.y, saved.classifier)
        except HCEPError as error:
            show_notes([f"no controls are fitted: {error}"])
    y = _own(test.y, saved.classifier)
    found = auditing.audit(
        saved.classifier,
        test.X,
        y,
        train=train,
        groups=None if by is None else _groups(groups or data, by, test.ids),
        coverage=coverage,
        name=str(model),
        progress=not as_json,
    )
    if output is not None and beside is not None:
        write_text(output, found.to_html())
        write_text(beside, found.to_json())
    if figures is not None:
        evaluate.write_figures(figures, saved.classifier, test.X, y)
    if as_json:
        say(found.to_json())
    else:
        for check in found.checks:
            mark = {True: "✓", False: "✗", None: "–"}[check.passed]
            say(f"{mark} {check.name}: {check.measured}")
        say("\n" + "\n".join(found.sentences) + (f"\nreport: {output}, {beside}" if output else ""))
    if found.failed:
        raise typer.Exit(1)


def _own(y: NDArray[Any], classifier: Any) -> NDArray[Any]:
    """Labels as the model has them."""
    labels, index = np.unique(y, return_inverse=True)
    return np.array(own_labels(classifier, labels.tolist()))[index]


def _groups(table: Path, column: str, ids: NDArray[Any]) -> NDArray[Any]:
    """The column of a table for each image, found by `id`, or by place where the table has none."""
    import pyarrow.csv
    import pyarrow.parquet

    if table.suffix not in (".csv", ".parquet"):
        raise HCEPError(f"--by {column}: give the table with this column by --groups FILE, .csv or .parquet")
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
