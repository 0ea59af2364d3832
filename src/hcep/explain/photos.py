"""The headline verb: photos, or embeddings, and a model -> explanations."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as progress_bar
from hcep.classify.path_model import PathModel
from hcep.errors import HCEPError
from hcep.explain.explanation import Explanation, explain
from hcep.models import SavedModel, read_model
from hcep.models.model_encoder import load_model_encoder

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify import HCEPClassifier
    from hcep.embeddings import Encoder

#: Photos that are in memory at a time, and embeddings.
BATCH, BLOCK = 32, 1024
#: Files and embeddings.
Batch = tuple[list[str], NDArray[Any]]


@dataclass(frozen=True)
class ExplainedImage:
    """One image with its class and path.

    Attributes
    ----------
    file : where the image is; of an image in memory or an embedding, its number
    label, name : the predicted class, and its display name
    probability : of that class
    explanation : Explanation
    rivals : the runners-up by name, such as ``"animal → dog"``, the nearest first
    """

    file: str
    label: str
    name: str
    probability: float
    explanation: Explanation
    rivals: tuple[str, ...] = ()


class ExplainedImages(list[ExplainedImage]):
    """Explanations in the order of the images.

    Attributes
    ----------
    skipped : (file, reason) of images that could not be used
    """

    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[tuple[str, str]] = []


def explain_images(
    images: str | PathLike[str] | Image | Iterable[str | PathLike[str] | Image] | NDArray[Any],
    model: str | PathLike[str] | SavedModel | PathModel | HCEPClassifier,
    *,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    n_best: int = 1,
    strict: bool = False,
    progress: bool = False,
) -> ExplainedImages:
    """Explain photos, or embeddings: class, probability and rooted path of concepts of each.

    Parameters
    ----------
    images : path, PIL image, several of them, or (n_images, n_dims) array
        Files, folders (all images below) and globs; images in memory; or raw embeddings of the model's encoder.
    model : a folder, or what it holds (it knows its encoder, and names of atoms); or a fitted classifier
    encoder : the model's own by default; the photos of a model that does not say which need it
    preprocessing : instead of the recorded one, see `hcep.embeddings.load_encoder`
    n_best : paths per image: the answer and its runners-up
    strict : make an image that cannot be used an error; else it is in ``skipped`` of what is returned
    progress : show a progress bar

    Returns
    -------
    ExplainedImages
        A list of `ExplainedImage`; memory beyond it does not grow with the number of images.

    Raises
    ------
    HCEPError
        A path that leads to no image, an encoder that is not the model's or that nobody names, a file that is no image
        where `strict` is true.

    Examples
    --------
    >>> from hcep import HCEPClassifier, explain_images
    >>> from hcep.datasets import load_sample
    >>> sample = load_sample()
    >>> model = HCEPClassifier(sample.hierarchy).fit(sample.X_train, sample.y_train)
    >>> first = explain_images(sample.X_val[:2], model)[0]
    >>> first.name, first.explanation.leaf == first.label
    ('tench', True)
    """
    found = ExplainedImages()
    classifier, saved = _opened(model)
    hierarchy, names = classifier.hierarchy, saved.atom_names if saved else None
    name_of = cache(lambda label: hierarchy.name(hierarchy.leaf_of(label)))
    if isinstance(images, np.ndarray):
        X = np.atleast_2d(images)
        n_images, batches = len(X), _blocks(X)
    else:
        photos = _photos(images)
        record, place = (saved.summary.encoder, saved.folder) if saved else (None, "the model")
        adapter = load_model_encoder(record, place, encoder, preprocessing)
        n_images, batches = len(photos), _encoded(photos, adapter, None if strict else found.skipped)
    with progress_bar("explaining", n_images, progress and n_images > 1, "images") as advance:
        for files, X in batches:
            inferred = classifier.infer(X, n_best=n_best, explained=True)
            likely = inferred.probabilities[np.arange(len(X)), inferred.class_index]
            explanations = explain(X, inferred.paths, names=names)
            labels = map(str, inferred.labels.tolist())
            for file, label, probability, one in zip(files, labels, likely.tolist(), explanations, strict=True):
                rivals = tuple(" → ".join(map(hierarchy.name, rival.path)) for rival in one.runners_up)
                found.append(ExplainedImage(file, label, name_of(label), probability, one, rivals))
            advance(len(files))
    return found


def _opened(model: Any) -> tuple[PathModel, SavedModel | None]:
    """What predicts, and the folder that it comes from, where there is one."""
    if isinstance(model, str | PathLike):
        model = read_model(model)
    if isinstance(model, SavedModel):
        return model.path_model, model
    if not isinstance(model, PathModel) and not hasattr(model, "path_model"):
        raise HCEPError(f"model must be the folder of a saved model or a fitted classifier, got {type(model).__name__}")
    return model if isinstance(model, PathModel) else model.path_model(), None


def find_images(patterns: Iterable[str | PathLike[str]]) -> list[Path]:
    """The files that are meant: files as they are, images below folders, matches of globs.

    Raises
    ------
    HCEPError
        When a pattern means no file.
    """
    from hcep.embeddings.images import IMAGE_SUFFIXES

    files: list[Path] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.is_dir():
            found = sorted(f for f in place.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES)
        elif glob.has_magic(str(pattern)) and not place.exists():
            found = sorted(Path(f) for f in glob.glob(str(pattern), recursive=True))
        else:
            found = [place] if place.exists() else []
        if not found:
            raise HCEPError(f"no image at {str(pattern)!r}")
        files += found
    return files


def _photos(images: Any) -> list[Path | Image]:
    """Files and images, one each."""
    if isinstance(images, str | PathLike) or not isinstance(images, Iterable):
        images = [images]
    photos: list[Path | Image] = []
    for one in images:
        if not isinstance(one, str | PathLike) and not hasattr(one, "convert"):
            raise HCEPError(f"images must be paths, PIL images or an array of embeddings, got {type(one).__name__}")
        photos += find_images([one]) if isinstance(one, str | PathLike) else [one]
    return photos


def _blocks(X: NDArray[Any]) -> Iterator[Batch]:
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK]
        yield [str(start + i) for i in range(len(rows))], rows


def _encoded(photos: list[Path | Image], encoder: Encoder, skipped: list[tuple[str, str]] | None) -> Iterator[Batch]:
    """Names and embeddings of photos; those that cannot be used go to `skipped`, or are errors where it is None."""
    from PIL.ImageOps import exif_transpose

    from hcep.embeddings.images import ImageProblem, open_image

    def readable() -> Iterator[tuple[str, NDArray[np.float32]]]:
        for i, photo in enumerate(photos):
            file = str(photo) if isinstance(photo, Path) else str(i)
            try:
                image = open_image(photo) if isinstance(photo, Path) else exif_transpose(photo).convert("RGB")
                yield file, encoder.preprocess(image)
            except ImageProblem as problem:
                if skipped is None:
                    raise HCEPError(f"{file}: {problem.reason}") from None
                skipped.append((file, problem.reason))

    left = readable()
    while batch := list(islice(left, BATCH)):
        yield [file for file, _ in batch], encoder.encode_images(np.stack([pixels for _, pixels in batch]))
