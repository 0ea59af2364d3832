"""Running sums over batches of labelled embeddings, from which a dictionary is built."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary.checks import CHUNK, Embeddings

logger = logging.getLogger(__name__)


class ClassMoments:
    """Counts and sums of images per class and, on request, their second moment.

    The memory does not grow with the number of images. The sums are float64 and taken about the first image, so that
    subtracting means later does not cancel digits.

    Parameters
    ----------
    second_moment : bool
        Also add up the outer products of the images, which `within_covariance` and `second_moment` need.

    Attributes
    ----------
    labels : dict of str to int
        The classes and their positions in the arrays below.
    counts : integer array of shape (n_classes,)
        The number of images of each class.
    weights : array of shape (n_classes,)
        The total weight of the images of each class.
    n_images : int

    Examples
    --------
    >>> import numpy as np
    >>> from hcep.dictionary.moments import ClassMoments
    >>> moments = ClassMoments()
    >>> moments.update(np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), ["cat", "dog"], np.array([0, 0, 1]))
    >>> moments.class_means()
    array([[2., 0.],
           [0., 5.]])
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
        X : array of shape (n_images, n_dims)
        labels : sequence of str
            The classes that images of the batch may belong to.
        classes : integer array of shape (n_images,), or sparse array of shape (n_images, n_labels)
            The position of each image's class in `labels`, or the weight of each image in each class.
        """
        if not len(X):
            return
        self._start(X[0].astype(np.float64))
        weighted = one_hot(classes, len(labels)) if isinstance(classes, np.ndarray) else classes
        rows, image_weights = self._rows(labels), np.asarray(weighted.sum(axis=1))
        all_ones = bool((image_weights == 1.0).all())
        for start in range(0, len(X), CHUNK):
            centred = X[start : start + CHUNK] - self._shift
            by_class = weighted[start : start + CHUNK].T.tocsr()
            n_entries = np.diff(by_class.indptr)
            present = np.flatnonzero(n_entries)
            self._sums[rows[present]] += by_class[present] @ centred
            self.counts[rows[present]] += n_entries[present]
            self.weights[rows[present]] += by_class[present].sum(axis=1)
            if not all_ones:
                centred *= np.sqrt(image_weights[start : start + CHUNK, None])
            self._sum_of_squares += float(np.vdot(centred, centred))
            if self._with_second:
                self._square += centred.T @ centred
        self.n_images += len(X)

    def _start(self, shift: NDArray[np.float64]) -> None:
        """Take all sums about this point, unless there are images already."""
        if self.n_images == 0:
            self._shift, n_dims = shift, len(shift)
            self._sums, self._square = np.zeros((0, n_dims)), np.zeros((n_dims * self._with_second,) * 2)

    def merge(self, other: "ClassMoments") -> None:
        """Add the images of other moments, as if `update` had been called with them."""
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
        """Return the rows of the sums that belong to these classes; new classes get rows of zeros."""
        rows = [self.labels.setdefault(label, len(self.labels)) for label in labels]
        n_new = len(self.labels) - len(self.counts)
        if n_new:
            self.counts = np.concatenate([self.counts, np.zeros(n_new, dtype=np.int64)])
            self.weights = np.concatenate([self.weights, np.zeros(n_new)])
            self._sums = np.concatenate([self._sums, np.zeros((n_new, self.n_dims))])
        return np.array(rows, dtype=np.intp)

    @property
    def n_dims(self) -> int:
        """The number of dimensions of the embeddings."""
        return len(self._shift)

    @property
    def total_weight(self) -> float:
        """The total weight of all images, which is their number if every weight is 1."""
        return float(self.weights.sum())

    def class_means(self) -> NDArray[np.float64]:
        """Return the mean embedding of each class, shape (n_classes, n_dims), in the order of `labels`."""
        return np.asarray(self._shift + self._sums / self.weights[:, None])

    def total_mean(self) -> NDArray[np.float64]:
        """Return the mean of all images, shape (n_dims,)."""
        return np.asarray(self._shift + self._sums.sum(axis=0) / self.total_weight)

    def within_covariance(self) -> NDArray[np.float64]:
        """Return the covariance of the images about their class means, pooled over classes, (n_dims, n_dims).

        If no class has two images, it is the covariance about the mean of all images instead.
        """
        groups, weights, n_free = self._sums, self.weights[:, None], self.n_free
        if not n_free:
            logger.info("no class has two images, so the total covariance replaces the within-class covariance")
            groups, weights = self._sums.sum(axis=0, keepdims=True), np.array([[self.total_weight]])
            n_free = degrees_of_freedom(self.n_images, self.total_weight, 1)
        return np.asarray((self._square - groups.T @ (groups / weights)) / (n_free or 1.0))

    @property
    def n_free(self) -> float:
        """The degrees of freedom of the within-class covariance (see `degrees_of_freedom`)."""
        return degrees_of_freedom(self.n_images, self.total_weight, len(self.counts))

    def second_moment(self, centre: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Return the mean of ``(x - centre) (x - centre)^T`` over all images, shape (n_dims, n_dims)."""
        offset, first = self._shift - centre, self._sums.sum(axis=0) / self.total_weight
        moment: NDArray[np.float64] = self._square / self.total_weight + np.outer(first, offset)
        moment += np.outer(offset, first + offset)
        return moment

    def mean_square_norm(self, mean: NDArray[np.float64] | None, whitener: NDArray[np.float64] | None) -> float:
        """Return the mean of ``||(x - mean) @ whitener||**2`` over all images."""
        centre = np.zeros_like(self._shift) if mean is None else mean
        if whitener is None:
            offset, first = self._shift - centre, self._sums.sum(axis=0) / self.total_weight
            square = self._sum_of_squares / self.total_weight + 2 * first @ offset + offset @ offset
        else:
            # Moments about the origin would cancel digits if all images share a large offset.
            square = np.einsum("ij,ij->", self.second_moment(centre) @ whitener, whitener)
        return float(square) if square > 0 else 1.0


def degrees_of_freedom(n_images: int, weight: float, n_means: int) -> float:
    """Return the divisor of the covariance of weighted images about `n_means` means; 0 if every image is its own mean.

    A weight counts as the number of times an image is repeated. If weights are below 1 on average, each mean costs as
    much as one average image.
    """
    return weight - n_means * min(1.0, weight / n_images) if n_images > n_means else 0.0


def one_hot(classes: NDArray[np.intp], n_classes: int, weights: NDArray[np.float64] | None = None) -> sparse.csr_array:
    """Return the weight of each image in each class, shape (n_images, n_classes); the default weight is 1."""
    n_images = len(classes)
    entries = np.ones(n_images) if weights is None else weights
    return sparse.csr_array((entries, classes, np.arange(n_images + 1)), shape=(n_images, n_classes))
