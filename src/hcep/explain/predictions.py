"""Class and rooted path of every image in a Parquet or CSV file, written block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter

from hcep._files import replacing
from hcep._progress import progress as progress_bar
from hcep.classify.hedging import hedges
from hcep.classify.path_model import Inference, PathModel
from hcep.embeddings import EmbeddingStore
from hcep.explain.answer import Answer
from hcep.explain.corrections import corrected_limits
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import embeddings_for
from hcep.pursuit.limits import PathLimits

#: Images in memory at a time.
BLOCK = 2048
#: Columns that a coverage adds.
HEDGED = {"answer": pa.string(), "answer_name": pa.string(), "answer_probability": pa.float64(), "kind": pa.string()}


class Prediction(Struct):
    """One row of the table that `hcep predict` writes; with a coverage also the answer at that coverage."""

    id: str
    predicted: str
    probability: float
    path: list[str]
    names: list[str]
    coefficients: list[float]
    residual_norm: float
    answer: str | None = None
    answer_name: str | None = None
    answer_probability: float | None = None
    kind: str | None = None

    @classmethod
    def of(cls, answer: Answer, key: str) -> Prediction:
        """The row of an answer."""
        steps, hedged = answer.path, answer.hedged
        return cls(
            key,
            answer.label,
            answer.probability,
            [step.synset for step in steps],
            [step.name for step in steps],
            [step.coefficient for step in steps],
            answer.residual_norm,
            *(() if hedged is None else (hedged.concept, hedged.name, hedged.probability, hedged.kind)),
        )


def predict_data(
    model: SavedModel,
    data: Path,
    output: Path,
    split: str | None = None,
    *,
    corrections: Path | None = None,
    coverage: float | None = None,
    progress: bool = False,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> int:
    """Read or encode data for a model, write the predictions as `write_predictions` does, and return their number.

    Parameters
    ----------
    data, split, reading : as `hcep.models.model_encoder.embeddings_for` takes them
    corrections : a file of corrections that predictions follow
    on_note : called with each sentence about the data and the corrections
    """
    images = embeddings_for(model, data, split, in_memory=BLOCK, progress=progress, **reading)
    for note in images.notes:
        on_note(note)
    limits = corrected_limits(corrections, model.hierarchy, images, on_note)
    known: dict[str, Any] = {"ids": images.image_ids, "labels": images.labels}
    write_predictions(model.path_model, images.X, output, **known, limits=limits, coverage=coverage, progress=progress)
    return len(images.X)


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
    """Write the columns of `Prediction`, and label if labels are given, for every image.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings, or a store, which is read block by block
    path : the file, .parquet or .csv, replaced in one step
    ids : (n_images,) array
    labels : (n_images,) array of known classes
    limits : the paths that each image may take
    coverage : also write answer, answer_name and answer_probability (the most specific concept that is right with this
        probability) and kind (what an image of an unknown class is a kind of)
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
            result = model.infer(block, explained=coverage is not None, limits=limits and limits.at(rows))
            columns = _columns(model, result, coverage)
            columns["id"] = ids[rows].astype(str).tolist()
            if labels is not None:
                columns["label"] = labels[rows].tolist()
            table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
            file.write_table(_flat(table) if is_csv else table)
            advance(len(block))


def blocks_of(X: NDArray[Any] | EmbeddingStore, size: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Blocks of images of an array or a store, each with its rows."""
    slices = (slice(start, start + size) for start in range(0, len(X), size))
    if isinstance(X, EmbeddingStore):
        return zip(slices, (block for block, _ in X.batches(size)), strict=True)
    return ((rows, X[rows]) for rows in slices)


def _schema(model: PathModel, labels: NDArray[Any] | None, hedged: bool) -> pa.Schema:
    """The columns, the same for every block."""
    names, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    columns: dict[str, Any] = {"id": pa.string()}
    if labels is not None:
        kind = pa.infer_type(labels.tolist())
        columns["label"] = pa.string() if pa.types.is_null(kind) else kind
    columns |= {"predicted": pa.infer_type(model.classes.tolist()), "probability": pa.float64()}
    columns |= {"path": names, "names": names, "coefficients": numbers, "residual_norm": pa.float64()}
    return pa.schema(list((columns | (HEDGED if hedged else {})).items()))


def _columns(model: PathModel, result: Inference, coverage: float | None) -> dict[str, Any]:
    """The columns of a block of images, straight from the arrays of the search."""
    name = model.hierarchy.name
    columns = {
        "predicted": result.labels.tolist(),
        "probability": result.probabilities.max(axis=1),
        "path": [list(synsets) for synsets in result.paths],
        "names": [list(map(name, synsets)) for synsets in result.paths],
        "coefficients": [result.coefficients(i).tolist() for i in range(len(result))],
        "residual_norm": result.residual_norms,
    }
    if coverage is not None:
        cells = [(h.concept, h.name, h.probability, h.kind) for h in hedges(model, result, 1.0 - coverage)]
        columns |= dict(zip(HEDGED, zip(*cells, strict=True), strict=True))
    return columns


def _flat(table: pa.Table) -> pa.Table:
    """The table for CSV: a list becomes one cell, its parts separated by arrows (numbers by spaces)."""
    for name, mark in (("path", " → "), ("names", " → "), ("coefficients", " ")):
        cells = [mark.join(map(str, parts)) for parts in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells, pa.string()))
    return table
