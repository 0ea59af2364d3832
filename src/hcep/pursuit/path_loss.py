"""A loss for training encoders that moves images towards their rooted paths and concepts into the paper's geometry."""

from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require, require_not_negative
from hcep.dictionary import PathProblem
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.errors import HCEPError, quote
from hcep.hierarchy import Hierarchy

Tensor = Any
#: Cosines are clipped here, because the slope of the arc cosine is infinite at 1.
LARGEST_COSINE = 1.0 - 1e-6


def path_loss(
    X: Tensor,
    labels: Tensor,
    leaf_embeddings: Tensor,
    hierarchy: Hierarchy,
    *,
    anchor: float = 0.03,
    temperature: float = 0.05,
    pull: float = 0.1,
    orthogonality: float = 1.0,
    cones: float = 1.0,
) -> Tensor:
    """Return the loss of a batch, a scalar.

    It is low if each image is on the path of its class and no other, and if the concepts have the paper's geometry.

    Parameters
    ----------
    X : tensor of shape (n_images, n_dims)
        Embeddings from the encoder that is being trained.
    labels : integer tensor of shape (n_images,)
        The class of each image, as a position in ``hierarchy.leaves`` (see `class_positions`).
    leaf_embeddings : tensor of shape (n_leaves, n_dims)
        The embeddings of ``hierarchy.leaves``, either as parameters or as the mean of the images of each class.
    hierarchy : Hierarchy
        Restricted to the classes and collapsed, such as ``model.hierarchy_`` or
        ``hierarchy.restrict(classes).collapse()``.
    anchor : float
        Weight of the prior that coefficients are 1; above 0.
    temperature : float
        Temperature of the softmax over paths. The default suits all encoders, because embeddings are first scaled to a
        mean square norm of 1.
    pull, orthogonality, cones : float
        Weights of the other terms; see `path_loss_terms`.

    Examples
    --------
    One training step::

        labels = torch.from_numpy(class_positions(y, tree))
        loss = path_loss(encoder(images), labels, prototypes, tree)
        loss.backward()
    """
    weights = {"classes": 1.0, "pull": pull, "orthogonality": orthogonality, "cones": cones}
    terms = path_loss_terms(X, labels, leaf_embeddings, hierarchy, anchor=anchor, temperature=temperature)
    return sum(require_not_negative(name, weight) * terms[name] for name, weight in weights.items())


def path_loss_terms(
    X: Tensor,
    labels: Tensor,
    leaf_embeddings: Tensor,
    hierarchy: Hierarchy,
    *,
    anchor: float = 0.03,
    temperature: float = 0.05,
) -> dict[str, Tensor]:
    """Return the terms of `path_loss` without their weights.

    Parameters
    ----------
    X, labels, leaf_embeddings, hierarchy, anchor, temperature
        See `path_loss`.

    Returns
    -------
    dict of str to tensor

    Notes
    -----
    The objective of a path is the minimum of ``||x - D^T a||**2 + lambda ||a - 1||**2`` over a. Inner synsets are the
    means of their children. The terms are:

    - ``classes``: the cross-entropy of ``softmax(-objective / temperature)``, which are the classifier's probabilities;
    - ``pull``: the mean objective of each image on the path of its class;
    - ``orthogonality``: the mean squared cosine between ``a(child) - a(parent)`` and ``a(parent)``;
    - ``cones``: the mean overlap of the cones of two siblings in radians. The cone of a synset is the narrowest one
      that contains its descendants.
    """
    torch = require("torch", "torch", "the path loss")
    if not anchor > 0.0 or not temperature > 0.0:
        raise HCEPError(f"anchor and temperature must be above 0; got {quote(anchor)} and {quote(temperature)}")
    if tuple(leaf_embeddings.shape) != (len(hierarchy.leaves), X.shape[-1]):
        raise HCEPError(
            f"leaf_embeddings must have shape ({len(hierarchy.leaves)}, {X.shape[-1]}), one row per leaf of the "
            f"hierarchy; got {tuple(leaf_embeddings.shape)}"
        )
    shapes = _SHAPES.setdefault(hierarchy, {})
    if (X.device, X.dtype) not in shapes:
        shapes[X.device, X.dtype] = _Shape(hierarchy, torch, X)
    shape = shapes[X.device, X.dtype]
    scale = X.square().sum(dim=1).mean().clamp_min(1e-12).rsqrt()
    x, synsets = X * scale, shape.means @ (leaf_embeddings * scale)
    atoms = synsets[shape.child] - synsets[shape.parent]
    objectives = shape.objectives(x, atoms, anchor)
    by_class = torch.full((len(x), len(leaf_embeddings)), torch.inf, dtype=x.dtype, device=x.device)
    by_class = by_class.scatter_reduce(1, shape.leaf_of_path.expand(len(x), -1), objectives, "amin")
    return {
        "classes": torch.nn.functional.cross_entropy(-by_class / temperature, labels),
        "pull": by_class.gather(1, labels[:, None]).mean(),
        "orthogonality": shape.orthogonality(synsets, atoms),
        "cones": shape.overlap(synsets),
    }


class _Shape:
    """The index tensors of a hierarchy, on one device, that the terms of the loss use."""

    def __init__(self, hierarchy: Hierarchy, torch: Any, like: Tensor) -> None:
        def index(values: Any, shape: tuple[int, ...] = (-1,)) -> Tensor:
            return torch.from_numpy(np.array(values, dtype=np.int64).reshape(shape)).to(like.device)

        tree, n_children = hierarchy.path_tree, np.diff(hierarchy.child_pointer)
        ends = tree.synset[tree.leaf_nodes]
        unit = dict(zip(hierarchy.leaves, np.eye(len(hierarchy.leaves)), strict=True))
        place = {synset: k for k, synset in enumerate(hierarchy.leaf_index.tolist())}
        inner = [i for i in np.flatnonzero(n_children).tolist() if i]
        below = [[j for j in map(hierarchy.index, hierarchy.descendants(hierarchy.ids[i])) if j != i] for i in inner]
        children = np.split(hierarchy.child_index, hierarchy.child_pointer[1:-1])
        self.torch, self.tree = torch, tree
        #: (n_synsets, n_leaves); the weight of each leaf in every synset
        self.means = torch.from_numpy(average_upwards(hierarchy, unit)).to(like)
        #: parent and child of each atom
        self.parent, self.child = index(np.repeat(np.arange(len(hierarchy)), n_children)), index(hierarchy.child_index)
        #: the leaf of each complete path
        self.leaf_of_path = index([place[synset] for synset in ends.tolist()])
        #: pairs of an inner synset and a descendant
        self.above = index(np.repeat(inner, list(map(len, below))))
        self.below = index([j for descendants in below for j in descendants])
        self.siblings = index([pair for group in children for pair in combinations(group.tolist(), 2)], (-1, 2))

    def objectives(self, x: Tensor, atoms: Tensor, anchor: float) -> Tensor:
        """Return the differentiable objective of every image on every complete path, shape (n_images, n_paths)."""
        problem = PathProblem.of(self.tree, atoms, anchor)
        scores = problem.scores(problem.values(problem.products(x)))[self.tree.leaf_nodes]
        return x.square().sum(dim=1)[:, None] - scores.T.to(x.dtype)

    def orthogonality(self, synsets: Tensor, atoms: Tensor) -> Tensor:
        inner = self.parent > 0
        if not bool(inner.any()):
            return synsets.sum() * 0.0
        return self.torch.cosine_similarity(atoms[inner], synsets[self.parent[inner]], dim=1, eps=1e-8).square().mean()

    def overlap(self, synsets: Tensor) -> Tensor:
        if not len(self.siblings):
            return synsets.sum() * 0.0
        one, other = self.siblings.T
        half = self.torch.zeros(len(synsets), dtype=synsets.dtype, device=synsets.device)
        if len(self.above):
            half = half.scatter_reduce(0, self.above, self._angles(synsets, self.above, self.below), "amax")
        return (half[one] + half[other] - self._angles(synsets, one, other)).clamp_min(0.0).mean()

    def _angles(self, synsets: Tensor, one: Tensor, other: Tensor) -> Tensor:
        cosine = self.torch.cosine_similarity(synsets[one], synsets[other], dim=1, eps=1e-8)
        return self.torch.arccos(cosine.clamp(-LARGEST_COSINE, LARGEST_COSINE))


#: One entry for each hierarchy, device and precision.
_SHAPES: WeakKeyDictionary[Hierarchy, dict[tuple[Any, Any], _Shape]] = WeakKeyDictionary()


def class_positions(labels: Any, hierarchy: Hierarchy) -> NDArray[np.int64]:
    """Return the position in ``hierarchy.leaves`` of each class label, as `path_loss` needs them.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.pursuit.path_loss import class_positions
    >>> class_positions(["dog", "cat"], Hierarchy.from_edges([("animal", "cat"), ("animal", "dog")]))
    array([1, 0])
    """
    place = {leaf: k for k, leaf in enumerate(hierarchy.leaves)}
    return np.array([place[hierarchy.leaf_of(str(label))] for label in labels], dtype=np.int64)
