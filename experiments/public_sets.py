"""Few images per class on public sets without a given tree: ours flat and under an induced tree, and simple methods."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from experiments.claims import Verdict, ahead, by_method, table_by_data, verdicts_by_data
from experiments.controls import (
    CACHE,
    CONTROLS,
    FOR_LOSS,
    GDA,
    LDA,
    MEAN,
    POWER,
    RAW,
    RIDGE,
    control_rows,
    fitted_controls,
    tuning_images,
)
from experiments.experiment import described
from experiments.figures import curves
from experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from experiments.records import Row
from experiments.tasks import Task
from hcep.classify import HCEPClassifier
from hcep.hierarchy import Hierarchy
from hcep.taxonomy.induction import class_means, induce_from_embeddings

INDUCED, NEAREST = "HCEP, induced tree", "NN"
#: Methods with cells of their own, by label; ours never changes the power of CLIP embeddings, which can be negative.
METHODS = {OUR_LABEL: "hcep", INDUCED: "hcep", NEAREST: "nn"}
METHODS |= {label: CONTROLS[label][0] for label in (MEAN, LDA, GDA, RIDGE, CACHE, RAW)}
#: Controls that share a cell and a fit of ours, whose metric they use.
SHARED = tuple(label for label in CONTROLS if label not in METHODS and label != POWER)
OTHERS = (*(label for label in METHODS if label not in (OUR_LABEL, INDUCED)), *SHARED)
SCORES = ("accuracy", "ece")


@dataclass(frozen=True)
class Config:
    """Images per class and seeds of their draws; `few_seeds` draws from 200 classes on."""

    shots: tuple[int, ...] = (1, 2, 4, 8, 16)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    few_seeds: int = 2
    n_val: int | None = None


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield cells by number of images and draw; all images of the data are one draw."""
    available = task.images_per_class
    n_seeds = config.few_seeds if len(task.hierarchy.leaves) >= 200 else len(config.seeds)
    for k in (k for k in config.shots if k <= available):
        for seed in config.seeds[: n_seeds if k < available else 1]:
            yield from (method_cell(name, label=label, shots=k, seed=seed) for label, name in METHODS.items())
            yield {"shots": k, "seed": seed, "controls": len(SHARED)}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure ours without a tree or under an induced one, or controls."""
    flat = Hierarchy.from_edges([("any", label) for label in np.unique(task.y).tolist()])
    drawn = task.shots(cell["shots"], cell["seed"]).first_images(config.n_val).under(flat)
    label = cell.get("label")
    if "controls" in cell or label in CONTROLS:
        ours = HCEPClassifier(flat).fit(drawn.X, drawn.y) if "controls" in cell else None
        wanted = SHARED if label is None else (label,)
        settings = {name: value for name, value in cell.items() if name in ("shots", "seed")}
        yield from control_rows(settings, fitted_controls(drawn, ours, tuning_images(task, drawn), wanted))
        return
    if label == INDUCED:
        names, means = class_means(drawn.X, drawn.y)
        drawn = drawn.under(induce_from_embeddings(means, names).hierarchy)
    yield {**measured(cell, drawn)[0], "label": label}


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare ours, flat and under an induced tree, with every other method at every number of images."""
    for label in OTHERS:
        yield from ahead(rows, data, OUR_LABEL, [label], "accuracy", at="shots")
    yield from ahead(rows, data, INDUCED, [OUR_LABEL], "accuracy", at="shots")
    yield from ahead(rows, data, OUR_LABEL, [FOR_LOSS], "ece", at="shots")


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    text = (
        f"**{data}**: accuracy by training images per class (mean over draws ± half the 95 % interval; bold marks the "
    )
    text += "best and everything tied with it):\n\n" + by_method(rows, "shots", ("accuracy",), interval=True)
    return text + "\nCalibration error, lower is better:\n\n" + by_method(rows, "shots", ("ece",)) + "\n"


draw = curves("shots", SCORES, "training images per class", places=True)
SMOKE = Config(shots=(2,), seeds=(0,), n_val=200)
EXPERIMENT = described("fewshot-public", cells, measure, draw, verdicts, table, Config(), SMOKE)
