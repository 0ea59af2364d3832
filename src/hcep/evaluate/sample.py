"""The comparison that `hcep demo` shows: five methods on the bundled sample of ImageNette."""

from collections.abc import Callable
from typing import Any

from hcep.classify import HCEPClassifier
from hcep.classify.methods.baselines import OMPClassifier
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from hcep.datasets import load_sample
from hcep.evaluate.grade import grade_methods

PAPER, OURS = "HB-OMP (paper)", "HCEP (ours)"
#: Methods that predict the class with the published linear head instead of the leaf of a path.
WITH_HEAD = ("OMP", "HNN", PAPER)
#: Columns of the table, and the per-image scores they average.
COLUMNS = {
    "accuracy": "correct",
    "precision": "support_precision",
    "recall": "support_recall",
    "tree_distance": "tree_distance",
}


def compare_on_sample(
    beam_width: int = 8, on_method: Callable[[str], None] = lambda label: None
) -> list[dict[str, Any]]:
    """Fit and grade five methods on the sample, under WordNet's first-hypernym tree; a row per method.

    Parameters
    ----------
    beam_width : beam of the paper's HB-OMP
    on_method : called with the label of each method before it is fitted
    """
    sample = load_sample()
    tree = sample.hierarchy.as_tree("first")
    methods = {
        "OMP": OMPClassifier(tree, head="adamw"),
        "HNN": HNNClassifier(tree, head="adamw"),
        "NN": NNClassifier(tree),
        PAPER: HCEPClassifier.paper(tree, beam_width=beam_width),
        OURS: HCEPClassifier(tree),
    }
    graded = grade_methods(methods, (sample.X_val, sample.y_val), (sample.X_train, sample.y_train), on_method=on_method)
    rows: list[dict[str, Any]] = []
    for label, grade in graded.items():
        means = grade.scores.summary()
        row = {"method": label, "label_from": "published head" if label in WITH_HEAD else "leaf of the path"}
        scores = {column: means[score] for column, score in COLUMNS.items()}
        rows.append({**row, **scores, "images_per_second": grade.speed(sample.X_val)})
    return rows
