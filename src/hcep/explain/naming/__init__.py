"""Names for atoms: phrases near them, images along them, a language model's summary."""

from hcep.explain.naming.asking import Failure
from hcep.explain.naming.atom_names import AtomName, AtomNames, Exemplar, Phrase, chosen_edges, with_glosses
from hcep.explain.naming.descriptions import Descriptions, describe_atoms
from hcep.explain.naming.exemplars import exemplars
from hcep.explain.naming.name_table import interpretation_table
from hcep.explain.naming.nearest_phrases import name_atoms, raw_atoms
from hcep.explain.naming.pools import embed_phrases, gloss_phrases, merge_pools, read_phrases
from hcep.explain.naming.summaries import Summaries, summarize_atoms

__all__ = [
    "AtomName",
    "AtomNames",
    "Descriptions",
    "Exemplar",
    "Failure",
    "Phrase",
    "Summaries",
    "chosen_edges",
    "describe_atoms",
    "embed_phrases",
    "exemplars",
    "gloss_phrases",
    "interpretation_table",
    "merge_pools",
    "name_atoms",
    "raw_atoms",
    "read_phrases",
    "summarize_atoms",
    "with_glosses",
]
