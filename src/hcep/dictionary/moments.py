"""Running sums over batches of labelled embeddings: everything a dictionary needs to know about its images."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary.checks import CHUNK, Embeddings

logger = logging.getLogger(__name__)


class ClassMoments:
    """Counts, sums and, on request, the second moment of images, per class; memory does not grow with the images.

    Sums are float64 and taken about the first image, so that subtracting means later does not cancel digits. The sums
    per class, `counts` (images) and `weights` (their total weight) are in the order of `labels`.
    """

    def __init__(self, second_moment: bool = False) -> None:
        self.labels: dict[str, int] = {}
        self.n_images = 0
        self._with_second = second_moment
        self._shift = np.zeros(0)
        self.counts = np.zeros(0, dtype=np.int64)
        self.weights = np.zeros(0)
        self._sums = np.zeros((0, 0))
        self._square = np.zeros((0, 0))
        self._sum_of_squares = 0.0

    def update(self, X: Embeddings, labels: Sequence[str], classes: NDArray[np.intp] | sparse.csr_array) -> None:
        """Add a batch of images.

        Parameters
        ----------
        X : (n_images, n_dims) array
        labels : the classes that the batch may belong to
        classes : (n_images,) array, or (n_images, n_labels) sparse array
            The position of each image's class in `labels`; or how much each image counts for each class.
        """
        if not len(X):
            return
        self._start(X[0].astype(np.float64))
        weighted = one_hot(classes, len(labels)) if isinstance(classes, np.ndarray) else classes
        rows, of_image = self._rows(labels), np.asarray(weighted.sum(axis=1))
        are_equal = bool((of_image == 1.0).all())
        for start in range(0, len(X), CHUNK):
            centred = X[start : start + CHUNK] - self._shift
            by_class = weighted[start : start + CHUNK].T.tocsr()
            n_entries = np.diff(by_class.indptr)
            present = np.flatnonzero(n_entries)
            self._sums[rows[present]] += by_class[present] @ centred
            self.counts[rows[present]] += n_entries[present]
            self.weights[rows[present]] += by_class[present].sum(axis=1)
            if not are_equal:
                centred *= np.sqrt(of_image[start : start + CHUNK, None])
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
        """Add the images of another sum, as if they had been added here."""
        if not other.n_images:
            return
        self._start(other._shift.copy())
        moved, total, weight = other._shift - self._shift, other._sums.sum(axis=0), other.total_weight
        rows = self._rows(list(other.labels))
        self._sums[rows] += other._sums + other.weights[:, None] * moved
        self.counts[rows] += other.counts
        self.weights[rows] += other.weights
        self._sum_of_squares += float(other._sum_of_squares + 2 * total @ moved + weight * moved @ moved)
        if self._with_second:
            cross = np.outer(total, moved)
            self._square += other._square + cross + cross.T + weight * np.outer(moved, moved)
        self.n_images += other.n_images

    def _rows(self, labels: Sequence[str]) -> NDArray[np.intp]:
        """Rows of the sums for these classes; new classes get rows of zeros."""
        rows = [self.labels.setdefault(label, len(self.labels)) for label in labels]
        n_new = len(self.labels) - len(self.counts)
        if n_new:
            self.counts = np.concatenate([self.counts, np.zeros(n_new, dtype=np.int64)])
            self.weights = np.concatenate([self.weights, np.zeros(n_new)])
            self._sums = np.concatenate([self._sums, np.zeros((n_new, self.n_dims))])
        return np.array(rows, dtype=np.intp)

    @property
    def n_dims(self) -> int:
        return len(self._shift)

    @property
    def total_weight(self) -> float:
        """Weight of all images; their number where each counts once."""
        return float(self.weights.sum())

    def class_means(self) -> NDArray[np.float64]:
        """Mean embedding of each class, (n_classes, n_dims), in the order of `labels`."""
        return np.asarray(self._shift + self._sums / self.weights[:, None])

    def total_mean(self) -> NDArray[np.float64]:
        """Mean of all images."""
        return np.asarray(self._shift + self._sums.sum(axis=0) / self.total_weight)

    def within_covariance(self) -> NDArray[np.float64]:
        """Covariance of the images about their class means, pooled over classes.

        If no class has two images, this is the covariance about the mean of all images instead.
        """
        groups, weights, n_free = self._sums, self.weights[:, None], self.n_free
        if not n_free:
            logger.info("no class has two images: whitening by the total covariance instead of the within-class one")
            groups, weights = self._sums.sum(axis=0, keepdims=True), np.array([[self.total_weight]])
            n_free = degrees_of_freedom(self.n_images, self.total_weight, 1)
        return np.asarray((self._square - groups.T @ (groups / weights)) / (n_free or 1.0))

    @property
    def n_free(self) -> float:
        """Degrees of freedom of the within-class covariance (see `degrees_of_freedom`)."""
        return degrees_of_freedom(self.n_images, self.total_weight, len(self.counts))

    def second_moment(self, centre: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Mean of ``(x - centre) (x - centre)^T`` over all images."""
        offset, first = self._shift - centre, self._sums.sum(axis=0) / self.total_weight
        moment: NDArray[np.float64] = self._square / self.total_weight + np.outer(first, offset)
        moment += np.outer(offset, first + offset)
        return moment

    def mean_square_norm(self, mean: NDArray[np.float64] | None, whitener: NDArray[np.float64] | None) -> float:
        """Mean over images of ``||(x - mean) @ whitener||**2``."""
        centre = np.zeros_like(self._shift) if mean is None else mean
        if whitener is None:
            offset, first = self._shift - centre, self._sums.sum(axis=0) / self.total_weight
            square = self._sum_of_squares / self.total_weight + 2 * first @ offset + offset @ offset
        else:
            # About the centre, not the origin: a common offset far from zero would cancel digits.
            square = np.einsum("ij,ij->", self.second_moment(centre) @ whitener, whitener)
        return float(square) if square > 0 else 1.0


def degrees_of_freedom(n_images: int, weight: float, n_means: int) -> float:
    """What the covariance of weighted images about so many means is divided by; 0 if each image is a mean of its own.

    A weight counts as repetitions of an image. Weights below 1 on average would be fewer repetitions than images; a
    mean then costs one average image.
    """
    return weight - n_means * min(1.0, weight / n_images) if n_images > n_means else 0.0


def one_hot(classes: NDArray[np.intp], n_classes: int, weights: NDArray[np.float64] | None = None) -> sparse.csr_array:
    """How much each image counts for each class, (n_images, n_classes): its weight, 1 by default, for its own."""
    n_images = len(classes)
    entries = np.ones(n_images) if weights is None else weights
    return sparse.csr_array((entries, classes, np.arange(n_images + 1)), shape=(n_images, n_classes))
