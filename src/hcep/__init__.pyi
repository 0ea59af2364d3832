from . import (
    classify as classify,
    cli as cli,
    datasets as datasets,
    dictionary as dictionary,
    embeddings as embeddings,
    errors as errors,
    evaluate as evaluate,
    explain as explain,
    hierarchy as hierarchy,
    models as models,
    pursuit as pursuit,
    ray as ray,
    taxonomy as taxonomy,
    web as web,
)
from .classify import HCEPClassifier as HCEPClassifier, HCEPTransformer as HCEPTransformer, roll_up as roll_up
from .dictionary import ConceptDictionary as ConceptDictionary
from .errors import HCEPError as HCEPError, HierarchyError as HierarchyError
from .evaluate import support_scores as support_scores, tree_distances as tree_distances
from .explain import explain_images as explain_images
from .hierarchy import Hierarchy as Hierarchy, read_hierarchy as read_hierarchy
from .models import load as load, save as save
from .pursuit import hb_omp as hb_omp, omp as omp

__version__: str
