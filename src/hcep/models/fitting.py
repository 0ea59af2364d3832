"""Embeddings, or names of classes and what images there are -> a fitted model in a folder."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.classify import HCEPClassifier
from hcep.classify.calibration import class_priors
from hcep.classify.linear_head import assembled
from hcep.dictionary.checks import refuse_non_finite
from hcep.dictionary.from_text import TEMPLATES, TextDictionary, text_dictionary, text_vectors
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import prepared_rows
from hcep.embeddings import Embeddings, EmbeddingStore, Encoder
from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy
from hcep.models.saving import save_model
from hcep.models.schema import ATOMS, DOCUMENT

#: Of models from texts, whose coefficients stay near 1: a text says where a class is, not how its images vary.
TEXT_ANCHOR = 3.0
#: A store of more images than this is not read into memory.
IN_MEMORY = 10_000
#: Images that metric, anchor, calibration and refinement are chosen on, in all or per class; images read at a time.
SAMPLE, SAMPLE_PER_CLASS, BLOCK = 5_000, 20, 1024
#: Images and labels, block by block.
Batches = Iterable[tuple[NDArray[Any], NDArray[Any]]]


class FittedModel(NamedTuple):
    """What a fit did."""

    model: HCEPClassifier
    metrics: dict[str, float]  # on the training images
    replaced: bool  # whether the folder held a model before
    names_dropped: bool  # whether that one had names of its atoms, which no longer hold
    encoder: EncoderRecord | None = None  # of the training images, if it is known

    @property
    def n_images(self) -> int:
        return int(self.model.moments_.n_images)


def fit_model(
    embeddings: Embeddings,
    hierarchy: Hierarchy | None,
    folder: str | PathLike[str],
    *,
    paper: bool = False,
    name: str | None = None,
    several_objects: bool = False,
    progress: bool = False,
    **parameters: Any,
) -> FittedModel:
    """Fit a classifier and save it, with what it was trained on and how well it does there.

    Raises HCEPError: labels that are missing or not in the hierarchy, parameters out of range, a folder of other files.

    Parameters
    ----------
    embeddings : with a label for each image. Of those that stay on disk (`read_embeddings` with ``in_memory``), no more
        than a sample is ever in memory, unless the head is a linear one.
    hierarchy : none is flat
    folder : a model that is there is replaced
    paper : begin with the published configuration
    name : of the model, for its card
    several_objects : also learn how many objects a picture shows, for ``n_paths="auto"``
    progress : show bars while images are read from disk
    **parameters : of `HCEPClassifier`
    """
    X, y = embeddings.X, embeddings.y
    replaced, names_dropped = (Path(folder, file).is_file() for file in (DOCUMENT, ATOMS))
    model = (HCEPClassifier.paper if paper else HCEPClassifier)(hierarchy, **parameters)
    if several_objects and (model.signed or model.tol or model.max_steps):
        raise HCEPError("several_objects needs complete paths: leave out signed, tol and max_steps")
    by_path = isinstance(model.head, str) and model.head == "path"
    if isinstance(X, EmbeddingStore) and by_path:
        images = fit_streaming(model, X, y, progress)
        metrics = {"training accuracy": accuracy(model, X, y, progress)}
    else:
        X = X.to_numpy(np.float32) if isinstance(X, EmbeddingStore) else X
        refuse_non_finite(X, name="the data")
        images = X, y
        metrics = {"training accuracy": float(model.fit(X, y).score(X, y))}
    if several_objects:
        model.fit_objects(*images)
    used = (model.power_, model.shrinkage_, model.anchor_)
    chosen = [s for s in model.leave_one_out_ if (s.power, s.shrinkage, s.anchor) == used]
    if chosen:  # the last is on all images, where the power was chosen on some
        metrics["held-out accuracy"] = chosen[-1].accuracy
    source: dict[str, Any] = {"encoder": embeddings.encoder, "data": embeddings.source}
    save_model(model, folder, **source, images_per_class=Counter(y.tolist()), metrics=metrics, name=name)
    return FittedModel(model, metrics, replaced, names_dropped, embeddings.encoder)


def text_classifier(found: TextDictionary, anchor: float = TEXT_ANCHOR) -> HCEPClassifier:
    """A fitted `HCEPClassifier` of every leaf of a `TextDictionary`, with its temperature; no image is needed."""
    h = found.dictionary.hierarchy
    model = HCEPClassifier(h, unit_norm=True, shrinkage=None, anchor=anchor, power=1.0, refine=False)
    classes = np.sort([h.class_of(leaf) for leaf in h.leaves])
    return assembled(model, classes, found.dictionary, anchor, found.temperature)


def fit_text_model(
    hierarchy: Hierarchy,
    encoder: Encoder,
    folder: str | PathLike[str],
    *,
    images: Embeddings | None = None,
    labelled: Embeddings | None = None,
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
    name: str | None = None,
) -> TextDictionary:
    """Make a classifier of all leaves of a hierarchy from their names, and save it.

    Parameters
    ----------
    encoder : with a text tower
    folder : path
    images, labelled : of the same encoder, without and with labels: see `hcep.dictionary.from_text.text_dictionary`
    templates, descriptions : as for `hcep.dictionary.from_text.text_vectors`
    name : of the model, for its card
    """
    for some in (images, labelled):
        by = None if some is None else some.encoder
        if some is not None and by is not None and by.fingerprint not in (None, encoder.fingerprint):
            raise HCEPError(f"{some.source}: embeddings of {by.name!r}, not of {encoder.name!r}")
    texts = text_vectors(hierarchy, encoder, templates, descriptions)
    labels = None if labelled is None else [hierarchy.leaf_of(str(label)) for label in labelled.y.tolist()]
    known = None if labelled is None else labelled.X
    found = text_dictionary(hierarchy, texts, None if images is None else images.X, known, labels)
    counts = None if labelled is None else Counter(labelled.y.tolist())
    sources = [some.source for some in (images, labelled) if some is not None]
    data = " and ".join(["names of classes", *sources])
    save_model(text_classifier(found), folder, encoder=encoder, data=data, images_per_class=counts, name=name)
    return found


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
    every = blocks(store, y, progress and "sampling")
    parts = [take_sample(i, [block], quotas=wanted)[1] for i, block in enumerate(every)]
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
    model.images_per_class_ = counts.astype(np.int64)
    return model
