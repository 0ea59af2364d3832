"""Accuracy, support precision and recall, against the sparsity level and against the training images per class."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.claims import Verdict, ahead, by_method, by_metric, labels_of, table_by_data, verdicts_by_data
from experiments.experiment import Experiment, described
from experiments.figures import curves
from experiments.measuring import (
    CBM_SUPPORTS,
    CONTROLS,
    OUR_LABEL,
    PUBLISHED,
    Cell,
    cbm_supports,
    labelled,
    measured,
    method_cell,
)
from experiments.records import TEXTS, Row
from experiments.tasks import IMAGENET_6SHOT, Task

MAIN = ("accuracy", "support_precision", "support_recall")
PENALISED = ("nn-lasso", "basis-pursuit", "tree-l1")
#: Methods that predict the leaf of a complete path; with fewer steps, a linear head predicts the class from the code.
BY_LEAF = ("anchored", "hcep")
#: Methods that do not depend on the sparsity level and are fitted once.
ONE_FIT = ("cbm", "nn")
#: The interpretable baselines of the paper.
BASELINES = ("OMP", "HNN", "CBM")
#: The name of "every training image" in a cell of the few-shot experiment, and the beam of that experiment.
ALL, BEAM = "all", 32
#: Data with few images and many classes: images per class of their one draw, and the sparsity published for them.
SHOTS, SPARSITY = {IMAGENET_6SHOT: (1, 2, 4)}, {IMAGENET_6SHOT: 14}


@dataclass(frozen=True)
class Config:
    """Methods and settings; `levels` None means every level, and `shots` None means every training image."""

    methods: tuple[str, ...] = (
        *("omp", "cbm", "nn", "hnn", "omp:convex", "cbm:convex", *CONTROLS, *PENALISED),
        *("hier-omp", "exact", "signed", "anchored", "hcep"),
    )
    beams: tuple[int, ...] = (8, 16, 32)
    levels: tuple[int, ...] | None = None
    shots: int | None = None
    n_val: int | None = None
    seed: int = 0


def cells(config: Config, task: Task) -> Iterator[Cell]:
    settings: Cell = {"shots": config.shots, "seed": config.seed}
    for name in config.methods:
        cut = {"head_when_cut": "logistic"} if name in BY_LEAF else {}
        yield {**method_cell(name, **settings), **cut}
    for beam in config.beams:
        yield method_cell("hb-omp", beam, **settings)
    yield method_cell("hb-omp:convex", config.beams[-1], **settings)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure one method at every level; controls, which name no concepts, only at full depth."""
    task = task.shots(config.shots, config.seed).first_images(config.n_val)
    name, depth, method = cell["method"], task.hierarchy.depth, None
    levels = [level for level in range(1, depth) if config.levels is None or level in config.levels]
    for level in [*([] if name in CONTROLS else levels), depth]:
        options = {"max_steps": level} if level < depth else {}
        if level < depth and "head_when_cut" in cell:
            options["head"] = cell["head_when_cut"]
        if method is not None:
            method.set_params(max_steps=level)
        row, graded = measured(cell, task, method, images=level == depth, **options)
        method = graded.estimator if name in ONE_FIT else None
        yield {**row, "depth": depth, "sparsity": level}
    for row in cbm_supports(cell, task, method):
        yield {**row, "depth": depth, "sparsity": depth}


def full_depth(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["sparsity"] == r["depth"]]


def about_cbm(rows: list[Row], where: str, published: str, at: str | None = None) -> Iterator[Verdict]:
    """Compare the published method with CBM whose support has no fixed size."""
    for label in CBM_SUPPORTS.values():
        for metric in ("support_precision", "support_recall", "support_f1"):
            yield from ahead(rows, where, published, [label], metric, paper=True, at=at)


def about_ours(rows: list[Row], where: str, published: list[str], at: str | None = None) -> Iterator[Verdict]:
    """Compare ours with the published method, the other interpretable methods and the controls."""
    controls = [labelled(method_cell(name)) for name in CONTROLS]
    known = {OUR_LABEL, *controls, *(label for label in labels_of(rows) if re.fullmatch(r"HB-OMP \(.*\)", label))}
    others = [label for label in labels_of(rows) if label not in known]
    for metric in (*MAIN, "tree_distance", "ece"):
        yield from ahead(rows, where, OUR_LABEL, published, metric, at=at)
    for metric in MAIN:
        named = "every other interpretable method and NN"
        yield from ahead(rows, where, OUR_LABEL, others, metric, at=at, named=named)
    # The support of a control is the path of its class, looked up: what the search for a path adds to that.
    for metric in ("accuracy", "support_f1", "tree_distance", "ece"):
        for control in controls:
            yield from ahead(rows, where, OUR_LABEL, [control], metric, at=at)


def table(rows: list[Row]) -> str:
    return f"{TEXTS['page']['heads']}\n\n{_tables(rows)}"


@table_by_data
def _tables(data: str, rows: list[Row]) -> str:
    full = full_depth(rows)
    text = f"{data}, {full[0]['n_train']:,} training and {full[0]['n_val']:,} validation images, at full depth "
    text += f"{full[0]['depth']} (bold marks the best and everything tied with it):\n\n"
    return text + by_metric(full, (*MAIN, "one_path", "tree_distance", "ece")) + "\n"


FEW = ("omp", "nn", "hnn", "linear-probe", "nearest-mean", "no-tree", "nn-lasso", "tree-l1", "anchored", "hcep")
SMOKE = Config(methods=FEW, beams=(8,), shots=5, n_val=200, levels=(1,))


def _experiment(name: str, config: Config = Config(), beam: int = 8) -> Experiment:
    """Make an experiment; the paper's claims are about `beam`, which it uses for these data."""

    @verdicts_by_data
    def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
        """Check the paper's claims about the interpretable baselines at full depth, and ours against each method."""
        full, paper = full_depth(rows), labelled(method_cell("hb-omp", beam))
        for metric in ("support_precision", "support_recall", "accuracy"):
            yield from ahead(full, data, paper, BASELINES, metric, paper=True)
        yield from about_cbm(full, data, paper)
        yield from about_ours(full, data, [paper])

    draw = curves("sparsity", MAIN, "sparsity level")
    return described(name, cells, measure, draw, verdicts, table, config, SMOKE)


IN_DEMO = ("omp", "hnn", "nn", "cbm", "omp:convex", *CONTROLS, "anchored", "hcep")
SAMPLE = _experiment("sample", Config(methods=IN_DEMO, beams=(8,), levels=()))
IMAGENETTE = _experiment("imagenette")
CIFAR100 = _experiment("cifar100", beam=16)
IMAGENET = _experiment("imagenet", Config(levels=(1, 3, 6, 9), shots=25), beam=32)
SIGLIP = _experiment("siglip", Config(shots=12), beam=32)


@dataclass(frozen=True)
class FewShotConfig:
    """Images per class, where None means all; methods in `once` are slow to fit and use only the first seed."""

    shots: tuple[int | None, ...] = (1, 5, 12, 50)
    seeds: tuple[int, ...] = (0, 1, 2)
    methods: tuple[str, ...] = (
        *("omp", "hnn", "cbm", "nn", "hier-omp", "hb-omp", "omp:convex", "hb-omp:convex"),
        *(*CONTROLS, "anchored", "hcep"),
    )
    once: tuple[str, ...] = ("cbm:convex", "nn-lasso", "tree-l1")
    beam: int = BEAM
    n_val: int | None = None


def few_shot_cells(config: FewShotConfig, task: Task) -> Iterator[Cell]:
    """Yield a cell per method, number of images and seed, up to the number of images in the data."""
    available = task.images_per_class
    for k in SHOTS.get(task.name, config.shots):
        if k is not None and k >= available and None in config.shots:
            continue
        for name in (*config.methods, *(() if task.name in SHOTS else config.once)):
            several = k is not None and k < available and name not in config.once and task.name not in SHOTS
            for seed in config.seeds if several else config.seeds[:1]:
                yield method_cell(name, config.beam, shots=k or ALL, seed=seed)


def few_shots(config: Any, task: Task, cell: Cell) -> Iterator[Row]:
    k = None if cell["shots"] == ALL else cell["shots"]
    steps = SPARSITY.get(task.name) if cell["method"] in PUBLISHED else None
    options: dict[str, Any] = {"max_steps": steps} if steps else {}
    drawn = task.shots(k, cell["seed"]).first_images(config.n_val)
    row, graded = measured(cell, drawn, **options)
    shots = task.images_per_class if k is None else k
    for scored in (row, *cbm_supports(cell, drawn, graded.estimator)):
        yield {**scored, "shots": shots, "all_images": k is None, "depth": task.hierarchy.depth}


@verdicts_by_data
def few_shot_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check the paper's claims about HB-OMP, and ours against all methods, at every number of images."""
    paper = [label for label in labels_of(rows) if label.startswith("HB-OMP") and "convex" not in label]
    for metric in MAIN if paper else ():
        yield from ahead(rows, data, paper[0], BASELINES, metric, paper=True, at="shots")
    yield from about_cbm(rows, data, paper[0], at="shots") if paper else ()
    yield from about_ours(rows, data, paper[:1], at="shots")


@table_by_data
def few_shot_table(data: str, rows: list[Row]) -> str:
    """Return tables of accuracy, precision and recall, of intervals, and of mistakes and calibration."""
    text = f"{data}, accuracy / support precision / support recall by training images per class (mean over seeds; "
    text += "bold marks the best and everything tied with it):\n\n" + by_method(rows, "shots", MAIN) + "\n"
    text += "Accuracy with half the 95 % interval over seeds (one seed: over the images):\n\n"
    text += by_method(rows, "shots", ("accuracy",), interval=True) + "\n"
    text += "Tree distance of mistakes / calibration error, lower is better:\n\n"
    return text + by_method(rows, "shots", ("tree_distance", "ece")) + "\n"


FEWSHOT = described(
    "fewshot",
    *(few_shot_cells, few_shots, curves("shots", MAIN, "training images per class", places=True)),
    *(few_shot_verdicts, few_shot_table, FewShotConfig()),
    FewShotConfig(
        *((1, 5), (0,), ("omp", "hnn", "cbm", "nn", "hb-omp", "linear-probe", "nearest-mean", "no-tree", "hcep")),
        once=(),
        beam=8,
        n_val=300,
    ),
)
