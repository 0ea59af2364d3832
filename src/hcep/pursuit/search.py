"""Hierarchical Beam OMP: one matrix product, then a search over numbers that are already there.

The compiled searches are in `search_kernel`. A few images are searched exactly by the lines of `PathProblem` itself, to
the same answer: loading the compiler would take longer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import check_shape, refuse_non_finite, working_dtype
from hcep.dictionary.path_problem import namespace
from hcep.errors import HCEPError
from hcep.pursuit.blocks import BLOCK, FEW, block_size, for_blocks, n_threads
from hcep.pursuit.limits import PathLimits
from hcep.pursuit.result import PathResult, Trace, path_codes
from hcep.pursuit.tables import LANES, Images, Rules, Tables

if TYPE_CHECKING:
    from hcep.pursuit.several import PathSums

#: Paths whose coefficients are solved together.
SOLVED = 8192
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
        problem = dictionary.path_problem(anchor)
        rules = search_rules(problem, options)
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
    """As `hb_omp`, plus everything else that the same products of images and directions give.

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
    problem = dictionary.path_problem(options.anchor)
    if limits is not None and limits.state.shape[1] != problem.tree.n_nodes:
        raise HCEPError("limits are of another hierarchy than the dictionary's")
    rules, n, depth = search_rules(problem, options), len(rows), problem.tree.depth
    if trace and n * (rules.max_steps + 1) * rules.width > MAX_TRACE:
        raise HCEPError(
            f"a trace of {n:,} images, {rules.max_steps} steps and {rules.width:,} hypotheses is too large; "
            "trace fewer images, or with a narrower beam"
        )
    exact = options.beam_width is None and options.tol == 0.0 and not trace
    lazily = not exact and not trace and on_objectives is None and _is_lazy(problem, rules)
    find = _few if exact and n <= FEW else _exact if exact else _lazy_beam if lazily else _beam
    tables = Tables.of(problem, None if limits is None else limits.state)
    nodes = np.full((n, n_best), -1, dtype=np.int32)
    norms = np.full((n, n_best), np.nan)
    coefficients = np.zeros((n, depth), dtype=working_dtype(rows))
    steps = np.full((n, rules.max_steps + 1, rules.width) if trace else (n, 0, 0), -1, dtype=np.int32)
    step_norms = np.full(steps.shape, np.nan)
    shares, own_shares = (np.full((n, depth), np.nan) if explained else None for _ in range(2))

    def work(block: slice) -> None:
        images = project(rows, block, dictionary, problem, limits, lazily)
        find(problem, images, tables, rules, nodes[block], steps[block])
        if on_objectives is not None:
            on_objectives(block, leaf_objectives(problem, images, tables, rules), nodes[block])
        coefficients[block] = _solve(problem, images, nodes[block], norms[block])
        if trace:
            _solve(problem, images, *(a[block].reshape(len(images.x), -1) for a in (steps, step_norms)))
        if shares is not None and own_shares is not None:
            shares[block], own_shares[block] = problem.shares(images.x, nodes[block, 0], coefficients[block])

    for_blocks(n, work, options.n_jobs, progress, "pursuit", BLOCK if lazily else block_size(len(problem.directions)))
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
    options = SearchOptions(signed=signed, anchor=anchor, n_jobs=n_jobs)
    problem = dictionary.path_problem(anchor)
    tables, rules = Tables.of(problem), search_rules(problem, options)
    out = np.empty((len(rows), len(problem.tree.leaf_nodes)))

    def work(block: slice) -> None:
        out[block] = leaf_objectives(problem, project(rows, block, dictionary, problem), tables, rules)

    for_blocks(len(rows), work, n_jobs, block=block_size(len(problem.directions)))
    return out


def project(
    rows: NDArray[Any],
    block: slice,
    dictionary: ConceptDictionary,
    problem: PathProblem,
    limits: PathLimits | None = None,
    lazily: bool = False,
) -> Images:
    """A block of images in the dictionary's space with their products, unless these are taken lazily."""
    raw = rows[block].astype(working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x = np.ascontiguousarray(dictionary.transform(raw))
    directions = problem.directions32 if x.dtype == np.float32 else problem.directions
    p = np.zeros((len(x), 0), x.dtype) if lazily else problem.products(x)
    return Images.of(x, p, None if limits is None else limits.limit(block), directions)


def search_rules(problem: PathProblem, options: SearchOptions) -> Rules:
    """The options of a search, as far as the tree goes."""
    tree = problem.tree
    n_paths, widest = len(tree.leaf_nodes), int(tree.n_children.max())
    width = min(int(options.beam_width or n_paths), n_paths)
    max_steps = min(int(options.max_steps or tree.depth), tree.depth)
    return Rules(
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


def _is_lazy(problem: PathProblem, rules: Rules) -> bool:
    """Whether a beam visits so few directions that products are cheaper one by one, as they are needed."""
    n_asked = LAZY * rules.width * problem.tree.depth * problem.tree.n_nodes / np.count_nonzero(problem.tree.n_children)
    return bool(len(problem.directions) > n_asked) and rules.tol == 0.0


# -- one block of images: each fills nodes (n_images, n_best), and the beams of all steps where these are asked for ----


def _few(problem: PathProblem, images: Images, tables: Tables, rules: Rules, nodes: Any, steps: Any) -> None:
    nodes[:] = best_paths(problem, images.p, rules, nodes.shape[1], _states(images, tables))


def _exact(problem: PathProblem, images: Images, tables: Tables, rules: Rules, nodes: Any, steps: Any) -> None:
    from hcep.pursuit import search_kernel as kernels

    tree = problem.tree
    if nodes.shape[1] > 1 or rules.signed or len(images.limit):
        kernels.search_all(images, tables, rules, nodes)
        return
    ends = (tree.n_children == 0) & (tree.level <= rules.max_steps) | (tree.level == rules.max_steps)
    label = np.where(ends, np.arange(tree.n_nodes), -1)
    nodes[:, 0] = score_labels(images.p, tables, rules.anchor, label, 0)[1]


def _beam(problem: PathProblem, images: Images, tables: Tables, rules: Rules, nodes: Any, steps: Any) -> None:
    from hcep.pursuit import search_kernel as kernels

    kernels.search_beam(images, tables, rules, nodes, steps)


def _lazy_beam(problem: PathProblem, images: Images, tables: Tables, rules: Rules, nodes: Any, steps: Any) -> None:
    from hcep.pursuit import search_kernel as kernels

    kernels.search_beam_lazily(images, tables, rules, nodes)


def _states(images: Images, tables: Tables) -> NDArray[np.int8] | None:
    """Which nodes are open to each image, (n_nodes, n_images); None where all are."""
    return tables.state[images.limit].T if len(images.limit) else None


def best_paths(problem: PathProblem, products: Any, rules: Rules, n_best: int, state: Any = None) -> Any:
    """Best complete paths of each image, (n_images, n_best), -1 where there are fewer; for arrays and for tensors.

    A path is complete at a leaf, at the step limit, or with all children barred. Ties go to the lowest node.
    """
    xp, n, within = namespace(products), len(products), slice(0, rules.n_within)
    state = None if state is None else state[within]
    score = problem.scores(problem.values(products, within), signed=rules.signed, state=state)
    n_open = xp.zeros((len(score) + 1, n), **_where(score))
    n_open[1:] = xp.cumsum(1.0 * (score > -np.inf), 0)
    first = np.minimum(problem.tree.first_child[within], len(score))
    last = np.minimum(first + problem.tree.n_children[within], len(score))
    score[n_open[last] > n_open[first]] = -np.inf
    nodes = xp.full((n, n_best), -1, **_where(score, xp.int64))
    image = xp.arange(n, **_where(score, xp.int64))
    for k in range(min(n_best, len(score))):
        best = score.argmax(0)
        nodes[:, k] = xp.where(score[best, image] > -np.inf, best, -1)
        score[best, image] = -np.inf
    return nodes


def _where(array: Any, dtype: Any = None) -> dict[str, Any]:
    """Keywords that make another array of the same kind, on the same device."""
    place = {} if isinstance(array, np.ndarray) else {"device": array.device}
    return place | {"dtype": dtype or array.dtype}


def score_labels(
    p: NDArray[Any], tables: Tables, anchor: float, label: NDArray[Any], n_labels: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Where all paths are open: the best score of each label, (n_labels, n_images), and the label of the best path."""
    from hcep.pursuit import search_kernel as kernels

    n, missing = len(p), max(0, LANES - len(p))
    p = np.pad(p, ((0, missing), (0, 0))) if missing else p
    scores, best = np.empty((n_labels, n + missing)), np.zeros(n + missing, np.intp)
    kernels.score_labels(p, tables, anchor, label, scores, best)
    return scores[:, :n], best[:n]


def leaf_objectives(problem: PathProblem, images: Images, tables: Tables, rules: Rules) -> NDArray[np.float64]:
    """Objectives of complete paths, (n_images, n_leaf_paths); a path that is closed to an image counts as open."""
    leaves, open_to_all = problem.tree.leaf_nodes, images._replace(limit=images.limit[:0])
    free: NDArray[np.float64] = images.squares[:, None] - _leaf_scores(problem, open_to_all, tables, rules, leaves)
    if not len(images.limit):
        return free
    out = images.squares[:, None] - _leaf_scores(problem, images, tables, rules, leaves)
    return np.where(np.isfinite(out), out, free)


def _leaf_scores(problem: PathProblem, images: Images, tables: Tables, rules: Rules, leaves: Any) -> NDArray[Any]:
    if len(images.x) <= FEW:
        values, state = problem.values(images.p), _states(images, tables)
        return np.asarray(problem.scores(values, signed=rules.signed, state=state)[leaves].T)
    if not rules.signed and not len(images.limit):
        label = np.full(problem.tree.n_nodes, -1)
        label[leaves] = np.arange(len(leaves))
        return score_labels(images.p, tables, rules.anchor, label, len(leaves))[0].T
    from hcep.pursuit import search_kernel as kernels

    out = np.empty((len(images.x), len(leaves)))
    kernels.score_nodes(images, tables, rules, leaves, out)
    return out


def _solve(problem: PathProblem, images: Images, nodes: NDArray[np.int32], norms: NDArray[Any]) -> NDArray[np.float64]:
    """Fill the residual norms of k nodes per image, NaN for none; the coefficients of each image's first node."""
    owner, place = np.nonzero(nodes >= 0)
    first = np.zeros((len(nodes), problem.tree.depth))
    for start in range(0, len(owner), SOLVED):
        at, rank = owner[start : start + SOLVED], place[start : start + SOLVED]
        ends, x = nodes[at, rank], images.x[at]
        along = problem.along(ends, images.p, at) if images.p.shape[1] else problem.along_images(ends, x)
        a = problem.coefficients(ends, along)
        left = problem.squared_residuals(x, images.squares[at], ends, along, a)
        norms[at, rank] = np.sqrt(np.maximum(left, 0.0))
        first[at[rank == 0]] = a[rank == 0]
    return first
