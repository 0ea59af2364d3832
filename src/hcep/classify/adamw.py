"""Softmax regression by minibatch AdamW in single precision, the published training, without torch."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.pursuit.blocks import n_threads

#: Rows of a batch that one thread takes at a time. Fixed, so that the answer is the same on any number of threads.
ROWS_PER_BLOCK = 2048

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


def train_adamw(
    codes: Any,
    labels: NDArray[np.intp],
    n_classes: int,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    random_state: int | None,
) -> Floats:
    """Weights (n_atoms + 1, n_classes), the bias last, after the same steps as ``torch.optim.AdamW`` takes.

    Codes are (n_images, n_atoms), CSR or dense. The bias decays as the weights do.
    """
    rng = np.random.default_rng(random_state)
    n_images, n_atoms = codes.shape
    # Cross entropy of a linear model is convex: zeros are as good a start as any, and need no seed.
    weights = np.zeros((n_atoms + 1, n_classes), dtype=np.float32)
    optimizer = AdamW(weights, lr, weight_decay)
    gradients = np.zeros((-(-min(batch_size, n_images) // ROWS_PER_BLOCK), *weights.shape), dtype=np.float32)
    with ThreadPoolExecutor(min(n_threads(None), len(gradients))) as pool:
        add_gradient = (_of_sparse if sparse.issparse(codes) else _of_dense)(codes, labels, pool)
        for _ in range(epochs):
            order = rng.permutation(n_images)
            for start in range(0, n_images, batch_size):
                add_gradient(order[start : start + batch_size], weights, gradients)
                optimizer.step(gradients)
    return weights


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
    begin, length, indices, values = _in_fours(codes[stored])

    def add_gradient(batch: NDArray[np.intp], weights: Floats, gradients: Floats) -> None:
        chosen = np.zeros(len(labels), dtype=bool)
        chosen[place[batch]] = True
        rows = np.flatnonzero(chosen)
        mean = np.float32(1.0 / len(rows))

        def work(block: int) -> None:
            some = rows[block * ROWS_PER_BLOCK : (block + 1) * ROWS_PER_BLOCK]
            adamw_kernel.add_gradient(
                some, begin, length, indices, values, support, labels, mean, weights, gradients[block]
            )

        list(pool.map(work, range(-(-len(rows) // ROWS_PER_BLOCK))))

    return add_gradient


def _in_fours(codes: sparse.csr_array) -> tuple[NDArray[Any], ...]:
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
    from hcep.classify.adamw_kernel import softmax_errors

    codes = np.asarray(codes, dtype=np.float32)

    def add_gradient(batch: NDArray[np.intp], weights: Floats, gradients: Floats) -> None:
        x = codes[np.sort(batch)]
        errors = x @ weights[:-1] + weights[-1]
        softmax_errors(errors, labels[np.sort(batch)])
        np.matmul(x.T, errors, out=gradients[0, :-1])
        errors.sum(axis=0, out=gradients[0, -1])

    return add_gradient
