"""Scores of several methods on the same images, as a table to print or to read on."""

import csv
import math
from dataclasses import astuple, dataclass, fields
from io import StringIO
from typing import Literal, NamedTuple

import msgspec

from hcep._checks import NO_NUMBER, escape_markdown, markdown_table, rounded
from hcep.errors import HCEPError, near_matches, quoted

BOLD = " Bold: the best of a column, and what is not significantly worse."
ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
#: In a whole LaTeX table: dash, dagger and arrows.
LATEX_SYMBOLS = str.maketrans({NO_NUMBER: "--", "†": r"$^{\dagger}$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"})


class Metric(NamedTuple):
    """A column of a table: its title, and which side is better; None where neither is, and no method the best."""

    title: str
    better: Literal["higher", "lower"] | None

    @property
    def sign(self) -> float:
        """1 where higher is better, -1 where lower is, 0 where neither."""
        return {"higher": 1.0, "lower": -1.0, None: 0.0}[self.better]


#: To add a metric: its row here, and its values per image as a column of `score_images`.
METRICS = {
    "correct": Metric("accuracy", "higher"),
    "top": Metric("top", "higher"),
    "support_precision": Metric("precision", "higher"),
    "support_recall": Metric("recall", "higher"),
    "support_f1": Metric("F1", "higher"),
    "one_path": Metric("one path", "higher"),
    "complete_path": Metric("complete path", "higher"),
    "prefix": Metric("prefix", "higher"),
    "tree_distance": Metric("mistake distance", "lower"),
    "lca_height": Metric("mistake LCA height", "lower"),
    # Methods measure these two in their own metric, and a support that explains more need not be a better one.
    "reconstruction_error": Metric("error", None),
    "explained": Metric("explained", None),
    "n_atoms": Metric("atoms", None),
    "confidence": Metric("confidence", None),
    "ece": Metric("ECE", "lower"),
}


def metric_of(column: str) -> Metric:
    """The metric a column of `ImageScores` belongs to: ``prefix_3`` is the prefix metric at level 3."""
    if column in METRICS:
        return METRICS[column]
    stem, _, level = column.rpartition("_")
    family = METRICS[stem]
    return Metric(f"{family.title}{'-' if stem == 'top' else ' '}{level}", family.better)


@dataclass(frozen=True)
class Score:
    """One method's score on one metric."""

    method: str
    metric: str
    #: mean, low, high: estimate and confidence interval; NaN where the metric is defined for no image
    mean: float
    low: float
    high: float
    n_images: int  # images it is defined for
    #: difference, difference_low, difference_high: what it has over the reference method
    difference: float
    difference_low: float
    difference_high: float
    #: p, p_holm: two-sided, paired, against the reference: raw, and adjusted for the number of methods in the column
    p: float
    p_holm: float
    best: bool  # the best mean of its column, or not significantly worse (paired, adjusted) than that of the best

    @property
    def between(self) -> str:
        """The interval, for tables."""
        return f"[{rounded(self.low)}, {rounded(self.high)}]"


@dataclass(frozen=True, repr=False)
class ScoreTable:
    """Scores of several methods on the same images; made by `compare_scores`."""

    #: methods, metrics: rows and columns
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    reference: str  # the method the others are tested against
    n_images: int
    level: float  # of the intervals; differences are called significant below ``1 - level``
    scores: tuple[Score, ...]  # method by method

    def __repr__(self) -> str:
        return f"ScoreTable({quoted(self.methods)}; {quoted(self.metrics)}; {self.n_images:,} images)"

    def __str__(self) -> str:
        return self.to_markdown()

    def score(self, method: str, metric: str) -> Score:
        """The score of one method on one metric."""
        for name, known in ((method, self.methods), (metric, self.metrics)):
            if name not in known:
                raise HCEPError(f"{name!r} is not in the table.{near_matches(name, known)}")
        return self.scores[self.methods.index(method) * len(self.metrics) + self.metrics.index(metric)]

    def is_significant(self, score: Score) -> bool:
        """Whether a method is better or worse than the reference; a metric without a better side says neither."""
        return score.p_holm < 1.0 - self.level and metric_of(score.metric).better is not None

    @property
    def plain_note(self) -> str:
        """What intervals and daggers mean."""
        return self.note.replace(BOLD, "")

    @property
    def note(self) -> str:
        """What intervals, bold type and daggers mean."""
        told = f"{self.n_images:,} images; intervals: {self.level:.0%}, bootstrap over images.{BOLD}"
        differs = f" † differs from {self.reference} (paired test, Holm, p < {1.0 - self.level:.2g})."
        return told + (differs if len(self.methods) > 1 else "")

    @property
    def titles(self) -> list[str]:
        """Heads of the columns, with the direction that is better."""
        return [metric_of(name).title + ARROWS[metric_of(name).better] for name in self.metrics]

    def to_markdown(self, *, intervals: bool = True) -> str:
        """A Markdown table, methods as rows, best values in bold, and a line that says how to read it."""
        rows = [[escape_markdown(name), *cells] for name, cells in self._cells("**{}**", "{} {}", intervals)]
        return f"{markdown_table(['method', *self.titles], rows)}\n{self.note}"

    def to_latex(self, *, intervals: bool = True) -> str:
        """A LaTeX tabular; needs the package booktabs."""
        # Braces, or a row that starts with a bracket reads as an argument of the line break before it.
        rows = self._cells(r"\textbf{{{}}}", r"{} {{\scriptsize {}}}", intervals)
        lines = [
            f"% {self.note}",
            rf"\begin{{tabular}}{{l{'r' * len(self.metrics)}}}",
            r"\toprule",
            " & ".join(["method", *map(escaped, self.titles)]) + r" \\",
            r"\midrule",
            *(" & ".join([escaped(name), *cells]) + r" \\" for name, cells in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines).translate(LATEX_SYMBOLS)

    def _cells(self, bold: str, with_interval: str, intervals: bool) -> list[tuple[str, list[str]]]:
        """Each method with its cells; the templates put a number in bold, and its interval behind it."""

        def cell(score: Score) -> str:
            shown = bold.format(rounded(score.mean)) if score.best else rounded(score.mean)
            shown += "†" if self.is_significant(score) else ""
            whole = intervals and not math.isnan(score.mean)
            return with_interval.format(shown, score.between) if whole else shown

        return [(method, [cell(self.score(method, m)) for m in self.metrics]) for method in self.methods]

    def to_csv(self) -> str:
        """A line per method and metric, with everything `Score` has."""
        out = StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow([field.name for field in fields(Score)])
        rows.writerows(["" if value != value else value for value in astuple(score)] for score in self.scores)  # NaN
        return out.getvalue()

    def to_json(self) -> str:
        """The table as JSON; what is not defined is null."""
        whole = {"n_images": self.n_images, "level": self.level, "reference": self.reference, "scores": self.scores}
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)
