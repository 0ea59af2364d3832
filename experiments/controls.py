"""The controls of every page that claims an accuracy: other classifiers of the same images and features.

All of them see what ours sees, and may tune one setting on further images that ours does not see.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.neighbors import KNeighborsClassifier

from experiments.baselines.few_shot import Ridge, gaussian_analysis, random_projection, tuned_cache
from experiments.baselines.methods import make_method
from experiments.baselines.partial_labels import Linear, regression_path
from experiments.measuring import Cell, measured, method_cell
from experiments.records import Row
from experiments.tasks import Task
from hcep import HCEPClassifier
from hcep.classify.left_out import rank_in_class
from hcep.classify.methods.baselines import LinearProbe
from hcep.dictionary.transform import prepared_rows

Array = NDArray[Any]
#: Penalties of logistic regression from strong to weak, for centred images of mean square norm 1.
PENALTIES = (1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
#: Numbers of neighbours that are tried.
NEIGHBOURS = (1, 3, 5, 10, 20)
#: Unused training images per class to tune on; without any, the share of the used ones to tune on.
SPARE, TRIED_ON = 10, 0.2
RAW, FOR_LOSS = "Logistic regression, raw features", "Logistic regression, raw, tuned for log loss"
POWER, METRIC = "Logistic regression, our power", "Logistic regression, our power and metric"
METRIC_FOR_LOSS = "Logistic regression, our power and metric, tuned for log loss"
LDA, GDA, RIDGE, RANPAC = "Shrinkage LDA", "GDA", "Ridge, leave-one-out", "RanPAC"
CACHE, KNN, MEAN = "Tip-Adapter cache", "kNN in our metric", "Nearest mean in our metric"
#: Every control by its label: the method whose name its rows have, and its features.
CONTROLS = {
    MEAN: ("nearest-mean", "power"),
    LDA: ("lda", "power"),
    GDA: ("linear-probe", "power"),
    RIDGE: ("linear-probe", "power"),
    RANPAC: ("linear-probe", "power"),
    CACHE: ("linear-probe", "power"),
    KNN: ("linear-probe", "metric"),
    RAW: ("linear-probe", "raw"),
    FOR_LOSS: ("linear-probe", "raw"),
    POWER: ("linear-probe", "power"),
    METRIC: ("linear-probe", "metric"),
    METRIC_FOR_LOSS: ("linear-probe", "metric"),
}
#: Controls that tune the penalty of a logistic regression: for accuracy, and for log loss.
REGRESSIONS = ((RAW, FOR_LOSS), (POWER, ""), (METRIC, METRIC_FOR_LOSS))


@dataclass(frozen=True)
class Control:
    """A fitted control.

    Attributes
    ----------
    method : classifier with `predict_proba`
    task : the task with the features that the control sees
    seconds : time to tune and to fit
    """

    label: str
    method: Any
    task: Task
    seconds: float


def fitted_controls(
    drawn: Task, ours: HCEPClassifier | None, tuning: tuple[Array, Array], wanted: Collection[str] = tuple(CONTROLS)
) -> Iterator[Control]:
    """Fit controls to a draw, one after the other.

    Parameters
    ----------
    drawn : the task with the training images of the draw
    ours : our classifier fitted to the same images; the controls use its power and its metric. None is for controls
        that do not use its metric, on embeddings whose power it does not change
    tuning : (X, y) of further images to tune on; without any, controls are tuned on a fifth of the training images
    wanted : labels of controls
    """
    features: dict[str, Callable[[Array], Array]] = {"raw": np.asarray, "power": np.asarray}
    if ours is not None:
        transform = ours.dictionary_.transform
        features |= {"power": lambda X: prepared_rows(X, transform.power, False), "metric": transform}
    for names in _groups(wanted):
        change = features[CONTROLS[names[0] or names[1]][1]]
        here = replace(drawn, X=change(drawn.X), X_val=change(drawn.X_val))
        start = time.perf_counter()
        methods = _fitted(names, here, change(tuning[0]), tuning[1])
        seconds = time.perf_counter() - start
        yield from (Control(name, method, here, seconds) for name, method in zip(names, methods, strict=True) if name)


def _groups(wanted: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the labels that one fit gives; a regression gives two, of which "" is not wanted."""
    pairs = {label: pair for pair in REGRESSIONS for label in pair if label}
    yield from ((label,) for label in CONTROLS if label in wanted and label not in pairs)
    for pair in REGRESSIONS:
        names = tuple(label if label in wanted else "" for label in pair)
        if any(names):
            yield names


def _fitted(names: Sequence[str], task: Task, X_tune: Array, y_tune: Array) -> Sequence[Any]:
    """Return the fitted classifiers of the labels."""
    name = names[0]
    if len(names) == 2:
        return tuned_regression(task, X_tune, y_tune)
    if CONTROLS[name][0] != "linear-probe":
        return (make_method(CONTROLS[name][0], task.hierarchy).fit(task.X, task.y),)
    own = np.unique(task.y, return_inverse=True)[1]
    few = split_for_tuning(task, X_tune, y_tune)
    heads: dict[str, Callable[[], Any]] = {
        GDA: lambda: gaussian_analysis(task.X, task.y),
        RIDGE: Ridge,
        RANPAC: lambda: random_projection(task.X, own, few),
        CACHE: lambda: tuned_cache(*few),
        KNN: lambda: _neighbours(*few),
    }
    return (LinearProbe(task.hierarchy, head=heads[name]()).fit(task.X, task.y),)


def split_for_tuning(task: Task, X_tune: Array, y_tune: Array) -> tuple[Array, Array, Array, Array]:
    """Return training images and images for tuning, each with the numbers of their classes.

    Without images for tuning, a fifth of the training images of each class is used for tuning instead.
    """
    classes, own = np.unique(task.y, return_inverse=True)
    if len(y_tune):
        return task.X, own, X_tune, np.searchsorted(classes, y_tune)
    away = _held_out(own)
    return task.X[~away], own[~away], task.X[away], own[away]


def control_rows(cell: Cell, controls: Iterator[Control]) -> Iterator[Row]:
    """Grade fitted controls; `cell` are settings of their rows."""
    for control in controls:
        row, _ = measured(method_cell(CONTROLS[control.label][0], **cell), control.task, control.method)
        yield {
            **row,
            "label": control.label,
            "fit_seconds": control.seconds,
            **log_loss(control.method, control.task),
        }


def log_loss(method: Any, task: Task) -> Row:
    """Return the mean log loss of the validation images."""
    own = np.searchsorted(method.classes_, task.y_val)
    likely = method.predict_proba(task.X_val)[np.arange(len(own)), own]
    return {"log_loss": float(-np.mean(np.log(np.maximum(likely, 1e-300))))}


def tuning_images(task: Task, drawn: Task) -> tuple[Array, NDArray[np.str_]]:
    """Return the images for tuning of a task, or training images that a draw did not use, at most `SPARE` per class."""
    if task.tuning is not None:
        return task.tuning
    left = np.flatnonzero(~np.isin(task.ids, drawn.ids))
    own = np.unique(task.y[left], return_inverse=True)[1]
    rows = left[rank_in_class(own, np.random.default_rng(0)) < SPARE] if len(left) else left
    return task.X[rows], task.y[rows]


def _held_out(own: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Choose a fifth of the training images of each class, and leave at least one."""
    counts = np.bincount(own)[own]
    return np.asarray(rank_in_class(own, np.random.default_rng(0)) < np.minimum(np.ceil(TRIED_ON * counts), counts - 1))


def tuned_regression(task: Task, X_tune: Array, y_tune: NDArray[np.str_]) -> tuple[LinearProbe, LinearProbe]:
    """Fit logistic regression with the penalty tuned on further images, once for accuracy and once for log loss.

    Without any, on a fifth of the task's; with one image per class of those the weakest penalty is taken.
    """
    classes, own = np.unique(task.y, return_inverse=True)
    centre = task.X.mean(axis=0)
    scale = 1.0 / np.sqrt(np.mean(np.sum((task.X - centre) ** 2, axis=1)) or 1.0)
    X, X_tune = (((some - centre) * scale).astype(np.float32) for some in (task.X, X_tune))
    truth = np.searchsorted(classes, y_tune)
    away = _held_out(own) & (len(y_tune) == 0)
    if away.any():
        X_tune, truth = X[away], own[away]
    chosen = (len(PENALTIES) - 1, len(PENALTIES) - 1)
    labels = np.eye(len(classes), dtype=bool)[own]
    path = list(regression_path(X[~away], labels[~away], PENALTIES))
    if len(truth):
        odds = [softmax(X_tune @ weights + bias, axis=1) for weights, bias in path]
        mine = [np.maximum(p[np.arange(len(p)), truth], 1e-300) for p in odds]
        right = [float(np.mean(p.argmax(axis=1) == truth)) for p in odds]
        chosen = (int(np.argmax(right)), int(np.argmax([np.mean(np.log(p)) for p in mine])))
    path = list(regression_path(X, labels, PENALTIES[: max(chosen) + 1])) if away.any() else path
    made = []
    for weights, bias in (path[k] for k in chosen):
        head = Linear(scale * weights, bias - scale * centre @ weights)
        made.append(LinearProbe(task.hierarchy, head=head).fit(task.X, task.y))
    return made[0], made[1]


def _neighbours(X: Array, own: Array, X_tune: Array, truth: Array) -> KNeighborsClassifier:
    """Return nearest neighbours, as many as are the most accurate on images for tuning; without any, one."""
    tried = [KNeighborsClassifier(k, weights="distance") for k in NEIGHBOURS if k <= len(X)]
    if not len(truth):
        return tried[0]
    return tried[int(np.argmax([model.fit(X, own).score(X_tune, truth) for model in tried]))]
