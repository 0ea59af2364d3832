"""Every method of `hcep.classify.METHODS` on real embeddings: accuracy, supports, seconds.

    python benchmarks/methods.py [--data imagenette tiny-12] [--methods omp hb-omp ...] [--head adamw]

Reads the embeddings in HCEP_SHARED (default: ../shared beside the project) and prints one Markdown table a data set.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

from hcep import support_scores
from hcep.classify import METHODS, make_method
from hcep.dictionary import DependentAtomsWarning
from hcep.evaluate import accuracy

from defaults import Data, load, shots  # isort: skip

DATA: dict[str, tuple[str, int | None]] = {
    "imagenette": ("imagenette_efficientnet_lite2.npz", None),
    "tiny-12": ("tinyimagenet200_efficientnet_lite2.npz", 12),
    "tiny-50": ("tinyimagenet200_efficientnet_lite2.npz", None),
}


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def row(name: str, data: Data, X: Any, y: Any, options: dict[str, Any]) -> str:
    """Fit and evaluate one method; a first fit on a few images has compiled what it needs."""
    model = make_method(name, data.hierarchy, **options)
    make_method(name, data.hierarchy, **options).fit(*shots(data, 2, 0)).predict(data.X_val[:2])
    _, fitting = timed(lambda: model.fit(X, y))
    found, pursuing = timed(lambda: model.pursue(data.X_val))
    precision, recall = support_scores(found, data.y_val, model.hierarchy_).mean
    right = accuracy(data.y_val, model.predict(data.X_val))
    cells = (f"{right:.3f}", f"{precision:.3f}", f"{recall:.3f}", f"{fitting:.1f}", f"{pursuing:.2f}")
    return f"| {METHODS[name].label} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=["imagenette", "tiny-12"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--head", choices=["logistic", "adamw"])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", DependentAtomsWarning)
    for name in chosen.data:
        file, k = DATA[name]
        data = load(name, file)
        X, y = shots(data, k, 0)
        print(
            f"\n{name}: {len(y):,} training and {len(data.y_val):,} validation images, {len(data.hierarchy)} synsets\n"
        )
        print("| method | accuracy | precision | recall | fit s | pursue s |\n|---|---|---|---|---|---|")
        for method in chosen.methods:
            has_head = chosen.head and method != "nn"
            print(row(method, data, X, y, {"head": chosen.head} if has_head else {}), flush=True)


if __name__ == "__main__":
    main()
