"""The headline function: photos, or embeddings, and a model -> answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require_positive
from hcep._progress import progress as progress_bar
from hcep.classify.groups import group_rows
from hcep.classify.path_model import PathModel
from hcep.classify.right_level import SURE, require_sure
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, Answers
from hcep.explain.corrections import Correction, Corrections, image_hash
from hcep.explain.explainer import EncodedImage, Explainer
from hcep.explain.finding import find_images
from hcep.explain.neighbours import training_photos, with_training_photos
from hcep.explain.possible import Possible
from hcep.models import read_model
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import load_model_encoder
from hcep.pursuit.limits import Concepts, PathLimits, Request

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify import HCEPClassifier
    from hcep.embeddings import EmbeddingStore, Encoder
    from hcep.embeddings.images import ImageItem

    #: A photo: a file, a part of a file, or a picture in memory.
    Photo = Path | ImageItem | Image

#: Photos in memory at a time, and embeddings.
BATCH, BLOCK = 32, 1024


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """What to answer for images; `explain_images` says what each option does."""

    where: bool = False
    n_best: int = 3
    encoder: Encoder | str | None = None
    preprocessing: Any = None
    training: EmbeddingStore | str | PathLike[str] | bool = False
    why_not: Concepts = ()
    force: Concepts = ()
    forbid: Concepts = ()
    only: Concepts | Possible = ()
    corrections: Corrections | None = None
    sure: float = SURE
    rank: str | None = None
    groups: Sequence[str] | None = None
    n_paths: int | Literal["auto"] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        require_positive("n_best", self.n_best)
        require_sure(self.sure)


def explain_images(
    images: str | PathLike[str] | Image | Iterable[str | PathLike[str] | Image] | NDArray[Any],
    model: str | PathLike[str] | SavedModel | PathModel | HCEPClassifier | None = None,
    *,
    where: bool = False,
    n_best: int = 3,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    training: EmbeddingStore | str | PathLike[str] | bool = False,
    why_not: Concepts = (),
    force: Concepts = (),
    forbid: Concepts = (),
    only: Concepts | Possible = (),
    corrections: Corrections | None = None,
    sure: float = SURE,
    rank: str | None = None,
    groups: Sequence[str] | None = None,
    n_paths: int | Literal["auto"] | None = None,
    strict: bool = False,
    progress: bool = False,
) -> Answers:
    """Explain photos or embeddings: an answer at the level that is sure, the class, and the rooted path of each.

    Raises HCEPError: a path that leads to no image, an encoder that is missing or not the model's, maps of embeddings,
    and with `strict` a file that is not an image.

    >>> from hcep import HCEPClassifier, explain_images
    >>> from hcep.datasets import load_sample
    >>> sample = load_sample()
    >>> model = HCEPClassifier(sample.hierarchy).fit(sample.X_train, sample.y_train)
    >>> first = explain_images(sample.X_val[:2], model)[0]
    >>> first.name, first.leaf == first.label
    ('tench', True)

    Parameters
    ----------
    images : path, PIL image, several of them, or (n_images, n_dims) array
        Files, folders (all images below them) and globs; images in memory; or raw embeddings of the model's encoder.
    model : folder of a saved model, `SavedModel`, or fitted classifier
        A folder also knows its encoder and the names of its atoms. The default is the built-in model of ImageNet's
        classes.
    where : also map where in a photo each concept is. The maps are exact for encoders whose vector is the mean of a
        feature map; for other encoders without feature maps they are made by occlusion, about fifty encodings a photo.
    n_best : number of classes per image: the answer and its runners-up; 1 leaves out other paths to the answer, too
    encoder : image encoder (default: the model's); required if the model records none
    preprocessing : replaces the recorded preprocessing, see `hcep.embeddings.load_encoder`
    training : store of training photos, to show those nearest to each image and typical ones of its concepts; True uses
        the store in the model's folder, if `hcep fit` left one there
    why_not : classes or concepts to compare each answer with, in ``contrasts``
    force, forbid : concepts that must, and must not, be on every path
    only : the only possible classes, or concepts above them, at this place or time; a `Possible` may differ by image.
        Nothing is promised about such answers unless the model was calibrated with the same list
    corrections : corrections of single images, see `hcep.explain.Corrections`
    sure : how sure answers are: ``answer`` is the most specific concept that is at least this likely. Held-out photos
        turn it into a promise, see `HCEPClassifier.calibrate`
    rank : answer at this rank of the hierarchy, such as "family", or above it, even if a more specific concept is sure
    groups : the burst, observation or specimen of each image. A group has one answer, for the probabilities of its
        photos combined, with the path of the photo that shows its class best; ``file`` is the group
    n_paths : also explain each image by up to this many objects, in ``objects``; "auto" chooses the number
    strict : raise an error for an image that cannot be used, instead of listing it in ``skipped`` of the result
    progress : show a progress bar

    Returns
    -------
    Answers
        A list of `Answer`. Memory beyond it does not grow with the number of images.
    """
    options = ExplainOptions(
        where=where,
        n_best=n_best,
        encoder=encoder,
        preprocessing=preprocessing,
        training=training,
        why_not=why_not,
        force=force,
        forbid=forbid,
        only=only,
        corrections=corrections,
        sure=sure,
        rank=rank,
        groups=groups,
        n_paths=n_paths,
        progress=progress,
    )
    answers = Answers()
    photos = images if isinstance(images, np.ndarray) else find_photos(images)
    for batch in answer_batches(photos, model, options, None if strict else answers.skipped):
        answers += batch
    return answers


def answer_batches(
    images: Sequence[Photo] | NDArray[Any],
    model: str | PathLike[str] | SavedModel | PathModel | HCEPClassifier | None,
    options: ExplainOptions,
    skipped: list[tuple[str, str]] | None = None,
) -> Iterator[list[Answer]]:
    """Answer for files, boxes, PIL images or raw embeddings, a batch at a time; memory does not grow with their number.

    `skipped` gets the (file, reason) of images that cannot be used; without it they are errors.
    """
    classifier, saved = open_model(model)
    names = saved.atom_names if saved else None
    explainer = Explainer(classifier, options.n_best, names, options.sure, options.n_paths, options.rank)
    only = options.only if isinstance(options.only, Possible) else Possible(Request.of(only=options.only).only)
    request, why_not = Request.of(options.force, options.forbid, only.everywhere), Request.of(options.why_not).force
    # Unknown concepts and ranks are errors before any photo is encoded.
    PathLimits.of(classifier.hierarchy, *request)
    if options.rank is not None:
        classifier.hierarchy.find_rank(options.rank)
    for name in why_not:
        explainer.evidence.find(name)
    group_of: dict[str, str] | None = None
    if options.groups is not None:
        images, group_of = _in_groups(images, options.groups)
    encoder = None
    if isinstance(images, np.ndarray):
        if options.where:
            raise HCEPError("where: embeddings have no positions; give the photos")
        n_images, batches = len(np.atleast_2d(images)), _blocks(np.atleast_2d(images))
    else:
        record, place = (saved.encoder, saved.folder) if saved else (None, "the model")
        encoder = load_model_encoder(record, place, options.encoder, options.preprocessing)
        # Occlusion takes long, so that photos are answered one by one.
        n_at_once = 1 if options.where and not getattr(encoder, "has_maps", False) else BATCH
        n_images, batches = len(images), encoded_photos(images, encoder, skipped, options.where, n_at_once)
    training = None
    if options.training is not False:
        training = training_photos(None if options.training is True else options.training, saved)
    answers: list[Answer] = []
    with progress_bar("explaining", n_images, options.progress and n_images > 1, "images") as advance:
        for batch in batches if group_of is None else _whole_groups(batches, group_of):
            requests: list[Request] = [request] * len(batch)
            if only.by_image is not None:
                requests = [request._replace(only=only.of(one.name)) for one in batch]
            corrections: list[Correction | None] = [None] * len(batch)
            if options.corrections is not None:
                hashes = [image_hash(one.embedding if one.source is None else one.source) for one in batch]
                pairs = zip(hashes, requests, strict=True)
                requests = [options.corrections.requests([key], own)[0] for key, own in pairs]
                corrections = list(map(options.corrections.applied, hashes))
            answers += explainer.answers(
                batch,
                requests=requests,
                corrections=corrections,
                why_not=why_not,
                training=training,
                encoder=encoder if options.where else None,
                groups=None if group_of is None else [group_of[one.name] for one in batch],
            )
            advance(len(batch))
            if training is None or len(answers) >= BLOCK:  # each group of images reads all training photos
                yield with_training_photos(answers, training, classifier)
                answers = []
    if answers:
        yield with_training_photos(answers, training, classifier)


def _in_groups(
    images: Sequence[Photo] | NDArray[Any], groups: Sequence[str]
) -> tuple[Sequence[Photo] | NDArray[Any], dict[str, str]]:
    """The images, those of a group after each other, and the group of each by the name that `EncodedImage` has."""
    if len(groups) != len(images):
        raise HCEPError(f"groups must have one entry for each of {len(images):,} images; got {len(groups):,}")
    order = [i for rows in group_rows(groups, 1) for i in rows.tolist()]
    names = [_name_of(images[i], n) for n, i in enumerate(order)]
    by_name = {name: str(groups[i]) for name, i in zip(names, order, strict=True)}
    return images[order] if isinstance(images, np.ndarray) else [images[i] for i in order], by_name


def _name_of(photo: Any, i: int) -> str:
    """The name of the i-th image: its id or path, or its number."""
    return str(photo) if isinstance(photo, Path) else str(getattr(photo, "id", i))


def _whole_groups(batches: Iterable[list[EncodedImage]], group_of: dict[str, str]) -> Iterator[list[EncodedImage]]:
    """The same images in batches that end with the last image of a group."""
    waiting: list[EncodedImage] = []
    for batch in batches:
        waiting += batch
        last = group_of[waiting[-1].name]
        n_whole = next((i for i, one in enumerate(waiting) if group_of[one.name] == last), 0)
        if n_whole:
            yield waiting[:n_whole]
            waiting = waiting[n_whole:]
    if waiting:
        yield waiting


def find_photos(images: Any) -> list[Photo]:
    """Files and PIL images, one by one, from paths, folders, globs and images."""
    if isinstance(images, str | PathLike) or not isinstance(images, Iterable):
        images = [images]
    photos: list[Photo] = []
    for image in images:
        if not isinstance(image, str | PathLike) and not hasattr(image, "convert"):
            raise HCEPError(f"images must be paths, PIL images or an array of embeddings, got {type(image).__name__}")
        photos += find_images([image]) if isinstance(image, str | PathLike) else [image]
    return photos


def open_model(model: Any) -> tuple[PathModel, SavedModel | None]:
    """The classifier behind a folder, a saved model or a fitted classifier, and the saved model if there is one."""
    if model is None:
        from hcep.models.opening import builtin_model

        model = builtin_model()
    if isinstance(model, str | PathLike):
        model = read_model(model)
    if isinstance(model, SavedModel):
        return model.path_model, model
    if not isinstance(model, PathModel) and not hasattr(model, "path_model"):
        raise HCEPError(f"model must be the folder of a saved model or a fitted classifier, got {type(model).__name__}")
    return model if isinstance(model, PathModel) else model.path_model(), None


def encode_pixels(
    encoder: Encoder, pixels: NDArray[np.float32], maps: bool
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Embeddings of preprocessed images and, if wanted and the encoder has them, their feature maps.

    An encoder whose vector is the mean of its feature map runs once for both.
    """
    if not maps or not getattr(encoder, "has_maps", False):
        return encoder.encode_images(pixels), None
    features = encoder.feature_map(pixels)  # type: ignore[attr-defined]
    exact = getattr(encoder, "maps_are_exact", False)
    return features.mean(axis=(2, 3)) if exact else encoder.encode_images(pixels), features


def _blocks(X: NDArray[Any]) -> Iterator[list[EncodedImage]]:
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK]
        yield [EncodedImage(name=str(start + i), embedding=row) for i, row in enumerate(rows)]


def encode_files(files: Sequence[Path], saved: SavedModel, encoder: Encoder | str | None = None) -> NDArray[Any]:
    """Embeddings of photos by the encoder of a model, (n_files, n_dims)."""
    adapter = load_model_encoder(saved.encoder, saved.folder, encoder)
    return np.stack([one.embedding for batch in encoded_photos(files, adapter, None, False) for one in batch])


def encoded_photos(
    photos: Sequence[Photo],
    encoder: Encoder,
    skipped: list[tuple[str, str]] | None,
    where: bool,
    n_at_once: int = BATCH,
) -> Iterator[list[EncodedImage]]:
    """Photos with their embeddings, a batch at a time; each is read once.

    Photos that cannot be used go to `skipped`, or are errors if it is None.
    """
    from PIL.ImageOps import exif_transpose

    from hcep.embeddings.images import ImageItem, ImageProblem, open_image

    def readable() -> Iterator[tuple[str, Photo, tuple[int, int], NDArray[np.float32]]]:
        for i, photo in enumerate(photos):
            name = _name_of(photo, i)
            try:
                if isinstance(photo, ImageItem):
                    image = open_image(photo.path, box=photo.box)
                else:
                    image = open_image(photo) if isinstance(photo, Path) else exif_transpose(photo).convert("RGB")
                yield name, photo, image.size, encoder.preprocess(image)
            except ImageProblem as problem:
                if skipped is None:
                    raise HCEPError(f"{name}: {problem.reason}") from None
                skipped.append((name, problem.reason))

    left = readable()
    while batch := list(islice(left, n_at_once)):
        names, sources, sizes, arrays = zip(*batch, strict=True)
        X, features = encode_pixels(encoder, np.stack(arrays), where)
        yield [
            EncodedImage(
                name=names[i],
                embedding=X[i],
                source=sources[i],
                size=sizes[i],
                features=None if features is None else features[i],
                pixels=arrays[i] if where and features is None else None,
            )
            for i in range(len(batch))
        ]
