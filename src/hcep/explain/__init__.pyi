from . import naming as naming, report as report
from .contrast import Contrast as Contrast, contrast as contrast
from .explanation import Explanation as Explanation, Step as Step, explain as explain
from .photos import (
    ExplainedImage as ExplainedImage,
    ExplainedImages as ExplainedImages,
    explain_images as explain_images,
    find_images as find_images,
)
