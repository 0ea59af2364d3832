"""Accuracy, support precision and recall against the number of training images per class, at full depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcep.experiments.experiment import described
from hcep.experiments.figures import curves
from hcep.experiments.measuring import CONTROLS, Cell, measured, method_cell
from hcep.experiments.readings import Verdict, ahead, by_data, by_method, labels_of
from hcep.experiments.records import Row
from hcep.experiments.sparsity import BASELINES, MAIN, about_ours
from hcep.experiments.tasks import Task

ALL = "all"
BEAM = 32


@dataclass(frozen=True)
class Config:
    """Images per class; None is every image. `once` are slow to fit and take the first seed alone."""

    shots: tuple[int | None, ...] = (1, 5, 12, 50)
    seeds: tuple[int, ...] = (0, 1, 2)
    methods: tuple[str, ...] = (
        *("omp", "hnn", "cbm", "nn", "hier-omp", "hb-omp", "omp:convex", "hb-omp:convex"),
        *(*CONTROLS, "anchored", "hcep"),
    )
    once: tuple[str, ...] = ("cbm:convex", "nn-lasso", "tree-l1")
    beam: int = BEAM
    n_val: int | None = None


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """A cell per method, number of shots and seed; numbers beyond the data's are left out, "all" has one seed."""
    available = task.images_per_class
    for k in config.shots:
        if k is not None and k >= available and None in config.shots:
            continue
        for name in (*config.methods, *config.once):
            several = k is not None and k < available and name not in config.once
            for seed in config.seeds if several else config.seeds[:1]:
                yield method_cell(name, config.beam, shots=k or ALL, seed=seed)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    k = None if cell["shots"] == ALL else cell["shots"]
    row, _ = measured(cell, task.shots(k, cell["seed"]).first_images(config.n_val))
    shots = task.images_per_class if k is None else k
    yield {**row, "shots": shots, "all_images": k is None, "depth": task.hierarchy.depth}


def verdicts(rows: list[Row]) -> list[Verdict]:
    """As published for HB-OMP; ours against it, the others, and its controls: at every number of images."""
    found = []
    for data, group in by_data(rows).items():
        paper = [label for label in labels_of(group) if label.startswith("HB-OMP") and "convex" not in label]
        for metric in MAIN if paper else ():
            found += ahead(group, data, paper[0], BASELINES, metric, paper=True, at="shots")
        found += about_ours(group, data, paper[:1], at="shots")
    return found


def table(rows: list[Row]) -> str:
    """Accuracy / precision / recall, one line per method; calibration and the distance of mistakes."""
    text = ""
    for data, group in by_data(rows).items():
        text += f"{data}, accuracy / support precision / support recall by training images per class (mean over "
        text += "seeds; bold is the best and what is tied with it):\n\n" + by_method(group, "shots", MAIN) + "\n"
        text += "Accuracy with half the 95 % interval over seeds (one seed: over the images):\n\n"
        text += by_method(group, "shots", ("accuracy",), interval=True) + "\n"
        text += "Tree distance of mistakes / calibration error, lower is better:\n\n"
        text += by_method(group, "shots", ("tree_distance", "ece")) + "\n"
    return text


FEW = ("omp", "hnn", "cbm", "nn", "hb-omp", "linear-probe", "nearest-mean", "no-tree", "hcep")
SMOKE = Config(shots=(1, 5), seeds=(0,), methods=FEW, once=(), beam=8, n_val=300)
draw = curves("shots", MAIN, "training images per class", places=True)
EXPERIMENT = described("fewshot", cells, measure, draw, verdicts, table, Config(), SMOKE)
