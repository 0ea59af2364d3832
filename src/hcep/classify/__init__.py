"""Codes -> labels: the scikit-learn estimators, the choice of metric and anchor, baselines."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.classify.baselines import hnn as hnn
    from hcep.classify.baselines import nn as nn
    from hcep.classify.estimators import HCEPClassifier as HCEPClassifier
    from hcep.classify.estimators import HCEPTransformer as HCEPTransformer
    from hcep.classify.leave_one_out import LeaveOneOutScore as LeaveOneOutScore
    from hcep.classify.leave_one_out import leave_one_out_scores as leave_one_out_scores
    from hcep.classify.methods import METHODS as METHODS
    from hcep.classify.methods import make_method as make_method
    from hcep.classify.path_model import PathModel as PathModel

__all__ = [
    "METHODS",
    "HCEPClassifier",
    "HCEPTransformer",
    "LeaveOneOutScore",
    "PathModel",
    "hnn",
    "leave_one_out_scores",
    "make_method",
    "nn",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "METHODS": "hcep.classify.methods",
        "HCEPClassifier": "hcep.classify.estimators",
        "HCEPTransformer": "hcep.classify.estimators",
        "LeaveOneOutScore": "hcep.classify.leave_one_out",
        "PathModel": "hcep.classify.path_model",
        "hnn": "hcep.classify.baselines",
        "leave_one_out_scores": "hcep.classify.leave_one_out",
        "make_method": "hcep.classify.methods",
        "nn": "hcep.classify.baselines",
    },
)
