"""Why this class and not another: scores as sums over concepts, and the smallest change that would turn the answer."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hcep.classify.path_model import PathModel
from hcep.dictionary import ConceptDictionary, EmbeddingTransform, PathProblem
from hcep.embeddings import EmbeddingStore
from hcep.errors import HCEPError
from hcep.explain.neighbours import TrainingPhoto, nearest_photos
from hcep.explain.where import EvidenceMap
from hcep.pursuit.result import path_of

Array = NDArray[np.float64]


class Contribution(Struct, frozen=True):
    """What one concept adds to the score of a class."""

    synset: str
    name: str
    value: float


class Contributions(Struct, frozen=True):
    """A class's score as a sum: values of concepts, from the root down, and constant add up to the total.

    Of a path it is by how much the path lowers the objective below `square`, the image's squared norm in the model's
    metric, each concept by what it adds to those above it (less the anchor's price of a step); with a linear head it is
    the logit, and the constant its intercept.
    """

    label: str = msgspec.field(name="class")
    name: str
    kind: Literal["path", "logit"]
    concepts: tuple[Contribution, ...]
    constant: float
    total: float
    square: float

    def shown(self, value: float) -> str:
        """A value for people: of a path as a share of the image."""
        if self.kind == "logit":
            return f"{value:+.2f}"
        return f"{round(100 * value / (self.square or 1.0), 1) + 0.0:+.1f} %"

    def line(self, first: int = 0) -> str:
        """The concepts in one line, from some position on: ``animal +31.2 %, cat +4.0 %``."""
        told = [f"{one.name} {self.shown(one.value)}" for one in self.concepts[first:]]
        return ", ".join([*told, *([f"else {self.shown(self.constant)}"] if self.constant else [])]) or "nothing more"


@dataclass(frozen=True, eq=False)
class Flip:
    """The smallest change of the embedding, in norm, at which a class is as good as the one that was chosen."""

    change: Array = field(repr=False)  #: (n_dims,) array to add to the embedding
    #: norm, share: of the change, and as a share of the embedding's own norm
    norm: float
    share: float
    prepared: bool  #: whether it changes the embedding after the model's power and unit norm; else the raw one
    #: label, name: what the model says just beyond: the other class, or a third
    label: str
    name: str


@dataclass(frozen=True, eq=False)
class WhyNot:
    """One image's class against another."""

    #: chosen, rival: their totals differ by `margin`, concept by concept
    chosen: Contributions
    rival: Contributions
    shared: tuple[str, ...]  #: names of the concepts that both paths have, from the root down
    #: path, rival_path: names along the two paths; the rival's is its best for this image
    path: tuple[str, ...]
    rival_path: tuple[str, ...]
    probability: float
    rival_probability: float
    rival_node: int  #: the path-tree node of the rival's path
    #: names of the rival's concepts that the image points away from, where the model's rule is signed
    barred: tuple[str, ...] = ()
    #: none where the rule is signed, no change would do, or the rival's score is the higher one already
    flip: Flip | None = None
    map: EvidenceMap | None = None  #: what in the picture speaks for the chosen class rather than the other
    #: training photos nearest to the image, of the chosen class and of the other, where they were asked for
    photos: tuple[tuple[TrainingPhoto, ...], ...] = ()

    @property
    def margin(self) -> float:
        """By how much the chosen class's score is higher: ``objective(rival) - objective(chosen)`` of paths."""
        return self.chosen.total - self.rival.total

    def lines(self) -> list[str]:
        """The comparison for a reader."""
        a, b, n = self.chosen, self.rival, len(self.shared)
        where = f"below {self.shared[-1]}" if self.shared else "at the first step"
        own, other = (path[n] if n < len(path) else "nothing more" for path in (self.path, self.rival_path))
        first = n if a.kind == "path" else 0
        told = [
            f"Why {a.name} and not {b.name}? Their paths part {where}: {own} here, {other} there.",
            f"for {a.name}: {a.line(first)}",
            f"for {b.name}: {b.line(first)}",
            f"in all {a.shown(self.margin)}{' of the image' if a.kind == 'path' else ''} for {a.name}"
            + (", as what is above counts for both" if first else ""),
        ]
        if self.barred:
            told.append(f"the image points away from {', '.join(self.barred)}, which rules {b.name} out")
        if self.flip is not None:
            then = "" if self.flip.name == b.name else f"; the answer would then be {self.flip.name}"
            told.append(f"a change of {100 * self.flip.share:.1f} % of the embedding would make the two equal{then}")
        for side, photos in zip((a, b), self.photos, strict=False):
            files = ", ".join(photo.file for photo in photos) or "none"
            told.append(f"nearest training photos of {side.name}: {files}")
        return told

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, eq=False)
class Evidence:
    """The scores of a model's classes, opened: one image at a time, in double precision."""

    model: PathModel

    def contributions(self, x: NDArray[Any], node: int, label: int) -> Contributions:
        """The score of a class, a position in ``model.classes``, for a raw embedding whose path ends in `node`."""
        z, ids, constant = self.metric(x), path_of(self.model.dictionary, node), 0.0
        if self.model.head is None:
            directions, offset = self.problem.path_directions(self.nodes(node))
            values = (directions @ z + offset) ** 2 - self.model.options.anchor
        else:
            weights, constant = self._logit(label)
            gain, prior = self.problem.affine(node)
            values = (gain @ z + prior) * weights[self.edges(node)]
        named = zip(ids, map(self.model.hierarchy.name, ids), values.tolist(), strict=True)
        told, total = tuple(Contribution(*one) for one in named), constant + float(values.sum())
        kind: Literal["path", "logit"] = "path" if self.model.head is None else "logit"
        return Contributions(*self.called(label), kind, told, constant, total, float(z @ z))

    def why_not(
        self, x: NDArray[Any], node: int, label: int, concept: str, training: EmbeddingStore | None = None
    ) -> WhyNot:
        """The class of an image, whose path ends in `node`, against a concept or class by id, name or synonym.

        `training` has photos to show of both. Raises HCEPError: a concept that is unknown or on the path already, a
        head that is not linear.
        """
        model, h, path = self.model, self.model.hierarchy, path_of(self.model.dictionary, node)
        wanted = self.meant(concept)
        if self.is_answer(concept, node, label):
            raise HCEPError(f"{h.name(wanted)!r} is what this image was taken for; ask about another concept")
        forced, odds = model.infer(x[None], limits=model.limits(wanted)), model.infer(x[None]).probabilities[0]
        other, rival = int(forced.paths.nodes[0]), int(forced.class_index[0])
        names, rival_names = (tuple(map(h.name, ids)) for ids in (path, forced.paths.paths[0]))
        pairs = zip(path, forced.paths.paths[0], strict=False)
        n = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(names), len(rival_names)))
        against = zip(rival_names, forced.paths.coefficients(0), strict=True)
        linear, both = model.head is not None, [self.called(c)[0] for c in (label, rival)]
        photos = [] if training is None else nearest_photos(training, model, np.stack([x, x]), classes=both)
        return WhyNot(
            chosen=self.contributions(x, node, label),
            rival=self.contributions(x, node if linear else other, rival),
            shared=names[:n],
            path=names,
            rival_path=rival_names,
            probability=float(odds[label]),
            rival_probability=float(odds[rival]),
            rival_node=other,
            barred=tuple(name for name, a in against if a <= 0) if model.options.signed else (),
            flip=self._logit_flip(x, node, label, rival) if linear else self._flip(x, node, other, n),
            photos=tuple(photos),
        )

    def meant(self, concept: str) -> str:
        """The id of a class or concept by id, name or synonym; of a class that is an inner concept, its own leaf."""
        h = self.model.hierarchy
        return h.find(h.own_leaves.get(concept, concept))

    def is_answer(self, concept: str, node: int, label: int) -> bool:
        """Whether a class or concept is on the path to a node, or is the class."""
        taken = (*path_of(self.model.dictionary, node), str(self.model.leaves[label]), self.model.hierarchy.root)
        return self.meant(concept) in taken

    def metric(self, x: NDArray[Any]) -> Array:
        """A raw embedding in the dictionary's space."""
        return np.asarray(self.model.dictionary.transform(x[None].astype(np.float64))[0])

    @cached_property
    def in_metric(self) -> PathModel:
        """The model for embeddings that are in the dictionary's space already."""
        d = self.model.dictionary
        plain = ConceptDictionary(d.hierarchy, d.synset_embeddings, EmbeddingTransform())
        return replace(self.model, dictionary=plain)

    def nodes(self, node: int) -> NDArray[np.int32]:
        """Along the path to a node."""
        return np.asarray(self.problem.nodes_of_path[node][: self.problem.tree.level[node]])

    def edges(self, node: int) -> NDArray[np.int32]:
        """The atoms along the path to a node, by number."""
        return self.model.hierarchy.path_tree.edge[self.nodes(node)]

    @property
    def problem(self) -> PathProblem:
        return self.model.dictionary.path_problem(self.model.options.anchor)

    def called(self, label: int) -> tuple[str, str]:
        """Label and name of a class by its position."""
        return str(self.model.classes[label]), self.model.hierarchy.name(str(self.model.leaves[label]))

    def _logit(self, label: int) -> tuple[Array, float]:
        """Weights and intercept of a class's logit; of two classes the second's alone, as scikit-learn keeps it."""
        head: Any = self.model.head
        if not hasattr(head, "coef_"):
            raise HCEPError(f"the head, a {type(head).__name__}, is not linear: its scores have no parts")
        coef, intercept = np.atleast_2d(np.asarray(head.coef_, dtype=np.float64)), np.ravel(head.intercept_)
        row, factor = (label, 1.0) if len(coef) > 1 else (0, float(label))
        return factor * coef[row], factor * float(intercept[row])

    def _flip(self, x: NDArray[Any], node: int, other: int, n: int) -> Flip | None:
        """Between two paths: below the fork, after n concepts, the products of one side decide against the other's."""
        own, rival = self.nodes(node)[n:], self.nodes(other)[n:]
        directions, offset = self.problem.path_directions(np.concatenate([own, rival]))
        signs = np.repeat([1.0, -1.0], [len(own), len(rival)])
        start, pulled = self._pulled(x, directions)
        constant = self.model.options.anchor * float(signs.sum())
        if self.model.options.signed:
            return None
        return self._told(start, smallest_change(pulled, directions @ self.metric(x) + offset, signs, constant))

    def _logit_flip(self, x: NDArray[Any], node: int, label: int, rival: int) -> Flip | None:
        """Between two logits on one path, which are linear in the embedding."""
        (ours, a), (theirs, b), (gain, prior) = self._logit(label), self._logit(rival), self.problem.affine(node)
        weights = (ours - theirs)[self.edges(node)]
        start, pulled = self._pulled(x, (weights @ gain)[None])
        margin = float(weights @ (gain @ self.metric(x) + prior) + a - b)
        square = float(pulled[0] @ pulled[0])
        return self._told(start, None if margin < 0 or square == 0 else -margin / square * pulled[0])

    def _pulled(self, x: NDArray[Any], directions: Array) -> tuple[Array, Array]:
        """The embedding before the affine part of the transform, and directions as products with it take them."""
        transform = self.model.dictionary.transform
        linear = transform.scale * directions[:, : directions.shape[1] - transform.n_constants]
        start = transform.prepared(x[None].astype(np.float64))[0]
        return start, linear if transform.whitener is None else linear @ transform.whitener.T

    def _told(self, start: Array, change: Array | None) -> Flip | None:
        if change is None:
            return None
        beyond = self.model.dictionary.transform.after_unit_norm((start + (1.0 + 1e-6) * change)[None])
        norm, label = float(np.linalg.norm(change)), int(self.in_metric.predict(beyond)[0])
        share = norm / (float(np.linalg.norm(start)) or 1.0)
        return Flip(change, norm, share, not self.model.dictionary.transform.is_affine, *self.called(label))


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
