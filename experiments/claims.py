"""Claims checked against rows: means with intervals, paired differences, verdicts and tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from experiments.records import OF_IMAGES, TEXTS, Row, unpacked
from experiments.tables import NOTHING, markdown, number
from hcep.evaluate import paired_draws
from hcep.evaluate.statistics import Difference

Outcome = Literal["better", "tied", "worse"]
MARKS: dict[Outcome, str] = {"better": "✓", "tied": "≈", "worse": "✗"}
#: A smaller difference is a tie, whatever its interval: tables show three decimals.
TIE = 5e-4
#: Bins of the calibration error, as in `hcep.evaluate.expected_calibration_error`.
N_BINS = 15
TITLES: dict[str, str] = TEXTS["titles"]
#: Metrics for which lower is better.
LOWER = {*("tree_distance", "true_tree_distance", "ece", "reconstruction_error", "seconds", "risk_area")}
LOWER |= {"log_loss", "fit_seconds", "hierarchical_risk_area", "whole_distance", "atom_error"}


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper or of ours, its outcome, and what was measured; `paper` is whether the paper claims it."""

    claim: str
    outcome: Outcome
    measured: str
    paper: bool = False

    @property
    def holds(self) -> bool:
        return self.outcome == "better"


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of every data set, in the order of measurement."""
    return {data: [r for r in rows if r["data"] == data] for data in dict.fromkeys(r["data"] for r in rows)}


def verdicts_by_data(one: Callable[[str, list[Row]], Iterable[Verdict]]) -> Callable[[list[Row]], list[Verdict]]:
    """Turn a function for the rows of one data set into one for the rows of all data sets."""
    return wraps(one)(lambda rows: [verdict for data, mine in by_data(rows).items() for verdict in one(data, mine)])


def table_by_data(one: Callable[[str, list[Row]], str]) -> Callable[[list[Row]], str]:
    """Turn a table of one data set into the tables of all data sets."""
    return wraps(one)(lambda rows: "".join(one(data, mine) for data, mine in by_data(rows).items()))


def labels_of(rows: Sequence[Row]) -> list[str]:
    """Return the labels of rows, in order."""
    return list(dict.fromkeys(row["label"] for row in rows))


def series(rows: Iterable[Row], x: str, y: str) -> tuple[list[Any], list[float], list[float], list[float]]:
    """Return each x in order, the mean of y, and the bounds of its 95 % interval over the rows (seeds).

    A single row uses its own interval (``y_low``, ``y_high``), if it has one.
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if row.get(y) is not None:
            groups.setdefault(row[x], []).append(row)
    xs = sorted(groups)
    means, lows, highs = zip(*(_interval(groups[x], y) for x in xs), strict=True) if xs else ((), (), ())
    return xs, list(means), list(lows), list(highs)


def _interval(rows: Sequence[Row], y: str) -> tuple[float, float, float]:
    values = np.array([row[y] for row in rows], dtype=float)
    mean = float(values.mean())
    if len(values) > 1:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
        return mean, mean - half, mean + half
    low, high = rows[0].get(f"{y}_low"), rows[0].get(f"{y}_high")
    return mean, mean if low is None else low, mean if high is None else high


def mean_of(rows: Sequence[Row], label: str, metric: str) -> float | None:
    """Return the mean of a metric over a method's rows, or None if there are none."""
    _, means, *_ = series([r for r in rows if r["label"] == label], "label", metric)
    return means[0] if means else None


def difference(a: Sequence[Row], b: Sequence[Row], metric: str) -> Difference | None:
    """Return the metric of the rows `a` of one method minus that of the rows `b` of another; None without a metric.

    The difference is paired over validation images and seeds if both methods have the scores of their images, and over
    seeds if they share at least three. Otherwise it has no interval.
    """
    a, b = ([row for row in rows if row.get(metric) is not None] for rows in (a, b))
    if not a or not b:
        return None
    first, second = ({row.get("seed"): row for row in rows} for rows in (a, b))
    seeds = [seed for seed in first if seed in second]
    if len(seeds) < min(len(a), len(b)):
        estimate = _mean(a, metric) - _mean(b, metric)
        return Difference(estimate, estimate, estimate, float("nan"))
    pairs = [(first[seed], second[seed]) for seed in seeds]
    estimate = float(np.mean([mine[metric] - theirs[metric] for mine, theirs in pairs]))
    images = [(_per_image(mine, metric), _per_image(theirs, metric)) for mine, theirs in pairs]
    known = [(x, y) for x, y in images if x is not None and y is not None]
    if len(known) == len(pairs):
        gap = paired_draws([x for x, _ in known], [y for _, y in known])
    elif len(seeds) > 2:
        gap = paired_draws([[mine[metric] for mine, _ in pairs]], [[theirs[metric] for _, theirs in pairs]])
    else:
        return Difference(estimate, estimate, estimate, float("nan"))
    # The scores of images are rounded to bytes, but the means of the rows are not.
    shift = estimate - gap.difference
    return Difference(estimate, gap.low + shift, gap.high + shift, gap.p)


def _per_image(row: Row, metric: str) -> NDArray[np.float64] | None:
    """Return what each image adds to a metric; None if the row does not have it."""
    images = row.get(OF_IMAGES)
    if images is None:
        return None
    if "true_support_f1" in row and metric in ("support_precision", "support_recall", "support_f1"):
        return None  # these images were scored in the true tree
    whole = ("accuracy", "both")
    column = "correct" if metric in whole else metric.removeprefix("true_")
    if column in images:
        return unpacked(images, column)
    if column == "support_f1":
        precision, recall = (unpacked(images, f"support_{name}") for name in ("precision", "recall"))
        total = precision + recall
        return np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    if metric != "ece":
        return None
    # The error is the sum of the bins' absolute sums, so an image counts with the sign of its bin.
    confidence = unpacked(images, "confidence")
    gaps = np.nan_to_num(unpacked(images, "correct") - confidence)
    bins = np.clip(np.ceil(np.nan_to_num(confidence) * N_BINS).astype(np.intp) - 1, 0, N_BINS - 1)
    return np.asarray(gaps * np.sign(np.bincount(bins, gaps, N_BINS))[bins])


def outcome(gap: Difference, metric: str) -> Outcome:
    """Return whether a difference is better, worse or tied (its interval contains 0, or tables do not show it)."""
    if abs(gap.difference) <= TIE:
        return "tied"
    low, high = (-gap.high, -gap.low) if metric in LOWER else (gap.low, gap.high)
    return "better" if low > 0 else "worse" if high < 0 else "tied"


def best_labels(rows: Sequence[Row], metric: str) -> set[str]:
    """Return the method with the best mean, and all methods that are tied with it."""
    own = {label: [r for r in rows if r["label"] == label] for label in labels_of(rows)}
    means = {label: value for label in own if (value := mean_of(rows, label, metric)) is not None}
    if not means:
        return set()
    top = (min if metric in LOWER else max)(means, key=lambda label: means[label])
    gaps = {label: difference(own[label], own[top], metric) for label in means}
    return {label for label, gap in gaps.items() if gap is not None and outcome(gap, metric) != "worse"}


def ahead(
    rows: Sequence[Row],
    where: str,
    ours: str,
    others: Sequence[str],
    metric: str,
    *,
    paper: bool = False,
    at: str | None = None,
    named: str = "",
) -> list[Verdict]:
    """Check whether `ours` is better than each of `others` in every setting; return one verdict, or none without rows.

    The outcome is the worst over all settings and others, and the verdict lists where the claim fails.

    Parameters
    ----------
    where : the beginning of the claim, such as the data set
    at : a setting that varies, such as "shots"
    named : a common name for `others`
    """
    values = sorted({r[at] for r in rows}) if at else [None]
    texts: dict[Outcome, list[tuple[float, str]]] = {"better": [], "tied": [], "worse": []}
    present = []
    for value in values:
        here = [r for r in rows if at is None or r[at] == value]
        mine = [r for r in here if r["label"] == ours]
        for label in others:
            theirs = [r for r in here if r["label"] == label]
            gap = difference(mine, theirs, metric)
            if gap is None:
                continue
            present.append(label)
            setting = f"{at} {value:g}: " if at else ""
            text = f"{setting}{number(_mean(mine, metric))} against {label} {number(_mean(theirs, metric))}"
            if not np.isnan(gap.p):
                text += f" ({_signed(gap.difference)}, {_signed(gap.low)} to {_signed(gap.high)})"
            margin = -gap.difference if metric in LOWER else gap.difference
            texts[outcome(gap, metric)].append((margin, text))
    if not present:
        return []
    result: Outcome = "worse" if texts["worse"] else "tied" if texts["tied"] else "better"
    shown = [f"{name}: {'; '.join(text for _, text in texts[name])}" for name in ("worse", "tied") if texts[name]]
    if not shown:
        shown = [("closest: " if len(texts["better"]) > 1 else "") + min(texts["better"])[1]]
    names = named or ", ".join(dict.fromkeys(present))
    word = "below" if metric in LOWER else "above"
    every = f" at every {TEXTS['settings'][at]}" if at else ""
    claim = f"{where}: {ours} is {word} {names} in {TITLES[metric]}{every}"
    return [Verdict(claim, result, ". ".join(shown), paper)]


def _mean(rows: Sequence[Row], metric: str) -> float:
    return float(np.mean([row[metric] for row in rows]))


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def threshold(claim: str, margin: float, measured: str, *, paper: bool = False) -> Verdict:
    """Return the verdict of a claim without a paired interval, which holds if its margin is above 0."""
    return Verdict(claim, "better" if margin > 0 else "tied" if margin == 0 else "worse", measured, paper)


def counted(verdicts: Iterable[Verdict]) -> str:
    """Count the outcomes of claims: ``3 ✓ 1 ≈ 2 ✗``.

    >>> counted([Verdict("a", "better", ""), Verdict("b", "worse", ""), Verdict("c", "better", "")])
    '2 ✓ 1 ✗'
    """
    outcomes = [verdict.outcome for verdict in verdicts]
    parts = [f"{outcomes.count(name)} {mark}" for name, mark in MARKS.items() if name in outcomes]
    return " ".join(parts) or NOTHING


def by_method(rows: Sequence[Row], across: str, metrics: Sequence[str], *, interval: bool = False) -> str:
    """Return a table with one line per label and one column per value of `across`, metrics separated by slashes.

    Bold marks the best of each column, and everything that is tied with it.
    """
    columns = sorted({row[across] for row in rows})
    heads = {c: f"{c:g}" if isinstance(c, float) else str(c) for c in columns}
    settings = [(head, [row for row in rows if row[across] == c], metrics) for c, head in heads.items()]
    return _table(labels_of(rows), settings, interval)


def by_metric(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """Return a table with one line per label and one column per metric, as mean ± half of its interval."""
    return _table(labels_of(rows), [(TITLES[metric], rows, [metric]) for metric in metrics], True)


def _table(labels: Sequence[str], columns: Sequence[tuple[str, Sequence[Row], Sequence[str]]], interval: bool) -> str:
    lines = [[label] for label in labels]
    for _, here, metrics in columns:
        best = {metric: best_labels(here, metric) for metric in metrics}
        for line in lines:
            line.append(" / ".join(_text(here, line[0], m, line[0] in best[m], interval) for m in metrics))
    return markdown(["", *(head for head, *_ in columns)], lines).replace("|  |", "| |", 1)


def _text(rows: Sequence[Row], label: str, metric: str, bold: bool, interval: bool) -> str:
    _, means, lows, highs = series([r for r in rows if r["label"] == label], "label", metric)
    if not means:
        return NOTHING
    text = f"**{number(means[0])}**" if bold else number(means[0])
    return f"{text} ± {number((highs[0] - lows[0]) / 2)}" if interval and highs[0] > lows[0] else text
