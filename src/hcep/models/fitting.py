"""Fit a classifier and save it: on embeddings in memory, on a store that stays on disk, or on names of classes."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._progress import progress as progress_bar
from hcep.classify import HCEPClassifier
from hcep.classify.base import as_hierarchy
from hcep.classify.calibration import class_priors
from hcep.classify.coarse import Labels, Teacher, only_classes, read_labels, renamed_labels
from hcep.classify.coarse_counts import CoarseCount, likeliest
from hcep.classify.linear_head import fit_zero_shot
from hcep.classify.tree_prior import under_prior
from hcep.dictionary.checks import refuse_non_finite
from hcep.dictionary.from_text import checked_texts
from hcep.dictionary.moments import ClassMoments, one_hot
from hcep.dictionary.transform import prepared_rows
from hcep.embeddings import Embeddings, Encoder
from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy
from hcep.models.saving import save_model

if TYPE_CHECKING:
    from hcep.embeddings import EmbeddingStore

#: A store with more images than this is not read into memory.
IN_MEMORY = 10_000
#: Images that metric, anchor, calibration and refinement are chosen on, in all or per class; images read at a time.
SAMPLE, SAMPLE_PER_CLASS, BLOCK = 5_000, 20, 1024
#: Passes over all images if some have labels above the classes. A third gains little.
ROUNDS = 2
#: Images and labels, block by block.
Batches = Iterable[tuple[NDArray[Any], NDArray[Any]]]
#: Maps a function of a part's number and batches over all parts.
EachPart = Callable[..., Iterable[Any]]


def fit_model(
    embeddings: Embeddings,
    hierarchy: Hierarchy | None,
    folder: str | PathLike[str],
    *,
    paper: bool = False,
    name: str | None = None,
    several_objects: bool = False,
    texts: Mapping[str, NDArray[Any]] | None = None,
    encoder: Encoder | None = None,
    progress: bool = False,
    **parameters: Any,
) -> HCEPClassifier:
    """Fit a classifier and save it with its training data, its accuracy and its encoder; return the classifier.

    Parameters
    ----------
    embeddings : with a label for each image. If they stay on disk (`read_embeddings` with ``in_memory``), only a sample
        is ever in memory, unless the head is a linear one or there are texts.
    hierarchy : hierarchy above the classes; None for a flat one
    folder : the model's folder; a model that is there is replaced
    paper : start from the published configuration
    name : title of the model card
    several_objects : also learn how many objects a picture shows, for ``n_paths="auto"``
    texts : text vectors of concepts, see `HCEPClassifier.fit`
    encoder : the encoder of the texts, if known; recorded for embeddings that do not record theirs
    progress : show progress bars while images are read from disk
    **parameters : parameters of `HCEPClassifier`
    """
    X, y = embeddings.X, embeddings.y
    model = (HCEPClassifier.paper if paper else HCEPClassifier)(hierarchy, **parameters)
    y = renamed_labels(y, only_classes(y, hierarchy, model.coarse, model.unlabelled))
    if several_objects and (model.signed or model.tol or model.max_steps):
        raise HCEPError("several_objects needs complete paths: leave out signed, tol and max_steps")
    refuse_texts_of_another(encoder, embeddings)
    if embeddings.on_disk and texts is None and isinstance(model.head, str) and model.head == "path":
        images = fit_streaming(model, X, y, progress)
        metrics = {"training accuracy": accuracy(model, X, y, progress)}
    else:
        X = X.to_numpy(np.float32) if embeddings.on_disk else X
        refuse_non_finite(X, name="the data")
        images = X, y
        model.fit(X, y, texts=texts)
        is_class = np.isin(y, model.classes_)  # a label above the classes says only in part whether an answer is right
        metrics = {"training accuracy": float(model.score(X[is_class], y[is_class]))}
    if several_objects:
        is_class = np.isin(images[1], model.classes_)
        model.fit_objects(images[0][is_class], images[1][is_class])
    chosen = (model.power_, model.shrinkage_, model.anchor_)
    scores = [s for s in model.leave_one_out_ if (s.power, s.shrinkage, s.anchor) == chosen]
    if scores:  # the last one is on all images; the power was chosen on some
        metrics["held-out accuracy"] = scores[-1].accuracy
    facts: dict[str, Any] = {"encoder": embeddings.encoder or encoder, "data": embeddings.source, "metrics": metrics}
    of_classes = Counter(y[np.isin(y, model.classes_)].tolist())
    save_model(model, folder, **facts, images_per_class=of_classes, name=name)
    return model


def fit_text_model(
    hierarchy: Hierarchy | None,
    texts: Mapping[str, NDArray[Any]],
    folder: str | PathLike[str],
    *,
    encoder: Encoder | None = None,
    images: Embeddings | None = None,
    name: str | None = None,
) -> HCEPClassifier:
    """Fit a classifier to texts of classes and, optionally, unlabelled images; save it and return it.

    Parameters
    ----------
    hierarchy : hierarchy above the classes; None for a flat one
    texts : text vectors of concepts; the leaves of the hierarchy that have one become classes
    folder : the model's folder
    encoder : the encoder of the texts, if known
    images : unlabelled embeddings of the same encoder; see `hcep.classify.linear_head.fit_zero_shot`
    name : title of the model card
    """
    model = HCEPClassifier(hierarchy)
    record: Encoder | EncoderRecord | None = encoder
    X, data = None, "names of classes"
    if images is not None:
        refuse_texts_of_another(encoder, images)
        X, record, data = images.X, encoder or images.encoder, f"{data} and {images.source}"
    fit_zero_shot(model, checked_texts(texts, (), texts, None if X is None else X.shape[1]), X)
    save_model(model, folder, encoder=record, data=data, name=name)
    return model


def refuse_texts_of_another(encoder: Encoder | None, images: Embeddings) -> None:
    """Refuse texts and images of two encoders, if both are known."""
    known = images.encoder
    if encoder is not None and known is not None and known.fingerprint not in (None, encoder.fingerprint):
        raise HCEPError(f"{images.source}: embeddings of {quote(known.name)}, not of {quote(encoder.name)}")


# -- images that are never all in memory -------------------------------------------------------------------------------


def fit_in_parts(
    model: HCEPClassifier, counts: Mapping[int, Counter[str]], each: EachPart, sample: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Fit a classifier whose head is the path to images in parts; return the sample that choices are made on.

    Means, covariance and therefore the dictionary are those of all images and equal, up to rounding, a fit in memory.
    Parameters that are "auto", the calibration, the refinement of leaves and the floor of explained shares come from a
    sample with equally many images of each class.

    Images with a label above the classes are in the sample as well: as many as if they were of the classes below it.
    The fit to the sample decides whether they are used, as a fit in memory does. Then each of them counts for the
    classes below its label by the probabilities of that model and, in a second pass, of the model that results. In
    contrast to a fit in memory an image is not left out of the means that it is compared with.

    Parameters
    ----------
    counts : images per label of each part, by the part's number
    each : ``each(description, work, **options)`` yields ``work(number, batches, **options)`` of each part, in any order
    sample : size of the sample
    """
    total = sum(counts.values(), Counter[str]())
    meaning = _Meaning.of(model, total)
    taken = dict(each("sampling", take_sample, quotas=quotas(counts, total, sample, meaning.n_classes)))
    X, y = (np.concatenate(column) for column in zip(*(taken[number] for number in sorted(taken)), strict=True))
    del taken
    model.fit(X, y)
    fitted, model.coarse_ = model.coarse_, None  # it knows of the images of the sample alone
    if fitted is not None and len(y) == sum(n for label, n in total.items() if meaning.n_classes[label]):
        return X, y  # the sample is everything, so that this is the fit in memory
    is_taught = fitted is not None and fitted.used
    for _ in range(ROUNDS if is_taught else 1):
        _learn_from_all(model, meaning, total, each, is_taught)
    return X, y


def _learn_from_all(
    model: HCEPClassifier, meaning: "_Meaning", total: Mapping[str, int], each: EachPart, is_taught: bool
) -> None:
    """Give a model that was fitted to a sample the means and the covariance of all images.

    If `is_taught`, images whose label says a set count for its classes by the probabilities of the model as it is.
    """
    labels, leaves = list(map(str, model.classes_.tolist())), model._leaves.tolist()
    leaf_of = dict(zip(labels, leaves, strict=True))
    second = model.shrinkage_ is not None
    options: dict[str, Any] = {"power": model.power_, "unit_norm": model.unit_norm, "second": second}
    options["leaves"] = {label: leaf_of[own] for label, own in meaning.own.items()}
    if is_taught:
        options |= {"teacher": meaning.teacher(model), "sets": meaning.sets, "all_leaves": leaves}
    moments, taught = ClassMoments(second_moment=second), sparse.csr_array(meaning.labels.sets.shape)
    for part, counts in each("fitting", sum_up, **options):
        moments.merge(part)
        taught = taught if counts is None else taught + counts
    n_exact, n_coarse = Counter[str](), Counter[int]()
    for label, own in meaning.own.items():
        n_exact[own] += total[label]
    for label, k in meaning.sets.items():
        n_coarse[k] += total[label]
    _replace_moments(model, moments, np.array([n_exact[label] for label in labels]))
    names = enumerate(meaning.labels.names)
    model.coarse_counts_ = {name: CoarseCount.of(n_coarse[k], taught[[k]], model.classes_) for k, name in names} or None


class _Meaning(NamedTuple):
    """What each label of images in parts says: a class, a set of classes, or nothing, if its images are not used."""

    labels: Labels  # of the labels themselves, each once
    own: dict[str, str]  # class of each label that says one
    sets: dict[str, int]  # set of each other label, as a position in `labels.names`
    n_classes: dict[str, int]  # classes that each label allows

    @classmethod
    def of(cls, model: HCEPClassifier, total: Iterable[str]) -> "_Meaning":
        labels = list(total)
        hierarchy = None if model.hierarchy is None else as_hierarchy(model.hierarchy)
        read = read_labels(labels, hierarchy, model.coarse, model.unlabelled)
        own = {label: read.classes[c] for label, c in zip(labels, read.own.tolist(), strict=True) if c >= 0}
        sets = {label: k for label, k in zip(labels, read.label.tolist(), strict=True) if k >= 0}
        allowed = {label: int(read.sets[k].sum()) for label, k in sets.items()}
        return cls(read, own, sets, dict.fromkeys(labels, 0) | dict.fromkeys(own, 1) | allowed)

    def teacher(self, model: HCEPClassifier) -> Teacher:
        """What a model that was fitted to such images makes of those that say a set."""
        return Teacher.of(model.path_model(), self.labels, model.coarse_counts_)


def fit_streaming(
    model: HCEPClassifier, store: "EmbeddingStore", y: NDArray[Any], progress: bool = False
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Fit a classifier to a store, or a selection of one, with labels `y`, in two or three passes; see `fit_in_parts`.

    The size of the sample depends on the number of classes only.
    """
    counts = {i: Counter(y[start : start + BLOCK].tolist()) for i, start in enumerate(range(0, len(y), BLOCK))}

    def each(description: str, work: Callable[..., Any], **options: Any) -> Iterator[Any]:
        for i, block in enumerate(blocks(store, y, progress and description)):
            yield work(i, [block], **options)

    return fit_in_parts(model, counts, each, max(SAMPLE, SAMPLE_PER_CLASS * len(set(y.tolist()))))


def accuracy(model: HCEPClassifier, store: "EmbeddingStore", y: NDArray[Any], progress: bool = False) -> float:
    """The share of images whose predicted class is their label, of those that are labelled with a class."""
    batches = blocks(store, y, progress and "predicting")
    n_right = sum(np.sum(model.predict(X) == labels) for X, labels in batches)
    return float(n_right / max(np.isin(y, model.classes_).sum(), 1))


def blocks(
    store: "EmbeddingStore", y: NDArray[Any], description: str | Literal[False] = False
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Images and labels of a store, `BLOCK` at a time, all finite; with a progress bar if it has a description."""
    start = 0
    with progress_bar(description or "", len(y), bool(description), "images") as advance:
        for X, _ in store.batches(BLOCK):
            refuse_non_finite(X, start)
            yield X, y[start : start + len(X)]
            start += len(X)
            advance(len(X))


def coarse_classes(
    model: HCEPClassifier, embeddings: Embeddings, progress: bool = False
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any], NDArray[np.float64]]]:
    """Images of a fit whose labels are above the classes: their rows, likeliest classes and their probabilities.

    After a fit in memory each image was left out of the class means that it is compared with. Images that stay on disk
    are compared with the fitted model.
    """
    if model.coarse_ is not None:
        yield (model.coarse_.rows, *model.coarse_.best())
    elif model.coarse_counts_:
        start, meaning = 0, _Meaning.of(model, dict.fromkeys(embeddings.y.tolist()))
        teacher = meaning.teacher(model)
        for X, y in blocks(embeddings.X, embeddings.y, progress and "classifying"):
            set_of = np.array([meaning.sets.get(label, -1) for label in y.tolist()], dtype=np.intp)
            rows = np.flatnonzero(set_of >= 0)
            if len(rows):
                yield (start + rows, *likeliest(teacher(X[rows], set_of[rows]), model.classes_))
            start += len(X)


def quotas(
    counts: Mapping[int, Counter[str]], total: Counter[str], sample: int, n_classes: Mapping[str, int]
) -> dict[int, dict[str, int]]:
    """How many images of each label every part contributes to the sample, by the part's share.

    They are equally many per class, and of the labels above the classes as many more as the sample has room for.

    Parameters
    ----------
    counts : images per label of each part, by the part's number
    total : images per label
    sample : images to take; all images, if there are no more
    n_classes : classes that each label allows
    """
    used = Counter({label: n for label, n in total.items() if n_classes[label]})
    most = max(2, sample // sum(n_classes.values())) if used.total() > sample else used.total()
    exact = {label: min(n, most) for label, n in used.items() if n_classes[label] == 1}
    above = {label: n for label, n in used.items() if label not in exact}
    room = max(sample - sum(exact.values()), 2 * len(above))

    def taken(per_class: int) -> dict[str, int]:
        return {label: min(n, per_class * n_classes[label]) for label, n in above.items()}

    n_fitting = bisect_right(range(1, room), room, key=lambda per_class: sum(taken(per_class).values()))
    wanted = exact | taken(max(n_fitting, 1))
    quota: dict[int, dict[str, int]] = {}
    before = Counter[str]()
    for number in sorted(counts):
        after = before + counts[number]
        shares = {label: wanted.get(label, 0) / total[label] for label in counts[number]}
        quota[number] = {c: round(share * after[c]) - round(share * before[c]) for c, share in shares.items()}
        before = after
    return quota


def take_sample(number: int, batches: Batches, *, quotas: Mapping[int, Mapping[str, int]]) -> tuple[int, Any]:
    """The part's number, and the first images and labels of each class, up to the part's quota."""
    left, taken = Counter(quotas[number]), []
    for X, y in batches:
        rows = [i for i, label in enumerate(y.tolist()) if left[label] > 0 and not left.subtract([label])]
        taken.append((X[rows], y[rows]))
    return number, tuple(np.concatenate(column) for column in zip(*taken, strict=True))


def sum_up(
    number: int,
    batches: Batches,
    *,
    leaves: Mapping[str, str],
    power: float,
    unit_norm: bool,
    second: bool,
    teacher: Teacher | None = None,
    sets: Mapping[str, int] | None = None,
    all_leaves: Sequence[str] = (),
) -> tuple[ClassMoments, sparse.csr_array | None]:
    """Counts, sums and (if `second`) products of images, by the leaf of their class.

    Also how many images of each set of classes went to each class, (n_sets, n_classes), or None without a teacher.

    Parameters
    ----------
    number : the part's number
    leaves : leaf of each label that says a class
    power, unit_norm : how images are prepared
    teacher, sets, all_leaves : what becomes of images with labels above the classes, the set that each such label
        allows, and the leaf of each class; without a teacher these images are not used
    """
    moments = ClassMoments(second_moment=second)
    taught = None if teacher is None else sparse.csr_array(teacher.sets.shape)
    for X, y in batches:
        labels, index = np.unique(y, return_inverse=True)
        exact = np.flatnonzero(np.array([label in leaves for label in labels.tolist()], dtype=bool)[index])
        own, of_class = np.unique(index[exact], return_inverse=True)
        moments.update(
            prepared_rows(X[exact], power, unit_norm), [leaves[one] for one in labels[own].tolist()], of_class
        )
        if teacher is None or sets is None:
            continue
        set_of = np.array([sets.get(label, -1) for label in labels.tolist()], dtype=np.intp)[index]
        rows = np.flatnonzero(set_of >= 0)
        shares = sparse.coo_array(teacher(X[rows], set_of[rows]))
        at, classes = shares.coords
        # An image counts as one per class that it may be of, as in a fit in memory.
        weights = one_hot(classes.astype(np.intp), len(all_leaves), shares.data)
        moments.update(prepared_rows(X[rows[at]], power, unit_norm), all_leaves, weights)
        taught = taught + one_hot(set_of[rows], len(teacher.names)).T @ shares
    return moments, taught


def _replace_moments(model: HCEPClassifier, moments: ClassMoments, counts: NDArray[np.intp]) -> None:
    """Give a model that was fitted to a sample the means and the covariance of all images.

    `counts` are the images labelled with each class.
    """
    dictionary, hierarchy, leaves = model._dictionary_of(moments), model.hierarchy_, model._leaves
    weights = moments.weights[[moments.labels[leaf] for leaf in leaves.tolist()]]
    index = [hierarchy.index(leaf) for leaf in leaves.tolist()]
    means = plain = dictionary.synset_embeddings[index]
    if model.leaf_moves_ is not None:
        refined = model.dictionary_.synset_embeddings[index] if model.class_means_ is None else model.class_means_
        means = plain + (refined - model._dictionary_of(model.moments_).synset_embeddings[index])
    model.class_means_ = None if model.prior_ is None else means
    shifts = under_prior(model.prior_, hierarchy, leaves, means, weights) - plain
    model.dictionary_, model.moments_ = dictionary.moved(dict(zip(leaves.tolist(), shifts, strict=True))), moments
    model.priors_ = class_priors(model.priors, weights)
    model.images_per_class_ = counts.astype(np.int64)
    model.class_weights_ = None if (weights == counts).all() else weights
