"""A class set at one glance: every concept as a box, where mistakes are, what is left without the doubtful answers.

Figures are matplotlib's, for papers; `icicle_page` is one HTML file that fetches nothing, for looking closer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import escape_html as escape
from hcep._files import replacing, write_text
from hcep.evaluate.statistics import RiskCoverage, risk_coverage
from hcep.evaluate.support import as_labels
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hcep.evaluate.grade import Corrected

#: Inches from which on a box is labelled, and letters of its name.
LABELLED, LETTERS = 0.085, 28


class Box(NamedTuple):
    """A rooted path to a concept in an icicle: its level, and which share of the height it covers."""

    synset: str
    level: int
    top: float
    height: float


def icicle_boxes(hierarchy: Hierarchy) -> list[Box]:
    """A box for every rooted path, each complete one as high as any other; children beside their parent."""
    tree = hierarchy.path_tree
    width = (tree.n_children == 0).astype(np.float64)
    for v in range(tree.n_nodes - 1, 0, -1):
        width[tree.parent[v]] += width[v]
    width /= width[0]
    top = np.zeros(tree.n_nodes)
    for v in range(tree.n_nodes):
        first = int(tree.first_child[v])
        below = slice(first, first + int(tree.n_children[v]))
        top[below] = top[v] + np.cumsum(width[below]) - width[below]
    ids = hierarchy.ids
    return [Box(ids[tree.synset[v]], int(tree.level[v]), float(top[v]), float(width[v])) for v in range(tree.n_nodes)]


def concept_f1(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> dict[str, float]:
    """F1 of every concept that some image has, or was said to have; the root's is 1."""
    both, either = Counter[str](), Counter[str]()
    pairs = Counter(zip(as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred"), strict=True))
    above = {c: {leaf, *hierarchy.ancestors(leaf)} for pair in pairs for c in pair for leaf in [hierarchy.leaf_of(c)]}
    for (true, predicted), n in pairs.items():
        both.update(dict.fromkeys(above[true] & above[predicted], n))
        for label in (true, predicted):
            either.update(dict.fromkeys(above[label], n))
    return {synset: 2.0 * both[synset] / either[synset] for synset in hierarchy.ids if either[synset]}


def concept_means(y_true: ArrayLike, values: NDArray[np.float64], hierarchy: Hierarchy) -> dict[str, float]:
    """Mean of some value over the images of every concept: of probabilities, how sure answers are there."""
    labels, index = np.unique(as_labels(y_true, "y_true"), return_inverse=True)
    sums, counts = np.bincount(index, values, len(labels)).tolist(), np.bincount(index, minlength=len(labels)).tolist()
    total, n = dict.fromkeys(hierarchy.ids, 0.0), Counter[str]()
    for label, own, count in zip(labels.tolist(), sums, counts, strict=True):
        for synset in (leaf := hierarchy.leaf_of(label), *hierarchy.ancestors(leaf)):
            total[synset] += own
            n[synset] += count
    return {synset: total[synset] / n[synset] for synset in hierarchy.ids if n[synset]}


def mistakes_by_lca(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> list[tuple[str, int, str, str, int]]:
    """Mistakes by the lowest concept above truth and answer, most frequent first.

    Rows are (concept, mistakes, truth, answer, their number), the last three of the commonest confusion below it.
    """
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    found: dict[str, Counter[tuple[str, str]]] = {}
    for (a, b), n in Counter((a, b) for a, b in zip(truth, predicted, strict=True) if a != b).items():
        found.setdefault(hierarchy.lca(hierarchy.leaf_of(a), hierarchy.leaf_of(b)), Counter())[a, b] = n
    rows = [(concept, pairs.total(), *pairs.most_common(1)[0]) for concept, pairs in found.items()]
    return [(concept, total, *pair, n) for concept, total, pair, n in sorted(rows, key=lambda row: -row[1])]


def write_figures(folder: str | PathLike[str], model: Any, X: ArrayLike, y: ArrayLike) -> list[Path]:
    """Draw how a model does on labelled images into a folder: PDF and PNG for papers, the icicles as HTML too.

    Parameters
    ----------
    X : (n_images, n_dims) raw embeddings
    y : (n_images,) labels, all of them classes of the model
    """
    from hcep.evaluate.grade import intervention_curve

    found, h, folder = model.infer(X), model.hierarchy_, Path(folder)
    truth, sure = np.asarray(y), found.probabilities.max(axis=1)
    values = {"F1 of concepts": concept_f1(truth, found.labels, h), "How sure": concept_means(truth, sure, h)}
    drawn = {title: draw_icicle(h, by_concept, title) for title, by_concept in values.items()}
    drawn["Mistakes"] = draw_mistakes(truth, found.labels, h)
    drawn["Risk and coverage"] = draw_risk_coverage({"model": risk_coverage(sure, found.labels == truth)})
    drawn["Levels corrected"] = draw_interventions(intervention_curve(model, X, y))
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{title.lower().replace(' ', '-')}.{ending}" for title in drawn for ending in ("pdf", "png")]
    for path, figure in zip(paths, (figure for figure in drawn.values() for _ in range(2)), strict=True):
        with replacing(path) as partial:
            figure.savefig(partial, dpi=150, format=path.suffix[1:])
    for title, by_concept in values.items():
        paths.append(folder / f"{title.lower().replace(' ', '-')}.html")
        write_text(paths[-1], icicle_page(h, by_concept, title))
    return paths


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def draw_icicle(hierarchy: Hierarchy, values: Mapping[str, float], title: str = "") -> Figure:
    """The hierarchy as boxes from left to right, each coloured by its value from 0 to 1, grey where it has none."""
    import matplotlib as mpl

    boxes, colours = icicle_boxes(hierarchy), mpl.colormaps["RdYlGn"]
    n_leaves, depth = len(hierarchy.path_tree.leaf_nodes), hierarchy.depth
    high = min(18.0, max(4.0, 0.11 * n_leaves))
    figure, axes = _figure(2.0 + 1.5 * depth, high)
    painted = [colours(values[b.synset]) if b.synset in values else "#dddddd" for b in boxes]
    left, heights = [b.level for b in boxes], [b.height for b in boxes]
    middle = [1.0 - b.top - b.height / 2 for b in boxes]
    axes.barh(middle, 1.0, heights, left, color=painted, edgecolor="white", linewidth=0.3)
    for box, y in zip(boxes, middle, strict=True):
        if box.height * high >= LABELLED:
            name, size = hierarchy.name(box.synset)[:LETTERS], min(9.0, max(5.0, 40.0 * box.height * high))
            axes.text(box.level + 0.04, y, name, va="center", fontsize=size, clip_on=True)
    axes.set(xlim=(0, depth + 1), ylim=(0, 1), title=title, xticks=[], yticks=[])
    figure.colorbar(mpl.cm.ScalarMappable(cmap=colours), ax=axes, shrink=0.4)
    return figure


def draw_mistakes(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy, n: int = 15) -> Figure:
    """Mistakes by the lowest concept above truth and answer, the n most frequent, each with its commonest confusion."""
    rows, name = mistakes_by_lca(y_true, y_pred, hierarchy)[:n][::-1], hierarchy.name
    figure, axes = _figure(8, 1.0 + 0.3 * len(rows))
    axes.barh([f"{name(c)}: {name(hierarchy.leaf_of(a))} as {name(hierarchy.leaf_of(b))}" for c, _, a, b, _ in rows],
              [total for _, total, *_ in rows], color="#1f77b4")  # fmt: skip
    axes.barh(range(len(rows)), [most for *_, most in rows], color="#d62728")
    figure.suptitle("mistakes by lowest common concept; red: the confusion named", fontsize=10)
    axes.set(xlabel="images")
    return figure


def draw_risk_coverage(curves: Mapping[str, RiskCoverage]) -> Figure:
    """Mistakes among the images that are answered, against how many are, a line for each method."""
    figure, axes = _figure(4, 3)
    for label, curve in curves.items():
        axes.plot(curve.coverage, curve.risk, label=f"{label} (area {curve.area:.3f})")
    axes.set(xlabel="share of images answered", ylabel="share of mistakes", xlim=(0, 1), ylim=(0, None))
    axes.legend(frameon=False, fontsize=7)
    return figure


def draw_interventions(rows: Sequence[Corrected]) -> Figure:
    """Accuracy after so many levels were corrected by truth (see `intervention_curve`)."""
    figure, axes = _figure(4, 3)
    axes.plot([row.n_levels for row in rows], [row.accuracy for row in rows], "o-")
    axes.set(xlabel="levels corrected", ylabel="accuracy", ylim=(None, 1.0))
    return figure


def icicle_page(hierarchy: Hierarchy, values: Mapping[str, float], title: str = "Concepts") -> str:
    """`draw_icicle` as one HTML file: click a box to fill the page with it, point at it for its name and value."""
    boxes = [
        [b.level, round(b.top, 7), round(b.height, 7), hierarchy.name(b.synset), values.get(b.synset)]
        for b in icicle_boxes(hierarchy)
    ]
    data = json.dumps({"boxes": boxes, "columns": hierarchy.depth + 1}).replace("<", "\\u003c")
    before, after, script, end = files("hcep.evaluate").joinpath("icicle.html").read_text("utf-8").split("%%")
    return f"{before}{escape(title)}{after}{escape(title)}{script}{data}{end}"
