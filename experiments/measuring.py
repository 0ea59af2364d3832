"""Measure one method in one setting: make it, grade it with the package's grader, and return a row."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from experiments.baselines.methods import METHODS, make_method
from experiments.records import OF_IMAGES, Row, packed
from experiments.tasks import Task
from hcep.classify import AdamWHead
from hcep.evaluate import compare_scores
from hcep.evaluate.grade import Graded, grade
from hcep.evaluate.image_scores import ImageScores
from hcep.evaluate.support import path_columns
from hcep.evaluate.truths import Truths

#: The settings of one cell, which is measured and saved as a whole.
Cell = dict[str, Any]
#: Methods with a linear head that the paper trains by AdamW; "NAME:convex" is the same code with a convex solver.
PUBLISHED = ("omp", "hier-omp", "hb-omp", "cbm", "hnn")
CONVEX = ":convex"
#: Controls for our claims: linear models on the same features, and our own estimator without a tree.
CONTROLS = ("linear-probe", "lda", "nearest-mean", "no-tree")
OUR_LABEL = METHODS["hcep"].label
#: Methods that predict a class without naming concepts: their support is the first path of the class, looked up.
LOOKED_UP = ("linear-probe", "lda", "no-tree")
#: Other supports of the same fitted CBM, whose own has as many concepts as the deepest path: option and label.
CBM_SUPPORTS = {"probable": "CBM, concepts above .5", "path": "CBM, best path"}
#: Increase the number of a method whose answers change, so that its cells, and no others, are measured again.
REVISIONS: dict[str, int] = dict.fromkeys(("hcep", "nearest-mean", "nn", "anchored", "linear-probe", "cbm"), 1)
REVISIONS |= dict.fromkeys(("no-tree", "lda"), 2) | {"hiclass": 1}
#: The optional package that some methods need.
NEEDS = {"nn-lasso": "skglm", "basis-pursuit": "skglm", "splice": "skglm"}
#: Columns of a row that get an interval over the images, and column names that differ in a row.
INTERVALS = ("correct", "support_precision", "support_recall", "support_f1", "ece")
TITLES = {"correct": "accuracy"}
#: From this many classes on, the head is trained as published for ImageNet: twice the epochs, four times the batch.
MANY_CLASSES = 200


def method_cell(name: str, beam: int = 8, **settings: Any) -> Cell:
    """Return the cell of a method: its name, its head and beam if it has them, and further settings.

    >>> method_cell("hb-omp:convex", beam=32, seed=0)
    {'method': 'hb-omp', 'head': 'logistic', 'beam': 32, 'seed': 0}
    """
    method = name.removesuffix(CONVEX)
    head = ("logistic" if name != method else "adamw") if method in PUBLISHED else None
    cell = {"method": method, "head": head, "beam": beam if method == "hb-omp" else None, **settings}
    return {**cell, "revision": REVISIONS[name]} if name in REVISIONS else cell


def labelled(cell: Cell) -> str:
    """Return the label of a cell's method in tables and figures.

    >>> labelled(method_cell("hb-omp", beam=32)), labelled(method_cell("omp:convex"))
    ('HB-OMP (beam 32)', 'OMP, convex head')
    """
    beam = f" (beam {cell['beam']})" if cell["beam"] else ""
    return METHODS[cell["method"]].label + beam + (", convex head" if cell["head"] == "logistic" else "")


def estimator(cell: Cell, task: Task, **options: Any) -> Any:
    """Return the unfitted method of a cell, with the head that is published for a task of that size."""
    if cell["head"] == "adamw":
        many = len(task.hierarchy.leaves) >= MANY_CLASSES
        published = {"epochs": 1000, "batch_size": 16384} if many else {"epochs": 500, "batch_size": 4096}
        options["head"] = AdamWHead(**published)
        if cell["method"] == "cbm":
            options["batch_size"] = published["batch_size"]  # the concepts are trained in the same batches
    elif cell["head"] is not None:
        options.setdefault("head", cell["head"])
    return make_method(cell["method"], task.hierarchy, beam_width=cell["beam"], **options)


def measured(cell: Cell, task: Task, method: Any = None, *, images: bool = True, **options: Any) -> tuple[Row, Any]:
    """Fit a cell's method, unless a fitted `method` is passed, and grade it on a task; return the row and the grade.

    `options` are parameters of the estimator. With `images`, the row has the scores of each image, which paired
    intervals need.
    """
    started = time.perf_counter()
    method = estimator(cell, task, **options).fit(task.X, task.y) if method is None else method
    fitted = time.perf_counter()
    graded = grade(method, (task.X_val, task.y_val), hierarchy=task.hierarchy)
    times = {"fit_seconds": fitted - started, "evaluate_seconds": time.perf_counter() - fitted}
    if cell["method"] in LOOKED_UP:
        graded = with_looked_up_paths(graded, task)
    metrics = {k: v for k, v in scores_row(graded.scores).items() if not k.startswith("prefix_")}
    row = {**cell, "label": labelled(cell), **metrics, **times, "n_train": len(task.y), "n_val": len(task.y_val)}
    return {**row, OF_IMAGES: packed(graded.scores)} if images else row, graded


def scores_row(scores: ImageScores) -> Row:
    """Return the means of all metrics (``correct`` as ``accuracy``), with ``_low`` and ``_high`` for some."""
    table = compare_scores({"": scores}, columns=INTERVALS, n_resamples=500)
    row = {TITLES.get(name, name): mean for name, mean in scores.summary().items()}
    for score in table.scores:
        name = TITLES.get(score.metric, score.metric)
        row[f"{name}_low"], row[f"{name}_high"] = score.low, score.high
    return row


def with_looked_up_paths(graded: Graded, task: Task) -> Graded:
    """Return the grade with the support of a path that was not searched: the first path of each predicted class."""
    path = cache(lambda label: task.hierarchy.paths(task.hierarchy.leaf_of(label))[0])
    paths = [path(label) for label in graded.scores.predicted or ()]
    columns = path_columns(paths, Truths(task.y_val, task.hierarchy).concepts, task.hierarchy)
    return replace(graded, result=paths, scores=replace(graded.scores, columns={**graded.scores.columns, **columns}))


def cbm_supports(cell: Cell, task: Task, fitted: Any) -> Iterator[Row]:
    """Yield the rows of a fitted CBM with its other supports; a method without them yields none."""
    for support, label in CBM_SUPPORTS.items() if cell["method"] == "cbm" and cell["head"] == "adamw" else ():
        row, _ = measured(cell, task, fitted.set_params(support=support, max_steps=None))
        yield {**row, "label": label}


def missing_extras(methods: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each package that some of the methods need and that is not installed."""
    labels: dict[str, list[str]] = {}
    for name in dict.fromkeys(methods):
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            labels.setdefault(NEEDS[name], []).append(METHODS[name].label)
    for package, missing in labels.items():
        yield f"{', '.join(missing)} left out: {package} is not installed; pip install {package}"
