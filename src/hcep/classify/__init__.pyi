from .classifier import HCEPClassifier as HCEPClassifier
from .heads import AdamWHead as AdamWHead
from .methods.all_methods import METHODS as METHODS, make_method as make_method
from .methods.nearest import hnn as hnn, nn as nn
from .multilabel import MultiLabelHCEP as MultiLabelHCEP
from .transformer import HCEPTransformer as HCEPTransformer
