"""Confidence and unknown classes: coverage of less specific answers, and images of classes the model does not know."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from experiments.baselines.novelty import NOVELTY, RELATIVE, false_positives, mean_rank, novelty_scores
from experiments.claims import (
    Verdict,
    ahead,
    by_data,
    difference,
    mean_of,
    series,
    table_by_data,
    threshold,
    verdicts_by_data,
)
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import BUNDLED, CLIP, Task
from hcep.classify import HCEPClassifier, make_method
from hcep.classify.hedging import class_sets, hedged_nodes, held_out_scores, kinds, unknown_scores
from hcep.classify.path_model import Inference, PathModel
from hcep.evaluate import risk_coverage

HEDGED, BY_CLASS, SETS, FIXED = "hedged", "hedged, by class", "sets", "fixed level"
SCORE, OURS, PROBE, RESIDUAL = "unknown score", "max probability", "max probability, linear probe", "residual norm"
KIND, PARENT = "a kind of", "parent of the predicted class"
COMBINED = "mean rank of unknown score and relative Mahalanobis"
SCORES = (SCORE, COMBINED, *NOVELTY, OURS, PROBE, RESIDUAL)
#: Far unknowns: a model of the first data gets images of the second.
FAR = {"Oxford pets": "caltech101"}
#: With this many classes, the probe takes minutes and the images are too few to calibrate with.
MANY_CLASSES = 500
#: Increase it if a novelty score changes, so that images of unknown classes are measured again.
REVISION = 1
#: Draws with CLIP embeddings, whose intervals are narrow.
CLIP_DRAWS = 5


@dataclass(frozen=True)
class Config:
    """Number of calibration splits for coverage, and draws of unknown classes (a fifth) and of training images."""

    alphas: tuple[float, ...] = (0.05, 0.1, 0.2)
    splits: int = 20
    # The weight of the unknown score was chosen on draws 0 to 3.
    draws: tuple[int, ...] = tuple(range(10, 18))
    shots: int | None = 25
    false_alarms: float = 0.05
    kind_alpha: float = 0.2


def cells(config: Config, task: Task) -> Iterator[Cell]:
    is_clip = task.encoder == CLIP
    if not is_clip:
        yield {"part": "coverage", "splits": config.splits}
    for seed in config.draws[: CLIP_DRAWS if is_clip else None]:
        part = "far" if task.name in FAR else "unknown"
        yield {"part": part, "seed": seed, "shots": None if is_clip else config.shots, "revision": REVISION}


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    if cell["part"] == "coverage":
        rows = _coverage(config, task)
    elif cell["part"] == "far":
        rows = _far(task, cell["seed"])
    else:
        rows = _unknown(config, task, cell["seed"], cell["shots"])
    yield from ({**cell, **row} for row in rows)


def _coverage(config: Config, task: Task) -> Iterator[Row]:
    """Fit once to all training images; calibrate on half of the validation images and test on the other half."""
    fitted = HCEPClassifier(task.hierarchy).fit(task.X, task.y)
    model, inference = fitted.path_model(), fitted.infer(task.X_val, explained=True)
    own = np.searchsorted(fitted.classes_, task.y_val)
    tree, below = model.hierarchy.path_tree, model.classes_below.toarray() > 0
    sizes = below.sum(axis=0)
    for seed in range(config.splits):
        order = np.random.default_rng(seed).permutation(len(own))
        first, test = order[: len(own) // 2], order[len(own) // 2 :]
        ready = replace(model, held_out=held_out_scores(model, inference.take(first), own[first]))
        new, truth = inference.take(test), own[test]
        for alpha in config.alphas:
            at = {"seed": seed, "alpha": alpha}
            for label in (HEDGED, BY_CLASS):
                nodes = hedged_nodes(ready, new, alpha, by_class=label == BY_CLASS)
                concepts = tree.synset[nodes]
                right = below[truth, concepts]
                facts = {"depth": float(tree.level[nodes].mean()), "classes": float(sizes[concepts].mean())}
                yield {**at, "label": label, **_covered(right, truth), **facts}
                if label == HEDGED:
                    yield {**at, "label": FIXED, **_fixed_level(model, new, truth, float(right.mean()))}
            sets = class_sets(ready, new, alpha)
            right = sets[np.arange(len(truth)), truth]
            yield {**at, "label": SETS, **_covered(right, truth), "classes": float(sets.sum(axis=1).mean())}


def _covered(right: NDArray[np.bool_], truth: NDArray[np.intp]) -> Row:
    """Return the coverage of all images, and its mean over the worst tenth of the classes."""
    by_class = np.sort([right[truth == c].mean() for c in np.unique(truth)])
    return {"coverage": float(right.mean()), "worst_classes": float(by_class[: max(1, len(by_class) // 10)].mean())}


def _fixed_level(model: PathModel, inference: Inference, truth: NDArray[np.intp], coverage: float) -> Row:
    """Return mean depth and number of classes of answers at one level, interpolated to the coverage."""
    tree, below = model.hierarchy.path_tree, model.classes_below.toarray() > 0
    paths, sizes = tree.ancestors()[inference.nodes], below.sum(axis=0)
    rows = [(1.0, 0.0, float(len(model.classes)))]
    for level in range(tree.depth):
        nodes = np.where(paths[:, level] >= 0, paths[:, level], inference.nodes)
        right = below[truth, tree.synset[nodes]]
        rows.append((right.mean(), tree.level[nodes].mean(), sizes[tree.synset[nodes]].mean()))
    covered, depth, classes = np.array(rows)[::-1].T
    depth, classes = (float(np.interp(coverage, covered, column)) for column in (depth, classes))
    return {"coverage": coverage, "depth": depth, "classes": classes}


def _far(task: Task, seed: int) -> Iterator[Row]:
    """Fit to all classes, then detect images of another data set among as many of the own ones."""
    other, rng = BUNDLED[FAR[task.name]]().X_val, np.random.default_rng(seed)
    n = min(len(other), len(task.X_val)) // 2
    images = np.concatenate([X[rng.permutation(len(X))[:n]] for X in (task.X_val, other)])
    fitted = HCEPClassifier(task.hierarchy).fit(task.X, task.y)
    scores = _scores(fitted, task.X, task.y, images, fitted.infer(images, explained=True))
    for label, values in scores.items():
        yield {"label": label, **_detected(np.repeat([False, True], n), values)}


def _scores(
    fitted: HCEPClassifier, X: NDArray[Any], y: NDArray[Any], images: NDArray[Any], inference: Inference
) -> dict[str, NDArray[np.float64]]:
    """Return the novelty scores of images by name, ours and the controls; X and y are the training images."""
    ours, controls = unknown_scores(fitted.path_model(), inference), novelty_scores(fitted, X, y, images)
    both = mean_rank(ours, controls[RELATIVE])
    probability, residual = -inference.probabilities.max(axis=1), inference.residual_norms
    return {SCORE: ours, COMBINED: both, **controls, OURS: probability, RESIDUAL: residual}


def _detected(unknown: NDArray[np.bool_], values: NDArray[np.float64]) -> Row:
    return {"auroc": float(roc_auc_score(unknown, values)), "fpr95": false_positives(unknown, values)}


def _unknown(config: Config, task: Task, seed: int, shots: int | None) -> Iterator[Row]:
    """Fit without a fifth of the classes, then detect their images and place them under a known concept."""
    classes = np.unique(task.y)
    away = np.random.default_rng(seed).permutation(classes)[: max(1, len(classes) // 5)]
    few = task.shots(shots, seed)
    X, y = (a[~np.isin(few.y, away)] for a in (few.X, few.y))
    fitted = HCEPClassifier(task.hierarchy).fit(X, y)
    unknown = np.isin(task.y_val, away)
    inference, model = fitted.infer(task.X_val, explained=True), fitted.path_model()
    scores, known = _scores(fitted, X, y, task.X_val, inference), np.flatnonzero(~unknown)
    correct = {OURS: inference.labels == task.y_val}
    if len(classes) < MANY_CLASSES:
        probe = make_method("linear-probe", task.hierarchy).fit(X, y)
        likely = probe.predict_proba(task.X_val)
        scores[PROBE] = -likely.max(axis=1)
        correct[PROBE] = probe.classes_[np.argmax(likely, axis=1)] == task.y_val
    for label, values in scores.items():
        row = {"label": label, **_detected(unknown, values)}
        if label in correct:
            row["risk_area"] = risk_coverage(-values[known], correct[label][known])[1].mean()
        yield row
    if len(classes) >= MANY_CLASSES:
        return
    # False alarms among known images, and the share of unknown images that are placed under an ancestor.
    known = np.random.default_rng(seed).permutation(known)
    first, test = known[: len(known) // 2], known[len(known) // 2 :]
    fitted.calibrate(task.X_val[first], task.y_val[first])
    model = fitted.path_model()
    alarms = fitted.is_unknown(task.X_val, config.false_alarms)
    tree, strange = model.hierarchy.path_tree, inference.take(np.flatnonzero(unknown))
    parents = np.maximum(tree.parent[strange.nodes], 0)
    answers = {KIND: kinds(model, strange, config.kind_alpha), PARENT: parents}
    above = {c: {task.hierarchy.root, *task.hierarchy.ancestors(c)} for c in np.unique(task.y_val[unknown]).tolist()}
    truth, ids = task.y_val[unknown].tolist(), np.array(model.hierarchy.ids)
    for label, nodes in answers.items():
        right = [concept in above[c] for concept, c in zip(ids[tree.synset[nodes]].tolist(), truth, strict=True)]
        row = {"label": label, "right_kind": float(np.mean(right)), "depth": float(tree.level[nodes].mean())}
        if label == KIND:
            row |= {"false_alarms": float(alarms[test].mean()), "caught": float(alarms[unknown].mean())}
        yield row


def draw(rows: list[Row]) -> Figure:
    figure = canvas(11, 3)
    left, middle, right = figure.subplots(1, 3)
    covered = [r for r in rows if r["part"] == "coverage"]
    for label in (HEDGED, BY_CLASS, SETS, FIXED):
        mine = [{**r, "nominal": 1.0 - r["alpha"]} for r in covered if r["label"] == label]
        for axes, metric in ((left, "coverage"), (middle, "depth")):
            xs, means, *_ = series(mine, "nominal", metric)
            if xs and not (label == FIXED and metric == "coverage"):
                axes.plot(xs, means, "o-", label=label)
    left.axline((0.8, 0.8), slope=1, color="#999999", linewidth=0.8)
    left.set(title="coverage", xlabel="promised")
    middle.set(title="mean depth of answers", xlabel="promised coverage")
    for axes in (left, middle):
        axes.legend(frameon=False, fontsize=7)
    unknown = [r for r in rows if "auroc" in r]
    for i, label in enumerate(SCORES):
        values = [r["auroc"] for r in unknown if r["label"] == label]
        right.plot(values, [i] * len(values), ".")
    right.set_yticks(range(len(SCORES)), SCORES, fontsize=5)
    right.set(title="detection of unknown images (AUROC)")
    return figure


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Check the coverage, the depth against a fixed level, and the detection and placement of unknown images."""
    covered, unknown = ([r for r in rows if (r["part"] == "coverage") == wanted] for wanted in (True, False))
    for alpha in sorted({r["alpha"] for r in covered}):
        mean = mean_of([r for r in covered if r["alpha"] == alpha], HEDGED, "coverage") or 0.0
        claim = f"{data}: the coverage is within one point of {1 - alpha:g}"
        yield threshold(claim, 0.01 - abs(mean - 1 + alpha), f"{mean:.3f}")
    yield from ahead(covered, data, HEDGED, [FIXED], "depth", at="alpha")
    yield from ahead(unknown, data, SCORE, [OURS, PROBE, RESIDUAL], "auroc")
    for label in (COMBINED, *NOVELTY):
        yield from ahead(unknown, data, SCORE, [label], "auroc")
    yield from ahead(unknown, data, OURS, [PROBE], "risk_area")
    alarms = mean_of(unknown, KIND, "false_alarms")
    if alarms is not None:
        off = 0.01 - abs(alarms - 0.05)
        yield threshold(f"{data}: the rate of false alarms is within one point of 5 %", off, f"{alarms:.3f}")
        right = mean_of(unknown, KIND, "right_kind") or 0.0
        yield threshold(f"{data}: most unknown images are placed under a right concept", right - 0.5, f"{right:.3f}")


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    covered, unknown = ([r for r in rows if (r["part"] == "coverage") == wanted] for wanted in (True, False))
    lines = []
    for alpha in sorted({r["alpha"] for r in covered}):
        for label in (HEDGED, FIXED, BY_CLASS, SETS):
            here = [r for r in covered if r["alpha"] == alpha and r["label"] == label]
            lines.append([f"{1 - alpha:g}", label, *(_mean(here, m) for m in COLUMNS)])
    n, draws = (len({r["seed"] for r in part}) for part in (covered, unknown))
    text = ""
    if covered:
        text = f"{data}, mean over {n} calibration splits (worst classes: the tenth with the lowest coverage):\n\n"
        text += markdown(("promised", "answers", *COLUMNS.values()), lines) + "\n"
    what = f"images of {FAR[data]} are unknown" if data in FAR else "a fifth of the classes is unknown"
    text += f"{data}: {what}; mean over {draws} draws ± half the 95 % interval:\n\n"
    labels = [label for label in (*SCORES, KIND, PARENT) if any(r["label"] == label for r in unknown)]
    columns = {metric: name for metric, name in UNKNOWN.items() if any(metric in r for r in unknown)}
    lines = [[label, *(_mean(unknown, m, label) for m in columns)] for label in labels]
    return text + markdown(("", *columns.values()), lines) + "\n"


COLUMNS = {"coverage": "coverage", "worst_classes": "worst classes", "depth": "depth", "classes": "classes left"}
UNKNOWN = {
    "auroc": "AUROC",
    "fpr95": "false alarms at 95 % detected",
    "risk_area": "mean risk over coverages",
    "false_alarms": "false alarms at 5 %",
    "caught": "unknown images detected",
    "right_kind": "placed under a right concept",
    "depth": "depth of that concept",
}


def unknown_table(rows: list[Row]) -> str:
    """Return detection by every score on all data, with the difference to ours, paired over draws."""
    by_name = by_data([r for r in rows if "auroc" in r])
    heads = [f"{data} against images of {FAR[data]}" if data in FAR else data for data in by_name]
    lines = [[label, *(_detection(here, label) for here in by_name.values())] for label in SCORES]
    return markdown(("AUROC / false alarms at 95 % detected (difference in AUROC)", *heads), lines)


def _detection(rows: list[Row], label: str) -> str:
    own, ours = ([r for r in rows if r["label"] == name] for name in (label, SCORE))
    if not own:
        return "–"
    text, gap = (
        " / ".join(number(mean_of(own, label, m) or 0.0) for m in ("auroc", "fpr95")),
        difference(own, ours, "auroc"),
    )
    if label == SCORE or gap is None:
        return text
    return f"{text} ({gap.difference:+.3f} ± {(gap.high - gap.low) / 2:.3f})".replace("0.", ".")


def _mean(rows: list[Row], metric: str, label: Any = None) -> str:
    mine = [{**r, "all": 0} for r in rows if metric in r and label in (None, r["label"])]
    if not mine:
        return "–"
    _, means, lows, highs = series(mine, "all", metric)
    half = (highs[0] - lows[0]) / 2
    text = number(means[0]) if means[0] < 1 else f"{means[0]:.1f}"
    return text if label is None or half == 0 else f"{text} ± {number(half)}"


SMOKE = Config(splits=2, draws=(10, 11), shots=5)
EXPERIMENT = described("trust", cells, measure, draw, verdicts, table, Config(), SMOKE)
