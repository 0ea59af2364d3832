"""Hierarchical Concept Embedding & Pursuit."""
from hcep.dictionary import ConceptDictionary
from hcep.hierarchy import Hierarchy
from hcep.pursuit import hb_omp, omp
