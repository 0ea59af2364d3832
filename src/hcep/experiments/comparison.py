"""OMP, HNN, NN, the paper's HB-OMP and ours on the bundled sample: table and images of the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.classify import HCEPClassifier
from hcep.evaluate import grade_methods
from hcep.experiments.measuring import PUBLISHED, estimator, method_cell
from hcep.experiments.tasks import Task
from hcep.pursuit import PathResult

#: What stands in the demo's table, and how it is called there.
METHODS = {"omp": "OMP", "hnn": "HNN", "nn": "NN", "hb-omp": "HB-OMP (paper)", "hcep": "HCEP (ours)"}


@dataclass(frozen=True)
class Row:
    """One method's result on the evaluated images."""

    method: str
    label_from: str
    accuracy: float
    precision: float
    recall: float
    tree_distance: float
    images_per_second: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Rows, and what is needed to explain single images: the fitted classifier and the paper's paths."""

    rows: list[Row]
    ours: HCEPClassifier
    ours_result: PathResult
    paper_result: PathResult


def compare_methods(task: Task, beam_width: int = 8, on_step: Callable[[str], None] = lambda name: None) -> Comparison:
    """Fit and grade the demo's methods, the published ones with the published head, the others by the leaf.

    Speeds are those of the pursuit alone, kernels compiled.
    """
    made = {label: estimator(method_cell(name, beam_width), task) for name, label in METHODS.items()}
    found = grade_methods(made, (task.X_val, task.y_val), (task.X, task.y), on_method=on_step).graded
    rows = []
    for name, label in METHODS.items():
        means, head = found[label].scores.summary(), "published head" if name in PUBLISHED else "leaf of the path"
        accuracy, precision, recall = (means[key] for key in ("correct", "support_precision", "support_recall"))
        speed = found[label].speed(task.X_val)
        rows.append(Row(label, head, accuracy, precision, recall, means["tree_distance"], speed))
    ours, paper = found[METHODS["hcep"]], found[METHODS["hb-omp"]]
    return Comparison(rows, ours.estimator, ours.result, paper.result)


def only_ours_right(comparison: Comparison, y_val: NDArray[Any]) -> Iterator[int]:
    """Images whose path is wrong by the paper's rule and right by ours; two-way splits first."""
    wrong = comparison.paper_result.leaves != y_val
    right = comparison.ours_result.leaves == y_val
    found = np.flatnonzero(wrong & right)
    negative = [comparison.paper_result.coefficients(int(i)).min() for i in found]
    yield from (int(i) for i in found[np.argsort(negative, kind="stable")])
