"""How kernels are compiled, and the hypotheses that they rank.

Kernels work on trusted arrays, one block of images at a time, with no state between images. No fastmath where a
comparison picks. Numba's cache looks at the file of a kernel alone: after an edit of a function that kernels of other
files call, delete ``__pycache__``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit

from hcep.pursuit.tables import Array

F = TypeVar("F", bound=Callable[..., object])

#: Not a plain 0 and 1, for which numba would compile what they are given to once more.
ZERO, ONE = cast(int, np.int64(0)), cast(int, np.int64(1))
#: What Python calls.
kernel = cast(Callable[[F], F], njit(cache=True, nogil=True))
#: What kernels alone call: inlined, as a tuple of arrays is handed over number by number, and with no way in from
#: Python, which takes as long to compile as the rest.
INNER: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
piece = cast(Callable[[F], F], njit(**INNER))
#: The same, free to reorder sums, which is several times faster; for numbers that no comparison looks at.
summing = cast(Callable[[F], F], njit(**INNER, fastmath={"reassoc"}))


class Beam(NamedTuple):
    """Hypotheses: the score of each, to be maximised, and its node. How many there are is kept beside it."""

    scores: Array
    nodes: Array


@piece
def better(score_a: float, node_a: int, score_b: float, node_b: int) -> bool:
    """The order of hypotheses: the higher score, then the lower node."""
    return score_a > score_b or (score_a == score_b and node_a < node_b)


@piece
def swap(scores: Array, nodes: Array, i: int, j: int) -> None:
    scores[i], scores[j] = scores[j], scores[i]
    nodes[i], nodes[j] = nodes[j], nodes[i]


@piece
def sink(scores: Array, nodes: Array, k: int, size: int) -> None:
    """Restore a heap whose top is its worst member, after entry k became better."""
    while True:
        worst = k
        for child in (2 * k + 1, 2 * k + 2):
            if child < size and better(scores[worst], nodes[worst], scores[child], nodes[child]):
                worst = child
        if worst == k:
            return
        swap(scores, nodes, k, worst)
        k = worst


@piece
def make_heap(scores: Array, nodes: Array, size: int) -> None:
    for k in range(size // 2 - 1, -1, -1):
        sink(scores, nodes, k, size)


@piece
def sort_best_first(scores: Array, nodes: Array, size: int) -> None:
    """Order hypotheses: a heap is built, then taken apart."""
    make_heap(scores, nodes, size)
    for last in range(size - 1, ZERO, -1):
        swap(scores, nodes, ZERO, last)
        sink(scores, nodes, ZERO, last)


@piece
def offer(scores: Array, nodes: Array, size: int, limit: int, score: float, node: int) -> int:
    """Keep the `limit` best hypotheses seen, once there are so many as a heap; return how many there are."""
    if size < limit:
        scores[size], nodes[size] = score, node
        if size + 1 == limit:
            make_heap(scores, nodes, limit)
        return size + 1
    if better(score, node, scores[0], nodes[0]):
        scores[0], nodes[0] = score, node
        sink(scores, nodes, ZERO, limit)
    return size


@piece
def copy(source: Array, target: Array, n: int) -> None:
    """A loop: slices take long to compile."""
    for k in range(n):
        target[k] = source[k]


@piece
def keep_best(scores: Array, nodes: Array, size: int, limit: int) -> int:
    """Move the `limit` best of `size` hypotheses to the front, in no order; return how many there are."""
    if size <= limit:
        return size
    low, high = ZERO, size - 1
    while low < high:
        # Hoare's selection about the median of three. The order is total, so the kept set is unique.
        middle = (low + high) // 2
        if better(scores[middle], nodes[middle], scores[low], nodes[low]):
            swap(scores, nodes, middle, low)
        if better(scores[high], nodes[high], scores[low], nodes[low]):
            swap(scores, nodes, high, low)
        if better(scores[high], nodes[high], scores[middle], nodes[middle]):
            swap(scores, nodes, high, middle)
        pivot_score, pivot_node = scores[middle], nodes[middle]
        i, j = low, high
        while i <= j:
            while better(scores[i], nodes[i], pivot_score, pivot_node):
                i += 1
            while better(pivot_score, pivot_node, scores[j], nodes[j]):
                j -= 1
            if i <= j:
                swap(scores, nodes, i, j)
                i += 1
                j -= 1
        if limit - 1 <= j:
            high = j
        elif limit - 1 >= i:
            low = i
        else:
            break
    return limit
