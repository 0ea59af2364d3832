"""For those who train encoders: a loss that pulls images to their rooted paths, in the geometry of the paper."""

from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require, require_not_negative
from hcep.dictionary import PathProblem
from hcep.dictionary.concept_dictionary import average_upwards
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

Tensor = Any
#: Cosines beyond this are not told apart, where the arc cosine's slope is infinite.
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
    """Loss of a batch, a scalar: each image on the path of its class and no other, and concepts where they should be.

    Parameters
    ----------
    X : (n_images, n_dims) tensor; embeddings, as the encoder that is being trained gives them
    labels : (n_images,) integer tensor; class of each image, as a position in ``hierarchy.leaves``
    leaf_embeddings : (n_leaves, n_dims) tensor; in that order, parameters of their own or means of the images per class
    hierarchy : on the classes alone, and collapsed: ``model.hierarchy_``, ``hierarchy.restrict(classes).collapse()``
    anchor : weight of the prior that coefficients are 1; above 0
    temperature : of the softmax over paths; the same for all encoders, as embeddings get the mean square norm 1 first
    pull, orthogonality, cones : weights of those terms; see `path_loss_terms`

    Notes
    -----
    One step of training::

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
    """The parts of `path_loss`, unweighted.

    Parameters
    ----------
    X, labels, leaf_embeddings, hierarchy, anchor, temperature : as for `path_loss`

    Notes
    -----
    With ``||x - D^T a||**2 + lambda ||a - 1||**2`` at its minimum over a as a path's objective (the coefficients a have
    their gradient), and inner synsets the means of their children:

    - ``classes``: cross-entropy of ``softmax(-objective / temperature)``, the classifier's own probabilities;
    - ``pull``: mean objective of the own path, what it leaves unexplained;
    - ``orthogonality``: mean squared cosine of ``a(child) - a(parent)`` with ``a(parent)``;
    - ``cones``: mean over pairs of siblings of the radians by which their cones overlap, each the narrowest that holds
      the synset's descendants.
    """
    torch = require("torch", "torch", "the path loss")
    if not anchor > 0.0 or not temperature > 0.0:
        raise HCEPError(f"anchor and temperature must be above 0, got {anchor!r} and {temperature!r}")
    if tuple(leaf_embeddings.shape) != (len(hierarchy.leaves), X.shape[-1]):
        told = f"leaf_embeddings must have shape ({len(hierarchy.leaves)}, {X.shape[-1]}), one row per leaf of the "
        raise HCEPError(told + f"hierarchy; got {tuple(leaf_embeddings.shape)}")
    kept = _KEPT.setdefault(hierarchy, {})  # made once for a hierarchy, a device and a precision
    if (X.device, X.dtype) not in kept:
        kept[X.device, X.dtype] = _Shape(hierarchy, torch, X)
    shape = kept[X.device, X.dtype]
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
    """A hierarchy as index tensors: what the terms gather by."""

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
        #: (n_synsets, n_leaves): every synset as a mean of leaves
        self.means = torch.from_numpy(average_upwards(hierarchy, unit)).to(like)
        #: of each atom
        self.parent, self.child = index(np.repeat(np.arange(len(hierarchy)), n_children)), index(hierarchy.child_index)
        #: the leaf of each complete path
        self.leaf_of_path = index([place[synset] for synset in ends.tolist()])
        #: pairs of a synset and one below it
        self.above = index(np.repeat(inner, list(map(len, below))))
        self.below = index([j for some in below for j in some])
        self.siblings = index([pair for group in children for pair in combinations(group.tolist(), 2)], (-1, 2))

    def objectives(self, x: Tensor, atoms: Tensor, anchor: float) -> Tensor:
        """Objective of every image on every complete path, (n_images, n_paths), with a gradient by images and atoms."""
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


_KEPT: WeakKeyDictionary[Hierarchy, dict[tuple[Any, Any], _Shape]] = WeakKeyDictionary()


def class_positions(labels: Any, hierarchy: Hierarchy) -> NDArray[np.int64]:
    """Position in ``hierarchy.leaves`` of the leaf that stands for each class label: what `path_loss` takes."""
    place = {leaf: k for k, leaf in enumerate(hierarchy.leaves)}
    return np.array([place[hierarchy.leaf_of(str(label))] for label in labels], dtype=np.int64)
