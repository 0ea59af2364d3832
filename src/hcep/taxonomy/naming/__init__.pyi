from .by_language_model import (
    Descriptions as Descriptions,
    Failure as Failure,
    Summaries as Summaries,
    describe_atoms as describe_atoms,
    summarize_atoms as summarize_atoms,
)
from .interpretation import (
    Interpretation as Interpretation,
    chosen_edges as chosen_edges,
    interpret as interpret,
    interpretation_table as interpretation_table,
    with_glosses as with_glosses,
)
from .nearest import (
    AtomName as AtomName,
    AtomNames as AtomNames,
    Exemplar as Exemplar,
    Phrase as Phrase,
    exemplars as exemplars,
    name_atoms as name_atoms,
    raw_atoms as raw_atoms,
)
from .phrases import (
    embed_phrases as embed_phrases,
    gloss_phrases as gloss_phrases,
    merge_pools as merge_pools,
    read_embedded_phrases as read_embedded_phrases,
    read_phrases as read_phrases,
)
