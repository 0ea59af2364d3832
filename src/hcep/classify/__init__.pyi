from .calibration import Calibration as Calibration
from .choosing import LeaveOneOutScore as LeaveOneOutScore
from .classifier import HCEPClassifier as HCEPClassifier
from .heads import AdamWHead as AdamWHead
from .methods import METHODS as METHODS, make_method as make_method
from .methods.nearest import hnn as hnn, nn as nn
from .multilabel import MultiLabelHCEP as MultiLabelHCEP
from .path_model import Inference as Inference, PathModel as PathModel
from .transformer import HCEPTransformer as HCEPTransformer
