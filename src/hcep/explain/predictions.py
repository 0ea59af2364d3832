"""Class and rooted path of every image in a Parquet or CSV file, written block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field, structs
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter

from hcep import __version__
from hcep._files import replacing
from hcep._progress import progress as progress_bar
from hcep.classify.decoding import Decode, require_decoder
from hcep.classify.groups import group_rows, infer_groups
from hcep.classify.hedging import answer_concepts, is_limited, unknown_kinds, unlike
from hcep.classify.path_model import Inference, PathModel
from hcep.classify.right_level import SURE, AnswerConcepts, require_sure
from hcep.datasets import read_images
from hcep.datasets.layouts.table import group_values
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.files import is_embeddings
from hcep.embeddings.images import ImageItem
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, doubt_about
from hcep.explain.corrections import Correction, corrected_limits
from hcep.explain.possible import promise_note, read_possible
from hcep.formats.annotations import Region
from hcep.formats.answers import AnsweredImage, Concept, Writing, write_answers
from hcep.hierarchy import Hierarchy
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import embeddings_for
from hcep.pursuit.limits import PathLimits

#: Images in memory at a time.
BLOCK = 2048
#: The types of the columns of `Prediction`.
ARROW: dict[Any, pa.DataType] = {float: pa.float64(), str: pa.string(), str | None: pa.string()}
ARROW |= {float | None: pa.float64(), list[str]: pa.list_(pa.string()), list[float]: pa.list_(pa.float64())}


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
    answer_estimate: float | None
    kind: str | None
    path: list[str]
    names: list[str]
    coefficients: list[float]
    residual_norm: float
    corrected: str | None = None

    @classmethod
    def of(cls, answer: Answer, key: str) -> Prediction:
        """The row of an answer."""
        same: tuple[str, ...] = ("answer", "answer_name", "answer_probability", "rank", "label", "class_probability")
        same += ("doubt", "answer_estimate", "kind")
        return cls(
            id=key,
            **{name: getattr(answer, name) for name in same},
            path=[step.synset for step in answer.path],
            names=answer.shown_path(),
            coefficients=[step.coefficient for step in answer.path],
            residual_norm=answer.residual_norm,
            corrected=None if answer.correction is None else answer.correction.said(answer.context.model.hierarchy),
        )


def predict_data(
    model: SavedModel,
    data: Path,
    output: Path,
    split: str | None = None,
    *,
    corrections: Path | None = None,
    only: Path | None = None,
    decode: Decode = "sure",
    sure: float = SURE,
    rank: str | None = None,
    group: str | None = None,
    formats: Sequence[str] = (),
    embeddings: bool = False,
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
    decode, sure, rank : as for `write_predictions`
    group : where the burst, observation or specimen of each photo is, which get one row each: a column of the data if
        it is a table, or as `hcep.datasets.layouts.table.group_values` takes it
    formats : write the answers for other tools, in these formats of `hcep.formats.answers.WRITTEN`
    embeddings : as for `write_predictions`
    on_note : called with each sentence about the data and the corrections
    """
    require_decoder(decode)
    require_sure(sure)
    at_rank = None if rank is None else model.hierarchy.find_rank(rank)
    images = embeddings_for(model, data, split, in_memory=BLOCK, progress=progress, unlabelled=True, **reading)
    for note in images.notes:
        on_note(note)
    possible = None if only is None else read_possible(only, model.hierarchy, on_note)
    if decode == "sure" and (promise := promise_note(model.path_model, sure, possible, group is not None)):
        on_note(promise)
    limits, corrected = corrected_limits(corrections, model.hierarchy, images, on_note, possible)
    known: dict[str, Any] = {"ids": images.image_ids, "labels": images.labels, "corrections": corrected}
    options: dict[str, Any] = {"limits": limits, "decode": decode, "sure": sure, "rank": at_rank, "progress": progress}
    if group is not None:
        options["groups"] = group_values(data, group, known["ids"].tolist())
    if not formats:
        return write_predictions(model.path_model, images.X, output, **known, **options, embeddings=embeddings)
    if group is not None:
        raise HCEPError(f"--group: {formats[0]} files have one answer per photo; leave out --group or --format")
    with TemporaryDirectory() as folder:
        table = Path(folder, "predictions.parquet")
        write_predictions(model.path_model, images.X, table, **known, **options)
        photos: dict[str, ImageItem] = {}
        if not is_embeddings(data):
            photos = {one.id: one for one in read_images(data, boxes=reading.get("boxes"), unlabelled=True)}
        classes = [model.hierarchy.path_names(leaf) for leaf in model.hierarchy.leaves]
        writing = Writing(data, f"hcep {__version__} ({model.folder.resolve().name})", on_note, classes)
        for format in formats:
            write_answers(_answered(table, model.hierarchy, photos), output, format, writing)
    return len(images.X)


def _answered(table: Path, hierarchy: Hierarchy, photos: Mapping[str, ImageItem]) -> Iterator[AnsweredImage]:
    """The rows of a table of predictions, with the photo or the box of each."""

    @cache
    def known(concept: str, above: str) -> Concept:
        """A concept of the hierarchy, or a new one that somebody put below another."""
        if hierarchy.merged_into(concept) in hierarchy:
            return Concept(hierarchy.path_names(concept), hierarchy.rank(concept), hierarchy.lineage(concept), 0.0)
        return Concept((*hierarchy.path_names(above), concept), None, hierarchy.lineage(above), 0.0)

    with pq.ParquetFile(table) as file:
        columns = ["id", "answer", "answer_probability", "class", "class_probability", "path", "corrected"]
        for batch in file.iter_batches(BLOCK, columns=columns):
            for key, answer, sureness, label, probability, path, corrected in zip(
                *batch.select(columns).to_pydict().values(), strict=True
            ):
                photo = photos.get(key)
                above = [hierarchy.root, *path][-1] if corrected else hierarchy.root
                concept = None if answer is None else known(answer, above)  # without a probability if a person said it
                name, _, number = key.rpartition("#") if photo and photo.box else (key, "", 0)
                yield AnsweredImage(
                    Region(name, int(number), box=photo.box if photo else None),
                    photo.path if photo else None,
                    concept and concept._replace(probability=1.0 if sureness is None else sureness),
                    known(hierarchy.leaf_of(str(label)), hierarchy.root)._replace(probability=probability),
                    corrected if sureness is None else None,
                )


def write_predictions(
    model: PathModel,
    X: NDArray[Any] | EmbeddingStore,
    path: str | PathLike[str],
    *,
    ids: NDArray[Any],
    labels: NDArray[Any] | None = None,
    limits: PathLimits | None = None,
    corrections: Mapping[int, Correction] | None = None,
    decode: Decode = "sure",
    sure: float = SURE,
    rank: str | None = None,
    groups: NDArray[Any] | None = None,
    embeddings: bool = False,
    progress: bool = False,
) -> int:
    """Write the columns of `Prediction`, and label if labels are given, for every image or group; return their number.

    If the hierarchy has ranks, there is a column for each, such as ``rank_family``: the name of the concept of that
    rank that is the answer or above it.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings, or a store, which is read block by block
    path : the file, .parquet or .csv, replaced in one step
    ids : (n_images,) array
    labels : (n_images,) array of known classes
    limits : the paths that each image may take
    corrections : what people said about images, by row; their rows say exactly that
    decode : how the answer is chosen: by `sure`, or as `hcep.classify.decoding.decode` does. Class and path stay.
    sure : the answer is the most specific concept that is at least this likely (see `hcep.explain_images`)
    rank : answer at this rank or above it
    groups : (n_images,) array; the burst, observation or specimen of each photo. A group gets one row, whose id is the
        group, with the path and the label of the photo that shows its class best (see `hcep.classify.groups`)
    embeddings : also write the column ``embedding`` to a Parquet file; not with groups
    progress : show a progress bar
    """
    n_rows = 0
    schema, is_csv = _schema(model, labels), Path(path).suffix == ".csv"
    if embeddings:
        schema = schema.append(pa.field("embedding", pa.list_(pa.float32(), model.dictionary.n_dims)))
    written = _flat(schema.empty_table()).schema if is_csv else schema
    with (
        replacing(path) as partial,
        (CSVWriter if is_csv else pq.ParquetWriter)(partial, written) as file,
        progress_bar("predicting", len(X), progress, "images") as advance,
    ):
        for rows, block in blocks_of(X, BLOCK) if groups is None else _group_blocks(X, groups):
            own_limits = None if limits is None else limits.at(rows)
            limited = is_limited(model, own_limits, len(block))
            if groups is None:
                keys, result = ids[rows].astype(str).tolist(), model.infer(block, explained=True, limits=own_limits)
                own_labels = None if labels is None else labels[rows]
            else:
                keys, best, result = infer_groups(model, block, groups[rows].tolist(), own_limits)
                own_labels = None if labels is None else labels[rows][best]
                limited = np.isin(keys, groups[rows][limited])
            answers = answer_concepts(model, result, sure, limited, rank, groups is not None, decode)
            columns = _columns(model, result, answers, rank)
            columns["corrected"] = [None] * len(keys)
            for i, row in enumerate(np.arange(len(X))[rows].tolist()):
                if row in (corrections or {}):
                    place = i if groups is None else keys.index(groups[row])
                    _correct(columns, place, (corrections or {})[row], model.hierarchy)
            columns["id"] = keys
            if embeddings:
                numbers = pa.array(np.asarray(block, dtype=np.float32).ravel())
                columns["embedding"] = pa.FixedSizeListArray.from_arrays(numbers, model.dictionary.n_dims)
            if own_labels is not None:
                columns["label"] = own_labels.tolist()
            table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
            file.write_table(_flat(table) if is_csv else table)
            n_rows += len(keys)
            advance(len(block))
    return n_rows


def _group_blocks(
    X: NDArray[Any] | EmbeddingStore, groups: NDArray[Any]
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """Blocks of whole groups, each with its rows, which are read from a store in its order."""
    for rows in group_rows(groups.tolist(), BLOCK):
        rows.sort()
        yield rows, X.select(rows=rows).to_numpy(np.float32) if isinstance(X, EmbeddingStore) else X[rows]


def blocks_of(X: NDArray[Any] | EmbeddingStore, size: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Blocks of images of an array or a store, each with its rows."""
    slices = (slice(start, start + size) for start in range(0, len(X), size))
    if isinstance(X, EmbeddingStore):
        return zip(slices, (block for block, _ in X.batches(size)), strict=True)
    return ((rows, X[rows]) for rows in slices)


def _schema(model: PathModel, labels: NDArray[Any] | None) -> pa.Schema:
    """The columns, the same for every block."""
    columns: dict[str, pa.DataType] = {"id": pa.string()}
    if labels is not None:
        kind = pa.infer_type(labels.tolist())
        columns["label"] = pa.string() if pa.types.is_null(kind) else kind
    columns |= answer_fields(model.hierarchy) | {"class": pa.infer_type(model.classes.tolist())}
    others = (column for column in structs.fields(Prediction) if column.encode_name not in columns)
    columns |= {column.encode_name: ARROW[column.type] for column in others}
    return pa.schema(list(columns.items()))


def answer_fields(hierarchy: Hierarchy) -> dict[str, pa.DataType]:
    """The columns of `answer_columns` and their types."""
    text = pa.string()
    columns = {"answer": text, "answer_name": text, "answer_probability": pa.float64(), "rank": text}
    return columns | {f"rank_{name}": text for name in hierarchy.rank_names}


def answer_columns(hierarchy: Hierarchy, answers: AnswerConcepts) -> dict[str, list[Any]]:
    """The answers of a block of images: id, name, probabilities and rank, and the concept of each rank above."""
    concepts = answers.concepts
    named = {one: hierarchy.lineage(one.id) for one in set(concepts) if one is not None} if hierarchy.ranks else {}
    lineages = [named.get(one, {}) if one is not None else {} for one in concepts]
    return {
        "answer": [one and one.id for one in concepts],
        "answer_name": [one and one.name for one in concepts],
        "answer_probability": [one and p for one, p in zip(concepts, answers.sureness, strict=True)],
        "answer_estimate": [one and p for one, p in zip(concepts, answers.estimates, strict=True)],
        "rank": [one and one.rank for one in concepts],
        **{f"rank_{name}": [lineage.get(name) for lineage in lineages] for name in hierarchy.rank_names},
    }


def _columns(
    model: PathModel,
    result: Inference,
    answers: AnswerConcepts,
    rank: str | None,
) -> dict[str, Any]:
    """The columns of a block of images, straight from the arrays of the search."""
    h, rows = model.hierarchy, np.arange(len(result))
    names = {path: list(h.shown_path(path)) for path in set(result.paths)}
    concepts = answers.concepts
    at_rank = [rank is not None and one is not None and one.rank == rank for one in concepts]
    labels, are_unlike = result.labels.tolist(), unlike(model, result)
    return {
        **answer_columns(h, answers),
        "class": labels,
        "class_probability": result.probabilities[rows, result.class_index],
        "doubt": [
            doubt_about(concept and concept.id, str(label), are_unlike is not None and bool(are_unlike[i]), at_rank[i])
            for i, (concept, label) in enumerate(zip(concepts, labels, strict=True))
        ],
        "kind": unknown_kinds(model, result),
        "path": [list(synsets) for synsets in result.paths],
        "names": [names[synsets] for synsets in result.paths],
        "coefficients": [result.coefficients(i).tolist() for i in range(len(result))],
        "residual_norm": result.residual_norms,
    }


def _correct(columns: dict[str, Any], i: int, correction: Correction, hierarchy: Hierarchy) -> None:
    """Make the cells of an image say what a person said (see `Answer.corrected`)."""
    columns["corrected"][i] = correction.said(hierarchy)
    decision = correction.decision(hierarchy)
    if decision is None:
        return
    above = {decision.synset, *hierarchy.ancestors(decision.synset)}
    n_steps = sum(concept in above for concept in columns["path"][i])
    for name in ("path", "coefficients"):
        columns[name][i] = columns[name][i][:n_steps]
    columns["names"][i] = list(hierarchy.shown_path(columns["path"][i]))
    is_known = decision.id is not None and hierarchy.merged_into(decision.id) in hierarchy
    lineage = {} if decision.id is None else hierarchy.lineage(decision.id if is_known else decision.synset)
    cells = {"answer": decision.id, "answer_name": decision.name, "rank": decision.rank}
    cells |= {
        "answer_probability": None,
        "answer_estimate": None,
        "doubt": "",
        "kind": None,
        **{f"rank_{name}": lineage.get(name) for name in hierarchy.rank_names},
    }
    for name, cell in cells.items():
        columns[name][i] = cell


def _flat(table: pa.Table) -> pa.Table:
    """The table for CSV: a list becomes one cell, its parts separated by arrows (numbers by spaces)."""
    for name, mark in (("path", " → "), ("names", " → "), ("coefficients", " ")):
        cells = [mark.join(map(str, parts)) for parts in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(cells, pa.string()))
    return table
