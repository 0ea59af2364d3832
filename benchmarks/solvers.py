"""Our solver and other libraries with one interface: `run` is timed, `prepare` is not, and `skip` returns a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from speed_task import SpeedTask

from hcep import hb_omp, omp

Run = Callable[[], object]


@dataclass(frozen=True)
class Solver:
    """A named way to do the work on `n_images` of the task's images (None: all), with a number of threads.

    Each solver, and BLAS, runs with the number of threads that is fastest for it.
    """

    name: str
    prepare: Callable[[SpeedTask, int], Run]
    n_images: int | None = None
    skip: Callable[[], str | None] = lambda: None


def bare_product(task: SpeedTask, threads: int) -> Run:
    """X @ Q.T with one row of Q for every node of the tree, even if nodes share a direction."""
    basis = task.dictionary.path_problem()
    Q = basis.directions32[np.maximum(basis.column[1:], 0)]
    return lambda: task.X @ Q.T


def exact(task: SpeedTask, threads: int) -> Run:
    return lambda: hb_omp(task.X, task.dictionary, beam_width=None, n_jobs=threads)


def beam_32(task: SpeedTask, threads: int) -> Run:
    return lambda: hb_omp(task.X, task.dictionary, beam_width=32, n_jobs=threads)


def flat_omp(task: SpeedTask, threads: int) -> Run:
    return lambda: omp(task.X, task.dictionary, task.n_nonzero, n_jobs=threads)


def sklearn_omp(task: SpeedTask, threads: int) -> Run:
    from sklearn.linear_model import orthogonal_mp_gram

    unit, few = unit_atoms(task), task.X[:SKLEARN_IMAGES]
    gram = unit @ unit.T
    return lambda: orthogonal_mp_gram(gram, unit @ few.T, n_nonzero_coefs=task.n_nonzero)


def spams_omp(task: SpeedTask, threads: int) -> Run:
    import spams

    D, columns = np.asfortranarray(unit_atoms(task).T), np.asfortranarray(task.X.T)
    return lambda: spams.omp(columns, D, L=task.n_nonzero, return_reg_path=False, numThreads=threads)


def unit_atoms(task: SpeedTask) -> NDArray[np.float32]:
    atoms = task.dictionary.atoms
    return (atoms / np.maximum(np.linalg.norm(atoms, axis=1), 1e-12)[:, None]).astype(np.float32)


def needs_spams() -> str | None:
    return None if find_spec("spams") else 'needs spams-bin: pip install "hcep[bench]"'


#: scikit-learn codes a few hundred images per second, so it is measured on fewer images.
SKLEARN_IMAGES = 500

BARE, EXACT, BEAM, FLAT = "bare X @ Q.T", "hb_omp, exact", "hb_omp, beam 32", "omp (flat)"
SKLEARN, SPAMS = "scikit-learn orthogonal_mp_gram", "SPAMS omp"
SOLVERS = (
    Solver(BARE, bare_product),
    Solver(EXACT, exact),
    Solver(BEAM, beam_32),
    Solver(FLAT, flat_omp),
    Solver(SKLEARN, sklearn_omp, n_images=SKLEARN_IMAGES),
    Solver(SPAMS, spams_omp, skip=needs_spams),
)
