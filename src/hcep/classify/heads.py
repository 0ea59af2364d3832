"""Linear heads that predict the class from a code: scikit-learn's, and the published softmax trained with AdamW."""

from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hcep._checks import require_not_negative, require_positive
from hcep.errors import HCEPError, quote

HeadKind = Literal["logistic", "adamw"]
HEADS: tuple[str, ...] = get_args(HeadKind)
#: Logits this far below the largest count as this far: single precision is very slow with smaller exponentials.
LEAST = np.float32(-48.0)


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with betas 0.9 and 0.999 and eps 1e-8; without weight decay it is Adam.

    Parameters
    ----------
    weights : array that `step` updates in place
    """

    def __init__(self, weights: NDArray[np.float32], lr: float, weight_decay: float = 0.0) -> None:
        self.weights, self.lr, self.weight_decay, self.n_steps = weights, lr, weight_decay, 0
        # In double precision, as squares of small gradients are too small for single precision.
        self.mean, self.square = np.zeros(weights.shape), np.zeros(weights.shape)

    def step(self, gradient: NDArray[np.floating]) -> None:
        """Update the weights by a gradient of the same shape."""
        self.n_steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (np.square(gradient, dtype=np.float64) - self.square)
        size = np.sqrt(self.square / (1.0 - 0.999**self.n_steps)) + 1e-8
        self.weights *= np.float32(1.0 - self.lr * self.weight_decay)
        self.weights -= self.lr / (1.0 - 0.9**self.n_steps) * self.mean / size


class AdamWHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear softmax classifier trained with minibatch AdamW, as the paper trains its head.

    Like logistic regression it minimises the cross entropy. The two differ in the penalty: logistic regression adds
    ``||W||**2 / (2 C n_images)``, and AdamW shrinks the weights by ``lr * weight_decay`` in each step. This decay is so
    weak that on separable codes the number of epochs decides where the weights end: AdamW acts like a large C.

    >>> codes = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> AdamWHead(epochs=50).fit(codes, ["cat", "cat", "dog", "dog"]).predict([[0.8, 0.1]]).tolist()
    ['cat']

    Parameters
    ----------
    epochs, batch_size : the defaults are published for ImageNette and CIFAR-100; for ImageNet they are 1000 and 16384
    lr, weight_decay : the defaults are published for all data sets
    random_state : seed of the order of the batches
    """

    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]
    classes_: NDArray[Any]
    n_iter_: NDArray[np.int32]

    def __init__(
        self,
        epochs: int = 500,
        batch_size: int = 4096,
        lr: float = 0.1,
        weight_decay: float = 1e-4,
        random_state: int | None = 0,
    ) -> None:
        self.epochs, self.batch_size, self.random_state = epochs, batch_size, random_state
        self.lr, self.weight_decay = lr, weight_decay

    def fit(self, codes: Any, y: ArrayLike) -> Self:
        """Train on codes, a CSR or dense array of shape (n_images, n_atoms)."""
        require_positive("epochs", self.epochs)
        require_positive("batch_size", self.batch_size)
        lr, weight_decay = (require_not_negative(name, getattr(self, name)) for name in ("lr", "weight_decay"))
        codes, y = validate_data(self, codes, y, accept_sparse="csr", dtype=(np.float32, np.float64))
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        rng, n_images, codes = np.random.default_rng(self.random_state), len(labels), _with_ones(codes)
        # The cross entropy of a linear model is convex, so zeros are as good a start as any. The last row is the bias.
        weights = np.zeros((codes.shape[1], len(self.classes_)), dtype=np.float32)
        optimizer = AdamW(weights, lr, weight_decay)
        for _ in range(self.epochs):
            order = rng.permutation(n_images)
            for start in range(0, n_images, self.batch_size):
                rows = np.sort(order[start : start + self.batch_size])
                batch = codes if len(rows) == n_images else codes[rows]
                optimizer.step(_gradient(batch, labels[rows], weights))
        self.coef_, self.intercept_ = np.ascontiguousarray(weights[:-1].T), weights[-1].copy()
        self.n_iter_ = np.array([self.epochs], dtype=np.int32)
        return self

    def decision_function(self, codes: Any) -> NDArray[Any]:
        """Logits, (n_images, n_classes); for two classes the second minus the first, (n_images,)."""
        logits = self._logits(codes)
        return np.asarray(logits[:, 1] - logits[:, 0]) if logits.shape[1] == 2 else logits

    def predict(self, codes: Any) -> NDArray[Any]:
        """Class of each code."""
        best = np.argmax(self._logits(codes), axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, codes: Any) -> NDArray[np.float64]:
        """Probability of each class, (n_images, n_classes)."""
        return np.asarray(softmax(self._logits(codes).astype(np.float64), axis=1))

    def _logits(self, codes: Any) -> NDArray[Any]:
        check_is_fitted(self, "coef_")
        codes = validate_data(self, codes, accept_sparse="csr", dtype=(np.float32, np.float64), reset=False)
        return np.asarray(codes @ self.coef_.T.astype(codes.dtype)) + self.intercept_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _with_ones(codes: Any) -> Any:
    """Add a last column of ones, for the bias, in single precision."""
    ones = np.ones((codes.shape[0], 1), dtype=np.float32)
    if sparse.issparse(codes):
        return sparse.csr_array(sparse.hstack([codes, ones], format="csr", dtype=np.float32))
    return np.hstack([codes.astype(np.float32), ones])


def _gradient(codes: Any, labels: NDArray[np.intp], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gradient of the mean cross entropy with respect to the weights, (n_atoms + 1, n_classes)."""
    errors = codes @ weights
    errors -= errors.max(axis=1, keepdims=True)
    np.exp(np.maximum(errors, LEAST, out=errors), out=errors)
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(labels)), labels] -= 1.0
    gradient: NDArray[np.float32] = codes.T @ errors
    gradient /= np.float32(len(labels))
    return gradient


def restored_head(coef: NDArray[Any], intercept: NDArray[Any], classes: NDArray[Any], **parameters: Any) -> AdamWHead:
    """Make a trained AdamW head from the arrays in a saved model."""
    head = AdamWHead(**parameters)
    head.coef_, head.intercept_, head.classes_ = coef, intercept, classes
    head.n_features_in_, head.n_iter_ = coef.shape[1], np.array([head.epochs], dtype=np.int32)
    return head


def make_head(head: Any) -> Any:
    """Make an unfitted classifier from a name in `HEADS`, or clone a scikit-learn classifier."""
    require_head(head)
    if isinstance(head, str):
        return LogisticRegression(max_iter=1000) if head == "logistic" else AdamWHead()
    return clone(head)


def head_name(head: Any) -> str:
    """Return the name under which a head is saved: one of `HEADS`, or "path"."""
    if isinstance(head, str):
        return head
    names = {LogisticRegression: "logistic", AdamWHead: "adamw"}
    if type(head) not in names:
        raise HCEPError(
            f"cannot save a head of type {type(head).__name__}; use LogisticRegression, AdamWHead or head='path'"
        )
    return names[type(head)]


def head_parameter(name: str, fitted: Any) -> Any:
    """Return the parameter `head` that makes this fitted head again; its name if all its settings are defaults."""
    return name if fitted is None or fitted.get_params() == make_head(name).get_params() else clone(fitted)


def n_iterations(head: Any) -> int:
    """Return the number of iterations of a fitted head, or 1 if it does not record them."""
    return int(np.max(getattr(head, "n_iter_", 1)))


def require_head(head: object, others: tuple[str, ...] = ()) -> None:
    """Raise HCEPError unless a head is one of `HEADS` or `others`, or a scikit-learn classifier."""
    known = (*others, *HEADS)
    accepted = head in known if isinstance(head, str) else isinstance(head, BaseEstimator) and is_classifier(head)
    if not accepted:
        raise HCEPError(f"head must be {' or '.join(map(repr, known))} or a scikit-learn classifier, got {quote(head)}")
