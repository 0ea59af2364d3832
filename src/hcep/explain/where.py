"""Where in the picture each concept is: exact shares of every position in a coefficient, for mean-pooled encoders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.path_basis import DEPENDENT

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EvidenceMap:
    """What each position of the picture adds to a number.

    Attributes
    ----------
    shares : (height, width) float64
        The positions' shares, top left first.
    constant : float
        What no position adds: the number of an image without any activation.
    exact : bool
        Whether the shares are exact; False where the encoder's vector is not the mean of its feature map.
    """

    shares: Array
    constant: float
    exact: bool = True

    @property
    def total(self) -> float:
        """The number itself: the shares and the constant together."""
        return float(self.shares.sum() + self.constant)


@dataclass(frozen=True, eq=False)
class _Solver:
    """Coefficients of a path, affine in the embedding z of the dictionary's space: ``a = G z + prior``."""

    atoms: Array
    gain: Array
    prior: Array

    def reconstruction(self, z: Array) -> Array:
        """The path's part of the embedding at its best coefficients."""
        return self.atoms.T @ (self.gain @ z + self.prior)

    def objective(self, z: Array, anchor: float) -> float:
        a = self.gain @ z + self.prior
        rest = z - self.atoms.T @ a
        return float(rest @ rest + anchor * ((a - 1.0) @ (a - 1.0)))


def _solver(atoms: Array, anchor: float) -> _Solver:
    """``G = (D D^T + lambda I)^-1 D``; an atom in the span of those above it has coefficient 0, as in the pursuit."""
    kept: list[int] = []
    for i, atom in enumerate(atoms):
        above = atoms[kept]
        rest = atom - above.T @ np.linalg.lstsq(above.T, atom, rcond=None)[0] if kept else atom
        if anchor > 0 or float(np.linalg.norm(rest)) > DEPENDENT * float(np.linalg.norm(atom)):
            kept.append(i)
    chosen = atoms[kept]
    inverse = np.linalg.inv(chosen @ chosen.T + anchor * np.eye(len(kept)))
    gain, prior = np.zeros_like(atoms), np.zeros(len(atoms))
    gain[kept], prior[kept] = inverse @ chosen, anchor * inverse.sum(axis=1)
    return _Solver(atoms, gain, prior)


def _linear_part(dictionary: ConceptDictionary, features: Array) -> tuple[Array, Array]:
    """Every position's part of the embedding in the dictionary's space, (height * width, n), and what is left of it.

    The transform is affine but for the unit norm, whose factor is that of the whole image.
    """
    n_dims, height, width = features.shape
    positions = features.reshape(n_dims, -1).T / (height * width)
    if dictionary.transform.unit_norm:
        positions = positions / (np.linalg.norm(positions.sum(axis=0)) or 1.0)
    nothing = dictionary.transform.after_unit_norm(np.zeros((1, n_dims)))
    return dictionary.transform.after_unit_norm(positions) - nothing, nothing[0]


def concept_maps(
    dictionary: ConceptDictionary, atoms: NDArray[np.integer], anchor: float, features: NDArray[np.floating]
) -> list[EvidenceMap]:
    """A map per concept of a path, whose shares and constant add up to the concept's coefficient.

    Parameters
    ----------
    dictionary : ConceptDictionary
    atoms : (length,) int
        The path's atoms, from the root down.
    anchor : float
        Of the pursuit that found it.
    features : (n_dims, height, width)
        The feature map whose mean over positions is the image's raw embedding.

    Notes
    -----
    With ``a = (D D^T + lambda I)^-1 (D z + lambda 1)`` and z affine in the embedding x, which is the mean of the
    features f_ij, position ij adds exactly ``G T(f_ij) / (height * width)``, T the linear part of the transform.
    """
    shape = features.shape[1:]
    positions, rest = _linear_part(dictionary, features.astype(np.float64))
    solver = _solver(dictionary.atoms[atoms], anchor)
    shares, constants = solver.gain @ positions.T, solver.gain @ rest + solver.prior
    return [EvidenceMap(row.reshape(shape), float(c)) for row, c in zip(shares, constants, strict=True)]


def margin_map(
    dictionary: ConceptDictionary,
    chosen: NDArray[np.integer],
    rival: NDArray[np.integer],
    anchor: float,
    features: NDArray[np.floating],
    baseline: NDArray[np.floating] | None = None,
) -> EvidenceMap:
    """What in the picture speaks for one path rather than another: positive for the chosen one.

    Parameters
    ----------
    dictionary : ConceptDictionary
    chosen, rival : (length,) int
        The two paths' atoms.
    anchor : float
    features : (n_dims, height, width)
    baseline : (n_dims,), optional
        The raw embedding that counts as "nothing to see"; by default the mean of the classes.

    Notes
    -----
    The margin ``objective(rival) - objective(chosen)`` is quadratic in the embedding, so integrated gradients [1]_ from
    the baseline are exact with the mean of the gradients at both ends. The constant is the baseline's margin.

    References
    ----------
    .. [1] M. Sundararajan, A. Taly, Q. Yan, "Axiomatic Attribution for Deep Networks", ICML 2017.
    """
    for_chosen, for_rival = (_solver(dictionary.atoms[path], anchor) for path in (chosen, rival))
    positions, rest = _linear_part(dictionary, features.astype(np.float64))
    z = positions.sum(axis=0) + rest
    if baseline is None:
        leaves = dictionary.hierarchy.leaf_index
        start = dictionary.synset_embeddings[leaves].mean(axis=0)
    else:
        start = dictionary.transform(np.atleast_2d(baseline).astype(np.float64))[0]
    # The gradient of min_a ||z - D^T a||^2 + ... is 2 (z - D^T a); the images cancel in the difference.
    ends = [2.0 * (for_chosen.reconstruction(end) - for_rival.reconstruction(end)) for end in (start, z)]
    slope = (ends[0] + ends[1]) / 2.0
    shares = positions @ slope + (rest - start) @ slope / len(positions)
    constant = for_rival.objective(start, anchor) - for_chosen.objective(start, anchor)
    return EvidenceMap(shares.reshape(features.shape[1:]), constant)
