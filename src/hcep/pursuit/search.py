"""Hierarchical Beam OMP: one matrix product, followed by a search over the resulting numbers.

The compiled searches are in `search_kernel`. An exact search of a few images uses the array operations of `PathProblem`
instead, because loading the compiled kernels would take longer. The answers are the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_not_negative, require_positive
from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import check_shape, refuse_non_finite
from hcep.dictionary.path_problem import ON_THE_WAY, namespace
from hcep.errors import HCEPError, quote
from hcep.pursuit.blocks import BLOCK, FEW, block_size, for_blocks, n_threads
from hcep.pursuit.limits import PathLimits
from hcep.pursuit.result import PathResult, Trace, path_codes
from hcep.pursuit.tables import LANES, Beams, Images, Rules, Tables

#: The number of paths whose coefficients are solved together.
SOLVED = 8192
#: The largest number of entries of a trace.
MAX_TRACE = 200_000_000
#: A beam that visits less than one in this many directions computes only the products it needs.
LAZY = 8
#: How a beam chooses the children to try: a rule by its name, or a function of gains and shares (see `hb_omp`).
Select = Literal["cosine", "gain"] | Callable[[Any, Any], Any]
#: Called with a block of images, the objective of each of their complete rooted paths, and their `n_best` nodes.
OnObjectives = Callable[[slice, NDArray[np.float64], NDArray[np.int32]], None]


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search for rooted paths, which are checked here; `hb_omp` describes them.

    Examples
    --------
    >>> from hcep.pursuit import SearchOptions
    >>> SearchOptions(beam_width=None, anchor=0.03).tol
    0.0
    """

    beam_width: int | None = 8
    max_steps: int | None = None
    tol: float = 0.0
    signed: bool = False
    anchor: float = 0.0
    n_jobs: int | None = None
    select: Select = "cosine"

    def __post_init__(self) -> None:
        require_positive("beam_width", self.beam_width, "an exact search of all rooted paths")
        require_positive("max_steps", self.max_steps, "the depth of the hierarchy")
        require_not_negative("tol", self.tol)
        require_not_negative("anchor", self.anchor)
        if self.select not in ("cosine", "gain") and not callable(self.select):
            raise HCEPError(
                f"select must be 'cosine', 'gain' or a function of gains and shares; got {quote(self.select)}"
            )
        if self.select != "cosine" and self.beam_width is None:
            raise HCEPError("select chooses the children that a beam tries, so it needs a beam_width")
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
    select: Select = "cosine",
    n_best: int = 1,
    trace: bool = False,
    progress: bool = False,
    n_jobs: int | None = None,
) -> PathResult:
    """Find the rooted path of concepts that best explains each image.

    Parameters
    ----------
    X : array of shape (n_images, n_dims)
        Raw embeddings, which go through the dictionary's transform. float32 and float16 arrays are searched in single
        precision, all others in double precision. A torch tensor is searched on its device.
    dictionary : ConceptDictionary
    beam_width : int, optional
        The number of hypotheses to keep after every step, and of children to try for each of them. None searches all
        rooted paths, which gives the exact optimum.
    max_steps : int, optional
        The length of the longest path; the depth of the hierarchy by default.
    tol : float
        Stop as soon as a hypothesis has a residual of smaller norm, measured in the dictionary's space.
    signed : bool
        Require a positive new coefficient for each child. A hypothesis without such a child ends there.
    anchor : float
        Weight of the prior that coefficients are 1, relative to the mean square norm of images
        (``dictionary.anchor_unit``), so that it does not depend on the scale of embeddings and means the same as in
        `HCEPClassifier`; 0 gives the published algorithm.
    select : {"cosine", "gain"} or callable
        The rule by which each hypothesis chooses the children to try. "cosine" is the published ``|cos(r, d)|``, and
        "gain" is the normalised rule of IP-OMP: by how much the child would reduce the residual. A function
        ``select(gains, shares)`` gets the signed gains, of shape (n_images, n_nodes), and for each node the share of
        its atom's norm that lies outside the span of the atoms above it. It returns a key for each image and node,
        the highest first, and ``-inf`` for a child that must not be tried. Nodes are those of
        ``dictionary.hierarchy.path_tree``. For tensors, both are tensors.
    n_best : int
        The number of hypotheses of the final beam to return for each image, including the answer.
    trace : bool
        Keep the beam of every step; meant for a few images.
    progress : bool
        Show a progress bar.
    n_jobs : int, optional
        The number of threads; all cores by default. The result does not depend on it.

    Returns
    -------
    PathResult
        A `hcep.pursuit.tensors.TensorPathResult` if X is a tensor.

    Raises
    ------
    HCEPError
        An option is invalid.
    DictionaryError
        X has NaN or infinite values, or a wrong number of dimensions.

    Notes
    -----
    With ``signed=False`` and ``anchor=0``, this is Algorithm 2 of the paper, with its Algorithm 3. Each step tries the
    `beam_width` children of every hypothesis with the highest ``|cos(r, d)|``, and keeps the `beam_width` hypotheses
    with the smallest ``||r||``, including finished ones. With an anchor, the same search minimises::

        ||x - sum_v a_v d_v||**2 + lambda * ||a - 1||**2     over rooted paths and a

    where lambda is the anchor times ``dictionary.anchor_unit``.
    Ties go to the node that comes first, in breadth-first order, in the tree of rooted paths. The path to a node is
    fixed, so a gain does not depend on the beam: it is ``<r, d - P d> / ||d - P d||``, where P projects onto the atoms
    above, and the published cosine is ``|gain| * share / ||r||``.

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
    >>> result = hb_omp(np.array([[2.0, 1.2, 0.0]]), d, signed=True)
    >>> result.paths, result.coefficients(0)
    ([('animal', 'cat')], array([1. , 1.2]))
    """
    options = SearchOptions(beam_width, max_steps, tol, signed, anchor, n_jobs, select)
    if "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor):
        from hcep.pursuit.tensors import search_tensors

        return search_tensors(X, dictionary, options, n_best=n_best, trace=trace, progress=progress)
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
    """Search as `hb_omp` does, and return everything else that the same products of images and directions give.

    Parameters
    ----------
    X, dictionary, n_best, trace, progress
        See `hb_omp`.
    options : SearchOptions
    explained : bool
        Compute ``PathResult.explained_shares`` and ``own_shares``.
    on_objectives : callable, optional
        Called as ``on_objectives(block, objectives, nodes)`` for every block of images. `block` is a slice of X, and
        `objectives`, of shape (n_images_of_block, n_leaf_paths), is what `path_objectives` returns; the caller may keep
        it. `nodes` are those of the `n_best` hypotheses, and the caller may replace them. Blocks come from several
        threads and in any order.
    limits : PathLimits, optional
        The paths that each image may take. `on_objectives` gets the objectives of the other paths too.

    Returns
    -------
    PathResult

    Examples
    --------
    >>> from hcep.datasets import load_sample
    >>> from hcep import ConceptDictionary
    >>> from hcep.pursuit.search import SearchOptions, search
    >>> data = load_sample()
    >>> dictionary = ConceptDictionary.from_images(data.hierarchy.collapse(), data.X_train, data.y_train)
    >>> result = search(data.X_val[:2], dictionary, SearchOptions(beam_width=None, anchor=0.03), explained=True)
    >>> result.explained_shares.shape == (2, dictionary.hierarchy.depth)
    True
    """
    rows = check_shape(X, dictionary.n_dims)
    require_positive("n_best", n_best)
    problem = dictionary.path_problem(options.anchor)
    if limits is not None and limits.state.shape[1] != problem.tree.n_nodes:
        raise HCEPError("limits must be built from the hierarchy of the dictionary")
    rules, n, depth = search_rules(problem, options), len(rows), problem.tree.depth
    trace_shape = check_trace(n, rules) if trace else (n, 0, 0)
    exact = options.beam_width is None and options.tol == 0.0 and not trace
    needs_all = trace or on_objectives is not None or callable(options.select)
    lazily = not exact and not needs_all and _is_lazy(problem, rules)
    find = _few if exact and n <= FEW else _exact if exact else search_beam
    tables = search_tables(problem, options, limits)
    nodes = np.full((n, n_best), -1, dtype=np.int32)
    norms = np.full((n, n_best), np.nan)
    coefficients = np.zeros((n, depth), dtype=dictionary.transform.working_dtype(rows))
    steps = np.full(trace_shape, -1, dtype=np.int32)
    step_norms = np.full(steps.shape, np.nan)
    shares, own_shares = (np.full((n, depth), np.nan) if explained else None for _ in range(2))

    def work(block: slice) -> None:
        images = project(rows, block, dictionary, problem, limits, lazily)
        if callable(options.select):
            images = images._replace(keys=selection_keys(problem, images.p, options.select))
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
    """Compute the objective of every complete rooted path for every image.

    Parameters
    ----------
    X, dictionary, signed, anchor, n_jobs
        See `hb_omp`.

    Returns
    -------
    array of shape (n_images, n_leaf_paths)
        In the order of ``hierarchy.path_tree.leaf_nodes``; infinite for paths that the signed rule excludes.

    Notes
    -----
    The objective is the minimum of ``||x - D^T a||**2 + lambda ||a - 1||**2`` over a, as in `hb_omp`. The path with
    the lowest objective is the answer of ``hb_omp(..., beam_width=None)``, if that answer ends in a leaf.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import path_objectives
    >>> h = Hierarchy.from_edges([("thing", "cat"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 0.0], "car": [0.0, 3.0]})
    >>> path_objectives([[1.0, 1.0]], d)
    array([[1., 1.]])
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
    """Transform a block of images into the dictionary's space, and compute their products unless `lazily` is set."""
    raw = rows[block].astype(dictionary.transform.working_dtype(rows), copy=False)
    refuse_non_finite(raw, first_row=block.start)
    x = np.ascontiguousarray(dictionary.transform(raw))
    directions = problem.directions32 if x.dtype == np.float32 else problem.directions
    p = np.zeros((len(x), 0), x.dtype) if lazily else problem.products(x)
    return Images.of(x, p, None if limits is None else limits.limit(block), directions)


def check_trace(n_images: int, rules: Rules) -> tuple[int, int, int]:
    """Return the shape of a trace of so many images; raise HCEPError if it is too large."""
    shape = n_images, rules.max_steps + 1, rules.width
    if math.prod(shape) > MAX_TRACE:
        raise HCEPError(
            f"a trace of {n_images:,} images, {rules.max_steps} steps and {rules.width:,} hypotheses is too large; "
            "trace fewer images, or use a narrower beam"
        )
    return shape


def selection_keys(problem: PathProblem, products: Any, select: Callable[[Any, Any], Any]) -> Any:
    """Return the keys of all nodes by a rule of the caller's own, shape (n_images, n_nodes), for arrays or tensors."""
    xp, gains = namespace(products), problem.values(products).T
    keys = xp.asarray(select(gains, problem.share), **_where(gains))
    if keys.shape != gains.shape or bool(xp.isnan(keys).any()):
        raise HCEPError(
            f"select must return one number for each image and node, of shape {tuple(gains.shape)}; "
            f"got shape {tuple(keys.shape)}" + (" with NaN" if keys.shape == gains.shape else "")
        )
    return keys if xp is not np else np.ascontiguousarray(keys)


def search_rules(problem: PathProblem, options: SearchOptions) -> Rules:
    """Return the options of a search, limited by the size of the tree."""
    tree = problem.tree
    n_paths, widest = len(tree.leaf_nodes), int(tree.n_children.max())
    width = min(int(options.beam_width or n_paths), n_paths)
    max_steps = min(int(options.max_steps or tree.depth), tree.depth)
    return Rules(
        width=width,
        widest=widest,
        # The hypotheses of one step have disjoint subtrees, so there are never more of them than leaves.
        n_tried=min(width * min(widest, width), n_paths),
        max_steps=max_steps,
        n_within=int(np.searchsorted(tree.level, max_steps + 1)),
        tol=float(options.tol),
        signed=bool(options.signed),
        anchor=float(problem.anchor),
    )


def search_tables(problem: PathProblem, options: SearchOptions, limits: PathLimits | None = None) -> Tables:
    """Return the tables of a search; the gain is the cosine without the share of each atom that is new."""
    tables = Tables.of(problem, None if limits is None else limits.state)
    return tables._replace(share=np.ones_like(tables.share)) if options.select == "gain" else tables


def _is_lazy(problem: PathProblem, rules: Rules) -> bool:
    """Return whether a beam visits so few directions that it is faster to compute only the products it needs."""
    branching = problem.tree.n_nodes / np.count_nonzero(problem.tree.n_children)
    n_visited = rules.width * problem.tree.depth * branching
    return bool(len(problem.directions) > LAZY * n_visited) and rules.tol == 0.0


# -- searches of one block: each fills nodes (n_images, n_best), and `search_beam` also the beam of every step --------


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


def search_beam(problem: PathProblem, images: Images, tables: Tables, rules: Rules, nodes: Any, steps: Any) -> None:
    from hcep.pursuit import search_kernel as kernels

    beams, lazily = Beams.at_root(len(nodes), rules.width), not images.p.shape[1]
    at_once = 1 if steps.shape[1] or rules.tol > 0.0 or lazily else rules.max_steps
    for step in range(0, rules.max_steps, at_once):
        if steps.shape[1]:
            kernels.best_first(beams, np.flatnonzero(beams.goes_on), steps, step)
        if rules.tol > 0.0:
            beams.goes_on[_near_enough(problem, images, tables, rules, beams)] = False
        if lazily:
            kernels.extend_beams_lazily(images, tables, rules, beams)
        else:
            kernels.extend_beams(images, tables, rules, at_once, beams)
        if not beams.goes_on.any():
            break
    if steps.shape[1]:
        kernels.best_first(beams, np.flatnonzero(beams.goes_on), steps, rules.max_steps)
    kernels.best_first(beams, np.arange(len(nodes)), nodes[:, None], 0)


def _near_enough(problem: PathProblem, images: Images, tables: Tables, rules: Rules, beams: Beams) -> NDArray[np.intp]:
    """Return the images with a hypothesis that may end and has ``||x - D^T a|| < tol``."""
    may_end = (np.arange(rules.width) < beams.sizes[:, None]) & beams.goes_on[:, None]
    if len(images.limit):
        may_end &= tables.state[images.limit[:, None], beams.nodes] != ON_THE_WAY
    if rules.anchor == 0.0:  # leave out what is far above the tolerance in spite of rounding
        bound = np.maximum(4.0 * rules.tol**2, images.cancelled * images.squares)
        may_end &= beams.scores >= (images.squares - bound)[:, None]
    owner, place = np.nonzero(may_end)
    left = [rest for _, _, rest in _solved(problem, images, owner, beams.nodes[owner, place])]
    return owner[np.concatenate([np.zeros(0), *left]) < rules.tol**2]


def _states(images: Images, tables: Tables) -> NDArray[np.int8] | None:
    """Return which nodes are open to each image, shape (n_nodes, n_images); None if all are."""
    return tables.state[images.limit].T if len(images.limit) else None


def best_paths(problem: PathProblem, products: Any, rules: Rules, n_best: int, state: Any = None) -> Any:
    """Return the best complete paths of each image, shape (n_images, n_best), padded with -1.

    This works for arrays and for tensors. A path is complete at a leaf, at the step limit, or if it may not go on to
    any child. Ties go to the lowest node.
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
    """Return the keyword arguments that create another array of the same kind on the same device."""
    place = {} if isinstance(array, np.ndarray) else {"device": array.device}
    return place | {"dtype": dtype or array.dtype}


def score_labels(
    p: NDArray[Any], tables: Tables, anchor: float, label: NDArray[Any], n_labels: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the best score of each label, shape (n_labels, n_images), and the label of the best path.

    All paths are open to all images. See `hcep.pursuit.search_kernel.score_labels`.
    """
    from hcep.pursuit import search_kernel as kernels

    n, missing = len(p), max(0, LANES - len(p))
    p = np.pad(p, ((0, missing), (0, 0))) if missing else p
    scores, best = np.empty((n_labels, n + missing)), np.zeros(n + missing, np.intp)
    kernels.score_labels(p, tables, anchor, label, scores, best)
    return scores[:, :n], best[:n]


def leaf_objectives(problem: PathProblem, images: Images, tables: Tables, rules: Rules) -> NDArray[np.float64]:
    """Return the objectives of all complete paths, shape (n_images, n_leaf_paths), including closed ones."""
    leaves, open_to_all = problem.tree.leaf_nodes, images._replace(limit=images.limit[:0])
    free: NDArray[np.float64] = images.squares[:, None] - _leaf_scores(problem, open_to_all, tables, rules, leaves)
    if not len(images.limit):
        return free
    out = images.squares[:, None] - _leaf_scores(problem, images, tables, rules, leaves)
    return np.where(np.isfinite(out), out, free)


def _leaf_scores(problem: PathProblem, images: Images, tables: Tables, rules: Rules, leaves: Any) -> NDArray[Any]:
    if len(images.x) <= FEW or rules.signed or len(images.limit):
        values, state = problem.values(images.p), _states(images, tables)
        return np.asarray(problem.scores(values, signed=rules.signed, state=state)[leaves].T)
    label = np.full(problem.tree.n_nodes, -1)
    label[leaves] = np.arange(len(leaves))
    return score_labels(images.p, tables, rules.anchor, label, len(leaves))[0].T


def _solve(problem: PathProblem, images: Images, nodes: NDArray[np.int32], norms: NDArray[Any]) -> NDArray[np.float64]:
    """Fill in the residual norms of k nodes per image, and return the coefficients of each image's first node."""
    owner, place = np.nonzero(nodes >= 0)
    first = np.zeros((len(nodes), problem.tree.depth))
    for part, a, left in _solved(problem, images, owner, nodes[owner, place]):
        at, rank = owner[part], place[part]
        norms[at, rank] = np.sqrt(np.maximum(left, 0.0))
        first[at[rank == 0]] = a[rank == 0]
    return first


def _solved(problem: PathProblem, images: Images, owner: NDArray[np.intp], ends: NDArray[Any]) -> Iterator[Any]:
    """Yield slices of pairs of an image and a node, and the coefficients and squared residuals of these paths."""
    for part in (slice(start, start + SOLVED) for start in range(0, len(owner), SOLVED)):
        at, nodes, x = owner[part], ends[part], images.x[owner[part]]
        along = problem.along(nodes, images.p, at) if images.p.shape[1] else problem.along_images(nodes, x)
        a = problem.coefficients(nodes, along)
        yield part, a, problem.squared_residuals(x, images.squares[at], nodes, along, a)
