from . import report as report
from .corrections import Correction as Correction, Corrections as Corrections, image_hash as image_hash
from .evidence import Contributions as Contributions, Flip as Flip, WhyNot as WhyNot
from .explained import (
    ExplainedImage as ExplainedImage,
    ExplainedImages as ExplainedImages,
    Level as Level,
    Rival as Rival,
)
from .explanation import (
    Contrast as Contrast,
    Explanation as Explanation,
    Step as Step,
    contrast as contrast,
    explain as explain,
)
from .finding import find_images as find_images
from .neighbours import TrainingPhoto as TrainingPhoto, nearest_photos as nearest_photos
from .photos import explain_images as explain_images
from .where import EvidenceMap as EvidenceMap, concept_maps as concept_maps, margin_map as margin_map
