"""The audit of a saved model on labelled data: what `hcep audit` does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep import models
from hcep.errors import HCEPError, near_matches
from hcep.evaluate.audit_report import Audit, audit, exact_images
from hcep.evaluate.drawing import write_figures
from hcep.explain.neighbours import fitted_on
from hcep.models.fitting import IN_MEMORY
from hcep.models.model_encoder import embeddings_for, own_labels


def audit_model(
    model: Path,
    data: Path,
    split: str | None = None,
    *,
    train_split: str = "train",
    by: str | None = None,
    groups: Path | None = None,
    coverage: float = 0.9,
    figures: Path | None = None,
    progress: bool = False,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> Audit:
    """Audit a saved model on labelled data, as `hcep.evaluate.audit` does.

    Parameters
    ----------
    model : folder
    data, reading : as `hcep.models.model_encoder.embeddings_for` takes them
    split : the split to check; by default "val", if there is one
    train_split : the split that controls are fitted to, if there is one
    by, groups : a column of a .csv or .parquet table (by default the data) whose values are checked one by one
    figures : a folder to write figures to; all images are then read into memory
    on_note : called with each sentence about the data
    """
    saved = models.read_model(model)
    classifier = saved.classifier
    reading |= {"progress": progress, "in_memory": IN_MEMORY if figures is None else None}
    test = embeddings_for(saved, data, split, default_split="val", **reading)
    for note in test.notes:
        on_note(note)
    if n := int(fitted_on(saved, test.hashes).sum()):
        on_note(f"{n:,} of {len(test.y):,} images are training images of the model; it may do worse on new ones")
    train = None
    if split != train_split:
        try:
            controls = embeddings_for(saved, data, train_split, **reading)
            train = controls.X, own_labels(classifier, controls.y)
        except HCEPError as error:
            on_note(f"no controls are fitted: {error}")
    y = own_labels(classifier, test.y)
    values = None if by is None else group_values(groups or data, by, test.image_ids)
    options: dict[str, Any] = {"coverage": coverage, "name": str(model), "progress": progress}
    report = audit(classifier, test.X, y, train=train, groups=values, **options)
    if figures is not None:
        write_figures(figures, classifier, *exact_images(classifier, test.X, y)[:2])
    return report


def group_values(table: Path, column: str, ids: NDArray[Any]) -> NDArray[Any]:
    """The column of a table for each image, matched by the column `id`, or by row if there is no such column."""
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
