"""Data to try things on: the bundled sample and the paper's synthetic model."""

from hcep.datasets.sample_data import load_sample
from hcep.datasets.synthetic import make_hierarchical_concepts

__all__ = ["load_sample", "make_hierarchical_concepts"]
