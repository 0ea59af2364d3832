from .checks import DictionaryError as DictionaryError
from .concept_dictionary import ConceptDictionary as ConceptDictionary
from .moments import ClassMoments as ClassMoments
from .path_basis import DependentAtomsWarning as DependentAtomsWarning, PathBasis as PathBasis
from .transform import EmbeddingTransform as EmbeddingTransform
