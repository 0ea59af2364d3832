"""One method on one problem: fitted, timed, graded by the same function as everything else."""

from __future__ import annotations

import time
from typing import Any

from hcep.classify.methods import METHODS, make_method
from hcep.evaluate import ImageScores, bootstrap_interval, evaluate_method
from hcep.experiments.problem import Problem
from hcep.experiments.records import Row

#: Columns that get an interval over the images.
INTERVALS = ("accuracy", "support_precision", "support_recall", "support_f1")
N_RESAMPLES = 500


def labelled(name: str, beam_width: int | None = None) -> str:
    """How a method is called in figures: its label, with the beam where there is one."""
    label = METHODS[name].label
    return f"{label} (beam {beam_width})" if beam_width else label


def fitted(problem: Problem, name: str, beam_width: int | None = None, **options: Any) -> tuple[Any, float]:
    """A method fitted on the problem's training images, and the seconds it took."""
    method = make_method(name, problem.hierarchy, beam_width=beam_width, **options)
    start = time.perf_counter()
    method.fit(problem.X, problem.y)
    return method, time.perf_counter() - start


def graded(method: Any, problem: Problem) -> Row:
    """Metrics of a fitted method on the problem's validation images, with intervals over the images."""
    start = time.perf_counter()
    scores = evaluate_method(method, problem.X_val, problem.y_val)
    seconds = time.perf_counter() - start
    return {**as_row(scores), "n_train": len(problem.y), "n_val": len(problem.y_val), "evaluate_seconds": seconds}


def as_row(scores: ImageScores) -> Row:
    """Means of all columns, intervals of the main ones."""
    row: Row = dict(scores.summary())
    row = {"accuracy": row.pop("correct"), **row}
    for name in INTERVALS:
        column = scores["correct" if name == "accuracy" else name]
        _, low, high = bootstrap_interval(column, n_resamples=N_RESAMPLES)
        row[f"{name}_low"], row[f"{name}_high"] = low, high
    return row
