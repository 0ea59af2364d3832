"""Blocks of images, and the threads that process them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hcep import HCEPError
from hcep.pursuit.blocks import BLOCK, block_size, for_blocks, n_threads, single_threaded_blas, squared_norms


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_every_image_is_visited_once(n: int, n_jobs: int) -> None:
    visits = np.zeros(n, dtype=int)

    def work(rows: slice) -> None:
        visits[rows] += 1

    for_blocks(n, work, n_jobs)
    assert visits.tolist() == [1] * n


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_ends_the_run(n_jobs: int) -> None:
    def work(rows: slice) -> None:
        raise KeyError(rows.start)

    with pytest.raises(KeyError, match="0"):
        for_blocks(50, work, n_jobs, block=5)


def test_there_are_no_more_threads_than_blocks() -> None:
    names: set[str] = set()
    for_blocks(10, lambda rows: names.add(threading.current_thread().name), 8, block=10)
    assert names == {threading.main_thread().name}


def test_n_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    everything = n_threads(None)
    assert everything == n_threads(-1) >= 1
    assert n_threads(3) == n_threads(np.int64(3)) == 3
    assert n_threads(-10_000) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert n_threads(None) == 1
    assert n_threads(2) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert n_threads(None) == everything


def test_n_threads_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert n_threads(None) == 7


@pytest.mark.parametrize("bad", [0, 1.5, True, "2"])
def test_an_invalid_n_jobs_is_rejected(bad: object) -> None:
    with pytest.raises(HCEPError, match=r"n_jobs must be a positive number of threads, -1 for all cores, or None"):
        n_threads(bad)


def test_blas_is_single_threaded_inside() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"), single_threaded_blas():
        assert set(blas_threads()) == {1}


LATER = """
from threadpoolctl import threadpool_info
from hcep.pursuit.blocks import single_threaded_blas
with single_threaded_blas():
    pass
import scipy.linalg
with single_threaded_blas():
    print(*(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
"""


def test_a_library_that_is_loaded_later_is_limited_too() -> None:
    two_threads = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True, env=two_threads)
    assert set(done.stdout.split()) == {"1"}


def test_squared_norms_are_summed_in_double_precision() -> None:
    row = np.full((1, 100_000), 0.1, dtype=np.float32)
    assert squared_norms(row)[0] == pytest.approx(100_000 * float(np.float32(0.1)) ** 2, rel=1e-12)


def test_work_runs_with_single_threaded_blas() -> None:
    threads: list[int] = []
    with threadpool_limits(2, user_api="blas"):
        for_blocks(2, lambda rows: threads.extend(blas_threads()), 1, block=1)
        outside = blas_threads()
    assert set(threads) == {1}
    assert set(outside) == {2}


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blocks_shrink_for_very_large_trees():
    assert block_size(10) == BLOCK
    assert block_size(82_115) == 204
    assert block_size(10**9) == 64
