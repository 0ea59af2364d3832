"""Images and words: SpLiCE and IP-OMP over vocabularies, class names alone, and ours with and without class names."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.few_shot import tuned_text_cache
from experiments.baselines.partial_labels import Linear
from experiments.claims import Verdict, ahead, by_method, labels_of, mean_of, table_by_data, threshold, verdicts_by_data
from experiments.controls import (
    CONTROLS,
    POWER,
    control_rows,
    fitted_controls,
    log_loss,
    split_for_tuning,
    tuning_images,
)
from experiments.experiment import described
from experiments.figures import curves
from experiments.measuring import OUR_LABEL, Cell, labelled, measured, method_cell
from experiments.records import Row
from experiments.sparsity import MAIN
from experiments.tables import number
from experiments.tasks import CLASS_NAMES, LVIS_NAMES, Task
from hcep import HCEPClassifier
from hcep.classify.methods.baselines import LinearProbe
from hcep.dictionary.transform import unit_rows

BY_WORDS = ("splice", "ip-omp")
TEXT_ALONE, BOTH = "Class names alone (cosine)", "HCEP, words and pictures"
#: A control with words and pictures, and controls with pictures alone; ours does not change the power of CLIP's.
TIP = "Tip-Adapter cache and class names"
BY_IMAGES = tuple(label for label in CONTROLS if label != POWER)
#: Ours with words, where some classes have no images; rows of this label are scored on those classes and on the others.
UNSEEN = "HCEP, words and pictures, some classes without images"
#: Targets set beforehand: accuracy by images per class, calibration error, and accuracy of classes without images.
TARGETS, MAX_ECE, UNSEEN_TARGET, MAX_LOSS = {1: 0.62, 2: 0.63, 4: 0.65}, 0.05, 0.58, 0.01
#: The factor of CLIP's cosines before the softmax, which is what CLIP was trained with.
CLIP_SCALE = 100.0


@dataclass(frozen=True)
class Config:
    """Images per class, seeds of their draws, and the number of words or atoms in a code, as published for ImageNet.

    The `methods` and codes over words, which are slow, see the first draw only.
    """

    shots: tuple[int, ...] = (1, 2, 4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    methods: tuple[str, ...] = ("omp:convex", "hb-omp:convex", "nn-lasso")
    vocabularies: tuple[str, ...] = (CLASS_NAMES, LVIS_NAMES)
    sparsity: int = 14
    beam: int = 32
    n_unseen: int = 200
    n_val: int | None = None


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per method, vocabulary, number of images and draw; a task with all its images has one draw.

    The first draw comes first, so that a run that stops has whole draws.
    """
    for seed, k in product(config.seeds, config.shots):
        if k > task.images_per_class or (k == task.images_per_class and seed != config.seeds[0]):
            continue
        at = {"shots": k, "seed": seed}
        yield {**at, "controls": len(BY_IMAGES)}
        yield method_cell("linear-probe", vocabulary=CLASS_NAMES, **at)
        yield method_cell("linear-probe", vocabulary=CLASS_NAMES, cached=True, **at)
        yield method_cell("hcep", vocabulary=CLASS_NAMES, n_unseen=0, **at)
        yield method_cell("hcep", vocabulary=CLASS_NAMES, n_unseen=config.n_unseen, **at)
        if seed == config.seeds[0]:
            for name in BY_WORDS:
                yield from (method_cell(name, vocabulary=words, **at) for words in config.vocabularies)
            yield from (method_cell(name, config.beam, vocabulary=None, **at) for name in config.methods)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure one method, or ours from images and all controls; these do not depend on the sparsity."""
    drawn = task.shots(cell["shots"], cell["seed"]).first_images(config.n_val)
    if "controls" in cell:
        yield from (_timed({**cell, **row}) for row in _without_codes(task, drawn, cell))
        return
    label, fitted, more = labelled(cell), None, {}
    options: dict[str, Any] = {} if cell["method"] in ("hcep", "linear-probe") else {"max_steps": config.sparsity}
    if cell["method"] in BY_WORDS:
        vocabulary = task.vocabularies[cell["vocabulary"]].within(task.hierarchy)
        label, options = f"{label} over {vocabulary.name}", options | {"vocabulary": vocabulary}
    elif cell["vocabulary"] is not None:
        texts = class_texts(task)
        if cell["method"] == "hcep":
            classes = np.random.default_rng(cell["seed"]).permutation(np.unique(drawn.y))
            seen = ~np.isin(drawn.y, classes[: cell["n_unseen"]])
            label = BOTH if seen.all() else UNSEEN
            start = time.perf_counter()
            fitted = HCEPClassifier(task.hierarchy).fit(drawn.X[seen], drawn.y[seen], texts=texts)
            more = {
                "fit_seconds": time.perf_counter() - start,
                "words_share": fitted.words_.share,
                **_by_group(fitted, drawn, classes[: config.n_unseen]),
            }
        elif "cached" in cell:
            start = time.perf_counter()
            label, fitted = TIP, text_cache(task, drawn, texts)
            more = {"fit_seconds": time.perf_counter() - start, **log_loss(fitted, drawn)}
        else:
            label, fitted = TEXT_ALONE, zero_shot(drawn, texts)
    row, _ = measured(cell, drawn, fitted, **options)
    yield _timed({**row, "label": label, **more})


def _timed(row: Row) -> Row:
    return {**row, "seconds_per_image": row["evaluate_seconds"] / row["n_val"]}


def _without_codes(task: Task, drawn: Task, cell: Cell) -> Iterator[Row]:
    """Measure ours from images alone, and the controls."""
    at = {name: cell[name] for name in ("shots", "seed")}
    row, graded = measured(method_cell("hcep", **at), drawn)
    yield {**row, **log_loss(graded.estimator, drawn)}
    tuning = tuning_images(task, drawn)
    yield from control_rows(at, fitted_controls(drawn, graded.estimator, tuning, BY_IMAGES))


def class_texts(task: Task) -> dict[str, NDArray[np.float64]]:
    """Return the text embedding of each class, at norm 1."""
    names = task.vocabularies[CLASS_NAMES].within(task.hierarchy)
    return dict(zip(names.words, unit_rows(names.vectors.astype(np.float64)), strict=True))


def text_cache(task: Task, drawn: Task, texts: dict[str, NDArray[np.float64]]) -> LinearProbe:
    """Return the Tip-Adapter cache of the drawn images together with class names, tuned on images of the task."""
    scores = CLIP_SCALE * np.array([texts[label] for label in np.unique(drawn.y)])
    head = tuned_text_cache(*split_for_tuning(drawn, *tuning_images(task, drawn)), scores)
    return LinearProbe(task.hierarchy, head=head).fit(drawn.X, drawn.y)


def zero_shot(task: Task, texts: dict[str, NDArray[np.float64]]) -> LinearProbe:
    """Return a classifier by the cosine of images and class names alone."""
    weights = CLIP_SCALE * np.transpose([texts[label] for label in np.unique(task.y)])
    return LinearProbe(task.hierarchy, head=Linear(weights, np.zeros(weights.shape[1]))).fit(task.X, task.y)


def _by_group(model: HCEPClassifier, task: Task, classes: NDArray[np.str_]) -> Row:
    """Return the accuracy on images of the classes that some fits have no training images of, and on all others."""
    right, inside = model.predict(task.X_val) == task.y_val, np.isin(task.y_val, classes)
    return {"unseen_accuracy": np.mean(right[inside]), "seen_accuracy": np.mean(right[~inside])}


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare ours with the methods that describe images by words, and ours with words with all others."""
    words = [label for label in labels_of(rows) if " over " in label]
    for label in words:
        for metric in MAIN:
            yield from ahead(rows, data, OUR_LABEL, [label], metric, at="shots")
    for label in BY_IMAGES:
        yield from ahead(rows, data, OUR_LABEL, [label], "accuracy", at="shots")
    for label in (TEXT_ALONE, OUR_LABEL, TIP, *words):
        yield from ahead(rows, data, BOTH, [label], "accuracy", at="shots")
    for k in sorted({r["shots"] for r in rows}):
        yield from _targets(f"{data}, {k} per class", k, [r for r in rows if r["shots"] == k])


def _targets(where: str, shots: int, rows: list[Row]) -> Iterator[Verdict]:
    """Check the targets that were set beforehand."""
    accuracy, error = (mean_of(rows, BOTH, metric) for metric in ("accuracy", "ece"))
    if accuracy is not None and error is not None and shots in TARGETS:
        claim = f"{where}: words and pictures reach at least {number(TARGETS[shots])}"
        yield threshold(claim, accuracy - TARGETS[shots], number(accuracy))
        yield threshold(f"{where}: the calibration error is at most {number(MAX_ECE)}", MAX_ECE - error, number(error))
    unseen = mean_of(rows, UNSEEN, "unseen_accuracy")
    others, with_all = (mean_of(rows, label, "seen_accuracy") for label in (UNSEEN, BOTH))
    if unseen is not None and others is not None and with_all is not None:
        claim = f"{where}: of the images of classes without images, at least {number(UNSEEN_TARGET)} are right"
        yield threshold(claim, unseen - UNSEEN_TARGET, number(unseen))
        claim = f"{where}: the other classes lose at most {number(MAX_LOSS)} by that"
        text = f"{number(others)} against {number(with_all)} if all classes have images"
        yield threshold(claim, others - with_all + MAX_LOSS, text)


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    text = f"{data}, accuracy / support precision / support recall by training images per class (mean over draws; bold "
    text += "marks the best and everything tied with it):\n\n" + by_method(rows, "shots", MAIN) + "\n"
    for k, label in product(sorted({r["shots"] for r in rows}), (BOTH, UNSEEN)):
        here = [r for r in rows if r["shots"] == k]
        share, unseen, seen = (mean_of(here, label, m) for m in ("words_share", "unseen_accuracy", "seen_accuracy"))
        if share is not None and unseen is not None and seen is not None:
            text += f"- {label}, {k} per class: words count for {100 * share:.0f} % of the evidence; accuracy "
            text += f"{number(unseen)} on the classes that one of the two fits has no images of, and {number(seen)} on "
            text += "the others.\n"
    text += "\n"
    timed = [{**r, "evaluate_seconds": 1000 * r["seconds_per_image"]} for r in rows]
    text += "Seconds to fit / milliseconds to code and classify one image, on one loaded core:\n\n"
    return text + by_method(timed, "shots", ("fit_seconds", "evaluate_seconds")).replace("**", "") + "\n"


draw = curves("shots", MAIN, "training images per class", places=True)
SMOKE = Config(shots=(2,), seeds=(0,), methods=("hb-omp:convex", "hcep"), beam=8, sparsity=5, n_unseen=2)
EXPERIMENT = described("words", cells, measure, draw, verdicts, table, Config(), SMOKE)
