"""Linear heads on codes: the convex solver of scikit-learn, and the published training with AdamW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._checks import require_not_negative, require_positive
from hcep._optional import require
from hcep.errors import HCEPError

HeadKind = Literal["logistic", "adamw"]
HEADS: tuple[str, ...] = get_args(HeadKind)

#: Published for all data sets.
LEARNING_RATE = 0.1
WEIGHT_DECAY = 1e-4

#: CSR or dense, (n_images, n_atoms).
Codes = Any


@dataclass(frozen=True, eq=False)
class AdamWHead:
    """A linear softmax classifier that AdamW trained; it predicts without torch.

    Attributes
    ----------
    coef_ : (n_classes, n_atoms) float32
    intercept_ : (n_classes,) float32
    classes_ : (n_classes,) int64
    epochs, batch_size, lr, weight_decay : as it was trained
    """

    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]
    classes_: NDArray[np.int64]
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float

    @property
    def n_iter_(self) -> NDArray[np.int32]:
        """Passes over the training images, in the form of scikit-learn's heads."""
        return np.array([self.epochs], dtype=np.int32)

    def decision_function(self, codes: Codes) -> NDArray[Any]:
        """Logits, (n_images, n_classes)."""
        return np.asarray(codes @ self.coef_.T.astype(codes.dtype)) + self.intercept_

    def predict(self, codes: Codes) -> NDArray[Any]:
        """Class index of each code."""
        return np.asarray(self.classes_[np.argmax(self.decision_function(codes), axis=1)])

    def predict_proba(self, codes: Codes) -> NDArray[Any]:
        """Probability of each class index, (n_images, n_classes)."""
        logits = self.decision_function(codes).astype(np.float64)
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def fit_head(
    kind: str,
    codes: Codes,
    y_index: NDArray[np.intp],
    *,
    C: float = 1.0,
    max_iter: int = 1000,
    epochs: int = 500,
    batch_size: int = 4096,
    lr: float = LEARNING_RATE,
    weight_decay: float = WEIGHT_DECAY,
    random_state: int | None = 0,
) -> Any:
    """Fit a linear classifier on codes.

    Parameters
    ----------
    kind : {"logistic", "adamw"}
        Multinomial logistic regression by scikit-learn's L-BFGS, or the published training, which needs torch.
    codes : (n_images, n_atoms) CSR or dense array
    y_index : (n_images,) int
        Class indices, at least two distinct ones.
    C, max_iter
        Of the logistic head: inverse l2 penalty, and most iterations.
    epochs, batch_size, lr, weight_decay
        Of AdamW; the published ones for ImageNette and CIFAR-100. For ImageNet: 1000 epochs in batches of 16384.
    random_state : int or None
        Orders AdamW's batches; the logistic head needs none.

    Returns
    -------
    LogisticRegression or AdamWHead
        With ``predict``, ``predict_proba``, ``coef_``, ``intercept_``, ``classes_`` and ``n_iter_``.

    Raises
    ------
    HCEPError
        An unknown kind, a bad number.
    MissingExtraError
        No torch for "adamw".

    Notes
    -----
    Both minimise cross entropy; they differ in the penalty, ``||W||**2 / (2 C n_images)`` against AdamW's decoupled
    decay, which shrinks weights by ``lr * weight_decay`` a step. That decay is so weak that at separable codes the
    epochs, not the decay, decide where the weights end: AdamW acts like a large C.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep.classify.heads import fit_head
    >>> codes = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> fit_head("logistic", codes, np.array([0, 0, 1, 1])).predict(codes).tolist()
    [0, 0, 1, 1]
    """
    require_head(kind)
    if kind == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=C, max_iter=max_iter).fit(codes, y_index)
    require_positive("epochs", epochs)
    require_positive("batch_size", batch_size)
    rate, decay = require_not_negative("lr", lr), require_not_negative("weight_decay", weight_decay)
    weight, bias = _train_adamw(codes, y_index, epochs, batch_size, rate, decay, random_state)
    classes = np.arange(len(bias), dtype=np.int64)
    return AdamWHead(weight, bias, classes, int(epochs), int(batch_size), rate, decay)


def require_head(kind: object, others: tuple[str, ...] = ()) -> None:
    """Refuse a head that is neither one of `HEADS` nor of `others`."""
    known = (*others, *HEADS)
    if not isinstance(kind, str) or kind not in known:
        raise HCEPError(f"head must be {' or '.join(map(repr, known))}, got {kind!r}")


def _train_adamw(
    codes: Codes,
    y_index: NDArray[np.intp],
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    random_state: int | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    torch = require("torch", "torch", 'the head "adamw"')
    rng = np.random.default_rng(random_state)
    labels = torch.from_numpy(np.ascontiguousarray(y_index, dtype=np.int64))
    n_images, n_atoms = codes.shape
    n_classes = int(labels.max()) + 1
    # Cross entropy of a linear model is convex: zeros are as good a start as any, and need no seed.
    weight = torch.zeros((n_classes, n_atoms), requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=lr, weight_decay=weight_decay)
    for _ in range(epochs):
        order = rng.permutation(n_images)
        for start in range(0, n_images, batch_size):
            rows = np.sort(order[start : start + batch_size])
            logits = torch.nn.functional.linear(torch.from_numpy(_dense(codes, rows)), weight, bias)
            loss = torch.nn.functional.cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return weight.detach().numpy(), bias.detach().numpy()


def _dense(codes: Codes, rows: NDArray[np.intp]) -> NDArray[np.float32]:
    """Some rows as a dense batch: all codes of ImageNet at once would not fit."""
    batch = codes[rows]
    dense = batch.toarray() if sparse.issparse(batch) else batch
    return np.ascontiguousarray(dense, dtype=np.float32)
