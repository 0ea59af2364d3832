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
)
from .embedding_checks import lint_embeddings as lint_embeddings
from .file_checks import lint_edges as lint_edges, lint_file as lint_file
from .findings import Finding as Finding
from .graph_checks import fix as fix, lint as lint
from .held_out import HeldOut as HeldOut
from .mending import Review as Review, review as review
