"""Claims checked on rows: who is ahead of whom, by how much, and plainly where not."""

from __future__ import annotations

from collections.abc import Sequence

from hcep.classify.methods import METHODS
from hcep.experiments.experiment import Verdict
from hcep.experiments.figures import METRICS, series
from hcep.experiments.records import Row
from hcep.experiments.tables import short

OUR_LABEL = METHODS["hcep"].label
#: Less than this is a tie: tables show three decimals.
TIE = 5e-4


def above(a: float, b: float) -> bool:
    """Whether a is above b by more than the tables' rounding.

    >>> above(0.9, 0.8999), above(0.9, 0.89)
    (False, True)
    """
    return a - b > TIE


def mean_of(rows: Sequence[Row], label: str, metric: str) -> float | None:
    """Mean of a metric over a method's rows, None where it has none."""
    _, means, *_ = series([r for r in rows if r["label"] == label], "label", metric)
    return means[0] if means else None


def ahead(rows: Sequence[Row], where: str, ours: str, others: Sequence[str], metric: str, source: str) -> Verdict:
    """Is `ours` above every one of `others`?"""
    mine = mean_of(rows, ours, metric)
    theirs = {label: value for label in others if (value := mean_of(rows, label, metric)) is not None}
    assert mine is not None
    shown = ", ".join(f"{label} {short(value)}" for label, value in theirs.items())
    names = ", ".join(theirs)
    return Verdict(
        f"{where}: {ours} above {names} in {METRICS[metric]} ({source})",
        all(above(mine, value) for value in theirs.values()),
        f"{ours} {short(mine)}; {shown}",
    )


def behind_somewhere(rows: Sequence[Row], where: str, ours: str, others: Sequence[str], metric: str) -> Verdict:
    """Is `ours` at least as good as all others? If not, by whom and by how much it is beaten."""
    mine = mean_of(rows, ours, metric)
    assert mine is not None
    theirs = {label: value for label in others if (value := mean_of(rows, label, metric)) is not None}
    better = {label: value for label, value in theirs.items() if above(value, mine)}
    best = max(theirs, key=lambda label: theirs[label])
    text = f"{ours} {short(mine)}; best of the others {best} {short(theirs[best])}"
    if better:
        text += f"; beaten by {', '.join(f'{label} ({short(value)})' for label, value in better.items())}"
    return Verdict(f"{where}: {ours} is not beaten in {METRICS[metric]}", not better, text)
