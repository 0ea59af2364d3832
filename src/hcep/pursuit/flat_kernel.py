"""Compiled orthogonal matching pursuit over all atoms: the paper's Algorithm 1."""

from typing import NamedTuple

import numpy as np

from hcep.pursuit.compiled import ZERO, Array, copy, kernel, piece, solve_transposed, squared_norm, subtract
from hcep.pursuit.tables import Images


class Atoms(NamedTuple):
    """Atoms of norm 1 and their Gram matrix; numbers below `tiny` are rounding."""

    unit: Array
    gram: Array
    tiny: float


class Factor(NamedTuple):
    """The Cholesky factor of the selected atoms' Gram matrix, products with the image, coefficients and residual."""

    cholesky: Array
    along: Array
    coefficients: Array
    left: Array


@kernel
def search_flat(images: Images, atoms: Atoms, tol: float, selected: Array, codes: Array, residuals: Array) -> None:
    """Repeatedly select the atom with the highest correlation and project the image onto all selected atoms.

    `images.p`, the products of the residual with all atoms, is overwritten: each step subtracts a multiple of the new
    atom's Gram row, made orthogonal to the rows before it. The atoms are written to `selected` (n, k) in order.
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
            solve_transposed(factor.cholesky, n, factor.along, solution)
        residuals[i] = np.sqrt(max(estimate, 0.0))
        for k in range(n):
            codes[i, k] = solution[k]


@piece
def strongest(alpha: Array, floor: float) -> int:
    """Return the first position of the largest ``|alpha|`` above `floor`, or -1 if there is none."""
    at, highest = -1, floor
    for j in range(len(alpha)):
        if abs(alpha[j]) > highest:
            highest = abs(alpha[j])
            at = j
    return at


@piece
def subtract_rows(target: Array, rows: Array, factors: Array, n: int) -> None:
    """Compute ``target -= factors @ rows``, four rows at a time."""
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
def measured_residual(x: Array, n: int, selected: Array, unit: Array, factor: Factor) -> float:
    """Compute ``||x - D^T z||**2`` from the residual vector of the selected atoms."""
    solve_transposed(factor.cholesky, n, factor.along, factor.coefficients)
    copy(x, factor.left, len(x))
    for k in range(n):
        subtract(factor.left, factor.coefficients[k], unit[selected[k]])
    return squared_norm(factor.left)
