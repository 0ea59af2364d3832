"""Running sums over batches of labelled embeddings: all a dictionary needs to know of its images."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary.checks import CHUNK, Embeddings

logger = logging.getLogger(__name__)


class ClassMoments:
    """Counts, sums and, on request, the second moment of images, by class; memory does not grow with the images.

    Sums are float64 and taken about the first image, so that subtracting means later does not cancel digits. Those of
    classes, and `counts`, their images, are in the order of `labels`.
    """

    def __init__(self, second_moment: bool = False) -> None:
        self.labels: dict[str, int] = {}
        self.n_images = 0
        self._with_second = second_moment
        self._shift = np.zeros(0)
        self.counts = np.zeros(0, dtype=np.int64)
        self._sums = np.zeros((0, 0))
        self._square = np.zeros((0, 0))
        self._sum_of_squares = 0.0

    def update(self, X: Embeddings, labels: Sequence[str], index: NDArray[np.intp]) -> None:
        """Add a batch: row i of `X` belongs to ``labels[index[i]]``."""
        if not len(X):
            return
        self._start(X[0].astype(np.float64))
        rows = self._rows(labels)[index]
        for start in range(0, len(X), CHUNK):
            centred = X[start : start + CHUNK] - self._shift
            n = len(centred)
            present, place, n_images = np.unique(rows[start : start + n], return_inverse=True, return_counts=True)
            one_hot = sparse.csr_array((np.ones(n), (place, np.arange(n))), shape=(len(present), n))
            self._sums[present] += one_hot @ centred
            self.counts[present] += n_images
            self._sum_of_squares += float(np.vdot(centred, centred))
            if self._with_second:
                self._square += centred.T @ centred
        self.n_images += len(X)

    def _start(self, shift: NDArray[np.float64]) -> None:
        """Sum about this point from now on, unless there are images already."""
        if self.n_images == 0:
            self._shift, n_dims = shift, len(shift)
            self._sums, self._square = np.zeros((0, n_dims)), np.zeros((n_dims * self._with_second,) * 2)

    def merge(self, other: "ClassMoments") -> None:
        """Add what another sum has seen, as if its images had come here."""
        if not other.n_images:
            return
        self._start(other._shift.copy())
        moved, total = other._shift - self._shift, other._sums.sum(axis=0)
        rows = self._rows(list(other.labels))
        self._sums[rows] += other._sums + other.counts[:, None] * moved
        self.counts[rows] += other.counts
        self._sum_of_squares += float(other._sum_of_squares + 2 * total @ moved + other.n_images * moved @ moved)
        if self._with_second:
            cross = np.outer(total, moved)
            self._square += other._square + cross + cross.T + other.n_images * np.outer(moved, moved)
        self.n_images += other.n_images

    def _rows(self, labels: Sequence[str]) -> NDArray[np.intp]:
        """Rows of the sums for some classes, zero rows added for new ones."""
        rows = [self.labels.setdefault(label, len(self.labels)) for label in labels]
        n_new = len(self.labels) - len(self.counts)
        if n_new:
            self.counts = np.concatenate([self.counts, np.zeros(n_new, dtype=np.int64)])
            self._sums = np.concatenate([self._sums, np.zeros((n_new, self.n_dims))])
        return np.array(rows, dtype=np.intp)

    @property
    def n_dims(self) -> int:
        return len(self._shift)

    def class_means(self) -> NDArray[np.float64]:
        """Mean embedding of each class, (n_classes, n_dims), in the order of `labels`."""
        return np.asarray(self._shift + self._sums / self.counts[:, None])

    def total_mean(self) -> NDArray[np.float64]:
        """Mean of all images."""
        return np.asarray(self._shift + self._sums.sum(axis=0) / self.n_images)

    def within_covariance(self) -> NDArray[np.float64]:
        """Covariance of the images about their class means, pooled over classes.

        Where no class has two images there is none; the covariance about the total mean stands in for it.
        """
        n_free = self.n_images - len(self.counts)
        groups, counts = self._sums, self.counts[:, None]
        if n_free < 1:
            logger.info("no class has two images: whitening by the total covariance instead of the within-class one")
            groups, counts = self._sums.sum(axis=0, keepdims=True), np.array([[self.n_images]])
            n_free = self.n_images - 1
        return np.asarray((self._square - groups.T @ (groups / counts)) / max(n_free, 1))

    def second_moment(self, centre: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Mean of ``(x - centre) (x - centre)^T`` over all images."""
        offset, first = self._shift - centre, self._sums.sum(axis=0) / self.n_images
        moment: NDArray[np.float64] = self._square / self.n_images + np.outer(first, offset)
        moment += np.outer(offset, first + offset)
        return moment

    def mean_square_norm(self, mean: NDArray[np.float64] | None, whitener: NDArray[np.float64] | None) -> float:
        """Mean over images of ``||(x - mean) @ whitener||**2``."""
        centre = np.zeros_like(self._shift) if mean is None else mean
        if whitener is None:
            offset, first = self._shift - centre, self._sums.sum(axis=0) / self.n_images
            square = self._sum_of_squares / self.n_images + 2 * first @ offset + offset @ offset
        else:
            # About the centre, not the origin: a common offset far from zero would cancel digits.
            square = np.einsum("ij,ij->", self.second_moment(centre) @ whitener, whitener)
        return float(square) if square > 0 else 1.0
