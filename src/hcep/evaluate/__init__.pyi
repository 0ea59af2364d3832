from .audit_report import audit as audit
from .compare import DEFAULT_COLUMNS as DEFAULT_COLUMNS, compare_scores as compare_scores
from .drawing import (
    concept_f1 as concept_f1,
    draw_icicle as draw_icicle,
    icicle_page as icicle_page,
    mistakes_by_lca as mistakes_by_lca,
    write_figures as write_figures,
)
from .grade import (
    evaluate_blocks as evaluate_blocks,
    evaluate_method as evaluate_method,
    grade as grade,
    grade_methods as grade_methods,
    intervention_curve as intervention_curve,
)
from .image_scores import score_images as score_images
from .statistics import (
    Difference as Difference,
    expected_calibration_error as expected_calibration_error,
    paired_draws as paired_draws,
    risk_coverage as risk_coverage,
)
from .support import (
    lca_heights as lca_heights,
    support_scores as support_scores,
    tree_distances as tree_distances,
)
