"""The exact search of a few images without a compiler: loading one takes longer than they do.

The same operations in the same order as the kernels of `searches` and `along_path`, so the same answers.
"""

import sys

import numpy as np

from hcep.dictionary.path_basis import DEPENDENT
from hcep.pursuit.tables import CLOSED, OPEN, Array, Images, Rules, Tables

#: Up to so many images are few, about a millisecond each, unless the compiler is there already.
FEW = 512


def are_few(n_images: int) -> bool:
    """Whether a search of so many images is done before numba has been imported."""
    return n_images <= FEW and "numba" not in sys.modules


def search_all(images: Images, tables: Tables, rules: Rules, final_nodes: Array) -> None:
    """As `searches.search_all`."""
    score = _scores(images, tables, rules, rules.n_within)
    goes_on = np.zeros(score.shape, dtype=bool)
    for row, open_below in zip(goes_on, np.isfinite(score), strict=True):
        row[tables.parent[1 : len(row)][open_below[1:]]] = True
    score[goes_on] = -np.inf
    order = np.argsort(-score, axis=1, kind="stable")[:, : final_nodes.shape[1]]
    found = np.isfinite(np.take_along_axis(score, order, axis=1))
    final_nodes[:, : order.shape[1]] = np.where(found, order, final_nodes[:, : order.shape[1]])


def leaf_objectives(images: Images, tables: Tables, rules: Rules, leaves: Array, out: Array) -> None:
    """As `searches.leaf_objectives`."""
    out[:] = images.squares[:, None] - _scores(images, tables, rules, len(tables.parent))[:, leaves]


def finish_paths(
    images: Images, tables: Tables, rules: Rules, nodes: Array, coefficients: Array, residual_norms: Array
) -> None:
    """As `along_path.finish_paths`."""
    products = _products(images, tables, len(tables.parent))
    for i, h in zip(*np.nonzero(nodes >= 0), strict=True):
        path = _path(int(nodes[i, h]), tables)
        along, triangle = products[i, path], tables.triangle[path]
        a = np.zeros(len(path))
        for k in range(len(path) - 1, -1, -1):
            total = along[k]
            for m in range(k + 1, len(path)):
                total -= triangle[m, k] * a[m]
            a[k] = total / triangle[k, k] if triangle[k, k] != 0.0 else 0.0
        augmented = images.squares[i] + rules.anchor * len(path)
        square = augmented - np.sum(along * along + rules.anchor * (a - 1.0) ** 2)
        if square <= images.cancelled * augmented:
            left = images.x[i] - a @ tables.atoms[tables.edge[path]]
            square = left @ left
        residual_norms[i, h] = np.sqrt(max(square, 0.0))
        if h == 0 and len(coefficients):
            coefficients[i, : len(path)] = a


def explained_shares(
    images: Images, tables: Tables, nodes: Array, coefficients: Array, shares: Array, own_shares: Array
) -> None:
    """As `along_path.explained_shares`."""
    for i, node in enumerate(nodes[:, 0].tolist()):
        atoms = tables.atoms[tables.edge[_path(node, tables)]]
        left, square = images.x[i].astype(np.float64), float(images.squares[i]) or 1.0
        basis = np.zeros_like(atoms)
        for k, atom in enumerate(atoms):
            rest = atom - basis[:k].T @ (basis[:k] @ atom)
            rest -= basis[:k].T @ (basis[:k] @ rest)
            norm, whole = np.linalg.norm(rest), np.linalg.norm(atom)
            basis[k] = rest / norm if norm > DEPENDENT * whole and whole > 0.0 else 0.0
            own_shares[i, k] = (basis[k] @ images.x[i]) ** 2 / square
            left -= coefficients[i, k] * atom
            shares[i, k] = 1.0 - left @ left / square


def _products(images: Images, tables: Tables, n_nodes: int) -> Array:
    column = tables.column[:n_nodes]
    return np.where(column >= 0, (images.p[:, column] + tables.offset[column]) * tables.sign[:n_nodes], 0.0)


def _scores(images: Images, tables: Tables, rules: Rules, n_nodes: int) -> Array:
    """Score of the path to each of the first nodes, (n, n_nodes), level by level."""
    value = _products(images, tables, n_nodes)
    score, squares = np.zeros(value.shape), value * value
    for level in range(1, int(tables.level[n_nodes - 1]) + 1):
        at = slice(*np.searchsorted(tables.level[:n_nodes], [level, level + 1]))
        score[:, at] = score[:, tables.parent[at]] + squares[:, at] - rules.anchor
        state = tables.state[images.limit, at] if len(images.limit) else OPEN
        score[:, at][(state == CLOSED) | (rules.signed & (state == OPEN) & ~(value[:, at] > 0.0))] = -np.inf
    return score


def _path(node: int, tables: Tables) -> list[int]:
    """The nodes down to one, the root left out."""
    found = []
    while node > 0:
        found.append(node)
        node = int(tables.parent[node])
    return found[::-1]
