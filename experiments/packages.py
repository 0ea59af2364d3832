"""Other people's packages on the same images: HiClass, SPAMS' tree norm and skglm, with their versions."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from experiments.baselines.methods import TreeLassoClassifier
from experiments.baselines.partial_labels import local_paths
from experiments.baselines.penalised import PenalisedSolver, TreeLasso
from experiments.baselines.tree_penalty import penalties_at_zero
from experiments.claims import Verdict, ahead, by_metric, labels_of, table_by_data, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import OUR_LABEL, Cell, measured, method_cell
from experiments.records import OF_IMAGES, Row, packed
from experiments.sparsity import MAIN
from experiments.tables import markdown
from experiments.tasks import Task
from hcep.errors import MissingExtraError
from hcep.evaluate import score_images

Floats = NDArray[np.float64]
HICLASS, SPAMS, TREE, SKGLM = "HiClass", "SPAMS, tree norm", "Tree norm, our solver", "skglm, non-negative lasso"
#: The package of each label, as it is called on PyPI.
PACKAGES = {HICLASS: "hiclass", SPAMS: "spams-bin", SKGLM: "skglm"}
#: Packages that we could not run, and why.
NOT_RUN = {
    "setvaluedprediction": "release 0.0.6 imports `_message_with_time` from scikit-learn, which no longer has it",
    "nbdt": "release 0.0.4 needs torchvision with compiled operators, and a network that was fine-tuned with its loss",
}
#: Iterations of SPAMS' solver, and its tolerance.
MAX_ITERATIONS, TOLERANCE = 2000, 1e-7


@dataclass(frozen=True)
class Config:
    """Training images per class, draws of them, and validation images."""

    shots: int | None = 5
    seeds: tuple[int, ...] = (0, 1, 2)
    n_val: int | None = 1000


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per method and draw, with the version of its package."""
    for seed in config.seeds:
        for label in (OUR_LABEL, HICLASS, SPAMS, TREE, SKGLM):
            yield {"label": label, "version": installed(PACKAGES[label]) if label in PACKAGES else None, "seed": seed}


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure one method under the first-hypernym tree, because HiClass allows one parent only."""
    label = cell["label"]
    drawn = task.shots(config.shots, cell["seed"]).first_images(config.n_val)
    drawn = drawn.under(task.hierarchy.as_tree().collapse())
    if label in PACKAGES and cell["version"] is None:
        yield {**cell, "package": PACKAGES[label], "reason": "not installed"}
        return
    if label == HICLASS:
        row = _hiclass(drawn)
    else:
        name = {OUR_LABEL: "hcep", SKGLM: "nn-lasso"}.get(label, "tree-l1")
        fitted, seconds = None, {}
        if name == "tree-l1":
            start = time.perf_counter()
            fitted = (SpamsTreeClassifier if label == SPAMS else TreeLassoClassifier)(drawn.hierarchy, mixing=1.0)
            fitted.fit(drawn.X, drawn.y)
            seconds = {"fit_seconds": time.perf_counter() - start}
        row = measured(method_cell(name), drawn, fitted)[0] | seconds
    yield {**row, **cell, "package": PACKAGES.get(label)}


def _hiclass(task: Task) -> Row:
    start = time.perf_counter()
    paths = local_paths(task.X, task.y.tolist(), task.hierarchy, task.X_val)
    seconds = time.perf_counter() - start
    predicted = np.array([task.hierarchy.class_of(path[-1]) for path in paths])
    scores = score_images(paths, task.y_val, task.hierarchy, predicted=predicted)
    row = {name: value for name, value in scores.summary().items() if name in (*MAIN, "support_f1", "tree_distance")}
    accuracy = float(np.mean(predicted == task.y_val))
    return {**row, "accuracy": accuracy, "fit_seconds": seconds, OF_IMAGES: packed(scores)}


class SpamsTreeClassifier(TreeLassoClassifier):
    """The tree-structured l1 with SPAMS' solver, then a linear head; `mixing` must be 1."""

    def _solver(self) -> PenalisedSolver:
        return SpamsTree(self.dictionary_, self.mixing)


class SpamsTree(TreeLasso):
    """The tree norm, solved by SPAMS' FISTA."""

    @cached_property
    def _factor(self) -> tuple[Floats, Floats]:
        """D with ``D.T @ D`` the Gram matrix of the atoms, and its pseudo-inverse."""
        values, vectors = np.linalg.eigh(self.gram)
        used = values > 1e-10 * values[-1]
        roots = np.sqrt(values[used])
        return roots[:, None] * vectors[:, used].T, vectors[:, used] / roots

    def solve(self, products: Floats, alpha: float) -> tuple[Floats, int]:
        spams = require_spams()
        largest = np.empty(len(products))
        penalties_at_zero(products, self.mixing, self.parent, largest)
        scale = np.where(largest > 0, largest, 1.0)[:, None]
        tree, order = spams_tree(self.parent)
        factor, inverse = self._factor
        # The first variable is the root of SPAMS' tree, which has neither an atom nor a penalty.
        atoms = np.asfortranarray(np.concatenate([np.zeros((len(factor), 1)), factor[:, order]], axis=1))
        images = np.asfortranarray((products / scale @ inverse).T)
        start = np.zeros((atoms.shape[1], len(products)), order="F")
        options = {"loss": "square", "regul": "tree-l2", "numThreads": 1, "max_it": MAX_ITERATIONS, "tol": TOLERANCE}
        solved = np.asarray(spams.fistaTree(images, atoms, start, tree, lambda1=alpha, **options))
        codes = np.zeros_like(products)
        codes[:, order] = solved[1:].T
        return codes * scale, 0


def spams_tree(parent: NDArray[Any]) -> tuple[dict[str, Any], NDArray[np.intp]]:
    """Return the groups of a forest for SPAMS, below a root with neither weight nor variable, and the order of nodes.

    SPAMS numbers the groups depth first. `parent` is -1 for the nodes below the root.
    """
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(node)
    order, stack = [], [-1]
    while stack:
        order.append(stack.pop())
        stack += children.get(order[-1], [])[::-1]
    place = {node: k for k, node in enumerate(order)}
    n, inner = len(parent), order[1:]
    edges = ([place[node] for node in inner], [place[int(parent[node])] for node in inner])
    tree = {
        "eta_g": np.array([0.0] + [1.0] * n),
        "groups": sparse.csc_matrix((np.ones(n, dtype=bool), edges), shape=(n + 1, n + 1)),
        "own_variables": np.arange(n + 1, dtype=np.int32),
        "N_own_variables": np.ones(n + 1, dtype=np.int32),
    }
    return tree, np.array(inner, dtype=np.intp)


def require_spams() -> Any:
    """Return the module, or raise MissingExtraError."""
    try:
        import spams
    except ImportError:
        raise MissingExtraError("SPAMS is not installed; pip install spams-bin") from None
    return spams


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare ours with every package, and our solver of the tree norm with SPAMS'."""
    for metric in (*MAIN, "support_f1"):
        for label in PACKAGES:
            yield from ahead(rows, data, OUR_LABEL, [label], metric)
    yield from ahead(rows, data, TREE, [SPAMS], "support_f1")


@table_by_data
def table(data: str, rows: list[Row]) -> str:
    """Return the scores of the packages that ran, and the versions of all."""
    scored = [r for r in rows if "reason" not in r]
    text = f"**{data}**, mean over {len({r['seed'] for r in scored})} draws ± half the 95 % interval\n\n"
    text += by_metric(scored, (*MAIN, "support_f1")) + "\n"
    lines = []
    for label in (label for label in labels_of(rows) if label in PACKAGES):
        versions = {r["version"] or "not installed" for r in rows if r["label"] == label}
        lines.append((label, f"`{PACKAGES[label]}` {', '.join(sorted(versions))}"))
    lines += [(package, f"not installed: {reason}") for package, reason in NOT_RUN.items()]
    return text + markdown(("method", "package"), lines) + "\n"


def draw(rows: list[Row]) -> Figure:
    """Draw accuracy against the F1 of the support, a point for each method, draw and data set."""
    names = list(dict.fromkeys(r["data"] for r in rows))
    figure = canvas(4.5 * len(names), 3.0)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for label in labels_of(rows):
            here = [r for r in rows if r["label"] == label and r["data"] == name and "reason" not in r]
            axes.plot([r["support_f1"] for r in here], [r["accuracy"] for r in here], "o", label=label, markersize=4)
        axes.set(title=name, xlabel="support F1", ylabel="accuracy")
    figure.axes[0].legend(frameon=False, fontsize=7)
    return figure


EXPERIMENT = described("packages", cells, measure, draw, verdicts, table, Config(), Config(seeds=(0,), n_val=50))
