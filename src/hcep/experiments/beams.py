"""The beam: what a wider one brings on ImageNette, and what it costs at twelve images per class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from hcep._tables import markdown, number
from hcep.evaluate.grade import timed
from hcep.experiments.experiment import described
from hcep.experiments.figures import Figure, canvas, curves, style
from hcep.experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from hcep.experiments.readings import TITLES, Verdict, ahead, by_data, by_method, labels_of
from hcep.experiments.records import Row
from hcep.experiments.sparsity import MAIN
from hcep.experiments.tasks import Task


@dataclass(frozen=True)
class AblationConfig:
    """Beams; 0 is the exact search of all paths."""

    beams: tuple[int, ...] = (1, 4, 8, 0)
    shots: int | None = None
    n_val: int | None = None


def ablation_cells(config: AblationConfig, task: Task) -> Iterator[Cell]:
    for beam in config.beams:
        yield method_cell("hb-omp" if beam else "exact", beam, shots=config.shots)


def ablation(config: AblationConfig, task: Task, cell: Cell) -> Iterator[Row]:
    task = task.shots(config.shots, 0).first_images(config.n_val)
    depth = task.hierarchy.depth
    for level in range(1, depth + 1):
        yield {**measured(cell, task, images=level == depth, max_steps=level)[0], "sparsity": level}


def ablation_verdicts(rows: list[Row]) -> list[Verdict]:
    """Does a beam of 8 recover more than greedy search?"""
    found = []
    for data, mine in by_data(rows).items():
        full = [r for r in mine if r["sparsity"] == max(r["sparsity"] for r in mine)]
        for metric in MAIN[1:]:
            found += ahead(full, f"{data}, full depth", "HB-OMP (beam 8)", ["HB-OMP (beam 1)"], metric, paper=True)
    return found


ABLATION = described(
    "beam-ablation",
    *(ablation_cells, ablation, curves("sparsity", MAIN, "sparsity level", by=None), ablation_verdicts),
    *(lambda rows: by_method(rows, "sparsity", MAIN), AblationConfig()),
    AblationConfig(beams=(1, 8), shots=5, n_val=200),
)


@dataclass(frozen=True)
class RuntimeConfig:
    """Twelve images per class at full depth, as published; methods are timed in turns, `repeats` times."""

    beams: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    methods: tuple[str, ...] = ("omp", "hnn", "nn", "nearest-mean", "no-tree", "exact", "anchored", "hcep")
    shots: int | None = 12
    repeats: int = 9
    n_val: int | None = None


def runtime_cells(config: RuntimeConfig, task: Task) -> Iterator[Cell]:
    """One cell for all methods: times are only comparable within one run."""
    yield {"beams": list(config.beams), "methods": list(config.methods), "shots": config.shots}


def runtime(config: RuntimeConfig, task: Task, cell: Cell) -> Iterator[Row]:
    """Seconds to search all validation images, beside accuracy and support scores."""
    task = task.shots(config.shots, 0).first_images(config.n_val)
    plan = [method_cell("hb-omp", beam) for beam in config.beams] + [method_cell(name) for name in config.methods]
    graded = [measured(one, task) for one in plan]
    # In turns, so that a slow moment of the machine hits all.
    times = np.array(
        [[timed(partial(found.estimator.pursue, task.X_val))[1] for _, found in graded] for _ in range(config.repeats)]
    )
    for (row, _), own in zip(graded, times.T, strict=True):
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75])
        spread = {"seconds": middle, "seconds_low": low, "seconds_high": high}
        turns = {f"seconds_{i}": seconds for i, seconds in enumerate(own)}
        yield {**row, **spread, **turns, "images_per_second": len(task.y_val) / middle}


def draw_runtime(rows: list[Row]) -> Figure:
    figure = canvas(8, 3.4)
    beams, others = [r for r in rows if r["beam"]], [r for r in rows if not r["beam"]]
    for metric, axes in zip(("support_precision", "accuracy"), figure.subplots(1, 2), strict=True):
        axes.plot([r["seconds"] for r in beams], [r[metric] for r in beams], **style("HB-OMP"))
        for row in beams:
            place = {"fontsize": 7, "xytext": (3, 3), "textcoords": "offset points"}
            axes.annotate(f"B {row['beam']}", (row["seconds"], row[metric]), **place)
        for row in others:
            look = {**style(row["label"]), "linestyle": ""}
            axes.plot(row["seconds"], row[metric], label=row["label"], **look)
        axes.set_xscale("log")
        axes.set(xlabel="seconds for all validation images", ylabel=TITLES[metric])
        axes.grid(alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def runtime_verdicts(rows: list[Row]) -> list[Verdict]:
    """Does precision improve with the beam, what does it cost, and what does ours?"""
    beams = [label for label in labels_of(rows) if label.startswith("HB-OMP")]
    where = rows[0]["data"]
    found = ahead(rows, where, beams[-1], beams[:1], "support_precision", paper=True)
    turns = [
        {"label": r["label"], "seed": i, "seconds": r[f"seconds_{i}"]}
        for r in rows
        for i in range(len(rows[0]))
        if f"seconds_{i}" in r
    ]
    for ours in ("Exact", OUR_LABEL):
        for other in (beams[-1], beams[0], "OMP", "NN"):
            found += ahead(turns, where, ours, [other], "seconds")
    return found


def runtime_table(rows: list[Row]) -> str:
    lines = (
        [
            r["label"],
            *(f"{1000 * r[name]:.0f}" for name in ("seconds", "seconds_low", "seconds_high")),
            f"{r['images_per_second']:,.0f}",
            *(number(np.nan if r[m] is None else r[m]) for m in MAIN),
        ]
        for r in rows
    )
    quartiles = ("ms for all images, median", "quarter", "three quarters")
    return markdown(("method", *quartiles, "images/s", *(TITLES[m] for m in MAIN)), lines)


SMOKE = RuntimeConfig(beams=(1, 8), methods=("omp", "exact", "hcep"), shots=5, repeats=3, n_val=300)
RUNTIME = described(
    "runtime", runtime_cells, runtime, draw_runtime, runtime_verdicts, runtime_table, RuntimeConfig(), SMOKE
)
