"""Codes over all atoms, compiled, on their products: the paper's Algorithm 1, and FISTA with the tree's penalty."""

from typing import NamedTuple

import numpy as np

from hcep.pursuit.along_path import squared_norm, subtract
from hcep.pursuit.compiled import ZERO, copy, kernel, piece
from hcep.pursuit.tables import Array, Images


class Atoms(NamedTuple):
    """Atoms of norm 1 and their Gram matrix; what is below `tiny` is rounding."""

    unit: Array
    gram: Array
    tiny: float


class Factor(NamedTuple):
    """The Cholesky factor of the selected atoms' Gram matrix, the image's products with them, room for the rest."""

    cholesky: Array
    along: Array
    coefficients: Array
    left: Array


@kernel
def search_flat(images: Images, atoms: Atoms, tol: float, selected: Array, codes: Array, residuals: Array) -> None:
    """Select the atom of highest correlation, project, repeat.

    The products of the residual with all atoms, `images.p`, are overwritten: each step updates them by one Gram row
    that is made orthogonal to those before. ``selected`` (n, k) receives atoms in the order of selection.
    """
    n_atoms, n_nonzero = len(atoms.gram), selected.shape[1]
    rows = np.zeros((n_nonzero, n_atoms), atoms.gram.dtype)
    at_atom = np.zeros(n_nonzero, atoms.gram.dtype)
    solution = np.zeros(n_nonzero)
    factor = Factor(np.zeros((n_nonzero, n_nonzero)), np.zeros(n_nonzero), solution, np.zeros(images.x.shape[1]))
    for i in range(len(images.x)):
        alpha, square = images.p[i], images.squares[i]
        n, estimate = ZERO, square
        while n < n_nonzero:
            near = tol > 0.0 and estimate <= max(4.0 * tol * tol, images.cancelled * square)
            if near and measured_residual(images.x[i], n, selected[i], atoms.unit, factor) < tol * tol:
                break
            at = strongest(alpha, atoms.tiny * np.sqrt(square))
            if at < 0:
                break
            diagonal = 1.0
            for k in range(n):
                at_atom[k] = factor.cholesky[n, k] = rows[k, at]
                diagonal -= np.float64(rows[k, at]) * np.float64(rows[k, at])
            if diagonal <= atoms.tiny:
                break
            root = factor.cholesky[n, n] = np.sqrt(diagonal)
            step = factor.along[n] = alpha[at] / root
            row = rows[n]
            for j in range(n_atoms):
                row[j] = atoms.gram[at, j]
            subtract_rows(row, rows, at_atom, n)
            for j in range(n_atoms):
                row[j] = row[j] / root
                alpha[j] -= step * row[j]
            estimate -= step * step
            selected[i, n] = at
            n += 1
            for k in range(n):
                alpha[selected[i, k]] = 0.0
        if estimate <= images.cancelled * square:
            estimate = measured_residual(images.x[i], n, selected[i], atoms.unit, factor)
        else:
            solve(n, factor)
        residuals[i] = np.sqrt(max(estimate, 0.0))
        for k in range(n):
            codes[i, k] = solution[k]


@piece
def strongest(alpha: Array, floor: float) -> int:
    """The first of the largest ``|alpha|`` above `floor`, -1 where there is none."""
    at, highest = -1, floor
    for j in range(len(alpha)):
        if abs(alpha[j]) > highest:
            highest = abs(alpha[j])
            at = j
    return at


@piece
def subtract_rows(target: Array, rows: Array, factors: Array, n: int) -> None:
    """``target -= factors @ rows``, four rows at a time."""
    m = len(target)
    k = 0
    while k + 4 <= n:
        f0, f1, f2, f3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        for j in range(m):
            target[j] -= f0 * rows[k, j] + f1 * rows[k + 1, j] + f2 * rows[k + 2, j] + f3 * rows[k + 3, j]
        k += 4
    while k < n:
        subtract(target, factors[k], rows[k])
        k += 1


@piece
def solve(n: int, factor: Factor) -> None:
    """Back substitution with the transposed Cholesky factor."""
    for k in range(n - 1, -1, -1):
        total = factor.along[k]
        for m in range(k + 1, n):
            total -= factor.cholesky[m, k] * factor.coefficients[m]
        factor.coefficients[k] = total / factor.cholesky[k, k]


@piece
def measured_residual(x: Array, n: int, selected: Array, unit: Array, factor: Factor) -> float:
    """``||x - D^T z||**2`` of the selected atoms."""
    solve(n, factor)
    copy(x, factor.left, len(x))
    for k in range(n):
        subtract(factor.left, factor.coefficients[k], unit[selected[k]])
    return squared_norm(factor.left)


class Penalty(NamedTuple):
    """``soft ||z||_1 + group * sum_v ||z_subtree(v)||``.

    Variable v is node v + 1 of the tree of rooted paths; ``parent[v]``, always less than v, is -1 below the root.
    """

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
