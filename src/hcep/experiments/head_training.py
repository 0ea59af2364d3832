"""The linear head as published (AdamW) beside the convex solver: do they agree, and how long does each take?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcep.experiments.experiment import Cell, Experiment, Verdict
from hcep.experiments.grading import fitted, graded
from hcep.experiments.problem import Problem
from hcep.experiments.records import Row
from hcep.experiments.tables import by_data, markdown, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Config:
    """HB-OMP codes at full depth; the published head needs torch and is skipped without it.

    `heads` are the kind and, for the convex solver, its C: the default, and one as weak as AdamW's decay.
    """

    heads: tuple[tuple[str, float], ...] = (("logistic", 1.0), ("logistic", 1000.0), ("adamw", 0.0))
    beam: int = 8
    shots: int | None = None
    n_val: int | None = None


def cells(config: Config, problem: Problem) -> Iterator[Cell]:
    """A cell a head."""
    for head, C in config.heads:
        yield {"head": head, "C": C, "beam": config.beam, "shots": config.shots}


def measure(config: Config, problem: Problem, cell: Cell) -> Iterator[Row]:
    """One row; fitting HB-OMP's dictionary is the same for both."""
    problem = problem.shots(config.shots, 0).first_images(config.n_val)
    fitted(problem, "hb-omp", cell["beam"], head="path")  # the kernels, so that neither head pays for compiling
    options = {"C": cell["C"], "max_iter": 5000} if cell["C"] else {}
    method, seconds = fitted(problem, "hb-omp", cell["beam"], head=cell["head"], **options)
    label = f"convex, C {cell['C']:g}" if cell["C"] else "AdamW"
    yield {**cell, "label": label, **graded(method, problem), "fit_seconds": seconds}


def draw(rows: list[Row]) -> Figure:
    """Accuracy with its interval and seconds, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [f"{r['data']}\n{r['label']}" for r in rows]
    low = [r["accuracy"] - r["accuracy_low"] for r in rows]
    high = [r["accuracy_high"] - r["accuracy"] for r in rows]
    left.errorbar(range(len(rows)), [r["accuracy"] for r in rows], yerr=(low, high), fmt="o", capsize=3)
    right.bar(range(len(rows)), [r["fit_seconds"] for r in rows], color="#1f77b4")
    for axes, title in ((left, "accuracy"), (right, "seconds to fit")):
        axes.set_xticks(range(len(rows)), names, fontsize=7)
        axes.set_title(title)
    return figure


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Half a point is the bar."""
    found = []
    for data, mine in by_data(rows).items():
        at = {r["label"]: r for r in mine}
        for weak, a in at.items():
            if weak == "AdamW" or "AdamW" not in at:
                continue
            b = at["AdamW"]
            found.append(
                Verdict(
                    f"{data}: AdamW and the {weak} solver agree to within half a point of accuracy",
                    abs(a["accuracy"] - b["accuracy"]) <= 0.005,
                    f"{weak} {short(a['accuracy'])} in {a['fit_seconds']:.1f} s, "
                    f"AdamW {short(b['accuracy'])} in {b['fit_seconds']:.1f} s",
                )
            )
    return found


def table(rows: list[Row]) -> str:
    """One line a head."""
    return markdown(
        ("data", "head", "accuracy", "95 % interval", "seconds to fit"),
        (
            (
                r["data"],
                r["label"],
                short(r["accuracy"]),
                f"{short(r['accuracy_low'])} to {short(r['accuracy_high'])}",
                f"{r['fit_seconds']:.1f}",
            )
            for r in rows
        ),
    )


EXPERIMENT = Experiment(
    name="heads",
    title="The linear head: AdamW as published, and a convex solver",
    paper="Table of hyperparameters: AdamW, learning rate 0.1, weight decay 1e-4, 500 epochs, batches of 4,096 "
    "(ImageNet: 1,000 and 16,384).",
    question="Is the convex solver the same classifier, sooner?",
    config=Config(),
    smoke=Config(heads=(("logistic", 1.0),), shots=5, n_val=200),
    data=("imagenette", "tiny-imagenet"),
    cells=cells,
    measure=measure,
    draw=draw,
    verdicts=verdicts,
    table=table,
    reading="AdamW's decay of 1e-4 hardly regularises, so its head is that of the convex solver with a large C. "
    "With many images a class they are the same; with few, the default C of 1 regularises more and is better.",
)
