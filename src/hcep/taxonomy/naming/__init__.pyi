from .interpretation import interpret as interpret, interpretation_table as interpretation_table
from .language_model import describe_atoms as describe_atoms, summarize_atoms as summarize_atoms
from .nearest import exemplars as exemplars, name_atoms as name_atoms
from .phrases import embed_phrases as embed_phrases, read_phrases as read_phrases
