"""Why this class and not another: scores as sums over concepts, and the smallest change that turns the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.dictionary import PathProblem
from hcep.dictionary.path_problem import barred
from hcep.errors import HCEPError, quote
from hcep.explain.answer import Contrast, Contribution, Contributions, Flip, Route
from hcep.explain.neighbours import nearest_photos
from hcep.pursuit import PathResult
from hcep.pursuit.limits import Request
from hcep.pursuit.result import path_of

if TYPE_CHECKING:
    from hcep.embeddings import EmbeddingStore

Array = NDArray[np.float64]
NO_REQUEST = Request()
#: Other paths to a concept that an answer lists.
N_ROUTES = 5


@dataclass(frozen=True, eq=False)
class Evidence:
    """The scores of a model's classes, taken apart by concept."""

    model: PathModel
    _paths: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)

    def contributions(self, x: NDArray[Any], node: int, label: int) -> Contributions:
        """The score of a class for a raw embedding whose path ends in `node`, in double precision.

        `label` is a position in ``model.classes``. Raises HCEPError for a head that is not linear.
        """
        z = self.metric(x)
        if self.model.head is None:
            products = self._products(z, self.nodes(node))
            return self._sum(node, label, products**2 - self.problem.anchor, float(z @ z))
        return self._sum(node, label, self._coefficients(z, node), float(z @ z))

    def of_search(self, paths: PathResult, classes: Sequence[int]) -> list[Contributions | None]:
        """The scores of the classes that a search found, from its coefficients alone; None if the head is not linear.

        With R the triangle of a path's QR, the products with the path's directions are ``p = R a``, and the squared
        norm of the image is what they explain and the objective together.
        """
        if self.model.head is not None and not hasattr(self.model.head, "coef_"):
            return [None] * len(paths)
        anchor, lengths = self.problem.anchor, np.diff(paths.codes.indptr)
        inside = np.arange(self.problem.tree.depth) < lengths[:, None]
        a, values = np.zeros(inside.shape), np.zeros(inside.shape)
        a[inside] = paths.codes.data
        values[inside] = self.problem.along_coefficients(paths.nodes, a)[inside] ** 2 - anchor
        off = np.where(inside, a - 1.0, 0.0)
        squares = paths.residual_norms**2 + anchor * np.einsum("ij,ij->i", off, off) + values.sum(axis=1)
        if self.model.head is not None:
            values = a
        each = zip(paths.nodes.tolist(), classes, values, lengths.tolist(), squares.tolist(), strict=True)
        return [self._sum(node, label, row[:n], square) for node, label, row, n, square in each]

    def contrast(
        self,
        x: NDArray[Any],
        node: int,
        label: int,
        concept: str,
        odds: NDArray[Any],
        training: EmbeddingStore | None = None,
    ) -> Contrast:
        """Compare the class of an image, whose path ends in `node`, with a class or concept.

        Raises HCEPError: a concept that is unknown or already part of the answer, a head that is not linear.

        Parameters
        ----------
        x : (n_dims,) raw embedding
        label : position of the image's class in ``model.classes``
        concept : id, name or synonym; of an inner concept the most likely class below it is the rival
        odds : (n_classes,) probabilities of the image's classes
        training : training photos, to find the nearest ones of both classes
        """
        model, h = self.model, self.model.hierarchy
        if self.is_answer(concept, node, label):
            name = h.name(self.find(concept))
            raise HCEPError(f"{quote(name)} is part of this image's answer; ask about another concept")
        z = self.metric(x)
        rival, other = self._rival(z, self.find(concept), odds)
        (ids, names), (rival_ids, rival_names) = self.path(node), self.path(other)
        n = n_shared(ids, rival_ids)
        linear = model.head is not None
        chosen, against = self.contributions(x, node, label), self.contributions(x, node if linear else other, rival)
        start, change = self._logit_change(x, node, label, rival) if linear else self._change(x, node, other, n)
        barred = zip(rival_names, self._coefficients(z, other), strict=True) if model.options.signed else ()
        both = [self.classes[c][0] for c in (label, rival)]
        photos = [] if training is None else nearest_photos(training, model, np.stack([x, x]), classes=both)
        contrast = Contrast(
            chosen=chosen,
            rival=against,
            margin=chosen.total - against.total,
            shared=names[:n],
            path=names,
            rival_path=rival_names,
            probability=float(odds[label]),
            rival_probability=float(odds[rival]),
            barred=tuple(name for name, a in barred if a <= 0),
            flip=None if change is None else self._flip(start, change),
            photos=tuple(photos),
        )
        forks = tuple(h.shown_path(path[n : n + 1]) for path in (ids, rival_ids))
        contrast.__dict__.update(change=change, rival_node=other, forks=forks)
        return contrast

    def find(self, concept: str) -> str:
        """The id of a class or concept by id, name or synonym; for a class that is an inner concept, its own leaf."""
        h = self.model.hierarchy
        return h.find(h.own_leaves.get(concept, concept))

    def is_answer(self, concept: str, node: int, label: int) -> bool:
        """Whether a class or concept is on the path to a node, or is the class itself."""
        answer = (*self.path(node)[0], str(self.model.leaves[label]), self.model.hierarchy.root)
        return self.find(concept) in answer

    def metric(self, x: NDArray[Any]) -> Array:
        """A raw embedding in the dictionary's space."""
        return np.asarray(self.model.dictionary.transform(x[None].astype(np.float64))[0])

    @cached_property
    def in_metric(self) -> PathModel:
        """The model for embeddings that are already in the dictionary's space; what is typical is of raw ones."""
        return replace(self.model, dictionary=self.model.dictionary.without_transform(), typical=None)

    @cached_property
    def problem(self) -> PathProblem:
        return self.model.dictionary.path_problem(self.model.options.anchor)

    def nodes(self, node: int) -> NDArray[np.int32]:
        """The path-tree nodes along the path to a node."""
        return np.asarray(self.problem.nodes_of_path[node][: self.problem.tree.level[node]])

    def path(self, node: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids and names along the path to a node."""
        if node not in self._paths:
            ids = path_of(self.model.dictionary, node)
            self._paths[node] = ids, tuple(map(self.model.hierarchy.name, ids))
        return self._paths[node]

    def edges(self, node: int) -> NDArray[np.int32]:
        """The numbers of the atoms along the path to a node."""
        return self.model.hierarchy.path_tree.edge[self.nodes(node)]

    @cached_property
    def classes(self) -> list[tuple[str, str]]:
        """Label and name of every class."""
        names = map(self.model.hierarchy.name, self.model.leaves.tolist())
        return list(zip(map(str, self.model.classes.tolist()), names, strict=True))

    def best_route(self, z: Array, ends: Sequence[int]) -> int:
        """Which of the paths to `ends`, path-tree nodes, has the lowest objective for an embedding in the metric."""
        if len(ends) == 1:
            return int(ends[0])
        return int(ends[int(np.argmax(self._scores(self._along(z, np.array(ends)), np.array(ends))))])

    def other_routes(
        self, x: NDArray[Any], node: int, request: Request = NO_REQUEST, most: int = N_ROUTES
    ) -> tuple[tuple[Route, ...], int]:
        """The best other paths to the concept where a path ends, as a request allows them, and the number of all.

        Their coefficients solve the same problem as those of the answer's path, each on its own atoms.
        """
        tree, problem = self.problem.tree, self.problem
        ends = np.flatnonzero(tree.synset == tree.synset[node])
        if len(ends) == 1 or not most:
            return (), len(ends)
        z = self.metric(x)
        along, paths, limits = self._along(z, ends), problem.nodes_of_path[ends], self.model.limits(*request)
        is_barred = barred(along, self.model.options.signed, None if limits is None else limits.state[0][paths])
        is_valid = (ends != node) & ~(is_barred & (paths >= 0)).any(axis=1)
        scores = np.where(is_valid, self._scores(along, ends), -np.inf)
        best = np.argsort(-scores, kind="stable")[: min(most, int(is_valid.sum()))]
        images = np.broadcast_to(z, (len(best), len(z)))
        coefficients = problem.coefficients(ends[best], along[best])
        explained = problem.shares(images, ends[best], coefficients)[0]
        routes = [
            Route(*self.path(end), tuple(a[:n]), max(0.0, float(z @ z) - score), share[n - 1])
            for end, n, a, score, share in zip(
                ends[best].tolist(),
                tree.level[ends[best]].tolist(),
                coefficients.tolist(),
                scores[best].tolist(),
                explained.tolist(),
                strict=True,
            )
        ]
        return tuple(routes), len(ends)

    def _along(self, z: Array, ends: NDArray[np.intp]) -> Array:
        """The products of one embedding with the directions of several paths, (n_paths, depth)."""
        return self.problem.along_images(ends, np.broadcast_to(z, (len(ends), len(z))))

    def _scores(self, along: Array, ends: NDArray[np.intp]) -> Array:
        """By how much paths lower the objective below the squared norm, (n_paths,)."""
        return np.asarray((along**2).sum(axis=1) - self.problem.anchor * self.problem.tree.level[ends])

    def routes(self, label: int) -> list[int]:
        """The path-tree nodes where the complete paths of a class end."""
        columns, first = self.model.paths_by_class
        own = columns[first[label] : first[label + 1] if label + 1 < len(first) else None]
        return [int(v) for v in self.model.hierarchy.path_tree.leaf_nodes[own]]

    def _rival(self, z: Array, concept: str, odds: NDArray[Any]) -> tuple[int, int]:
        """The most likely class below a concept, and where its best path through the concept ends."""
        model, tree, synset = self.model, self.model.hierarchy.path_tree, self.model.hierarchy.index(concept)
        below = np.flatnonzero(model.classes_below[:, [synset]].toarray()[:, 0])
        likely = below[odds[below] == odds[below].max()]  # several, where their probabilities are negligible
        ends = [v for c in likely.tolist() for v in self.routes(c) if synset in tree.synset[self.nodes(v)]]
        end = self.best_route(z, ends)
        rival = int(model.class_of_synset[tree.synset[end]])
        while model.options.max_steps and tree.level[end] > model.options.max_steps:
            end = int(tree.parent[end])
        return rival, end

    def _sum(self, node: int, label: int, values: Array, square: float) -> Contributions:
        """The record of a class's score: from the values of concepts or, with a head, from their coefficients."""
        constant = 0.0
        if self.model.head is not None:
            weights, constant = self._logit(label)
            values = values * weights[self.edges(node)]
        parts = zip(*self.path(node), values.tolist(), strict=True)
        total, kind = constant + float(values.sum()), "path" if self.model.head is None else "logit"
        concepts = tuple(Contribution(*part) for part in parts)
        return Contributions(*self.classes[label], kind, concepts, constant, total, float(square))  # type: ignore[arg-type]

    def by_name(self, x: NDArray[Any], node: int) -> Array:
        """The word part of each coefficient on the path to a node, (n_steps,); the rest is the picture part.

        A coefficient is ``gain @ z + prior``, and the product is a sum over the two blocks of z. The prior expects 1 of
        an image that is exactly the concept, to which either part of the atom contributes by its squared norm.
        """
        z, first, (gain, prior) = self.metric(x), self.model.dictionary.n_pictures, self.problem.affine(node)
        squares = self.model.dictionary.atoms[self.edges(node)] ** 2
        shares = squares[:, first:].sum(axis=1) / np.maximum(squares.sum(axis=1), 1e-300)
        return np.asarray(gain[:, first:] @ z[first:] + prior * shares)

    def name_share(self, x: NDArray[Any], label: int) -> float:
        """By how much words favour a class over the average class, as a share of what both blocks do."""
        z, favours = self.metric(x), []
        for part in (slice(self.model.dictionary.n_pictures), slice(self.model.dictionary.n_pictures, None)):
            leaves = self.model.dictionary.synset_embeddings[self.model.leaf_index, part]
            scores = 2.0 * leaves @ z[part] - np.einsum("ij,ij->i", leaves, leaves)
            favours.append(float(scores[label] - scores.mean()))
        return favours[1] / (sum(favours) or 1.0)

    def _coefficients(self, z: Array, node: int) -> Array:
        gain, prior = self.problem.affine(node)
        return gain @ z + prior

    def _products(self, z: Array, nodes: NDArray[np.int32]) -> Array:
        directions, offset = self.problem.path_directions(nodes)
        return directions @ z + offset

    def _logit(self, label: int) -> tuple[Array, float]:
        """Weights and intercept of a class's logit; for two classes scikit-learn only stores those of the second."""
        head: Any = self.model.head
        if not hasattr(head, "coef_"):
            raise HCEPError(f"the head, a {type(head).__name__}, is not linear: its scores are not sums over concepts")
        coef, intercept = np.atleast_2d(np.asarray(head.coef_, dtype=np.float64)), np.ravel(head.intercept_)
        row, factor = (label, 1.0) if len(coef) > 1 else (0, float(label))
        return factor * coef[row], factor * float(intercept[row])

    def _change(self, x: NDArray[Any], node: int, other: int, n: int) -> tuple[Array, Array | None]:
        """Between two paths: below the fork, after n concepts, the products of one side compete with the other's."""
        own, rival = self.nodes(node)[n:], self.nodes(other)[n:]
        directions, offset = self.problem.path_directions(np.concatenate([own, rival]))
        signs = np.repeat([1.0, -1.0], [len(own), len(rival)])
        start, pulled = self._pulled(x, directions)
        if self.model.options.signed:
            return start, None
        constant = self.problem.anchor * float(signs.sum())
        return start, smallest_change(pulled, directions @ self.metric(x) + offset, signs, constant)

    def _logit_change(self, x: NDArray[Any], node: int, label: int, rival: int) -> tuple[Array, Array | None]:
        """Between two logits on one path, which are linear in the embedding."""
        (ours, a), (theirs, b), (gain, prior) = self._logit(label), self._logit(rival), self.problem.affine(node)
        weights = (ours - theirs)[self.edges(node)]
        start, pulled = self._pulled(x, (weights @ gain)[None])
        margin, square = float(weights @ (gain @ self.metric(x) + prior) + a - b), float(pulled[0] @ pulled[0])
        return start, None if margin < 0 or square == 0 else -margin / square * pulled[0]

    def _pulled(self, x: NDArray[Any], directions: Array) -> tuple[Array, Array]:
        """The embedding before the affine part of the transform, and directions for products with that embedding."""
        transform = self.model.dictionary.transform
        return transform.prepared(x[None].astype(np.float64))[0], transform.pulled_back(directions)[0]

    def _flip(self, start: Array, change: Array) -> Flip:
        """What a change amounts to, and the model's answer just beyond it."""
        beyond = self.model.dictionary.transform.after_unit_norm((start + (1.0 + 1e-6) * change)[None])
        norm, label = float(np.linalg.norm(change)), int(self.in_metric.predict(beyond)[0])
        share = norm / (float(np.linalg.norm(start)) or 1.0)
        return Flip(norm, share, not self.model.dictionary.transform.is_affine, *self.classes[label])


def n_shared(path: Sequence[str], other: Sequence[str]) -> int:
    """How many concepts two paths share before they part."""
    pairs = enumerate(zip(path, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(path), len(other)))


def smallest_change(directions: Array, products: Array, signs: Array, constant: float) -> Array | None:
    """The shortest c at which ``f = sum_i signs_i (products_i + <directions_i, c>)**2 - constant`` vanishes.

    None where f is not positive to begin with, or always is. Directions are (k, n_dims), products and signs (k,). As c
    is in the span of the directions, the problem has at most k dimensions. There, with ``M = sum signs q q^T`` and g
    half the gradient at 0, the shortest c is ``-mu (I + mu M)^-1 g`` for the one mu at which f vanishes: f falls with
    mu as long as ``I + mu M`` is positive definite. (J. J. Moré, "Generalizations of the trust region problem", 1993.)

    >>> smallest_change(np.eye(2), np.array([3.0, 1.0]), np.array([1.0, -1.0]), 0.0).round(6)
    array([-1.,  1.])
    """
    from scipy.optimize import brentq

    axes, lengths, rows = np.linalg.svd(directions, full_matrices=False)
    kept = lengths > 1e-10 * lengths.max(initial=1e-300)
    inside, rows = axes[:, kept] * lengths[kept], rows[kept]

    def value(t: Array) -> float:
        return float(signs @ (products + inside @ t) ** 2 - constant)

    bends, turned = np.linalg.eigh(inside.T @ (signs[:, None] * inside))
    slope = turned.T @ (inside.T @ (signs * products))
    last = -1.0 / bends[0] if len(bends) and bends[0] < -1e-12 else np.inf

    def at(theta: float) -> Array:
        mu = theta * last if np.isfinite(last) else theta / (1.0 - theta)
        return np.asarray(turned @ (-mu * slope / (1.0 + mu * bends)))

    end = at(1.0 - 1e-12)
    if value(np.zeros(len(rows))) <= 0:
        return None
    if value(end) <= 0:
        end = at(float(brentq(lambda theta: value(at(theta)), 0.0, 1.0 - 1e-12, xtol=1e-15, rtol=1e-14)))
    elif np.isfinite(last):  # the gradient has no part along the axis of strongest bend: either way along it will do
        end = end + turned[:, 0] * np.sqrt(value(end) / -bends[0])
    else:
        return None
    return np.asarray(end @ rows)
