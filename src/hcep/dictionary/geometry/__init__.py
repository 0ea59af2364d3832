"""The paper's geometric conditions, measured: cones, orthogonality, simplices, and what is provably recovered."""

from hcep.dictionary.geometry.recovery import Geometry as Geometry
