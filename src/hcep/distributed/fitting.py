"""A model of a store by many machines: each sums up its shards, the sums are added, and a sample makes the choices."""

from __future__ import annotations

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
from hcep.classify.calibration import class_priors
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import prepared_rows
from hcep.distributed.cluster import Cluster, Work
from hcep.distributed.predicting import evaluate
from hcep.distributed.stored import Stored, shards_of
from hcep.errors import HCEPError
from hcep.models.fitting import FittedModel
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
    store : path or URL
        That all machines reach.
    hierarchy : as of `HCEPClassifier`, or what makes one of the list of classes
    split : only these images; the split ``train`` by default, where there is one
    cluster : of `hcep.distributed.Cluster`: address, n_workers, progress
    **parameters
        Of `HCEPClassifier`; the head is the path's.

    Raises
    ------
    HCEPError
        No cluster, no store, images without a label, a linear head.

    Notes
    -----
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
    sample = [part for _, part in sorted(each("sampling", take_sample, quotas=_quotas(counts, total)))]
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
    return _with_moments(model, moments, np.array([total[str(c)] for c in model.classes_.tolist()]))


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
    facts["images_per_class"] = model._counts()
    save_model(model, folder, **facts)
    scores = evaluate(folder, store, split=stored.split, **(cluster or {}))
    metrics = {"training accuracy": float(scores["correct"].mean())}
    save_model(model, folder, metrics=metrics, **facts)
    return FittedModel(model, metrics, replaced, names_dropped)


def _quotas(counts: Mapping[int, Counter[str]], total: Counter[str]) -> dict[int, dict[str, int]]:
    """How many images of each class every task gives to the sample: as many per class, from each task its share."""
    most = max(2, SAMPLE // len(total)) if sum(total.values()) > SAMPLE else max(total.values())
    quotas: dict[int, dict[str, int]] = {}
    before = Counter[str]()
    for number in sorted(counts):
        after = before + counts[number]
        shares = {label: min(most / total[label], 1.0) for label in counts[number]}
        quotas[number] = {c: round(share * after[c]) - round(share * before[c]) for c, share in shares.items()}
        before = after
    return quotas


def _with_moments(model: HCEPClassifier, moments: ClassMoments, counts: NDArray[np.intp]) -> HCEPClassifier:
    """The model that was fitted to a sample, with the means and the covariance of all images."""
    whole = model._dictionary_of(moments)
    if model.leaf_moves_ is not None:
        shifts = model.dictionary_.leaf_embeddings - model._dictionary_of(model.moments_).leaf_embeddings
        whole = whole.moved(dict(zip(whole.hierarchy.leaves, shifts, strict=True)))
    model.dictionary_, model.moments_ = whole, moments
    model.priors_ = class_priors(model.priors, counts)
    model._start_growing(np.repeat(np.arange(len(counts)), counts))
    return model


# -- what actors do ------------------------------------------------------------------------------------


def _over(stored: Stored, vectors: bool, work: Callable[[int, Batches], Any]) -> Work:
    """Work on the images of a task's shards, one shard at a time."""

    def over(task: Mapping[str, Any]) -> dict[str, Any]:
        shards = shards_of(task)
        made = work(int(task["number"]), (stored.labelled(shard, vectors) for shard in shards))
        return {"n_images": sum(shard.n_images for shard in shards), "made": pickle.dumps(made)}

    return over


def count_labels(number: int, batches: Batches) -> tuple[int, Counter[str]]:
    """Images of each class."""
    return number, Counter(label for _, y in batches for label in y.tolist())


def take_sample(number: int, batches: Batches, *, quotas: Mapping[int, Mapping[str, int]]) -> tuple[int, Any]:
    """The first images of each class, as many as the task's quota says."""
    left, taken = Counter(quotas[number]), []
    for X, y in batches:
        rows = [i for i, label in enumerate(y.tolist()) if left[label] > 0 and not left.subtract([label])]
        taken.append((X[rows], y[rows]))
    return number, tuple(np.concatenate(column) for column in zip(*taken, strict=True))


def sum_up(
    number: int, batches: Batches, *, leaves: Mapping[str, str], power: float, unit_norm: bool, second: bool
) -> ClassMoments:
    """Counts, sums and products of the images, by the leaf of their class."""
    moments = ClassMoments(second_moment=second)
    for X, y in batches:
        classes, index = np.unique(y, return_inverse=True)
        moments.update(prepared_rows(X, power, unit_norm), [leaves[c] for c in classes.tolist()], index)
    return moments
