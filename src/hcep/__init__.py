"""Hierarchical Concept Embedding & Pursuit: image classification explained by rooted paths of concepts.

Names are loaded on first use, so that importing the package stays cheap.
"""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
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
        "datasets": "hcep.datasets",
        "embeddings": "hcep.embeddings",
        "evaluate": "hcep.evaluate",
        "models": "hcep.models",
    },
)
