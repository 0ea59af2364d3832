"""Accuracy and calibration of ours and of linear models on the same features."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from experiments.claims import Verdict, ahead, by_method, difference, table_by_data, threshold, verdicts_by_data
from experiments.controls import (
    CONTROLS,
    FOR_LOSS,
    MEAN,
    METRIC_FOR_LOSS,
    RAW,
    control_rows,
    fitted_controls,
    log_loss,
    tuning_images,
)
from experiments.experiment import described
from experiments.figures import curves
from experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from experiments.records import Row
from experiments.tasks import Task

#: Labels of ours without refinement, and of ours without a tree.
STILL, NO_TREE = "HCEP, class means", "HCEP without a tree"
METRICS = ("accuracy", "log_loss", "ece")
#: Targets: the gain over logistic regression on raw features, and the largest calibration errors.
GAIN, MAX_ECE, MAX_ECE_FEW = 0.025, 0.03, 0.05


@dataclass(frozen=True)
class Config:
    """Images per class, and seeds of their draws."""

    shots: tuple[int, ...] = (1, 2, 5, 12, 50)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n_val: int | None = None


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per number of images and draw, up to the number of images in the data, which has one draw."""
    available = task.images_per_class
    for k in (k for k in config.shots if k <= available):
        for seed in config.seeds[: 1 if k == available else None]:
            yield {"shots": k, "seed": seed, "controls": len(CONTROLS)}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure ours, and every control on raw features, on features to the power that ours chose, or in its metric."""
    raw = task.shots(cell["shots"], cell["seed"]).first_images(config.n_val)
    row, graded = measured(method_cell("hcep", **cell), raw)
    ours = graded.estimator
    moved = 0.0 if ours.leaf_moves_ is None else float(ours.leaf_moves_.mean())
    chosen = {"power": ours.power_, "shrinkage": ours.shrinkage_, "exponent": ours.calibration_.exponent}
    yield {**row, **log_loss(ours, raw), **chosen, "moved": moved}
    for label, name in {STILL: "hcep", NO_TREE: "no-tree"}.items():
        row, graded = measured(method_cell(name, **cell), raw, **({"refine": False} if label == STILL else {}))
        yield {**row, "label": label, **log_loss(graded.estimator, raw)}
    yield from control_rows(cell, fitted_controls(raw, ours, tuning_images(task, raw)))


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare accuracy with every control, support with methods that return a path, calibration and log loss."""
    several = [r for r in rows if r["shots"] > 1]
    pairs = [(control, "accuracy") for control in (NO_TREE, *CONTROLS, STILL)]
    pairs += [(MEAN, "support_precision"), (MEAN, "support_recall")]
    pairs += [(control, "log_loss") for control in (FOR_LOSS, METRIC_FOR_LOSS)]
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
    timed = [r for r in rows if r["label"] in (OUR_LABEL, STILL, NO_TREE, *CONTROLS)]
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
SMOKE = Config(shots=(5,), seeds=(0,), n_val=50)
EXPERIMENT = described("quality", cells, measure, draw, verdicts, table, Config(), SMOKE)
