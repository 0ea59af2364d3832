"""Predictions of a store by many machines into a folder of Parquet files, one per shard; and scores of a model."""

import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hcep.distributed.cluster import Cluster, Work
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
    place, digest = Place.of(model), hashlib.sha256()
    for name in sorted(place.sizes()):
        digest.update(name.encode() + (place.read(name) or b""))
    about = json.dumps({"model": digest.hexdigest(), "shards": [s.sha256 for s in shards], "split": split})
    there = target.read(ABOUT)
    if there is not None and there.decode() != about:
        if not force:
            raise HCEPError(f"{target.address!r} holds other predictions; pass --force to replace them")
        target.remove()
    target.write(ABOUT, about.encode())
    done = target.sizes()
    left = [shard for shard in shards if _part(shard) not in done]
    actor = partial(_predicting, Place.of(model), stored, target)
    for _ in machines.run(stored.tasks(left, len(left)), actor, "predicting", sum(s.n_images for s in left)):
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
    actor = partial(_scoring, Place.of(model), stored, tuple(top_k))
    made = machines.run(stored.tasks(shards, len(shards)), actor, "evaluating", sum(s.n_images for s in shards))
    scores = [pickle.loads(part) for _, part in sorted((row["number"], row["scores"]) for row in made) if part]
    if not scores:
        raise HCEPError(f"no image of {stored.place.address!r} is in the split {split!r}")
    columns = {name: np.concatenate([part.columns[name] for part in scores]) for name in scores[0].columns}
    labels, predicted = (tuple(chain(*(getattr(part, name) for part in scores))) for name in ("labels", "predicted"))
    return ImageScores(labels, predicted, columns)


def _predicting(model: Place, stored: Stored, target: Place) -> Work:
    """What an actor does: one model, shard after shard."""
    path_model = _opened(model).path_model

    def work(task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        X, known = stored.read(shard)
        labels = known["label"] if (known["label"] != None).any() else None  # noqa: E711 - element by element
        with TemporaryDirectory(prefix="hcep-") as scratch:
            part = Path(scratch, _part(shard))
            write_predictions(path_model, X, part, ids=known["id"], labels=labels)
            target.write(part.name, part.read_bytes())
        return {"number": task["number"], "n_images": shard.n_images}

    return work


def _scoring(model: Place, stored: Stored, top_k: tuple[int, ...]) -> Work:
    classifier = _opened(model).classifier

    def work(task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        X, labels = stored.labelled(shard)
        scores = pickle.dumps(evaluate_method(classifier, X, labels, top_k=top_k)) if len(X) else b""
        return {"number": task["number"], "n_images": shard.n_images, "scores": scores}

    return work


def _part(shard: ShardRecord) -> str:
    return f"part-{shard.number:06d}.parquet"


def _opened(model: Place) -> SavedModel:
    """A model's folder; of one elsewhere, its files."""
    if model.local is not None:
        return read_model(model.local)
    return SavedModel(model.address, {name: model.read(name) or b"" for name in model.sizes()})


def _refuse_other_encoder(model: Place, stored: Stored) -> None:
    refuse_other_encoder(_opened(model).summary.encoder, stored.head.encoder, stored.place.address)
