"""Linear heads on codes: softmax regression by AdamW, the published training, without torch; scikit-learn's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
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
from hcep.errors import HCEPError
from hcep.pursuit.blocks import n_threads

HeadKind = Literal["logistic", "adamw"]
HEADS: tuple[str, ...] = get_args(HeadKind)
#: Rows of a batch that one thread takes at a time. Fixed, so that the answer is the same on any number of threads.
ROWS_PER_BLOCK = 2048

#: The exponential of less is lost beside 1, yet times a weight still a normal number: others are very slow.
LEAST = np.float32(-48.0)

Floats = NDArray[np.float32]
#: Adds the gradient of the mean cross entropy of some rows to (n_blocks, n_atoms + 1, n_classes).
AddGradient = Callable[[NDArray[np.intp], Floats, Floats], None]


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with betas 0.9 and 0.999 and eps 1e-8, in place; without decay it is Adam."""

    def __init__(self, weights: Floats, lr: float, weight_decay: float = 0.0) -> None:
        self.weights = weights.reshape(-1)  # a view: the array must be contiguous
        self.lr, self.keep, self.n_steps = lr, np.float32(1.0 - lr * weight_decay), 0
        self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)

    def step(self, gradients: Floats) -> None:
        r"""One update by the sum of gradients (n_blocks, \*weights.shape), which is cleared."""
        from hcep.classify.adamw_kernel import adamw_step

        self.n_steps += 1
        size = np.float32(self.lr / (1.0 - 0.9**self.n_steps))
        root = np.float32(1.0 / np.sqrt(1.0 - 0.999**self.n_steps))
        flat = gradients.reshape(len(gradients), -1)
        adamw_step(self.weights, flat, self.first, self.second, self.keep, size, root)


class AdamWHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear softmax classifier trained by minibatch AdamW, as the paper trains its head.

    Like logistic regression it minimises cross entropy; they differ in the penalty, ``||W||**2 / (2 C n_images)``
    against AdamW's decoupled decay, which shrinks weights by ``lr * weight_decay`` per step. That decay is so weak that
    at separable codes the epochs, not the decay, decide where the weights end: AdamW acts like a large C.

    >>> codes = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> AdamWHead(epochs=50).fit(codes, ["cat", "cat", "dog", "dog"]).predict([[0.8, 0.1]]).tolist()
    ['cat']

    Parameters
    ----------
    epochs, batch_size : published for ImageNette and CIFAR-100; for ImageNet 1000 and 16384
    lr, weight_decay : published for all data sets
    random_state : orders the batches
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
        """Train on codes (n_images, n_atoms), CSR or dense."""
        require_positive("epochs", self.epochs)
        require_positive("batch_size", self.batch_size)
        lr, weight_decay = (require_not_negative(name, getattr(self, name)) for name in ("lr", "weight_decay"))
        codes, y = validate_data(self, codes, y, accept_sparse="csr", dtype=(np.float32, np.float64))
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        rng, n_images = np.random.default_rng(self.random_state), len(labels)
        # Cross entropy of a linear model is convex: zeros are as good a start as any. The last row is the bias.
        weights = np.zeros((codes.shape[1] + 1, len(self.classes_)), dtype=np.float32)
        optimizer = AdamW(weights, lr, weight_decay)
        gradients = np.zeros((-(-min(self.batch_size, n_images) // ROWS_PER_BLOCK), *weights.shape), dtype=np.float32)
        with ThreadPoolExecutor(min(n_threads(None), len(gradients))) as pool:
            add_gradient = (_of_sparse if sparse.issparse(codes) else _of_dense)(codes, labels, pool)
            for _ in range(self.epochs):
                order = rng.permutation(n_images)
                for start in range(0, n_images, self.batch_size):
                    add_gradient(order[start : start + self.batch_size], weights, gradients)
                    optimizer.step(gradients)
        self.coef_, self.intercept_ = np.ascontiguousarray(weights[:-1].T), weights[-1].copy()
        self.n_iter_ = np.array([self.epochs], dtype=np.int32)
        return self

    def decision_function(self, codes: Any) -> NDArray[Any]:
        """Logits, (n_images, n_classes); of two classes, by how much the second's is larger, (n_images,)."""
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


def _of_sparse(codes: Any, labels: NDArray[np.intp], pool: ThreadPoolExecutor) -> AddGradient:
    """Rows of the same support are stored next to one another: the kernel takes such neighbours together."""
    from hcep.classify import adamw_kernel

    codes = sparse.csr_array(codes)
    codes.sort_indices()
    known: dict[bytes, int] = {}
    cuts = pairwise(codes.indptr.tolist())
    support = np.array([known.setdefault(codes.indices[a:b].tobytes(), len(known)) for a, b in cuts])
    stored = np.argsort(support, kind="stable")
    place = np.argsort(stored)
    support, labels = support[stored], labels[stored].astype(np.int64)
    packed = adamw_kernel.Codes(*_in_fours(codes[stored]), support, labels)

    def add_gradient(batch: NDArray[np.intp], weights: Floats, gradients: Floats) -> None:
        chosen = np.zeros(len(labels), dtype=bool)
        chosen[place[batch]] = True
        rows = np.flatnonzero(chosen)
        mean = np.float32(1.0 / len(rows))

        def work(block: int) -> None:
            some = rows[block * ROWS_PER_BLOCK : (block + 1) * ROWS_PER_BLOCK]
            adamw_kernel.add_gradient(some, packed, mean, weights, gradients[block])

        list(pool.map(work, range(-(-len(rows) // ROWS_PER_BLOCK))))

    return add_gradient


def _in_fours(codes: sparse.csr_array) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Begin, length, indices and values of rows that end in a 1 for the bias, then zeros up to a multiple of four."""
    n_entries = np.diff(codes.indptr).astype(np.int64)
    length = n_entries + 1
    begin = np.concatenate([[0], np.cumsum(-(-length // 4) * 4)])
    indices, values = np.full(begin[-1], codes.shape[1]), np.zeros(begin[-1], dtype=np.float32)
    place = np.arange(codes.nnz) + np.repeat(begin[:-1] - codes.indptr[:-1], n_entries)
    indices[place], values[place] = codes.indices, codes.data
    values[begin[:-1] + n_entries] = 1.0
    return begin, length, indices, values


def _of_dense(codes: Any, labels: NDArray[np.intp], pool: ThreadPoolExecutor) -> AddGradient:
    codes = np.asarray(codes, dtype=np.float32)

    def add_gradient(batch: NDArray[np.intp], weights: Floats, gradients: Floats) -> None:
        rows = np.sort(batch)
        x = codes[rows]
        errors = x @ weights[:-1] + weights[-1]
        errors -= errors.max(axis=1, keepdims=True)
        np.exp(np.maximum(errors, LEAST, out=errors), out=errors)
        errors /= errors.sum(axis=1, keepdims=True) * np.float32(len(rows))
        errors[np.arange(len(rows)), labels[rows]] -= np.float32(1.0 / len(rows))
        np.matmul(x.T, errors, out=gradients[0, :-1])
        errors.sum(axis=0, out=gradients[0, -1])

    return add_gradient


def restored_head(coef: NDArray[Any], intercept: NDArray[Any], classes: NDArray[Any], **parameters: Any) -> AdamWHead:
    """A trained AdamW head from its arrays, as a saved model holds them."""
    head = AdamWHead(**parameters)
    head.coef_, head.intercept_, head.classes_ = coef, intercept, classes
    head.n_features_in_, head.n_iter_ = coef.shape[1], np.array([head.epochs], dtype=np.int32)
    return head


def make_head(head: Any) -> Any:
    """An unfitted classifier: of a name in `HEADS`, or a clone of the scikit-learn classifier that is given."""
    require_head(head)
    if isinstance(head, str):
        return LogisticRegression(max_iter=1000) if head == "logistic" else AdamWHead()
    return clone(head)


def head_name(head: Any) -> str:
    """The name under which a head is saved; only those of `HEADS`, and "path", can be."""
    if isinstance(head, str):
        return head
    names = {LogisticRegression: "logistic", AdamWHead: "adamw"}
    if type(head) not in names:
        raise HCEPError(
            f"a head of type {type(head).__name__} cannot be saved; LogisticRegression and AdamWHead can, and the path"
        )
    return names[type(head)]


def head_parameter(name: str, fitted: Any) -> Any:
    """The parameter `head` that a fitted head was made by: its name, where all settings are the defaults."""
    return name if fitted is None or fitted.get_params() == make_head(name).get_params() else clone(fitted)


def n_iterations(head: Any) -> int:
    """Iterations a fitted head took; 1 where it does not say."""
    return int(np.max(getattr(head, "n_iter_", 1)))


def require_head(head: object, others: tuple[str, ...] = ()) -> None:
    """Refuse a head that is neither one of `HEADS` nor of `others` nor a scikit-learn classifier."""
    known = (*others, *HEADS)
    accepted = head in known if isinstance(head, str) else isinstance(head, BaseEstimator) and is_classifier(head)
    if not accepted:
        raise HCEPError(f"head must be {' or '.join(map(repr, known))} or a scikit-learn classifier, got {head!r}")
