"""One rooted path of one image, compiled: its products, its coefficients, what it leaves unexplained.

Scores are energies to be maximised: the sum of ``p_u**2 - anchor`` along a path, so that ``||x||**2 - score`` is the
objective. The offset is the anchor's part of p and in double precision, as ``p**2 - anchor`` cancels for a large one.
"""

from typing import NamedTuple

import numpy as np

from hcep.dictionary.path_basis import DEPENDENT
from hcep.pursuit.compiled import ONE, copy, kernel, piece, summing
from hcep.pursuit.tables import Array, Images, Rules, Tables


class Scratch(NamedTuple):
    """Room for one path: its nodes, products p and coefficients a, and the residual vector."""

    nodes: Array
    along: Array
    coefficients: Array
    left: Array


@piece
def scratch(images: Images, tables: Tables) -> Scratch:
    depth = tables.triangle.shape[1]
    return Scratch(np.zeros(depth, np.int64), np.zeros(depth), np.zeros(depth), np.zeros(images.x.shape[1]))


@piece
def product(p: Array, v: int, column: Array, sign: Array, offset: Array) -> float:
    """``p_v`` of one image, from the column of `p` that node v has, maybe with others; 0 for a dependent atom."""
    c = column[v]
    value: float = (p[c] + offset[c]) * sign[v] if c >= 0 else 0.0
    return value


@summing
def dot(u: Array, v: Array) -> float:
    """In the precision of the factors and any order of summands, as a matrix product is."""
    total: float = u[0] * v[0]
    for j in range(1, len(u)):
        total += u[j] * v[j]
    return total


@piece
def product_at(i: int, v: int, images: Images, tables: Tables) -> float:
    """``p_v`` of image i, from the block's products or, where it has none, from the direction."""
    c = tables.column[v]
    if images.p.shape[1]:
        return product(images.p[i], v, tables.column, tables.sign, tables.offset)
    return (dot(images.x[i], images.directions[c]) + tables.offset[c]) * tables.sign[v] if c >= 0 else 0.0


@piece
def solve_path(i: int, node: int, images: Images, tables: Tables, room: Scratch) -> int:
    """Fill `room` for the path of image i to `node`; return its length.

    The coefficients come by back substitution in the R of the path's QR; a dependent atom (zero diagonal) gets 0.
    """
    length: int = tables.level[node]
    for k in range(length - 1, -1, -1):
        room.nodes[k] = node
        room.along[k] = product_at(i, node, images, tables)
        node = tables.parent[node]
    for k in range(length - 1, -1, -1):
        diagonal = tables.triangle[room.nodes[k], k]
        total = room.along[k]
        for m in range(k + 1, length):
            total -= tables.triangle[room.nodes[m], k] * room.coefficients[m]
        room.coefficients[k] = total / diagonal if diagonal != 0.0 else 0.0
    return length


@piece
def squared_residual(i: int, node: int, images: Images, tables: Tables, rules: Rules, room: Scratch) -> float:
    """``||x - D^T a||**2`` of the path of image i to `node`: from its products, or measured where these cancel."""
    length = solve_path(i, node, images, tables, room)
    augmented = images.squares[i] + rules.anchor * length
    estimate = augmented
    for k in range(length):
        off = room.coefficients[k] - 1.0
        estimate -= room.along[k] * room.along[k] + rules.anchor * off * off
    if estimate > images.cancelled * augmented:
        return float(estimate)
    copy(images.x[i], room.left, len(room.left))
    for k in range(length):
        subtract(room.left, room.coefficients[k], tables.atoms[tables.edge[room.nodes[k]]])
    return squared_norm(room.left)


@piece
def subtract(left: Array, a: float, atom: Array) -> None:
    for j in range(len(left)):
        left[j] -= a * atom[j]


@piece
def squared_norm(left: Array) -> float:
    total = 0.0
    for j in range(len(left)):
        total += left[j] * left[j]
    return total


@kernel
def finish_paths(
    images: Images, tables: Tables, rules: Rules, nodes: Array, coefficients: Array, residual_norms: Array
) -> None:
    """Residual norms (n, k) of k nodes per image, NaN for a node below 0.

    Unless `coefficients` (n, depth) is empty it receives those of each image's first node.
    """
    room = scratch(images, tables)
    for i in range(len(nodes)):
        for h in range(nodes.shape[1]):
            if nodes[i, h] < 0:
                residual_norms[i, h] = np.nan
                continue
            square = squared_residual(i, int(nodes[i, h]), images, tables, rules, room)
            residual_norms[i, h] = np.sqrt(max(square, 0.0))
            if h == 0 and len(coefficients):
                for k in range(tables.level[nodes[i, h]]):
                    coefficients[i, k] = room.coefficients[k]


@summing
def inner(u: Array, v: Array) -> float:
    """In any order of summands: for what is told, not for what is picked."""
    total = 0.0
    for j in range(len(u)):
        total += u[j] * v[j]
    return total


@kernel
def explained_shares(
    images: Images, tables: Tables, nodes: Array, coefficients: Array, shares: Array, own_shares: Array
) -> None:
    """Shares of ``||x||**2``, (n, depth): by the first k atoms of each path, and along what the k-th atom adds alone.

    The second are squared products with the orthonormalised atoms of the path, so none is negative and they add up to
    the share of the image in the path's span. Entries beyond its end stay.
    """
    depth, n_dims = shares.shape[1], images.x.shape[1]
    left, edges, basis, last = np.zeros(n_dims), np.zeros(depth, np.int64), np.zeros((depth, n_dims)), -ONE
    for i in range(len(nodes)):
        node, length = nodes[i, 0], tables.level[nodes[i, 0]]
        if node != last:  # images of one path often follow each other
            last = node
            for k in range(length - 1, -1, -1):
                edges[k] = tables.edge[node]
                node = tables.parent[node]
            orthonormalise(tables.atoms, edges, length, basis)
        copy(images.x[i], left, n_dims)
        square = inner(left, left)
        square = square if square > 0.0 else 1.0
        for k in range(length):
            along = inner(basis[k], images.x[i])
            own_shares[i, k] = along * along / square
            subtract(left, coefficients[i, k], tables.atoms[edges[k]])
            shares[i, k] = 1.0 - inner(left, left) / square


@piece
def orthonormalise(atoms: Array, edges: Array, length: int, basis: Array) -> None:
    """Gram-Schmidt along a path, twice for accuracy; a dependent atom's row becomes zero."""
    for k in range(length):
        copy(atoms[edges[k]], basis[k], basis.shape[1])
        whole = np.sqrt(inner(basis[k], basis[k]))
        for _ in range(2):
            for m in range(k):
                subtract(basis[k], inner(basis[k], basis[m]), basis[m])
        rest = np.sqrt(inner(basis[k], basis[k]))
        scale = 1.0 / rest if rest > DEPENDENT * whole and whole > 0.0 else 0.0
        for j in range(basis.shape[1]):
            basis[k, j] *= scale
