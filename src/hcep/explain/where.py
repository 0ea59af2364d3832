"""Where in the picture each concept is: for mean-pooled encoders, each position's exact share of a coefficient.

For other encoders occlusion gives approximate shares: how much the number drops when a part of the picture is covered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.errors import HCEPError, near_matches, quote, quoted

if TYPE_CHECKING:
    from hcep.embeddings import Encoder
    from hcep.explain.explainer import EncodedImage

Array = NDArray[np.float64]
#: Rows and columns of the parts that occlusion covers one after the other.
GRID = 7


@dataclass(frozen=True, eq=False)
class EvidenceMap:
    """How much each position of the picture adds to a number."""

    shares: Array  #: (height, width) float64; the shares of the positions, top left first
    constant: float  #: the part that no position adds: the number for an image without any activation
    #: whether the shares are exact. They always add up; if they are approximate, the rest is in the constant.
    exact: bool = True

    @property
    def total(self) -> float:
        """The number itself: the sum of the shares and the constant."""
        return float(self.shares.sum() + self.constant)


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """The maps of one photo."""

    concepts: dict[str, EvidenceMap]  #: by the concepts' ids, from the root down
    names: tuple[str, ...]  #: names of the concepts, in the same order
    margins: dict[str, EvidenceMap]  #: evidence for the chosen class rather than a rival, by the rival's label
    #: left, top, right and bottom of the part that the model sees, in pixels of the upright photo
    region: tuple[float, float, float, float]
    size: tuple[int, int]  #: width and height of the photo
    how: str  #: ``"exact"``, ``"approximate"`` or ``"occlusion"``
    #: of each object: the evidence for it rather than for the largest other object
    objects: tuple[EvidenceMap, ...] = ()

    @property
    def exact(self) -> bool:
        return self.how == "exact"

    def of(self, concept: str) -> EvidenceMap:
        """The map of a concept of the path, by id or name."""
        by_name = dict(zip(self.names, self.concepts.values(), strict=True))
        evidence = self.concepts.get(concept) or by_name.get(concept)
        if evidence is None:
            raise HCEPError(
                f"{quote(concept)} is not on the path of this image, which has {quoted(self.names, 20)}."
                + near_matches(concept, [*self.concepts, *self.names])
            )
        return evidence


#: Paths that stay prepared.
KEPT_PATHS = 64


class _OpenPath:
    """The numbers of one path as functions of the embedding z in the dictionary's space."""

    def __init__(self, problem: PathProblem, node: int) -> None:
        self.gain, self.prior = problem.affine(node)
        self.directions, self.offset = problem.path_directions(problem.nodes_of_path[node][: len(self.gain)])
        self.anchor = problem.anchor

    def coefficients(self, z: Array) -> Array:
        return z @ self.gain.T + self.prior

    def scores(self, z: Array) -> Array:
        """By how much the path lowers the objective of every row of z below its squared norm."""
        return np.asarray(((z @ self.directions.T + self.offset) ** 2 - self.anchor).sum(axis=1))

    def reconstruction(self, z: Array) -> Array:
        """The path's part of the embedding at its best coefficients, which is half the gradient of its score."""
        return (z @ self.directions.T + self.offset) @ self.directions


class PathMaps:
    """Makes maps for the paths of one dictionary and anchor; the last paths stay prepared."""

    def __init__(self, dictionary: ConceptDictionary, anchor: float) -> None:
        self.dictionary, self.problem = dictionary, dictionary.path_problem(anchor)
        self._paths: dict[int, _OpenPath] = {}

    def image_maps(
        self, image: EncodedImage, encoder: Encoder, node: int, rivals: Mapping[str, int], objects: Sequence[int] = ()
    ) -> ImageMaps:
        """The maps of a photo whose path ends in `node`, with margins over rivals: path-tree nodes by label.

        `objects` are the ends of the paths that the photo is a sum of, the largest share first.
        """
        exact, h, tree = getattr(encoder, "maps_are_exact", False), self.dictionary.hierarchy, self.problem.tree
        if image.features is not None:
            vector = None if exact else image.embedding
            maps_of = partial(self.maps, features=image.features, vector=vector)
        else:
            assert image.pixels is not None
            maps_of = partial(self.occlusion_maps, vectors=occluded(encoder, image.pixels))
        maps, several = maps_of(node, list(rivals.values())), enumerate(objects if len(objects) > 1 else ())
        apart = [maps_of(end, [objects[0 if i else 1]])[-1] for i, end in several]
        inexact = "occlusion" if image.features is None else "approximate"
        ids = [h.ids[s] for s in tree.synset[self.problem.nodes_of_path[node][: tree.level[node]]]]
        return ImageMaps(
            concepts=dict(zip(ids, maps[: len(ids)], strict=True)),
            names=tuple(map(h.name, ids)),
            margins=dict(zip(rivals, maps[len(ids) :], strict=True)),
            region=_seen_region(encoder, *image.size),
            size=image.size,
            how="exact" if all(one.exact for one in maps) else inexact,
            objects=tuple(apart),
        )

    def maps(
        self, node: int, rivals: Sequence[int], features: NDArray[np.floating], vector: NDArray[Any] | None = None
    ) -> list[EvidenceMap]:
        """A map per concept of a path, then one of its margin over each rival path; paths by their path-tree nodes.

        The shares and the constant of a map add up to the concept's coefficient ``a = (D D^T + lambda I)^-1
        (D z + lambda 1)``: as z is affine in the embedding, which is the mean of the features f_ij, position ij adds
        exactly ``G T(f_ij) / (height * width)``, T the linear part of the transform. A margin,
        ``objective(rival) - objective(path)``, is quadratic in the embedding, so integrated gradients (Sundararajan,
        Taly, Yan, ICML 2017) from the mean of the classes are exact with the mean of the gradients at both ends; the
        constant is the margin at the mean of the classes.

        Parameters
        ----------
        features : (n_dims, height, width); the feature map of the image
        vector : the image's raw embedding, if it is not the mean of `features`; the maps are then approximate
        """
        positions, rest = self._parts(features)
        own, start, whole = self._path(node), self._start, positions.sum(axis=0) + rest
        parts = [*zip(own.gain @ positions.T, (own.gain @ rest + own.prior).tolist(), strict=True)]
        for other in map(self._path, rivals):
            # The gradient of the objective is 2 (z - D^T a); the images cancel in the difference.
            slope = sum(own.reconstruction(end) - other.reconstruction(end) for end in (start, whole))
            shares = positions @ slope + (rest - start) @ slope / len(positions)
            parts.append((shares, (own.scores(start[None]) - other.scores(start[None])).item()))
        totals = [None] * len(parts) if vector is None else self._numbers(node, rivals, vector[None])[:, 0].tolist()
        maps, exact = [], vector is None and self.dictionary.transform.power == 1.0
        for (shares, constant), total in zip(parts, totals, strict=True):
            left_over = 0.0 if total is None else total - constant - float(shares.sum())
            maps.append(EvidenceMap(shares.reshape(features.shape[1:]), constant + left_over, exact))
        return maps

    def occlusion_maps(self, node: int, rivals: Sequence[int], vectors: NDArray[Any]) -> list[EvidenceMap]:
        """As `maps`, from the raw embeddings that `occluded` gives."""
        numbers = self._numbers(node, rivals, vectors)
        lost, whole = numbers[:, :1] - numbers[:, 1:], numbers[:, 0]
        rows = zip(lost, (whole - lost.sum(axis=1)).tolist(), strict=True)
        return [EvidenceMap(row.reshape(GRID, GRID), constant, exact=False) for row, constant in rows]

    def _parts(self, features: NDArray[np.floating]) -> tuple[Array, Array]:
        """Every position's part of the embedding in the dictionary's space, and the rest; they add up to it.

        The transform is affine except for the unit norm, whose factor is that of the whole image.
        """
        transform, n_dims = self.dictionary.transform, len(features)
        positions = features.astype(np.float64).reshape(n_dims, -1).T / features[0].size
        if transform.power != 1.0:
            # Each position gets its share of a feature's activation, times the feature's power. The shares add up, but
            # a position alone would count for more, so they are not the only possible ones.
            total = np.abs(positions.sum(axis=0))
            positions = positions * np.where(total > 0.0, np.maximum(total, 1e-300) ** (transform.power - 1.0), 0.0)
        if transform.unit_norm:
            positions = positions / (np.linalg.norm(positions.sum(axis=0)) or 1.0)
        nothing = transform.after_unit_norm(np.zeros((1, n_dims)))
        return transform.after_unit_norm(positions) - nothing, nothing[0]

    def _numbers(self, node: int, rivals: Sequence[int], vectors: NDArray[Any]) -> Array:
        """The mapped numbers for raw embeddings: a row per coefficient of the path and per margin over a rival."""
        z, own = self.dictionary.transform(vectors.astype(np.float64)), self._path(node)
        margins = [(own.scores(z) - other.scores(z))[None] for other in map(self._path, rivals)]
        return np.concatenate([own.coefficients(z).T, *margins])

    def _path(self, node: int) -> _OpenPath:
        if node not in self._paths:
            if len(self._paths) >= KEPT_PATHS:  # each has two vectors per level, and a server meets all paths
                self._paths.clear()
            self._paths[node] = _OpenPath(self.problem, node)
        return self._paths[node]

    @cached_property
    def _start(self) -> Array:
        """The image from which margins start: the mean of the classes."""
        means: Array = self.dictionary.synset_embeddings[self.dictionary.hierarchy.leaf_index].mean(axis=0)
        return means


def occluded(encoder: Encoder, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of a preprocessed image, and of copies with one part of a grid each in the image's mean colour."""
    _, height, width = pixels.shape
    grey = pixels.mean(axis=(1, 2), keepdims=True)
    rows, columns = (np.linspace(0, side, GRID + 1).astype(int) for side in (height, width))
    copies = np.repeat(pixels[None], GRID * GRID + 1, axis=0)
    for i in range(GRID):
        for j in range(GRID):
            copies[1 + i * GRID + j, :, rows[i] : rows[i + 1], columns[j] : columns[j + 1]] = grey
    return np.concatenate([encoder.encode_images(copies[start : start + 16]) for start in range(0, len(copies), 16)])


def _seen_region(encoder: Encoder, width: int, height: int) -> tuple[float, float, float, float]:
    """The part of a photo that the model sees; all of it if the preprocessing is not one of ours."""
    from hcep.embeddings.preprocessing import Preprocessing, PreprocessingError

    try:
        return Preprocessing.from_dict(encoder.preprocessing).region(width, height)
    except (PreprocessingError, TypeError):
        return 0.0, 0.0, float(width), float(height)
