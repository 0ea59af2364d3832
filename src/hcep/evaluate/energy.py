"""How much of an image its support explains: relative reconstruction error, and energy by the number of atoms."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.path_problem import along_supports
from hcep.errors import HCEPError
from hcep.pursuit.result import atoms_along

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
        energy = np.empty((len(x), depth))
        for at, along, _ in along_supports(x, dictionary.atoms, order[block]):
            energy[at] = np.cumsum(along**2, axis=1)
        table[block, 1:] = energy / squares[:, None]
    table[np.isnan(table[:, 0])] = np.nan
    return {name: column.copy() for name, column in zip(names, table.T, strict=True)}


def atom_order(result: Any, depth: int) -> NDArray[np.int32]:
    """The first atoms of each support, (n_images, depth), -1 beyond the last: down the path, or as selected."""
    hierarchy = result.dictionary.hierarchy
    if hasattr(result, "nodes"):
        atoms = atoms_along(hierarchy.path_tree, np.asarray(result.nodes))
    else:
        atoms = np.asarray(result.selected)[:, :depth]
    order = np.full((len(atoms), depth), -1, dtype=np.int32)
    order[:, : atoms.shape[1]] = atoms
    return order
