from .all_methods import METHODS as METHODS, Method as Method, make_method as make_method
from .baselines import (
    CodeClassifier as CodeClassifier,
    ConceptMethod as ConceptMethod,
    LDAClassifier as LDAClassifier,
    LinearProbe as LinearProbe,
    OMPClassifier as OMPClassifier,
)
from .nearest import HNNClassifier as HNNClassifier, NNClassifier as NNClassifier
