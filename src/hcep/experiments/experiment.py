"""What an experiment is, and how one runs: config -> cells -> rows, a cell at a time and never twice."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcep.dictionary import DependentAtomsWarning
from hcep.errors import MissingExtraError
from hcep.experiments.problem import BUNDLED, Problem
from hcep.experiments.records import Records, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The settings of one cell: what is measured, saved and resumed as a whole.
Cell = dict[str, Any]
#: Classes that the short settings keep.
SMOKE_CLASSES = 20
OnCell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Verdict:
    """One thing the paper or we claim, whether the rows bear it out, and by how much."""

    claim: str
    holds: bool
    measured: str


@dataclass(frozen=True, eq=False)
class Experiment:
    """One figure or table of the paper.

    Attributes
    ----------
    name, title : str
    paper : str
        Where it is in the paper and what is reported there, in our words.
    question : str
        What the reader wants to know.
    config, smoke : frozen dataclass
        The full settings, and ones that take seconds.
    data : tuple of str
        Data sets at hand that it runs on where the user names none (see `problem.BUNDLED`); empty for synthetic data.
    cells : (config, problem) -> cells
    measure : (config, problem, cell) -> rows
        Rows carry the settings they differ in, and metrics.
    draw : rows -> matplotlib figure
    verdicts : rows -> verdicts
    table : rows -> Markdown
    reading : str
        How we explain what differs from the paper, where something does.
    """

    name: str
    title: str
    paper: str
    question: str
    config: Any
    smoke: Any
    data: tuple[str, ...]
    cells: Callable[[Any, Any], Iterable[Cell]]
    measure: Callable[[Any, Any, Cell], Iterable[Row]]
    draw: Callable[[list[Row]], Figure]
    verdicts: Callable[[list[Row]], list[Verdict]]
    table: Callable[[list[Row]], str]
    reading: str = ""

    def problems(self, *, smoke: bool = False) -> list[Problem | None]:
        """The data at hand, for the short settings a few of its classes; None for synthetic data, made by the cells."""
        found = [BUNDLED[name]() for name in self.data]
        return [problem.first_classes(SMOKE_CLASSES) if smoke else problem for problem in found] or [None]


def run(
    experiment: Experiment,
    problems: Sequence[Problem | None],
    output: str | PathLike[str],
    *,
    smoke: bool = False,
    fresh: bool = False,
    on_cell: OnCell = lambda what, done, total: None,
) -> Records:
    """Measure what is not measured yet and draw the figure.

    Parameters
    ----------
    experiment : Experiment
    problems : sequence of Problem or None
    output : path
        Folder of this experiment's rows and figures.
    smoke : bool
        The short settings.
    fresh : bool
        Measure everything anew.
    on_cell : callable
        Called with what is under way and how many cells are done of how many.

    Returns
    -------
    Records
        The rows of these problems; cells whose extra is not installed are skipped and listed in its provenance. Also
        in ``rows.json`` and ``rows.parquet``, drawn in ``figure.png`` and ``.svg``.
    """
    config = experiment.smoke if smoke else experiment.config
    folder = Path(output)
    if fresh:
        (folder / "rows.json").unlink(missing_ok=True)
    records = Records(folder, experiment.name)
    work = [(problem, cell) for problem in problems for cell in experiment.cells(config, problem)]
    digests = {id(problem): problem.digest if problem else "synthetic" for problem in problems}
    keys = [records.key(cell, digests[id(problem)]) for problem, cell in work]
    records.keep(keys)
    spent = records.provenance.get("seconds") or 0.0
    if not records.done.issuperset(keys):  # what is measured is measured here and now; older rows keep their origin
        records.describe(config, [problem for problem in problems if problem], spent)
    records.provenance["skipped"] = {}
    start = time.perf_counter()
    for i, ((problem, cell), key) in enumerate(zip(work, keys, strict=True)):
        if key in records.done:
            continue
        on_cell(_shown(problem, cell), i, len(work))
        try:
            rows = [_described(problem, row) for row in _quietly(experiment, config, problem, cell)]
        except MissingExtraError as error:
            records.provenance["skipped"][_shown(problem, cell)] = str(error)
            continue
        records.provenance["seconds"] = round(spent + time.perf_counter() - start, 1)
        records.add(key, rows)
    on_cell("drawing", len(work), len(work))
    records.write()
    draw(experiment, records.rows, folder)
    return records


def draw(experiment: Experiment, rows: list[Row], folder: str | PathLike[str]) -> list[Path]:
    """Draw the figure from the rows alone, as PNG and SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # Ids and dates in an SVG would make two drawings of the same rows differ.
    with mpl.rc_context(
        {"svg.hashsalt": experiment.name, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = experiment.draw(rows)
        png, svg = Path(folder) / "figure.png", Path(folder) / "figure.svg"
        FigureCanvasAgg(figure)
        figure.savefig(png, dpi=110, metadata={"Software": None})
        FigureCanvasSVG(figure)
        figure.savefig(svg, metadata={"Date": None})
    return [png, svg]


def _quietly(experiment: Experiment, config: Any, problem: Problem | None, cell: Cell) -> list[Row]:
    """Rows of a cell without the warnings that are part of the setting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependentAtomsWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")  # one image a class is meant
        warnings.filterwarnings("ignore", message="lbfgs failed to converge")
        return list(experiment.measure(config, problem, cell))


def _described(problem: Problem | None, row: Row) -> Row:
    return row if problem is None else {"data": problem.name, "encoder": problem.encoder, **row}


def _shown(problem: Problem | None, cell: Cell) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in cell.items())
    return f"{problem.name}: {settings}" if problem else settings
