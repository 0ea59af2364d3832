"""A prior for class means: classes that are close in the hierarchy look alike, and rare ones borrow from the others.

Means are modelled as a Gaussian process over the tree. From the root down, every concept differs from its parent by a
random step, and the mean of n images differs from its class by noise of variance ``noise / n``. In the whitened metric
the dimensions are alike, so a step has one variance for all of them. Two classes whose closest common ancestor has
information t have covariance ``shared * t ** exponent``: none if that is the root, nearly all of it if they are
siblings. Information is the share of the way from all classes to one, ``1 - log(classes below) / log(classes)``.

Messages along the tree give the posterior and the likelihood exactly, in time proportional to the number of concepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary.concept_dictionary import leaf_shares
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Prior = Literal["auto", "tree", "flat"] | None

#: Dimensions that the variances are fitted on: random directions, which tell as much as all of them.
N_DIRECTIONS = 64
#: Likelihoods that the search for the variances computes.
MAX_TRIALS = 120
#: Variance of images within a class, as a multiple of that between classes, where each class has one image and it
#: cannot be measured; with real CLIP and six public sets any from 1.5 to 3 did equally well.
ONE_IMAGE_NOISE = 2.0
#: Range of the exponent. At the upper end only siblings are alike.
EXPONENTS = (0.1, 30.0)
TINY = float(np.finfo(np.float64).tiny)


class Variances(NamedTuple):
    """The numbers of a prior, per dimension of the dictionary's space.

    Attributes
    ----------
    noise : variance of an image about the mean of its class
    own : variance of a class that it shares with no other
    shared, exponent : see above; if the hierarchy is ignored, `shared` is 0
    """

    noise: float
    own: float
    shared: float = 0.0
    exponent: float = 1.0


@dataclass(frozen=True, eq=False)
class TreePrior:
    """A prior over the classes of a hierarchy.

    Attributes
    ----------
    variances : Variances
    parent : (n_synsets,) int; of several parents, the one with the fewest classes below it. The root comes first.
    leaf : (n_classes,) int; the synset of each class
    information : (n_synsets,) array; 0 for the root and 1 for a class
    """

    variances: Variances
    parent: Index
    leaf: Index
    information: Floats

    @classmethod
    def over(cls, hierarchy: Hierarchy, leaves: Sequence[str], variances: Variances) -> TreePrior:
        """The prior of known variances over the classes with these leaves."""
        n_below = np.diff(leaf_shares(hierarchy, leaves).indptr)
        n_below[0] = len(leaves)
        child = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.parent_pointer))
        above = np.asarray(hierarchy.parent_index)
        # Of several parents the last is kept: the one with the fewest classes below it.
        order = np.argsort(-n_below[above], kind="stable")
        parent = np.zeros(len(hierarchy), dtype=np.intp)
        parent[child[order]] = above[order]
        information = 1.0 - np.log(np.maximum(n_below, 1)) / np.log(max(len(leaves), 2))
        leaf = np.array([hierarchy.index(one) for one in leaves], dtype=np.intp)
        return cls(variances, parent, leaf, information)

    @property
    def has_groups(self) -> bool:
        """Whether any concept is between the root and the classes."""
        return bool(self.parent[self.leaf].any())

    @cached_property
    def levels(self) -> list[Index]:
        """Synsets by the number of steps from the root, without the root."""
        depth = np.zeros(len(self.parent), dtype=np.intp)
        for v in range(1, len(depth)):
            depth[v] = depth[self.parent[v]] + 1
        order = np.argsort(depth, kind="stable")
        return np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 1)))[1:]

    @cached_property
    def steps(self) -> Floats:
        """Variance of the step from its parent to each synset, (n_synsets,)."""
        covered = self.variances.shared * self.information**self.variances.exponent
        steps = np.maximum(covered - covered[self.parent], 0.0)
        steps[self.leaf] += self.variances.own
        return steps

    def posterior(self, means: Floats, n_images: Floats) -> tuple[Floats, Floats]:
        """Expected class means, (n_classes, n_dims), and the variance of each per dimension, (n_classes,).

        Parameters
        ----------
        means : (n_classes, n_dims) array; a class without images may hold anything finite
        n_images : (n_classes,) array; images that each is the mean of, or their weight; may be 0
        """
        precision, centre, _ = self._upwards(means, n_images)
        variance = np.zeros(len(precision))
        variance[0] = 1.0 / precision[0]
        for nodes in self.levels:
            above, step = self.parent[nodes], self.steps[nodes]
            pull = 1.0 / (1.0 + step * precision[nodes])
            centre[nodes] += pull[:, None] * (centre[above] - centre[nodes])
            variance[nodes] = step * pull + pull**2 * variance[above]
        return centre[self.leaf], variance[self.leaf]

    def log_likelihood(self, means: Floats, n_images: Floats) -> float:
        """Of the class means that were observed, whatever the mean of all classes is; up to a constant."""
        return self._upwards(means, n_images)[2]

    def _upwards(self, means: Floats, n_images: Floats) -> tuple[Floats, Floats, float]:
        """What the images below each synset say of it (a precision and a mean), and the log likelihood of all."""
        precision, n_dims = np.zeros(len(self.parent)), means.shape[1]
        precision[self.leaf] = n_images / self.variances.noise
        centre = np.zeros((len(self.parent), n_dims))
        centre[self.leaf] = np.where(n_images[:, None] > 0, means, 0.0)
        log_likelihood = 0.0
        for nodes in reversed(self.levels):
            nodes = nodes[precision[nodes] > 0.0]
            weight = precision[nodes] / (1.0 + self.steps[nodes] * precision[nodes])
            above, place = np.unique(self.parent[nodes], return_inverse=True)
            gather = sparse.csr_array((weight, (place, np.arange(len(nodes)))), (len(above), len(nodes)))
            total = np.asarray(gather.sum(axis=1)).ravel()
            centre[above] = (gather @ centre[nodes]) / total[:, None]
            precision[above] = total
            off = weight @ np.einsum("ij,ij->i", centre[nodes], centre[nodes])
            off -= total @ np.einsum("ij,ij->i", centre[above], centre[above])
            log_likelihood += 0.5 * (n_dims * (np.log(weight).sum() - np.log(total).sum()) - off)
        return precision, centre, float(log_likelihood)


def fit_prior(
    hierarchy: Hierarchy,
    leaves: Sequence[str],
    means: Floats,
    n_images: Floats,
    noise: float | None,
    flat: bool = False,
) -> TreePrior | None:
    """The prior of highest likelihood, given the class means; None if all images, or all of each class, are equal.

    Parameters
    ----------
    hierarchy, leaves : the leaf of each class
    means : (n_classes, n_dims) array, in the metric of the dictionary
    n_images : (n_classes,) array; images of each class, or their weight
    noise : variance of an image about the mean of its class, per dimension; None if no class has two images
    flat : whether to ignore the hierarchy
    """
    from scipy.optimize import minimize

    if means.shape[1] > N_DIRECTIONS:
        directions = np.random.default_rng(0).normal(size=(means.shape[1], N_DIRECTIONS))
        means = means @ (directions / np.sqrt(means.shape[1]))
    spread = float(means[n_images > 0.0].var(axis=0).mean())
    if noise is None:
        noise = spread * ONE_IMAGE_NOISE / (1.0 + ONE_IMAGE_NOISE)
    if not (noise > 0.0 and spread > 0.0):
        return None
    start = TreePrior.over(hierarchy, leaves, Variances(float(noise), 0.5 * spread, 0.5 * spread, 2.0))
    lowest = np.log([1e-6 * spread, 1e-6 * spread, EXPONENTS[0]])
    highest = np.log([1e3 * spread, 1e3 * spread, EXPONENTS[1]])
    n_free = 1 if flat or not start.has_groups else 3  # without groups, a class shares nothing with another

    def at(logs: Floats) -> TreePrior:
        own, *of_tree = np.exp(np.clip(logs, lowest[:n_free], highest[:n_free])).tolist()
        return replace(start, variances=Variances(start.variances.noise, own, *of_tree))

    best = minimize(
        lambda logs: -at(logs).log_likelihood(means, n_images) / means.size,
        np.log(start.variances[1 : 1 + n_free]),
        method="Nelder-Mead",
        options={"maxfev": MAX_TRIALS, "xatol": 0.02, "fatol": 1e-6},
    )
    return at(best.x)


def under_prior(
    variances: Variances | None, hierarchy: Hierarchy, leaves: NDArray[np.str_], means: Floats, n_images: NDArray[Any]
) -> Floats:
    """Class means under a prior of known variances; as they are, if there is none."""
    if variances is None:
        return means
    return TreePrior.over(hierarchy, leaves.tolist(), variances).posterior(means, n_images.astype(np.float64))[0]
