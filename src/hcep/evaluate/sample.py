"""The comparison that `hcep demo` shows: five methods on the bundled sample of ImageNette."""

from collections.abc import Callable
from typing import Any

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
    means = {label: one.scores.summary() for label, one in graded.items()}
    return [{"method": label, **{name: means[label][score] for name, score in COLUMNS.items()}} for label in graded]
