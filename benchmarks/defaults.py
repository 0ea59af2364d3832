"""The measurements behind the estimator's defaults: every configuration and baseline at every shot, on real embeddings.

    make defaults        or        python benchmarks/defaults.py [--seeds 2]

Reads the embeddings in HCEP_SHARED (default: ../shared beside the project) and puts its tables into docs/defaults.md.
Test images are never used to choose anything within a row; they did choose between rows, which is what the table shows.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from sklearn.linear_model import LogisticRegression

from hcep import ConceptDictionary, HCEPClassifier, Hierarchy, hb_omp, omp, support_scores
from hcep.classify import hnn, nn
from hcep.dictionary import DependentAtomsWarning
from hcep.pursuit import FlatResult, PathResult

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("HCEP_SHARED", ROOT.parent / "shared"))


@dataclass(frozen=True)
class Data:
    """Embeddings of one data set, with the first-hypernym tree of its classes, chains collapsed."""

    name: str
    hierarchy: Hierarchy
    X: Any
    y: Any
    X_val: Any
    y_val: Any


BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
Scores = tuple[float, float, float]
Method = Callable[[Data, Any, Any], Scores]


def wordnet() -> Hierarchy:
    nodes = json.loads((SHARED / "data" / "imagenet1k_wordnet_dag.json").read_text(encoding="utf-8"))["nodes"]
    return Hierarchy.from_edges([(p, c) for c, node in nodes.items() for p in node["hypernyms"]]).as_tree("first")


def load(name: str, file: str) -> Data:
    raw = np.load(SHARED / "data" / file, allow_pickle=False)
    y, train = raw["wnids"][raw["labels"]], raw["split"] == "train"
    X = raw["embeddings"].astype(np.float32)
    hierarchy = wordnet().restrict(raw["wnids"].tolist()).collapse()
    return Data(name, hierarchy, X[train], y[train], X[~train], y[~train])


def load_cifar() -> Data:
    """CIFAR-10's 500 images, every other one for training, under a small tree of our own."""
    raw = np.load(SHARED / "data" / "cifar10_500_clip_vitb32.npz", allow_pickle=False)
    animals = {"mammal": ["cat", "dog", "deer", "horse"], "other animal": ["bird", "frog"]}
    vehicles = {"road vehicle": ["automobile", "truck"], "other craft": ["airplane", "ship"]}
    edges = [(top, group) for top, groups in (("animal", animals), ("vehicle", vehicles)) for group in groups]
    edges += [(g, c) for groups in (animals, vehicles) for g, members in groups.items() for c in members]
    y, X = raw["class_names"][raw["labels"]], raw["embeddings"].astype(np.float32)
    half = np.arange(len(X)) % 2 == 0
    return Data("CIFAR-10 (500)", Hierarchy.from_edges(edges), X[half], y[half], X[~half], y[~half])


def shots(data: Data, k: int | None, seed: int) -> tuple[Any, Any]:
    if k is None:
        return data.X, data.y
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(data.y == c))[:k] for c in np.unique(data.y)])
    return data.X[rows], data.y[rows]


def graded(data: Data, found: PathResult | FlatResult, predicted: Any) -> Scores:
    precision, recall = support_scores(found, data.y_val, data.hierarchy).mean
    return float(np.mean(predicted == data.y_val)), precision, recall


def flat_omp(data: Data, X: Any, y: Any) -> Scores:
    dictionary = ConceptDictionary.from_images(data.hierarchy, X, y)
    head = LogisticRegression(max_iter=1000).fit(omp(X, dictionary).codes, y)
    found = omp(data.X_val, dictionary)
    return graded(data, found, head.predict(found.codes))


def path_baseline(pursuit: Callable[..., PathResult], **options: Any) -> Method:
    def method(data: Data, X: Any, y: Any) -> Scores:
        found = pursuit(data.X_val, ConceptDictionary.from_images(data.hierarchy, X, y), **options)
        return graded(data, found, found.leaves)

    return method


def estimator(make: Callable[..., HCEPClassifier] = HCEPClassifier, **options: Any) -> Method:
    def method(data: Data, X: Any, y: Any) -> Scores:
        model = make(data.hierarchy, **options).fit(X, y)
        return graded(data, model.pursue(data.X_val), model.predict(data.X_val))

    return method


def black_box(data: Data, X: Any, y: Any) -> Scores:
    """Dense logistic regression, C the best on the *test* images: more than a user could tune."""
    fitted = (LogisticRegression(C=C, max_iter=1000).fit(X, y) for C in (0.01, 0.03, 0.1, 0.3, 1.0))
    return max(float(model.score(data.X_val, data.y_val)) for model in fitted), float("nan"), float("nan")


METHODS: dict[str, Method] = {
    "OMP, logistic head": flat_omp,
    "HNN": path_baseline(hnn),
    "NN": path_baseline(nn),
    "HB-OMP (paper, beam 32), leaf": path_baseline(hb_omp, beam_width=32),
    "HB-OMP (paper, beam 32), logistic head": estimator(HCEPClassifier.paper, beam_width=32),
    "exact, signed": path_baseline(hb_omp, beam_width=None, signed=True),
    "exact, anchored (auto), Euclidean": estimator(shrinkage=None),
    "exact, whitened (auto), anchor 0": estimator(anchor=0.0),
    "exact, whitened, signed": estimator(anchor=0.0, signed=True),
    "beam 8, whitened, anchored (auto)": estimator(beam_width=8),
    "**exact, whitened, anchored (auto): the default**": estimator(),
    "the default on unit-norm embeddings": estimator(unit_norm=True),
    "the default on centred embeddings": estimator(center=True),
    "the default, signed": estimator(signed=True),
    "the default with a logistic head": estimator(head="logistic"),
    "dense logistic regression (black box)": black_box,
}


def rows(data: Data, ks: list[int | None], n_seeds: int, tick: Callable[[], None]) -> Iterator[str]:
    labels = ["all" if k is None else f"{k}-shot" for k in ks]
    yield f"| {data.name} | " + " | ".join(labels) + " |"
    yield "|---" * (len(ks) + 1) + "|"
    for name, method in METHODS.items():
        cells = []
        for k in ks:
            seeds = range(1 if k is None or k * len(np.unique(data.y)) >= len(data.y) else n_seeds)
            mean = np.mean([method(data, *shots(data, k, seed)) for seed in seeds], axis=0)
            cells.append(" ".join("-" if np.isnan(v) else f"{v:.3f}".lstrip("0") for v in mean))
            tick()
        yield f"| {name} | " + " | ".join(cells) + " |"


def put_tables(page: Path, tables: str) -> None:
    """Replace what stands between the page's marks."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN, 1)
    page.write_text(before + BEGIN + "\n" + tables + END + rest.split(END, 1)[1], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "defaults.md", help="where the tables go")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DependentAtomsWarning)
    warnings.filterwarnings("ignore", message="The number of unique classes")  # one image a class is meant
    plan: list[tuple[Data, list[int | None]]] = [
        (load("Tiny-ImageNet-200, EfficientNet-Lite2", "tinyimagenet200_efficientnet_lite2.npz"), [1, 2, 5, 12, 50]),
        (load("ImageNette, EfficientNet-Lite2", "imagenette_efficientnet_lite2.npz"), [1, 5, 50]),
        (load_cifar(), [1, 5, 12]),
    ]
    lines = [f"<!-- made by benchmarks/defaults.py --seeds {options.seeds} -->", ""]
    with Progress() as progress:
        task = progress.add_task("measuring", total=len(METHODS) * sum(len(ks) for _, ks in plan))
        for data, ks in plan:
            lines += [*rows(data, ks, options.seeds, lambda: progress.advance(task)), ""]
    print("\n".join(lines))
    put_tables(options.page, "\n".join(lines))


if __name__ == "__main__":
    main()
