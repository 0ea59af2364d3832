"""Process images in blocks of a fixed size on all cores, with the same results for any number of threads."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep._progress import progress as bar
from hcep.errors import HCEPError, quote

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

#: The number of images per block. It is fixed, because the rounding of a matrix product depends on its shape. It is
#: large enough that packing the directions costs little, and small enough that a block's products stay in cache.
BLOCK = 1024
#: Up to this many images are searched without compiled kernels and without threads.
FEW = 64
#: Modules that load their own BLAS library.
WITH_BLAS = ("numpy", "scipy.linalg", "torch", "spams")
#: The number of calls that share the thread limit, and the objects that lift it.
_LIMITS: dict[Any, Any] = {"calls": 0}
_LOCK = threading.Lock()


def block_size(n_columns: int) -> int:
    """Return the number of images per block that keeps products with `n_columns` directions small.

    It depends only on the dictionary, so that results do not depend on the number of images.
    """
    return max(64, min(BLOCK, 2**24 // max(n_columns, 1)))


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads to use.

    If `n_jobs` is None, these are all cores that this process may use, limited by OMP_NUM_THREADS; -1 is all cores.
    """
    try:
        n_cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        n_cores = os.cpu_count() or 1
    if n_jobs is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        return min(n_cores, int(limit)) if limit.isdigit() and int(limit) > 0 else n_cores
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise HCEPError(f"n_jobs must be a positive number of threads, -1 for all cores, or None; got {quote(n_jobs)}")
    return int(n_jobs) if n_jobs > 0 else max(1, n_cores + 1 + int(n_jobs))


def for_blocks(
    n_images: int,
    work: Callable[[slice], None],
    n_jobs: int | None,
    progress: bool = False,
    description: str = "",
    block: int = BLOCK,
) -> None:
    """Call `work` with the slice of every block of images, in parallel; the first exception ends the run.

    `n_jobs` is as for `n_threads`, and `description` the label of the progress bar.
    """
    allowed = n_threads(n_jobs)
    if 0 < n_images <= min(FEW, block) and not progress:  # limiting threads takes longer than the product itself
        work(slice(0, n_images))
        return
    blocks = [slice(i, min(i + block, n_images)) for i in range(0, n_images, block)]
    with single_threaded_blas(), bar(description, n_images, progress, "images") as advance:
        threads = min(allowed, len(blocks))
        if threads <= 1:
            for rows in blocks:
                work(rows)
                advance(rows.stop - rows.start)
            return
        with ThreadPoolExecutor(threads) as pool:
            try:
                for rows, _ in zip(blocks, pool.map(work, blocks), strict=True):
                    advance(rows.stop - rows.start)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


@cache
def _blas(loaded: tuple[bool, ...]) -> "ThreadpoolController":
    """Return the BLAS libraries of this process, cached by which modules are `loaded` because finding them is slow."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Use one BLAS thread per product, so that the threads over blocks do not compete with threads inside them.

    The limit applies to the whole process. Callers in several threads share it, and the last one to finish lifts it.
    """
    loaded = tuple(name in sys.modules for name in WITH_BLAS)
    with _LOCK:
        _LIMITS["calls"] += 1
        if loaded not in _LIMITS:
            _LIMITS[loaded] = _blas(loaded).limit(limits=1)
    try:
        yield
    finally:
        with _LOCK:
            _LIMITS["calls"] -= 1
            while not _LIMITS["calls"] and len(_LIMITS) > 1:
                _LIMITS.popitem()[1].restore_original_limits()  # newest first: the oldest has the original limits


def squared_norms(X: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared norm of every row, summed in double precision."""
    norms: NDArray[np.float64] = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return norms
