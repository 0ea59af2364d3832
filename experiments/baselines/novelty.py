"""Novelty scores to compare `unknown_score` with: from class probabilities, and from distances to training images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import rankdata
from sklearn.neighbors import NearestNeighbors

from hcep.classify import HCEPClassifier
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.transform import prepared_rows, shrunk_inverse_root, unit_rows

Floats = NDArray[np.float64]
RELATIVE, PLUS, VIM = "relative Mahalanobis in our metric", "Mahalanobis++", "ViM"
NEIGHBOURS, ENERGY, GEN = "kNN in our metric", "energy", "GEN"
NOVELTY = (RELATIVE, PLUS, VIM, NEIGHBOURS, ENERGY, GEN)
#: ViM's principal dimensions, kNN's neighbours, and the classes and exponent of GEN.
VIM_DIMS, K, GEN_CLASSES, GEN_EXPONENT = 256, 10, 100, 0.1
#: Shrinkage of Mahalanobis++; relative Mahalanobis has the one that our metric chose.
SHRINKAGE = 0.1


def novelty_scores(model: HCEPClassifier, X: NDArray[Any], y: NDArray[Any], images: NDArray[Any]) -> dict[str, Floats]:
    """Return the scores of images by name, each (n_images,), higher for images less like the training images X, y."""
    parts, own = model.path_model(), np.searchsorted(model.classes_, y)
    dictionary, train, new = parts.dictionary, X.astype(np.float64), images.astype(np.float64)
    means = dictionary.synset_embeddings[parts.leaf_index]
    within, unit = _moments(dictionary.embed(train), own), _moments(unit_rows(train), own)

    def logits(Z: Floats) -> Floats:
        """Log likelihoods of the classes: a squared distance of 2 `scale**2` is one unit."""
        return np.asarray((2.0 * Z @ means.T - (means**2).sum(axis=1)) / (2.0 * dictionary.transform.scale**2))

    Z_train, Z = dictionary.embed(train), dictionary.embed(new)
    neighbours = NearestNeighbors(n_neighbors=min(K, len(train))).fit(Z_train)
    return {
        RELATIVE: nearest(Z, means) / dictionary.transform.scale**2 - _background(model, train, new),
        PLUS: _whitened_nearest(unit_rows(new), unit),
        VIM: _vim(Z, logits(Z), within, Z_train, logits(Z_train)),
        NEIGHBOURS: neighbours.kneighbors(Z)[0][:, -1],
        ENERGY: -logsumexp(logits(Z), axis=1),
        GEN: _gen(model.predict_proba(images)),
    }


def mean_rank(*scores: Floats) -> Floats:
    """Return the mean of the ranks of images by several scores, which needs no common scale."""
    return np.asarray(np.mean([rankdata(score) for score in scores], axis=0))


def false_positives(unknown: NDArray[np.bool_], score: Floats) -> float:
    """Return the share of known images that a threshold takes for unknown if it detects 95 % of the unknown ones."""
    return float((score[~unknown] >= np.percentile(score[unknown], 5.0)).mean())


def _moments(X: Floats, own: NDArray[np.intp]) -> ClassMoments:
    moments = ClassMoments(second_moment=True)
    moments.update(X, list(map(str, range(own.max() + 1))), own)
    return moments


def nearest(X: Floats, means: Floats) -> Floats:
    """Return the squared distance to the nearest class."""
    return np.asarray(((means**2).sum(axis=1) - 2.0 * X @ means.T).min(axis=1) + (X**2).sum(axis=1))


def _whitened_nearest(X: Floats, moments: ClassMoments) -> Floats:
    """Return the squared Mahalanobis distance to the nearest class."""
    whitener = shrunk_inverse_root(moments.within_covariance(), SHRINKAGE)
    return nearest(X @ whitener, moments.class_means() @ whitener)


def _background(model: HCEPClassifier, train: Floats, images: Floats) -> Floats:
    """Return the squared Mahalanobis distance to all training images, with the power and shrinkage of our metric."""
    train, images = (prepared_rows(rows, model.power_, False) for rows in (train, images))
    moments = _moments(train, np.zeros(len(train), dtype=np.intp))
    centre = moments.total_mean()
    whitener = shrunk_inverse_root(moments.second_moment(centre), model.shrinkage_)
    return np.asarray((((images - centre) @ whitener) ** 2).sum(axis=1))


def _vim(X: Floats, logits: Floats, moments: ClassMoments, train: Floats, train_logits: Floats) -> Floats:
    """Return the norm outside the principal subspace, scaled to a logit, less the energy of the classes."""
    centre = moments.total_mean()
    _, axes = np.linalg.eigh(moments.second_moment(centre))
    rest = axes[:, : -min(VIM_DIMS, len(axes) // 2)]
    scale = train_logits.max(axis=1).mean() / np.linalg.norm((train - centre) @ rest, axis=1).mean()
    return np.asarray(scale * np.linalg.norm((X - centre) @ rest, axis=1) - logsumexp(logits, axis=1))


def _gen(probabilities: Floats) -> Floats:
    """Return the generalised entropy of the likeliest classes."""
    top = -np.sort(-probabilities, axis=1)[:, :GEN_CLASSES]
    return np.asarray((np.clip(top * (1.0 - top), 0.0, None) ** GEN_EXPONENT).sum(axis=1))
