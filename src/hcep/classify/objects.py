"""How many objects are in a picture: when a further path says no more than it would of a picture with one object."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.left_out import spread
from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary
from hcep.pursuit.several import MAX_PATHS, Stopping, search_several

#: Of pictures with one object, the share that may be taken for several.
FALSE_ALARMS = 0.03
#: Images that are held out, and the fewest that a rule is fitted on.
MOST, FEWEST = 384, 16
#: Images that classes need: of one or two the mean without one says little of the mean.
PER_CLASS = 4
#: Share of the larger object in mixtures.
MIXED = 0.65
#: Slopes tried, in units of the spread of gains over that of unexplained shares.
SLOPES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def stopping_rule(model: PathModel, images: NDArray[Any], index: NDArray[np.intp]) -> Stopping | None:
    """The rule by which ``n_paths="auto"`` stops, by training images held out of the means; None where they are few.

    `images` are raw, of one object each, `index` their classes as positions in ``model.classes``. Mixtures of two
    held-out images of different classes stand for pictures with two objects: on mean-pooled encoders they nearly are.
    The intercept lets `FALSE_ALARMS` of the held-out images pass; the slope is the one at which most mixtures do.
    """
    measured = [
        [_gains(model, dictionary, some) for some in (images[rows], _mixtures(images, index, rows))]
        for rows in _folds(model, images, index)
        for dictionary in [_without(model, images, index, rows)]
    ]
    if sum(len(single[1]) for single, _ in measured) < FEWEST:
        return None
    (gains, left), (mixed_gains, mixed_left) = (
        tuple(np.concatenate([fold[k][part] for fold in measured]) for part in (0, 1)) for k in (0, 1)
    )
    tried = []
    for slope in _slopes(gains[:, 0], left):
        one, two = gains[:, 0] - slope * left, mixed_gains[:, 0] - slope * mixed_left
        bars = np.quantile(one, [1.0 - FALSE_ALARMS * scale for scale in (0.5, 1.0, 2.0)])
        tried.append((float(np.mean(two > bars[:, None])), -slope, float(bars[1])))
    _, slope, intercept = max(tried)
    return Stopping(intercept, -slope)


def counted_rule(
    model: PathModel, single: NDArray[Any], index: NDArray[np.intp], picture: NDArray[np.intp], X: NDArray[Any]
) -> Stopping | None:
    """The rule that best counts the objects of pictures X that are held out of the dictionary's means.

    `single` and `index` are as the images of `stopping_rule`, one for each object, and `picture` the row of X that each
    is of. None where few pictures have one object, or several.
    """
    n_objects = np.bincount(picture, minlength=len(X))
    held = spread(np.flatnonzero(n_objects > 0)[1::3], MOST)
    several = n_objects[held] > 1
    if min(several.sum(), (~several).sum()) < FEWEST // 4 or not model.options.anchor > 0.0:
        return None
    left_out = _without(model, single, index, np.flatnonzero(np.isin(picture, held)))
    gains, unexplained = _gains(model, left_out, X[held], int(min(n_objects.max() + 1, MAX_PATHS)))
    tried = []
    for slope in _slopes(gains[~several, 0], unexplained[~several]):
        for intercept in np.quantile(gains[:, 0] - slope * unexplained, np.linspace(0.0, 1.0, 41)).tolist():
            needed = (intercept + slope * unexplained)[:, None]
            goes_on = gains > np.where(np.arange(gains.shape[1]) == 0, needed, np.maximum(needed, 0.0))
            found = 1 + np.cumprod(goes_on, axis=1).sum(axis=1)
            tried.append((float(np.abs(found - n_objects[held]).mean()), slope, intercept))
    _, slope, intercept = min(tried)
    return Stopping(intercept, slope)


def _slopes(gains: NDArray[np.float64], unexplained: NDArray[np.float64]) -> list[float]:
    unit = float(gains.std() / max(unexplained.std(), 1e-12))
    return [unit * steep for steep in SLOPES]


def _folds(model: PathModel, images: NDArray[Any], index: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Rows to hold out, once or in turn, `MOST` at a time: every fourth of a class, of few images every other."""
    counts = np.bincount(index, minlength=len(model.classes))
    if not model.options.anchor > 0.0 or np.count_nonzero(counts >= 2) < 2 or np.median(counts) < PER_CLASS:
        return []
    by_class, few = np.argsort(index, kind="stable"), _are_few(images)
    rank = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    some = counts[index[by_class]] >= 2
    folds = [by_class[some & (rank % (2 if few else 4) == fold)] for fold in ((0, 1) if few else (1,))]
    return [spread(rows, MOST) for rows in folds]


def _are_few(images: NDArray[Any]) -> bool:
    """Whether each image weighs so much in the metric that it must be left out of that too."""
    return bool(len(images) < 4 * images.shape[1])


def _mixtures(images: NDArray[Any], index: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Two images of different classes in one, as many as there are rows, or a little fewer."""
    rng = np.random.default_rng(0)
    first, second = rng.permutation(rows), rng.permutation(rows)
    different = index[first] != index[second]
    mixed: NDArray[Any] = MIXED * images[first[different]] + (1.0 - MIXED) * images[second[different]]
    return mixed.astype(images.dtype)


def _without(
    model: PathModel, images: NDArray[Any], index: NDArray[np.intp], rows: NDArray[np.intp]
) -> ConceptDictionary:
    """The dictionary as if the rows had not been among its images; of many images, the metric stays."""
    dictionary, transform, shifts = model.dictionary, model.dictionary.transform, {}
    kept = np.ones(len(index), dtype=bool)
    kept[rows] = False
    if _are_few(images) and transform.shrinkage is not None:
        fixed: dict[str, Any] = {name: getattr(transform, name) for name in ("unit_norm", "shrinkage", "power")}
        fixed |= {"center": transform.mean is not None, "rescale": True}
        return ConceptDictionary.from_images(dictionary.hierarchy, images[kept], model.leaves[index[kept]], **fixed)
    for c in np.unique(index[rows]):
        own = np.flatnonzero(index == c)
        x = transform.prepared(images[own]).astype(np.float64)
        means = np.stack([x[kept[own]].mean(axis=0), x.mean(axis=0)])
        shifts[str(model.leaves[c])] = -np.diff(transform.after_unit_norm(means), axis=0)[0]
    return dictionary.moved(shifts)


def _gains(
    model: PathModel, dictionary: ConceptDictionary, images: NDArray[Any], n_paths: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of the objective that each further path takes away, and share of each image that one path leaves."""
    found = search_several(images, dictionary, replace(model.options, beam_width=None), n_paths).objectives
    x = dictionary.embed(images)
    square = np.maximum(np.einsum("ij,ij->i", x, x, dtype=np.float64), 1e-300)
    gains = 1.0 - found[:, 1:] / np.maximum(found[:, :-1], 1e-300)
    return np.where(np.isnan(gains), -1.0, gains), found[:, 0] / square
