"""A second, naive implementation of the pursuits, written from the paper's Algorithms 1-3 and the public API only.

It shares nothing with `hcep.pursuit`: each hypothesis is one least-squares problem, solved by `numpy.linalg.lstsq`.
Each answer has the margin of its closest decision, so that tests can leave out near ties.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hcep import ConceptDictionary


@dataclass(frozen=True)
class Hypothesis:
    """A rooted path (or, for OMP, the atoms in the order of selection) with its coefficients.

    `squared_residual` is ||x - D^T a||^2, and `objective` adds anchor * ||a - 1||^2 over these atoms.
    """

    synsets: tuple[str, ...]
    atoms: tuple[int, ...]
    coefficients: np.ndarray
    residual: np.ndarray
    objective: float
    condition: float

    @property
    def squared_residual(self) -> float:
        return float(self.residual @ self.residual)


@dataclass(frozen=True)
class Answer:
    """The answer of a pursuit for one image.

    Attributes
    ----------
    beam : tuple of Hypothesis
        The final beam, best first.
    steps : tuple of tuple of Hypothesis
        The beam after each step, starting with the empty path.
    margin : float
        The smallest gap, relative to the image, among the decisions that led to ``beam[0]``.
    order_margin : float
        The smallest gap between neighbours in the final beam's ranking.
    """

    beam: tuple[Hypothesis, ...]
    steps: tuple[tuple[Hypothesis, ...], ...]
    margin: float
    order_margin: float

    @property
    def best(self) -> Hypothesis:
        return self.beam[0]


@dataclass
class Scale:
    """Divides gaps by the norm of the image, and keeps the smallest."""

    squared_norm: float
    margin: float = math.inf

    def of_scores(self, gap: float) -> None:
        self.margin = min(self.margin, abs(gap) / math.sqrt(self.squared_norm))

    def of_objectives(self, gap: float) -> None:
        self.margin = min(self.margin, abs(gap) / self.squared_norm)


class Oracle:
    """The pursuits of one dictionary.

    Parameters
    ----------
    dictionary : ConceptDictionary
    signed : bool
        Require a positive new coefficient for each child.
    anchor : float
        Weight of the prior that every coefficient is 1, in units of ``dictionary.anchor_unit``.
    """

    def __init__(self, dictionary: ConceptDictionary, signed: bool = False, anchor: float = 0.0) -> None:
        self.hierarchy = dictionary.hierarchy
        self.atoms = np.asarray(dictionary.atoms)
        self.atom_of = {edge: k for k, edge in enumerate(dictionary.edges)}
        self.signed = signed
        self.anchor = anchor * dictionary.anchor_unit

    # -- Algorithm 1 -------------------------------------------------------------------------------

    def omp(self, x: np.ndarray, n_nonzero: int, tol: float = 0.0) -> Answer:
        """Run orthogonal matching pursuit over all atoms."""
        scale = self._scale(x)
        steps = [self._fit(x, (), ())]
        for _ in range(n_nonzero):
            scale.of_objectives(steps[-1].squared_residual - tol**2)
            if math.sqrt(steps[-1].squared_residual) < tol:
                break
            scores = [self._cosine(steps[-1].residual, k) for k in range(len(self.atoms))]
            chosen = int(np.argmax(scores))
            others = [score for k, score in enumerate(scores) if k != chosen]
            scale.of_scores(scores[chosen] - max(others, default=0.0))
            scale.of_scores(scores[chosen])
            support = tuple(dict.fromkeys((*steps[-1].atoms, chosen)))
            steps.append(self._fit(x, tuple(self._lower_end(k) for k in support), support))
        best = min(steps, key=lambda h: h.squared_residual)
        return Answer((best,), tuple((h,) for h in steps), scale.margin, math.inf)

    # -- Algorithms 2 and 3 ------------------------------------------------------------------------

    def hb_omp(self, x: np.ndarray, beam_width: int, max_steps: int | None = None, tol: float = 0.0) -> Answer:
        """Run hierarchical beam OMP."""
        scale = self._scale(x)
        beam = [self._fit(x, (), ())]
        steps = [tuple(beam)]
        for _ in range(self._n_steps(max_steps)):
            closest = min(h.squared_residual for h in beam)
            scale.of_objectives(closest - tol**2)
            if math.sqrt(closest) < tol:
                break
            new = [extended for h in beam for extended in self._extend(x, h, beam_width, scale)]
            ranked = sorted(new, key=lambda h: h.objective)
            if len(ranked) > beam_width:
                scale.of_objectives(ranked[beam_width].objective - ranked[beam_width - 1].objective)
            beam = ranked[:beam_width]
            steps.append(tuple(beam))
        return self._answer(beam, steps, scale)

    def _extend(self, x: np.ndarray, h: Hypothesis, beam_width: int, scale: Scale) -> list[Hypothesis]:
        eligible = self._eligible(h, scale)
        if not eligible:
            return [h]
        scores = [self._cosine(h.residual, self._atom(h, child)) for child in eligible]
        ranked = sorted(range(len(eligible)), key=lambda i: -scores[i])
        if len(ranked) > beam_width:
            scale.of_scores(scores[ranked[beam_width - 1]] - scores[ranked[beam_width]])
        return [self._child(x, h, eligible[i]) for i in ranked[:beam_width]]

    # -- exact search ------------------------------------------------------------------------------

    def exact(self, x: np.ndarray, max_steps: int | None = None, tol: float = 0.0) -> Answer:
        """Enumerate all rooted paths down to the first level with a residual below tol, and return the best."""
        scale = self._scale(x)
        steps = []
        for level in range(self._n_steps(max_steps) + 1):
            steps.append(tuple(sorted(self._paths(x, level, scale), key=lambda h: h.objective)))
            closest = min(h.squared_residual for h in steps[-1])
            if level < self._n_steps(max_steps):
                scale.of_objectives(closest - tol**2)
            if math.sqrt(closest) < tol:
                break
        return self._answer(list(steps[-1]), steps, scale)

    def _paths(self, x: np.ndarray, level: int, scale: Scale) -> Iterator[Hypothesis]:
        """Yield every path of `level` synsets, and the shorter ones that cannot be extended."""
        waiting = [self._fit(x, (), ())]
        while waiting:
            h = waiting.pop(0)
            eligible = self._eligible(h, scale) if len(h.synsets) < level else []
            if not eligible:
                yield h
            waiting += [self._child(x, h, child) for child in eligible]

    # -- shared by the searches --------------------------------------------------------------------

    def _fit(self, x: np.ndarray, synsets: tuple[str, ...], atoms: Sequence[int]) -> Hypothesis:
        """Minimise ||x - D^T a||^2 + anchor ||a - 1||^2 over a."""
        columns = self.atoms[list(atoms)].T.reshape(len(x), len(atoms))
        prior = math.sqrt(self.anchor) * np.eye(len(atoms))
        stacked = np.vstack([columns, prior])
        coefficients = np.zeros(0)
        condition = 1.0
        if len(atoms):
            coefficients = np.linalg.lstsq(stacked, np.concatenate([x, prior.sum(axis=1)]), rcond=1e-12)[0]
            condition = float(np.linalg.cond(stacked))
        residual = x - columns @ coefficients
        objective = float(residual @ residual + self.anchor * np.sum((coefficients - 1.0) ** 2))
        return Hypothesis(synsets, tuple(atoms), coefficients, residual, objective, condition)

    def _child(self, x: np.ndarray, h: Hypothesis, child: str) -> Hypothesis:
        return self._fit(x, (*h.synsets, child), (*h.atoms, self._atom(h, child)))

    def _atom(self, h: Hypothesis, child: str) -> int:
        return self.atom_of[(self._last(h), child)]

    def _last(self, h: Hypothesis) -> str:
        return h.synsets[-1] if h.synsets else self.hierarchy.root

    def _lower_end(self, atom: int) -> str:
        return next(child for (_, child), k in self.atom_of.items() if k == atom)

    def _correlation(self, residual: np.ndarray, atom: int) -> float:
        """Return <r, d> of the augmented vectors; at a new level, both have the entry sqrt(anchor)."""
        return float(residual @ self.atoms[atom]) + self.anchor

    def _cosine(self, residual: np.ndarray, atom: int) -> float:
        """Return |<r, d>| / ||d||, or 0 for a zero atom; dividing by ||r|| as well would not change any order."""
        norm = math.sqrt(float(self.atoms[atom] @ self.atoms[atom]) + self.anchor)
        return abs(self._correlation(residual, atom)) / norm if norm else 0.0

    def _eligible(self, h: Hypothesis, scale: Scale) -> list[str]:
        children = list(self.hierarchy.children(self._last(h)))
        if not self.signed:
            return children
        correlations = [self._correlation(h.residual, self._atom(h, child)) for child in children]
        for child, correlation in zip(children, correlations, strict=True):
            norm = math.sqrt(float(np.sum(self.atoms[self._atom(h, child)] ** 2)) + self.anchor)
            scale.of_scores(correlation / norm if norm else math.inf)
        return [child for child, correlation in zip(children, correlations, strict=True) if correlation > 0.0]

    def _scale(self, x: np.ndarray) -> Scale:
        return Scale(float(x @ x) + self.anchor * self.hierarchy.depth or 1.0)

    def _n_steps(self, max_steps: int | None) -> int:
        return self.hierarchy.depth if max_steps is None else max_steps

    def _answer(self, beam: list[Hypothesis], steps: list[tuple[Hypothesis, ...]], scale: Scale) -> Answer:
        ranked = sorted(beam, key=lambda h: h.objective)
        gaps = [(b.objective - a.objective) / scale.squared_norm for a, b in pairwise(ranked)]
        margin = min(scale.margin, gaps[0] if gaps else math.inf)
        return Answer(tuple(ranked), tuple(steps), margin, min(gaps, default=math.inf))
