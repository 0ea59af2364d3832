"""Codes -> labels: the scikit-learn estimators, the choice of metric and anchor, baselines."""

from hcep.classify.baselines import hnn, nn
from hcep.classify.estimators import HCEPClassifier, HCEPTransformer
from hcep.classify.leave_one_out import LeaveOneOutScore, leave_one_out_scores

__all__ = ["HCEPClassifier", "HCEPTransformer", "LeaveOneOutScore", "hnn", "leave_one_out_scores", "nn"]
