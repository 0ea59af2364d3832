"""Figures of a model on labelled images: concepts as an icicle, mistakes, risk and coverage, corrected levels.

Figures are drawn by matplotlib. `icicle_page` is an interactive HTML file that loads nothing from elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import render_html
from hcep._files import write_bytes, write_text
from hcep.evaluate.statistics import Floats, risk_coverage
from hcep.evaluate.truths import as_labels
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hcep.evaluate.grade import Corrected

#: Minimum height of a labelled box in inches, and maximum number of letters of its label.
LABELLED, LETTERS = 0.085, 28
#: Concepts in the figure of mistakes.
MISTAKES = 15


class Box(NamedTuple):
    """A rooted path to a concept in an icicle: its level, and its top and height as shares of the figure."""

    synset: str
    level: int
    top: float
    height: float


def icicle_boxes(hierarchy: Hierarchy) -> list[Box]:
    """Return a box for every rooted path; all complete paths have the same height, and children follow their parent."""
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
    """Return the F1 of every concept that an image has or was predicted to have; that of the root is 1."""
    both, either = Counter[str](), Counter[str]()
    pairs = Counter(zip(as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred"), strict=True))
    above = {c: {leaf, *hierarchy.ancestors(leaf)} for pair in pairs for c in pair for leaf in [hierarchy.leaf_of(c)]}
    for (true, predicted), n in pairs.items():
        both.update(dict.fromkeys(above[true] & above[predicted], n))
        for label in (true, predicted):
            either.update(dict.fromkeys(above[label], n))
    return {synset: 2.0 * both[synset] / either[synset] for synset in hierarchy.ids if either[synset]}


def concept_means(y_true: ArrayLike, values: NDArray[np.float64], hierarchy: Hierarchy) -> dict[str, float]:
    """Return the mean of a value per image, such as its probability, over the images of every concept."""
    labels, index = np.unique(as_labels(y_true, "y_true"), return_inverse=True)
    sums, counts = np.bincount(index, values, len(labels)).tolist(), np.bincount(index, minlength=len(labels)).tolist()
    total, n = dict.fromkeys(hierarchy.ids, 0.0), Counter[str]()
    for label, own, count in zip(labels.tolist(), sums, counts, strict=True):
        for synset in (leaf := hierarchy.leaf_of(label), *hierarchy.ancestors(leaf)):
            total[synset] += own
            n[synset] += count
    return {synset: total[synset] / n[synset] for synset in hierarchy.ids if n[synset]}


def mistakes_by_lca(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> list[tuple[str, int, str, str, int]]:
    """Count mistakes by the lowest common concept of the true and the predicted class, most frequent first.

    Rows are (concept, number of mistakes, true class, predicted class, number), where the last three describe the most
    frequent confusion below the concept.
    """
    truth, predicted = as_labels(y_true, "y_true"), as_labels(y_pred, "y_pred")
    confusions: dict[str, Counter[tuple[str, str]]] = {}
    for (a, b), n in Counter((a, b) for a, b in zip(truth, predicted, strict=True) if a != b).items():
        confusions.setdefault(hierarchy.lca(hierarchy.leaf_of(a), hierarchy.leaf_of(b)), Counter())[a, b] = n
    rows = [(concept, pairs.total(), *pairs.most_common(1)[0]) for concept, pairs in confusions.items()]
    return [(concept, total, *pair, n) for concept, total, pair, n in sorted(rows, key=lambda row: -row[1])]


def write_figures(folder: str | PathLike[str], model: Any, X: ArrayLike, y: ArrayLike) -> list[Path]:
    """Draw figures of a model on labelled images into a folder, as PDF and PNG; icicles also as HTML.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings
    y : (n_images,) array of labels, all of them classes of the model
    """
    from hcep.evaluate.grade import intervention_curve

    inference, h, folder = model.infer(X), model.hierarchy_, Path(folder)
    truth, predicted, sure = np.asarray(y), inference.labels, inference.probabilities.max(axis=1)
    values = {"F1 of concepts": concept_f1(truth, predicted, h), "How sure": concept_means(truth, sure, h)}
    drawn = {title: draw_icicle(h, by_concept, title) for title, by_concept in values.items()}
    drawn["Mistakes"] = draw_mistakes(truth, predicted, h)
    drawn["Risk and coverage"] = draw_risk_coverage({"model": risk_coverage(sure, predicted == truth)})
    drawn["Levels corrected"] = draw_interventions(intervention_curve(model, X, y))
    paths = [folder / f"{title.lower().replace(' ', '-')}.{ending}" for title in drawn for ending in ("pdf", "png")]
    for path, figure in zip(paths, (figure for figure in drawn.values() for _ in range(2)), strict=True):
        drawing = BytesIO()  # as matplotlib hides the error of a full disk behind another
        figure.savefig(drawing, dpi=150, format=path.suffix[1:])
        write_bytes(path, drawing.getbuffer())
    for title, by_concept in values.items():
        paths.append(folder / f"{title.lower().replace(' ', '-')}.html")
        write_text(paths[-1], icicle_page(h, by_concept, title))
    return paths


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def draw_icicle(hierarchy: Hierarchy, values: Mapping[str, float], title: str = "") -> Figure:
    """Draw the hierarchy as boxes from left to right, coloured by a value from 0 to 1, or grey without a value."""
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


def draw_mistakes(y_true: ArrayLike, y_pred: ArrayLike, hierarchy: Hierarchy) -> Figure:
    """Draw the lowest common concepts with most mistakes, each with its most frequent confusion."""
    rows, name = mistakes_by_lca(y_true, y_pred, hierarchy)[:MISTAKES][::-1], hierarchy.name
    figure, axes = _figure(8, 1.0 + 0.3 * len(rows))
    axes.barh([f"{name(c)}: {name(hierarchy.leaf_of(a))} as {name(hierarchy.leaf_of(b))}" for c, _, a, b, _ in rows],
              [total for _, total, *_ in rows], color="#1f77b4")  # fmt: skip
    axes.barh(range(len(rows)), [most for *_, most in rows], color="#d62728")
    figure.suptitle("mistakes by lowest common concept; red: the confusion in the label", fontsize=10)
    axes.set(xlabel="images")
    return figure


def draw_risk_coverage(curves: Mapping[str, tuple[Floats, Floats]]) -> Figure:
    """Draw the share of mistakes against the share of images answered, from `risk_coverage`, one line per method."""
    figure, axes = _figure(4, 3)
    for label, (coverage, risk) in curves.items():
        axes.plot(coverage, risk, label=f"{label} (area {risk.mean():.3f})")
    axes.set(xlabel="share of images answered", ylabel="share of mistakes", xlim=(0, 1), ylim=(0, None))
    axes.legend(frameon=False, fontsize=7)
    return figure


def draw_interventions(rows: Sequence[Corrected]) -> Figure:
    """Draw the accuracy against the number of corrected levels, from `intervention_curve`."""
    figure, axes = _figure(4, 3)
    axes.plot([row.n_levels for row in rows], [row.accuracy for row in rows], "o-")
    axes.set(xlabel="levels corrected", ylabel="accuracy", ylim=(None, 1.0))
    return figure


def icicle_page(hierarchy: Hierarchy, values: Mapping[str, float], title: str = "Concepts") -> str:
    """Return the icicle as an HTML page: click a box to zoom in, point at it for its name and value."""
    boxes = [
        [b.level, round(b.top, 7), round(b.height, 7), hierarchy.name(b.synset), values.get(b.synset)]
        for b in icicle_boxes(hierarchy)
    ]
    data = {"boxes": boxes, "columns": hierarchy.depth + 1}
    return render_html(Path(__file__).parent / "templates/icicle.html", title=title, data=data)
