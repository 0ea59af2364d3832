"""Names for atoms: phrases near them, images along them, a language model's summary."""

from hcep.explain.naming.by_language_model import Descriptions, Failure, Summaries, describe_atoms, summarize_atoms
from hcep.explain.naming.interpretation import (
    Interpretation,
    chosen_edges,
    interpret,
    interpretation_table,
    with_glosses,
)
from hcep.explain.naming.nearest import exemplars, name_atoms, raw_atoms
from hcep.explain.naming.phrases import embed_phrases, gloss_phrases, merge_pools, read_embedded_phrases, read_phrases
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase

__all__ = [
    "AtomName", "AtomNames", "Descriptions", "Exemplar", "Failure", "Interpretation", "Phrase", "Summaries",
    "chosen_edges", "describe_atoms", "embed_phrases", "exemplars", "gloss_phrases", "interpret",
    "interpretation_table", "merge_pools", "name_atoms", "raw_atoms", "read_embedded_phrases", "read_phrases",
    "summarize_atoms", "with_glosses",
]  # fmt: skip
