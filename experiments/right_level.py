"""The right level: how often answers are right, and how specific, for several rules that choose the level."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from experiments.claims import Verdict, ahead, by_metric, labels_of, mean_of, table_by_data, threshold, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import Task
from hcep.classify import HCEPClassifier
from hcep.classify.right_level import FEWEST, HeldOutLevels, Levels, conformal_quantile
from hcep.evaluate import expected_calibration_error
from hcep.hierarchy.imagenet import everyday_hierarchy, imagenet_classes
from hcep.models.opening import linear_head

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
SURE, BY_CONFIDENCE = "HCEP, without held-out images", "HCEP, by confidence"
BY_CLASS = "HCEP, by confidence and class quantiles"
ONE, DARTS = "One threshold (climbing)", "DARTS"
FIXED = {0.65: "Fixed 0.65", 0.78: "Fixed 0.78"}
CLIMB, SELECT = "Climbing", "Class or nothing"
GROUPS = ("all", "doubtful", "other")
#: Images whose likeliest class has a lower probability are doubtful.
DOUBTFUL = 0.6
#: A promise is kept if the share of right answers is at most this far below it.
WITHIN = 0.01
MAX_ECE = 0.05
METRICS = ("right", "depth_share", "information", "class_share", "answered")
COLUMNS = ("right", "right_given", *METRICS[1:])
#: In all images also: right in the fifth of images by confidence and in the tenth of the classes that are worst.
WORST = ("right_worst_fifth", "right_worst_classes")
#: Answers by the number of classes below them.
LEVELS = {"a class": 1, "2 to 10 classes": 10, "11 to 100 classes": 100, "more": 10**9}
#: What people call the photos of ImageNette's classes that are not a word of everyday language.
BASIC = {
    "n01440764": "fish",
    "n02102040": "dog",
    "n02979186": "electronic equipment",
    "n03000684": "tool",
    "n03028079": "building",
    "n03394916": "musical instrument",
    "n03417042": "truck",
    "n03425413": "mechanical device",
    "n03445777": "ball",
}
MIN_BASIC = 2.0 / 3.0
#: What the data sets of a classifier with a temperature, and of one above which are everyday words, end in.
FITTED, EVERYDAY = ", temperature fitted", ", temperature fitted, everyday hierarchy"


@dataclass(frozen=True)
class Config:
    """How sure answers shall be, images per class of the fit, splits of the validation images, and how they are made.

    Each split calibrates on `n_held_out` validation images, at most half of them, and tests on the others.
    """

    sure: float = 0.9
    shots: int | None = 12
    splits: int = 10
    n_held_out: int = 1000


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield one cell per task; for the classifier that is not fitted here, also with a temperature and as built in."""
    settings = {"sure": config.sure, "splits": config.splits, "n_held_out": config.n_held_out}
    if len(task.y):
        yield {**settings, "shots": config.shots}
    else:
        yield from ({**settings, "temperature": temperature} for temperature in ("none", "fitted"))
        yield {**settings, "temperature": "fitted", "hierarchy": "everyday"}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    is_everyday, scaled = "hierarchy" in cell, cell.get("temperature") == "fitted"
    levels, logits, own = _scores(replace(task, hierarchy=everyday_hierarchy()) if is_everyday else task, config)
    data = {"data": task.name + (EVERYDAY if is_everyday else FITTED)} if scaled else {}
    for seed in range(config.splits):
        order = np.random.default_rng(seed).permutation(len(own))
        n = min(config.n_held_out, len(own) // 2)
        first, test = order[:n], order[n:]
        temperature = fitted_temperature(logits[first], own[first]) if scaled else 1.0
        probabilities = softmax(logits / temperature, axis=1)
        for row in _rows(levels, probabilities, own, first, test, config.sure):
            yield {**cell, **data, "seed": seed, **row}
        if scaled:
            # A few hundred images make a calibration error look larger: both halves are tested, each by the other.
            halves = ((first, test), (test, first))
            scores = [logits[b] / fitted_temperature(logits[a], own[a]) for a, b in halves]
            odds, truth = softmax(np.concatenate(scores), axis=1), np.concatenate([own[test], own[first]])
            error = expected_calibration_error(odds.max(axis=1), odds.argmax(axis=1) == truth)
            yield {**cell, **data, "seed": seed, "group": "all", "label": "Crossed halves", "ece": error}


def _scores(task: Task, config: Config) -> tuple[Levels, Floats, Index]:
    """The levels, the logits of the validation images and their classes, of a model fitted here or of the network."""
    if len(task.y):
        few = task.shots(config.shots, 0)
        fitted = HCEPClassifier(task.hierarchy).fit(few.X, few.y)
        model, classes = fitted.path_model(), fitted.classes_
        logits = np.log(np.maximum(fitted.infer(task.X_val).probabilities, 1e-300))
        return model.levels, logits, np.searchsorted(classes, task.y_val)
    head, labels = linear_head("efficientnet-lite2"), list(imagenet_classes())
    levels = Levels.of(task.hierarchy, [task.hierarchy.leaf_of(label) for label in labels])
    place = {label: i for i, label in enumerate(labels)}
    own = np.array([place[label] for label in task.y_val.tolist()], dtype=np.intp)
    return levels, task.X_val.astype(np.float64) @ head.coef.T + head.intercept, own


def fitted_temperature(logits: Floats, own: Index) -> float:
    """The temperature with the lowest log loss on labelled images."""

    def log_loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        return float((logsumexp(scaled, axis=1) - scaled[np.arange(len(own)), own]).mean())

    return float(np.exp(minimize_scalar(log_loss, bounds=(-3.0, 3.0), method="bounded").x))


def _rows(levels: Levels, probabilities: Floats, own: Index, first: Index, test: Index, sure: float) -> Iterator[Row]:
    """Yield the rows of one split: every rule in every group of images, and the risk areas."""
    best = np.argmax(probabilities, axis=1)
    confidence = probabilities[np.arange(len(own)), best]
    answers = chosen_levels(levels, probabilities, own, first, test, sure)
    truth, doubtful = own[test], confidence[test] < DOUBTFUL
    groups = dict(zip(GROUPS, (np.ones(len(test), dtype=bool), doubtful, ~doubtful), strict=True))
    for label, synsets in answers.items():
        quality = graded(levels, synsets, best[test], truth)
        for group, rows in groups.items():
            if rows.any():
                means = {metric: float(values[rows].mean()) for metric, values in quality.items()}
                given = quality["answered"][rows] > 0
                right = float(quality["right"][rows][given].mean()) if given.any() else None
                row = {"group": group, "label": label, **means, "right_given": right, "n_images": int(rows.sum())}
                if group == "all":
                    row |= worst(quality["right"], confidence[test], truth) | basic_level(levels, synsets, truth)
                yield row
        n_below = levels.n_below[synsets]
        for name, most in LEVELS.items():
            rows = (synsets > 0) & (n_below <= most) & (n_below > max([n for n in LEVELS.values() if n < most] or [0]))
            if rows.any():
                right = float(quality["right"][rows].mean())
                yield {"group": name, "label": label, "right_given": right, "answered": float(rows.mean())}
    for label in (CLIMB, SELECT):
        area = risk_area(levels, probabilities[test], best[test], truth, only_classes=label == SELECT)
        yield {"group": "all", "label": label, "hierarchical_risk_area": area}
    error = expected_calibration_error(confidence[test], best[test] == truth)
    yield {"group": "all", "label": "Probabilities", "ece": error}


def chosen_levels(
    levels: Levels, probabilities: Floats, own: Index, first: Index, test: Index, sure: float
) -> dict[str, Index]:
    """The answers of every rule to the images `test`, given the labels of the images `first`; 0 is no answer."""
    best = np.argmax(probabilities, axis=1)
    held_out = levels.held_out(probabilities[first], best[first], own[first])
    new = (probabilities[test], best[test])
    quantile = conformal_quantile(held_out.scores, 1.0 - sure)
    return {
        SURE: levels.choose(*new, sure)[0],
        BY_CONFIDENCE: levels.choose(*new, sure, held_out)[0],
        BY_CLASS: by_class(levels, probabilities, own, first, test, sure),
        ONE: climb(levels, *new, quantile, above=True),
        DARTS: darts(levels, probabilities, own, first, test, sure),
        **{label: climb(levels, *new, value) for value, label in FIXED.items()},
    }


def climb(levels: Levels, probabilities: Floats, best: Index, value: float | Floats, *, above: bool = False) -> Index:
    """Answer with the first concept, from the best class upwards, whose probability is at least or above a value."""
    synsets, values = levels.candidates(probabilities, best)
    limits = np.broadcast_to(value, len(values))[:, None]
    sure = (values > limits) if above else (values >= limits - 1e-9)
    chosen = synsets[np.arange(len(best)), np.argmax(sure, axis=1)]
    return np.where(sure.any(axis=1), chosen, 0)


def darts(levels: Levels, probabilities: Floats, own: Index, first: Index, test: Index, sure: float) -> Index:
    """DARTS (Deng et al., 2012): the concept with the largest expected reward.

    The reward of a right answer is its information plus a constant, the smallest one with which the answers to the
    labelled images are right often enough. The root has no information.
    """
    information, concepts = kept_information(levels), np.minimum(probabilities @ levels.below, 1.0)

    def answers(rows: Index, constant: float) -> Index:
        return np.asarray(np.argmax(concepts[rows] * (information + constant), axis=1))

    low, high = 0.0, 1e4
    for _ in range(40):
        middle = (low + high) / 2.0
        enough = levels.is_below(own[first], answers(first, middle)).mean() >= sure
        low, high = (low, middle) if enough else (middle, high)
    return answers(test, high)


def worst(right: Floats, confidence: Floats, truth: Index) -> dict[str, float]:
    """Share of right answers in the worst fifth of images by confidence, and in the worst tenth of the classes."""
    fifths = np.searchsorted(np.quantile(confidence, (0.2, 0.4, 0.6, 0.8)), confidence)
    classes = np.sort([right[truth == c].mean() for c in np.unique(truth)])
    values = min(right[fifths == f].mean() for f in np.unique(fifths)), classes[: max(1, len(classes) // 10)].mean()
    return dict(zip(WORST, map(float, values), strict=True))


def basic_level(levels: Levels, synsets: Index, truth: Index) -> dict[str, float]:
    """Share of images with an answer at or below the everyday word for their class, if these are the known ones."""
    h = levels.hierarchy
    words: dict[int, int] = {}
    if len(np.unique(truth)) > len(BASIC) + 1:
        return {}
    for c in np.unique(truth).tolist():
        label = h.class_of(h.ids[levels.own[c]])
        above = [i for i in levels.above[c].tolist() if i and h.name(h.ids[i]) == BASIC.get(label, "")]
        words[c] = above[0] if above else int(levels.own[c])
    shared = (levels.below.T @ levels.below).tocsr()
    goals = np.array([words[c] for c in truth.tolist()])
    inside = np.asarray(shared[synsets, goals]).ravel() == levels.n_below[synsets]
    return {"basic": float((inside & (synsets > 0)).mean())}


def by_class(levels: Levels, probabilities: Floats, own: Index, first: Index, test: Index, sure: float) -> Index:
    """By confidence, after each image's scores are shifted by the class quantiles that its probabilities expect.

    The quantile of a class is interpolated half-way to that of all classes (Ding et al., 2025, for long tails).
    """
    best = np.argmax(probabilities, axis=1)
    held_out = levels.held_out(probabilities[first], best[first], own[first])
    scores = [held_out.scores[own[first] == c] for c in range(len(levels.own))]
    quantiles = np.array([min(1.0, conformal_quantile(s, 1.0 - sure)) for s in scores])
    expected = probabilities @ (quantiles + conformal_quantile(held_out.scores, 1.0 - sure)) / 2.0
    shifted = HeldOutLevels(held_out.scores - expected[first], held_out.confidence)
    edges, bins = shifted.bins(FEWEST)
    limits = np.array([conformal_quantile(scores, 1.0 - sure) for scores in bins])
    which = np.searchsorted(edges, probabilities[test, best[test]], side="right")
    return climb(levels, probabilities[test], best[test], np.maximum(expected[test] + limits[which], 0.5), above=True)


def kept_information(levels: Levels) -> Floats:
    """The share of the information about the class that each concept gives, if all classes are equally likely."""
    n_below = np.maximum(levels.n_below, 1)
    return np.asarray(1.0 - np.log(n_below) / np.log(max(len(levels.own), 2)))


def graded(levels: Levels, synsets: Index, best: Index, truth: Index) -> dict[str, Floats]:
    """What each answer is worth, (n_images,) for every metric.

    No answer counts as right, with no depth. The depth is a share of the path to the predicted class. A wrong answer
    gives no information.
    """
    right = levels.is_below(truth, synsets)
    depths = levels.hierarchy.levels
    depth = depths[synsets] / depths[levels.own[best]]
    values = (right, np.minimum(depth, 1.0), right * kept_information(levels)[synsets])
    whole = (*values, levels.n_below[synsets] == 1, synsets > 0)
    return {metric: np.asarray(column, dtype=np.float64) for metric, column in zip(METRICS, whole, strict=True)}


def risk_area(levels: Levels, probabilities: Floats, best: Index, truth: Index, *, only_classes: bool) -> float:
    """The area under the curve of risk over coverage (hAURC of hierarchical selective classification).

    At every threshold, the coverage is the mean information of the answers, right or wrong, and the risk is the share
    of images with a wrong answer. With `only_classes` the answer is the class or nothing.
    """
    synsets, values = levels.candidates(probabilities, best)
    if only_classes:
        synsets, values = levels.own[best][:, None], probabilities[np.arange(len(best)), best][:, None]
    information = kept_information(levels)
    points = [(0.0, 0.0)]  # nothing is answered
    for value in np.unique(np.quantile(values[synsets > 0], np.linspace(0.0, 1.0, 501))):
        sure = values >= value
        chosen = np.where(sure.any(axis=1), synsets[np.arange(len(best)), np.argmax(sure, axis=1)], 0)
        points.append((float(information[chosen].mean()), float((~levels.is_below(truth, chosen)).mean())))
    coverages, risks = np.array(sorted(points)).T
    return float(np.trapezoid(risks, coverages))


# -- tables and verdicts -------------------------------------------------------------------------------


def _of(rows: list[Row], group: str) -> list[Row]:
    return [r for r in rows if r["group"] == group and "right" in r]


def keeps_promise(rows: list[Row], label: str) -> bool:
    """Whether a rule is right often enough among doubtful and among other images."""
    shares = [mean_of(_of(rows, group), label, "right") for group in GROUPS]
    return all(share is None or share >= rows[0]["sure"] - WITHIN for share in shares)


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check the promise among all, doubtful and other images, and compare the depth of the rules that keep it."""
    sure = rows[0]["sure"]
    for label in (SURE, BY_CONFIDENCE):
        for group in GROUPS:
            share = mean_of(_of(rows, group), label, "right")
            if share is not None:
                claim = f"{data}: {label}, at least {sure - WITHIN:g} of answers are right, {group} images"
                yield threshold(claim, share - sure + WITHIN, number(share))
    others = [label for label in (SURE, ONE, DARTS, *FIXED.values()) if keeps_promise(rows, label)]
    for group in GROUPS[:2] if keeps_promise(rows, BY_CONFIDENCE) else ():
        for metric in ("depth_share", "information"):
            where = f"{data}, {group} images"
            yield from ahead(_of(rows, group), where, BY_CONFIDENCE, others, metric, named="every rule that keeps it")
    yield from ahead(rows, data, CLIMB, [SELECT], "hierarchical_risk_area")
    yield from ahead(_of(rows, "all"), data, BY_CONFIDENCE, [ONE, DARTS], "right_worst_fifth")
    basic = mean_of(rows, SURE, "basic")
    if data.endswith(EVERYDAY) and basic is not None:
        claim = f"{data}: {SURE}, at least two thirds are answered with a class or an everyday word for it"
        yield threshold(claim, basic - MIN_BASIC, number(basic))
        given = mean_of(_of(rows, "all"), SURE, "right_given") or 0.0
        yield threshold(
            f"{data}: {SURE}, at least {sure:g} of the answers given are right", given - sure, number(given)
        )
    error = mean_of(rows, "Crossed halves", "ece")
    if data.endswith(FITTED) and error is not None:
        claim = f"{data}: the calibration error on other images is at most {MAX_ECE:g}"
        yield threshold(claim, MAX_ECE - error, number(error))


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return a table for all and one for doubtful images, the risk areas, and the calibration error."""
    text = f"**{data}**, mean over {len({r['seed'] for r in rows})} splits ± half the 95 % interval\n\n"
    for group in GROUPS[:2]:
        here = _of(rows, group)
        if here:
            share = np.mean([r["n_images"] for r in here]) / np.mean([r["n_images"] for r in _of(rows, "all")])
            columns = (*COLUMNS, *WORST) if group == "all" else COLUMNS
            text += f"{group.capitalize()} images ({share:.0%}):\n\n{by_metric(here, columns)}\n"
    text += "Right, of the answers at a level, and how many are at it:\n\n" + markdown(
        ["", *LEVELS], [[label, *(_at_level(rows, label, name) for name in LEVELS)] for label in (SURE, BY_CONFIDENCE)]
    )
    areas = [
        f"{label} {1000 * (mean_of(rows, label, 'hierarchical_risk_area') or 0.0):.1f}" for label in (CLIMB, SELECT)
    ]
    error = number(mean_of(rows, "Probabilities", "ece") or 0.0)
    text += f"\nhAURC × 10³: {', '.join(areas)}. Calibration error of the class's probability: {error}"
    crossed, basic = mean_of(rows, "Crossed halves", "ece"), mean_of(rows, SURE, "basic")
    if crossed is not None:
        text += f" on one half, {number(crossed)} on both halves, each with the temperature of the other"
    if basic is not None:
        text += f". Answered with a class or an everyday word for it, without held-out images: {number(basic)}"
    return text + ".\n\n"


def _at_level(rows: list[Row], label: str, name: str) -> str:
    here = [r for r in rows if r["group"] == name]
    right, share = (mean_of(here, label, metric) for metric in ("right_given", "answered"))
    return "–" if right is None or share is None else f"{number(right)} of {number(share)}"


def draw(rows: list[Row]) -> Figure:
    """Draw right answers against depth, in all and in doubtful images."""
    names = list(dict.fromkeys(r["data"] for r in rows))
    figure = canvas(9, 2.8 * len(names) + 0.4)
    grid = figure.subplots(len(names), 2, squeeze=False)
    for name, line in zip(names, grid, strict=True):
        for group, axes in zip(GROUPS, line, strict=False):
            here = _of([r for r in rows if r["data"] == name], group)
            for label in labels_of(here):
                depth, right = (mean_of(here, label, metric) for metric in ("depth_share", "right"))
                axes.plot([depth], [right], "o", label=label)
            axes.axhline(rows[0]["sure"], color="#999999", linewidth=0.8)
            axes.set_title(f"{name}: {group} images", fontsize=8)
            axes.set(xlabel="depth, share of the path", ylabel="right")
    grid[0, 0].legend(frameon=False, fontsize=7)
    return figure


SMOKE = Config(shots=5, splits=2)
EXPERIMENT = described("right-level", cells, measure, draw, verdicts, table, Config(), SMOKE)
