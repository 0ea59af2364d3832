"""Diagnostics of the paper's geometric conditions on a dictionary."""

from hcep.dictionary.geometry.measures import Geometry

__all__ = ["Geometry"]
