"""Few-shot classifiers on embeddings: Gaussian analysis, a Tip-Adapter cache, ridge regression, and RanPAC."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import RidgeCV

from experiments.baselines.partial_labels import Linear
from hcep.dictionary.transform import unit_rows

Array = NDArray[Any]
#: Weight of the cache beside class names, sharpness of its kernel, and penalties of the ridge regression.
WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0)
SHARPNESS = (1.0, 2.0, 3.5, 5.5, 8.0, 12.0, 20.0, 40.0)
RIDGE = tuple(np.logspace(-3, 3, 13).tolist())
#: RanPAC's random features, and its penalties as shares of their mean square norm.
N_RANDOM = 10_000
PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
#: Images whose random features are in memory at a time.
BLOCK = 2000


class Cache(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The cache of Tip-Adapter: each training image votes for its class with ``exp(-sharpness (1 - cosine))``.

    References
    ----------
    Zhang et al. Tip-Adapter: training-free adaption of CLIP for few-shot classification. ECCV 2022.
    """

    def __init__(self, sharpness: float = 5.5) -> None:
        self.sharpness = sharpness

    def fit(self, X: Array, y: Array) -> Self:
        self.classes_, own = np.unique(y, return_inverse=True)
        self.keys_, self.votes_ = unit_rows(X), np.eye(len(self.classes_), dtype=np.float32)[own]
        self.votes_ /= self.votes_.sum(axis=0)
        return self

    def predict_proba(self, X: Array) -> Array:
        votes = np.exp(-self.sharpness * (1.0 - unit_rows(X) @ self.keys_.T)) @ self.votes_
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])


def tuned_cache(X: Array, y: Array, X_tune: Array, y_tune: Array) -> Cache:
    """Return the cache whose sharpness is the most accurate on images for tuning; without any, the published 5.5."""
    if not len(y_tune):
        return Cache()
    caches = [Cache(sharpness).fit(X, y) for sharpness in SHARPNESS]
    return Cache(caches[int(np.argmax([cache.score(X_tune, y_tune) for cache in caches]))].sharpness)


class TextCache(Cache):
    """The cache of Tip-Adapter, whose votes are added to the scores of class names.

    `texts` are the vectors of the class names, (n_classes, n_dims), at the norm that makes their cosines scores.
    """

    def __init__(self, texts: Array, sharpness: float = 5.5, weight: float = 1.0) -> None:
        super().__init__(sharpness)
        self.texts, self.weight = texts, weight

    def predict_proba(self, X: Array) -> Array:
        votes = np.exp(-self.sharpness * (1.0 - unit_rows(X) @ self.keys_.T)) @ self.votes_
        return np.asarray(softmax(unit_rows(X) @ self.texts.T + self.weight * votes, axis=1))


def tuned_text_cache(X: Array, y: Array, X_tune: Array, y_tune: Array, texts: Array) -> TextCache:
    """Return the cache with class names that is the most accurate on images for tuning; without any, as published."""
    if not len(y_tune):
        return TextCache(texts)
    caches = [TextCache(texts, sharpness, weight).fit(X, y) for sharpness in SHARPNESS for weight in WEIGHTS]
    best = caches[int(np.argmax([cache.score(X_tune, y_tune) for cache in caches]))]
    return TextCache(texts, best.sharpness, best.weight)


def gaussian_analysis(X: Array, y: Array) -> Linear:
    """Return linear discriminant analysis with the covariance inverted as published for few-shot CLIP.

    The inverse of the covariance S within classes is ``d ((n - 1) S + tr(S) I)^-1``. With one image per class, S is the
    covariance of all images.

    References
    ----------
    Wang et al. A hard-to-beat baseline for training-free CLIP-based adaptation. ICLR 2024.
    """
    classes, own = np.unique(y, return_inverse=True)
    means = np.array([X[own == k].mean(axis=0, dtype=np.float64) for k in range(len(classes))])
    within = X - means[own] if len(X) > len(classes) else X - means.mean(axis=0)
    covariance = within.T @ within / max(len(X) - 1, 1)
    n_dims = X.shape[1]
    inverse = n_dims * np.linalg.inv((len(X) - 1) * covariance + np.trace(covariance) * np.eye(n_dims))
    weights = inverse @ means.T
    return Linear(weights, -0.5 * np.sum(means.T * weights, axis=0))


class Ridge(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Least squares on indicators of the classes, with the penalty chosen by leave-one-out error."""

    def fit(self, X: Array, y: Array) -> Self:
        self.classes_, own = np.unique(y, return_inverse=True)
        self.model_ = RidgeCV(RIDGE).fit(X, np.eye(len(self.classes_))[own])
        return self

    def predict_proba(self, X: Array) -> Array:
        return np.asarray(softmax(self.model_.predict(X), axis=1))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes_[np.argmax(self.model_.predict(X), axis=1)])


class RandomProjection(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear head on ``max(X @ projection, 0)``, with fixed weights; see `random_projection`."""

    def __init__(self, projection: Array, weights: Array) -> None:
        self.projection, self.weights = projection, weights

    def fit(self, X: Array, y: Array) -> Self:
        self.classes_ = np.unique(y)
        return self

    def _scores(self, X: Array) -> Array:
        parts = [_random_features(X[i : i + BLOCK], self.projection) @ self.weights for i in range(0, len(X), BLOCK)]
        return np.concatenate([np.empty((0, self.weights.shape[1])), *parts])

    def predict_proba(self, X: Array) -> Array:
        return np.asarray(softmax(self._scores(X), axis=1))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes_[np.argmax(self._scores(X), axis=1)])


def random_projection(X: Array, y: Array, tried: tuple[Array, Array, Array, Array]) -> RandomProjection:
    """Return RanPAC: ridge regression to indicators of the classes on 10,000 random features with a rectifier.

    Parameters
    ----------
    X, y : training images and the numbers of their classes
    tried : (X, y, X_tune, y_tune): training images, and others on which the penalty is chosen; without any, the
        middle penalty is taken

    References
    ----------
    McDonnell et al. RanPAC: random projections and pre-trained models for continual learning. NeurIPS 2023.
    """
    projection = np.random.default_rng(0).standard_normal((X.shape[1], N_RANDOM)).astype(np.float32)
    X_few, y_few, X_tune, y_tune = tried
    penalty = PENALTIES[len(PENALTIES) // 2]
    if len(y_tune):
        features, new = (_random_features(some, projection) for some in (X_few, X_tune))
        kernel, across = features @ features.T, new @ features.T
        scores = [across @ _dual(kernel, y_few, y.max() + 1, one) for one in PENALTIES]
        penalty = PENALTIES[int(np.argmax([np.mean(s.argmax(axis=1) == y_tune) for s in scores]))]
    features = _random_features(X, projection)
    return RandomProjection(projection, features.T @ _dual(features @ features.T, y, y.max() + 1, penalty))


def _random_features(X: Array, projection: Array) -> Array:
    return np.maximum(X.astype(np.float32) @ projection, 0.0)


def _dual(kernel: Array, y: Array, n_classes: int, penalty: float) -> Array:
    """Return the weight of each training image in each class, (n_images, n_classes)."""
    ridge = kernel + np.float32(penalty * np.trace(kernel) / len(kernel)) * np.eye(len(kernel), dtype=np.float32)
    return np.asarray(solve(ridge, np.eye(n_classes, dtype=np.float32)[y], assume_a="pos", overwrite_a=True))
