"""The searches on torch tensors, on whatever device they are: the same products, rules and ties as the compiled ones.

Arrays over nodes and images are node-major, so that picking rows of the tree copies whole rows. Scores are double
precision, as in the compiled searches: ``p**2 - anchor`` cancels for a large anchor.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hcep._checks import require, require_positive
from hcep._progress import progress as bar
from hcep.dictionary import ConceptDictionary, PathBasis
from hcep.dictionary.checks import check_shape
from hcep.errors import DictionaryError
from hcep.pursuit.blocks import block_size
from hcep.pursuit.result import Path, PathResult, path_codes
from hcep.pursuit.tables import CANCELLED, Rules

Tensor = Any
#: Blocks on a GPU are that much larger: its products gain from size, and its memory is not a cache.
GPU_BLOCKS = 32


@dataclass(frozen=True, eq=False, repr=False)
class TensorPathResult(PathResult):
    """A `PathResult` whose arrays are tensors on the images' device, and ``codes`` a sparse one.

    `coefficients_along` (n_images, depth), zero beyond the end of a path, has a gradient where the images have one:
    the path is what it is, its coefficients move with the image. `numpy` gives a plain `PathResult`.
    """

    coefficients_along: Tensor = field(kw_only=True)

    def numpy(self) -> PathResult:
        """The same in arrays."""
        nodes, coefficients = (_array(t) for t in (self.nodes, self.coefficients_along))
        codes = path_codes(self.dictionary, nodes, coefficients)
        norms, best, best_norms = map(_array, (self.residual_norms, self.n_best_nodes, self.n_best_residual_norms))
        return PathResult(self.dictionary, codes, norms, nodes, best, best_norms)

    @property
    def leaves(self) -> NDArray[np.str_]:
        """Id of the last synset of each path; the root's for an empty path."""
        return self.numpy().leaves

    @property
    def paths(self) -> list[Path]:
        """The synset ids along each path, the root left out."""
        return self.numpy().paths

    def hypotheses(self, image: int) -> Any:
        """The best hypotheses of one image's final beam, the answer first."""
        return self.numpy().hypotheses(image)

    def coefficients(self, image: int) -> Tensor:
        """Coefficients along the path of one image, in the order of ``paths[image]``."""
        return self.coefficients_along[image, : self.dictionary.hierarchy.path_tree.level[int(self.nodes[image])]]

    def _repr_html_(self) -> str:
        return self.numpy()._repr_html_()


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def search_tensors(
    X: Tensor, dictionary: ConceptDictionary, rules: Rules, *, exact: bool, n_best: int, progress: bool = False
) -> TensorPathResult:
    """What `hcep.hb_omp` does for a tensor; `exact` searches all rooted paths, not a beam.

    float32 and half are searched in single precision; bfloat16 is too, but for the products of images and directions,
    whose factors are rounded to bfloat16 and whose sums are single; everything else in double.
    """
    torch = require("torch", "torch", "a search on tensors")
    check_shape(np.broadcast_to(np.float32(0.0), tuple(X.shape)), dictionary.n_dims)
    require_positive("n_best", n_best)
    rows = X.reshape(-1, dictionary.n_dims)
    single = rows.dtype in (torch.float16, torch.bfloat16, torch.float32)
    rows, rounded = rows.to(torch.float32 if single else torch.float64), rows.dtype == torch.bfloat16
    basis = dictionary.anchored_path_basis(rules.anchor)
    tables = TensorTables.of(torch, dictionary, basis, rows)
    step = block_size(len(basis.directions)) * (GPU_BLOCKS if rows.is_cuda else 1)
    parts = []
    with bar("pursuit", len(rows), progress, "images") as advance:
        for block in torch.split(rows, step):
            parts.append(_search_block(tables, block, rules, exact, n_best, rounded))
            advance(len(block))
    nodes, norms, coefficients = (torch.cat(column) for column in zip(*parts, strict=True))
    answer = nodes[:, 0].contiguous()
    codes, own = tables.codes(answer, coefficients), norms[:, 0].contiguous()
    return TensorPathResult(dictionary, codes, own, answer, nodes, norms, coefficients_along=coefficients)


def _search_block(
    tables: "TensorTables", block: Tensor, rules: Rules, exact: bool, n_best: int, rounded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The n_best nodes of each image, their residual norms, and the coefficients of the first."""
    torch = tables.torch
    images = tables.project(block, rounded)
    with torch.no_grad():
        fixed = TensorImages(*(part.detach() for part in images))
        find = _search_all if exact and rules.tol == 0.0 else _search_beam
        nodes = find(tables, fixed, rules, n_best)
        found = nodes >= 0
        image = torch.arange(len(block), device=block.device)
        norms = torch.full(nodes.shape, float("nan"), dtype=torch.float64, device=block.device)
        squares = tables.squared_residuals(fixed, image[:, None].expand_as(nodes)[found], nodes[found], rules)
        norms[found] = squares.clamp_min(0.0).sqrt()
    _, coefficients = tables.solve(images, image, nodes[:, 0])
    return nodes.to(torch.int32), norms, coefficients.to(block.dtype)


class TensorImages(NamedTuple):
    """A block of images in the dictionary's space, their products (n_columns, n_images), their squared norms."""

    x: Tensor
    p: Tensor
    squares: Tensor


class TensorTables:
    """The tables of one dictionary and anchor on one device (see `PathTree`, `PathBasis`, `EmbeddingTransform`)."""

    def __init__(self, torch: Any, dictionary: ConceptDictionary, basis: PathBasis, like: Tensor) -> None:
        self.torch, self.tree, self.n_atoms = torch, basis.tree, dictionary.n_atoms

        def put(array: NDArray[Any] | None, dtype: Any) -> Tensor:
            return None if array is None else torch.from_numpy(np.array(array)).to(like.device, dtype)

        tree, transform, whole, double, own = basis.tree, dictionary.transform, torch.int64, torch.float64, like.dtype
        self.parent, self.edge, self.level = put(tree.parent, whole), put(tree.edge, whole), put(tree.level, whole)
        self.first_child, self.n_children = put(tree.first_child, whole), put(tree.n_children, whole)
        self.along, self.column = put(basis.nodes_of_path, whole), put(basis.column, whole)
        self.sign, self.share = put(basis.sign, double), put(basis.share, double)
        self.offset, self.triangle = put(basis.offset, double), put(basis.triangle, double)
        self.directions, self.atoms = put(basis.directions, own), put(dictionary.atoms, own)
        self.power, self.unit_norm, self.scale = transform.power, transform.unit_norm, transform.scale
        self.mean, self.constants = put(transform.mean, own), put(transform.constants, own)
        self.whitener = put(None if transform.whitener is None else transform.scale * transform.whitener, own)

    @classmethod
    def of(cls, torch: Any, dictionary: ConceptDictionary, basis: PathBasis, like: Tensor) -> "TensorTables":
        """The tables where `like` is and in its precision; kept as long as the basis, for the next call."""
        kept = _KEPT.setdefault(basis, {})
        if (like.device, like.dtype) not in kept:
            kept[like.device, like.dtype] = cls(torch, dictionary, basis, like)
        return kept[like.device, like.dtype]

    def project(self, X: Tensor, rounded: bool) -> TensorImages:
        """A block of raw images in the dictionary's space, with their products."""
        if not bool(self.torch.isfinite(X).all()):
            raise DictionaryError("X has NaN or infinite values; drop these images or encode them again")
        x = self.transform(X)
        return TensorImages(x, self.products(x, rounded), (x.double() ** 2).sum(dim=1))

    def transform(self, X: Tensor) -> Tensor:
        """As `EmbeddingTransform` does it."""
        if self.power != 1.0:
            # Not zero itself, where the slope is infinite; the number stays negligible.
            X = self.torch.copysign(X.abs().clamp_min(1e-30) ** self.power, X)
        if self.unit_norm:
            norms = X.norm(dim=1, keepdim=True)
            X = X / self.torch.where(norms > 0, norms, 1.0)
        X = X if self.mean is None else X - self.mean
        X = X * self.scale if self.whitener is None else X @ self.whitener
        return X if self.constants is None else self.torch.cat([X, self.constants.expand(len(X), -1)], dim=1)

    def products(self, x: Tensor, rounded: bool) -> Tensor:
        """``<x, q>`` of every direction and image, (n_columns, n_images)."""
        if not rounded:
            return self.directions @ x.T
        directions, x = self.directions.bfloat16(), x.bfloat16()
        if x.is_cuda and not x.requires_grad:
            return self.torch.mm(directions, x.T, out_dtype=self.torch.float32)
        # A product of two bfloat16 is exact in single precision: this is what a GPU's sums are, without its speed.
        return directions.float() @ x.T.float()

    def values(self, images: TensorImages, nodes: Tensor, image: Tensor | None = None) -> Tensor:
        """``p_v`` in double precision: of some nodes and all images, or of pairs of node and image."""
        column, sign = self.column[nodes].clamp_min(0), self.sign[nodes]
        if image is None:
            return (images.p[column].double() + self.offset[column][:, None]) * sign[:, None]
        return (images.p[column, image].double() + self.offset[column]) * sign

    def solve(self, images: TensorImages, image: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Products and coefficients (n, depth) along the path of each pair, by back substitution in the path's R."""
        torch, path = self.torch, self.along[nodes]
        inside, at = path >= 0, path.clamp_min(0)
        along = torch.where(inside, self.values(images, at, image[:, None].expand_as(at)), 0.0)
        # Row m of the table is the column of R that the path's m-th atom has; outside, and for an atom that depends on
        # those above, it becomes a unit column, and with its product 0 the coefficient 0.
        R = torch.where(inside[:, :, None], self.triangle[at], 0.0).transpose(1, 2)
        R = R + torch.diag_embed((R.diagonal(dim1=1, dim2=2) == 0).double())
        return along, torch.linalg.solve_triangular(R, along[:, :, None], upper=True)[:, :, 0]

    def squared_residuals(self, images: TensorImages, image: Tensor, nodes: Tensor, rules: Rules) -> Tensor:
        """``||x - D^T a||**2`` of pairs of image and node: from the products, or measured where these cancel."""
        along, a = self.solve(images, image, nodes)
        path = self.along[nodes]
        off = self.torch.where(path >= 0, a - 1.0, 0.0)
        augmented = images.squares[image] + rules.anchor * self.level[nodes]
        squares = augmented - (along**2).sum(dim=1) - rules.anchor * (off**2).sum(dim=1)
        share = CANCELLED[np.dtype(np.float32 if images.x.dtype == self.torch.float32 else np.float64)]
        near = self.torch.nonzero(squares <= share * augmented)[:, 0]
        for part in self.torch.split(near, 1024):  # the atoms of many paths at once would fill the memory
            atoms = self.atoms[self.edge[path[part].clamp_min(0)].clamp_min(0)].double()
            left = images.x[image[part]].double() - self.torch.einsum("nk,nkd->nd", a[part], atoms)
            squares[part] = (left**2).sum(dim=1)
        return squares

    def codes(self, nodes: Tensor, coefficients: Tensor) -> Tensor:
        """Sparse codes (n_images, n_atoms)."""
        path = self.along[nodes.long()]
        rows, places = self.torch.nonzero(path >= 0, as_tuple=True)
        at = self.torch.stack([rows, self.edge[path[rows, places]]])
        size = (len(nodes), self.n_atoms)
        return self.torch.sparse_coo_tensor(at, coefficients[rows, places], size, check_invariants=False).coalesce()


_KEPT: WeakKeyDictionary[PathBasis, dict[tuple[Any, Any], TensorTables]] = WeakKeyDictionary()


def _search_all(tables: TensorTables, images: TensorImages, rules: Rules, n_best: int) -> Tensor:
    """Best complete paths of each image, (n_images, n_best): a running sum down the tree, then the best ends."""
    torch, n_images = tables.torch, images.p.shape[1]
    score = torch.zeros((rules.n_within, n_images), dtype=torch.float64, device=images.p.device)
    edges = np.searchsorted(tables.tree.level, np.arange(1, rules.max_steps + 2)).tolist()
    for start, stop in pairwise(edges):
        nodes = torch.arange(start, stop, device=images.p.device)
        value = tables.values(images, nodes)
        score[start:stop] = score[tables.parent[nodes]] + value**2 - rules.anchor
        if rules.signed:
            score[start:stop][value <= 0.0] = -torch.inf
    inner = (tables.n_children > 0) & (tables.level < rules.max_steps)
    if not rules.signed:
        ends = torch.nonzero(~inner[: rules.n_within])[:, 0]
        best = _best_rows(torch, score[ends], n_best)
        return torch.where(best >= 0, ends[best], -1)
    alive = torch.zeros_like(score)
    alive.index_add_(0, tables.parent[1 : rules.n_within], (score[1:] > -torch.inf).double())
    score[alive > 0] = -torch.inf
    return _best_rows(torch, score, n_best)


def _best_rows(torch: Any, score: Tensor, n_best: int) -> Tensor:
    """Rows of the highest scores of each column, (n_columns, n_best), the lowest row of equal ones; -1 for no more."""
    best = torch.full((score.shape[1], n_best), -1, dtype=torch.int64, device=score.device)
    for k in range(min(n_best, len(score))):
        row = score.argmax(dim=0, keepdim=True)  # the first of equals
        best[:, k] = torch.where(score.gather(0, row) > -torch.inf, row, -1)[0]
        score.scatter_(0, row, -torch.inf)
    return best


def _search_beam(tables: TensorTables, images: TensorImages, rules: Rules, n_best: int) -> Tensor:
    """The paper's Algorithm 2 for all images at once: hypotheses are a flat list of (image, node, score).

    Of one image, hypotheses always stand in the order of nodes: those that ended come from levels above. So stable
    sorts give equal scores to the lowest node.
    """
    torch, n_images, device = tables.torch, images.p.shape[1], images.p.device
    image = torch.arange(n_images, device=device)
    node, score = torch.zeros_like(image), torch.zeros(n_images, dtype=torch.float64, device=device)
    stopped = torch.zeros(n_images, dtype=torch.bool, device=device)
    for _ in range(rules.max_steps):
        if rules.tol > 0.0:
            near = tables.squared_residuals(images, image, node, rules) < rules.tol**2
            stopped[image[near]] = True
        n_children = torch.where(stopped[image], 0, tables.n_children[node])
        owner = torch.repeat_interleave(n_children)
        before = torch.cumsum(n_children, 0) - n_children
        child = tables.first_child[node[owner]] + torch.arange(len(owner), device=device) - before[owner]
        value = tables.values(images, child, image[owner])
        if rules.signed:
            owner, child, value = (t[value > 0.0] for t in (owner, child, value))
        if rules.widest > rules.width:
            kept = _ranks(torch, owner, value.abs() * tables.share[child]) < rules.width
            owner, child, value = owner[kept], child[kept], value[kept]
        if not len(owner):
            break
        ended = torch.bincount(owner, minlength=len(node)) == 0
        score = torch.cat([score[ended], score[owner] + value**2 - rules.anchor])
        image, node = torch.cat([image[ended], image[owner]]), torch.cat([node[ended], child])
        kept = _ranks(torch, image, score) < rules.width
        image, node, score = image[kept], node[kept], score[kept]
    rank = _ranks(torch, image, score)
    best = torch.full((n_images, n_best), -1, dtype=torch.int64, device=device)
    best[image[rank < n_best], rank[rank < n_best]] = node[rank < n_best]
    return best


def _ranks(torch: Any, group: Tensor, score: Tensor) -> Tensor:
    """Place of each entry among those of its group, highest score first, earlier entries first among equals."""
    order = torch.sort(score, descending=True, stable=True).indices
    order = order[torch.sort(group[order], stable=True).indices]
    counts = torch.bincount(group, minlength=1)
    first = torch.cumsum(counts, 0) - counts
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first[group[order]]
    return ranks
