from .concept_dictionary import ConceptDictionary as ConceptDictionary
from .path_problem import DependentAtomsWarning as DependentAtomsWarning, PathProblem as PathProblem
