"""Hierarchy + vectors -> atoms and the path basis."""

from hcep.dictionary.concept_dictionary import ConceptDictionary, class_moments
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.path_basis import DependentAtomsWarning, PathBasis
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import DictionaryError

__all__ = [
    "ClassMoments",
    "ConceptDictionary",
    "DependentAtomsWarning",
    "DictionaryError",
    "EmbeddingTransform",
    "PathBasis",
    "class_moments",
]
