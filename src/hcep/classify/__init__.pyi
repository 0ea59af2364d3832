from .estimators import HCEPClassifier as HCEPClassifier, HCEPTransformer as HCEPTransformer
from .heads import AdamWHead as AdamWHead
from .leave_one_out import LeaveOneOutScore as LeaveOneOutScore, leave_one_out_scores as leave_one_out_scores
from .methods import METHODS as METHODS, make_method as make_method
from .methods.nearest import hnn as hnn, nn as nn
from .path_model import Inference as Inference, PathModel as PathModel
