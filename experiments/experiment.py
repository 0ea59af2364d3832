"""An experiment and how it runs: its config gives cells, and each cell is measured once and gives rows."""

import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from experiments.claims import Verdict
from experiments.figures import Figure
from experiments.files import replacing
from experiments.measuring import Cell, missing_extras
from experiments.records import TEXTS, Records, Row
from experiments.tasks import BUNDLED, Task
from hcep.dictionary import DependentAtomsWarning
from hcep.errors import HCEPError, MissingExtraError

#: Number of classes in the short settings.
SMOKE_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Experiment:
    """One figure or table of the paper; texts.toml defines `name` and the fields after it.

    Rows have the settings in which they differ, and metrics. A table is Markdown. `smoke` is a short config.
    """

    cells: Callable[[Any, Any], Iterable[Cell]]
    measure: Callable[[Any, Any, Cell], Iterable[Row]]
    draw: Callable[[list[Row]], Figure]
    verdicts: Callable[[list[Row]], list[Verdict]]
    table: Callable[[list[Row]], str]
    config: Any
    smoke: Any
    name: str
    title: str
    paper: str
    question: str
    data: tuple[str, ...]
    reading: str = ""
    short: str = ""
    stand_in: str = ""
    smoke_seconds: int = 5

    @property
    def on_hand(self) -> str:
        """The name of the experiment on the available data, and of its folder."""
        return self.stand_in or self.name

    def tasks(self, *, smoke: bool = False) -> list[Task | None]:
        """Return the available data (with few classes for the short settings), or None for synthetic data.

        The bundled sample can replace several data sets that are missing; it is returned once.
        """
        by_name = {task.name: task for task in (BUNDLED[name]() for name in self.data)}
        tasks = by_name.values()
        return [task.first_classes(SMOKE_CLASSES) if smoke else task for task in tasks] or [None]

    def with_shots(self, shots: int | None) -> Self:
        """Return the same experiment with another number of training images per class; None means all."""
        if not isinstance(getattr(self.config, "shots", ()), int | None):
            raise HCEPError(f"{self.name} has no single number of images per class; leave --shots out")
        return replace(self, config=replace(self.config, shots=shots), smoke=replace(self.smoke, shots=shots))

    def missing(self, tasks: Sequence[Task | None], *, smoke: bool = False) -> list[str]:
        """Return a sentence for each package that some cells need and that is not installed."""
        cells = [cell for task in tasks for cell in self.cells(self.smoke if smoke else self.config, task)]
        return list(missing_extras(cell["method"] for cell in cells if "method" in cell))


def described(name: str, *steps: Any) -> Experiment:
    """Make an experiment from its fields `cells` to `smoke` and its texts in texts.toml."""
    texts = TEXTS[name] | {"name": name, "data": tuple(TEXTS[name]["data"])}
    other = TEXTS[texts.pop("like")] if "like" in texts else {}
    return Experiment(*steps, **(other | texts))


def run(
    experiment: Experiment,
    tasks: Sequence[Task | None],
    output: str | PathLike[str],
    *,
    smoke: bool = False,
    fresh: bool = False,
    methods: Collection[str] | None = None,
    on_cell: Callable[[str, int, int], None] = lambda cell, done, total: None,
) -> Records:
    """Measure the cells that are not measured yet, draw the figure, and return the rows of these tasks.

    Cells that need a package which is not installed are skipped and listed in the provenance of the rows.

    Parameters
    ----------
    output : folder of this experiment's rows and figures
    smoke : use the short settings
    fresh : measure everything again
    methods : measure only the cells of these methods again, and keep all other rows
    on_cell : called with a description of the next cell, the number of cells done, and the number of all cells
    """
    config, folder = experiment.smoke if smoke else experiment.config, Path(output)
    if fresh:
        (folder / "rows.json").unlink(missing_ok=True)
    records = Records(folder, experiment.name)
    work = [(task, cell) for task in tasks for cell in experiment.cells(config, task)]
    digests = {id(task): task.digest if task else "synthetic" for task in tasks}
    keys = [records.key(cell, digests[id(task)]) for task, cell in work]
    records.keep(keys)
    order = keys
    if methods is not None:
        chosen = [i for i, (_, cell) in enumerate(work) if cell.get("method") in methods]
        if not chosen:
            known = ", ".join(dict.fromkeys(cell["method"] for _, cell in work if "method" in cell)) or "none by method"
            raise HCEPError(f"{experiment.name} has no cells of {', '.join(methods)}; it has {known}")
        work, keys = [work[i] for i in chosen], [keys[i] for i in chosen]
        records.keep(records.done.difference(keys))
    spent = records.provenance.get("seconds") or 0.0
    if not records.done.issuperset(keys):  # if nothing is measured, the rows keep the provenance they have
        records.describe(config, [task for task in tasks if task], spent)
    records.provenance["skipped"] = {}
    start = time.perf_counter()
    for i, ((task, cell), key) in enumerate(zip(work, keys, strict=True)):
        if key in records.done:
            continue
        on_cell(_description(task, cell), i, len(work))
        try:
            origin = {} if task is None else {"data": task.name, "encoder": task.encoder}
            rows = [origin | row for row in _measure_quietly(experiment, config, task, cell)]
        except MissingExtraError as error:
            records.provenance["skipped"][_description(task, cell)] = str(error)
            continue
        records.provenance["seconds"] = round(spent + time.perf_counter() - start, 1)
        records.add(key, rows)
    on_cell("drawing", len(work), len(work))
    records.sort(order)
    records.write()
    draw(experiment, records.rows, folder)
    return records


def draw(experiment: Experiment, rows: list[Row], folder: str | PathLike[str]) -> list[Path]:
    """Draw the figure from the rows alone, as PNG and SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # Without random ids and dates, two drawings of the same rows are the same file.
    style: Any = {"svg.hashsalt": experiment.name, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    files = []
    with mpl.rc_context(style):
        figure = experiment.draw(rows)
        for kind, canvas, undated in (("png", FigureCanvasAgg, "Software"), ("svg", FigureCanvasSVG, "Date")):
            files.append(Path(folder) / f"figure.{kind}")
            with replacing(files[-1]) as partial:
                canvas(figure)
                figure.savefig(partial, dpi=110 if kind == "png" else "figure", format=kind, metadata={undated: None})
    return files


def _measure_quietly(experiment: Experiment, config: Any, task: Task | None, cell: Cell) -> list[Row]:
    """Return the rows of a cell, without the warnings that its setting is expected to raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependentAtomsWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")  # with one image per class
        warnings.filterwarnings("ignore", message="lbfgs failed to converge")
        return list(experiment.measure(config, task, cell))


def _description(task: Task | None, cell: Cell) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in cell.items() if value is not None)
    return f"{task.name}: {settings}" if task else settings
