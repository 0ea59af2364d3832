"""Hierarchical Concept Embedding & Pursuit: image classification explained by rooted paths of concepts.

Names are loaded on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier as HCEPClassifier
    from hcep.classify import HCEPTransformer as HCEPTransformer
    from hcep.classify import hnn as hnn
    from hcep.classify import nn as nn
    from hcep.dictionary import ConceptDictionary as ConceptDictionary
    from hcep.errors import HCEPError as HCEPError
    from hcep.evaluate import accuracy as accuracy
    from hcep.evaluate import support_scores as support_scores
    from hcep.evaluate import tree_distances as tree_distances
    from hcep.hierarchy import Hierarchy as Hierarchy
    from hcep.hierarchy import HierarchyError as HierarchyError
    from hcep.pursuit import hb_omp as hb_omp
    from hcep.pursuit import omp as omp

__version__ = "0.1.0"

_HOME = {
    "ConceptDictionary": "hcep.dictionary",
    "HCEPClassifier": "hcep.classify",
    "HCEPError": "hcep.errors",
    "HCEPTransformer": "hcep.classify",
    "Hierarchy": "hcep.hierarchy",
    "HierarchyError": "hcep.hierarchy",
    "accuracy": "hcep.evaluate",
    "hb_omp": "hcep.pursuit",
    "hnn": "hcep.classify",
    "nn": "hcep.classify",
    "omp": "hcep.pursuit",
    "support_scores": "hcep.evaluate",
    "tree_distances": "hcep.evaluate",
}

__all__ = [
    "ConceptDictionary",
    "HCEPClassifier",
    "HCEPError",
    "HCEPTransformer",
    "Hierarchy",
    "HierarchyError",
    "accuracy",
    "hb_omp",
    "hnn",
    "nn",
    "omp",
    "support_scores",
    "tree_distances",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in ("datasets", "evaluate"):
        return import_module(f"hcep.{name}")
    raise AttributeError(f"module 'hcep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
