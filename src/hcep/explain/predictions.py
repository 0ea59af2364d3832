"""Class and rooted path of every image into a Parquet or CSV file, block by block."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.csv import write_csv

from hcep._files import replacing
from hcep._progress import progress as progress_bar
from hcep.classify.hedging import hedges
from hcep.classify.path_model import PathModel
from hcep.pursuit.limits import PathLimits

#: Images that are classified at a time.
BLOCK = 8192


def write_predictions(
    model: PathModel,
    X: NDArray[Any],
    path: str | PathLike[str],
    *,
    ids: NDArray[Any],
    labels: NDArray[Any] | None = None,
    limits: PathLimits | None = None,
    coverage: float | None = None,
    progress: bool = False,
) -> None:
    """Write id, label (where given), predicted, probability, path, names, coefficients and residual_norm per image.

    Parameters
    ----------
    model : PathModel
    X : (n_images, n_dims) array, raw embeddings
    path : the file, .parquet or .csv, replaced in one step
    ids : (n_images,) array
    labels : (n_images,) array, what is known of the classes
    limits : PathLimits, which paths are open to each image
    coverage : add the columns answer, answer_name, answer_probability (the lowest concept that the true class is below
        with this probability) and kind (of what concept, where the image seems to be of no known class)
    progress : show a progress bar
    """
    tables, name = [], model.hierarchy.name
    with progress_bar("predicting", len(X), progress, "images") as advance:
        for start in range(0, max(len(X), 1), BLOCK):
            rows = slice(start, start + BLOCK)
            inferred = model.infer(X[rows], explained=coverage is not None, limits=limits and limits.at(rows))
            found = inferred.paths
            columns = {
                "id": ids[rows].astype(str).tolist(),
                **({} if labels is None else {"label": labels[rows].tolist()}),
                "predicted": inferred.labels.tolist(),
                "probability": inferred.probabilities.max(axis=1),
                "path": [list(synsets) for synsets in found.paths],
                "names": [list(map(name, synsets)) for synsets in found.paths],
                "coefficients": [found.coefficients(i).tolist() for i in range(len(found))],
                "residual_norm": found.residual_norms,
            }
            if coverage is not None:
                hedged = hedges(model, inferred, 1.0 - coverage)
                columns |= {"answer": [h.concept for h in hedged], "answer_name": [h.name for h in hedged]}
                columns |= {"answer_probability": [h.probability for h in hedged], "kind": [h.kind for h in hedged]}
            tables.append(pa.table(columns))
            advance(len(found))
    whole = pa.concat_tables(tables, promote_options="default")
    with replacing(path) as partial:
        if Path(path).suffix == ".csv":
            write_csv(_flat(whole), partial)
        else:
            pq.write_table(whole, partial)


def _flat(table: pa.Table) -> pa.Table:
    """The table for CSV: what is a list stands in one cell, its parts apart by arrows (numbers by spaces)."""
    for name, mark in (("path", " → "), ("names", " → "), ("coefficients", " ")):
        cells = [mark.join(map(str, parts)) for parts in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells, pa.string()))
    return table
