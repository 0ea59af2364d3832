"""The tree-structured penalty, compiled: its proximal operator, and FISTA on one image after the other.

Every function here works on trusted arrays. Variable v is node v + 1 of the tree of rooted paths; ``parent[v]`` is a
variable too, or -1 below the root, and always less than v.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcep.pursuit.compiled import kernel, piece
from hcep.pursuit.tables import Array


class Penalty(NamedTuple):
    """``soft ||z||_1 + group * sum_v ||z_subtree(v)||``."""

    soft: float
    group: float
    parent: Array


@piece
def group_norms(u: Array, soft: float, group: float, parent: Array, norm: Array) -> bool:
    """Norm of every subtree once what lies below its top has been shrunk; whether anything is left of u at all.

    A subtree's norm shrinks by `group`, so that the parts below v count with what is left of theirs.
    """
    for v in range(len(u)):
        left = max(abs(u[v]) - soft, 0.0)
        norm[v] = left * left
    any_left = False
    for v in range(len(u) - 1, -1, -1):
        norm[v] = np.sqrt(norm[v])
        left = norm[v] - group
        if left > 0.0:
            if parent[v] >= 0:
                norm[parent[v]] += left * left
            else:
                any_left = True
    return any_left


@kernel
def prox(u: Array, soft: float, group: float, parent: Array, norm: Array) -> None:
    """``argmin over z of 1/2 ||z - u||**2 + soft ||z||_1 + group * sum_v ||z_subtree(v)||``, in place.

    The composition of the operators of all groups, each after those within it: one pass up for the norms, one down
    for the factors (Jenatton et al. 2011, algorithm 2).
    """
    group_norms(u, soft, group, parent, norm)
    for v in range(len(u)):
        above = norm[parent[v]] if parent[v] >= 0 else 1.0
        # From here on `norm` holds the product of the factors above and at v.
        norm[v] = above * (1.0 - group / norm[v]) if norm[v] > group else 0.0
        u[v] = np.sign(u[v]) * max(abs(u[v]) - soft, 0.0) * norm[v]


@kernel
def penalties_at_zero(products: Array, mixing: float, parent: Array, out: Array) -> None:
    """The smallest penalty at which each image's code is empty, by bisection to the last digits."""
    norm = np.empty(products.shape[1])
    for i in range(len(products)):
        # The penalty is at least the l1 norm, so that the lasso's own limit is enough.
        low, high = 0.0, np.abs(products[i]).max()
        for _ in range(50):
            middle = 0.5 * (low + high)
            if group_norms(products[i], middle * (1.0 - mixing), middle * mixing, parent, norm):
                low = middle
            else:
                high = middle
        out[i] = high


@piece
def add_products(gram: Array, z: Array, out: Array) -> None:
    """``out = gram @ z``, over the nonzero entries of z alone."""
    for v in range(len(z)):
        out[v] = 0.0
    for v in range(len(z)):
        if z[v] != 0.0:
            a = z[v]
            row = gram[v]
            for w in range(len(z)):
                out[w] += a * row[w]


@kernel
def fista(
    gram: Array, lipschitz: float, products: Array, penalty: Penalty, max_iter: int, tol: float, codes: Array
) -> int:
    """Minimise ``1/2 z'Gz - c'z + penalty(z)`` for each row c of `products`; how many rows did not reach `tol`.

    FISTA (Beck and Teboulle 2009), its momentum dropped whenever it points uphill (O'Donoghue and Candes 2015). It
    ends when a step, times the Lipschitz constant, moves no coefficient by more than `tol`.
    """
    n = gram.shape[0]
    soft, group = penalty.soft / lipschitz, penalty.group / lipschitz
    norm, u, y = np.empty(n), np.empty(n), np.empty(n)
    gram_z, gram_y, gram_u = np.empty(n), np.empty(n), np.empty(n)
    n_unfinished = 0
    for i in range(len(products)):
        z, c = codes[i], products[i]
        for v in range(n):
            z[v] = y[v] = gram_z[v] = gram_y[v] = 0.0
        momentum = 1.0
        finished = False
        for _ in range(max_iter):
            for v in range(n):
                u[v] = y[v] - (gram_y[v] - c[v]) / lipschitz
            prox(u, soft, group, penalty.parent, norm)
            largest, uphill = 0.0, 0.0
            for v in range(n):
                step = u[v] - y[v]
                largest = max(largest, abs(step))
                uphill -= step * (u[v] - z[v])
            add_products(gram, u, gram_u)
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum)) if uphill <= 0.0 else 1.0
            speed = (momentum - 1.0) / following if uphill <= 0.0 else 0.0
            momentum = following
            for v in range(n):
                y[v] = u[v] + speed * (u[v] - z[v])
                gram_y[v] = gram_u[v] + speed * (gram_u[v] - gram_z[v])
                z[v] = u[v]
                gram_z[v] = gram_u[v]
            if largest * lipschitz <= tol:
                finished = True
                break
        if not finished:
            n_unfinished += 1
    return n_unfinished
