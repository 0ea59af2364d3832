from .baselines import ConceptMethod as ConceptMethod
