"""A fit that never holds all images: a sample makes the choices, sums over blocks give the means and the covariance."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.classify import HCEPClassifier
from hcep.classify.calibration import class_priors
from hcep.dictionary.checks import refuse_non_finite
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import prepared_rows
from hcep.embeddings import EmbeddingStore

#: A store of more images than this is not read into memory.
IN_MEMORY = 10_000
#: Images that metric, anchor, calibration and refinement are chosen on, in all or per class; images read at a time.
SAMPLE, SAMPLE_PER_CLASS, BLOCK = 5_000, 20, 1024

#: Images and labels, block by block.
Batches = Iterable[tuple[NDArray[Any], NDArray[Any]]]


def fit_streaming(
    model: HCEPClassifier, store: EmbeddingStore, y: NDArray[Any], progress: bool = False
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Fit a classifier, whose head is the path's, on a store in two passes; return the images that it chose on.

    Means, covariance and so the dictionary are of all images and equal, to rounding, those of a fit in memory. What is
    "auto", the calibration, the refinement of leaves and the floor of explained shares are of a sample, as many images
    of each class, whose size depends on the number of classes alone.

    `store`: or a part of one. `y`: (n_images,) labels.
    """
    counts = {i: Counter(y[start : start + BLOCK].tolist()) for i, start in enumerate(range(0, len(y), BLOCK))}
    total = sum(counts.values(), Counter[str]())
    wanted = quotas(counts, total, max(SAMPLE, SAMPLE_PER_CLASS * len(total)))
    parts = [
        take_sample(i, [block], quotas=wanted)[1] for i, block in enumerate(blocks(store, y, progress and "sampling"))
    ]
    X_sample, y_sample = (np.concatenate(column) for column in zip(*parts, strict=True))
    del parts
    model.fit(X_sample, y_sample)
    leaves = dict(zip(model.classes_.tolist(), model._leaves.tolist(), strict=True))
    second = model.shrinkage_ is not None
    every = blocks(store, y, progress and "fitting")
    moments = sum_up(0, every, leaves=leaves, power=model.power_, unit_norm=model.unit_norm, second=second)
    with_moments(model, moments, np.array([total[c] for c in model.classes_.tolist()]))
    return X_sample, y_sample


def accuracy(model: HCEPClassifier, store: EmbeddingStore, y: NDArray[Any], progress: bool = False) -> float:
    """The share of images that get their label."""
    read = blocks(store, y, progress and "predicting")
    return float(sum(np.sum(model.predict(X) == labels) for X, labels in read) / len(y))


def blocks(
    store: EmbeddingStore, y: NDArray[Any], shown: str | Literal[False] = False
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Images and labels of a store, `BLOCK` at a time, all finite; `shown` is what a progress bar says of it."""
    start = 0
    with progress_bar(shown or "", len(y), bool(shown), "images") as advance:
        for X, _ in store.batches(BLOCK):
            refuse_non_finite(X, start)
            yield X, y[start : start + len(X)]
            start += len(X)
            advance(len(X))


def quotas(counts: Mapping[int, Counter[str]], total: Counter[str], sample: int) -> dict[int, dict[str, int]]:
    """How many images of each class every part gives to the sample: as many per class, from each part its share.

    `counts`: images per class, of each part by its number. `total`: images per class. `sample`: images to take; all,
    where there are no more.
    """
    most = max(2, sample // len(total)) if sum(total.values()) > sample else max(total.values())
    found: dict[int, dict[str, int]] = {}
    before = Counter[str]()
    for number in sorted(counts):
        after = before + counts[number]
        shares = {label: min(most / total[label], 1.0) for label in counts[number]}
        found[number] = {c: round(share * after[c]) - round(share * before[c]) for c, share in shares.items()}
        before = after
    return found


def take_sample(number: int, batches: Batches, *, quotas: Mapping[int, Mapping[str, int]]) -> tuple[int, Any]:
    """The first images of each class, as many as the part's quota says."""
    left, taken = Counter(quotas[number]), []
    for X, y in batches:
        rows = [i for i, label in enumerate(y.tolist()) if left[label] > 0 and not left.subtract([label])]
        taken.append((X[rows], y[rows]))
    return number, tuple(np.concatenate(column) for column in zip(*taken, strict=True))


def sum_up(
    number: int, batches: Batches, *, leaves: Mapping[str, str], power: float, unit_norm: bool, second: bool
) -> ClassMoments:
    """Counts, sums and products of the images, by the leaf of their class.

    `number`: of the part. `batches`: its images. `leaves`: the leaf of each class. `power`, `unit_norm`: how images are
    prepared. `second`: whether products are needed.
    """
    moments = ClassMoments(second_moment=second)
    for X, y in batches:
        classes, index = np.unique(y, return_inverse=True)
        moments.update(prepared_rows(X, power, unit_norm), [leaves[c] for c in classes.tolist()], index)
    return moments


def with_moments(model: HCEPClassifier, moments: ClassMoments, counts: NDArray[np.intp]) -> HCEPClassifier:
    """The model that was fitted to a sample, with the means and the covariance of all images."""
    whole = model._dictionary_of(moments)
    if model.leaf_moves_ is not None:
        shifts = model.dictionary_.leaf_embeddings - model._dictionary_of(model.moments_).leaf_embeddings
        whole = whole.moved(dict(zip(whole.hierarchy.leaves, shifts, strict=True)))
    model.dictionary_, model.moments_ = whole, moments
    model.priors_ = class_priors(model.priors, counts)
    model._start_growing(np.repeat(np.arange(len(counts)), counts))
    return model
