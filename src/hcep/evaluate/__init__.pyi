from .audit_report import audit as audit
from .compare import compare_scores as compare_scores
from .drawing import concept_f1 as concept_f1
from .grade import evaluate_method as evaluate_method
from .image_scores import score_images as score_images
from .statistics import (
    expected_calibration_error as expected_calibration_error,
    paired_draws as paired_draws,
    risk_coverage as risk_coverage,
)
from .support import support_scores as support_scores, tree_distances as tree_distances
