"""A model of a store by many machines: each sums up its shards, the sums are added, and a sample makes the choices."""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify import HCEPClassifier
from hcep.dictionary.moments import ClassMoments
from hcep.distributed.cluster import Cluster, Work
from hcep.distributed.places import Stored, shards_of
from hcep.distributed.predicting import evaluate
from hcep.errors import HCEPError
from hcep.models.fitting import FittedModel, quotas, sum_up, take_sample, with_moments
from hcep.models.saving import save_model
from hcep.models.schema import ATOMS, DOCUMENT

#: Images that metric, anchor, calibration and refinement are chosen on: all, where there are no more.
SAMPLE = 50_000
#: Tasks per actor: sums are large, and the more images in each the fewer are sent.
TASKS_PER_ACTOR = 4

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
    """Fit a classifier on the labelled images of a store, on a Ray cluster.

    Parameters
    ----------
    store : that all machines reach
    hierarchy : as of `HCEPClassifier`, or what makes one of the list of classes
    split : only these images; the split ``train`` by default, where there is one
    cluster : of `hcep.distributed.Cluster`: address, n_workers, progress
    **parameters : of `HCEPClassifier`; the head is the path's

    Means, covariance and so the dictionary are of all images and equal, to rounding, those of one process. What is
    "auto", the calibration, the refinement of leaves and the floor of explained shares are of a sample of
    `SAMPLE` images, as many of each class; where the store has no more, they too are what one process finds.
    """
    model, machines = HCEPClassifier(hierarchy, **parameters), Cluster(**(cluster or {}))
    if not (isinstance(model.head, str) and model.head == "path"):
        raise HCEPError("fitting on a cluster has the head 'path' only; fit a linear head in one process")
    stored, shards = Stored.of(store, split, default_split="train")
    tasks = stored.tasks(shards, TASKS_PER_ACTOR * machines.n_actors)

    def each(description: str, work: Callable[..., Any], vectors: bool = True, **options: Any) -> Iterator[Any]:
        make = partial(_over, stored, vectors, partial(work, **options))
        for row in machines.run(tasks, make, description, sum(shard.n_images for shard in shards)):
            yield pickle.loads(row["made"])

    counts = dict(each("counting", count_labels, vectors=False))
    total = sum(counts.values(), Counter[str]())
    if not total:
        where = f" in the split {split!r}" if split else ""
        raise HCEPError(f"{stored.place.address!r} has no image to fit on{where}")
    if callable(hierarchy):
        model.set_params(hierarchy=hierarchy(sorted(total)))
    sample = [part for _, part in sorted(each("sampling", take_sample, quotas=quotas(counts, total, SAMPLE)))]
    model.fit(*(np.concatenate(column) for column in zip(*sample, strict=True)))
    leaves = dict(zip(map(str, model.classes_.tolist()), model._leaves.tolist(), strict=True))
    moments = ClassMoments(second_moment=model.shrinkage_ is not None)
    options: dict[str, Any] = {
        "power": model.power_,
        "unit_norm": model.unit_norm,
        "second": model.shrinkage_ is not None,
    }
    for part in each("summing", sum_up, leaves=leaves, **options):
        moments.merge(part)
    return with_moments(model, moments, np.array([total[str(c)] for c in model.classes_.tolist()]))


def fit_model(
    store: str | PathLike[str],
    hierarchy: Any,
    folder: str | PathLike[str],
    *,
    split: str | None = None,
    name: str | None = None,
    cluster: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> FittedModel:
    """`fit` and save, as `hcep.models.fit_model` does in one process.

    Parameters
    ----------
    store, hierarchy, split, cluster, **parameters : as for `fit`
    folder, name : as for `hcep.models.fit_model`
    """
    replaced, names_dropped = (Path(folder, file).is_file() for file in (DOCUMENT, ATOMS))
    model = fit(store, hierarchy, split=split, cluster=cluster, **parameters)
    stored, _ = Stored.of(store, split, default_split="train")
    facts: dict[str, Any] = {"encoder": stored.head.encoder, "name": name, "data": stored.source}
    facts["images_per_class"] = {label: n for label, (_, n) in model._known().items()}
    save_model(model, folder, **facts)
    scores = evaluate(folder, store, split=stored.split, **(cluster or {}))
    metrics = {"training accuracy": float(scores["correct"].mean())}
    save_model(model, folder, metrics=metrics, **facts)
    return FittedModel(model, metrics, replaced, names_dropped)


def _over(stored: Stored, vectors: bool, work: Callable[[int, Batches], Any]) -> Work:

    def over(task: Mapping[str, Any]) -> dict[str, Any]:
        shards = shards_of(task)
        made = work(int(task["number"]), (stored.labelled(shard, vectors) for shard in shards))
        return {"n_images": sum(shard.n_images for shard in shards), "made": pickle.dumps(made)}

    return over


def count_labels(number: int, batches: Batches) -> tuple[int, Counter[str]]:
    """Images of each class."""
    return number, Counter(label for _, y in batches for label in y.tolist())
