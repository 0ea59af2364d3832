"""Predictions of a store by many machines into a folder of Parquet files, one per shard; and scores of a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from hcep.distributed.cluster import Cluster
from hcep.distributed.places import Place, Stored, shards_of
from hcep.embeddings.store.manifest import ShardRecord
from hcep.errors import HCEPError
from hcep.evaluate import ImageScores, evaluate_method
from hcep.explain.predictions import write_predictions
from hcep.models import read_model
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import refuse_other_encoder

#: What a folder of predictions is of; readers of Parquet folders pass over names like this.
ABOUT = "_predictions.json"


def predict(
    model: str | PathLike[str],
    store: str | PathLike[str],
    output: str | PathLike[str],
    *,
    split: str | None = None,
    force: bool = False,
    **cluster: Any,
) -> int:
    """Predict class and path of every image of a store on a Ray cluster; returns how many images there are.

    Parameters
    ----------
    model, store : that all machines reach
    output : path or URL
        Of a folder: ``part-000000.parquet`` and so on, in the order of the store's shards, with the columns of
        `hcep predict`. A run that was stopped goes on where it was.
    split : only these images
    force : replace predictions of another model, store or split
    **cluster : of `hcep.distributed.Cluster`: address, n_workers, n_gpus, progress
    """
    machines, (stored, shards), target = Cluster(**cluster), Stored.of(store, split), Place.of(output)
    _refuse_other_encoder(Place.of(model), stored)
    about = json.dumps({"model": _digest(Place.of(model)), "shards": [s.sha256 for s in shards], "split": split})
    there = target.read(ABOUT)
    if there is not None and there.decode() != about:
        if not force:
            raise HCEPError(f"{target.address!r} holds other predictions; pass --force to replace them")
        target.remove()
    target.write(ABOUT, about.encode())
    done = target.sizes()
    left = [shard for shard in shards if _part(shard) not in done]
    actor = partial(PredictShard, Place.of(model), stored, target)
    made = machines.run(stored.tasks(left, len(left)), actor, "predicting", sum(shard.n_images for shard in left))
    for _ in made:
        pass
    return sum(shard.n_images for shard in shards)


def evaluate(
    model: str | PathLike[str],
    store: str | PathLike[str],
    *,
    split: str | None = None,
    top_k: Sequence[int] = (1, 5),
    **cluster: Any,
) -> ImageScores:
    """Score a model on the labelled images of a store on a Ray cluster, as `hcep.evaluate.evaluate_method` does.

    Parameters
    ----------
    model, store, **cluster : as for `predict`
    split : only these images; the split ``val`` by default, where there is one
    top_k : accuracies to measure
    """
    machines, (stored, shards) = Cluster(**cluster), Stored.of(store, split, default_split="val")
    _refuse_other_encoder(Place.of(model), stored)
    actor = partial(ScoreShard, Place.of(model), stored, tuple(top_k))
    made = machines.run(stored.tasks(shards, len(shards)), actor, "evaluating", sum(s.n_images for s in shards))
    scores = [part for _, part in sorted((row["number"], row["scores"]) for row in made) if part]
    if not scores:
        raise HCEPError(f"no image of {stored.place.address!r} is in the split {split!r}")
    table = pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in scores], promote_options="default")
    labels, predicted = (tuple(table.column(name).to_pylist()) for name in ("label", "predicted"))
    metrics = table.drop_columns(["label", "predicted"])
    return ImageScores(
        labels, predicted, {name: metrics.column(name).cast(pa.float64()).to_numpy() for name in metrics.column_names}
    )


class PredictShard:
    """What an actor does: one model, shard after shard."""

    def __init__(self, model: Place, stored: Stored, target: Place) -> None:
        self.model, self.stored, self.target = _opened(model).path_model, stored, target

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        X, known = self.stored.read(shard)
        labels = known["label"] if (known["label"] != None).any() else None  # noqa: E711 - element by element
        with TemporaryDirectory(prefix="hcep-") as scratch:
            part = Path(scratch, _part(shard))
            write_predictions(self.model, X, part, ids=known["id"], labels=labels)
            self.target.write(part.name, part.read_bytes())
        return {"number": task["number"], "n_images": shard.n_images}


class ScoreShard:
    """What an actor does: one model, shard after shard."""

    def __init__(self, model: Place, stored: Stored, top_k: tuple[int, ...]) -> None:
        self.model, self.stored, self.top_k = _opened(model).classifier, stored, top_k

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        X, labels = self.stored.labelled(shard)
        made = {"number": task["number"], "n_images": shard.n_images, "scores": b""}
        if len(X):
            table = evaluate_method(self.model, X, labels, top_k=self.top_k).to_table()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            made["scores"] = sink.getvalue().to_pybytes()
        return made


def _part(shard: ShardRecord) -> str:
    return f"part-{shard.number:06d}.parquet"


def _opened(model: Place) -> SavedModel:
    """A model's folder; of one elsewhere, its files."""
    if model.local is not None:
        return read_model(model.local)
    return SavedModel(model.address, {name: model.read(name) or b"" for name in model.sizes()})


def _refuse_other_encoder(model: Place, stored: Stored) -> None:
    refuse_other_encoder(_opened(model).summary.encoder, stored.head.encoder, stored.place.address)


def _digest(model: Place) -> str:
    digest = hashlib.sha256()
    for name in sorted(model.sizes()):
        digest.update(name.encode() + (model.read(name) or b""))
    return digest.hexdigest()
