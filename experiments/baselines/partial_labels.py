"""Classifiers that learn from labels which allow several classes: the controls of the experiment on labels."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from hcep.classify.left_out import rank_in_class
from hcep.errors import MissingExtraError
from hcep.hierarchy import Hierarchy

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
#: Iterations for each penalty; each one starts from the weights of the last one.
MAX_ITERATIONS = 40
#: Penalties that are tried, from strong to weak.
PENALTIES = (1e-5, 1e-6)
#: The share of the weight of all images that exactly labelled ones have together; tried on one draw: .5 to .97.
EXACT_SHARE = 0.9
#: The share of each class's exactly labelled images on which a penalty is chosen.
TRIED_ON = 0.2
#: Inverse penalty of HiClass's local classifiers.
C_LOCAL = 10.0


class Linear(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A head with fixed weights."""

    def __init__(self, weights: Floats, bias: Floats) -> None:
        self.weights, self.bias = weights, bias

    def fit(self, X: Array, y: Array) -> Self:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Array) -> Floats:
        return np.asarray(softmax(X @ self.weights + self.bias, axis=1))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes_[np.argmax(X @ self.weights + self.bias, axis=1)])


def regression_path(
    X: NDArray[np.float32],
    allowed: Bools,
    penalties: Sequence[float],
    *,
    weights: Array | None = None,
    offset: Floats | float = 0.0,
    start: tuple[Floats, Floats] | None = None,
) -> Iterator[tuple[Floats, Floats]]:
    """Yield weights and bias of multinomial logistic regression for each penalty, from strong to weak.

    An image loses ``-log(sum of the probabilities of the classes that its label allows)``, and the weights lose
    ``penalty ||W||**2``. With one class per label this is ordinary logistic regression.

    Parameters
    ----------
    X : (n_images, n_dims) array
    allowed : (n_images, n_classes) bool; the classes that each label allows, at least one
    weights : (n_images,) array of mean 1; how much each image counts
    offset : (n_classes,) array added to the scores while training; the logarithm of the classes' frequencies gives the
        logit-adjusted loss
    start : (n_dims, n_classes) weights and (n_classes,) bias to start from; zero by default
    """
    from scipy.optimize import minimize

    (n, n_dims), n_classes = X.shape, allowed.shape[1]
    counts = (np.ones(n) if weights is None else np.asarray(weights)).astype(np.float32)
    parameters = np.zeros((n_dims + 1) * n_classes)
    if start is not None:
        parameters = np.concatenate([start[0].ravel(), start[1]])
    for penalty in penalties:

        def loss(flat: Floats, penalty: float = penalty) -> tuple[float, Floats]:
            W, bias = flat[:-n_classes].reshape(n_dims, n_classes), flat[-n_classes:]
            scores = X @ W.astype(np.float32) + (bias + offset).astype(np.float32)
            scores -= np.where(allowed, scores, -np.inf).max(axis=1, keepdims=True)
            # Scores far above those of the allowed classes would overflow; such an image is as wrong as it can be.
            np.exp(np.minimum(scores, 80.0, out=scores), out=scores)
            of_allowed = np.where(allowed, scores, 0.0)
            total, mine = scores.sum(axis=1), of_allowed.sum(axis=1)
            scores *= (counts / total)[:, None]
            scores -= of_allowed * (counts / mine)[:, None]
            gradient = (X.T @ scores).astype(np.float64) / n + 2.0 * penalty * W
            value = float(np.mean(counts * (np.log(total) - np.log(mine)), dtype=np.float64))
            value += penalty * float(np.vdot(W, W))
            return value, np.concatenate([gradient.ravel(), scores.mean(axis=0, dtype=np.float64)])

        options = {"maxiter": MAX_ITERATIONS, "maxcor": 8}
        parameters = minimize(loss, parameters, jac=True, method="L-BFGS-B", options=options).x
        yield parameters[:-n_classes].reshape(n_dims, n_classes), parameters[-n_classes:]


def partial_label_regression(X: Array, allowed: Bools, is_exact: Bools, *, offset: Floats | float = 0.0) -> Linear:
    """Fit logistic regression to labels that allow several classes.

    The fit starts from the exactly labelled images alone, which together keep `EXACT_SHARE` of the weight: without
    either, one class of each label attracts all of its images. The penalty is the one with the best class-balanced
    accuracy on a fifth of the exactly labelled images, which are held out. With at most one such image per class
    nothing can be held out, and the weakest penalty is taken.

    Parameters
    ----------
    X, allowed, offset : as in `regression_path`
    is_exact : (n_images,) bool; the images whose label is known to be right
    """
    centre = X.mean(axis=0)
    scale = 1.0 / np.sqrt(np.mean(np.sum((X - centre) ** 2, axis=1)) or 1.0)
    scaled = ((X - centre) * scale).astype(np.float32)
    held, penalties = _held_out(allowed, is_exact), PENALTIES
    if held.any():
        truth = allowed[held].argmax(axis=1)
        balance = 1.0 / np.bincount(truth)[truth]
        scores = []
        for W, bias in _path(scaled[~held], allowed[~held], penalties, offset):
            right = (scaled[held] @ W + bias).argmax(axis=1) == truth
            scores.append(float(np.average(right, weights=balance)))
        penalties = penalties[: int(np.argmax(scores)) + 1]
    *_, (W, bias) = _path(scaled, allowed, penalties, offset)
    return Linear(scale * W, bias - scale * centre @ W)


def _path(
    X: NDArray[np.float32], allowed: Bools, penalties: Sequence[float], offset: Floats | float
) -> Iterator[tuple[Floats, Floats]]:
    """Yield the regressions to all images, each penalty starting from the regression to the exact labels."""
    is_exact = allowed.sum(axis=1) == 1
    from_exact = regression_path(X[is_exact], allowed[is_exact], penalties, offset=offset)
    if is_exact.all():
        yield from from_exact
        return
    shares = np.where(is_exact, EXACT_SHARE / is_exact.mean(), (1.0 - EXACT_SHARE) / (~is_exact).mean())
    for penalty, start in zip(penalties, from_exact, strict=True):
        yield from regression_path(X, allowed, (penalty,), weights=shares, offset=offset, start=start)


def _held_out(allowed: Bools, is_exact: Bools) -> Bools:
    """Choose a fifth of the exactly labelled images of each class, and leave at least one."""
    exact = np.flatnonzero(is_exact)
    own = allowed[exact].argmax(axis=1)
    counts = np.bincount(own)[own] if len(own) else own
    away = rank_in_class(own, np.random.default_rng(0)) < np.minimum(np.ceil(TRIED_ON * counts), counts - 1)
    held = np.zeros(len(allowed), dtype=bool)
    held[exact[away]] = True
    return held


def self_training(X: Array, allowed: Bools, is_exact: Bools) -> Linear:
    """Fit a regression to the exact labels, give other images their most probable allowed class, and fit again."""
    first = partial_label_regression(X[is_exact], allowed[is_exact], is_exact[is_exact])
    guess = np.where(allowed, first.predict_proba(X), -1.0).argmax(axis=1)
    return partial_label_regression(X, np.eye(allowed.shape[1], dtype=bool)[guess], np.zeros_like(is_exact))


def local_paths(X: Array, labels: Sequence[str], tree: Hierarchy, X_new: Array) -> list[tuple[str, ...]]:
    """Predict rooted paths by HiClass: a logistic regression at every concept chooses among its children.

    An image teaches the concepts above its label. Images labelled with the root teach nothing.
    """
    try:
        from hiclass import LocalClassifierPerParentNode
    except ImportError as error:
        raise MissingExtraError("HiClass is not installed; pip install hiclass") from error
    from sklearn.linear_model import LogisticRegression

    paths = [tree.paths(label)[0] for label in labels]
    used = [i for i, path in enumerate(paths) if path]
    padded = np.array([[*paths[i], *[""] * (tree.depth - len(paths[i]))] for i in used], dtype=object)
    model = LocalClassifierPerParentNode(local_classifier=LogisticRegression(C=C_LOCAL, max_iter=100))
    predicted = model.fit(X[used], padded).predict(X_new)
    return [tuple(concept for concept in path if concept) for path in predicted.tolist()]


def local_classifiers(X: Array, labels: Sequence[str], tree: Hierarchy, X_new: Array) -> list[str]:
    """Predict classes by HiClass: the ends of `local_paths`."""
    return [path[-1] for path in local_paths(X, labels, tree, X_new)]
