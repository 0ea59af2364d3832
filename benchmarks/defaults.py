"""Measure the configurations and baselines behind the estimator's defaults on real embeddings.

    make defaults        or        python benchmarks/defaults.py [--seeds 2]

It reads the embeddings in HCEP_SHARED (default: ../shared) and writes its tables into docs/defaults.md. Test images
never choose anything within a row, but they did choose the default among the rows, which is what the tables show.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress

from hcep import HCEPClassifier
from hcep.dictionary import DependentAtomsWarning
from hcep.evaluate import evaluate_method

sys.path.append(str(Path(__file__).parents[1]))  # the folder `experiments` is not installed
from experiments.baselines.methods import make_method
from experiments.claims import by_method
from experiments.measuring import scores_row
from experiments.records import OF_IMAGES, Row, packed
from experiments.tasks import Task, cifar10, imagenette, tiny_imagenet

PAGE = Path(__file__).parents[1] / "docs" / "defaults.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
METRICS = ("accuracy", "support_precision", "support_recall")
leaf = partial(HCEPClassifier, shrinkage=None, anchor=0.0, head="path")

METHODS: dict[str, Callable[..., Any]] = {
    "OMP": partial(make_method, "omp"),
    "HNN": partial(make_method, "hnn"),
    "NN": partial(make_method, "nn"),
    "HB-OMP (beam 32), leaf": partial(leaf, beam_width=32),
    "HB-OMP (beam 32)": partial(make_method, "hb-omp", beam_width=32),
    "HB-OMP (beam 32), convex head": partial(make_method, "hb-omp", beam_width=32, head="logistic"),
    "exact, signed": partial(leaf, beam_width=None, signed=True),
    "exact, anchored (auto), Euclidean": partial(HCEPClassifier, shrinkage=None),
    "exact, whitened (auto), anchor 0": partial(HCEPClassifier, anchor=0.0),
    "exact, whitened, signed": partial(HCEPClassifier, anchor=0.0, signed=True),
    "beam 8, whitened, anchored (auto)": partial(HCEPClassifier, beam_width=8),
    "**exact, whitened, anchored (auto): the default**": HCEPClassifier,
    "the default on unit-norm embeddings": partial(HCEPClassifier, unit_norm=True),
    "the default on centred embeddings": partial(HCEPClassifier, center=True),
    "the default, signed": partial(HCEPClassifier, signed=True),
    "the default with a convex head": partial(HCEPClassifier, head="logistic"),
    "control: linear probe": partial(make_method, "linear-probe"),
    "control: shrinkage LDA": partial(make_method, "lda"),
    "control: nearest mean in our metric": partial(make_method, "nearest-mean"),
    "control: the default without a tree": partial(make_method, "no-tree"),
}


def rows(task: Task, shots: list[int], n_seeds: int, tick: Callable[[], None]) -> Iterator[Row]:
    for label, make in METHODS.items():
        for k in shots:
            for seed in range(n_seeds if k < task.images_per_class else 1):
                drawn = task.shots(k, seed)
                model = make(drawn.hierarchy)
                scores = evaluate_method(model.fit(drawn.X, drawn.y), drawn.X_val, drawn.y_val)
                yield {"label": label, "shots": k, "seed": seed, **scores_row(scores), OF_IMAGES: packed(scores)}
            tick()


def put_tables(page: Path, tables: str) -> None:
    """Replace the text between the marks of a page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN, 1)
    page.write_text(before + BEGIN + "\n" + tables + END + rest.split(END, 1)[1], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--page", type=Path, default=PAGE, help="page for the tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DependentAtomsWarning)
    warnings.filterwarnings("ignore", message="The number of unique classes")  # with one image per class
    plan = [(tiny_imagenet(), [1, 2, 5, 12, 50]), (imagenette(), [1, 5, 50]), (cifar10(), [1, 5, 12])]
    text = f"<!-- made by benchmarks/defaults.py --seeds {options.seeds} -->\n"
    with Progress() as progress:
        bar = progress.add_task("measuring", total=len(METHODS) * sum(len(shots) for _, shots in plan))
        for task, shots in plan:
            tree = task.under(task.hierarchy.as_tree("first").collapse())
            measured = list(rows(tree, shots, options.seeds, lambda: progress.advance(bar)))
            text += f"\n{task.name}, {task.encoder}, by images per class:\n\n" + by_method(measured, "shots", METRICS)
    print(text)
    put_tables(options.page, text + "\n")


if __name__ == "__main__":
    main()
