"""Tuned logistic regression against scikit-learn's, cells, and verdicts from rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments.baselines import few_shot
from experiments.baselines.partial_labels import regression_path
from experiments.controls import CONTROLS, MEAN, RAW, tuned_regression, tuning_images
from experiments.measuring import OUR_LABEL
from experiments.quality import NO_TREE, STILL, Config, cells, measure, table, verdicts
from experiments.tasks import Task, sample


@pytest.fixture(scope="module")
def task() -> Task:
    few = sample().first_classes(4).first_images(80)
    return replace(few, X=few.X[:, ::10], X_val=few.X_val[:, ::10])


def test_the_path_of_regressions_ends_where_scikit_learns_does() -> None:
    rng = np.random.default_rng(0)
    own = rng.integers(3, size=120)
    X = (rng.standard_normal((120, 4)) + 0.7 * np.eye(3, 4)[own]).astype(np.float32)
    penalty = 1e-2
    *_, (weights, bias) = regression_path(X, np.eye(3, dtype=bool)[own], (1.0, 0.1, penalty))
    reference = LogisticRegression(C=1 / (2 * penalty * 120), max_iter=1000, tol=1e-8).fit(X, own)
    expected = reference.decision_function(X)
    found = X @ weights + bias
    np.testing.assert_allclose(found - found.mean(axis=1, keepdims=True), expected, atol=5e-3)


def test_tuned_regressions_beat_chance(task: Task) -> None:
    drawn, nothing = task.shots(5, 0), (task.X[:0], task.y[:0])
    for probe in (*tuned_regression(drawn, *tuning_images(task, drawn)), *tuned_regression(drawn, *nothing)):
        assert probe.classes_.tolist() == np.unique(task.y).tolist()
        assert probe.score(task.X_val, task.y_val) > 0.9
    one = tuned_regression(task.shots(1, 0), *nothing)
    assert one[0].score(task.X_val, task.y_val) > 0.5


def test_tuning_images_are_not_training_images_and_balanced(task: Task) -> None:
    drawn = task.shots(5, 0)
    X, y = tuning_images(task, drawn)
    assert set(np.unique(y, return_counts=True)[1].tolist()) == {10}
    assert not {row.tobytes() for row in X} & {row.tobytes() for row in drawn.X}
    assert len(tuning_images(task, task)[1]) == 0


def test_there_is_one_draw_of_all_images(task: Task) -> None:
    config = Config(shots=(2, 50, 99), seeds=(0, 1, 2))
    settings = [(cell["shots"], cell["seed"]) for cell in cells(config, task)]
    assert settings == [(2, 0), (2, 1), (2, 2), (50, 0)]


def test_every_control_is_measured_and_the_targets_are_named(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_shot, "N_RANDOM", 500)
    config = Config(shots=(5,), seeds=(0,))
    rows = [{**row, "data": "Tiny sample"} for cell in cells(config, task) for row in measure(config, task, cell)]
    assert {row["label"] for row in rows} == {OUR_LABEL, STILL, NO_TREE, *CONTROLS}
    ours = next(row for row in rows if row["label"] == OUR_LABEL)
    assert ours["log_loss"] > 0
    assert ours["moved"] > 0
    claims = [verdict.claim for verdict in verdicts(rows)]
    assert len(claims) == len(CONTROLS) + 8
    assert any(f"2.5 points above {RAW}" in claim for claim in claims)
    assert any("the calibration error is at most 0.05" in claim for claim in claims)
    assert MEAN in table(rows)
    assert "leaves moved" in table(rows)
