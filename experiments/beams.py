"""The width of the beam (what it gains on ImageNette, and what it costs), and the linear head by AdamW and convex."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from experiments.claims import TITLES, Verdict, ahead, by_data, by_method, labels_of, table_by_data, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Axes, Figure, canvas, curves, style
from experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from experiments.records import Row
from experiments.sparsity import MAIN
from experiments.tables import markdown, number
from experiments.tasks import Task


@dataclass(frozen=True)
class AblationConfig:
    """Widths of the beam; 0 is the exact search of all paths."""

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


@verdicts_by_data
def ablation_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check whether a beam of 8 recovers more than a greedy search."""
    full = [r for r in rows if r["sparsity"] == max(r["sparsity"] for r in rows)]
    for metric in MAIN[1:]:
        yield from ahead(full, f"{data}, full depth", "HB-OMP (beam 8)", ["HB-OMP (beam 1)"], metric, paper=True)


@table_by_data
def ablation_table(data: str, rows: list[Row]) -> str:
    text = f"{data}, accuracy / support precision / support recall by sparsity level:\n\n"
    return text + by_method(rows, "sparsity", MAIN) + "\n"


ABLATION = described(
    "beam-ablation",
    *(ablation_cells, ablation, curves("sparsity", MAIN, "sparsity level"), ablation_verdicts, ablation_table),
    AblationConfig(),
    AblationConfig(beams=(1, 8), shots=5, n_val=200),
)


@dataclass(frozen=True)
class RuntimeConfig:
    """Twelve images per class at full depth, as published; all methods are timed `repeats` times in turns."""

    beams: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    methods: tuple[str, ...] = ("omp", "hnn", "nn", "nearest-mean", "no-tree", "exact", "anchored", "hcep")
    shots: int | None = 12
    repeats: int = 9
    n_val: int | None = None


def runtime_cells(config: RuntimeConfig, task: Task) -> Iterator[Cell]:
    """Yield one cell for all methods, because times are only comparable within one run."""
    yield {"beams": list(config.beams), "methods": list(config.methods), "shots": config.shots}


def runtime(config: RuntimeConfig, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure the seconds to search all validation images, accuracy and support scores."""
    task = task.shots(config.shots, 0).first_images(config.n_val)
    plan = [method_cell("hb-omp", beam) for beam in config.beams] + [method_cell(name) for name in config.methods]
    graded = [measured(one, task) for one in plan]
    # Methods take turns, so that a slow moment of the machine affects all of them.
    times = np.array([[_seconds(one.estimator, task.X_val) for _, one in graded] for _ in range(config.repeats)])
    for (row, _), own in zip(graded, times.T, strict=True):
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75])
        spread = {"seconds": middle, "seconds_low": low, "seconds_high": high}
        turns = {f"seconds_{i}": seconds for i, seconds in enumerate(own)}
        yield {**row, **spread, **turns, "images_per_second": len(task.y_val) / middle}


def _seconds(estimator: Any, X: NDArray[Any]) -> float:
    start = time.perf_counter()
    estimator.pursue(X)
    return time.perf_counter() - start


def draw_runtime(rows: list[Row]) -> Figure:
    groups = by_data(rows)
    figure = canvas(8, 3.1 * len(groups) + 0.3)
    for (data, whole), panels in zip(groups.items(), figure.subplots(len(groups), 2, squeeze=False), strict=True):
        for metric, axes in zip(("support_precision", "accuracy"), panels, strict=True):
            _draw_times(axes, whole, metric)
            axes.set_title(data)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_times(axes: Axes, rows: list[Row], metric: str) -> None:
    beams, others = [r for r in rows if r["beam"]], [r for r in rows if not r["beam"]]
    axes.plot([r["seconds"] for r in beams], [r[metric] for r in beams], **style("HB-OMP"))
    for row in beams:
        place = {"fontsize": 7, "xytext": (3, 3), "textcoords": "offset points"}
        axes.annotate(f"B {row['beam']}", (row["seconds"], row[metric]), **place)
    for row in others:
        axes.plot(row["seconds"], row[metric], label=row["label"], **{**style(row["label"]), "linestyle": ""})
    axes.set(xlabel="seconds for all validation images", ylabel=TITLES[metric], xscale="log")
    axes.grid(alpha=0.25)


@verdicts_by_data
def runtime_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check whether precision improves with the beam, and compare the times."""
    beams = [label for label in labels_of(rows) if label.startswith("HB-OMP")]
    yield from ahead(rows, data, beams[-1], beams[:1], "support_precision", paper=True)
    yield from ahead(rows, data, "Exact", beams[-1:], "support_precision")
    turns = []
    for row in rows:
        seconds = {name.removeprefix("seconds_"): row[name] for name in row if name.startswith("seconds_")}
        turns += [{"label": row["label"], "seed": i, "seconds": s} for i, s in seconds.items() if i.isdigit()]
    for ours in ("Exact", OUR_LABEL):
        for other in (beams[-1], beams[0], "OMP", "NN"):
            yield from ahead(turns, data, ours, [other], "seconds")
    yield from ahead(turns, data, OUR_LABEL, ["Exact"], "seconds")


@table_by_data
def runtime_table(data: str, rows: list[Row]) -> str:
    lines = []
    for r in rows:
        times = (f"{1000 * r[name]:.0f}" for name in ("seconds", "seconds_low", "seconds_high"))
        scores = (number(np.nan if r[m] is None else r[m]) for m in MAIN)
        lines.append((r["label"], *times, f"{r['images_per_second']:,.0f}", *scores))
    quartiles = ("ms for all images, median", "first quartile", "third quartile")
    heads = ("method", *quartiles, "images/s", *(TITLES[m] for m in MAIN))
    return f"{data}, {rows[0]['n_val']:,} validation images:\n\n{markdown(heads, lines)}\n"


RUNTIME = described(
    "runtime",
    *(runtime_cells, runtime, draw_runtime, runtime_verdicts, runtime_table, RuntimeConfig()),
    RuntimeConfig(beams=(1, 8), methods=("omp", "exact", "hcep"), shots=5, repeats=3, n_val=300),
)


@dataclass(frozen=True)
class HeadConfig:
    """HB-OMP codes at full depth, with a head by AdamW and by the convex solver, at the default C and a large one."""

    Cs: tuple[float, ...] = (1.0, 1000.0)
    beam: int = 8
    shots: int | None = None
    n_val: int | None = None


def head_cells(config: HeadConfig, task: Task) -> Iterator[Cell]:
    yield method_cell("hb-omp", config.beam, shots=config.shots, C=None)
    for C in config.Cs:
        yield method_cell("hb-omp:convex", config.beam, shots=config.shots, C=C)


def heads(config: HeadConfig, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure one head; the dictionary and the codes are the same for all heads."""
    task = task.shots(config.shots, 0).first_images(config.n_val)
    options = {"head": LogisticRegression(C=cell["C"], max_iter=5000)} if cell["C"] else {}
    measured(cell, task.first_classes(3), **options)  # compiles the kernels before the clock starts
    row, _ = measured(cell, task, **options)
    yield {**row, "label": f"convex, C {cell['C']:g}" if cell["C"] else "AdamW"}


def draw_heads(rows: list[Row]) -> Figure:
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


@verdicts_by_data
def head_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare the convex head with the published one in accuracy and calibration."""
    for label in (label for label in labels_of(rows) if label != "AdamW"):
        for metric in ("accuracy", "ece"):
            yield from ahead(rows, data, label, ["AdamW"], metric)


def head_table(rows: list[Row]) -> str:
    lines = []
    for r in rows:
        between = f"{number(r['accuracy_low'])} to {number(r['accuracy_high'])}"
        scores = (number(r["accuracy"]), between, number(r["ece"]), f"{r['fit_seconds']:.1f}")
        lines.append((r["data"], r["label"], *scores))
    return markdown(("data", "head", "accuracy", "95 % interval", "calibration error", "seconds to fit"), lines)


HEADS = described(
    "heads",
    *(head_cells, heads, draw_heads, head_verdicts, head_table, HeadConfig()),
    HeadConfig(Cs=(1.0,), shots=5, n_val=200),
)
