"""A wrong hierarchy: what is left of support and accuracy as a growing share of the tree is corrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcep.classify.methods import METHODS
from hcep.evaluate import support_scores
from hcep.experiments.claims import above, mean_of
from hcep.experiments.corruption import corrupt
from hcep.experiments.experiment import Cell, Experiment, Verdict
from hcep.experiments.figures import panels
from hcep.experiments.grading import fitted, graded, labelled
from hcep.experiments.problem import Problem
from hcep.experiments.records import Row
from hcep.experiments.tables import by_method, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Config:
    """Kinds and shares of corruption. The tree is WordNet's by first hypernyms, so that a move is a move."""

    kinds: tuple[str, ...] = ("leaves", "subtrees", "random")
    shares: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 1.0)
    methods: tuple[str, ...] = ("omp", "hnn", "nn", "tree-l1", "anchored", "hcep")
    beam: int = 32
    shots: int = 12
    seeds: tuple[int, ...] = (0, 1, 2)
    n_val: int | None = 2000


def cells(config: Config, problem: Problem) -> Iterator[Cell]:
    """A cell a method, kind, share and seed; nothing corrupted is the same for all kinds and seeds."""
    for name in (*config.methods, "hb-omp"):
        beam = config.beam if name == "hb-omp" else None
        base = {"method": name, "beam": beam, "shots": config.shots}
        for share in config.shares:
            for kind in config.kinds if share else config.kinds[:1]:
                for seed in config.seeds if share and name != "tree-l1" else config.seeds[:1]:
                    yield {**base, "kind": kind, "share": share, "seed": seed}


def measure(config: Config, problem: Problem, cell: Cell) -> Iterator[Row]:
    """Support F1 against the corrupted tree, which the method believes, and against the true one."""
    true = problem.hierarchy.as_tree().collapse()
    drawn = problem.shots(config.shots, 0).first_images(config.n_val)
    wrong = corrupt(true, cell["kind"], cell["share"], cell["seed"])
    method, _ = fitted(drawn.under(wrong), cell["method"], cell["beam"])
    honest = support_scores(method.pursue(drawn.X_val), drawn.y_val, true)
    row = {**cell, "label": labelled(cell["method"], cell["beam"]), **graded(method, drawn)}
    row["true_support_f1"] = float(honest.f1.mean())
    for kind in config.kinds if not cell["share"] else (cell["kind"],):
        yield {**row, "kind": kind}


def draw(rows: list[Row]) -> Figure:
    """A line of panels for every kind of corruption."""
    groups = {kind: [r for r in rows if r["kind"] == kind] for kind in dict.fromkeys(r["kind"] for r in rows)}
    return panels(groups, "share", ("accuracy", "support_f1", "true_support_f1"), "share of the hierarchy corrupted")


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Who keeps most of its accuracy when classes are shuffled."""
    found = []
    kept = {}
    worst = max(r["share"] for r in rows)
    for label in dict.fromkeys(r["label"] for r in rows):
        before = mean_of([r for r in rows if r["share"] == 0], label, "accuracy")
        after = mean_of([r for r in rows if r["share"] == worst and r["kind"] == "random"], label, "accuracy")
        if before and after is not None:
            kept[label] = (before, after)
    paper = next(label for label in kept if label.startswith("HB-OMP"))
    for ours in (METHODS[name].label for name in ("anchored", "hcep", "tree-l1")):
        if ours in kept:
            (a, b), (c, d) = kept[ours], kept[paper]
            found.append(
                Verdict(
                    f"{ours} loses less accuracy than HB-OMP when the tree is random",
                    above(c - d, a - b),
                    f"{ours} {short(a)} → {short(b)}, HB-OMP {short(c)} → {short(d)}",
                )
            )
    return found


def table(rows: list[Row]) -> str:
    """Accuracy / support F1 against the tree given / against the true tree, by share."""
    text = ""
    for kind in dict.fromkeys(r["kind"] for r in rows):
        text += f"{TITLES[kind]}: accuracy / support F1 in the tree given / in the true tree, by share:\n\n"
        mine = [r for r in rows if r["kind"] == kind]
        text += by_method(mine, "share", ("accuracy", "support_f1", "true_support_f1")) + "\n"
    return text


TITLES = {"leaves": "Leaves moved", "subtrees": "Subtrees swapped", "random": "Classes shuffled"}
EXPERIMENT = Experiment(
    name="wrong-tree",
    title="When the hierarchy is wrong",
    paper="Not in the paper, which names it as a limitation and suggests tree-structured l1 to degrade gracefully.",
    question="Does anchoring or tree-structured l1 degrade gracefully when the hierarchy cannot be trusted?",
    config=Config(),
    smoke=Config(shares=(0.0, 0.5), methods=("omp", "anchored", "hcep"), beam=8, shots=5, seeds=(0,), n_val=300),
    data=("tiny-imagenet",),
    cells=cells,
    measure=measure,
    draw=draw,
    verdicts=verdicts,
    table=table,
    reading="Support in the tree given says whether a method can follow a path that means nothing; support in "
    "the true tree says what is left of the meaning. Anchored search falls back on the class means as the tree "
    "gets worse, so that its accuracy hardly moves; what is lost is the explanation, as it must be.",
)
