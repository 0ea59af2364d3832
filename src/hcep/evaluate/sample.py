"""The comparison that `hcep demo` shows: five methods on the bundled sample of ImageNette."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from hcep.classify import HCEPClassifier
from hcep.classify.methods.baselines import OMPClassifier
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from hcep.datasets import load_sample
from hcep.evaluate.grade import grade_methods

#: Columns of the table, and the per-image scores they average.
COLUMNS = {
    "accuracy": "correct",
    "precision": "support_precision",
    "recall": "support_recall",
    "tree_distance": "tree_distance",
}


def compare_on_sample(on_method: Callable[[str], None] = lambda label: None) -> list[dict[str, Any]]:
    """Fit and grade five methods on the sample, under WordNet's first-hypernym tree; a row per method.

    `on_method` is called with the label of each method before it is fitted.
    """
    sample = load_sample()
    tree = sample.hierarchy.as_tree("first")
    methods = {
        "OMP": OMPClassifier(tree, head="adamw"),
        "HNN": HNNClassifier(tree, head="adamw"),
        "NN": NNClassifier(tree),
        "HB-OMP (paper)": HCEPClassifier.paper(tree, beam_width=8),
        "HCEP (ours)": HCEPClassifier(tree),
    }
    graded = grade_methods(methods, (sample.X_val, sample.y_val), (sample.X_train, sample.y_train), on_method=on_method)
    rows = []
    for label, one in graded.items():
        means = one.scores.summary()
        scores = {name: means[score] for name, score in COLUMNS.items()}
        rows.append({"method": label, **scores, "images_per_second": _speed(one.estimator, sample.X_val)})
    return rows


def _speed(estimator: Any, X: Any, n_images: int = 4096, repeats: int = 3) -> float:
    """Return the images per second from embeddings to classes, the same work for each method; the median of repeats."""
    many = np.resize(X, (n_images, X.shape[1]))
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        estimator.predict(many)
        seconds.append(perf_counter() - start)
    return n_images / median(seconds)
