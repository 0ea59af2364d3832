"""The searches on torch tensors, on any device, with the same path problem, rules and ties.

Products, exact searches, coefficients and residuals are computed on the device of the images. A beam over the products
is extended by the compiled search on the processor.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require, require_positive
from hcep._progress import progress as bar
from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import check_shape
from hcep.dictionary.path_problem import as_numpy, namespace
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import block_size, for_blocks
from hcep.pursuit.result import PathResult, Trace, path_codes
from hcep.pursuit.search import (
    SearchOptions,
    best_paths,
    check_trace,
    search_beam,
    search_rules,
    search_tables,
    selection_keys,
)
from hcep.pursuit.tables import Images

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
    if trace:
        check_trace(len(rows), search_rules(problem, options))
    step = block_size(len(problem.directions)) * (GPU_BLOCKS if rows.is_cuda else 1)
    parts = []
    with bar("pursuit", len(rows), progress, "images") as advance:
        for block in torch.split(rows, step):
            if not bool(torch.isfinite(block).all()):
                raise DictionaryError("X has NaN or infinite values; drop these images or encode them again")
            x = _transformed(torch, block, dictionary.transform)
            parts.append(_search_block(problem, x, dictionary, options, n_best, rounded, trace))
            advance(len(block))
    coefficients, *beams = (torch.cat(column) for column in zip(*parts, strict=True))
    nodes, norms = beams[0], beams[len(beams) // 2]
    answer = nodes[:, 0].contiguous()
    codes, best_norms = _codes(torch, problem, dictionary.n_atoms, answer, coefficients), norms[:, 0].contiguous()
    steps = Trace(dictionary, as_numpy(beams[1]), as_numpy(beams[3])) if trace else None
    return TensorPathResult(dictionary, codes, best_norms, answer, nodes, norms, steps, coefficients_along=coefficients)


def _search_block(
    problem: PathProblem, x: Tensor, dictionary: ConceptDictionary, options: SearchOptions, n_best: int, rounded: bool,
    trace: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the coefficients of each image's best path, its n_best nodes, with a trace its beams, and their norms."""
    torch, rules = namespace(x), search_rules(problem, options)
    p, image = _products(torch, problem, x, rounded), torch.arange(len(x), device=x.device)
    with torch.no_grad():
        fixed, fixed_p, squares = x.detach(), p.detach(), (x.double() ** 2).sum(dim=1)
        if options.beam_width is None and rules.tol == 0.0 and not trace:
            beams: tuple[Tensor, ...] = (best_paths(problem, fixed_p, rules, n_best),)
        else:
            keys = selection_keys(problem, fixed_p, options.select) if callable(options.select) else None
            found = _search_beam(dictionary, options, fixed, fixed_p, keys, n_best, trace)
            beams = tuple(torch.from_numpy(nodes).to(x.device, torch.int64) for nodes in found)
        norms = [_norms(problem, fixed, fixed_p, squares, beam) for beam in beams]
    coefficients = problem.coefficients(beams[0][:, 0], problem.along(beams[0][:, 0], p, image))
    return coefficients.to(x.dtype), *(beam.to(torch.int32) for beam in beams), *norms


def _search_beam(
    dictionary: ConceptDictionary, options: SearchOptions, x: Tensor, p: Tensor, keys: Tensor | None, n_best: int,
    trace: bool,
) -> list[NDArray[np.int32]]:  # fmt: skip
    """Return the n_best nodes of each image and, with a trace, its beams, from the compiled search on the processor."""
    problem = dictionary.path_problem(options.anchor)
    tables, rules = search_tables(problem, options), search_rules(problem, options)
    images = Images.of(as_numpy(x), np.ascontiguousarray(as_numpy(p)))
    images = images if keys is None else images._replace(keys=np.ascontiguousarray(as_numpy(keys), np.float64))
    nodes = np.full((len(x), n_best), -1, dtype=np.int32)
    steps = np.full((len(x), rules.max_steps + 1, rules.width) if trace else (len(x), 0, 0), -1, dtype=np.int32)

    def work(block: slice) -> None:
        search_beam(problem, images.at(block), tables, rules, nodes[block], steps[block])

    for_blocks(len(x), work, options.n_jobs)
    return [nodes, steps] if trace else [nodes]


def _norms(problem: PathProblem, x: Tensor, p: Tensor, squares: Tensor, nodes: Tensor) -> Tensor:
    """Return the residual norms of the paths of each image, in the shape of `nodes`; NaN where that is -1."""
    torch = namespace(x)
    at = torch.nonzero(nodes >= 0, as_tuple=True)
    norms = torch.full(nodes.shape, float("nan"), dtype=torch.float64, device=x.device)
    along = problem.along(nodes[at], p, at[0])
    left = problem.squared_residuals(x[at[0]], squares[at[0]], nodes[at], along, problem.coefficients(nodes[at], along))
    norms[at] = left.clamp_min(0.0).sqrt()
    return norms


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
