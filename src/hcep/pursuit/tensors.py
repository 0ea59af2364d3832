"""The searches on torch tensors, on any device, with the same path problem, rules and ties."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hcep._checks import require, require_positive
from hcep._progress import progress as bar
from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import check_shape
from hcep.dictionary.path_problem import as_numpy, namespace
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import block_size
from hcep.pursuit.result import PathResult, Trace, path_codes
from hcep.pursuit.search import SearchOptions, best_paths, check_trace, search_rules, selection_keys
from hcep.pursuit.tables import Rules

Tensor = Any
#: Blocks on a GPU are this many times larger, because large products are faster there.
GPU_BLOCKS = 32


@dataclass(frozen=True, eq=False, repr=False)
class TensorPathResult(PathResult):
    """A `PathResult` whose arrays are tensors on the device of the images; ``codes`` is a sparse tensor.

    `numpy` converts it to a `PathResult` of arrays.

    Attributes
    ----------
    coefficients_along : tensor of shape (n_images, depth)
        The coefficients along each path, 0 beyond its end. If the images have a gradient, the coefficients have one
        too, for the given path.
    """

    coefficients_along: Tensor = field(kw_only=True)

    def numpy(self) -> PathResult:
        """Return the same result with arrays."""
        nodes, coefficients = (as_numpy(t) for t in (self.nodes, self.coefficients_along))
        codes = path_codes(self.dictionary, nodes, coefficients)
        norms, best, best_norms = map(as_numpy, (self.residual_norms, self.n_best_nodes, self.n_best_residual_norms))
        return PathResult(self.dictionary, codes, norms, nodes, best, best_norms, self.trace)

    def coefficients(self, image: int) -> Tensor:
        """Return the coefficients along the path of one image, in the order of ``paths[image]``."""
        return self.coefficients_along[image, : self.dictionary.hierarchy.path_tree.level[int(self.nodes[image])]]


def search_tensors(
    X: Tensor,
    dictionary: ConceptDictionary,
    options: SearchOptions,
    *,
    n_best: int,
    trace: bool = False,
    progress: bool = False,
) -> TensorPathResult:
    """Search a tensor as `hcep.hb_omp` does. The arrays of a trace are not tensors.

    float32, float16 and bfloat16 tensors are searched in single precision, all others in double precision. For
    bfloat16, the factors of the products of images and directions are rounded to bfloat16, and their sums are single.
    """
    torch = require("torch", "torch", "a search on tensors")
    check_shape(np.broadcast_to(np.float32(0.0), tuple(X.shape)), dictionary.n_dims)
    require_positive("n_best", n_best)
    rows = X.reshape(-1, dictionary.n_dims)
    single = rows.dtype in (torch.float16, torch.bfloat16, torch.float32)
    rows, rounded = rows.to(torch.float32 if single else torch.float64), rows.dtype == torch.bfloat16
    problem = dictionary.path_problem(options.anchor).on(rows)
    rules = search_rules(problem, options)
    if trace:
        check_trace(len(rows), rules)
    step = block_size(len(problem.directions)) * (GPU_BLOCKS if rows.is_cuda else 1)
    parts = []
    with bar("pursuit", len(rows), progress, "images") as advance:
        for block in torch.split(rows, step):
            if not bool(torch.isfinite(block).all()):
                raise DictionaryError("X has NaN or infinite values; drop these images or encode them again")
            x = _transformed(torch, block, dictionary.transform)
            parts.append(_search_block(problem, x, rules, options, n_best, rounded, trace))
            advance(len(block))
    coefficients, *beams = (torch.cat(column) for column in zip(*parts, strict=True))
    nodes, norms = beams[0], beams[len(beams) // 2]
    answer = nodes[:, 0].contiguous()
    codes, best_norms = _codes(torch, problem, dictionary.n_atoms, answer, coefficients), norms[:, 0].contiguous()
    steps = Trace(dictionary, as_numpy(beams[1]), as_numpy(beams[3])) if trace else None
    return TensorPathResult(dictionary, codes, best_norms, answer, nodes, norms, steps, coefficients_along=coefficients)


def _search_block(
    problem: PathProblem, x: Tensor, rules: Rules, options: SearchOptions, n_best: int, rounded: bool, trace: bool
) -> tuple[Tensor, ...]:
    """Return the coefficients of each image's best path, its n_best nodes, with a trace its beams, and their norms."""
    torch = namespace(x)
    p, image = _products(torch, problem, x, rounded), torch.arange(len(x), device=x.device)
    with torch.no_grad():
        fixed, fixed_p, squares = x.detach(), p.detach(), (x.double() ** 2).sum(dim=1)
        steps: list[Tensor] = []
        if options.beam_width is None and rules.tol == 0.0 and not trace:
            nodes = best_paths(problem, fixed_p, rules, n_best)
        else:
            keys = selection_keys(problem, fixed_p, options.select) if callable(options.select) else None
            share = torch.ones_like(problem.share) if options.select == "gain" else problem.share
            traced = steps if trace else None
            nodes = _search_beam(replace(problem, share=share), fixed, fixed_p, squares, rules, n_best, keys, traced)
        beams = (nodes, torch.stack(steps, 1)) if trace else (nodes,)
        norms = [_norms(problem, fixed, fixed_p, squares, beam) for beam in beams]
    coefficients = problem.coefficients(nodes[:, 0], problem.along(nodes[:, 0], p, image))
    return coefficients.to(x.dtype), *(beam.to(torch.int32) for beam in beams), *norms


def _norms(problem: PathProblem, x: Tensor, p: Tensor, squares: Tensor, nodes: Tensor) -> Tensor:
    """Return the residual norms of the paths of each image, in the shape of `nodes`; NaN where that is -1."""
    torch = namespace(x)
    at = torch.nonzero(nodes >= 0, as_tuple=True)
    norms = torch.full(nodes.shape, float("nan"), dtype=torch.float64, device=x.device)
    norms[at] = _squared_residuals(problem, x, p, squares, at[0], nodes[at]).clamp_min(0.0).sqrt()
    return norms


def _squared_residuals(problem: PathProblem, x: Tensor, p: Tensor, squares: Tensor, image: Tensor, node: Tensor) -> Any:
    """Return ``||x - D^T a||**2`` for pairs of an image and a node."""
    along = problem.along(node, p, image)
    a = problem.coefficients(node, along)
    return problem.squared_residuals(x[image], squares[image], node, along, a)


def _transformed(torch: Any, X: Tensor, transform: EmbeddingTransform) -> Tensor:
    """Transform raw images into the dictionary's space as `EmbeddingTransform` does, with a gradient."""
    if transform.power != 1.0:
        # The slope is infinite at zero, so the argument is clamped to a negligible number.
        X = torch.copysign(X.abs().clamp_min(1e-30) ** transform.power, X)
    if transform.unit_norm:
        norms = X.norm(dim=1, keepdim=True)
        X = X / torch.where(norms > 0, norms, 1.0)
    return transform.after_unit_norm(X)


def _products(torch: Any, problem: PathProblem, x: Tensor, rounded: bool) -> Tensor:
    if not rounded:
        return problem.products(x)
    directions, x = problem.directions.bfloat16(), x.bfloat16()
    if x.is_cuda and not x.requires_grad:
        return torch.mm(directions, x.T, out_dtype=torch.float32).T
    # A product of two bfloat16 numbers is exact in single precision, so this gives the same sums as a GPU.
    return (directions.float() @ x.T.float()).T


def _codes(torch: Any, problem: PathProblem, n_atoms: int, nodes: Tensor, coefficients: Tensor) -> Tensor:
    """Return the sparse codes, shape (n_images, n_atoms)."""
    path = problem.nodes_of_path[nodes.long()]
    rows, places = torch.nonzero(path >= 0, as_tuple=True)
    at = torch.stack([rows, problem.edges[path[rows, places]]])
    size = (len(nodes), n_atoms)
    return torch.sparse_coo_tensor(at, coefficients[rows, places], size, check_invariants=False).coalesce()


def _search_beam(
    problem: PathProblem,
    x: Tensor,
    p: Tensor,
    squares: Tensor,
    rules: Rules,
    n_best: int,
    keys: Tensor | None,
    steps: list[Tensor] | None,
) -> Tensor:
    """Run the paper's Algorithm 2 for all images at once; the hypotheses are a flat list of (image, node, score).

    The hypotheses of one image are always in the order of their nodes, because those that ended are from higher levels.
    Stable sorts therefore give ties to the lowest node. `keys` is how much each image likes each node, where a rule of
    the caller's own says so. `steps` gets the beam before every step and after the last one.
    """
    torch, n_images, device = namespace(x), len(x), x.device
    first_child, all_children = (
        torch.from_numpy(a.astype(np.int64)).to(device) for a in (problem.tree.first_child, problem.tree.n_children)
    )
    image = torch.arange(n_images, device=device)
    node, score = torch.zeros_like(image), torch.zeros(n_images, dtype=torch.float64, device=device)
    goes_on = torch.ones(n_images, dtype=torch.bool, device=device)
    for step in range(rules.max_steps + 1):
        if steps is not None:
            steps.append(_best_first(torch, image, node, score, goes_on, rules.width))
        if step == rules.max_steps:
            break
        if rules.tol > 0.0:
            near = _squared_residuals(problem, x, p, squares, image, node) < rules.tol**2
            goes_on[image[near]] = False
        n_children = torch.where(goes_on[image], all_children[node], 0)
        owner = torch.repeat_interleave(n_children)
        before = torch.cumsum(n_children, 0) - n_children
        child = first_child[node[owner]] + torch.arange(len(owner), device=device) - before[owner]
        column = problem.column[child]
        value = (p[image[owner], column].double() + problem.offset[column]) * problem.sign[child]
        key = value.abs() * problem.share[child] if keys is None else keys[image[owner], child]
        if rules.signed or keys is not None:
            tried = (key > -torch.inf) & ((value > 0.0) | (not rules.signed))
            owner, child, value, key = (t[tried] for t in (owner, child, value, key))
        if rules.widest > rules.width:
            tried = _ranks(torch, owner, key) < rules.width
            owner, child, value = owner[tried], child[tried], value[tried]
        goes_on[:] = False
        goes_on[image[owner]] = True
        ended = torch.bincount(owner, minlength=len(node)) == 0
        score = torch.cat([score[ended], score[owner] + value**2 - rules.anchor])
        image, node = torch.cat([image[ended], image[owner]]), torch.cat([node[ended], child])
        best = _ranks(torch, image, score) < rules.width
        image, node, score = image[best], node[best], score[best]
    return _best_first(torch, image, node, score, torch.ones_like(goes_on), n_best)


def _best_first(torch: Any, image: Tensor, node: Tensor, score: Tensor, included: Tensor, size: int) -> Tensor:
    """Return the best nodes of the images that are included, (n_images, size), padded with -1."""
    nodes = torch.full((len(included), size), -1, dtype=torch.int64, device=node.device)
    rank = _ranks(torch, image, score)
    chosen = (rank < size) & included[image]
    nodes[image[chosen], rank[chosen]] = node[chosen]
    return nodes


def _ranks(torch: Any, group: Tensor, score: Tensor) -> Tensor:
    """Return the rank of each entry within its group: the highest score first, and the earlier entry if tied."""
    order = torch.sort(score, descending=True, stable=True).indices
    order = order[torch.sort(group[order], stable=True).indices]
    counts = torch.bincount(group, minlength=1)
    first = torch.cumsum(counts, 0) - counts
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first[group[order]]
    return ranks
