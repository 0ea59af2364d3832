"""How much of an image its support explains: relative reconstruction error, and energy by the number of atoms."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import blocks
from hcep.dictionary.path_problem import gram_schmidt
from hcep.errors import HCEPError

#: Images worked on at once: their products with all atoms are held in memory.
BLOCK = 4096


def energy_columns(result: Any, X: ArrayLike | None, n_images: int, depth: int) -> dict[str, NDArray[np.float64]]:
    """Reconstruction error, and energy explained by the first 1 … `depth` atoms, one value per image.

    NaN where X is not given, where the result has no residual (the method reconstructs nothing), for a zero image.
    """
    names = ["reconstruction_error", *(f"explained_{level}" for level in range(1, depth + 1))]
    if X is None:
        return {name: np.full(n_images, np.nan) for name in names}
    if not hasattr(result, "dictionary"):
        raise HCEPError("X needs the dictionary of a pursuit result; leave X out where supports are given alone")
    dictionary = result.dictionary
    order = atom_order(result, depth)
    rows = np.asarray(X)
    if rows.ndim != 2 or len(rows) != len(order):
        raise HCEPError(
            f"X has shape {rows.shape}, the result {len(order):,} images; "
            "give the images of that pursuit, (n_images, n_dims)"
        )
    table = np.empty((len(order), 1 + depth))
    for start in range(0, len(order), BLOCK):
        block = slice(start, start + BLOCK)
        x = dictionary.embed(rows[block]).astype(np.float64)
        squares = np.einsum("ij,ij->i", x, x)
        squares[squares == 0.0] = np.nan
        table[block, 0] = np.asarray(result.residual_norms[block], dtype=np.float64) / np.sqrt(squares)
        table[block, 1:] = explained_energy(x, dictionary, order[block]) / squares[:, None]
    table[np.isnan(table[:, 0])] = np.nan
    return {name: column.copy() for name, column in zip(names, table.T, strict=True)}


def atom_order(result: Any, depth: int) -> NDArray[np.int32]:
    """The first atoms of each support, (n_images, depth), -1 beyond the last: down the path, or as selected."""
    hierarchy = result.dictionary.hierarchy
    if hasattr(result, "nodes"):
        tree = hierarchy.path_tree
        distinct, index = np.unique(result.nodes, return_inverse=True)
        nodes = tree.ancestors()[distinct]
        atoms = np.where(nodes >= 0, tree.edge[nodes], -1)[index]
    else:
        atoms = np.asarray(result.selected)[:, :depth]
    order = np.full((len(atoms), depth), -1, dtype=np.int32)
    order[:, : atoms.shape[1]] = atoms
    return order


def explained_energy(
    x: NDArray[np.float64], dictionary: ConceptDictionary, order: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Squared norm of the projection of each image onto its first l atoms, for l = 1 … n_steps.

    It is the running sum of the squared products with the orthogonalised atoms: along a rooted path, of the p_u of
    `PathProblem`.

    Parameters
    ----------
    x : (n_images, n_dims) float64; in the dictionary's space
    order : (n_images, n_steps) int32; atoms, -1 beyond the last, where a support explains as much as at its end
    """
    supports, place = np.unique(order, axis=0, return_inverse=True)
    along, place = np.zeros(order.shape), place.ravel()
    for part in blocks(0, len(supports), order.shape[1] * x.shape[1]):
        chosen = supports[part]
        q, _ = gram_schmidt(np.where((chosen >= 0)[..., None], dictionary.atoms[chosen], 0.0))
        rows = np.flatnonzero((place >= part.start) & (place < part.stop))
        for at in (rows[start : start + len(chosen)] for start in range(0, len(rows), max(len(chosen), 1))):
            along[at] = np.einsum("nkd,nd->nk", q[place[at] - part.start], x[at])
    return np.cumsum(along**2, axis=1)
