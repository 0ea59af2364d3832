"""The methods to compare: one estimator each behind one interface, and all of them by name."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.classify.methods.base import ConceptMethod as ConceptMethod
    from hcep.classify.methods.cbm import CBMClassifier as CBMClassifier
    from hcep.classify.methods.greedy import OMPClassifier as OMPClassifier
    from hcep.classify.methods.linear_probe import LinearProbe as LinearProbe
    from hcep.classify.methods.nearest import HNNClassifier as HNNClassifier
    from hcep.classify.methods.nearest import NNClassifier as NNClassifier
    from hcep.classify.methods.penalised import BasisPursuitClassifier as BasisPursuitClassifier
    from hcep.classify.methods.penalised import SpLiCEClassifier as SpLiCEClassifier
    from hcep.classify.methods.penalised import TreeLassoClassifier as TreeLassoClassifier
    from hcep.classify.methods.registry import METHODS as METHODS
    from hcep.classify.methods.registry import Method as Method
    from hcep.classify.methods.registry import make_method as make_method

__all__ = [
    "METHODS",
    "BasisPursuitClassifier",
    "CBMClassifier",
    "ConceptMethod",
    "HNNClassifier",
    "LinearProbe",
    "Method",
    "NNClassifier",
    "OMPClassifier",
    "SpLiCEClassifier",
    "TreeLassoClassifier",
    "make_method",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "METHODS": "hcep.classify.methods.registry",
        "BasisPursuitClassifier": "hcep.classify.methods.penalised",
        "CBMClassifier": "hcep.classify.methods.cbm",
        "ConceptMethod": "hcep.classify.methods.base",
        "HNNClassifier": "hcep.classify.methods.nearest",
        "LinearProbe": "hcep.classify.methods.linear_probe",
        "Method": "hcep.classify.methods.registry",
        "NNClassifier": "hcep.classify.methods.nearest",
        "OMPClassifier": "hcep.classify.methods.greedy",
        "SpLiCEClassifier": "hcep.classify.methods.penalised",
        "TreeLassoClassifier": "hcep.classify.methods.penalised",
        "make_method": "hcep.classify.methods.registry",
    },
)
