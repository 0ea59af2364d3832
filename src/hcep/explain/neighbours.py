"""Training photos: the nearest ones of an image, and typical ones of a concept, in the model's own metric."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, TrainingPhoto

if TYPE_CHECKING:
    from hcep.embeddings import EmbeddingStore
    from hcep.models.loading import SavedModel

#: Vectors of the store in memory at a time.
BLOCK = 2048
#: Scores are rounded before they are compared, so that another order of summation does not reorder equal ones.
DECIMALS = 6


class BestColumns:
    """The k highest scores of every row, in descending order; ties go to the column that came first."""

    def __init__(self, n_rows: int, k: int) -> None:
        self._scores = np.full((n_rows, k), -np.inf)
        self._columns = np.full((n_rows, k), -1, dtype=np.int64)
        self._n_seen = 0

    def add(self, scores: NDArray[Any]) -> None:
        """Add the next columns, (n_rows, n_columns); -inf marks columns that are not eligible."""
        rounded = np.round(scores, DECIMALS)
        better = rounded > self._scores[:, -1:]
        for row in np.flatnonzero(better.any(axis=1)):
            columns = np.flatnonzero(better[row])
            merged = np.concatenate([self._scores[row], rounded[row, columns]])
            order = np.argsort(-merged, kind="stable")[: self._scores.shape[1]]
            self._scores[row] = merged[order]
            self._columns[row] = np.concatenate([self._columns[row], self._n_seen + columns])[order]
        self._n_seen += scores.shape[1]

    def row(self, i: int) -> list[tuple[int, float]]:
        """(column, score) of row i, the best first; fewer than k if fewer columns are eligible."""
        pairs = zip(self._columns[i].tolist(), self._scores[i].tolist(), strict=True)
        return [(column, score + 0.0) for column, score in pairs if column >= 0]


def training_photos(
    store: EmbeddingStore | str | PathLike[str] | None, model: SavedModel | None = None
) -> EmbeddingStore | None:
    """The training split of a store, or of the store in the model's folder; None if there is neither.

    `hcep fit` on a folder of photos leaves their store in the model's folder.
    """
    from hcep.embeddings import EmbeddingStore
    from hcep.embeddings.files import is_store
    from hcep.embeddings.vectors import OF_SPLIT
    from hcep.models.model_encoder import refuse_other_encoder

    if store is None:
        if model is None or not is_store(model.folder / "store"):
            return None
        store = model.folder / "store"
    photos = store if isinstance(store, EmbeddingStore) else EmbeddingStore(store)
    if model is not None:
        refuse_other_encoder(model.encoder, photos.encoder, photos.folder)
    data = (model.training.data if model is not None else None) or ""
    split = data.rpartition(OF_SPLIT)[2] if OF_SPLIT in data else "train"
    return photos.select(splits=split) if split in photos.splits.tolist() else photos


def recorded_photos(model: SavedModel) -> EmbeddingStore | None:
    """The photos a model was fitted on: of the store in its folder, or of the one that it names; None if it is gone."""
    from hcep.embeddings.files import is_store
    from hcep.embeddings.vectors import OF_SPLIT

    recorded = (model.training.data or "").partition(OF_SPLIT)[0]
    named = bool(recorded) and is_store(recorded) and not is_store(model.folder / "store")
    with suppress(HCEPError):  # there may be another store at that place by now
        return training_photos(recorded if named else None, model)
    return None


def fitted_on(model: SavedModel, images: Iterable[str | None]) -> NDArray[np.bool_]:
    """Which images, by hash, a model was fitted on, according to the store in its folder or the one it names."""
    store = recorded_photos(model)
    known = set() if store is None else {*store.content_hashes.tolist()} - {None}
    return np.array([image in known for image in images], dtype=bool)


def nearest_photos(
    training: EmbeddingStore, model: PathModel, X: NDArray[Any], n: int = 3, *, classes: Sequence[str] | None = None
) -> list[tuple[TrainingPhoto, ...]]:
    """The training photos nearest to each image, the nearest first.

    Parameters
    ----------
    X : (n_images, n_dims) array; raw embeddings
    n : photos per image
    classes : one class per image, to look among the photos of that class only
    """
    wanted = None if classes is None else [{label} for label in classes]
    return _nearest(training, model, np.asarray(model.dictionary.embed(np.atleast_2d(X))), n, wanted)


def concept_photos(
    training: EmbeddingStore, model: PathModel, concepts: Iterable[str], n: int = 3
) -> dict[str, tuple[TrainingPhoto, ...]]:
    """Typical photos of concepts, by id: photos of the classes below that are nearest to the concept's embedding."""
    h, chosen = model.hierarchy, list(dict.fromkeys(concepts))
    label = dict(zip(model.leaves.tolist(), map(str, model.classes.tolist()), strict=True))
    below = [{label[s] for s in (concept, *h.descendants(concept)) if s in label} for concept in chosen]
    points = model.dictionary.synset_embeddings[[h.index(concept) for concept in chosen]]
    return dict(zip(chosen, _nearest(training, model, points, n, below), strict=True))


def with_training_photos(
    answers: list[Answer], training: EmbeddingStore | None, model: PathModel, n: int = 3
) -> list[Answer]:
    """Answers with the training photos nearest to each image, except the image itself, and typical ones of concepts."""
    if training is None:
        return answers
    X = np.stack([answer.context.x for answer in answers])
    typical = concept_photos(training, model, [step.synset for answer in answers for step in answer.path], n)
    complete = []
    for answer, photos in zip(answers, nearest_photos(training, model, X, n + 1), strict=True):
        source = answer.context.source
        place = source.resolve() if isinstance(source, Path) else None
        others = [photo for photo in photos if Path(photo.file).resolve() != place]
        complete.append(answer.replaced(nearest=tuple(others[:n]), typical=typical))
    return complete


def _nearest(
    training: EmbeddingStore, model: PathModel, points: NDArray[Any], n: int, wanted: Sequence[Collection[str]] | None
) -> list[tuple[TrainingPhoto, ...]]:
    """The photos nearest to points in the dictionary's space, from one pass over the store."""
    labels, paths = training.labels.astype(str), training.paths
    names = dict(zip(map(str, model.classes.tolist()), map(model.hierarchy.name, model.leaves.tolist()), strict=True))
    known, codes = np.unique(labels, return_inverse=True)
    eligible = None if wanted is None else np.array([[label in some for label in known.tolist()] for some in wanted])
    best, start = BestColumns(len(points), n), 0
    points = points.astype(np.float64)
    for X, _ in training.batches(BLOCK):
        z = np.asarray(model.dictionary.embed(X), dtype=np.float64)
        squares = np.einsum("ij,ij->i", points, points)[:, None] + np.einsum("ij,ij->i", z, z) - 2.0 * points @ z.T
        distances = np.sqrt(np.maximum(squares, 0.0))
        if eligible is not None:
            distances[~eligible[:, codes[start : start + len(z)]]] = np.inf
        best.add(-distances)
        start += len(z)

    def photo(k: int, score: float) -> TrainingPhoto:
        label = str(labels[k])
        return TrainingPhoto(str(paths[k]), label, names.get(label, label), -score)

    return [tuple(photo(*pair) for pair in best.row(i)) for i in range(len(points))]
