"""Accuracy and calibration of ours and of linear models on the same features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from experiments.baselines.partial_labels import Linear, regression_path
from experiments.claims import Verdict, ahead, by_method, difference, table_by_data, threshold, verdicts_by_data
from experiments.experiment import described
from experiments.figures import curves
from experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from experiments.records import Row
from experiments.tasks import Task
from hcep.classify.left_out import rank_in_class
from hcep.classify.methods.baselines import LinearProbe
from hcep.dictionary.transform import prepared_rows

Floats = NDArray[np.float64]

#: Penalties of logistic regression from strong to weak, for centred images of mean square norm 1.
PENALTIES = (1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
#: Unused training images per class to choose a penalty on; without any, the share of the used ones to choose it on.
SPARE, TRIED_ON = 10, 0.2
RAW, FOR_LOSS = "Logistic regression, raw features", "Logistic regression, raw, tuned for log loss"
#: Labels of ours without refinement, and of the controls on features to our power.
STILL, NO_TREE, MEAN = "HCEP, class means", "HCEP without a tree", "Nearest mean in our metric"
POWER, METRIC = "Logistic regression, our power", "Logistic regression, our power and metric"
LDA = "Shrinkage LDA"
CONTROLS = (NO_TREE, MEAN, LDA, RAW, POWER, METRIC)
METRICS = ("accuracy", "log_loss", "ece")
#: Targets: the gain over logistic regression on raw features, and the largest calibration errors.
GAIN, MAX_ECE, MAX_ECE_FEW = 0.025, 0.03, 0.05


@dataclass(frozen=True)
class Config:
    """Images per class, and seeds of their draws; only `few_seeds` of them from a hundred classes on."""

    shots: tuple[int, ...] = (1, 2, 5, 12, 50)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    few_seeds: int = 3
    n_val: int | None = None


def spare_images(task: Task, drawn: Task) -> tuple[NDArray[Any], NDArray[np.str_]]:
    """Return training images that a draw did not use, at most `SPARE` per class."""
    left = np.flatnonzero(~np.isin(task.ids, drawn.ids))
    own = np.unique(task.y[left], return_inverse=True)[1]
    rows = left[rank_in_class(own, np.random.default_rng(0)) < SPARE] if len(left) else left
    return task.X[rows], task.y[rows]


def tuned_regression(task: Task, X_spare: NDArray[Any], y_spare: NDArray[np.str_]) -> tuple[LinearProbe, LinearProbe]:
    """Fit logistic regression with the penalty tuned on spare images, once for accuracy and once for log loss.

    Without any, on a fifth of the task's; with one image per class of those the weakest penalty is taken.
    """
    classes, own = np.unique(task.y, return_inverse=True)
    centre = task.X.mean(axis=0)
    scale = 1.0 / np.sqrt(np.mean(np.sum((task.X - centre) ** 2, axis=1)) or 1.0)
    X, X_spare = (((some - centre) * scale).astype(np.float32) for some in (task.X, X_spare))
    counts, truth = np.bincount(own)[own], np.searchsorted(classes, y_spare)
    away = rank_in_class(own, np.random.default_rng(0)) < np.minimum(np.ceil(TRIED_ON * counts), counts - 1)
    away &= len(y_spare) == 0
    if away.any():
        X_spare, truth = X[away], own[away]
    chosen = (len(PENALTIES) - 1, len(PENALTIES) - 1)
    labels = np.eye(len(classes), dtype=bool)[own]
    path = list(regression_path(X[~away], labels[~away], PENALTIES))
    if len(truth):
        odds = [softmax(X_spare @ weights + bias, axis=1) for weights, bias in path]
        mine = [np.maximum(p[np.arange(len(p)), truth], 1e-300) for p in odds]
        right = [float(np.mean(p.argmax(axis=1) == truth)) for p in odds]
        chosen = (int(np.argmax(right)), int(np.argmax([np.mean(np.log(p)) for p in mine])))
    path = list(regression_path(X, labels, PENALTIES[: max(chosen) + 1])) if away.any() else path
    made = []
    for weights, bias in (path[k] for k in chosen):
        head = Linear(scale * weights, bias - scale * centre @ weights)
        made.append(LinearProbe(task.hierarchy, head=head).fit(task.X, task.y))
    return made[0], made[1]


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per number of images and draw, up to the number of images in the data, which has one draw."""
    n_classes, available = len(task.hierarchy.leaves), task.images_per_class
    for k in (k for k in config.shots if k <= available):
        n_seeds = 1 if k == available else config.few_seeds if n_classes >= 100 else len(config.seeds)
        yield from ({"shots": k, "seed": seed} for seed in config.seeds[:n_seeds])


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure ours, and every control on raw features, on features to the power that ours chose, or in its metric."""
    raw = task.shots(cell["shots"], cell["seed"]).first_images(config.n_val)
    first = method_cell("hcep", **cell)
    row, graded = measured(first, raw)
    ours = graded.estimator
    moved = 0.0 if ours.leaf_moves_ is None else float(ours.leaf_moves_.mean())
    chosen = {"power": ours.power_, "shrinkage": ours.shrinkage_, "exponent": ours.calibration_.exponent}
    yield {**row, **_loss(ours, raw), **chosen, "moved": moved}
    transform = ours.dictionary_.transform

    def to_power(X: NDArray[Any]) -> NDArray[Any]:
        return prepared_rows(X, transform.power, False)

    powered = replace(raw, X=to_power(raw.X), X_val=to_power(raw.X_val))
    for label, name in {STILL: "hcep", NO_TREE: "no-tree", MEAN: "nearest-mean", LDA: "lda"}.items():
        here, options = raw if label in (STILL, NO_TREE) else powered, {"refine": False} if label == STILL else {}
        row, graded = measured(method_cell(name, **cell), here, **options)
        yield {**row, "label": label, **_loss(graded.estimator, here)}
    X_spare, y_spare = spare_images(task, raw)
    features = {(RAW, FOR_LOSS): np.asarray, (POWER, ""): to_power, (METRIC, ""): transform}
    for labels, made in features.items():
        here = replace(raw, X=made(raw.X), X_val=made(raw.X_val))
        for label, probe in zip(labels, tuned_regression(here, made(X_spare), y_spare), strict=True):
            if label:
                row, _ = measured(method_cell("linear-probe", **cell), here, probe)
                yield {**row, "label": label, **_loss(probe, here)}


def _loss(method: Any, task: Task) -> Row:
    """Return the mean log loss of the validation images."""
    own = np.searchsorted(method.classes_, task.y_val)
    likely = method.predict_proba(task.X_val)[np.arange(len(own)), own]
    return {"log_loss": float(-np.mean(np.log(np.maximum(likely, 1e-300))))}


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare accuracy with every control, support with methods that return a path, calibration and log loss."""
    several = [r for r in rows if r["shots"] > 1]
    pairs = [(control, "accuracy") for control in (*CONTROLS, STILL)]
    pairs += [(MEAN, "support_precision"), (MEAN, "support_recall"), (FOR_LOSS, "log_loss")]
    for control, metric in pairs:
        yield from ahead(several, f"{data}, from 2 images", OUR_LABEL, [control], metric, at="shots")
    for k in sorted({r["shots"] for r in several}):
        yield from _targets(data, k, [r for r in several if r["shots"] == k])


def _targets(data: str, shots: int, rows: list[Row]) -> Iterator[Verdict]:
    """Check the targets that were set beforehand."""
    mine, theirs = ([r for r in rows if r["label"] == label] for label in (OUR_LABEL, RAW))
    where, most = f"{data}, {shots} images", MAX_ECE if shots >= 12 else MAX_ECE_FEW
    error = float(np.mean([r["ece"] for r in mine]))
    yield threshold(f"{where}: the calibration error is at most {most:g}", most - error, f"{error:.3f}")
    gap = difference(mine, theirs, "accuracy")
    if data.startswith("Tiny") and shots >= 5 and gap is not None:
        text = f"{100 * gap.difference:+.1f} points ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
        yield threshold(f"{where}: ours is {100 * GAIN:g} points above {RAW}", gap.difference - GAIN, text)
    for name in ("precision", "recall") if data.startswith("Tiny") and shots == 50 else ():
        value = float(np.mean([r[f"support_{name}"] for r in mine]))
        yield threshold(f"{where}: support {name} is at least .87", value - 0.87, f"{value:.4f}")


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return tables by images per class: accuracy, log loss and calibration error, support, and time to fit."""
    text = f"**{data}**: accuracy by training images per class (mean over draws ± half the 95 % interval; bold marks "
    text += "the best and everything tied with it):\n\n" + by_method(rows, "shots", ("accuracy",), interval=True)
    text += "\nLog loss / calibration error, lower is better:\n\n" + by_method(rows, "shots", ("log_loss", "ece"))
    paths = [r for r in rows if r["label"] in (OUR_LABEL, STILL, MEAN)]
    text += "\nSupport precision / recall of the methods that return a path:\n\n"
    text += by_method(paths, "shots", ("support_precision", "support_recall"))
    text += "\nSeconds to fit, on one loaded core:\n\n"
    timed = [r for r in rows if r["label"] in (OUR_LABEL, STILL, NO_TREE, MEAN, LDA)]
    text += by_method(timed, "shots", ("fit_seconds",)).replace("**", "") + "\n"
    mine, parts = [r for r in rows if r["label"] == OUR_LABEL], []
    for k in sorted({r["shots"] for r in mine}):
        here = [r for r in mine if r["shots"] == k]
        power, shrinkage = (
            " or ".join(f"{value:g}" for value in sorted({r[name] for r in here})) for name in ("power", "shrinkage")
        )
        moved = np.mean([r["moved"] for r in here])
        images = "1 image" if k == 1 else f"{k} images"
        parts.append(f"{images}: power {power}, shrinkage {shrinkage}, leaves moved by {moved:.3f}")
    return text + f"Settings that ours chose over {len({r['seed'] for r in mine})} draws: {'; '.join(parts)}.\n\n"


draw = curves("shots", (*METRICS, "support_f1"), "training images per class", places=True)
SMOKE = Config(shots=(2, 5), seeds=(0,), n_val=100)
EXPERIMENT = described("quality", cells, measure, draw, verdicts, table, Config(), SMOKE)
