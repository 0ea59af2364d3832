"""Where in the picture each concept is: exact shares of every position in a coefficient, for mean-pooled encoders.

Of other encoders occlusion gives approximate ones: what the number loses when a part of the picture is painted over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.embeddings import Encoder
from hcep.errors import HCEPError, near_matches, quoted

Array = NDArray[np.float64]
Atoms = NDArray[np.integer]
#: Rows and columns of the parts that occlusion paints over.
GRID = 7


@dataclass(frozen=True, eq=False)
class EvidenceMap:
    """What each position of the picture adds to a number."""

    shares: Array  #: (height, width) float64; the positions' shares, top left first
    constant: float  #: what no position adds: the number of an image without any activation
    #: whether the shares are exact; False where the encoder's vector is not the mean of its feature map, or occlusion
    #: stands in for one. They add up all the same: what is left over is in the constant.
    exact: bool = True

    @property
    def total(self) -> float:
        """The number itself: the shares and the constant together."""
        return float(self.shares.sum() + self.constant)


class _OpenPath:
    """One path of a problem, opened: what its numbers are as functions of the embedding z in the dictionary's space."""

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
        """The path's part of the embedding at its best coefficients, and half the slope of its score."""
        return (z @ self.directions.T + self.offset) @ self.directions


class PathMaps:
    """Maker of maps for the paths of one dictionary and a pursuit's anchor; what a path needs is solved once."""

    def __init__(self, dictionary: ConceptDictionary, anchor: float) -> None:
        self.dictionary, self.problem = dictionary, dictionary.path_problem(anchor)
        self._paths: dict[int, _OpenPath] = {}

    def maps(
        self, chosen: Atoms, rivals: Sequence[Atoms], features: NDArray[np.floating], vector: NDArray[Any] | None = None
    ) -> tuple[list[EvidenceMap], list[EvidenceMap]]:
        """A map per concept of a path, and one of its margin over each rival path, by their atoms from the root down.

        `features` is a feature map of the image, (n_dims, height, width); where the image's raw embedding is not its
        mean it is given as `vector`, and maps are approximate.
        """
        positions, rest = self._parts(features)
        own, start, whole = self._path(chosen), self._start, positions.sum(axis=0) + rest
        constants = (own.gain @ rest + own.prior).tolist()
        found = [*zip(own.gain @ positions.T, constants, strict=True)]
        for other in map(self._path, rivals):
            # The gradient of the objective is 2 (z - D^T a); the images cancel in the difference.
            slope = sum(own.reconstruction(end) - other.reconstruction(end) for end in (start, whole))
            shares = positions @ slope + (rest - start) @ slope / len(positions)
            found.append((shares, (own.scores(start[None]) - other.scores(start[None])).item()))
        totals = [None] * len(found) if vector is None else self._numbers(chosen, rivals, vector[None])[:, 0].tolist()
        maps, exact = [], vector is None and self.dictionary.transform.power == 1.0
        for (shares, constant), total in zip(found, totals, strict=True):
            left_over = 0.0 if total is None else total - constant - float(shares.sum())
            maps.append(EvidenceMap(shares.reshape(features.shape[1:]), constant + left_over, exact))
        return maps[: len(chosen)], maps[len(chosen) :]

    def occlusion_maps(
        self, chosen: Atoms, rivals: Sequence[Atoms], vectors: NDArray[Any], shape: tuple[int, int]
    ) -> tuple[list[EvidenceMap], list[EvidenceMap]]:
        """As `maps`, from the raw embeddings of the image and of its copies with one part each painted over."""
        numbers = self._numbers(chosen, rivals, vectors)
        lost, whole = numbers[:, :1] - numbers[:, 1:], numbers[:, 0]
        rows = zip(lost, (whole - lost.sum(axis=1)).tolist(), strict=True)
        maps = [EvidenceMap(row.reshape(shape), constant, exact=False) for row, constant in rows]
        return maps[: len(chosen)], maps[len(chosen) :]

    def lowest(self, paths: Sequence[Atoms], vector: NDArray[Any]) -> int:
        """Which of some paths has the lowest objective for a raw embedding."""
        z = self.dictionary.transform(np.atleast_2d(vector).astype(np.float64))
        return int(np.argmax([self._path(path).scores(z)[0] for path in paths]))

    def _parts(self, features: NDArray[np.floating]) -> tuple[Array, Array]:
        """Every position's part of the embedding in the dictionary's space, and the rest: together they are it.

        The transform is affine but for the unit norm, whose factor is that of the whole image.
        """
        transform, n_dims = self.dictionary.transform, len(features)
        positions = features.astype(np.float64).reshape(n_dims, -1).T / features[0].size
        if transform.power != 1.0:
            # Each position's share of a feature's activation, of the feature to the power: they add up, but a position
            # alone would be worth more, so that these shares are not the only ones possible.
            total = np.abs(positions.sum(axis=0))
            positions = positions * np.where(total > 0.0, np.maximum(total, 1e-300) ** (transform.power - 1.0), 0.0)
        if transform.unit_norm:
            positions = positions / (np.linalg.norm(positions.sum(axis=0)) or 1.0)
        nothing = transform.after_unit_norm(np.zeros((1, n_dims)))
        return transform.after_unit_norm(positions) - nothing, nothing[0]

    def _numbers(self, chosen: Atoms, rivals: Sequence[Atoms], vectors: NDArray[Any]) -> Array:
        """What maps are of, for raw embeddings: coefficients of a path, margins over its rivals, a column each."""
        z, own = self.dictionary.transform(vectors.astype(np.float64)), self._path(chosen)
        margins = [(own.scores(z) - other.scores(z))[None] for other in map(self._path, rivals)]
        return np.concatenate([own.coefficients(z).T, *margins])

    def _path(self, atoms: Atoms) -> _OpenPath:
        node = self.problem.tree.node_along(atoms)
        if node not in self._paths:
            self._paths[node] = _OpenPath(self.problem, node)
        return self._paths[node]

    @cached_property
    def _start(self) -> Array:
        """What counts as "nothing to see" in margins: the mean of the classes."""
        means: Array = self.dictionary.synset_embeddings[self.dictionary.hierarchy.leaf_index].mean(axis=0)
        return means


def concept_maps(
    dictionary: ConceptDictionary, atoms: Atoms, anchor: float, features: NDArray[np.floating]
) -> list[EvidenceMap]:
    """A map per concept of a path, whose shares and constant add up to the concept's coefficient.

    With ``a = (D D^T + lambda I)^-1 (D z + lambda 1)`` and z affine in the embedding x, which is the mean of the
    features f_ij, position ij adds exactly ``G T(f_ij) / (height * width)``, T the linear part of the transform.

    Parameters
    ----------
    atoms : the path's atoms, from the root down
    anchor : of the pursuit that found it
    features : (n_dims, height, width); the feature map whose mean over positions is the image's raw embedding
    """
    return PathMaps(dictionary, anchor).maps(atoms, (), features)[0]


def margin_map(
    dictionary: ConceptDictionary, chosen: Atoms, rival: Atoms, anchor: float, features: NDArray[np.floating]
) -> EvidenceMap:
    """What in the picture speaks for one path rather than another: positive for the chosen one.

    The margin ``objective(rival) - objective(chosen)`` is quadratic in the embedding, so integrated gradients
    (Sundararajan, Taly, Yan, ICML 2017) from the mean of the classes are exact with the mean of the gradients at both
    ends. The constant is the margin there.

    Parameters
    ----------
    chosen, rival : the two paths' atoms
    features : (n_dims, height, width)
    """
    return PathMaps(dictionary, anchor).maps(chosen, [rival], features)[1][0]


def occluded(encoder: Encoder, pixels: NDArray[np.float32], grid: int = GRID) -> NDArray[np.float32]:
    """Vectors of a preprocessed image and of its copies with one part of a grid each in the image's mean colour."""
    _, height, width = pixels.shape
    grey = pixels.mean(axis=(1, 2), keepdims=True)
    rows, columns = (np.linspace(0, side, grid + 1).astype(int) for side in (height, width))
    copies = np.repeat(pixels[None], grid * grid + 1, axis=0)
    for i in range(grid):
        for j in range(grid):
            copies[1 + i * grid + j, :, rows[i] : rows[i + 1], columns[j] : columns[j + 1]] = grey
    return np.concatenate([encoder.encode_images(copies[start : start + 16]) for start in range(0, len(copies), 16)])


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """The maps of one photo."""

    concepts: dict[str, EvidenceMap]  #: by the concepts' ids, from the root down
    names: tuple[str, ...]  #: of the concepts, in the same order
    margins: dict[str, EvidenceMap]  #: what speaks for the chosen class rather than a rival, by the rival's label
    #: left, top, right and bottom of what the model saw, in pixels of the upright photo
    region: tuple[float, float, float, float]
    size: tuple[int, int]  #: width and height of the photo
    occluded: bool = False  #: whether the maps are what is lost when parts of the photo are painted over

    @property
    def exact(self) -> bool:
        return all(one.exact for one in self.concepts.values())

    @property
    def how(self) -> str:
        """How they were made: ``"exact"``, ``"approximate"`` or ``"occlusion"``."""
        return "occlusion" if self.occluded else "exact" if self.exact else "approximate"

    def of(self, concept: str) -> EvidenceMap:
        """The map of a concept of the path, by id or name."""
        by_name = dict(zip(self.names, self.concepts.values(), strict=True))
        found = self.concepts.get(concept) or by_name.get(concept)
        if found is None:
            raise HCEPError(
                f"{concept!r} is not on the path of this image, which has {quoted(self.names, 20)}."
                + near_matches(concept, [*self.concepts, *self.names])
            )
        return found
