"""Measure the paper's geometric conditions: cones, orthogonality, simplices, and provable recovery."""

from hcep.dictionary.geometry.recovery import Geometry as Geometry
