"""Accuracy, support precision and recall against the sparsity level, on the paper's data sets and a second encoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hcep.experiments.experiment import Experiment
from hcep.experiments.figures import Figure, panels
from hcep.experiments.measuring import CONTROLS, OUR_LABEL, Cell, labelled, measured, method_cell
from hcep.experiments.readings import Verdict, ahead, by_data, by_metric, labels_of
from hcep.experiments.records import Row
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
    """A cell per method; it holds the rows of all levels."""
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


def draw(rows: list[Row]) -> Figure:
    """A line of panels for every data set."""
    return panels(by_data(rows), "sparsity", MAIN, "sparsity level")


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


NOTE = (
    "OMP, hierarchical OMP, HB-OMP, CBM and HNN have the published head (AdamW) on their code; “convex head” is the "
    "same code under logistic regression with C = 1, which is ours. CBM's head sees the scores of all concepts at "
    "every level (its support is the highest ones); NN and the controls (linear probe, LDA, nearest mean, no tree) see "
    "the embedding and stand at full depth alone; Anchored and HCEP take the leaf of a whole path (below full depth a "
    "convex head on the code).\n\n"
)


def table(rows: list[Row]) -> str:
    """At full depth, one line per method."""
    text = NOTE
    for data, mine in by_data(rows).items():
        full = full_depth(mine)
        text += f"{data}, {full[0]['n_train']:,} training and {full[0]['n_val']:,} validation images, at full depth "
        text += f"{full[0]['depth']}; bold is the best and what is tied with it:\n\n"
        text += by_metric(full, (*MAIN, "one_path", "tree_distance", "ece")) + "\n"
    return text


SMALL_TREES = (
    "A small hierarchy is mostly two-way splits. There a parent's embedding is the midpoint of its children, "
    "their atoms are exactly opposite, and the published rule (absolute cosine, free sign) chooses between "
    "siblings by a tie: HNN, which compares distances, does not have this problem. The signed search differs "
    "from the exact one by the sign alone; what it gains is what the ties cost."
)
SMOKE = Config(
    methods=("omp", "nn", "hnn", "linear-probe", "nearest-mean", "no-tree", "nn-lasso", "tree-l1", "anchored", "hcep"),
    beams=(8,), shots=5, n_val=200, levels=(1,),
)  # fmt: skip
QUESTION = "At which number of concepts does each method classify well, and are the concepts the right ones?"


def _experiment(name: str, title: str, paper: str, beam: int = 8, **more: object) -> Experiment:
    settings = {"question": QUESTION, "config": Config(), "smoke": SMOKE, "reading": SMALL_TREES, **more}
    steps = (cells, measure, draw, partial(verdicts, beam=beam), table)
    return Experiment(*steps, name, title, paper, **settings)  # type: ignore[arg-type]


SAMPLE = _experiment(
    "sample",
    "The bundled sample",
    "Not in the paper: the table of `hcep demo`, on a thousand images of ImageNette that come with the package.",
    data=("sample",),
    smoke_seconds=20,
    config=Config(
        methods=("omp", "hnn", "nn", "cbm", "omp:convex", *CONTROLS, "anchored", "hcep"), beams=(8,), levels=()
    ),
    short="Ours names the right concepts and is tied with the best in accuracy; HB-OMP is below HNN in support.",
)
IMAGENETTE = _experiment(
    "imagenette",
    "Against the sparsity level: ImageNette",
    "Figure of CIFAR-100 and ImageNette, lower half: at sparsity 4 HB-OMP (beam 8) has the best support precision and "
    "recall of the interpretable methods at comparable accuracy; no numbers are printed.",
    data=("imagenette",),
    smoke_seconds=20,
    short="HB-OMP is below HNN and CBM in support: two-way splits are ties for it. Ours is tied or above.",
)
CIFAR100 = _experiment(
    "cifar100",
    "Against the sparsity level: CIFAR-100",
    "Figure of CIFAR-100 and ImageNette, upper half: the same at sparsity 5 under a hierarchy induced by a language "
    "model, beam 16; no numbers are printed.",
    beam=16,
    data=("cifar10",),
    stand_in="cifar10-standin",
    smoke_seconds=8,
    short="The same on ten classes under a small tree: HB-OMP is below HNN and CBM, ours tied with the best.",
)
IMAGENET = _experiment(
    "imagenet",
    "Against the sparsity level: ImageNet",
    "Appendix figures of ImageNet, all images and 25 per class: support precision and recall above OMP and HNN at "
    "sparsity 14 with beam 32, accuracy competitive (above all interpretable baselines at 25 per class).",
    beam=32,
    data=("tiny-imagenet",),
    stand_in="tiny-imagenet-standin",
    smoke_seconds=20,
    short="On a deep tree HB-OMP is above OMP and HNN in support as published; CBM recalls more.",
    config=Config(levels=(1, 3, 6, 9), shots=25),
    reading="On a deep hierarchy the published pattern shows: one early tie costs little of a long path, and a flat "
    "code is mostly wrong. CBM's recall is bought with precision: it always names as many concepts as the deepest path "
    "has. The paper's text does not fix its WordNet tree: it says 14 levels and branching up to 25; WordNet above "
    "ImageNet's classes collapsed has 16 and 26 by first hypernyms, 13 and 26 by shortest paths, and as the DAG that "
    "its metric implies, several paths per leaf. We keep the DAG.",
)
SIGLIP = _experiment(
    "siglip",
    "A second encoder: SigLIP on ImageNet",
    "Appendix figure of ImageNet with SigLIP, 12 images per class: the same gains in support precision and recall as "
    "with CLIP.",
    beam=32,
    data=("cifar10",),
    stand_in="cifar10-clip-standin",
    short="As with the first encoder; ours makes mistakes further off than the linear probe's.",
    config=Config(shots=12),
    reading="SigLIP is not at hand. The second encoder here is CLIP ViT-B/32, on other data than the first: this "
    "shows that nothing depends on EfficientNet-Lite2, not that two encoders agree on the same images. " + SMALL_TREES,
)
