from . import induction as induction, llm as llm, naming as naming
from .checks import fix as fix, lint as lint, lint_edges as lint_edges, lint_file as lint_file
from .edits import (
    Add as Add,
    Collapse as Collapse,
    Cut as Cut,
    Merge as Merge,
    Move as Move,
    Remove as Remove,
    Rename as Rename,
    apply_edits as apply_edits,
    diff as diff,
)
from .effects import HeldOut as HeldOut, what_if as what_if
from .embedding_checks import lint_embeddings as lint_embeddings, review as review
from .wordnet import WordNet as WordNet
