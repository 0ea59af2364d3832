"""OMP, HNN, NN, the paper's HB-OMP and ours on the bundled sample: table and images of the demo."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.classify import HCEPClassifier
from hcep.evaluate import grade_methods
from hcep.experiments.measuring import PUBLISHED, estimator, method_cell
from hcep.experiments.tasks import Task
from hcep.pursuit import PathResult

#: What stands in the demo's table, and how it is called there.
METHODS = {"omp": "OMP", "hnn": "HNN", "nn": "NN", "hb-omp": "HB-OMP (paper)", "hcep": "HCEP (ours)"}

#: Its columns, and the scores they are means of.
COLUMNS = {"accuracy": "correct", "precision": "support_precision", "recall": "support_recall"}
COLUMNS["tree_distance"] = "tree_distance"


class Comparison(NamedTuple):
    """Rows, and what is needed to explain single images: the fitted classifier and the paper's paths."""

    rows: list[dict[str, Any]]
    ours: HCEPClassifier
    ours_result: PathResult
    paper_result: PathResult


def compare_methods(task: Task, beam_width: int = 8, on_step: Callable[[str], None] = lambda name: None) -> Comparison:
    """Fit and grade the demo's methods, the published ones with the published head, the others by the leaf.

    Speeds are those of the pursuit alone, kernels compiled.
    """
    made = {label: estimator(method_cell(name, beam_width), task) for name, label in METHODS.items()}
    found = grade_methods(made, (task.X_val, task.y_val), (task.X, task.y), on_method=on_step).graded
    rows: list[dict[str, Any]] = []
    for name, label in METHODS.items():
        means = found[label].scores.summary()
        row = {"method": label, "label_from": "published head" if name in PUBLISHED else "leaf of the path"}
        scores = {column: means[score] for column, score in COLUMNS.items()}
        rows.append({**row, **scores, "images_per_second": found[label].speed(task.X_val)})
    ours, paper = found[METHODS["hcep"]], found[METHODS["hb-omp"]]
    return Comparison(rows, ours.estimator, ours.result, paper.result)


def only_ours_right(comparison: Comparison, y_val: NDArray[Any]) -> Iterator[int]:
    """Images whose path is wrong by the paper's rule and right by ours; two-way splits first."""
    found = np.flatnonzero((comparison.paper_result.leaves != y_val) & (comparison.ours_result.leaves == y_val))
    negative = [comparison.paper_result.coefficients(int(i)).min() for i in found]
    yield from (int(i) for i in found[np.argsort(negative, kind="stable")])
