"""The paper's algorithms, line by line and never optimised; the kernels must give the same answers.

Names follow the paper: z is a code, r a residual, h a hypothesis, H the beam, B its width, T the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary import ConceptDictionary

Vector = NDArray[np.float64]


class ReferenceCode(NamedTuple):
    """The answer of a reference algorithm for one image.

    ``margin`` is the smallest gap of any decision along the way, relative to the image's norm. If it is zero up to
    rounding, there was a tie, which another order of operations may decide differently.
    """

    code: Vector
    support: tuple[str, ...] | tuple[int, ...]
    residual_norm: float
    margin: float


def reference_omp(x: Vector, D: NDArray[np.float64], T: int, tol: float = 0.0) -> ReferenceCode:
    """Run Algorithm 1 on one image; the support consists of the atoms (rows of D) in the order of selection.

    The paper does not cover two cases: here a zero atom has cosine 0, and selection ends when every cosine is 0.
    """
    z, r = np.zeros(len(D)), x.copy()
    support: list[int] = []
    gaps = [np.inf]
    for _ in range(T):
        gaps.append(abs(float(np.linalg.norm(r)) - tol))
        if np.linalg.norm(r) < tol:
            break
        cosines = [_abs_cosine(r, d) if i not in support else 0.0 for i, d in enumerate(D)]
        i_star = int(np.argmax(cosines))
        gaps.append(_gap([-c * float(np.linalg.norm(r)) for c in cosines], 1))
        if cosines[i_star] * np.linalg.norm(r) <= 1e-12 * np.linalg.norm(x):
            break
        support.append(i_star)
        z = _least_squares(x, D, support)
        r = x - D.T @ z
    return ReferenceCode(z, tuple(support), float(np.linalg.norm(r)), min(gaps) / (float(np.linalg.norm(x)) or 1.0))


@dataclass
class _Hypothesis:
    """A code, its residual and objective, and the atoms and synsets of its path."""

    z: Vector
    r: Vector
    objective: float
    atoms: tuple[int, ...]
    path: tuple[str, ...]


def reference_hb_omp(
    x: Vector,
    dictionary: ConceptDictionary,
    beam_width: int | None = 8,
    max_steps: int | None = None,
    tol: float = 0.0,
    signed: bool = False,
    anchor: float = 0.0,
) -> ReferenceCode:
    """Run Algorithms 2 and 3 on one image; the support is the path.

    ``signed`` and ``anchor`` are our additions and keep the order of the steps. The anchored search uses the augmented
    atoms and image, ranks by the objective, and does not charge for levels that a path does not use.
    """
    anchor = anchor * dictionary.anchor_unit
    hierarchy = dictionary.hierarchy
    D = dictionary.atoms
    atom_of = {edge: k for k, edge in enumerate(dictionary.edges)}
    T = max_steps or hierarchy.depth
    B = beam_width or 10**9
    H = [_Hypothesis(np.zeros(len(D)), x.copy(), float(x @ x), (), ())]
    gaps = [np.inf]
    for _ in range(T):
        gaps += [abs(float(np.linalg.norm(h.r)) - tol) for h in H if tol]
        if min(float(np.linalg.norm(h.r)) for h in H) < tol:
            break
        H_new: list[_Hypothesis] = []
        for h in H:
            last = h.path[-1] if h.path else hierarchy.root
            active = [(atom_of[last, child], child) for child in hierarchy.children(last)]
            extended = {i: _extend(x, D, h, i, child, anchor) for i, child in active}
            cosines = {i: _selection_cosine(x, D, h, i, anchor) for i, _ in active}
            if signed:  # the new coefficient has the sign of the cosine; for a dependent atom, both are 0
                gaps += [abs(cosines[i]) for i, _ in active]
                active = [(i, child) for i, child in active if cosines[i] > 0]
            gaps.append(_gap([-abs(cosines[i]) for i, _ in active], B))
            C = sorted(active, key=lambda atom: -abs(cosines[atom[0]]))[:B]
            H_new += [extended[i] for i, _ in C] if C else [h]
        gaps.append(_gap([h.objective for h in H_new], B) / (float(np.linalg.norm(x)) or 1.0))
        H = sorted(H_new, key=lambda h: h.objective)[:B]
    best = min(H, key=lambda h: h.objective)
    gaps.append(_gap([h.objective for h in H], 1) / (float(np.linalg.norm(x)) or 1.0))
    margin = min(gaps) / (float(np.linalg.norm(x)) or 1.0)
    return ReferenceCode(best.z, best.path, float(np.linalg.norm(best.r)), margin)


def _extend(x: Vector, D: NDArray[np.float64], h: _Hypothesis, i: int, child: str, anchor: float) -> _Hypothesis:
    """Apply Algorithm 3 to one candidate: extend the support, then update the code and the residual."""
    atoms = (*h.atoms, i)
    x_aug, D_aug = _augmented(x, D, atoms, anchor)
    z = np.zeros(len(D))
    z[list(atoms)] = np.linalg.lstsq(D_aug.T, x_aug, rcond=None)[0]
    r = x - D.T @ z
    penalty = anchor * sum((z[a] - 1.0) ** 2 for a in atoms)
    return _Hypothesis(z, r, float(r @ r + penalty), atoms, (*h.path, child))


def _selection_cosine(x: Vector, D: NDArray[np.float64], h: _Hypothesis, i: int, anchor: float) -> float:
    """Return the cosine of candidate i with the residual of h, both augmented by the levels of the extended path."""
    atoms = (*h.atoms, i)
    x_aug, D_aug = _augmented(x, D, atoms, anchor)
    r_aug = x_aug - D_aug[:-1].T @ h.z[list(h.atoms)]
    # The residual's norm is the same for every candidate of h, so it cannot change their order.
    return float(r_aug @ D_aug[-1]) / (float(np.linalg.norm(D_aug[-1])) or 1.0)


def _augmented(
    x: Vector, D: NDArray[np.float64], atoms: tuple[int, ...], anchor: float
) -> tuple[Vector, NDArray[np.float64]]:
    """Return the image ``[x; sqrt(anchor) 1]`` and the atoms ``[d; sqrt(anchor) e_level]`` along a path."""
    weight = np.sqrt(anchor)
    levels = weight * np.eye(len(atoms))
    return np.concatenate([x, np.full(len(atoms), weight)]), np.hstack([D[list(atoms)], levels])


def _gap(values: Sequence[float], n_kept: int) -> float:
    """Return the gap between the last value that is kept and the first that is dropped; the lowest are kept."""
    ordered = sorted(values)
    return ordered[n_kept] - ordered[n_kept - 1] if len(ordered) > n_kept else np.inf


def _least_squares(x: Vector, D: NDArray[np.float64], support: list[int]) -> Vector:
    z = np.zeros(len(D))
    z[support] = np.linalg.lstsq(D[support].T, x, rcond=None)[0]
    return z


def _abs_cosine(r: Vector, d: Vector) -> float:
    norms = float(np.linalg.norm(r) * np.linalg.norm(d))
    return abs(float(r @ d)) / norms if norms > 0 else 0.0
