"""How many objects an image has: the gain from which a further path is more than noise."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.left_out import spread
from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary
from hcep.pursuit.several import Stopping, search_several

#: Share of images with one object that may be taken for several.
FALSE_ALARMS = 0.03
#: Most images that are held out, and the fewest that a rule is fitted on.
MOST, FEWEST = 384, 16
#: Fewest images per class: the mean of one or two changes too much without one of them.
PER_CLASS = 4
#: Share of the larger object in mixtures.
MIXED = 0.65
#: Slopes to try, in units of the spread of gains over the spread of unexplained shares.
SLOPES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def stopping_rule(model: PathModel, images: NDArray[Any], index: NDArray[np.intp]) -> Stopping | None:
    """The rule by which ``n_paths="auto"`` stops, fitted on training images held out of the means; None if too few.

    Mixtures of two held-out images of different classes stand for images with two objects: for encoders that average
    over an image they nearly are. The intercept lets `FALSE_ALARMS` of the held-out images pass; the slope is the one
    that lets most mixtures pass.

    Parameters
    ----------
    model : fitted on the images
    images : (n_images, n_dims) array; raw, of one object each
    index : (n_images,) array; the class of each, as a position in ``model.classes``
    """
    folds = []
    for rows in _folds(model, images, index):
        dictionary = _without(model, images, index, rows)
        folds.append([_gains(model, dictionary, X) for X in (images[rows], _mixtures(images, index, rows))])
    if sum(len(single[1]) for single, _ in folds) < FEWEST:
        return None
    (gains, left), (mixed_gains, mixed_left) = (
        tuple(np.concatenate([fold[k][part] for fold in folds]) for part in (0, 1)) for k in (0, 1)
    )
    unit, tried = float(gains.std() / max(left.std(), 1e-12)), []
    for slope in SLOPES:
        one, two = gains - unit * slope * left, mixed_gains - unit * slope * mixed_left
        thresholds = np.quantile(one, [1.0 - FALSE_ALARMS * scale for scale in (0.5, 1.0, 2.0)])
        tried.append((float(np.mean(two > thresholds[:, None])), -unit * slope, float(thresholds[1])))
    _, slope, intercept = max(tried)
    return Stopping(intercept, -slope)


def _folds(model: PathModel, images: NDArray[Any], index: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Rows to hold out, up to `MOST` at a time: every fourth image of a class, or every other in turn if few."""
    counts = np.bincount(index, minlength=len(model.classes))
    if not model.options.anchor > 0.0 or np.count_nonzero(counts >= 2) < 2 or np.median(counts) < PER_CLASS:
        return []
    by_class, few = np.argsort(index, kind="stable"), _are_few(images)
    rank = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    has_others = counts[index[by_class]] >= 2
    folds = [by_class[has_others & (rank % (2 if few else 4) == fold)] for fold in ((0, 1) if few else (1,))]
    return [spread(rows, MOST) for rows in folds]


def _are_few(images: NDArray[Any]) -> bool:
    """Whether each image weighs so much in the metric that it must be left out of the metric too."""
    return bool(len(images) < 4 * images.shape[1])


def _mixtures(images: NDArray[Any], index: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Mixtures of two images of different classes, as many as there are rows or a little fewer."""
    rng = np.random.default_rng(0)
    first, second = rng.permutation(rows), rng.permutation(rows)
    different = index[first] != index[second]
    mixed: NDArray[Any] = MIXED * images[first[different]] + (1.0 - MIXED) * images[second[different]]
    return mixed.astype(images.dtype)


def _without(
    model: PathModel, images: NDArray[Any], index: NDArray[np.intp], rows: NDArray[np.intp]
) -> ConceptDictionary:
    """The dictionary as if these rows had not been among its images; with many images the metric stays."""
    dictionary, transform, shifts = model.dictionary, model.dictionary.transform, {}
    kept = np.ones(len(index), dtype=bool)
    kept[rows] = False
    if _are_few(images) and transform.shrinkage is not None and not transform.words:
        fixed: dict[str, Any] = {name: getattr(transform, name) for name in ("unit_norm", "shrinkage", "power")}
        fixed |= {"center": transform.mean is not None, "rescale": True}
        return ConceptDictionary.from_images(dictionary.hierarchy, images[kept], model.leaves[index[kept]], **fixed)
    for c in np.unique(index[rows]):
        own = np.flatnonzero(index == c)
        x = transform.prepared(images[own]).astype(np.float64)
        means = np.stack([x[kept[own]].mean(axis=0), x.mean(axis=0)])
        shift = -np.diff(transform.pictures.after_unit_norm(means), axis=0)[0]
        shifts[str(model.leaves[c])] = np.append(shift, np.zeros(dictionary.word_block.shape[1]))
    return dictionary.moved(shifts)


def _gains(
    model: PathModel, dictionary: ConceptDictionary, images: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share of the objective that a second path removes, and the share of the image that one path leaves."""
    objectives = search_several(images, dictionary, replace(model.options, beam_width=None), 2).objectives
    x = dictionary.embed(images)
    square = np.maximum(np.einsum("ij,ij->i", x, x, dtype=np.float64), 1e-300)
    gains = 1.0 - objectives[:, 1] / np.maximum(objectives[:, 0], 1e-300)
    return np.where(np.isnan(gains), -1.0, gains), objectives[:, 0] / square
