from .interpretation import interpret as interpret, interpretation_table as interpretation_table
from .language_model import summarize_atoms as summarize_atoms
from .nearest import exemplars as exemplars, name_atoms as name_atoms
