from .all_methods import METHODS as METHODS, Method as Method, make_method as make_method
from .base import CodeClassifier as CodeClassifier, ConceptMethod as ConceptMethod
from .cbm import CBMClassifier as CBMClassifier
from .flat import (
    BasisPursuitClassifier as BasisPursuitClassifier,
    LDAClassifier as LDAClassifier,
    LinearProbe as LinearProbe,
    NonNegativeLassoClassifier as NonNegativeLassoClassifier,
    OMPClassifier as OMPClassifier,
    PenalisedMethod as PenalisedMethod,
    TreeLassoClassifier as TreeLassoClassifier,
)
from .nearest import HNNClassifier as HNNClassifier, NNClassifier as NNClassifier
