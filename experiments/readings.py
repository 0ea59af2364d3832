"""What rows say: means with intervals, who is better, tied or worse by paired differences, claims, tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from experiments.records import OF_IMAGES, TEXTS, Row, unpacked
from experiments.tables import NOTHING, markdown, number
from hcep.evaluate import paired_draws
from hcep.evaluate.statistics import Difference, calibration_gaps
from hcep.evaluate.support import SupportScores

Outcome = Literal["better", "tied", "worse"]
MARKS: dict[Outcome, str] = {"better": "✓", "tied": "≈", "worse": "✗"}
#: Less than this is a tie, whatever the interval: tables show three decimals.
TIE = 5e-4
TITLES: dict[str, str] = TEXTS["titles"]
#: Metrics that are better lower.
LOWER = {*("tree_distance", "true_tree_distance", "ece", "reconstruction_error", "seconds", "risk_area")}
LOWER |= {"log_loss", "fit_seconds"}


@dataclass(frozen=True)
class Verdict:
    """One thing the paper or we claim: borne out, tied (a paired interval that contains 0) or not, and by how much."""

    claim: str
    outcome: Outcome
    measured: str
    paper: bool = False  # whether the paper claims it; otherwise it is about ours

    @property
    def holds(self) -> bool:
        return self.outcome == "better"


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of every data set, in the order in which they were measured."""
    return {data: [r for r in rows if r["data"] == data] for data in dict.fromkeys(r["data"] for r in rows)}


def verdicts_by_data(one: Callable[[str, list[Row]], Iterable[Verdict]]) -> Callable[[list[Row]], list[Verdict]]:
    """The verdicts on the rows of every data set, one after the other, from those on one."""
    return wraps(one)(lambda rows: [verdict for data, mine in by_data(rows).items() for verdict in one(data, mine)])


def table_by_data(one: Callable[[str, list[Row]], str]) -> Callable[[list[Row]], str]:
    """The same of tables."""
    return wraps(one)(lambda rows: "".join(one(data, mine) for data, mine in by_data(rows).items()))


def labels_of(rows: Sequence[Row]) -> list[str]:
    """The methods of rows, in order."""
    return list(dict.fromkeys(row["label"] for row in rows))


def series(rows: Iterable[Row], x: str, y: str) -> tuple[list[Any], list[float], list[float], list[float]]:
    """Mean of y for each x in order, with the 95 % interval of the mean over the rows (seeds) where there are several.

    One row has the interval it carries itself (``y_low``, ``y_high``), or none.
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
    """Mean of a metric over a method's rows, None where it has none."""
    _, means, *_ = series([r for r in rows if r["label"] == label], "label", metric)
    return means[0] if means else None


def difference(a: Sequence[Row], b: Sequence[Row], metric: str) -> Difference | None:
    """What the rows `a` of one method have over the rows `b` of another in one setting; None where a metric is absent.

    Paired over validation images and seeds where both kept their images, over seeds where they share at least three;
    otherwise without an interval.
    """
    a, b = ([row for row in rows if row.get(metric) is not None] for rows in (a, b))
    if not a or not b:
        return None
    first, second = ({row.get("seed"): row for row in rows} for rows in (a, b))
    seeds = [seed for seed in first if seed in second]
    if len(seeds) < min(len(a), len(b)):
        gap = _mean(a, metric) - _mean(b, metric)
        return Difference(gap, gap, gap, float("nan"))
    pairs = [(first[seed], second[seed]) for seed in seeds]
    estimate = float(np.mean([mine[metric] - theirs[metric] for mine, theirs in pairs]))
    seen = [(_per_image(mine, metric), _per_image(theirs, metric)) for mine, theirs in pairs]
    known = [(x, y) for x, y in seen if x is not None and y is not None]
    if len(known) == len(pairs):
        found = paired_draws([x for x, _ in known], [y for _, y in known])
    elif len(seeds) > 2:
        found = paired_draws([[mine[metric] for mine, _ in pairs]], [[theirs[metric] for _, theirs in pairs]])
    else:
        return Difference(estimate, estimate, estimate, float("nan"))
    # Bytes round; the means of the rows do not.
    shift = estimate - found.difference
    return Difference(estimate, found.low + shift, found.high + shift, found.p)


def _per_image(row: Row, metric: str) -> NDArray[np.float64] | None:
    """What each image adds to a metric; None where the row does not know."""
    images = row.get(OF_IMAGES)
    if images is None:
        return None
    if "true_support_f1" in row and metric in ("support_precision", "support_recall", "support_f1"):
        return None  # these images were scored in the true tree
    whole = ("accuracy", "both", "example_f1")
    column = "correct" if metric in whole else metric.removeprefix("true_")
    if column in images:
        return unpacked(images, column)
    if column == "support_f1":
        return SupportScores(*(unpacked(images, f"support_{name}") for name in ("precision", "recall"))).f1
    if metric != "ece":
        return None
    gaps = calibration_gaps(unpacked(images, "confidence"), unpacked(images, "correct"))
    # The error is the sum of bins' absolute sums: an image counts with the sign of its bin.
    return np.asarray((gaps * np.sign(gaps.sum(axis=0))).sum(axis=1))


def outcome(found: Difference, metric: str) -> Outcome:
    """Better, tied (the interval contains 0, or the difference is below what tables show) or worse."""
    if abs(found.difference) <= TIE:
        return "tied"
    low, high = (-found.high, -found.low) if metric in LOWER else (found.low, found.high)
    return "better" if low > 0 else "worse" if high < 0 else "tied"


def best_labels(rows: Sequence[Row], metric: str) -> set[str]:
    """The method with the best mean, and all that are tied with it."""
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
    """Is `ours` better than each of `others`, in every setting? At most one verdict: none where rows are absent.

    The outcome is the worst over settings and others; `at` is a setting that varies, such as "shots", and where the
    claim fails is said. `named` is what the others are called together, `where` what the claim starts with.
    """
    values = sorted({r[at] for r in rows}) if at else [None]
    found: dict[Outcome, list[tuple[float, str]]] = {"better": [], "tied": [], "worse": []}
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
            found[outcome(gap, metric)].append((margin, text))
    if not present:
        return []
    result: Outcome = "worse" if found["worse"] else "tied" if found["tied"] else "better"
    shown = [f"{name}: {'; '.join(text for _, text in found[name])}" for name in ("worse", "tied") if found[name]]
    if not shown:
        shown = [("closest: " if len(found["better"]) > 1 else "") + min(found["better"])[1]]
    names = named or ", ".join(dict.fromkeys(present))
    word = "below" if metric in LOWER else "above"
    every = f" at every {TEXTS['settings'][at]}" if at else ""
    claim = f"{where}: {ours} {word} {names} in {TITLES[metric]}{every}"
    return [Verdict(claim, result, ". ".join(shown), paper)]


def _mean(rows: Sequence[Row], metric: str) -> float:
    return float(np.mean([row[metric] for row in rows]))


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def threshold(claim: str, margin: float, measured: str, *, paper: bool = False) -> Verdict:
    """A claim without a paired interval: a number that is above a bar (margin > 0) or below it."""
    return Verdict(claim, "better" if margin > 0 else "tied" if margin == 0 else "worse", measured, paper)


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many claims came out how: ``3 ✓ 1 ≈ 2 ✗``.

    >>> counted([Verdict("a", "better", ""), Verdict("b", "worse", ""), Verdict("c", "better", "")])
    '2 ✓ 1 ✗'
    """
    outcomes = [verdict.outcome for verdict in verdicts]
    parts = [f"{outcomes.count(name)} {mark}" for name, mark in MARKS.items() if name in outcomes]
    return " ".join(parts) or NOTHING


def by_method(rows: Sequence[Row], across: str, metrics: Sequence[str], *, interval: bool = False) -> str:
    """One line per label, one column per value of `across`; several metrics are separated by slashes. In bold: the
    best of each column, and all that are tied with it.
    """
    columns = sorted({row[across] for row in rows})
    heads = {c: f"{c:g}" if isinstance(c, float) else str(c) for c in columns}
    settings = [(head, [row for row in rows if row[across] == c], metrics) for c, head in heads.items()]
    return _table(labels_of(rows), settings, interval)


def by_metric(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """One line per label, one column per metric, those with an interval as mean ± half its width; bold as above."""
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
