"""A wrong hierarchy: what is left of support and accuracy as a growing share of the tree is corrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcep.evaluate import score_images
from hcep.experiments.corruption import corrupt
from hcep.experiments.experiment import described
from hcep.experiments.figures import curves
from hcep.experiments.measuring import CONTROLS, OUR_LABEL, Cell, measured, method_cell
from hcep.experiments.readings import Verdict, ahead, by_method, labels_of
from hcep.experiments.records import OF_IMAGES, Row, packed
from hcep.experiments.tasks import Task


@dataclass(frozen=True)
class Config:
    """Kinds and shares of corruption. The tree is WordNet's by first hypernyms, so that a move is a move.

    A wholly random tree (the last share of "random") is drawn `n_random` times, any other wrong one once per seed.
    """

    kinds: tuple[str, ...] = ("leaves", "subtrees", "random")
    shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    methods: tuple[str, ...] = ("omp", "hnn", "hb-omp", "nn", "tree-l1", "anchored", "hcep")
    once: tuple[str, ...] = ("nn", "tree-l1")
    beam: int = 32
    shots: int | None = 12
    seeds: tuple[int, ...] = (0, 1, 2)
    n_random: int = 10
    n_val: int | None = 2000


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """A cell per method, kind, share and seed; nothing corrupted is the same for all kinds and seeds."""
    for name in (*config.methods, *CONTROLS):
        for share in config.shares if name not in CONTROLS else config.shares[:1]:
            for kind in config.kinds if share else config.kinds[:1]:
                seeds = tuple(range(config.n_random)) if (kind, share) == ("random", 1.0) else config.seeds
                for seed in seeds if share and name not in config.once else config.seeds[:1]:
                    yield method_cell(name, config.beam, shots=config.shots, kind=kind, share=share, seed=seed)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Support F1 and distance of mistakes in the corrupted tree, which the method believes, and in the true one."""
    true = task.hierarchy.as_tree().collapse()
    drawn = task.shots(config.shots, 0).first_images(config.n_val)
    wrong = corrupt(true, cell["kind"], cell["share"], cell["seed"])
    row, found = measured(cell, drawn.under(wrong))
    honest = score_images(found.result, drawn.y_val, true, predicted=found.scores.predicted)
    means = honest.summary()
    row |= {"true_support_f1": means["support_f1"], "true_tree_distance": means["tree_distance"]}
    row[OF_IMAGES] = packed(honest)
    for kind in config.kinds if not cell["share"] else (cell["kind"],):
        yield {**row, "kind": kind}


def verdicts(rows: list[Row]) -> list[Verdict]:
    """What the true tree gives over a random one, method by method, and ours over the same without a tree."""
    shuffled = [r for r in rows if r["kind"] == "random"]
    worst = max((r["share"] for r in shuffled), default=0.0)
    found = []
    for label in labels_of(shuffled):
        mine = [r for r in shuffled if r["label"] == label]
        random = [{**r, "label": "a random tree"} for r in mine if r["share"] == worst and worst > 0]
        true = [{**r, "label": "the true tree"} for r in mine if r["share"] == 0]
        # The true tree does not depend on the draw: the same row stands beside every random one.
        pairs = [{**true[0], "seed": r["seed"]} for r in random] + random if true else []
        for metric in ("accuracy", "true_tree_distance"):
            found += ahead(pairs, label, "the true tree", ["a random tree"], metric)
    untouched = [r for r in shuffled if r["share"] == 0]
    for metric in ("accuracy", "true_tree_distance"):
        for name in CONTROLS:
            control = [r["label"] for r in untouched if r["method"] == name]
            found += ahead(untouched, "the true tree", OUR_LABEL, control, metric)
    return found


def table(rows: list[Row]) -> str:
    """Accuracy / support F1 against the tree given / against the true tree / distance of mistakes, by share."""
    text = ""
    for kind in dict.fromkeys(r["kind"] for r in rows):
        text += f"{TITLES[kind]}: accuracy / support F1 in the tree given / in the true tree / distance of mistakes in "
        text += "the true tree, by share:\n\n"
        mine = [r for r in rows if r["kind"] == kind]
        text += by_method(mine, "share", METRICS) + "\n"
    return text


METRICS = ("accuracy", "support_f1", "true_support_f1", "true_tree_distance")
TITLES = {"leaves": "Leaves moved", "subtrees": "Subtrees swapped", "random": "Classes shuffled"}
FEW = ("omp", "anchored", "hcep")
SMOKE = Config(kinds=("random",), shares=(0.0, 1.0), methods=FEW, shots=5, seeds=(0,), n_random=3, n_val=300)
draw = curves("share", METRICS, "share of the hierarchy corrupted", by="kind")
EXPERIMENT = described("wrong-tree", cells, measure, draw, verdicts, table, Config(), SMOKE)
