"""Data to try the method on: the paper's synthetic model."""

from hcep.datasets.synthetic import make_hierarchical_concepts

__all__ = ["make_hierarchical_concepts"]
