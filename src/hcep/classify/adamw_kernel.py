"""Softmax regression on sparse rows, compiled: the gradient of a batch, and AdamW's step.

Weights stand as (n_atoms + 1, n_classes), so that every inner loop runs along a row. The last row is the bias, whose
entry in every sparse row is 1. Rows are padded with zeros to multiples of four entries.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

#: Sums may be reordered, which lets them vectorise; nothing here picks an atom.
FAST = {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}

f32 = np.float32
ZERO = f32(0.0)
LOG2_E = f32(1.44269504)
#: 2**-70 is lost beside 1 in single precision, yet times a weight still a normal number: processors are very slow with
#: others. For the same reason moments that cannot move a weight (the denominator holds eps = 1e-8) are taken for 0.
LEAST_EXPONENT = f32(-70.0)
TINY_GRADIENT, TINY_MOMENT, TINY_SQUARE = f32(1e-16), f32(1e-30), f32(1e-36)
#: Added to a float32 it leaves the nearest whole number, plus 127, in the lowest bits.
ROUND = f32(1.5 * 2**23 + 127)


class Codes(NamedTuple):
    """Sparse rows: row i has ``length[i]`` entries from ``begin[i]`` on, the last the bias, then zeros."""

    begin: Array
    length: Array
    indices: Array
    values: Array
    support: Array
    labels: Array


@njit(cache=True, nogil=True, fastmath={"contract", "nnan"})
def exp2(x: Any) -> Any:
    """``2**x`` to single precision for x of at most 120, in operations that vectorise."""
    x = max(x, LEAST_EXPONENT)
    whole = x + ROUND
    r = x - (whole - ROUND)
    p = f32(0.00133909)
    p = p * r + f32(0.00967603)
    p = p * r + f32(0.05550357)
    p = p * r + f32(0.24022107)
    p = p * r + f32(0.69314719)
    p = p * r + f32(1.00000008)
    power = np.int32(np.float32(whole).view(np.int32) << np.int32(23)).view(np.float32)
    return p * power


@njit(cache=True, nogil=True, fastmath=FAST)
def exponentials(logits: Array) -> Any:
    """Turn logits into numbers in proportion to their exponentials, in place; return the sum."""
    # Any number near the largest logit keeps them in range, and a maximum of integers vectorises.
    top = np.int32(-(2**30))
    for c in range(len(logits)):
        top = max(top, np.int32(logits[c]))
    shift = f32(top) * LOG2_E
    total = ZERO
    for c in range(len(logits)):
        e = exp2(logits[c] * LOG2_E - shift)
        logits[c] = e
        total += e
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_logits(p: int, indices: Array, values: Array, weights: Array, o: Array) -> None:
    """Add the four entries of a row from p on, times their weights."""
    w0, w1, w2, w3 = weights[indices[p]], weights[indices[p + 1]], weights[indices[p + 2]], weights[indices[p + 3]]
    v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
    for c in range(len(o)):
        o[c] += (v0 * w0[c] + v1 * w1[c]) + (v2 * w2[c] + v3 * w3[c])


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_logits_of_four(
    p: int, q: int, r: int, s: int, indices: Array, values: Array, weights: Array, out: Array
) -> None:
    """The same for four rows of the same atoms, whose weights are then read once."""
    w0, w1, w2, w3 = weights[indices[p]], weights[indices[p + 1]], weights[indices[p + 2]], weights[indices[p + 3]]
    p0, p1, p2, p3 = values[p], values[p + 1], values[p + 2], values[p + 3]
    q0, q1, q2, q3 = values[q], values[q + 1], values[q + 2], values[q + 3]
    r0, r1, r2, r3 = values[r], values[r + 1], values[r + 2], values[r + 3]
    s0, s1, s2, s3 = values[s], values[s + 1], values[s + 2], values[s + 3]
    o0, o1, o2, o3 = out[0], out[1], out[2], out[3]
    for c in range(len(o0)):
        x0, x1, x2, x3 = w0[c], w1[c], w2[c], w3[c]
        o0[c] += (p0 * x0 + p1 * x1) + (p2 * x2 + p3 * x3)
        o1[c] += (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3)
        o2[c] += (r0 * x0 + r1 * x1) + (r2 * x2 + r3 * x3)
        o3[c] += (s0 * x0 + s1 * x1) + (s2 * x2 + s3 * x3)


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_errors(v: Any, errors: Array, g: Array) -> None:
    for c in range(len(g)):
        g[c] += v * errors[c]


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_errors_of_four(v0: Any, v1: Any, v2: Any, v3: Any, errors: Array, g: Array) -> None:
    e0, e1, e2, e3 = errors[0], errors[1], errors[2], errors[3]
    for c in range(len(g)):
        g[c] += (v0 * e0[c] + v1 * e1[c]) + (v2 * e2[c] + v3 * e3[c])


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def add_gradient(rows: Array, codes: Codes, mean: Any, weights: Array, gradient: Array) -> None:
    """Add the gradient of the rows' cross entropy, times `mean`, to `gradient`; neighbours of one support by fours."""
    begin, length, indices, values, support, labels = codes
    errors = np.zeros((4, weights.shape[1]), np.float32)
    share = np.zeros(4, np.float32)
    first = 0
    while first < len(rows):
        i0 = rows[first]
        n = 1
        while n < 4 and first + n < len(rows) and support[rows[first + n]] == support[i0]:
            n += 1
        # Two or three rows are taken for four as well: one stands in for those that are missing, at a share of 0.
        i1, i2, i3 = rows[first + min(1, n - 1)], rows[first + min(2, n - 1)], rows[first + min(3, n - 1)]
        p, q, r, s = begin[i0], begin[i1], begin[i2], begin[i3]
        errors[:] = ZERO
        for k in range(0, length[i0], 4):
            if n > 1:
                _add_logits_of_four(p + k, q + k, r + k, s + k, indices, values, weights, errors)
            else:
                _add_logits(p + k, indices, values, weights, errors[0])
        share[:] = ZERO
        for k in range(n):
            total = exponentials(errors[k])
            errors[k, labels[rows[first + k]]] -= total
            share[k] = mean / total
        s0, s1, s2, s3 = share[0], share[1], share[2], share[3]
        for k in range(length[i0]):
            g = gradient[indices[p + k]]
            if n > 1:
                v0, v1, v2, v3 = s0 * values[p + k], s1 * values[q + k], s2 * values[r + k], s3 * values[s + k]
                _add_errors_of_four(v0, v1, v2, v3, errors, g)
            else:
                _add_errors(s0 * values[p + k], errors[0], g)
        first += n


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def adamw_step(weights: Array, gradients: Array, first: Array, second: Array, keep: Any, size: Any, root: Any) -> None:
    """One step of AdamW (betas 0.9 and 0.999, eps 1e-8) on flat arrays.

    The rows of `gradients` (n_blocks, n) are added up and cleared. At step t ``keep = 1 - lr * weight_decay``,
    ``size = lr / (1 - 0.9**t)``, ``root = 1 / sqrt(1 - 0.999**t)``.
    """
    gradient = gradients[0]
    for b in range(1, len(gradients)):
        other = gradients[b]
        for i in range(len(gradient)):
            gradient[i] += other[i]
            other[i] = ZERO
    for i in range(len(weights)):
        g = gradient[i] if abs(gradient[i]) > TINY_GRADIENT else ZERO
        gradient[i] = ZERO
        m = first[i] + f32(0.1) * (g - first[i])
        v = f32(0.999) * second[i] + f32(0.001) * g * g
        first[i] = m if abs(m) > TINY_MOMENT else ZERO
        second[i] = v if v > TINY_SQUARE else ZERO
        weights[i] = keep * weights[i] - size * m / (root * np.sqrt(v) + f32(1e-8))
