"""The labelled images that a model is fitted to: the class of each, how much it counts, and how it is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.classify.left_out import MAX_SHARE, ClassTree, Folds, LeftOut, rank_in_class, spread
from hcep.classify.tree_prior import TreePrior
from hcep.dictionary.moments import ClassMoments, degrees_of_freedom, one_hot
from hcep.dictionary.transform import EmbeddingTransform, prepared_rows
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: Images summed up at a time: few enough to stay in the processor's cache.
CHUNK = 1024
#: Images that the variance within classes is measured on.
NOISE_IMAGES = 4096


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Labelled images under a hierarchy: everything that a fit looks at.

    An image counts by its weight in every average: means, covariance, held-out losses. Numbers of images, on which
    it depends what is worth trying, ignore the weights.
    """

    hierarchy: Hierarchy  # its leaves are the classes
    leaves: NDArray[np.str_]  # (n_classes,); the leaf of each class
    images: NDArray[Any]  # (n_images, n_dims); raw
    own: NDArray[np.intp]  # (n_images,); class of each image, as a position in `leaves`
    weights: Floats  # (n_images,); how much each image counts, above 0
    #: unit_norm, center : what is done to every image, after the power
    unit_norm: bool = False
    center: bool = False
    #: images labelled with their class, which come first; all, if None. The others are images whose label is above the
    #: classes, once for every class that they may be of and weighted by its probability: they are never held out.
    n_exact: int | None = None

    @property
    def n_classes(self) -> int:
        return len(self.leaves)

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """Images of each class, (n_classes,); of those that may be of several classes, as many as their shares make."""
        if self.n_exact is None:
            return self.exact_counts
        others = slice(self.n_exact, None)
        return self.exact_counts + np.bincount(self.own[others], self.weights[others], self.n_classes).astype(np.intp)

    @cached_property
    def exact_counts(self) -> NDArray[np.intp]:
        """Images of each class that are labelled with it, (n_classes,)."""
        return np.bincount(self.own[: self.n_exact], minlength=self.n_classes)

    @cached_property
    def effective_counts(self) -> Floats:
        """Images of equal weight whose mean would be as certain as that of each class, (n_classes,)."""
        of_class = self.class_weights
        total = np.asarray(of_class.sum(axis=0))
        kish = total**2 / np.asarray((of_class * of_class).sum(axis=0))
        return np.asarray(np.minimum(kish, total / self.weights[: self.n_exact].mean()))

    @cached_property
    def class_weights(self) -> sparse.csr_array:
        """How much each image counts for each class, (n_images, n_classes); for its own class only."""
        return one_hot(self.own, self.n_classes, self.weights)

    @cached_property
    def shares(self) -> Floats:
        """Each image's share in the weight of its class, (n_images,)."""
        return np.asarray(self.weights / self.class_weights.sum(axis=0)[self.own])

    @property
    def n_free(self) -> float:
        """Degrees of freedom of the covariance within classes."""
        return degrees_of_freedom(len(self.own), float(self.weights.sum()), self.n_classes)

    @cached_property
    def tree(self) -> ClassTree:
        return ClassTree.of(self.hierarchy, self.leaves.tolist())

    @cached_property
    def folds(self) -> Folds:
        return Folds.of(self.own[: self.n_exact], self.shares[: self.n_exact])

    def prepared(self, rows: Any, power: float) -> NDArray[Any]:
        """Images after power and unit norm."""
        return prepared_rows(self.images[rows], power, self.unit_norm)

    def moments(self, power: float, second_moment: bool) -> ClassMoments:
        """Moments of the images after power and unit norm, classes in their order."""
        moments, labels = ClassMoments(second_moment), self.leaves.tolist()
        for start in range(0, len(self.images), CHUNK):
            rows = slice(start, start + CHUNK)
            moments.update(self.prepared(rows, power), labels, self.class_weights[rows])
        return moments

    def left_out(
        self,
        rows: NDArray[np.intp],
        transform: EmbeddingTransform,
        moments: ClassMoments,
        *,
        prepared: NDArray[Any] | None = None,
        means: Floats | None = None,
        prior: TreePrior | None = None,
        words: Floats | None = None,
    ) -> LeftOut:
        """Images, ready to be left out of means and metric one by one.

        Parameters
        ----------
        rows : the images
        transform : the metric that all images fixed
        moments : of all images, in which the metric was fixed
        prepared, means : the images and the class means, where a part of the transform has been applied already
        prior : of the class means
        words : (n_synsets, n_words); the word parts of all concepts, if the transform has a word block
        """
        images = self.prepared(rows, transform.power) if prepared is None else prepared
        leaves = transform.pictures.after_unit_norm(moments.class_means() if means is None else means)
        tree, n_words = self.tree, 0
        if words is not None and words.size:
            texts = words[[self.hierarchy.index(leaf) for leaf in self.leaves]]
            leaves, n_words = np.hstack([leaves, texts]), texts.shape[1]
            tree = replace(tree, own_texts=words - tree.shares @ texts)
        return LeftOut(
            images=transform.after_unit_norm(np.asarray(images, dtype=np.float32)),
            own=self.own[rows],
            weights=self.weights[rows],
            class_weights=moments.weights,
            means=leaves,
            gamma=transform.covariance_weight(self.n_free),
            tree=tree,
            prior=prior,
            n_images=self.effective_counts,
            n_words=n_words,
        )

    def noise(self, transform: EmbeddingTransform, moments: ClassMoments) -> float | None:
        """Variance of an image about the mean of its class, per dimension, after the transform.

        It is an average over classes: in some, images differ more. None if no class has two images.
        """
        rows = spread(np.flatnonzero(self.shares < MAX_SHARE), NOISE_IMAGES)
        if not len(rows):
            return None
        images = transform.after_unit_norm(self.prepared(rows, transform.power).astype(np.float64))
        residuals = images - transform.after_unit_norm(moments.class_means())[self.own[rows]]
        weights = self.weights[rows]
        squares = np.einsum("ij,ij->i", residuals, residuals) / images.shape[1]
        return float(weights @ squares / (weights @ (1.0 - self.shares[rows])))

    def sample(self, per_class: int) -> TrainingSet:
        """At most so many images of each class; itself where there are no more."""
        rows = np.flatnonzero(rank_in_class(self.own, np.random.default_rng(0)) < per_class)
        if len(rows) == len(self.own):
            return self
        return replace(self, images=self.images[rows], own=self.own[rows], weights=self.weights[rows])
