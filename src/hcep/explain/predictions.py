"""Class and rooted path of every image into a Parquet or CSV file, block by block."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter

from hcep._files import replacing
from hcep._progress import progress as progress_bar
from hcep.classify.hedging import hedges
from hcep.classify.path_model import Inference, PathModel
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.pursuit.limits import PathLimits

#: Images that are in memory at a time.
BLOCK = 2048


def write_predictions(
    model: PathModel,
    X: NDArray[Any] | EmbeddingStore,
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
    X : (n_images, n_dims) array, raw embeddings; or the store of them, which is read block by block
    path : the file, .parquet or .csv, replaced in one step
    ids : (n_images,) array
    labels : (n_images,) array, what is known of the classes
    limits : PathLimits, which paths are open to each image
    coverage : add the columns answer, answer_name, answer_probability (the lowest concept that the true class is below
        with this probability) and kind (of what concept, where the image seems to be of no known class)
    progress : show a progress bar
    """
    schema, is_csv = _schema(model, labels, coverage is not None), Path(path).suffix == ".csv"
    written = _flat(schema.empty_table()).schema if is_csv else schema
    with (
        replacing(path) as partial,
        (CSVWriter if is_csv else pq.ParquetWriter)(partial, written) as file,
        progress_bar("predicting", len(X), progress, "images") as advance,
    ):
        for rows, block in blocks_of(X, BLOCK):
            inferred = model.infer(block, explained=coverage is not None, limits=limits and limits.at(rows))
            columns = _columns(model, inferred, coverage)
            columns["id"] = ids[rows].astype(str).tolist()
            if labels is not None:
                columns["label"] = labels[rows].tolist()
            table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
            file.write_table(_flat(table) if is_csv else table)
            advance(len(block))


def blocks_of(X: NDArray[Any] | EmbeddingStore, size: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Images of an array or a store, so many at a time, each block with the rows that it has."""
    slices = (slice(start, start + size) for start in range(0, len(X), size))
    if isinstance(X, EmbeddingStore):
        return zip(slices, (block for block, _ in X.batches(size)), strict=True)
    return ((rows, X[rows]) for rows in slices)


def _schema(model: PathModel, labels: NDArray[Any] | None, hedged: bool) -> pa.Schema:
    """The columns, the same for every block."""
    names, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    known = pa.null() if labels is None else pa.infer_type(labels.tolist())
    columns: dict[str, Any] = {"id": pa.string()}
    if labels is not None:
        columns["label"] = pa.string() if pa.types.is_null(known) else known
    columns |= {"predicted": pa.infer_type(model.classes.tolist()), "probability": pa.float64()}
    columns |= {"path": names, "names": names, "coefficients": numbers, "residual_norm": pa.float64()}
    if hedged:
        columns |= {"answer": pa.string(), "answer_name": pa.string(), "answer_probability": pa.float64()}
        columns["kind"] = pa.string()
    return pa.schema(list(columns.items()))


def _columns(model: PathModel, inferred: Inference, coverage: float | None) -> dict[str, Any]:
    """What is said of the images of a block."""
    found, name = inferred.paths, model.hierarchy.name
    columns = {
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
    return columns


def _flat(table: pa.Table) -> pa.Table:
    """The table for CSV: what is a list stands in one cell, its parts apart by arrows (numbers by spaces)."""
    for name, mark in (("path", " → "), ("names", " → "), ("coefficients", " ")):
        cells = [mark.join(map(str, parts)) for parts in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells, pa.string()))
    return table
