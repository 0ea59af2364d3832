"""Ties: how much of a result depends on the order of siblings, which decides between paths of equal residual."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from experiments.claims import Verdict, ahead, series, table_by_data, threshold, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell, measured, method_cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import Task
from hcep.hierarchy import Hierarchy
from hcep.pursuit import hb_omp

METRICS = ("accuracy", "support_precision", "support_recall")
#: A larger range over the orders of siblings is a difference that a reader would care about.
LARGEST_RANGE = 0.01
AS_WRITTEN = -1
RANDOM, WRITTEN = "a random order", "the order of the file"


@dataclass(frozen=True)
class Config:
    """Number of random orders of the siblings, besides the order in the file."""

    methods: tuple[str, ...] = ("hb-omp", "hcep")
    orders: int = 20
    beam: int = 16


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per method and order; -1 is the order in the file."""
    for name in config.methods:
        for order in range(AS_WRITTEN, config.orders):
            yield method_cell(name, config.beam, order=order)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure one method under a hierarchy that differs only in the order of siblings, and count the ties."""
    tree = task.hierarchy if cell["order"] == AS_WRITTEN else reordered(task.hierarchy, cell["order"])
    row, graded = measured(cell, task.under(tree), images=False)
    if cell["method"] == "hb-omp":
        best = hb_omp(task.X_val, graded.estimator.dictionary_, beam_width=config.beam, n_best=2).n_best_residual_norms
        row["ties"] = float(np.mean(np.isclose(best[:, 0], best[:, 1], rtol=1e-6)))
    yield row


def reordered(hierarchy: Hierarchy, seed: int) -> Hierarchy:
    """Return the same hierarchy with the children of every concept in a random order."""
    order = np.random.default_rng(seed).permutation(hierarchy.n_edges)
    names = {synset: hierarchy.name(synset) for synset in hierarchy.ids}
    return Hierarchy.from_edges([hierarchy.edges[i] for i in order], names, root=hierarchy.root)


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check whether the order of siblings moves a result, and compare random orders with that of the file."""
    for label in dict.fromkeys(r["label"] for r in rows):
        mine = [r for r in rows if r["label"] == label]
        written = next((r for r in mine if r["order"] == AS_WRITTEN), None)
        random = [{**r, "label": RANDOM, "seed": r["order"]} for r in mine if r["order"] != AS_WRITTEN]
        # The order of the file is one, so its row is paired with every random order.
        pairs = random + [{**written, "label": WRITTEN, "seed": r["seed"]} for r in random] if written else []
        for metric in METRICS:
            yield from ahead(pairs, f"{data}: {label}", RANDOM, [WRITTEN], metric)
            values = [r[metric] for r in mine]
            text = f"{number(min(values))} to {number(max(values))} over {len(values)} orders"
            claim = f"{data}: {label}: the order of siblings moves {metric.replace('_', ' ')} by less than a point"
            yield threshold(claim, LARGEST_RANGE - (max(values) - min(values)), text)


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return each metric in the order of the file, and its mean and range over random orders."""
    lines = []
    for label in dict.fromkeys(r["label"] for r in rows):
        mine = [r for r in rows if r["label"] == label]
        written, random = ([r for r in mine if (r["order"] == AS_WRITTEN) is own] for own in (True, False))
        cells = []
        for metric in METRICS:
            values = [r[metric] for r in random]
            _, means, _, highs = series(random, "label", metric)
            mean = f"{number(means[0])} ± {number(highs[0] - means[0])}"
            cells.append(f"{number(written[0][metric])}; {mean} ({number(min(values))} to {number(max(values))})")
        ties = [r["ties"] for r in written if r.get("ties") is not None]
        lines.append((label, *cells, number(ties[0]) if ties else "–"))
    heads = ("", *(metric.replace("_", " ") for metric in METRICS), "images whose two best paths tie")
    text = f"**{data}**: in the order of the file; mean over {len(random)} random orders of siblings ± half its 95 % "
    text += "interval, and their range\n\n"
    return text + markdown(heads, lines).replace("|  |", "| |", 1) + "\n"


def draw(rows: list[Row]) -> Figure:
    """Draw a dot for each order of siblings; a line marks the order of the file."""
    figure = canvas(9, 3.0)
    lines = list(dict.fromkeys((r["data"], r["label"]) for r in rows))
    for axes, metric in zip(figure.subplots(1, len(METRICS), sharey=True), METRICS, strict=True):
        for i, line in enumerate(lines):
            mine = [r for r in rows if (r["data"], r["label"]) == line]
            axes.plot([r[metric] for r in mine], [i] * len(mine), "o", alpha=0.4, markersize=4, color="#4573b8")
            axes.plot([r[metric] for r in mine if r["order"] == AS_WRITTEN], [i], "|", markersize=16, color="black")
        axes.set_title(metric.replace("_", " "))
    figure.axes[0].set_yticks(range(len(lines)), [f"{data}\n{label}" for data, label in lines], fontsize=7)
    return figure


EXPERIMENT = described("ties", cells, measure, draw, verdicts, table, Config(), Config(orders=2, beam=4))
