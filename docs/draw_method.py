"""The pictures of docs/method.md: concepts and their differences in a plane, and one search.

python docs/draw_method.py docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy, hb_omp
from hcep.datasets import load_sample

INK, QUIET, LIT, IMAGE = "#1f2937", "#9ca3af", "#c2410c", "#1d4ed8"
LEAVES = {"cat": [2.2, 3.0], "dog": [3.2, 2.0], "car": [3.3, -1.0], "bus": [2.3, -2.2]}
EDGES = [
    ("thing", "animal"), ("animal", "cat"), ("animal", "dog"),
    ("thing", "vehicle"), ("vehicle", "car"), ("vehicle", "bus"),
]  # fmt: skip
PHOTO = np.array([2.0, 3.5])


def plane(axes: tuple[Axes, Axes]) -> None:
    """Left: concepts and the atoms between them. Right: an image as a sum along one path."""
    tree = Hierarchy.from_edges(EDGES)
    concepts = ConceptDictionary.from_leaf_embeddings(tree, LEAVES)
    at = {name: concepts.synset_embedding(name) for name in tree.ids}
    found = hb_omp(PHOTO[None], concepts, beam_width=None, anchor=0.03)
    for ax in axes:
        for name, place in at.items():
            ax.plot(*place, "o", color=QUIET, ms=4)
            ax.annotate(name, place, xytext=(6, -3), textcoords="offset points", color=INK)
        ax.set(xlim=(-0.4, 4.6), ylim=(-3, 4.2), aspect="equal")
        ax.axis("off")
    for parent, child in EDGES:
        _arrow(axes[0], at[parent], at[child], QUIET)
    here = at["thing"]
    for weight, parent, child in zip(found.coefficients(0), ("thing", *found.paths[0]), found.paths[0], strict=False):
        end = here + weight * (at[child] - at[parent])
        _arrow(axes[1], here, end, LIT)
        axes[1].annotate(f"{weight:.2f} × ({child} − {parent})", (here + end) / 2, xytext=(-6, 8), ha="right",
                         textcoords="offset points", color=LIT)  # fmt: skip
        here = end
    axes[1].plot(*PHOTO, "*", color=IMAGE, ms=12)
    axes[1].annotate("the image", PHOTO, xytext=(8, 4), textcoords="offset points", color=IMAGE)
    axes[1].set_xlim(-2.6, 4.6)
    axes[0].set_title("concepts, and the steps between them", loc="left", color=INK)
    axes[1].set_title("an image, as a walk from the root", loc="left", color=INK)


def search(ax: Axes) -> None:
    """One image of the sample: the share of it that each rooted path explains, the best one lit."""
    data = load_sample()
    model = HCEPClassifier(data.hierarchy, shrinkage=0.6, anchor=0.03).fit(data.X_train, data.y_train)
    tree, image = model.hierarchy_, data.X_val[:1]
    found = hb_omp(image, model.dictionary_, beam_width=None, anchor=0.03, n_best=len(tree.leaves))
    photo = model.dictionary_.embed(image)[0]
    paths = {h.path: _fit(model.dictionary_, photo, h.path) for h in found.hypotheses(0)}
    best, lines = next(iter(paths)), sorted(paths, key=lambda path: [tree.name(c) for c in path])
    rows = {path: row for row, path in enumerate(lines)}
    places = {
        path[:depth]: (depth, float(np.mean([rows[p] for p in lines if p[:depth] == path[:depth]])))
        for path in lines
        for depth in range(len(path) + 1)
    }
    for path, (x, y) in places.items():
        lit = best[: len(path)] == path
        if path:
            before = places[path[:-1]]
            ax.plot([before[0], x], [before[1], y], color=LIT if lit else QUIET, lw=2.5 if lit else 0.8, zorder=1)
            share = "  {:.0%}, last step × {:.1f}".format(*paths[path]) if path in paths else ""
            ax.annotate(tree.name(path[-1]).split(",")[0] + share, (x, y), xytext=(5, 2), textcoords="offset points",
                        color=LIT if lit else INK, fontsize=8)  # fmt: skip
    ax.set_title("the same photo by every path: the share of it that each explains", loc="left", color=INK)
    ax.set_xlim(-0.1, max(x for x, _ in places.values()) + 1)
    ax.invert_yaxis()
    ax.axis("off")


def _fit(concepts: ConceptDictionary, photo: np.ndarray, path: tuple[str, ...]) -> tuple[float, float]:
    """The share of a photo that the atoms along a path explain, and the coefficient of the last."""
    at = [np.zeros_like(photo), *(concepts.synset_embedding(concept) for concept in path)]
    atoms = np.diff(at, axis=0)
    coefficients = np.linalg.lstsq(atoms.T, photo, rcond=None)[0]
    return 1 - float(((photo - coefficients @ atoms) ** 2).sum() / (photo**2).sum()), float(coefficients[-1])


def _arrow(ax: Axes, start: np.ndarray, end: np.ndarray, colour: str) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.6, "shrinkA": 3, "shrinkB": 3})


def draw(folder: Path) -> None:
    """Write concepts.svg and search.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "method", "font.size": 10})
    for name, size, columns in (("concepts", (9.0, 4.2), 2), ("search", (9.0, 4.6), 1)):
        figure, axes = plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
        plane(tuple(axes[0])) if columns == 2 else search(axes[0, 0])
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
