"""Hierarchical Beam OMP: one matrix product, then a search over numbers that are already there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.errors import HCEPError
from hcep.hierarchy import PathTree
from hcep.pursuit.blocks import block_size, for_blocks, n_threads, squared_norms
from hcep.pursuit.result import PathResult, Trace, path_codes

#: A block of images and the objective of every complete rooted path of theirs.
OnObjectives = Callable[[slice, NDArray[np.float64]], None]


@dataclass(frozen=True)
class SearchOptions:
    """How rooted paths are searched, checked once; see `hb_omp` for what each option does.

    Raises
    ------
    HCEPError
        An option that is none of those `hb_omp` describes.

    Examples
    --------
    >>> from hcep.pursuit import SearchOptions
    >>> SearchOptions(beam_width=None, anchor=0.03)
    SearchOptions(beam_width=None, max_steps=None, tol=0.0, signed=False, anchor=0.03, n_jobs=None)
    """

    beam_width: int | None = 8
    max_steps: int | None = None
    tol: float = 0.0
    signed: bool = False
    anchor: float = 0.0
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_positive("beam_width", self.beam_width, "an exact search of all rooted paths")
        require_positive("max_steps", self.max_steps, "the depth of the hierarchy")
        require_not_negative("tol", self.tol)
        require_not_negative("anchor", self.anchor)
        n_threads(self.n_jobs)


def hb_omp(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    *,
    beam_width: int | None = 8,
    max_steps: int | None = None,
    tol: float = 0.0,
    signed: bool = False,
    anchor: float = 0.0,
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
    options = SearchOptions(beam_width, max_steps, tol, signed, anchor, n_jobs)
    return search(X, dictionary, options, n_best=n_best, trace=trace, progress=progress)


def search(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    options: SearchOptions,
    *,
    n_best: int = 1,
    trace: bool = False,
    progress: bool = False,
    explained: bool = False,
    on_objectives: OnObjectives | None = None,
) -> PathResult:
    """As `hb_omp`, with all that else is known from the same products of images and directions.

    Parameters
    ----------
    X, dictionary, n_best, trace, progress : as for `hb_omp`
    options : SearchOptions
    explained : bool
        Fill ``PathResult.explained_shares``.
    on_objectives : callable, optional
        Called as ``on_objectives(block, objectives)`` for every block of images, a slice of X, with the objective of
        every complete rooted path, (n_images of the block, n_leaf_paths), as `path_objectives` gives it. The array is
        the caller's to keep; blocks come from several threads and in any order.
    """
    rows = check_shape(X, dictionary.n_dims)
    plan = _Plan.make(dictionary, options)
    require_positive("n_best", n_best)
    n, depth = len(rows), plan.basis.tree.depth
    if trace and n * (plan.max_steps + 1) * plan.width > 200_000_000:
        raise HCEPError(
            f"a trace of {n:,} images, {plan.max_steps} steps and {plan.width:,} hypotheses is too large; "
            "trace fewer images, or with a narrower beam"
        )
    nodes = np.full((n, n_best), -1, dtype=np.int32)
    norms = np.full((n, n_best), np.nan)
    coefficients = np.zeros((n, depth), dtype=working_dtype(rows))
    steps = np.full((n, plan.max_steps + 1 if trace else 0, plan.width if trace else 0), -1, dtype=np.int32)
    step_norms = np.full(steps.shape, np.nan)
    shares = np.full((n, depth), np.nan) if explained else None

    def work(block: slice) -> None:
        x, p, squares = project(rows, block, dictionary, plan.basis)
        if on_objectives is not None:
            on_objectives(block, plan.objectives(p, squares))
        plan.search(x, p, squares, nodes[block], steps[block])
        plan.finish(x, p, squares, nodes[block, 0], coefficients[block], norms[block, 0])
        for found, left in _columns(nodes[block, 1:], norms[block, 1:]):
            plan.finish(x, p, squares, found, None, left)
        for found, left in _columns(_flat(steps[block]), _flat(step_norms[block])):
            plan.finish(x, p, squares, found, None, left)
        if shares is not None:
            plan.explain(x, nodes[block, 0], coefficients[block], shares[block])

    for_blocks(n, work, options.n_jobs, progress, "pursuit", plan.block)
    answer = np.ascontiguousarray(nodes[:, 0])
    return PathResult(
        dictionary=dictionary,
        codes=path_codes(dictionary, answer, coefficients),
        residual_norms=np.ascontiguousarray(norms[:, 0]),
        nodes=answer,
        n_best_nodes=nodes,
        n_best_residual_norms=norms,
        trace=Trace(dictionary, steps, step_norms) if trace else None,
        explained_shares=shares,
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
    rows = check_shape(X, dictionary.n_dims)
    plan = _Plan.make(dictionary, SearchOptions(signed=signed, anchor=anchor, n_jobs=n_jobs))
    out = np.empty((len(rows), len(plan.basis.tree.leaf_nodes)))

    def work(block: slice) -> None:
        _, p, squares = project(rows, block, dictionary, plan.basis)
        out[block] = plan.objectives(p, squares)

    for_blocks(len(rows), work, n_jobs, block=plan.block)
    return out


def project(
    rows: NDArray[Any], block: slice, dictionary: ConceptDictionary, basis: PathBasis
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    """A block of images in the dictionary's space, its products with the directions, and its squared norms."""
    raw = rows[block].astype(working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x = np.ascontiguousarray(dictionary.transform(raw))
    directions = basis.directions32 if x.dtype == np.float32 else basis.directions
    return x, x @ directions.T, squared_norms(x)


@dataclass(frozen=True)
class _Plan:
    """The options for one dictionary, as the kernels take them."""

    dictionary: ConceptDictionary
    basis: PathBasis
    options: SearchOptions
    width: int
    max_steps: int
    complete: NDArray[np.bool_]

    @classmethod
    def make(cls, dictionary: ConceptDictionary, options: SearchOptions) -> _Plan:
        basis = dictionary.anchored_path_basis(float(options.anchor))
        tree = basis.tree
        width = min(options.beam_width or len(tree.leaf_nodes), len(tree.leaf_nodes))
        steps = min(options.max_steps or tree.depth, tree.depth)
        return cls(dictionary, basis, options, width, steps, _complete(tree, steps))

    @property
    def block(self) -> int:
        return block_size(len(self.basis.directions))

    def objectives(self, p: NDArray[Any], squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Objective of every complete rooted path, (n_images, n_leaf_paths)."""
        from hcep.pursuit import kernels

        basis, leaves = self.basis, self.basis.tree.leaf_nodes
        out = np.empty((len(p), len(leaves)))
        kernels.leaf_scores(
            p, basis.offset, basis.column, basis.sign, basis.tree.parent, float(self.options.anchor),
            bool(self.options.signed), leaves, out,
        )  # fmt: skip
        return np.subtract(squares[:, None], out, out=out)

    def search(
        self,
        x: NDArray[Any],
        p: NDArray[Any],
        squares: NDArray[np.float64],
        final_nodes: NDArray[np.int32],
        steps: NDArray[np.int32],
    ) -> None:
        """Nodes of the best hypotheses, best first, and of the beam of every step where that is wanted."""
        from hcep.pursuit import kernels

        basis, tree, anchor = self.basis, self.basis.tree, float(self.options.anchor)
        if self.options.beam_width is None and self.options.tol == 0.0 and not steps.size:
            if self.options.signed:
                kernels.search_all_signed(
                    p, basis.offset, basis.column, basis.sign, tree.parent, tree.level, self.max_steps, anchor,
                    final_nodes,
                )  # fmt: skip
            else:
                kernels.search_all(p, basis.offset, basis.column, tree.parent, self.complete, anchor, final_nodes)
            return
        # Hypotheses of one step are disjoint subtrees, so that there are never more of them than leaves.
        widest = int(tree.n_children.max())
        n_tried = min(self.width * min(widest, self.width), len(tree.leaf_nodes))
        kernels.search_beam(
            x, p, basis.offset, squares, basis.column, basis.sign, basis.share, tree.parent, tree.level,
            tree.first_child, tree.n_children, tree.edge, basis.triangle, self.dictionary.atoms, self.width, widest,
            n_tried, self.max_steps, float(self.options.tol), bool(self.options.signed), anchor, _cancelled(x),
            final_nodes, steps,
        )  # fmt: skip

    def finish(
        self,
        x: NDArray[Any],
        p: NDArray[Any],
        squares: NDArray[np.float64],
        nodes: NDArray[np.int32],
        coefficients: NDArray[Any] | None,
        norms: NDArray[np.float64],
    ) -> None:
        """Coefficients and residual norms of the paths to some nodes."""
        from hcep.pursuit import kernels

        basis, tree = self.basis, self.basis.tree
        if coefficients is None:
            coefficients = np.empty((len(nodes), tree.depth), dtype=x.dtype)
        kernels.finish_paths(
            x, p, basis.offset, nodes, squares, basis.column, basis.sign, tree.parent, tree.level, tree.edge,
            basis.triangle, self.dictionary.atoms, float(self.options.anchor), _cancelled(x), coefficients, norms,
        )  # fmt: skip

    def explain(
        self, x: NDArray[Any], nodes: NDArray[np.int32], coefficients: NDArray[Any], shares: NDArray[np.float64]
    ) -> None:
        """Share of each image that the first k atoms of its path explain."""
        from hcep.pursuit import kernels

        tree = self.basis.tree
        kernels.explained_shares(
            x, nodes, tree.parent, tree.level, tree.edge, self.dictionary.atoms, coefficients, shares
        )


def _complete(tree: PathTree, max_steps: int) -> NDArray[np.bool_]:
    """Whether a path may end at a node, for the nodes within the step limit: at a leaf, or at the limit."""
    within = int(np.searchsorted(tree.level, max_steps + 1))
    ends: NDArray[np.bool_] = (tree.n_children[:within] == 0) | (tree.level[:within] == max_steps)
    return ends


def _cancelled(x: NDArray[Any]) -> float:
    from hcep.pursuit import kernels

    return kernels.CANCELLED_32 if x.dtype == np.float32 else kernels.CANCELLED_64


def _columns(nodes: NDArray[Any], norms: NDArray[Any]) -> Any:
    return zip(nodes.T, norms.T, strict=True)


def _flat(steps: NDArray[Any]) -> NDArray[Any]:
    return steps.reshape(len(steps), -1)
