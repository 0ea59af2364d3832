"""The paper's synthetic figure: who recovers the support, over sparsity, noise, depth and orientation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hcep.classify import hnn, nn
from hcep.datasets import make_hierarchical_concepts
from hcep.dictionary import ConceptDictionary
from hcep.evaluate import support_scores
from hcep.experiments.experiment import Cell, Experiment, Verdict
from hcep.experiments.figures import panels, series
from hcep.experiments.records import Row
from hcep.experiments.tables import by_method
from hcep.pursuit import FlatResult, PathResult, hb_omp, lasso, omp, tree_lasso

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pursuit = Callable[[Any, ConceptDictionary, int], PathResult | FlatResult]
ANCHOR = 0.03

#: On the true dictionary, with at most k atoms.
PURSUITS: dict[str, Pursuit] = {
    "OMP": lambda X, d, k: omp(X, d, k),
    "Hierarchical OMP": lambda X, d, k: hb_omp(X, d, beam_width=1, max_steps=k),
    "HB-OMP (beam 8)": lambda X, d, k: hb_omp(X, d, beam_width=8, max_steps=k),
    "Exact": lambda X, d, k: hb_omp(X, d, beam_width=None, max_steps=k),
    "Exact, signed": lambda X, d, k: hb_omp(X, d, beam_width=None, max_steps=k, signed=True),
    "Anchored": lambda X, d, k: hb_omp(X, d, beam_width=None, max_steps=k, anchor=ANCHOR),
}
#: These always return whole paths, so they have no sparsity to vary.
WHOLE: dict[str, Pursuit] = {"NN": lambda X, d, k: nn(X, d), "HNN": lambda X, d, k: hnn(X, d)}
#: A convex program an image, badly conditioned by nearly collinear atoms: measured at the defaults, on few images.
CONVEX: dict[str, Pursuit] = {
    "SpLiCE": lambda X, d, k: lasso(X, d, k, positive=True),
    "Basis pursuit": lambda X, d, k: lasso(X, d, k),
    "Tree l1": lambda X, d, k: tree_lasso(X, d, k),
}


@dataclass(frozen=True)
class Config:
    """The paper's defaults, and what is varied around them."""

    branching: int = 3
    depth: int = 7
    dim: int = 50
    noise: float = 1e-5
    samples_per_leaf: int = 5
    noises: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    depths: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    orientations: tuple[str, ...] = ("svd", "random")
    seeds: tuple[int, ...] = (0, 1, 2)
    convex_images: int = 40


SMOKE = Config(depth=4, depths=(2, 4), noises=(1e-5, 1e-3), seeds=(0,), convex_images=20)


def cells(config: Config, problem: None) -> Iterator[Cell]:
    """Sweeps share the point at the defaults; it is measured in each, so that each stands alone."""
    for orientation in config.orientations:
        for seed in config.seeds:
            yield {"sweep": "sparsity", "orientation": orientation, "seed": seed}
            for noise in config.noises:
                yield {"sweep": "noise", "orientation": orientation, "noise": noise, "seed": seed}
            for depth in config.depths:
                yield {"sweep": "depth", "orientation": orientation, "depth": depth, "seed": seed}


def measure(config: Config, problem: None, cell: Cell) -> Iterator[Row]:
    """Support scores and relative residuals of every pursuit in one setting."""
    depth, noise = cell.get("depth", config.depth), cell.get("noise", config.noise)
    data = make_hierarchical_concepts(
        config.branching,
        depth,
        config.dim,
        noise=noise,
        samples_per_leaf=config.samples_per_leaf,
        orientation=cell["orientation"],
        random_state=cell["seed"],
    )
    full = data.hierarchy.depth
    sparsities = range(1, full + 1) if cell["sweep"] == "sparsity" else [full]
    settings = {**cell, "depth": depth, "noise": noise}
    few = np.linspace(0, len(data.y) - 1, min(config.convex_images, len(data.y))).astype(int)
    for k in sparsities:
        methods = PURSUITS | (WHOLE if k == full else {})
        for label, pursuit in methods.items():
            yield {**settings, "sparsity": k, "label": label, **_graded(pursuit, data, k, slice(None))}
        if config.convex_images and cell["sweep"] == "sparsity" and cell["seed"] == config.seeds[0] and k == full:
            for label, pursuit in CONVEX.items():
                yield {**settings, "sparsity": k, "label": label, **_graded(pursuit, data, k, few)}


def _graded(pursuit: Pursuit, data: Any, k: int, rows: Any) -> Row:
    X, y = data.X[rows], data.y[rows]
    found = pursuit(X, data.dictionary, k)
    precision, recall = support_scores(found, y, data.hierarchy).mean
    return {
        "support_precision": precision,
        "support_recall": recall,
        "reconstruction_error": float(np.mean(found.residual_norms / np.linalg.norm(X, axis=1))),
        "n_images": len(y),
    }


def draw(rows: list[Row]) -> Figure:
    """Three sweeps at the published orientation, and noise at the random one."""
    published = [row for row in rows if row["orientation"] == "svd"]
    groups = {
        "sparsity": [r for r in published if r["sweep"] == "sparsity"],
        "noise": [r for r in published if r["sweep"] == "noise"],
        "depth": [r for r in published if r["sweep"] == "depth"],
        "noise, random orientation": [r for r in rows if r["sweep"] == "noise" and r["orientation"] == "random"],
    }
    groups = {title: [{**row, "at": row[title.split(",")[0]]} for row in group] for title, group in groups.items()}
    return panels(
        groups,
        "at",
        ("support_precision", "support_recall", "reconstruction_error"),
        "",
        categories={title: sorted({row["at"] for row in group}) for title, group in groups.items()},
    )


def verdicts(rows: list[Row]) -> list[Verdict]:
    """The paper's claim, ours, and the control."""
    sparse = [r for r in rows if r["sweep"] == "sparsity"]
    full = max(r["sparsity"] for r in sparse)
    published = {
        label: _scores(sparse, label, orientation="svd", sparsity=full) for label in ("HB-OMP (beam 8)", "OMP")
    }
    gaps = [a - b for a, b in zip(published["HB-OMP (beam 8)"], published["OMP"], strict=True)]
    found = [
        Verdict(
            "HB-OMP is above OMP by at least 0.6 in precision and recall at the paper's defaults",
            min(gaps) >= 0.6,
            f"precision {_pair(published, 0)}, recall {_pair(published, 1)}",
        )
    ]
    noises = sorted({r["noise"] for r in rows if r["sweep"] == "noise"})
    noisy = [r for r in rows if r["sweep"] == "noise" and r["orientation"] == "svd"]
    ours = {n: _scores(noisy, "Anchored", noise=n) for n in noises}
    theirs = {n: _scores(noisy, "HB-OMP (beam 8)", noise=n) for n in noises}
    quiet = [n for n in noises if n <= 1e-4]
    found.append(
        Verdict(
            "anchored search recovers at least 0.99 of the support up to sigma² = 1e-4",
            all(min(ours[n]) >= 0.99 for n in quiet),
            ", ".join(f"{n:g}: {min(ours[n]):.3f}" for n in quiet),
        )
    )
    found.append(
        Verdict(
            "anchored search is above HB-OMP at every noise level, in precision and recall",
            all(a > b for n in noises for a, b in zip(ours[n], theirs[n], strict=True)),
            ", ".join(f"{n:g}: {ours[n][0]:.3f} / {theirs[n][0]:.3f}" for n in noises),
        )
    )
    random = {
        label: _scores(sparse, label, orientation="random", sparsity=full) for label in ("HB-OMP (beam 8)", "OMP")
    }
    found.append(
        Verdict(
            "with a random orientation per parent both are near 1: the gap comes from the nearly collinear cousins of "
            "the published basis, not from the hierarchy alone",
            all(value >= 0.95 for pair in random.values() for value in pair),
            f"precision {_pair(random, 0)}",
        )
    )
    return found


def _scores(rows: list[Row], label: str, **settings: Any) -> tuple[float, float]:
    chosen = [r for r in rows if r["label"] == label and all(r[name] == value for name, value in settings.items())]
    _, precision, *_ = series(chosen, "label", "support_precision")
    _, recall, *_ = series(chosen, "label", "support_recall")
    return precision[0], recall[0]


def _pair(scores: dict[str, tuple[float, float]], which: int) -> str:
    return " against ".join(f"{pair[which]:.3f} ({label})" for label, pair in scores.items())


def table(rows: list[Row]) -> str:
    """Every method at the defaults, by noise."""
    chosen = [r for r in rows if r["sweep"] == "noise" and r["orientation"] == "svd"]
    text = "Support precision / recall by noise variance, published orientation:\n\n"
    text += by_method(chosen, "noise", ("support_precision", "support_recall"))
    control = [r for r in rows if r["sweep"] == "noise" and r["orientation"] == "random"]
    return (
        text
        + "\nThe same with a random orientation:\n\n"
        + by_method(control, "noise", ("support_precision", "support_recall"))
    )


EXPERIMENT = Experiment(
    name="synthetic",
    title="Support recovery on synthetic hierarchies",
    paper="Figure on synthetic data (section 5.1): HB-OMP is consistently above OMP in precision and recall; "
    "no numbers are printed.",
    question="Does hierarchical pursuit find the true rooted path where flat pursuit does not, and why?",
    config=Config(),
    smoke=SMOKE,
    data=(),
    cells=cells,
    measure=measure,
    draw=draw,
    verdicts=verdicts,
    table=table,
    reading="The published construction takes the same singular vectors for every parent at a level, so cousins' "
    "atoms are nearly collinear and flat pursuit cannot tell them apart. With a random orientation per parent "
    "flat OMP is perfect too at the default noise: the figure shows what a hierarchy is worth when atoms of "
    "different branches look alike.",
)
