"""The linear head as published (AdamW) beside the convex solver: which is better, and how long does each take?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression

from hcep._tables import markdown, number
from hcep.experiments.experiment import described
from hcep.experiments.figures import Figure, canvas
from hcep.experiments.measuring import Cell, measured, method_cell
from hcep.experiments.readings import Verdict, ahead, by_data
from hcep.experiments.records import Row
from hcep.experiments.tasks import Task


@dataclass(frozen=True)
class Config:
    """HB-OMP codes at full depth, under AdamW and under the convex solver: its default C, and a weak one."""

    Cs: tuple[float, ...] = (1.0, 1000.0)
    beam: int = 8
    shots: int | None = None
    n_val: int | None = None


def cells(config: Config, task: Task) -> Iterator[Cell]:
    yield method_cell("hb-omp", config.beam, shots=config.shots, C=None)
    for C in config.Cs:
        yield method_cell("hb-omp:convex", config.beam, shots=config.shots, C=C)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """One row; the dictionary and the codes are the same for all heads."""
    task = task.shots(config.shots, 0).first_images(config.n_val)
    options = {"head": LogisticRegression(C=cell["C"], max_iter=5000)} if cell["C"] else {}
    measured(cell, task.first_classes(3), **options)  # compiles the kernels, so that no head pays for it
    row, _ = measured(cell, task, **options)
    yield {**row, "label": f"convex, C {cell['C']:g}" if cell["C"] else "AdamW"}


def draw(rows: list[Row]) -> Figure:
    figure = canvas(11, 2.8)
    left, right = figure.subplots(1, 2)
    low = [r["accuracy"] - r["accuracy_low"] for r in rows]
    high = [r["accuracy_high"] - r["accuracy"] for r in rows]
    left.errorbar(range(len(rows)), [r["accuracy"] for r in rows], yerr=(low, high), fmt="o", capsize=3)
    right.bar(range(len(rows)), [r["fit_seconds"] for r in rows], color="#1f77b4")
    for axes, title in ((left, "accuracy"), (right, "seconds to fit")):
        axes.set_xticks(range(len(rows)), [f"{r['data']}\n{r['label']}" for r in rows], fontsize=7)
        axes.set_title(title)
    return figure


def verdicts(rows: list[Row]) -> list[Verdict]:
    """The convex head against the published one, in accuracy and calibration."""
    return [
        verdict
        for data, mine in by_data(rows).items()
        for label in dict.fromkeys(r["label"] for r in mine if r["label"] != "AdamW")
        for metric in ("accuracy", "ece")
        for verdict in ahead(mine, data, label, ["AdamW"], metric)
    ]


def table(rows: list[Row]) -> str:
    lines = (
        (
            *(r["data"], r["label"], number(r["accuracy"])),
            f"{number(r['accuracy_low'])} to {number(r['accuracy_high'])}",
            *(number(r["ece"]), f"{r['fit_seconds']:.1f}"),
        )
        for r in rows
    )
    return markdown(("data", "head", "accuracy", "95 % interval", "calibration error", "seconds to fit"), lines)


EXPERIMENT = described("heads", cells, measure, draw, verdicts, table, Config(), Config(Cs=(1.0,), shots=5, n_val=200))
