"""The table of several methods on the same images: as Markdown, LaTeX, CSV and JSON."""

import csv
import math
from dataclasses import astuple, dataclass, fields
from io import StringIO
from typing import Literal, NamedTuple

import msgspec

from hcep._checks import NO_NUMBER, escape_markdown, markdown_table, rounded
from hcep.errors import HCEPError, near_matches, quote, quoted

BOLD = " Bold: the best of a column, and everything not significantly worse."
ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
#: Symbols of a whole LaTeX table: dash, dagger and arrows.
LATEX_SYMBOLS = str.maketrans({NO_NUMBER: "--", "†": r"$^{\dagger}$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"})


class Metric(NamedTuple):
    """The title of a column, and which direction is better; None if neither is, so that no method is the best."""

    title: str
    better: Literal["higher", "lower"] | None

    @property
    def sign(self) -> float:
        """1 if higher is better, -1 if lower is better, 0 if neither is."""
        return {"higher": 1.0, "lower": -1.0, None: 0.0}[self.better]


#: To add a metric, add a row here and a column with its values per image to `score_images`.
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
    "answer_distance": Metric("distance", "lower"),
    "lca_height": Metric("mistake LCA height", "lower"),
    "n_atoms": Metric("atoms", None),
    "confidence": Metric("confidence", None),
    "coarse": Metric("coarse truths", None),
    "ece": Metric("ECE", "lower"),
}


def metric_of(column: str) -> Metric:
    """Return the metric of a column of `ImageScores`: ``prefix_3`` is the prefix metric at level 3."""
    if column in METRICS:
        return METRICS[column]
    stem, _, level = column.rpartition("_")
    family = METRICS[stem]
    return Metric(f"{family.title}{'-' if stem == 'top' else ' '}{level}", family.better)


@dataclass(frozen=True)
class Score:
    """One method's score on one metric.

    Attributes
    ----------
    mean, low, high : estimate and confidence interval; NaN if no image has a value
    n_images : number of images with a value
    difference, difference_low, difference_high : the score minus that of the reference method
    p, p_holm : two-sided p-value of the paired test against the reference, and adjusted for the methods of the column
    best : whether the mean is the best of its column, or not significantly worse (paired, adjusted)
    """

    method: str
    metric: str
    mean: float
    low: float
    high: float
    n_images: int
    difference: float
    difference_low: float
    difference_high: float
    p: float
    p_holm: float
    best: bool

    @property
    def between(self) -> str:
        """The interval as text."""
        return f"[{rounded(self.low)}, {rounded(self.high)}]"


@dataclass(frozen=True, repr=False)
class ScoreTable:
    """Scores of several methods on the same images, made by `compare_scores`.

    Attributes
    ----------
    methods, metrics : the rows and the columns
    n_images, n_coarse : images that were scored, and how many of them have a truth above the classes
    n_unlabelled : images without scores, because they are labelled with the root
    reference : the method that the others are tested against
    level : level of the intervals; differences with p-values below ``1 - level`` are significant
    scores : method by method
    """

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    reference: str
    n_images: int
    level: float
    scores: tuple[Score, ...]
    n_coarse: int = 0
    n_unlabelled: int = 0

    def __repr__(self) -> str:
        return f"ScoreTable({quoted(self.methods)}; {quoted(self.metrics)}; {self.n_images:,} images)"

    def __str__(self) -> str:
        return self.to_markdown()

    def score(self, method: str, metric: str) -> Score:
        """Return the score of one method on one metric."""
        for name, known in ((method, self.methods), (metric, self.metrics)):
            if name not in known:
                raise HCEPError(f"{quote(name)} is not in the table.{near_matches(name, known)}")
        return self.scores[self.methods.index(method) * len(self.metrics) + self.metrics.index(metric)]

    def is_significant(self, score: Score) -> bool:
        """Return whether a method is better or worse than the reference."""
        return score.p_holm < 1.0 - self.level and metric_of(score.metric).better is not None

    @property
    def plain_note(self) -> str:
        """A note that explains intervals and daggers."""
        return self.note.replace(BOLD, "")

    @property
    def note(self) -> str:
        """A note that explains intervals, bold type and daggers."""
        coarse = f"{self.n_coarse:,} labelled above the classes" if self.n_coarse else ""
        are = "image is" if self.n_unlabelled == 1 else "images are"
        unlabelled = f"{self.n_unlabelled:,} unlabelled {are} not scored" if self.n_unlabelled else ""
        counts = "; ".join(filter(None, (coarse, unlabelled)))
        images = f"{self.n_images:,} images{f' ({counts})' if counts else ''}"
        intervals = f"{images}; intervals: {self.level:.0%}, bootstrap over images.{BOLD}"
        differs = f" † differs from {self.reference} (paired test, Holm, p < {1.0 - self.level:.2g})."
        return intervals + (differs if len(self.methods) > 1 else "")

    @property
    def titles(self) -> list[str]:
        """Titles of the columns, with an arrow for the better direction."""
        return [metric_of(name).title + ARROWS[metric_of(name).better] for name in self.metrics]

    def to_markdown(self, *, intervals: bool = True) -> str:
        """Return a Markdown table with methods as rows, the best values in bold, and a note below it."""
        rows = [[escape_markdown(name), *cells] for name, cells in self._cells("**{}**", "{} {}", intervals)]
        return f"{markdown_table(['method', *self.titles], rows)}\n{self.note}"

    def to_latex(self, *, intervals: bool = True) -> str:
        """Return a LaTeX tabular, which needs the package booktabs."""
        # Without braces, LaTeX reads a bracket at the start of a row as an argument of the line break before it.
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
        """Return each method with its cells, formatted by templates for bold numbers and for intervals."""

        def cell(score: Score) -> str:
            shown = bold.format(rounded(score.mean)) if score.best else rounded(score.mean)
            shown += "†" if self.is_significant(score) else ""
            whole = intervals and not math.isnan(score.mean)
            return with_interval.format(shown, score.between) if whole else shown

        return [(method, [cell(self.score(method, m)) for m in self.metrics]) for method in self.methods]

    def to_csv(self) -> str:
        """Return CSV with a line per method and metric, and a column per attribute of `Score`."""
        out = StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow([field.name for field in fields(Score)])
        rows.writerows(["" if value != value else value for value in astuple(score)] for score in self.scores)  # NaN
        return out.getvalue()

    def to_json(self) -> str:
        """Return the table as JSON; values that are not defined are null."""
        names = ("n_images", "n_coarse", "n_unlabelled", "level", "reference", "scores")
        whole = {name: getattr(self, name) for name in names}
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def escaped(text: str) -> str:
    r"""Escape text for LaTeX."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)
