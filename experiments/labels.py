"""Labels at any level: images labelled above the classes, rare and unseen classes, and one image per class."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.partial_labels import local_classifiers, partial_label_regression, self_training
from experiments.claims import Verdict, ahead, by_method, by_metric, mean_of, table_by_data, threshold, verdicts_by_data
from experiments.controls import CONTROLS as CLASSIFIERS, POWER, fitted_controls, tuning_images
from experiments.experiment import described
from experiments.figures import Figure, panels
from experiments.measuring import OUR_LABEL as OURS, Cell, method_cell
from experiments.records import OF_IMAGES, PER_IMAGE, Row, packed
from experiments.tables import number
from experiments.tasks import Task
from experiments.wrong_tree import corrupt
from hcep.classify import HCEPClassifier
from hcep.evaluate import expected_calibration_error
from hcep.hierarchy import Hierarchy

Array = NDArray[Any]
LEVELS, RARE, UNSEEN, ONE_SHOT, TIME = "levels", "rare", "unseen", "one-shot", "time"
#: Levels of the labels of all images that are not labelled with their class, and the number of classes below them.
PARENT, EIGHT, TWENTY, UNLABELLED = "near ancestor", "at least 8 classes", "at least 20 classes", "unlabelled"
CLASSES_BELOW = {PARENT: 2, EIGHT: 8, TWENTY: 20}
#: The level of rows that see exact labels only.
NO_LEVEL = "none"
EXACT, ALL = "HCEP, exact labels only", "HCEP, all labels exact"
PARTIAL, SELF, LOCAL = "Partial-label logistic regression", "Self-training", "HiClass"
CONTROLS = (PARTIAL, SELF, LOCAL)
#: Ours with and without a prior over the tree, and the control for rare classes.
NO_PRIOR, FLAT_PRIOR, SHUFFLED = "HCEP, no prior", "HCEP, prior without a tree", "HCEP, shuffled tree"
ADJUSTED, RELATIVES = "Logit-adjusted logistic regression", "Probabilities of known relatives"
PRIORS = (OURS, NO_PRIOR, FLAT_PRIOR, SHUFFLED, ADJUSTED)
TAIL, HALF = "long tail", "half and half"
GROUPS = ("all", "rare", "other")
#: Classes of the long tail with at most this many images are rare.
MOST_OF_RARE = 3
#: Controls with one image per class; CLIP embeddings have negative numbers, so ours never changes their power.
ONE_SHOT_CONTROLS = tuple(label for label in CLASSIFIERS if label != POWER)
HALF_COARSE, ALL_EXACT, EXACT_HALF = "half of the labels coarse", "all labels exact", "the exact half alone"
#: Targets set beforehand: accuracy by exact labels per class, and of all and of rare classes.
TARGETS = {2: 0.6, 5: 0.635}
RARE_TARGETS = {TAIL: (0.525, 0.37), HALF: (0.47, 0.26)}
UNSEEN_TARGET, MAX_ECE, MAX_TIMES = 0.28, 0.1, 2.5


@dataclass(frozen=True)
class Config:
    """Draws of exactly labelled images, their numbers per class, and the level at which all other images are labelled.

    Controls run on every draw at the first level. At other levels they run on the first draw, with the `controlled`
    numbers of exact labels.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    exact: tuple[int, ...] = (1, 2, 5, 12)
    levels: tuple[str, ...] = (PARENT, EIGHT, TWENTY, UNLABELLED)
    controlled: tuple[int, ...] = (2, 5)
    parts: tuple[str, ...] = (RARE, UNSEEN, LEVELS, TIME, ONE_SHOT)
    n_unseen: int = 40
    most: int = 50
    timed: int = 24
    n_val: int | None = None


#: Numbers of exact labels and levels of the sets with few images or few levels.
SETTINGS = {"ImageNet-1k (6 per class)": ((2,), (PARENT, EIGHT)), "Oxford pets": ((1, 2, 4), (PARENT,))}


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield the cells of the parts that a data set is for.

    Labels at several levels need a hierarchy; rare classes also need `config.most` images per class; one-shot
    rows are for embeddings by CLIP, which was not trained on the classes.
    """
    by_clip = task.encoder.startswith("CLIP")
    has_levels = task.hierarchy.depth > 1 and (not by_clip or task.name in SETTINGS)
    has_many = not by_clip and task.images_per_class >= config.most
    parts = {LEVELS: has_levels, RARE: has_many, UNSEEN: has_many, TIME: has_many, ONE_SHOT: by_clip}
    for seed in config.seeds:
        for part in config.parts:
            if parts[part]:
                yield from ({"part": part, **cell} for cell in PART_CELLS[part](config, task, seed))


def _level_cells(config: Config, task: Task, seed: int) -> Iterator[Cell]:
    numbers, levels = SETTINGS.get(task.name, (config.exact, config.levels))
    is_first = seed == config.seeds[0]
    if is_first:
        yield method_cell("hcep", label=ALL, exact=None, level=NO_LEVEL, seed=seed)
    for k in numbers:
        yield method_cell("hcep", label=EXACT, exact=k, level=NO_LEVEL, seed=seed)
        for level in levels:
            at = {"exact": k, "level": level, "seed": seed}
            yield method_cell("hcep", label=OURS, **at)
            if level == levels[0] or (is_first and k in config.controlled):
                yield method_cell("linear-probe", label=PARTIAL, **at)
                yield method_cell("linear-probe", label=SELF, **at)
                if is_first and level != UNLABELLED:
                    yield method_cell("hiclass", label=LOCAL, **at)


def _rare_cells(config: Config, task: Task, seed: int) -> Iterator[Cell]:
    for shape in (TAIL, HALF):
        for label in PRIORS:
            name = "linear-probe" if label == ADJUSTED else "hcep"
            yield method_cell(name, label=label, shape=shape, seed=seed)


def _unseen_cells(config: Config, task: Task, seed: int) -> Iterator[Cell]:
    for label in (OURS, SHUFFLED):
        yield method_cell("hcep", label=label, n_unseen=config.n_unseen, seed=seed)


def _time_cells(config: Config, task: Task, seed: int) -> Iterator[Cell]:
    yield method_cell("hcep", label=HALF_COARSE, timed=config.timed, seed=seed)


def _one_shot_cells(config: Config, task: Task, seed: int) -> Iterator[Cell]:
    yield {"seed": seed, "controls": len(ONE_SHOT_CONTROLS)}


PART_CELLS = {
    LEVELS: _level_cells,
    RARE: _rare_cells,
    UNSEEN: _unseen_cells,
    TIME: _time_cells,
    ONE_SHOT: _one_shot_cells,
}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    here = _under_tree(task, config.n_val)
    yield from ({**cell, **row} for row in MEASURES[cell["part"]](config, here, cell))


@lru_cache(maxsize=1)
def _under_tree(task: Task, n_val: int | None) -> Task:
    """Return the task with the first-hypernym tree, in which every concept has one parent."""
    return task.under(task.hierarchy.as_tree().collapse()).first_images(n_val)


# -- labels above the classes --------------------------------------------------------------------------


def coarse_labels(tree: Hierarchy, level: str) -> dict[str, str]:
    """Return the label of every class's images at a level: its nearest ancestor with enough classes, or the root."""
    if level == UNLABELLED:
        return dict.fromkeys(tree.leaves, tree.root)
    leaves = set(tree.leaves)
    sizes = {concept: len(leaves.intersection(tree.descendants(concept))) for concept in tree.ids}
    labels = {}
    for leaf in tree.leaves:
        above = [c for c in tree.ancestors(leaf) if c != leaf and sizes[c] >= CLASSES_BELOW[level]]
        labels[leaf] = min(above, key=lambda concept: sizes[concept], default=tree.root)
    return labels


def allowed_classes(labels: Array, classes: Array, tree: Hierarchy) -> NDArray[np.bool_]:
    """Return which classes each label allows, (n_labels, n_classes): itself, or those below it."""
    distinct, index = np.unique(labels, return_inverse=True)
    return np.array([np.isin(classes, [label, *tree.descendants(label)]) for label in distinct])[index]


def _levels(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Keep some labels of each class exact, replace the others by a concept above them, and classify new images."""
    label, tree, classes = cell["label"], task.hierarchy, np.unique(task.y)
    if label == ALL:
        yield _scored(task, HCEPClassifier(tree).fit(task.X, task.y).predict_proba(task.X_val), classes)
        return
    is_exact = task.ranks(cell["seed"]) < cell["exact"]
    if label == EXACT:
        yield _scored(task, _exact_model(task, cell["exact"], cell["seed"]).predict_proba(task.X_val), classes)
        return
    above = coarse_labels(tree, cell["level"])
    y = np.array([c if exact else above[c] for c, exact in zip(task.y.tolist(), is_exact, strict=True)])
    if label == OURS:
        model = HCEPClassifier(tree, unlabelled="use").fit(task.X, y)
        facts = {"shrinkage": model.shrinkage_}
        if model.coarse_ is not None:
            facts |= {"used": model.coarse_.used, "rounds": model.coarse_.rounds}
        yield _scored(task, model.predict_proba(task.X_val), classes) | facts
        return
    metric = _exact_model(task, cell["exact"], cell["seed"]).dictionary_.transform
    X, X_val = metric(task.X), metric(task.X_val)
    if label == LOCAL:
        predicted = np.array(local_classifiers(X, y.tolist(), tree, X_val))
        yield _scored(task, (predicted[:, None] == classes).astype(float), classes) | {"ece": None}
        return
    fit = partial_label_regression if label == PARTIAL else self_training
    yield _scored(task, fit(X, allowed_classes(y, classes, tree), is_exact).predict_proba(X_val), classes)


@lru_cache(maxsize=1)
def _exact_model(task: Task, exact: int, seed: int) -> HCEPClassifier:
    """Fit ours to the exactly labelled images; its metric is also that of the controls."""
    own = task.only(task.ranks(seed) < exact)
    return HCEPClassifier(task.hierarchy).fit(own.X, own.y)


def _scored(task: Task, probabilities: Array, classes: Array, group: NDArray[np.bool_] | None = None) -> Row:
    """Return accuracy and calibration error of the validation images; in a group of classes, all classes count alike.

    `probabilities` is an (n_val, n_classes) array in the order of `classes`.
    """
    is_balanced, group = group is not None, np.ones(len(task.y_val), dtype=bool) if group is None else group
    correct = np.where(group, classes[probabilities.argmax(axis=1)] == task.y_val, np.nan)
    confidence = np.where(group, probabilities.max(axis=1), np.nan)
    columns = {name: np.full(len(correct), np.nan) for name in PER_IMAGE} | {"correct": correct}
    by_class = [correct[group & (task.y_val == label)].mean() for label in np.unique(task.y_val[group])]
    error = expected_calibration_error(confidence[group], correct[group])
    accuracy = float(np.mean(by_class) if is_balanced else correct.mean())
    row = {"accuracy": accuracy, "ece": error, "n_val": int(group.sum())}
    return {**row, OF_IMAGES: packed(columns | {"confidence": confidence})}


# -- rare and unseen classes ---------------------------------------------------------------------------


def images_of_classes(shape: str, n_classes: int, most: int, seed: int) -> NDArray[np.intp]:
    """Return a number of images for each class, in a random order: from `most` to 1 geometrically, or one of both."""
    places = np.arange(n_classes) / max(n_classes - 1, 1)
    numbers = most ** (1.0 - places) if shape == TAIL else np.where(places < 0.5, most, 1)
    return np.random.default_rng(seed).permutation(np.round(numbers).astype(np.intp))


def _rare(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Give every class its number of training images; score all, rare and other classes, each class alike."""
    drawn, rare = _long_tail(task, cell["shape"], config.most, cell["seed"])
    classes, label = np.unique(task.y), cell["label"]
    if label == ADJUSTED:
        metric = _prior_model(task, cell["shape"], config.most, cell["seed"], OURS).dictionary_.transform
        own = np.searchsorted(classes, drawn.y)
        options = {"offset": np.log(np.bincount(own) / len(own))}
        exact = np.ones(len(own), dtype=bool)
        head = partial_label_regression(metric(drawn.X), np.eye(len(classes), dtype=bool)[own], exact, **options)
        probabilities = head.predict_proba(metric(task.X_val))
    else:
        model = _prior_model(task, cell["shape"], config.most, cell["seed"], label)
        probabilities = model.predict_proba(task.X_val)
    is_rare = np.isin(task.y_val, rare)
    for name, group in zip(GROUPS, (np.ones_like(is_rare), is_rare, ~is_rare), strict=True):
        yield {"group": name, **_scored(task, probabilities, classes, group)}


def _long_tail(task: Task, shape: str, most: int, seed: int) -> tuple[Task, Array]:
    """Return the task with unequal numbers of training images, and its rare classes."""
    classes, own = np.unique(task.y, return_inverse=True)
    numbers = images_of_classes(shape, len(classes), most, seed)
    return task.only(task.ranks(seed) < numbers[own]), classes[numbers <= MOST_OF_RARE]


@lru_cache(maxsize=1)
def _prior_model(task: Task, shape: str, most: int, seed: int, label: str) -> HCEPClassifier:
    drawn, _ = _long_tail(task, shape, most, seed)
    return _ours(label, task.hierarchy, seed).fit(drawn.X, drawn.y)


def _ours(label: str, tree: Hierarchy, seed: int) -> HCEPClassifier:
    """Return ours at its defaults, or with another prior over the class means, or with another tree."""
    options: dict[str, Any] = {NO_PRIOR: {"prior": None}, FLAT_PRIOR: {"prior": "flat"}}.get(label, {})
    return HCEPClassifier(corrupt(tree, "random", 1.0, seed) if label == SHUFFLED else tree, **options)


def _unseen(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Fit without any image of some classes, and choose among these classes for their validation images."""
    classes = np.unique(task.y)
    n_unseen = min(config.n_unseen, len(classes) // 4)
    unseen = np.sort(np.random.default_rng(cell["seed"]).permutation(classes)[:n_unseen])
    drawn = task.only(~np.isin(task.y, unseen))
    group = np.isin(task.y_val, unseen)
    model = _ours(cell["label"], task.hierarchy, cell["seed"]).set_params(unseen="use").fit(drawn.X, drawn.y)
    probabilities, is_unseen = model.predict_proba(task.X_val), np.isin(model.classes_, unseen)
    scores = {cell["label"]: probabilities[:, is_unseen]}
    if cell["label"] == OURS:
        known, own = (_concepts_above(task.hierarchy, some) for some in (model.classes_[~is_unseen], unseen))
        scores[RELATIVES] = probabilities[:, ~is_unseen] @ known @ own.T
    for label, among in scores.items():
        # Neither is calibrated for the choice among these classes alone.
        row = _scored(task, among / np.maximum(among.sum(axis=1, keepdims=True), 1e-300), unseen, group)
        yield {"label": label, **row, "ece": None, "chance": 1.0 / n_unseen}


def _concepts_above(tree: Hierarchy, classes: Array) -> Array:
    """Return which concepts are above each class, (n_classes, n_concepts)."""
    return np.array([np.isin(tree.ids, tree.ancestors(str(label))) for label in classes], dtype=float)


# -- one image per class, and time ---------------------------------------------------------------------


def _one_shot(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Fit ours and the controls to one image per class."""
    drawn, classes = task.only(task.ranks(cell["seed"]) < 1), np.unique(task.y)
    model = HCEPClassifier(task.hierarchy).fit(drawn.X, drawn.y)
    yield {"label": OURS, **_scored(task, model.predict_proba(task.X_val), classes)}
    for control in fitted_controls(drawn, model, tuning_images(task, drawn), ONE_SHOT_CONTROLS):
        probabilities = control.method.predict_proba(control.task.X_val)
        yield {"label": control.label, **_scored(task, probabilities, classes)}


def _time(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure the processor time of a fit with half of the labels coarse, and of two fits without coarse labels."""
    ranks, above = task.ranks(cell["seed"]), coarse_labels(task.hierarchy, PARENT)
    drawn, is_exact = task.only(ranks < config.timed), ranks[ranks < config.timed] < config.timed // 2
    y = np.where(is_exact, drawn.y, [above[c] for c in drawn.y.tolist()])
    tasks = {ALL_EXACT: (drawn.X, drawn.y), EXACT_HALF: (drawn.X[is_exact], drawn.y[is_exact])}
    for label, (X, labels) in {HALF_COARSE: (drawn.X, y), **tasks}.items():
        start = time.process_time()
        HCEPClassifier(task.hierarchy).fit(X, labels)
        yield {"label": label, "fit_seconds": time.process_time() - start}


MEASURES = {LEVELS: _levels, RARE: _rare, UNSEEN: _unseen, ONE_SHOT: _one_shot, TIME: _time}


# -- tables and verdicts -------------------------------------------------------------------------------


def _of(rows: list[Row], part: str, **settings: Any) -> list[Row]:
    return [r for r in rows if r["part"] == part and all(r[name] == value for name, value in settings.items())]


def _by_level(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each level, with those that see exact labels only."""
    graded = [r for r in _of(rows, LEVELS) if r["exact"] is not None]
    for level in dict.fromkeys(r["level"] for r in graded if r["level"] != NO_LEVEL):
        yield level, [r for r in graded if r["level"] in (level, NO_LEVEL)]


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare ours with exact labels only and with every control, and check the targets that were set beforehand."""
    for level, here in _by_level(rows):
        where = f"{data}, {level}"
        for control in (EXACT, *CONTROLS):
            yield from ahead(here, where, OURS, [control], "accuracy", at="exact")
        for k, target in TARGETS.items() if data.startswith("Tiny") and level == PARENT else ():
            value = mean_of([r for r in here if r["exact"] == k], OURS, "accuracy")
            if value is not None:
                claim = f"{where}, {k} exact labels per class: the accuracy is at least {number(target)}"
                yield threshold(claim, value - target, number(value))
    yield from _rare_verdicts(data, rows)
    yield from _other_verdicts(data, rows)


def _rare_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    for shape, targets in RARE_TARGETS.items():
        groups = {group: _of(rows, RARE, shape=shape, group=group) for group in GROUPS}
        for group, target in zip(GROUPS, targets, strict=False):
            value = mean_of(groups[group], OURS, "accuracy")
            if value is not None:
                claim = f"{data}, {shape}: the accuracy of {group} classes is at least {number(target)}"
                yield threshold(claim, value - target, number(value))
        for group, here in groups.items():
            for control in PRIORS[1:]:
                yield from ahead(here, f"{data}, {shape}, {group} classes", OURS, [control], "accuracy")


def _other_verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    value = mean_of(_of(rows, UNSEEN), OURS, "accuracy")
    if value is not None:
        claim = f"{data}: among unseen classes, at least {number(UNSEEN_TARGET)} of their images are right"
        yield threshold(claim, value - UNSEEN_TARGET, number(value))
    for control in (SHUFFLED, RELATIVES):
        yield from ahead(_of(rows, UNSEEN), f"{data}, unseen classes", OURS, [control], "accuracy")
    single = _of(rows, ONE_SHOT)
    for control in ONE_SHOT_CONTROLS:
        yield from ahead(single, f"{data}, one image per class", OURS, [control], "accuracy")
    error = mean_of(single, OURS, "ece")
    if error is not None:
        claim = f"{data}, one image per class: the calibration error is below {number(MAX_ECE)}"
        yield threshold(claim, MAX_ECE - error, number(error))
    times = time_ratio(_of(rows, TIME), ALL_EXACT)
    if times is not None:
        claim = f"{data}: a fit with half of the labels coarse takes at most {MAX_TIMES:g} times a fit without"
        yield threshold(claim, MAX_TIMES - times, f"{times:.2f} times")


def time_ratio(rows: list[Row], other: str) -> float | None:
    """Return the median over draws of the time of a fit with coarse labels, divided by that of another fit."""
    seconds = {(r["label"], r["seed"]): r["fit_seconds"] for r in rows}
    ratios = [value / seconds[other, seed] for (label, seed), value in seconds.items() if label == HALF_COARSE]
    return float(np.median(ratios)) if ratios else None


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return the tables of a data set: by level, of rare and unseen classes, of one image per class, and the time."""
    text = f"**{data}**\n\n"
    for level, here in _by_level(rows):
        text += f"Other images: {level}. Accuracy / calibration error by exact labels per class:\n\n"
        text += by_method(here, "exact", ("accuracy", "ece")) + "\n"
    whole = mean_of(_of(rows, LEVELS), ALL, "accuracy")
    if whole is not None:
        text += f"With all labels exact: {number(whole)}.\n\n"
    for shape in RARE_TARGETS:
        here = [{**r, "group": GROUP_TITLES[r["group"]]} for r in _of(rows, RARE, shape=shape)]
        if here:
            text += f"{shape.capitalize()}, class-balanced accuracy:\n\n{by_method(here, 'group', ('accuracy',))}\n"
    unseen, single, times = (_of(rows, part) for part in (UNSEEN, ONE_SHOT, TIME))
    if unseen:
        chance = number(unseen[0]["chance"])
        text += f"Unseen classes among themselves (chance {chance}):\n\n{by_metric(unseen, ('accuracy',))}\n"
    if single:
        text += f"One image per class:\n\n{by_metric(single, ('accuracy', 'ece'))}\n"
    if times:
        ratios = [f"{time_ratio(times, other):.2f} times as long as with {other}" for other in (ALL_EXACT, EXACT_HALF)]
        text += f"A fit with half of the labels coarse takes {' and '.join(ratios)} (median of the draws).\n\n"
    return text


GROUP_TITLES = {"all": "1. all classes", "rare": "2. rare classes", "other": "3. other classes"}


def draw(rows: list[Row]) -> Figure:
    """Draw accuracy and calibration error by exact labels, for each data set and level."""
    groups = {}
    for data in dict.fromkeys(r["data"] for r in rows):
        levels = _by_level([r for r in rows if r["data"] == data])
        groups |= {f"{data}, {level}": here for level, here in levels if len({r["exact"] for r in here}) > 1}
    if not groups:
        groups = {f"{r['data']}, {r['level']}": [r] for r in _of(rows, LEVELS)[:1]}
    marks = {name: sorted({r["exact"] for r in here}) for name, here in groups.items()}
    return panels(groups, "exact", ("accuracy", "ece"), "exact labels per class", categories=marks)


SMOKE = Config(seeds=(0,), exact=(2,), levels=(PARENT,), n_unseen=3, timed=6, n_val=50)
EXPERIMENT = described("labels", cells, measure, draw, verdicts, table, Config(), SMOKE)
