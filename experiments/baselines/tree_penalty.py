"""The tree-structured l1 penalty, compiled: its proximal operator, and FISTA with it."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
kernel = njit(cache=True, nogil=True)


class Penalty(NamedTuple):
    """``soft ||z||_1 + group * sum_v ||z_subtree(v)||``.

    Variable v is node v + 1 of the tree of rooted paths. ``parent[v]`` is less than v, and -1 below the root.
    """

    soft: float
    group: float
    parent: Array


@kernel
def group_norms(u: Array, soft: float, group: float, parent: Array, norm: Array) -> bool:
    """Compute the norm of every subtree after everything below its top has been shrunk.

    A subtree's norm shrinks by `group`, so the parts below v count with what is left of theirs. Return whether anything
    is left of u at all.
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
    """Compute ``argmin over z of 1/2 ||z - u||**2 + soft ||z||_1 + group * sum_v ||z_subtree(v)||`` in place.

    The operators of all groups are applied one after the other, each after those within it: one pass up the tree for
    the norms and one down for the factors (Jenatton et al. 2011, algorithm 2).
    """
    group_norms(u, soft, group, parent, norm)
    for v in range(len(u)):
        above = norm[parent[v]] if parent[v] >= 0 else 1.0
        # From here on `norm` holds the product of the factors above and at v.
        norm[v] = above * (1.0 - group / norm[v]) if norm[v] > group else 0.0
        u[v] = np.sign(u[v]) * max(abs(u[v]) - soft, 0.0) * norm[v]


@kernel
def penalties_at_zero(products: Array, mixing: float, parent: Array, out: Array) -> None:
    """Find the smallest penalty at which each image's code is empty, by bisection to the last digits."""
    norm = np.empty(products.shape[1])
    for i in range(len(products)):
        # The penalty is at least the l1 norm, so the lasso's own limit is an upper bound.
        low, high = 0.0, np.abs(products[i]).max()
        for _ in range(50):
            middle = 0.5 * (low + high)
            if group_norms(products[i], middle * (1.0 - mixing), middle * mixing, parent, norm):
                low = middle
            else:
                high = middle
        out[i] = high


@kernel
def multiply(gram: Array, z: Array, out: Array) -> None:
    """``out = gram @ z``, over the nonzero entries of z only."""
    out[:] = 0.0
    for v in range(len(z)):
        if z[v] != 0.0:
            for w in range(len(z)):
                out[w] += z[v] * gram[v, w]


@kernel
def fista(
    gram: Array, lipschitz: float, products: Array, penalty: Penalty, max_iter: int, tol: float, codes: Array
) -> int:
    """Minimise ``1/2 z'Gz - c'z + penalty(z)`` for each row c of `products`; return how many rows missed `tol`.

    FISTA (Beck and Teboulle 2009), with the momentum dropped whenever it points uphill (O'Donoghue and Candes 2015). It
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
            multiply(gram, u, gram_u)
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
