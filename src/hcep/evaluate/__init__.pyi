from .audit_checks import Check as Check
from .audit_report import Audit as Audit, audit as audit
from .compare import (
    DEFAULT_COLUMNS as DEFAULT_COLUMNS,
    RunningScores as RunningScores,
    compare_scores as compare_scores,
    evaluate_blocks as evaluate_blocks,
)
from .drawing import (
    concept_f1 as concept_f1,
    concept_means as concept_means,
    draw_icicle as draw_icicle,
    draw_interventions as draw_interventions,
    draw_mistakes as draw_mistakes,
    draw_risk_coverage as draw_risk_coverage,
    icicle_page as icicle_page,
    mistakes_by_lca as mistakes_by_lca,
    write_figures as write_figures,
)
from .grade import (
    Corrected as Corrected,
    Graded as Graded,
    Grades as Grades,
    grade as grade,
    grade_methods as grade_methods,
    intervention_curve as intervention_curve,
    limited as limited,
)
from .image_scores import ImageScores as ImageScores, evaluate_method as evaluate_method, score_images as score_images
from .statistics import (
    Difference as Difference,
    Interval as Interval,
    RiskCoverage as RiskCoverage,
    bootstrap_interval as bootstrap_interval,
    ece_interval as ece_interval,
    expected_calibration_error as expected_calibration_error,
    holm as holm,
    mcnemar as mcnemar,
    paired_bootstrap as paired_bootstrap,
    paired_draws as paired_draws,
    risk_coverage as risk_coverage,
    sign_flip_test as sign_flip_test,
)
from .support import (
    SupportScores as SupportScores,
    lca_heights as lca_heights,
    support_scores as support_scores,
    tree_distances as tree_distances,
)
from .table import Score as Score, ScoreTable as ScoreTable
