"""Hierarchical Concept Embedding & Pursuit: image classification explained by rooted paths of concepts.

Names and subpackages are loaded on first use, so that importing the package stays cheap; ``__init__.pyi`` lists them.
"""

import lazy_loader

__version__ = "0.1.0"

__all__ = [
    "ConceptDictionary",
    "HCEPClassifier",
    "HCEPError",
    "HCEPTransformer",
    "Hierarchy",
    "HierarchyError",
    "explain_images",
    "hb_omp",
    "load",
    "omp",
    "read_hierarchy",
    "roll_up",
    "save",
    "support_scores",
    "tree_distances",
]

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
