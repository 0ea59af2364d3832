"""Coverage and unknown classes on a small part of the sample; a fixed level of the same coverage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.tasks import Task, sample
from experiments.trust import EXPERIMENT, FIXED, HEDGED, KIND, SCORE, Config, cells


@pytest.fixture(scope="module")
def task() -> Task:
    whole = sample(tree=True)
    return replace(whole, X=whole.X[:, ::20], X_val=whole.X_val[:, ::20])


@pytest.fixture(scope="module")
def rows(task: Task) -> list[dict]:
    config = Config(alphas=(0.05, 0.3), splits=2, draws=(10,), shots=10)
    found = [row for cell in cells(config, task) for row in EXPERIMENT.measure(config, task, cell)]
    return [{"data": task.name, **row} for row in found]


def test_coverage_is_kept_and_equals_that_of_the_fixed_level(rows: list[dict]) -> None:
    hedged = [r for r in rows if r["label"] == HEDGED]
    fixed = [r for r in rows if r["label"] == FIXED]
    assert [r["coverage"] for r in hedged] == [r["coverage"] for r in fixed]
    assert all(r["coverage"] > 1 - r["alpha"] - 0.06 for r in hedged)
    assert all(0.0 <= r["worst_classes"] <= r["coverage"] for r in hedged)


def test_unknown_images_are_detected_and_placed(rows: list[dict]) -> None:
    found = {r["label"]: r for r in rows if r["part"] == "unknown"}
    assert found[SCORE]["auroc"] > 0.7
    assert 0.0 <= found[KIND]["false_alarms"] < 0.3
    assert 0.0 <= found[KIND]["right_kind"] <= 1.0


def test_rows_make_a_table_verdicts_and_a_figure(rows: list[dict]) -> None:
    assert EXPERIMENT.table(rows).count("\n|") > 10
    assert all(verdict.claim and verdict.measured for verdict in EXPERIMENT.verdicts(rows))
    assert len(EXPERIMENT.draw(rows).axes) == 3
