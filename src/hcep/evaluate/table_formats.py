"""A `ScoreTable` as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
from dataclasses import astuple, fields
from io import StringIO
from typing import TYPE_CHECKING

from hcep.evaluate.metrics import metric_of

if TYPE_CHECKING:
    from hcep.evaluate.table import Score, ScoreTable

ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
LATEX_ARROWS = {"higher": r" $\uparrow$", "lower": r" $\downarrow$", None: ""}
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
#: What stands for a number that is not defined.
NOTHING = "–"


def number(value: float) -> str:
    """Three digits after the point, shares without the zero before it."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def between(score: Score) -> str:
    """The interval of a score."""
    return f"[{number(score.low)}, {number(score.high)}]"


def markdown(table: ScoreTable, intervals: bool) -> str:
    """See `ScoreTable.to_markdown`."""

    def cell(score: Score) -> str:
        shown = f"**{number(score.mean)}**" if score.best else number(score.mean)
        shown += "†" if table.is_significant(score) else ""
        return f"{shown} {between(score)}" if intervals and not math.isnan(score.mean) else shown

    titles = [metric_of(name).title + ARROWS[metric_of(name).better] for name in table.metrics]
    lines = [_row("method", *titles), "|" + "---|" * (1 + len(titles))]
    for method in table.methods:
        name = method.replace("|", r"\|")
        lines.append(_row(name, *(cell(table.score(method, metric)) for metric in table.metrics)))
    return "\n".join([*lines, "", table.note])


def latex(table: ScoreTable, intervals: bool) -> str:
    """See `ScoreTable.to_latex`."""

    def cell(score: Score) -> str:
        shown = rf"\textbf{{{number(score.mean)}}}" if score.best else number(score.mean)
        shown += "†" if table.is_significant(score) else ""
        # Braces, or a row that starts with a bracket reads as an argument of the line break before it.
        return rf"{shown} {{\scriptsize {between(score)}}}" if intervals and not math.isnan(score.mean) else shown

    titles = [escaped(metric_of(m).title) + LATEX_ARROWS[metric_of(m).better] for m in table.metrics]
    rows = [[escaped(method), *(cell(table.score(method, m)) for m in table.metrics)] for method in table.methods]
    return "\n".join(
        [
            f"% {table.note}",
            rf"\begin{{tabular}}{{l{'r' * len(titles)}}}",
            r"\toprule",
            " & ".join(["method", *titles]) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    ).translate({ord(NOTHING): "--", ord("†"): r"$^{\dagger}$"})


def csv(table: ScoreTable) -> str:
    """See `ScoreTable.to_csv`."""
    from csv import writer

    from hcep.evaluate.table import Score

    out = StringIO()
    rows = writer(out, lineterminator="\n")
    rows.writerow([field.name for field in fields(Score)])
    for score in table.scores:
        rows.writerow(["" if isinstance(v, float) and math.isnan(v) else v for v in astuple(score)])
    return out.getvalue()


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples
    --------
    >>> from hcep.evaluate.table_formats import escaped
    >>> print(escaped("50% of a_b & c"))
    50\% of a\_b \& c
    """
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
