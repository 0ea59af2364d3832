"""Paths and labels against truth."""

from hcep.evaluate.calibration import expected_calibration_error
from hcep.evaluate.compare import DEFAULT_COLUMNS, compare_scores
from hcep.evaluate.image_scores import ImageScores, evaluate_method, score_images
from hcep.evaluate.resampling import Difference, Interval
from hcep.evaluate.statistics import (
    bootstrap_interval,
    ece_interval,
    holm,
    mcnemar,
    paired_bootstrap,
    sign_flip_test,
)
from hcep.evaluate.support import SupportScores, support_scores
from hcep.evaluate.table import Score, ScoreTable
from hcep.evaluate.tree import accuracy, lca_heights, tree_distances

__all__ = [
    "DEFAULT_COLUMNS",
    "Difference",
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
    "mcnemar",
    "paired_bootstrap",
    "score_images",
    "sign_flip_test",
    "support_scores",
    "tree_distances",
]
