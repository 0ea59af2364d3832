"""Class and rooted path of every image in a Parquet or CSV file, written block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter

from hcep._files import replacing
from hcep._progress import progress as progress_bar
from hcep.classify.hedging import answer_concepts, held_out_levels, unknown_kinds
from hcep.classify.path_model import Inference, PathModel
from hcep.classify.right_level import SURE, require_sure
from hcep.dictionary.path_problem import OPEN
from hcep.embeddings import EmbeddingStore
from hcep.explain.answer import Answer, doubt_about
from hcep.explain.corrections import corrected_limits
from hcep.explain.possible import VOID, read_possible
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import embeddings_for
from hcep.pursuit.limits import PathLimits

#: Images in memory at a time.
BLOCK = 2048


class Prediction(Struct, kw_only=True):
    """One row of the table that `hcep predict` writes: the answer that is sure enough, the class, and its path."""

    id: str
    answer: str | None
    answer_name: str | None
    answer_probability: float | None
    rank: str | None
    label: str = field(name="class")
    class_probability: float
    doubt: str
    kind: str | None
    path: list[str]
    names: list[str]
    coefficients: list[float]
    residual_norm: float

    @classmethod
    def of(cls, answer: Answer, key: str) -> Prediction:
        """The row of an answer."""
        same = ("answer", "answer_name", "answer_probability", "rank", "label", "class_probability", "doubt", "kind")
        return cls(
            id=key,
            **{name: getattr(answer, name) for name in same},
            path=[step.synset for step in answer.path],
            names=[step.name for step in answer.path],
            coefficients=[step.coefficient for step in answer.path],
            residual_norm=answer.residual_norm,
        )


def predict_data(
    model: SavedModel,
    data: Path,
    output: Path,
    split: str | None = None,
    *,
    corrections: Path | None = None,
    only: Path | None = None,
    sure: float = SURE,
    rank: str | None = None,
    progress: bool = False,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> int:
    """Read or encode data for a model, write the predictions as `write_predictions` does, and return their number.

    Parameters
    ----------
    data, split, reading : as `hcep.models.model_encoder.embeddings_for` takes them
    corrections : a file of corrections that predictions follow
    only : a list of what is possible (see `hcep.explain.possible.read_possible`)
    sure, rank : as for `write_predictions`
    on_note : called with each sentence about the data and the corrections
    """
    require_sure(sure)
    at_rank = None if rank is None else model.hierarchy.find_rank(rank)
    images = embeddings_for(model, data, split, in_memory=BLOCK, progress=progress, **reading)
    for note in images.notes:
        on_note(note)
    possible = None if only is None else read_possible(only, model.hierarchy, on_note)
    if possible is not None and held_out_levels(model.path_model) is not None:
        on_note(VOID)
    limits = corrected_limits(corrections, model.hierarchy, images, on_note, possible)
    known: dict[str, Any] = {"ids": images.image_ids, "labels": images.labels}
    options: dict[str, Any] = {"limits": limits, "sure": sure, "rank": at_rank, "progress": progress}
    write_predictions(model.path_model, images.X, output, **known, **options)
    return len(images.X)


def write_predictions(
    model: PathModel,
    X: NDArray[Any] | EmbeddingStore,
    path: str | PathLike[str],
    *,
    ids: NDArray[Any],
    labels: NDArray[Any] | None = None,
    limits: PathLimits | None = None,
    sure: float = SURE,
    rank: str | None = None,
    progress: bool = False,
) -> None:
    """Write the columns of `Prediction`, and label if labels are given, for every image.

    If the hierarchy has ranks, there is a column for each, such as ``rank_family``: the name of the concept of that
    rank that is the answer or above it.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings, or a store, which is read block by block
    path : the file, .parquet or .csv, replaced in one step
    ids : (n_images,) array
    labels : (n_images,) array of known classes
    limits : the paths that each image may take
    sure : the answer is the most specific concept that is at least this likely (see `hcep.explain_images`)
    rank : answer at this rank or above it
    progress : show a progress bar
    """
    schema, is_csv = _schema(model, labels), Path(path).suffix == ".csv"
    written = _flat(schema.empty_table()).schema if is_csv else schema
    with (
        replacing(path) as partial,
        (CSVWriter if is_csv else pq.ParquetWriter)(partial, written) as file,
        progress_bar("predicting", len(X), progress, "images") as advance,
    ):
        for rows, block in blocks_of(X, BLOCK):
            own_limits = None if limits is None else limits.at(rows)
            result = model.infer(block, explained=True, limits=own_limits)
            limited = None
            if own_limits is not None:
                limited = (own_limits.state != OPEN).any(axis=1)[own_limits.limit(slice(0, len(block)))]
            columns = _columns(model, result, sure, limited, rank)
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


def _schema(model: PathModel, labels: NDArray[Any] | None) -> pa.Schema:
    """The columns, the same for every block."""
    text, number = pa.string(), pa.float64()
    columns: dict[str, Any] = {"id": text}
    if labels is not None:
        kind = pa.infer_type(labels.tolist())
        columns["label"] = text if pa.types.is_null(kind) else kind
    columns |= {"answer": text, "answer_name": text, "answer_probability": number, "rank": text}
    columns |= {f"rank_{name}": text for name in model.hierarchy.rank_names}
    columns |= {"class": pa.infer_type(model.classes.tolist()), "class_probability": number, "doubt": text}
    columns |= {"kind": text, "path": pa.list_(text), "names": pa.list_(text), "coefficients": pa.list_(number)}
    return pa.schema(list((columns | {"residual_norm": number}).items()))


def _columns(
    model: PathModel, result: Inference, sure: float, limited: NDArray[np.bool_] | None, rank: str | None
) -> dict[str, Any]:
    """The columns of a block of images, straight from the arrays of the search."""
    h, rows = model.hierarchy, np.arange(len(result))
    concepts, sureness = answer_concepts(model, result, sure, limited, rank)
    at_rank = [rank is not None and one is not None and one.rank == rank for one in concepts]
    lineages = {one: h.lineage(one.id) for one in set(concepts) if one is not None} if h.ranks else {}
    lines = [lineages.get(one, {}) if one is not None else {} for one in concepts]
    floor, labels = model.explained_floor, result.labels.tolist()
    unlike = [False] * len(rows) if floor is None else (result.explained < floor[result.class_index]).tolist()
    return {
        "answer": [concept and concept.id for concept in concepts],
        "answer_name": [concept and concept.name for concept in concepts],
        "answer_probability": [None if concept is None else p for concept, p in zip(concepts, sureness, strict=True)],
        "rank": [concept and concept.rank for concept in concepts],
        "class": labels,
        "class_probability": result.probabilities[rows, result.class_index],
        "doubt": [
            doubt_about(concept and concept.id, str(label), low, reached)
            for concept, label, low, reached in zip(concepts, labels, unlike, at_rank, strict=True)
        ],
        "kind": unknown_kinds(model, result),
        "path": [list(synsets) for synsets in result.paths],
        "names": [list(map(h.name, synsets)) for synsets in result.paths],
        "coefficients": [result.coefficients(i).tolist() for i in range(len(result))],
        "residual_norm": result.residual_norms,
        **{f"rank_{name}": [line.get(name) for line in lines] for name in h.rank_names},
    }


def _flat(table: pa.Table) -> pa.Table:
    """The table for CSV: a list becomes one cell, its parts separated by arrows (numbers by spaces)."""
    for name, mark in (("path", " → "), ("names", " → "), ("coefficients", " ")):
        cells = [mark.join(map(str, parts)) for parts in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells, pa.string()))
    return table
