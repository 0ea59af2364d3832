"""Fit a model to a store on many machines, predict a store, and evaluate a model.

For a fit, each machine sums up its shards, the sums are added, and choices are made on a sample. Predictions are a
folder of Parquet files, one per shard.
"""

import hashlib
import json
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify import HCEPClassifier
from hcep.classify.decoding import Decode, require_decoder
from hcep.classify.right_level import SURE, require_sure
from hcep.embeddings.store.manifest import ShardRecord
from hcep.errors import HCEPError, quote
from hcep.evaluate.grade import evaluate_method
from hcep.evaluate.image_scores import ImageScores
from hcep.explain.predictions import write_predictions
from hcep.models import read_model
from hcep.models.fitting import fit_in_parts
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import refuse_other_encoder
from hcep.models.saving import save_model
from hcep.ray.cluster import Cluster, Work
from hcep.ray.places import Place, Stored, shards_of

#: Images that metric, anchor, calibration and refinement are chosen on; all images, if there are no more.
SAMPLE = 50_000
#: Tasks per actor. Sums are large: the more images in each, the fewer are sent.
TASKS_PER_ACTOR = 4
#: Describes a folder of predictions; readers of Parquet folders ignore names that start with an underscore.
ABOUT = "_predictions.json"
#: Images and labels, shard by shard.
Batches = Iterator[tuple[NDArray[Any], NDArray[np.str_]]]


def fit(
    store: str | PathLike[str],
    hierarchy: Any = None,
    *,
    split: str | None = None,
    cluster: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> HCEPClassifier:
    """Fit a classifier to the labelled images of a store, on a Ray cluster.

    Parameters
    ----------
    store : folder or URL that all machines can reach
    hierarchy : a hierarchy as for `HCEPClassifier`, or a function from the list of classes to one
    split : the split to fit to; by default ``train``, if there is one
    cluster : parameters of `hcep.ray.cluster.Cluster`: address, n_workers, progress
    **parameters : parameters of `HCEPClassifier`; the head must be "path"

    Notes
    -----
    Means, covariance and therefore the dictionary are those of all images and equal, up to rounding, a fit in one
    process. Parameters that are "auto", the calibration, the refinement of leaves and the floor of explained shares
    come from a sample of `SAMPLE` images, equally many of each class. If the store has no more, they too equal a fit in
    one process. `hcep.models.fitting.fit_in_parts` says what becomes of images with labels above the classes.
    """
    model, machines = HCEPClassifier(hierarchy, **parameters), Cluster(**(cluster or {}))
    if not (isinstance(model.head, str) and model.head == "path"):
        raise HCEPError("a fit on a cluster supports only head='path'; fit a linear head in one process")
    stored, shards = Stored.of(store, split, default_split="train")
    tasks = stored.tasks(shards, TASKS_PER_ACTOR * machines.n_actors)

    def each(description: str, work: Callable[..., Any], vectors: bool = True, **options: Any) -> Iterator[Any]:
        make = partial(_over, stored, vectors, partial(work, **options))
        for row in machines.run(tasks, make, description, sum(shard.n_images for shard in shards)):
            yield pickle.loads(row["made"])

    counts = dict(each("counting", _count_labels, vectors=False))
    total = sum(counts.values(), Counter[str]())
    if not total:
        where = f" in the split {quote(split)}" if split else ""
        raise HCEPError(f"{stored.place.address!r} has no images to fit to{where}")
    if callable(hierarchy):
        model.set_params(hierarchy=hierarchy(sorted(total)))
    fit_in_parts(model, counts, each, SAMPLE)
    return model


def fit_model(
    store: str | PathLike[str],
    hierarchy: Any,
    folder: str | PathLike[str],
    *,
    split: str | None = None,
    name: str | None = None,
    cluster: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> HCEPClassifier:
    """Fit and save a model, as `hcep.models.fit_model` does in one process.

    Parameters
    ----------
    store, hierarchy, split, cluster, **parameters : see `fit`
    folder, name : see `hcep.models.fit_model`
    """
    model = fit(store, hierarchy, split=split, cluster=cluster, **parameters)
    stored, _ = Stored.of(store, split, default_split="train")
    facts: dict[str, Any] = {"encoder": stored.manifest.encoder, "name": name, "data": stored.source}
    counts = np.asarray(model.images_per_class_).tolist()
    facts["images_per_class"] = dict(zip(model.classes_.tolist(), counts, strict=True))
    save_model(model, folder, **facts)
    scores = evaluate(folder, store, split=stored.split, **(cluster or {}))
    is_class = np.isin(scores.labels, model.classes_)  # a label above the classes says only in part what is right
    metrics = {"training accuracy": float(scores["correct"][is_class].mean())}
    save_model(model, folder, metrics=metrics, **facts)
    return model


def _over(stored: Stored, vectors: bool, work: Callable[[int, Batches], Any]) -> Work:
    def over(task: Mapping[str, Any]) -> dict[str, Any]:
        shards = shards_of(task)
        parts = (stored.read(shard, vectors) for shard in shards)
        made = work(int(task["number"]), ((part.X, part.y) for part in parts))
        return {"n_images": sum(shard.n_images for shard in shards), "made": pickle.dumps(made)}

    return over


def _count_labels(number: int, batches: Batches) -> tuple[int, Counter[str]]:
    return number, Counter(label for _, y in batches for label in y.tolist())


def predict(
    model: str | PathLike[str],
    store: str | PathLike[str],
    output: str | PathLike[str],
    *,
    split: str | None = None,
    force: bool = False,
    decode: Decode = "sure",
    sure: float = SURE,
    **cluster: Any,
) -> int:
    """Predict class and path of every image of a store on a Ray cluster; return the number of images.

    Parameters
    ----------
    model, store : folders or URLs that all machines can reach
    output : path or URL of a folder for ``part-000000.parquet`` and so on, in the order of the store's shards, with the
        columns of `hcep predict`. A run that was stopped can be continued.
    split : predict only this split
    force : replace predictions of another model, store, split, `decode` or `sure`
    decode, sure : how answers are chosen (see `hcep.explain.predictions.write_predictions`)
    **cluster : parameters of `hcep.ray.cluster.Cluster`: address, n_workers, n_gpus, progress
    """
    machines, (stored, shards), target = Cluster(**cluster), Stored.of(store, split), Place.of(output)
    place, digest = Place.of(model), hashlib.sha256()
    _refuse_other_encoder(place, stored)
    for name in sorted(place.sizes()):
        digest.update(name.encode() + (place.read(name) or b""))
    shown = {"model": digest.hexdigest(), "shards": [s.sha256 for s in shards], "split": split}
    require_decoder(decode)
    answers = {"sure": require_sure(sure), **({} if decode == "sure" else {"decode": decode})}
    about = json.dumps({**shown, **answers})
    earlier = target.read(ABOUT)
    if earlier is not None and earlier.decode() != about:
        if not force:
            raise HCEPError(f"{target.address!r} holds other predictions; pass --overwrite to replace them")
        target.remove()
    target.write(ABOUT, about.encode())
    done = target.sizes()
    left = [shard for shard in shards if _part(shard) not in done]
    actor = partial(_predicting, place, stored, target, answers)
    deque(machines.run(stored.tasks(left, len(left)), actor, "predicting", sum(s.n_images for s in left)), maxlen=0)
    return sum(shard.n_images for shard in shards)


def evaluate(
    model: str | PathLike[str],
    store: str | PathLike[str],
    *,
    split: str | None = None,
    top_k: Sequence[int] = (1, 5),
    **cluster: Any,
) -> ImageScores:
    """Evaluate a model on the labelled images of a store on a Ray cluster, as `hcep.evaluate.evaluate_method` does.

    Parameters
    ----------
    model, store, **cluster : see `predict`
    split : evaluate only this split; by default ``val``, if there is one
    top_k : top-k accuracies to compute
    """
    machines, (stored, shards) = Cluster(**cluster), Stored.of(store, split, default_split="val")
    _refuse_other_encoder(Place.of(model), stored)
    actor = partial(_scoring, Place.of(model), stored, tuple(top_k))
    made = machines.run(stored.tasks(shards, len(shards)), actor, "evaluating", sum(s.n_images for s in shards))
    scores = [pickle.loads(part) for _, part in sorted((row["number"], row["scores"]) for row in made) if part]
    if not scores:
        raise HCEPError(f"no image of {stored.place.address!r} is in split {quote(split)}")
    columns = {name: np.concatenate([part.columns[name] for part in scores]) for name in scores[0].columns}
    labels, predicted = (tuple(chain(*(getattr(part, name) for part in scores))) for name in ("labels", "predicted"))
    return ImageScores(labels, predicted, columns)


def _predicting(model: Place, stored: Stored, target: Place, answers: Mapping[str, Any]) -> Work:
    """The function of an actor, which has one model and predicts shard after shard."""
    path_model = _opened(model).path_model

    def work(task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        images = stored.read(shard)
        with TemporaryDirectory(prefix="hcep-") as scratch:
            part = Path(scratch, _part(shard))
            write_predictions(path_model, images.X, part, ids=images.image_ids, labels=images.labels, **answers)
            target.write(part.name, part.read_bytes())
        return {"number": task["number"], "n_images": shard.n_images}

    return work


def _scoring(model: Place, stored: Stored, top_k: tuple[int, ...]) -> Work:
    classifier = _opened(model).classifier

    def work(task: Mapping[str, Any]) -> dict[str, Any]:
        (shard,) = shards_of(task)
        images = stored.read(shard)
        scores = pickle.dumps(evaluate_method(classifier, images.X, images.y, top_k=top_k)) if len(images) else b""
        return {"number": task["number"], "n_images": shard.n_images, "scores": scores}

    return work


def _part(shard: ShardRecord) -> str:
    return f"part-{shard.number:06d}.parquet"


def _opened(model: Place) -> SavedModel:
    """The model in a local folder, or its files from elsewhere."""
    if model.local is not None:
        return read_model(model.local)
    return SavedModel(model.address, {name: model.read(name) or b"" for name in model.sizes()})


def _refuse_other_encoder(model: Place, stored: Stored) -> None:
    refuse_other_encoder(_opened(model).encoder, stored.manifest.encoder, stored.place.address)
