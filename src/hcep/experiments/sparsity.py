"""Accuracy, support precision and recall against the sparsity level, on the paper's data sets and a second encoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hcep.experiments.experiment import Experiment, described
from hcep.experiments.figures import curves
from hcep.experiments.measuring import CONTROLS, OUR_LABEL, Cell, labelled, measured, method_cell
from hcep.experiments.readings import Verdict, ahead, by_data, by_metric, labels_of
from hcep.experiments.records import TEXTS, Row
from hcep.experiments.tasks import Task

MAIN = ("accuracy", "support_precision", "support_recall")
PENALISED = ("nn-lasso", "basis-pursuit", "tree-l1")
#: Their class is the leaf of a whole path. A path cut short has none: there it comes from the code, by a linear head.
BY_LEAF = ("anchored", "hcep")
#: What they learn does not depend on the sparsity level: fitted once.
ONE_FIT = ("cbm", "nn")
#: They name no concepts, so that they have one row: at full depth.
NO_LEVELS = (*CONTROLS,)
#: The interpretable baselines of the paper.
BASELINES = ("OMP", "HNN", "CBM")


@dataclass(frozen=True)
class Config:
    """Methods and levels. `levels` None is every level down to the depth; `shots` None every training image."""

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
    """Rows of one method at every level; those at full depth keep their images."""
    task = task.shots(config.shots, config.seed).first_images(config.n_val)
    name, depth, method = cell["method"], task.hierarchy.depth, None
    levels = [level for level in range(1, depth) if config.levels is None or level in config.levels]
    for level in [*([] if name in NO_LEVELS else levels), depth]:
        options = {"max_steps": level} if level < depth else {}
        if level < depth and "head_when_cut" in cell:
            options["head"] = cell["head_when_cut"]
        if method is not None:
            method.set_params(max_steps=level)
        row, found = measured(cell, task, method, images=level == depth, **options)
        method = found.estimator if name in ONE_FIT else None
        yield {**row, "depth": depth, "sparsity": level}


def full_depth(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["sparsity"] == r["depth"]]


def verdicts(rows: list[Row], beam: int = 8) -> list[Verdict]:
    """The paper's claims about the interpretable baselines at full depth, with the beam that it has for the data, and
    ours against each kind of method.
    """
    found, paper = [], labelled(method_cell("hb-omp", beam))
    for data, mine in by_data(rows).items():
        full = full_depth(mine)
        for metric in ("support_precision", "support_recall", "accuracy"):
            found += ahead(full, data, paper, BASELINES, metric, paper=True)
        found += about_ours(full, data, [paper])
    return found


def about_ours(rows: list[Row], where: str, published: list[str], at: str | None = None) -> list[Verdict]:
    """Ours against the published method, the other interpretable ones, and its controls, in what each has."""
    controls = [labelled(method_cell(name)) for name in CONTROLS]
    known = {OUR_LABEL, *controls, *(label for label in labels_of(rows) if re.fullmatch(r"HB-OMP \(.*\)", label))}
    others = [label for label in labels_of(rows) if label not in known]
    found = []
    for metric in (*MAIN, "tree_distance", "ece"):
        found += ahead(rows, where, OUR_LABEL, published, metric, at=at)
    for metric in MAIN:
        found += ahead(rows, where, OUR_LABEL, others, metric, at=at, named="every other interpretable method and NN")
    for metric in ("accuracy", "tree_distance", "ece"):
        for control in controls:
            found += ahead(rows, where, OUR_LABEL, [control], metric, at=at)
    return found


def table(rows: list[Row]) -> str:
    text = f"{TEXTS['page']['heads']}\n\n"
    for data, mine in by_data(rows).items():
        full = full_depth(mine)
        text += f"{data}, {full[0]['n_train']:,} training and {full[0]['n_val']:,} validation images, at full depth "
        text += f"{full[0]['depth']}; bold is the best and what is tied with it:\n\n"
        text += by_metric(full, (*MAIN, "one_path", "tree_distance", "ece")) + "\n"
    return text


FEW = ("omp", "nn", "hnn", "linear-probe", "nearest-mean", "no-tree", "nn-lasso", "tree-l1", "anchored", "hcep")
SMOKE = Config(methods=FEW, beams=(8,), shots=5, n_val=200, levels=(1,))


def _experiment(name: str, config: Config = Config(), beam: int = 8) -> Experiment:  # noqa: B008 - it is frozen
    draw = curves("sparsity", MAIN, "sparsity level")
    return described(name, cells, measure, draw, partial(verdicts, beam=beam), table, config, SMOKE)


IN_DEMO = ("omp", "hnn", "nn", "cbm", "omp:convex", *CONTROLS, "anchored", "hcep")
SAMPLE = _experiment("sample", Config(methods=IN_DEMO, beams=(8,), levels=()))
IMAGENETTE = _experiment("imagenette")
CIFAR100 = _experiment("cifar100", beam=16)
IMAGENET = _experiment("imagenet", Config(levels=(1, 3, 6, 9), shots=25), beam=32)
SIGLIP = _experiment("siglip", Config(shots=12), beam=32)
