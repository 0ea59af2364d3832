"""Hierarchical Beam OMP: one matrix product, then a search over numbers that are already there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.errors import HCEPError
from hcep.hierarchy import PathTree
from hcep.pursuit.blocks import block_size, for_blocks, squared_norms
from hcep.pursuit.result import PathResult, Trace, path_codes


@dataclass(frozen=True)
class _Search:
    """A checked configuration: every field is what the kernels take."""

    dictionary: ConceptDictionary
    basis: PathBasis
    beam_width: int | None
    max_steps: int
    tol: float
    signed: bool
    anchor: float
    n_best: int
    trace_width: int
    complete: NDArray[np.bool_]


def hb_omp(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    beam_width: int | None = 8,
    max_steps: int | None = None,
    tol: float = 0.0,
    signed: bool = False,
    anchor: float = 0.0,
    *,
    n_best: int = 1,
    trace: bool = False,
    progress: bool = False,
    n_jobs: int | None = None,
) -> PathResult:
    """Recover a rooted path of concepts for every image.

    Parameters
    ----------
    X : (n_images, n_dims) array
        Raw embeddings; they go through the dictionary's transform. float32 (or half) is searched in single precision,
        everything else in double.
    dictionary : ConceptDictionary
    beam_width : int or None
        Hypotheses kept after every step, and children tried for each. None searches all rooted paths exactly.
    max_steps : int, optional
        Length of the longest path to return; the depth of the hierarchy by default.
    tol : float
        Stop as soon as a hypothesis leaves a residual of smaller norm, measured in the dictionary's space.
    signed : bool
        A child is eligible only if its new coefficient is positive; a hypothesis without such a child ends there.
    anchor : float
        Weight lambda of the prior that coefficients are 1. 0 is the published algorithm.
    n_best : int
        Hypotheses of the final beam to return for each image, the answer included.
    trace : bool
        Keep the beam of every step (meant for a few images).
    progress : bool
        Show a progress bar.
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Returns
    -------
    PathResult

    Raises
    ------
    HCEPError
        A bad option, NaN or infinite values, a wrong number of dimensions.

    Notes
    -----
    With ``signed=False, anchor=0`` this is Algorithm 2 of the paper with its Algorithm 3: of each hypothesis the
    `beam_width` children of highest ``|cos(r, d)|`` are tried, of all extensions the `beam_width` of lowest
    ``||r||`` kept, finished ones among them. Otherwise it is the same search for::

        minimise over rooted paths and a   ||x - sum_v a_v d_v||**2 + lambda * ||a - 1||**2

    Ties go to the node that comes first in the tree of rooted paths (breadth first).

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy, hb_omp
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.0], "car": [0.0, 0.0, 3.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> found = hb_omp(np.array([[2.0, 1.2, 0.0]]), d, signed=True)
    >>> found.paths, found.coefficients(0)
    ([('animal', 'cat')], array([1. , 1.2]))
    """
    rows = check_shape(X, dictionary.n_dims)
    search = _checked(dictionary, beam_width, max_steps, tol, signed, anchor, n_best, trace, len(rows))
    n, basis = len(rows), search.basis
    nodes = np.full((n, n_best), -1, dtype=np.int32)
    norms = np.full((n, n_best), np.nan)
    coefficients = np.zeros((n, basis.tree.depth), dtype=working_dtype(rows))
    steps = np.full((n, search.max_steps + 1 if trace else 0, search.trace_width), -1, dtype=np.int32)
    step_norms = np.full(steps.shape, np.nan)

    def work(block: slice) -> None:
        x, p, squares = _project(search, rows, block)
        _search_block(search, x, p, squares, nodes[block], steps[block])
        _finish(search, x, p, squares, nodes[block, 0], coefficients[block], norms[block, 0])
        for found, left in _columns(nodes[block, 1:], norms[block, 1:]):
            _finish(search, x, p, squares, found, None, left)
        for found, left in _columns(_flat(steps[block]), _flat(step_norms[block])):
            _finish(search, x, p, squares, found, None, left)

    for_blocks(n, work, n_jobs, progress, "pursuit", block_size(len(basis.directions)))
    answer = np.ascontiguousarray(nodes[:, 0])
    return PathResult(
        dictionary=dictionary,
        codes=path_codes(dictionary, answer, coefficients),
        residual_norms=np.ascontiguousarray(norms[:, 0]),
        nodes=answer,
        n_best_nodes=nodes,
        n_best_residual_norms=norms,
        trace=Trace(dictionary, steps, step_norms) if trace else None,
    )


def path_objectives(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    signed: bool = False,
    anchor: float = 0.0,
    *,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Objective of every complete rooted path, (n_images, n_leaf_paths), in the order of ``path_tree.leaf_nodes``.

    ``||x - D^T a||**2 + lambda ||a - 1||**2`` at its minimum over a; infinite where the signed rule bars the path. The
    column of lowest objective is the answer of ``hb_omp(..., beam_width=None)`` whenever that ends in a leaf.
    """
    from hcep.pursuit import kernels

    rows = check_shape(X, dictionary.n_dims)
    search = _checked(dictionary, None, None, 0.0, signed, anchor, 1, False, len(rows))
    tree, basis = search.basis.tree, search.basis
    leaves = tree.leaf_nodes
    out = np.empty((len(rows), len(leaves)))

    def work(block: slice) -> None:
        _, p, squares = _project(search, rows, block)
        scores = out[block]
        kernels.leaf_scores(
            p, basis.offset, basis.column, basis.sign, tree.parent, search.anchor, signed, leaves, scores
        )
        np.subtract(squares[:, None], scores, out=scores)

    for_blocks(len(rows), work, n_jobs, block=block_size(len(basis.directions)))
    return out


def _checked(
    dictionary: ConceptDictionary,
    beam_width: int | None,
    max_steps: int | None,
    tol: float,
    signed: bool,
    anchor: float,
    n_best: int,
    trace: bool,
    n_images: int,
) -> _Search:
    require_positive("beam_width", beam_width, "an exact search of all rooted paths")
    require_positive("max_steps", max_steps, "the depth of the hierarchy")
    require_positive("n_best", n_best)
    basis = dictionary.anchored_path_basis(require_not_negative("anchor", anchor))
    n_paths = len(basis.tree.leaf_nodes)
    width = min(beam_width or n_paths, n_paths)
    steps = min(max_steps or basis.tree.depth, basis.tree.depth)
    if trace and n_images * (steps + 1) * width > 200_000_000:
        raise HCEPError(
            f"a trace of {n_images:,} images, {steps} steps and {width:,} hypotheses is too large; "
            "trace fewer images, or with a narrower beam"
        )
    return _Search(
        dictionary=dictionary,
        basis=basis,
        beam_width=beam_width and width,
        max_steps=steps,
        tol=require_not_negative("tol", tol),
        signed=bool(signed),
        anchor=float(anchor),
        n_best=n_best,
        trace_width=width if trace else 0,
        complete=_complete(basis.tree, steps),
    )


def _complete(tree: PathTree, max_steps: int) -> NDArray[np.bool_]:
    """Whether a path may end at a node, for the nodes within the step limit: at a leaf, or at the limit."""
    within = int(np.searchsorted(tree.level, max_steps + 1))
    ends: NDArray[np.bool_] = (tree.n_children[:within] == 0) | (tree.level[:within] == max_steps)
    return ends


def _project(search: _Search, rows: NDArray[Any], block: slice) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """A block in the dictionary's space, its p_v and its squared norms."""
    raw = rows[block].astype(working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x = np.ascontiguousarray(search.dictionary.transform(raw))
    basis = search.basis
    directions = basis.directions32 if x.dtype == np.float32 else basis.directions
    return x, x @ directions.T, squared_norms(x)


def _search_block(
    search: _Search,
    x: NDArray[Any],
    p: NDArray[Any],
    squares: NDArray[np.float64],
    final_nodes: NDArray[np.int32],
    steps: NDArray[np.int32],
) -> None:
    from hcep.pursuit import kernels

    basis, tree = search.basis, search.basis.tree
    if search.beam_width is None and search.tol == 0.0 and not steps.size:
        if search.signed:
            kernels.search_all_signed(
                p, basis.offset, basis.column, basis.sign, tree.parent, tree.level, search.max_steps, search.anchor,
                final_nodes,
            )  # fmt: skip
        else:
            kernels.search_all(p, basis.offset, basis.column, tree.parent, search.complete, search.anchor, final_nodes)
        return
    width, widest, n_paths = search.beam_width or len(tree.leaf_nodes), tree.n_children.max(), len(tree.leaf_nodes)
    # Hypotheses of one step are disjoint subtrees, so that there are never more of them than leaves.
    n_tried = min(width * min(widest, width), n_paths)
    kernels.search_beam(
        x, p, basis.offset, squares, basis.column, basis.sign, basis.share, tree.parent, tree.level, tree.first_child,
        tree.n_children, tree.edge, basis.triangle, search.dictionary.atoms, width, int(widest), int(n_tried),
        search.max_steps, search.tol, search.signed, search.anchor, _cancelled(x), final_nodes, steps,
    )  # fmt: skip


def _finish(
    search: _Search,
    x: NDArray[Any],
    p: NDArray[Any],
    squares: NDArray[np.float64],
    nodes: NDArray[np.int32],
    coefficients: NDArray[Any] | None,
    norms: NDArray[np.float64],
) -> None:
    from hcep.pursuit import kernels

    basis, tree = search.basis, search.basis.tree
    if coefficients is None:
        coefficients = np.empty((len(nodes), tree.depth), dtype=x.dtype)
    kernels.finish_paths(
        x, p, basis.offset, nodes, squares, basis.column, basis.sign, tree.parent, tree.level, tree.edge,
        basis.triangle, search.dictionary.atoms, search.anchor, _cancelled(x), coefficients, norms,
    )  # fmt: skip


def _cancelled(x: NDArray[Any]) -> float:
    from hcep.pursuit import kernels

    return kernels.CANCELLED_32 if x.dtype == np.float32 else kernels.CANCELLED_64


def _columns(nodes: NDArray[Any], norms: NDArray[Any]) -> Any:
    return zip(nodes.T, norms.T, strict=True)


def _flat(steps: NDArray[Any]) -> NDArray[Any]:
    return steps.reshape(len(steps), -1)
