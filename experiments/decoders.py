"""Decoders: from the same probabilities, the answer that is best for accuracy, for mild mistakes, or for the path."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Verdict, ahead, by_metric, labels_of, series, table_by_data, verdicts_by_data
from experiments.controls import CONTROLS, METRIC_FOR_LOSS, RAW, Control, fitted_controls, tuning_images
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tasks import Task
from hcep.classify import HCEPClassifier
from hcep.classify.decoding import DECODERS, decode
from hcep.evaluate import support_scores, tree_distances

LABELS = {
    "class": "Most probable class",
    "distance": "Least expected distance",
    "f1": "Best expected F1",
    "sure": "90 % sure",
}
#: The same from the probabilities of a logistic regression in our power and metric, tuned for log loss.
REGRESSION = ", logistic regression"
#: Controls that answer with a class; of the regressions tuned for accuracy, the one on raw features.
BY_CLASS = tuple(label for label in CONTROLS if not label.startswith("Logistic") or label == RAW)
#: A metric of all images, right and wrong, and the decoder that aims at it.
AIMS = {"accuracy": "class", "whole_distance": "distance", "support_f1": "f1"}
METRICS = ("accuracy", "whole_distance", "support_precision", "support_recall", "support_f1")


@dataclass(frozen=True)
class Config:
    """Training images per class, and draws of them."""

    shots: tuple[int, ...] = (1, 2, 5, 12)
    seeds: int = 5


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield one cell per number of images and draw; a task with fewer images per class has fewer cells."""
    for shots in (k for k in config.shots if k < task.images_per_class):
        yield from ({"shots": shots, "seed": seed, "controls": len(BY_CLASS) + 1} for seed in range(config.seeds))


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    few = task.shots(cell["shots"], cell["seed"])
    model = HCEPClassifier(task.hierarchy).fit(few.X, few.y)
    for decoder in DECODERS:
        yield {**cell, "label": LABELS[decoder], **graded(model, model.predict(task.X_val, decode=decoder), task.y_val)}
    for control in fitted_controls(few, model, tuning_images(task, few), (*BY_CLASS, METRIC_FOR_LOSS)):
        for label, answers in _control_answers(control, model):
            yield {**cell, "label": label, **graded(model, answers, task.y_val)}


def _control_answers(control: Control, model: HCEPClassifier) -> Iterator[tuple[str, NDArray[np.object_]]]:
    """Yield the answers of a control by label: its classes, and for the regression those of the other decoders too."""
    probabilities = control.method.predict_proba(control.task.X_val)
    answers = model.classes_[probabilities.argmax(axis=1)].astype(object)
    if control.label != METRIC_FOR_LOSS:
        yield control.label, answers
        return
    yield LABELS["class"] + REGRESSION, answers
    levels, h = model.path_model().levels, model.hierarchy_
    rules: tuple[Literal["distance", "f1"], ...] = ("distance", "f1")
    for rule in rules:
        synsets, _ = decode(levels, probabilities, rule)
        yield LABELS[rule] + REGRESSION, np.array([h.class_of(h.ids[i]) for i in synsets.tolist()], dtype=object)


def graded(model: HCEPClassifier, answers: NDArray[np.object_], truth: NDArray[np.str_]) -> dict[str, float]:
    """Score one concept per image; no answer is the root, whose path is empty."""
    h = model.hierarchy_
    concepts = [h.root if answer is None else str(answer) for answer in answers.tolist()]
    paths = [() if concept == h.root else h.paths(h.own_leaves.get(concept, concept))[0] for concept in concepts]
    scores = support_scores(paths, truth, h)
    return {
        "accuracy": float(np.mean([concept == label for concept, label in zip(concepts, truth, strict=True)])),
        "whole_distance": float(tree_distances(truth, np.array(concepts), h).mean()),
        "support_precision": float(scores.precision.mean()),
        "support_recall": float(scores.recall.mean()),
        "support_f1": float(scores.f1.mean()),
    }


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check that each decoder is the best at what it aims at, and ours against the controls."""
    for metric, decoder in AIMS.items():
        others = [label for name, label in LABELS.items() if name != decoder]
        where = f"{data}: every number of images"
        yield from ahead(rows, where, LABELS[decoder], others, metric, at="shots", named="the other decoders")
        yield from ahead(rows, where, LABELS[decoder], [LABELS[decoder] + REGRESSION], metric, at="shots")
        yield from ahead(rows, where, LABELS[decoder], BY_CLASS, metric, at="shots", named="every other control")


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return one table for each number of training images."""
    text = ""
    for shots in sorted({row["shots"] for row in rows}):
        here = [row for row in rows if row["shots"] == shots]
        draws = len({row["seed"] for row in here})
        text += f"**{data}**, {shots} images per class, mean over {draws} draws ± half the 95 % interval\n\n"
        text += f"{by_metric(here, METRICS)}\n"
    return text


def draw(rows: list[Row]) -> Figure:
    """Draw what each decoder aims at, over the number of training images."""
    figure = canvas(9, 3.0)
    for axes, metric in zip(figure.subplots(1, len(AIMS)), AIMS, strict=True):
        for label in (label for label in labels_of(rows) if label in LABELS.values()):
            xs, means, *_ = series([row for row in rows if row["label"] == label], "shots", metric)
            axes.plot(xs, means, "o-", label=label, markersize=3)
        axes.set(xscale="log", xlabel="images per class", title=metric.replace("_", " "))
    figure.axes[0].legend(frameon=False, fontsize=7)
    return figure


SMOKE = Config(shots=(2,), seeds=2)
EXPERIMENT = described("decoders", cells, measure, draw, verdicts, table, Config(), SMOKE)
