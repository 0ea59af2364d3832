"""Paths and labels against truth."""

from typing import TYPE_CHECKING

from hcep.evaluate.calibration import expected_calibration_error
from hcep.evaluate.comparison import DEFAULT_COLUMNS, compare_scores
from hcep.evaluate.image_scores import ImageScores, evaluate_method, score_images
from hcep.evaluate.induced import score_induced
from hcep.evaluate.resampling import Difference, Interval
from hcep.evaluate.score_table import Score, ScoreTable
from hcep.evaluate.statistics import (
    bootstrap_interval,
    ece_interval,
    holm,
    mcnemar,
    paired_bootstrap,
    sign_flip_test,
)
from hcep.evaluate.support import SupportScores, support_scores
from hcep.evaluate.tree import accuracy, lca_heights, tree_distances
from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.evaluate.held_out import HeldOut as HeldOut
    from hcep.evaluate.hierarchy_lint import lint_embeddings as lint_embeddings

__all__ = [
    "DEFAULT_COLUMNS",
    "Difference",
    "HeldOut",
    "ImageScores",
    "Interval",
    "Score",
    "ScoreTable",
    "SupportScores",
    "accuracy",
    "bootstrap_interval",
    "compare_scores",
    "ece_interval",
    "evaluate_method",
    "expected_calibration_error",
    "holm",
    "lca_heights",
    "lint_embeddings",
    "mcnemar",
    "paired_bootstrap",
    "score_images",
    "score_induced",
    "sign_flip_test",
    "support_scores",
    "tree_distances",
]

# These need the estimators, which take longer to import than all the rest.
__getattr__, _ = lazy_names(
    __name__, {"HeldOut": "hcep.evaluate.held_out", "lint_embeddings": "hcep.evaluate.hierarchy_lint"}
)
