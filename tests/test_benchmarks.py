"""The judges among the benchmarks: a change that is slower fails, and a formula that a simulation contradicts."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hcep.pursuit import path_objectives
from tests.reference.random_problems import random_problem

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module
    for name in ("areas", "bound", "compare", "run", "scale", "solvers", "speed_task"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("after", "too_slow"),
    [([1.0, 1.0, 1.0], False), ([1.2, 1.3, 1.16], True), ([1.14, 1.5, 1.1], False), ([0.5, 0.5, 9.0], False)],
)
def test_the_median_of_turns_decides(benchmark, after: list[float], too_slow: bool) -> None:
    assert benchmark("compare").judge([1.0, 1.0, 1.0], after)[3] is too_slow


def test_a_slow_moment_of_the_machine_hits_both(benchmark) -> None:
    assert benchmark("compare").judge([1.0, 5.0, 1.0, 1.0], [1.0, 5.0, 1.1, 1.1])[:3] == pytest.approx((1.05, 1.0, 1.1))


def test_every_area_has_ours_and_a_peer(benchmark) -> None:
    areas = benchmark("areas").AREAS
    assert {area.name.partition(",")[0] for area in areas} >= {"fit", "predict", "probabilities", "explain", "encode"}
    assert all(area.ours in area.ways and len(area.ways) > 1 for area in areas)
    assert all(set(area.goals) <= set(area.ways) for area in areas)


def test_the_formula_is_what_the_simulation_finds(benchmark) -> None:
    scale = benchmark("scale")
    for n_nodes in (1, 4):
        case = (5e6, n_nodes, 30.0, 1024, 20.0, 0.05)
        simulated, twice = scale.simulated(*case)
        assert scale.on_paper(*case) == pytest.approx(simulated, rel=0.1)
        assert 0.0 <= twice < 0.01


def test_a_simulation_without_deaths_takes_what_the_work_takes(benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = benchmark("scale")
    monkeypatch.setattr(scale, "NODE_DEATHS", 1e-12)
    monkeypatch.setattr(scale, "WORKER_DEATHS", 1e-12)
    seconds, twice = scale.simulated(64 * 10 * 1000, 1, 10.0, 1000, 0.0, 0.0)
    assert twice == 0.0
    assert seconds == pytest.approx(10 * 100.0, rel=0.2)  # ten shards of 100 seconds per worker, some a little longer


@pytest.mark.filterwarnings("ignore::hcep.dictionary.DependentAtomsWarning")
def test_no_bound_of_a_path_is_below_its_score_and_pruning_keeps_the_best(benchmark) -> None:
    scores_and_bounds = benchmark("bound").scores_and_bounds
    for seed in range(40):  # trees and DAGs, inner synsets means or free
        problem = random_problem(seed, n_images=6)
        basis = problem.dictionary.path_problem(problem.options["anchor"])
        scores, bounds = scores_and_bounds(problem.X, basis, [0.2, 0.5, 0.9])
        anchor = basis.anchor / problem.dictionary.anchor_unit
        objectives = path_objectives(problem.X, problem.dictionary, anchor=anchor)
        assert (problem.X**2).sum(axis=1)[:, None] - scores == pytest.approx(objectives)
        for bound in bounds:
            assert (bound >= scores - 1e-9 * np.abs(scores).max()).all()
            left = np.where(bound >= scores.max(axis=1, keepdims=True) - 1e-9, scores, -np.inf)
            assert (left.argmax(axis=1) == scores.argmax(axis=1)).all()
