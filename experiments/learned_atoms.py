"""Dictionary learning on the hierarchy: are planted atoms recovered, and do learned atoms pay on real embeddings?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.claims import Verdict, ahead, by_method, by_metric, labels_of, series, table_by_data, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tasks import Task
from hcep import ConceptDictionary, HCEPClassifier
from hcep.datasets import make_hierarchical_concepts
from hcep.evaluate import support_scores
from hcep.pursuit import SearchOptions, learn_atoms, search

PLAIN, NOISY = "Differences of means", "Noisy start"
LEARNED, UNLABELLED, FREE = "Learned", "Learned without labels", "Learned, atoms free"
#: The options of `learn_atoms`, and whether it knows the labels.
LEARNING: dict[str, tuple[dict[str, Any], bool]] = {
    LEARNED: ({}, True),
    UNLABELLED: ({}, False),
    FREE: ({"keep_means": False}, True),
}
METRICS = ("explained", "accuracy", "support_precision", "support_recall")
PLANTED = ("atom_error", "support_precision", "support_recall", "explained")


@dataclass(frozen=True)
class Config:
    """Training images per class, anchors, and draws of the images."""

    shots: int = 12
    anchors: tuple[float, ...] = (0.03, 0.3)
    seeds: int = 5


@dataclass(frozen=True)
class PlantedConfig:
    """The synthetic model, and the errors of the leaves that learning starts from, relative to the mean atom norm."""

    branching: int = 3
    depth: int = 4
    dim: int = 50
    variance: float = 1e-3
    samples_per_leaf: int = 10
    noises: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    seeds: int = 5


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield one cell per anchor and draw."""
    yield from ({"anchor": anchor, "seed": seed} for anchor in config.anchors for seed in range(config.seeds))


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Learn from the class means in the metric of our estimator, and score the validation images."""
    few, anchor = task.shots(config.shots, cell["seed"]), cell["anchor"]
    start = HCEPClassifier(task.hierarchy, refine=False, prior=None, anchor=anchor).fit(few.X, few.y).dictionary_
    yield {**cell, "label": PLAIN, **scored(task.X_val, task.y_val, start, anchor)}
    for label, (options, labelled) in LEARNING.items():
        learned, _ = learn_atoms(few.X, start, few.y if labelled else None, anchor=anchor, **options)
        yield {**cell, "label": label, **scored(task.X_val, task.y_val, learned, anchor)}


def scored(X: Any, y: Any, dictionary: ConceptDictionary, anchor: float) -> dict[str, float]:
    """Score the exact paths of images: explained energy, the class at the end of the path, and its support."""
    found = search(X, dictionary, SearchOptions(beam_width=None, anchor=anchor), explained=True)
    hierarchy = dictionary.hierarchy
    precision, recall = support_scores(found, y, hierarchy).mean
    right = [hierarchy.class_of(leaf) == label for leaf, label in zip(found.leaves.tolist(), y, strict=True)]
    scores = {"explained": float(found.explained.mean()), "accuracy": float(np.mean(right))}
    return scores | {"support_precision": precision, "support_recall": recall}


def planted_cells(config: PlantedConfig, task: None) -> Iterator[Cell]:
    """Yield one cell per error of the start and draw."""
    yield from ({"noise": noise, "seed": seed} for noise in config.noises for seed in range(config.seeds))


def measure_planted(config: PlantedConfig, task: None, cell: Cell) -> Iterator[Row]:
    """Learn planted leaves from wrong ones; new images of the same concepts are scored."""
    rng, sizes = np.random.default_rng(cell["seed"]), (config.branching, config.depth, config.dim)
    data = make_hierarchical_concepts(
        *sizes, noise=config.variance, samples_per_leaf=2 * config.samples_per_leaf, random_state=cell["seed"]
    )
    truth, leaves = data.dictionary, data.dictionary.leaf_embeddings
    error = rng.standard_normal(leaves.shape)
    error *= cell["noise"] * np.linalg.norm(truth.atoms, axis=1).mean() / np.linalg.norm(error, axis=1, keepdims=True)
    start = ConceptDictionary.from_leaf_embeddings(
        truth.hierarchy, dict(zip(truth.hierarchy.leaves, leaves + error, strict=True))
    )
    new = np.arange(len(data.y)) % 2 == 1
    dictionaries = {NOISY: start}
    for label in (LEARNED, UNLABELLED):
        y = data.y[~new] if label == LEARNED else None
        dictionaries[label], _ = learn_atoms(data.X[~new], start, y, anchor=0.3, ridge=0.01)
    norms = np.linalg.norm(truth.atoms, axis=1)
    for label, dictionary in dictionaries.items():
        errors = np.linalg.norm(dictionary.atoms - truth.atoms, axis=1) / norms
        scores = scored(data.X[new], data.y[new], dictionary, 0.3)
        yield {**cell, "label": label, "atom_error": float(errors.mean()), **scores}


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check that learned atoms explain more, and whether they classify better."""
    for metric in METRICS[:3]:
        for label in LEARNING:
            yield from ahead(rows, data, label, [PLAIN], metric, at="anchor")


def planted_verdicts(rows: list[Row]) -> list[Verdict]:
    """Check that learning removes the error of the start."""
    return [
        verdict
        for metric in ("atom_error", "support_precision")
        for label in (LEARNED, UNLABELLED)
        for verdict in ahead(rows, "planted atoms", label, [NOISY], metric, at="noise")
    ]


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return one table for each anchor."""
    text = ""
    for anchor in sorted({row["anchor"] for row in rows}):
        here = [row for row in rows if row["anchor"] == anchor]
        draws = len({row["seed"] for row in here})
        text += f"**{data}**, anchor {anchor:g}, mean over {draws} draws ± half the 95 % interval\n\n"
        text += f"{by_metric(here, METRICS)}\n"
    return text


def planted_table(rows: list[Row]) -> str:
    """Return the errors and scores by the error of the start."""
    text = "Mean relative error of the atoms / support precision / support recall / explained energy of new images,\n"
    text += "by the error of the leaves that learning starts from, in mean atom norms:\n\n"
    return text + by_method(rows, "noise", PLANTED) + "\n"


def draw(rows: list[Row]) -> Figure:
    """Draw what learning changes, as differences to the means, for each data set and anchor."""
    figure = canvas(9, 3.0)
    settings = list(dict.fromkeys((row["data"], row["anchor"]) for row in rows))
    for axes, metric in zip(figure.subplots(1, len(METRICS), sharey=True), METRICS, strict=True):
        for label in LEARNING:
            gaps = []
            for data, anchor in settings:
                here = [row for row in rows if (row["data"], row["anchor"]) == (data, anchor)]
                mine, plain = ([row[metric] for row in here if row["label"] == name] for name in (label, PLAIN))
                gaps.append(float(np.mean(mine) - np.mean(plain)))
            axes.plot(gaps, range(len(settings)), "o", label=label, markersize=4)
        axes.axvline(0.0, color="black", linewidth=0.5)
        axes.set_title(metric.replace("_", " "))
    figure.axes[0].set_yticks(
        range(len(settings)), [f"{data}\nanchor {anchor:g}" for data, anchor in settings], fontsize=7
    )
    figure.axes[0].legend(frameon=False, fontsize=6)
    return figure


def draw_planted(rows: list[Row]) -> Figure:
    """Draw the error of the atoms and the support over the error of the start."""
    figure = canvas(9, 3.0)
    for axes, metric in zip(figure.subplots(1, len(PLANTED)), PLANTED, strict=True):
        for label in labels_of(rows):
            xs, means, *_ = series([row for row in rows if row["label"] == label], "noise", metric)
            axes.plot(xs, means, "o-", label=label, markersize=3)
        axes.set(xlabel="error of the start", title=metric.replace("_", " "))
    figure.axes[0].legend(frameon=False, fontsize=7)
    return figure


SMOKE = Config(shots=4, seeds=2)
EXPERIMENT = described("learned-atoms", cells, measure, draw, verdicts, table, Config(), SMOKE)
PLANTED_SMOKE = PlantedConfig(depth=2, dim=20, noises=(0.5, 1.0), seeds=2)
PLANTED_EXPERIMENT = described(
    "planted-atoms",
    *(planted_cells, measure_planted, draw_planted, planted_verdicts, planted_table, PlantedConfig(), PLANTED_SMOKE),
)
