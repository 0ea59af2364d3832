from . import formats as formats, induction as induction, llm as llm, naming as naming
from .checks import Finding as Finding, fix as fix, lint as lint, lint_edges as lint_edges, lint_file as lint_file
from .edits import (
    Add as Add,
    Collapse as Collapse,
    Cut as Cut,
    Edit as Edit,
    Merge as Merge,
    Move as Move,
    Remove as Remove,
    Rename as Rename,
    apply_edits as apply_edits,
    diff as diff,
    parse_edits as parse_edits,
)
from .embedding_checks import (
    Review as Review,
    lint_embeddings as lint_embeddings,
    review as review,
)
from .files import (
    match_classes as match_classes,
    read_described as read_described,
    read_hierarchy as read_hierarchy,
    write_hierarchy as write_hierarchy,
)
from .formats import FORMATS as FORMATS, Format as Format
from .what_if import HeldOut as HeldOut
from .wordnet import WordNet as WordNet
