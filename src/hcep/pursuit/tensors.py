"""The searches on torch tensors, on any device, with the same path problem, rules and ties."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require, require_positive
from hcep._progress import progress as bar
from hcep.dictionary import ConceptDictionary, PathProblem
from hcep.dictionary.checks import check_shape
from hcep.dictionary.path_problem import namespace
from hcep.dictionary.transform import EmbeddingTransform
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import block_size
from hcep.pursuit.result import Path, PathResult, path_codes
from hcep.pursuit.search import best_paths
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
        nodes, coefficients = (_array(t) for t in (self.nodes, self.coefficients_along))
        codes = path_codes(self.dictionary, nodes, coefficients)
        norms, best, best_norms = map(_array, (self.residual_norms, self.n_best_nodes, self.n_best_residual_norms))
        return PathResult(self.dictionary, codes, norms, nodes, best, best_norms)

    @property
    def leaves(self) -> NDArray[np.str_]:
        """The id of the last synset of each path; the root for an empty path."""
        return self.numpy().leaves

    @property
    def paths(self) -> list[Path]:
        """The synset ids along each path, without the root."""
        return self.numpy().paths

    def hypotheses(self, image: int) -> Any:
        """Return the `n_best` hypotheses of one image, starting with the answer."""
        return self.numpy().hypotheses(image)

    def coefficients(self, image: int) -> Tensor:
        """Return the coefficients along the path of one image, in the order of ``paths[image]``."""
        return self.coefficients_along[image, : self.dictionary.hierarchy.path_tree.level[int(self.nodes[image])]]

    def _repr_html_(self) -> str:
        return self.numpy()._repr_html_()


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def search_tensors(
    X: Tensor, dictionary: ConceptDictionary, rules: Rules, *, exact: bool, n_best: int, progress: bool = False
) -> TensorPathResult:
    """Search a tensor as `hcep.hb_omp` does; `exact` searches all rooted paths instead of a beam.

    float32, float16 and bfloat16 tensors are searched in single precision, all others in double precision. For
    bfloat16, the factors of the products of images and directions are rounded to bfloat16, and their sums are single.
    """
    torch = require("torch", "torch", "a search on tensors")
    check_shape(np.broadcast_to(np.float32(0.0), tuple(X.shape)), dictionary.n_dims)
    require_positive("n_best", n_best)
    rows = X.reshape(-1, dictionary.n_dims)
    single = rows.dtype in (torch.float16, torch.bfloat16, torch.float32)
    rows, rounded = rows.to(torch.float32 if single else torch.float64), rows.dtype == torch.bfloat16
    problem = dictionary.path_problem(rules.anchor).on(rows)
    step = block_size(len(problem.directions)) * (GPU_BLOCKS if rows.is_cuda else 1)
    parts = []
    with bar("pursuit", len(rows), progress, "images") as advance:
        for block in torch.split(rows, step):
            if not bool(torch.isfinite(block).all()):
                raise DictionaryError("X has NaN or infinite values; drop these images or encode them again")
            x = _transformed(torch, block, dictionary.transform)
            parts.append(_search_block(problem, x, rules, exact, n_best, rounded))
            advance(len(block))
    nodes, norms, coefficients = (torch.cat(column) for column in zip(*parts, strict=True))
    answer = nodes[:, 0].contiguous()
    codes, best_norms = _codes(torch, problem, dictionary.n_atoms, answer, coefficients), norms[:, 0].contiguous()
    return TensorPathResult(dictionary, codes, best_norms, answer, nodes, norms, coefficients_along=coefficients)


def _search_block(
    problem: PathProblem, x: Tensor, rules: Rules, exact: bool, n_best: int, rounded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the n_best nodes of each image, their residual norms, and the coefficients of the first."""
    torch = namespace(x)
    p, image = _products(torch, problem, x, rounded), torch.arange(len(x), device=x.device)
    with torch.no_grad():
        fixed, fixed_p, squares = x.detach(), p.detach(), (x.double() ** 2).sum(dim=1)
        if exact and rules.tol == 0.0:
            nodes = best_paths(problem, fixed_p, rules, n_best)
        else:
            nodes = _search_beam(problem, fixed, fixed_p, squares, rules, n_best)
        owner, rank = torch.nonzero(nodes >= 0, as_tuple=True)
        norms = torch.full(nodes.shape, float("nan"), dtype=torch.float64, device=x.device)
        left = _squared_residuals(problem, fixed, fixed_p, squares, owner, nodes[owner, rank])
        norms[owner, rank] = left.clamp_min(0.0).sqrt()
    coefficients = problem.coefficients(nodes[:, 0], problem.along(nodes[:, 0], p, image))
    return nodes.to(torch.int32), norms, coefficients.to(x.dtype)


def _squared_residuals(problem: PathProblem, x: Tensor, p: Tensor, squares: Tensor, image: Tensor, node: Tensor) -> Any:
    """Return ``||x - D^T a||**2`` for pairs of an image and a node."""
    along = problem.along(node, p, image)
    a = problem.coefficients(node, along)
    return problem.squared_residuals(x[image], squares[image], node, along, a)


def _transformed(torch: Any, X: Tensor, transform: EmbeddingTransform) -> Tensor:
    """Transform raw images into the dictionary's space as `EmbeddingTransform` does, with a gradient."""

    def put(array: Any) -> Tensor:
        return torch.from_numpy(np.array(array)).to(X)

    if transform.power != 1.0:
        # The slope is infinite at zero, so the argument is clamped to a negligible number.
        X = torch.copysign(X.abs().clamp_min(1e-30) ** transform.power, X)
    if transform.unit_norm:
        norms = X.norm(dim=1, keepdim=True)
        X = X / torch.where(norms > 0, norms, 1.0)
    X = X if transform.mean is None else X - put(transform.mean)
    X = X * transform.scale if transform.whitener is None else X @ put(transform.scale * transform.whitener)
    return X if transform.constants is None else torch.cat([X, put(transform.constants).expand(len(X), -1)], dim=1)


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


def _search_beam(problem: PathProblem, x: Tensor, p: Tensor, squares: Tensor, rules: Rules, n_best: int) -> Tensor:
    """Run the paper's Algorithm 2 for all images at once; the hypotheses are a flat list of (image, node, score).

    The hypotheses of one image are always in the order of their nodes, because those that ended are from higher levels.
    Stable sorts therefore give ties to the lowest node.
    """
    torch, n_images, device = namespace(x), len(x), x.device
    first_child, all_children = (torch.from_numpy(a.copy()).to(device) for a in _children(problem))
    image = torch.arange(n_images, device=device)
    node, score = torch.zeros_like(image), torch.zeros(n_images, dtype=torch.float64, device=device)
    stopped = torch.zeros(n_images, dtype=torch.bool, device=device)
    for _ in range(rules.max_steps):
        if rules.tol > 0.0:
            near = _squared_residuals(problem, x, p, squares, image, node) < rules.tol**2
            stopped[image[near]] = True
        n_children = torch.where(stopped[image], 0, all_children[node])
        owner = torch.repeat_interleave(n_children)
        before = torch.cumsum(n_children, 0) - n_children
        child = first_child[node[owner]] + torch.arange(len(owner), device=device) - before[owner]
        column = problem.column[child]
        value = (p[image[owner], column].double() + problem.offset[column]) * problem.sign[child]
        if rules.signed:
            owner, child, value = (t[value > 0.0] for t in (owner, child, value))
        if rules.widest > rules.width:
            tried = _ranks(torch, owner, value.abs() * problem.share[child]) < rules.width
            owner, child, value = owner[tried], child[tried], value[tried]
        if not len(owner):
            break
        ended = torch.bincount(owner, minlength=len(node)) == 0
        score = torch.cat([score[ended], score[owner] + value**2 - rules.anchor])
        image, node = torch.cat([image[ended], image[owner]]), torch.cat([node[ended], child])
        best = _ranks(torch, image, score) < rules.width
        image, node, score = image[best], node[best], score[best]
    rank = _ranks(torch, image, score)
    nodes = torch.full((n_images, n_best), -1, dtype=torch.int64, device=device)
    nodes[image[rank < n_best], rank[rank < n_best]] = node[rank < n_best]
    return nodes


def _children(problem: PathProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return problem.tree.first_child.astype(np.int64), problem.tree.n_children.astype(np.int64)


def _ranks(torch: Any, group: Tensor, score: Tensor) -> Tensor:
    """Return the rank of each entry within its group: the highest score first, and the earlier entry if tied."""
    order = torch.sort(score, descending=True, stable=True).indices
    order = order[torch.sort(group[order], stable=True).indices]
    counts = torch.bincount(group, minlength=1)
    first = torch.cumsum(counts, 0) - counts
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first[group[order]]
    return ranks
