from .classifier import HCEPClassifier as HCEPClassifier
from .heads import AdamWHead as AdamWHead
from .methods.all_methods import METHODS as METHODS, make_method as make_method
from .methods.nearest import hnn as hnn, nn as nn
from .right_level import calibrate_levels as calibrate_levels, roll_up as roll_up
from .transformer import HCEPTransformer as HCEPTransformer
