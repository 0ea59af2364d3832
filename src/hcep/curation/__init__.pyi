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
)
from .embedding_checks import (
    Review as Review,
    lint_embeddings as lint_embeddings,
    review as review,
)
from .what_if import HeldOut as HeldOut
