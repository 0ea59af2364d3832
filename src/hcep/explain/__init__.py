"""Paths -> something a person can use."""

from hcep.explain.contrast import Contrast, contrast
from hcep.explain.explanation import Explanation, Step, explain

__all__ = ["Contrast", "Explanation", "Step", "contrast", "explain"]
