"""Ours and the peers behind one interface: `prepare` is not timed, `run` is; a solver that cannot run says why."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from problem import Problem

from hcep import hb_omp, omp

Run = Callable[[], object]


@dataclass(frozen=True)
class Solver:
    """A named way to do the work on `n_images` of the problem's images (all where None)."""

    name: str
    prepare: Callable[[Problem], Run]
    n_images: int | None = None
    skip: Callable[[], str | None] = lambda: None


def bare_product(problem: Problem) -> Run:
    """X @ Q.T with one row of Q for every node of the tree, shared directions or not."""
    basis = problem.dictionary.path_basis
    Q = basis.directions32[np.maximum(basis.column[1:], 0)]
    return lambda: problem.X @ Q.T


def exact(problem: Problem) -> Run:
    return lambda: hb_omp(problem.X, problem.dictionary, beam_width=None, n_jobs=problem.n_threads)


def beam_32(problem: Problem) -> Run:
    return lambda: hb_omp(problem.X, problem.dictionary, beam_width=32, n_jobs=problem.n_threads)


def flat_omp(problem: Problem) -> Run:
    return lambda: omp(problem.X, problem.dictionary, problem.n_nonzero, n_jobs=problem.n_threads)


def sklearn_omp(problem: Problem) -> Run:
    from sklearn.linear_model import orthogonal_mp_gram

    atoms = problem.dictionary.atoms
    unit = (atoms / np.maximum(np.linalg.norm(atoms, axis=1), 1e-12)[:, None]).astype(np.float32)
    gram, few = unit @ unit.T, problem.X[:SKLEARN_IMAGES]
    return lambda: orthogonal_mp_gram(gram, unit @ few.T, n_nonzero_coefs=problem.n_nonzero)


def spams_omp(problem: Problem) -> Run:
    import spams

    atoms = problem.dictionary.atoms
    unit = (atoms / np.maximum(np.linalg.norm(atoms, axis=1), 1e-12)[:, None]).astype(np.float32)
    D, columns = np.asfortranarray(unit.T), np.asfortranarray(problem.X.T)
    return lambda: spams.omp(columns, D, L=problem.n_nonzero, return_reg_path=False, numThreads=problem.n_threads)


def needs_spams() -> str | None:
    return None if find_spec("spams") else 'needs spams-bin: pip install "hcep[bench]"'


#: scikit-learn does a few hundred images a second; a part of them is enough to tell.
SKLEARN_IMAGES = 500

BARE = Solver("bare X @ Q.T", bare_product)
SOLVERS = (
    Solver("hb_omp, exact", exact),
    Solver("hb_omp, beam 32", beam_32),
    Solver("omp (flat)", flat_omp),
    Solver("scikit-learn orthogonal_mp_gram", sklearn_omp, n_images=SKLEARN_IMAGES),
    Solver("SPAMS omp", spams_omp, skip=needs_spams),
)

os.environ.setdefault("OMP_NUM_THREADS", "2")
