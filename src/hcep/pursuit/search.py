"""Hierarchical Beam OMP: one matrix product, then a search over numbers that are already there.

The searches themselves are in `exact` and `beam`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.errors import HCEPError
from hcep.pursuit.blocks import BLOCK, block_size, for_blocks, n_threads
from hcep.pursuit.few_images import are_few
from hcep.pursuit.limits import PathLimits
from hcep.pursuit.result import PathResult, Trace, path_codes
from hcep.pursuit.tables import Images, Rules, Tables

if TYPE_CHECKING:
    from hcep.pursuit.several import PathSums

#: Entries of the largest trace that is kept.
MAX_TRACE = 200_000_000
#: A beam that visits a smaller share of all directions than one in so many takes its products lazily.
LAZY = 8
#: A block of images, the objective of every complete rooted path of theirs, and their `n_best` nodes.
OnObjectives = Callable[[slice, NDArray[np.float64], NDArray[np.int32]], None]


@dataclass(frozen=True)
class SearchOptions:
    """How rooted paths are searched, checked once; `hb_omp` says what each option does and may be."""

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


@overload
def hb_omp(
    X: ArrayLike, dictionary: ConceptDictionary, *, beam_width: int | None = 8, max_steps: int | None = None,
    tol: float = 0.0, signed: bool = False, anchor: float = 0.0, n_best: int = 1, n_paths: None = None,
    trace: bool = False, progress: bool = False, n_jobs: int | None = None,
) -> PathResult: ...  # fmt: skip
@overload
def hb_omp(
    X: ArrayLike, dictionary: ConceptDictionary, *, beam_width: int | None = 8, max_steps: int | None = None,
    tol: float = 0.0, signed: bool = False, anchor: float = 0.0, n_best: int = 1, n_paths: int | Literal["auto"],
    trace: bool = False, progress: bool = False, n_jobs: int | None = None,
) -> PathSums: ...  # fmt: skip
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
    n_paths: int | Literal["auto"] | None = None,
    trace: bool = False,
    progress: bool = False,
    n_jobs: int | None = None,
) -> PathResult | PathSums:
    """Recover a rooted path of concepts for every image.

    Raises HCEPError: a bad option, NaN or infinite values, a wrong number of dimensions.

    Parameters
    ----------
    X : (n_images, n_dims) array
        Raw embeddings; they go through the dictionary's transform. float32 (or half) is searched in single precision,
        everything else in double. A torch tensor is searched where it is, and gives tensors there.
    beam_width : hypotheses kept after every step, and children tried for each. None searches all rooted paths exactly.
    max_steps : length of the longest path to return; the depth of the hierarchy by default
    tol : stop as soon as a hypothesis leaves a residual of smaller norm, measured in the dictionary's space
    signed : a child is eligible only if its new coefficient is positive; a hypothesis without such a child ends there
    anchor : weight lambda of the prior that coefficients are 1. 0 is the published algorithm.
    n_best : hypotheses of the final beam to return for each image, the answer included
    n_paths : int or "auto", optional
        Several objects in one picture: explain each image by a sum of up to so many paths. `search_several` says how,
        and what "auto" is; `beam_width` is then the number of partial sums kept. It needs an anchor.
    trace : keep the beam of every step (meant for a few images)
    progress : show a progress bar
    n_jobs : threads; all cores by default. The answer does not depend on it.

    Returns
    -------
    PathResult
        For a tensor a `hcep.pursuit.tensors.TensorPathResult`; with `n_paths` a `PathSums`.

    Notes
    -----
    With ``signed=False, anchor=0`` this is Algorithm 2 of the paper with its Algorithm 3: of each hypothesis the
    `beam_width` children of highest ``|cos(r, d)|`` are tried, of all extensions the `beam_width` of lowest
    ``||r||`` kept, finished ones among them. Otherwise it is the same search for::

        minimise over rooted paths and a   ||x - sum_v a_v d_v||**2 + lambda * ||a - 1||**2

    Ties go to the node that comes first in the tree of rooted paths (breadth first).

    References
    ----------
    N. Nguyen, T. Ding, R. Vidal. Hierarchical Concept Embedding & Pursuit for Interpretable Image Classification.
    CVPR 2026.

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
    if n_paths is not None:
        from hcep.pursuit.several import search_several

        if trace or n_best != 1:
            raise HCEPError("n_paths does not go with trace or n_best")
        return search_several(X, dictionary, options, n_paths, progress=progress)
    if "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor):
        from hcep.pursuit.tensors import search_tensors

        if trace:
            raise HCEPError("trace=True is not for tensors: pass X.cpu().numpy()")
        rules = _prepared(dictionary, options)[2]
        return search_tensors(X, dictionary, rules, exact=beam_width is None, n_best=n_best, progress=progress)
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
    limits: PathLimits | None = None,
) -> PathResult:
    """As `hb_omp`, with all that else is known from the same products of images and directions.

    Parameters
    ----------
    X, dictionary, n_best, trace, progress : as for `hb_omp`
    explained : fill ``PathResult.explained_shares`` and ``own_shares``
    on_objectives : callable; called as ``on_objectives(block, objectives, nodes)`` for every block of images, a slice
        of X, with the objective of every complete rooted path, (n_images of the block, n_leaf_paths), as
        `path_objectives` gives it and the caller's to keep, and the nodes of the `n_best` hypotheses, which it may
        replace. Blocks come from several threads and in any order.
    limits : which paths each image may take; `on_objectives` gets those of the others as if they were open
    """
    rows = check_shape(X, dictionary.n_dims)
    require_positive("n_best", n_best)
    exact = options.beam_width is None and options.tol == 0.0 and not trace
    kernels = _kernels(exact and are_few(len(rows)))
    basis, tables, rules = _prepared(dictionary, options, limits)
    if limits is not None and limits.state.shape[1] != basis.tree.n_nodes:
        raise HCEPError("limits are of another hierarchy than the dictionary's")
    n, depth = len(rows), basis.tree.depth
    if trace and n * (rules.max_steps + 1) * rules.width > MAX_TRACE:
        raise HCEPError(
            f"a trace of {n:,} images, {rules.max_steps} steps and {rules.width:,} hypotheses is too large; "
            "trace fewer images, or with a narrower beam"
        )
    # Taken one by one, and only those that a beam asks for, products take several times as long as all in one.
    n_asked = LAZY * rules.width * depth * basis.tree.n_nodes / np.count_nonzero(basis.tree.n_children)
    lazily = bool(len(basis.directions) > n_asked) and options.tol == 0.0
    lazily = lazily and not exact and not trace and on_objectives is None
    nodes = np.full((n, n_best), -1, dtype=np.int32)
    norms = np.full((n, n_best), np.nan)
    coefficients = np.zeros((n, depth), dtype=working_dtype(rows))
    steps = np.full((n, rules.max_steps + 1, rules.width) if trace else (n, 0, 0), -1, dtype=np.int32)
    step_norms = np.full(steps.shape, np.nan)
    shares, own_shares = (np.full((n, depth), np.nan) if explained else None for _ in range(2))

    def work(block: slice) -> None:
        images = project(rows, block, dictionary, basis, limits, lazily)
        if lazily:
            kernels.search_beam_lazily(images, tables, rules, nodes[block])
        elif exact:
            kernels.search_all(images, tables, rules, nodes[block])
        else:
            kernels.search_beam(images, tables, rules, nodes[block], steps[block])
        if on_objectives is not None:
            on_objectives(block, _objectives(images, basis, tables, rules, kernels), nodes[block])
        kernels.finish_paths(images, tables, rules, nodes[block], coefficients[block], norms[block])
        if trace:
            beams, left = (a[block].reshape(len(images.x), -1) for a in (steps, step_norms))
            kernels.finish_paths(images, tables, rules, beams, coefficients[:0], left)
        if shares is not None and own_shares is not None:
            kernels.explained_shares(
                images, tables, nodes[block], coefficients[block], shares[block], own_shares[block]
            )

    for_blocks(n, work, options.n_jobs, progress, "pursuit", BLOCK if lazily else block_size(len(basis.directions)))
    answer = np.ascontiguousarray(nodes[:, 0])
    codes, beams = path_codes(dictionary, answer, coefficients), Trace(dictionary, steps, step_norms) if trace else None
    best = np.ascontiguousarray(norms[:, 0])
    return PathResult(dictionary, codes, best, answer, nodes, norms, beams, shares, own_shares)


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

    Parameters
    ----------
    X, dictionary, signed, anchor, n_jobs : as for `hb_omp`
    """
    rows = check_shape(X, dictionary.n_dims)
    basis, tables, rules = _prepared(dictionary, SearchOptions(signed=signed, anchor=anchor, n_jobs=n_jobs))
    out, kernels = np.empty((len(rows), len(basis.tree.leaf_nodes))), _kernels(are_few(len(rows)))

    def work(block: slice) -> None:
        out[block] = _objectives(project(rows, block, dictionary, basis), basis, tables, rules, kernels)

    for_blocks(len(rows), work, n_jobs, block=block_size(len(basis.directions)))
    return out


def project(
    rows: NDArray[Any],
    block: slice,
    dictionary: ConceptDictionary,
    basis: PathBasis,
    limits: PathLimits | None = None,
    lazily: bool = False,
) -> Images:
    """A block of images in the dictionary's space with their products, unless these are taken lazily."""
    raw = rows[block].astype(working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x = np.ascontiguousarray(dictionary.transform(raw))
    directions = basis.directions32 if x.dtype == np.float32 else basis.directions
    p = np.zeros((len(x), 0), x.dtype) if lazily else x @ directions.T
    return Images.of(x, p, None if limits is None else limits.limit(block), directions)


def _prepared(
    dictionary: ConceptDictionary, options: SearchOptions, limits: PathLimits | None = None
) -> tuple[PathBasis, Tables, Rules]:
    basis = dictionary.anchored_path_basis(float(options.anchor))
    tree = basis.tree
    n_paths, widest = len(tree.leaf_nodes), int(tree.n_children.max())
    width = min(int(options.beam_width or n_paths), n_paths)
    max_steps = min(int(options.max_steps or tree.depth), tree.depth)
    rules = Rules(
        width=width,
        widest=widest,
        # Hypotheses of one step are disjoint subtrees, so that there are never more of them than leaves.
        n_tried=min(width * min(widest, width), n_paths),
        max_steps=max_steps,
        n_within=int(np.searchsorted(tree.level, max_steps + 1)),
        tol=float(options.tol),
        signed=bool(options.signed),
        anchor=float(options.anchor),
    )
    return basis, Tables.of(dictionary, basis, None if limits is None else limits.state), rules


def _kernels(few: bool) -> Any:
    """What searches a block of images: compiled, or for a few of them without a compiler."""
    from hcep.pursuit import few_images

    if few:
        return few_images
    from hcep.pursuit import along_path, searches

    return SimpleNamespace(**vars(along_path) | vars(searches))


def _objectives(images: Images, basis: PathBasis, tables: Tables, rules: Rules, kernels: Any) -> NDArray[np.float64]:
    leaves = basis.tree.leaf_nodes
    out = np.empty((len(images.x), len(leaves)))
    kernels.leaf_objectives(images, tables, rules, leaves, out)
    if len(images.limit):
        free = np.empty_like(out)
        kernels.leaf_objectives(images._replace(limit=images.limit[:0]), tables, rules, leaves, free)
        out = np.where(np.isfinite(out), out, free)
    return out
