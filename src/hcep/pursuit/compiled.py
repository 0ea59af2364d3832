"""How kernels are compiled and cached, and the functions they share: heaps, vectors and Cholesky factors.

Kernels work on trusted arrays, one block of images at a time, and keep no state between images. They do not use
fastmath where a comparison makes a choice.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit
from numpy.typing import NDArray

from hcep._files import cache_folder

F = TypeVar("F", bound=Callable[..., object])
Array = NDArray[Any]

#: Typed constants, because numba would compile a function again for the literals 0 and 1.
ZERO, ONE = cast(int, np.int64(0)), cast(int, np.int64(1))
#: A pivot of a Gram matrix below this share of its diagonal is rounding, as squares have half the digits of norms.
ROUNDING = 1e-12
#: Free bytes on disk that kernels need; without them, numba would fail while it writes.
MIN_FREE = 20_000_000


def kernel_sources(package: Path) -> list[Path]:
    """Return all files that kernels are compiled from: this one, `tables.py` and every ``*_kernel.py``."""
    shared = [package / "pursuit" / name for name in ("compiled.py", "tables.py")]
    return [*shared, *sorted(package.rglob("*_kernel.py"))]


def kernel_folder() -> Path:
    """Return the folder of compiled kernels, whose name is a hash of *all* kernel sources.

    numba checks only the file that defines a kernel, so it would not notice an edit of a function that the kernel calls
    in another file.
    """
    sources = kernel_sources(Path(__file__).parents[1])
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    numba_folder = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(numba_folder, "hcep") if numba_folder else cache_folder("kernels")
    return base / state


def _writable(folder: Path) -> bool:
    """Create the folder, delete folders of other sources that are two months old, and return whether kernels fit in."""
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            for other in folder.parent.iterdir():
                if other.is_dir() and len(other.name) == 16 and time.time() - other.stat().st_mtime > 60 * 86_400:
                    shutil.rmtree(other, ignore_errors=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > MIN_FREE


def kernel(function: F) -> F:
    """Compile a function that Python calls, and cache the machine code on disk if the folder is writable."""
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]  # numba reads it when it decorates
    try:
        compiled = njit(cache=_CACHED, nogil=True)(function)
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    if hasattr(compiled, "_cache"):  # not if NUMBA_DISABLE_JIT is set
        compiled._cache.save_overload = _if_possible(compiled._cache.save_overload)
    return cast(F, compiled)


def _if_possible(save: Callable[..., object]) -> Callable[..., None]:
    """Save to the cache unless a quota or a disk that is full by now prevents it: the program works without."""

    def save_overload(*overload: object) -> None:
        with suppress(OSError):
            save(*overload)

    return save_overload


_FOLDER = kernel_folder()
_CACHED = _writable(_FOLDER)
#: Options of functions that only kernels call. They are inlined, because passing a tuple of arrays copies every field,
#: and have no wrapper for Python, which would take as long to compile as the function.
INNER: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
piece = cast(Callable[[F], F], njit(**INNER))
#: The same, but sums may be reordered, which is several times faster; only for numbers that are not compared.
summing = cast(Callable[[F], F], njit(**INNER, fastmath={"reassoc"}))


# -- hypotheses ----------------------------------------------------------------------------------------


@piece
def better(score_a: float, node_a: int, score_b: float, node_b: int) -> bool:
    """Return whether hypothesis a comes before b: the higher score first, then the lower node."""
    return score_a > score_b or (score_a == score_b and node_a < node_b)


@piece
def swap(scores: Array, nodes: Array, i: int, j: int) -> None:
    scores[i], scores[j] = scores[j], scores[i]
    nodes[i], nodes[j] = nodes[j], nodes[i]


@piece
def sink(scores: Array, nodes: Array, k: int, size: int) -> None:
    """Restore a heap, whose top is its worst member, after entry k became better."""
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
    """Sort hypotheses with the best first (heapsort)."""
    make_heap(scores, nodes, size)
    for last in range(size - 1, ZERO, -1):
        swap(scores, nodes, ZERO, last)
        sink(scores, nodes, ZERO, last)


@piece
def offer(scores: Array, nodes: Array, size: int, limit: int, score: float, node: int) -> int:
    """Keep the `limit` best hypotheses and return their number; when it reaches `limit`, they form a heap."""
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
    """Copy the first n entries in a loop, which compiles faster than a slice."""
    for k in range(n):
        target[k] = source[k]


@piece
def keep_best(scores: Array, nodes: Array, size: int, limit: int) -> int:
    """Move the `limit` best of `size` hypotheses to the front, unordered, and return how many there are."""
    if size <= limit:
        return size
    make_heap(scores, nodes, limit)
    for k in range(limit, size):
        if better(scores[k], nodes[k], scores[0], nodes[0]):
            swap(scores, nodes, k, ZERO)
            sink(scores, nodes, ZERO, limit)
    return limit


# -- vectors and triangles -----------------------------------------------------------------------------


@piece
def subtract(target: Array, factor: float, row: Array) -> None:
    """``target -= factor * row``."""
    for j in range(len(target)):
        target[j] -= factor * row[j]


@piece
def squared_norm(vector: Array) -> float:
    total = 0.0
    for j in range(len(vector)):
        total += vector[j] * vector[j]
    return total


@summing
def dot(u: Array, v: Array) -> float:
    """Return the dot product in the precision of the factors, summed in any order, as in a matrix product."""
    total: float = u[0] * v[0]
    for j in range(1, len(u)):
        total += u[j] * v[j]
    return total


@piece
def factor_row(factor: Array, m: int, ridge: float) -> None:
    """Turn row m of a Gram matrix into row m of its Cholesky factor, with `ridge` added to the diagonal.

    If a vector depends on those before it, only rounding is left on the diagonal, which is set to 0.
    """
    for q in range(m):
        total = factor[m, q]
        for k in range(q):
            total -= factor[m, k] * factor[q, k]
        factor[m, q] = total / factor[q, q] if factor[q, q] > 0.0 else 0.0
    diagonal = factor[m, m] + ridge
    total = diagonal
    for k in range(m):
        total -= factor[m, k] * factor[m, k]
    factor[m, m] = np.sqrt(total) if total > ROUNDING * diagonal else 0.0


@piece
def forward_step(factor: Array, solution: Array, m: int, right: float) -> float:
    """Return entry m of the solution of ``L y = right`` from the entries before it."""
    for k in range(m):
        right -= factor[m, k] * solution[k]
    return right / factor[m, m] if factor[m, m] > 0.0 else 0.0


@piece
def solve_transposed(factor: Array, size: int, right: Array, solution: Array) -> None:
    """Solve ``L^T z = right``; an entry is 0 if the diagonal of the factor is 0 there."""
    for m in range(size - 1, -1, -1):
        total = right[m]
        for q in range(m + 1, size):
            total -= factor[q, m] * solution[q]
        solution[m] = total / factor[m, m] if factor[m, m] > 0.0 else 0.0
