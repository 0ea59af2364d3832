"""The path problem: anchored least squares on every rooted path, prepared so that each image costs one matrix product.

The least squares of a path are written only here, in lines that work for numpy arrays and for torch tensors. The
compiled searches over the same numbers are in `hcep.pursuit.search_kernel`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import quoted
from hcep.hierarchy import Hierarchy, PathTree

#: A numpy array, or a torch tensor on any device.
Array = Any
#: An atom whose part outside the span of its ancestors is below this share of its norm counts as dependent on them.
DEPENDENT = 1e-10
#: A squared residual below this share of ``||x||**2`` (plus the anchor's part) is the difference of two nearly equal
#: numbers and has lost its digits, so it is computed from the residual vector instead.
CANCELLED = {"float32": 1e-2, "float64": 1e-6}
#: The most numbers to gather at once when each image needs different atoms or directions.
GATHERED = 4_000_000


class DependentAtomsWarning(UserWarning):
    """Some atoms are zero or lie in the span of their ancestors, so their coefficient is always 0."""


@dataclass(frozen=True, eq=False, repr=False)
class PathProblem:
    """The least-squares problem on every rooted path of a dictionary.

    Get one from `ConceptDictionary.path_problem`.

    Attributes
    ----------
    tree : PathTree
        Node v of this tree stands for one rooted path, whose last atom is d_v.
    anchor : float
        Weight lambda of the prior that coefficients are 1; 0 means plain least squares.
    atoms : array of shape (n_atoms, n_dims)
    directions : array of shape (n_columns, n_dims)
        The distinct q_v. Siblings with equal or opposite directions share one row, so that they tie exactly.
    offset : array of shape (n_columns,)
        The number that the anchor adds to ``<x, q_v>``; zero without an anchor.
    column : integer array of shape (n_nodes,)
        The row of `directions` that each node uses; -1 for the root and for dependent atoms, whose q_v is 0.
    sign : array of shape (n_nodes,)
        1 or -1, or 0 for a node without a column.
    share : array of shape (n_nodes,)
        s_v, the share of each atom's norm that lies outside the span of its ancestors.
    triangle : array of shape (n_nodes, depth)
        Row v holds ``<q_u, d_v>`` for each u along the path, which is the last column of the R in the path's QR.

    Notes
    -----
    On the path to node v, with atoms d_u along it, an image x in the dictionary's space has the problem::

        minimise over a   ||x - sum_u a_u d_u||**2 + lambda * ||a - 1||**2

    The support of a path is fixed, so its projection does not depend on the image. Let P be the projection onto the
    atoms above v, and define::

        q_v = (d_v - P d_v) / ||d_v - P d_v||        s_v = ||d_v - P d_v|| / ||d_v||        p_v = <x, q_v>

    The minimum is then ``||x||**2 - score``, where the score of a path is the sum of ``p_u**2 - lambda`` along it. The
    published algorithm picks v by a cosine that equals ``|p_v| * s_v`` divided by the residual's norm. The anchored
    problem is the plain problem with atoms ``[d_v; sqrt(lambda) e_level]`` and images ``[x; sqrt(lambda) 1]``.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.0], "car": [0.0, 0.0, 3.0]}
    >>> problem = ConceptDictionary.from_leaf_embeddings(h, leaves).path_problem()
    >>> x = np.array([[2.0, 1.2, 0.0]])
    >>> problem.scores(problem.values(problem.products(x)))[problem.tree.leaf_nodes].round(2).T  # car, cat, dog
    array([[0.  , 5.44, 5.44]])
    """

    tree: PathTree
    anchor: float
    atoms: Array
    directions: Array
    offset: Array
    column: Array
    sign: Array
    share: Array
    triangle: Array
    _on_devices: dict[Any, PathProblem] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: PathTree, atoms: NDArray[np.float64], anchor: float) -> PathProblem:
        """Orthogonalise every atom against its ancestors, level by level."""
        q, triangle, share = _orthogonalise(tree, atoms, anchor)
        column, sign = _share_columns(tree, q, share)
        rows, n_dims = np.unique(column[column >= 0]), atoms.shape[1]
        places = np.full(tree.n_nodes + 1, -1, dtype=np.int32)
        places[rows] = np.arange(len(rows))
        distinct = q[rows] if len(rows) else q[:1]  # one row of zeros if no atom has a direction
        return cls(
            tree=tree,
            anchor=anchor,
            atoms=atoms,
            directions=distinct[:, :n_dims] * 1.0,
            offset=anchor**0.5 * distinct[:, n_dims:].sum(1),
            column=places[column],
            sign=sign,
            share=share,
            triangle=triangle,
        )

    # -- index arrays -------------------------------------------------------------------------------------

    @cached_property
    def nodes_of_path(self) -> Array:
        """The nodes along each path, shape (n_nodes, depth), with -1 beyond its end."""
        return _like(self.column, self.tree.ancestors())

    @cached_property
    def edges(self) -> Array:
        """The last atom of each path, shape (n_nodes,); -1 for the root."""
        return _like(self.column, self.tree.edge)

    @cached_property
    def _levels(self) -> list[tuple[slice, Array]]:
        """For each level below the root, the slice of its nodes and their parents."""
        ends = np.searchsorted(self.tree.level, np.arange(1, self.tree.depth + 2)).tolist()
        levels = [slice(start, stop) for start, stop in pairwise(ends)]
        return [(at, _like(self.column, self.tree.parent[at].astype(np.int64))) for at in levels]

    # -- products, scores and objectives ------------------------------------------------------------------

    @cached_property
    def directions32(self) -> NDArray[np.float32]:
        """The directions in single precision."""
        return np.asarray(self.directions, dtype=np.float32)

    def products(self, x: Array) -> Array:
        """Multiply images by all directions: ``<x, q>``, shape (n_images, n_columns), in the images' precision."""
        if isinstance(x, np.ndarray):
            return x @ (self.directions32 if x.dtype == np.float32 else self.directions).T
        return (self.directions @ x.T).T  # in this order, picking nodes copies whole rows

    def values(self, products: Array, nodes: Any = slice(None)) -> Array:
        """Return ``p_v`` of all nodes, or of the selected ones, in double precision, shape (n_nodes, n_images)."""
        column, sign = self.column[nodes], self.sign[nodes]
        return (_double(products.T[column]) + self.offset[column][:, None]) * sign[:, None]

    def scores(self, values: Array, *, signed: bool = False, state: Array | None = None) -> Array:
        """Score the path to every node, shape (n_nodes, n_images), as a running sum down the tree.

        Parameters
        ----------
        values : array of shape (n_nodes, n_images)
            ``p_v`` of all nodes, or of the first ones, from `values`.
        signed : bool
            Give a score of ``-inf`` to every node with ``p_v <= 0`` and to all nodes below it.
        state : array of shape (n_nodes, n_images) or (n_nodes, 1), optional
            Which nodes are open to each image, as in `hcep.pursuit.limits.PathLimits`.
        """
        squares = values * values
        score = squares * 0.0
        for at, parents in self._levels:
            if at.start >= len(values):
                break
            if at.stop > len(values):
                at, parents = slice(at.start, len(values)), parents[: len(values) - at.start]
            score[at] = score[parents] + squares[at] - self.anchor
            if signed or state is not None:
                score[at][barred(values[at], signed, None if state is None else state[at])] = -np.inf
        return score

    # -- one path of each image ---------------------------------------------------------------------------

    def along(self, nodes: Array, products: Array, images: Array) -> Array:
        """Return ``p_u`` along the path to ``nodes[k]`` for image ``images[k]``: (n_paths, depth), 0 beyond the end."""
        column, inside, xp = *self._columns(nodes), namespace(self.column)
        return xp.where(inside, self._with_offset(nodes, _double(products[images[:, None], column])), 0.0)

    def along_images(self, nodes: NDArray[Any], x: NDArray[Any]) -> NDArray[np.float64]:
        """As `along` with one node per image, but from the images (n_images, n_dims) instead of their products."""
        column, inside = self._columns(nodes)
        step, values = max(1, GATHERED // max(column.shape[1] * x.shape[1], 1)), np.zeros(column.shape)
        for at in (slice(start, start + step) for start in range(0, len(column), step)):
            values[at] = np.einsum("nkd,nd->nk", self.directions[column[at]], x[at])
        return np.where(inside, self._with_offset(nodes, values), 0.0)

    def _columns(self, nodes: Array) -> tuple[Array, Array]:
        path = self.nodes_of_path[nodes]
        return self.column[path], path >= 0

    def _with_offset(self, nodes: Array, values: Array) -> Array:
        path = self.nodes_of_path[nodes]
        return (values + self.offset[self.column[path]]) * self.sign[path]

    def coefficients(self, nodes: Array, along: Array) -> Array:
        """Solve for the coefficients along one path per image, shape (n_images, depth), 0 beyond its end.

        This is back substitution with the R of each path. A dependent atom has a zero on the diagonal and gets the
        coefficient 0.
        """
        path = self.nodes_of_path[nodes]
        xp, depth = namespace(path), path.shape[1]
        triangle = xp.where((path >= 0)[:, :, None], self.triangle[path], 0.0)
        solution: list[Array] = [along[:, 0]] * depth
        for k in range(depth - 1, -1, -1):
            total = along[:, k]
            for m in range(k + 1, depth):
                total = total - triangle[:, m, k] * solution[m]
            independent = triangle[:, k, k] != 0.0
            solution[k] = xp.where(independent, total / xp.where(independent, triangle[:, k, k], 1.0), 0.0)
        return xp.stack(solution, 1)

    def along_coefficients(self, nodes: Array, coefficients: Array) -> Array:
        """Compute ``p_u`` along one path per image from its coefficients, ``p = R a``, shape (n_images, depth)."""
        path, xp = self.nodes_of_path[nodes], namespace(self.column)
        return xp.einsum("nm,nmk->nk", xp.where(path >= 0, coefficients, 0.0), self.triangle[path])

    def squared_residuals(self, x: Array, squares: Array, nodes: Array, along: Array, coefficients: Array) -> Array:
        """Return ``||x - D^T a||**2`` of one path per image.

        It follows from the products. Where these cancel, it is computed from the residual vector.
        """
        path = self.nodes_of_path[nodes]
        xp, inside = namespace(path), path >= 0
        deviations = xp.where(inside, coefficients - 1.0, 0.0)
        augmented = squares + self.anchor * _double(inside.sum(1))  # torch would round the product with integers
        left = augmented - (along * along + self.anchor * deviations * deviations).sum(1)
        near = np.flatnonzero(as_numpy(left <= CANCELLED[str(x.dtype).rsplit(".")[-1]] * augmented))
        step = max(1, GATHERED // max(path.shape[1] * x.shape[1], 1))
        for rows in (near[start : start + step] for start in range(0, len(near), step)):
            atoms = _double(self.atoms[self.edges[xp.where(inside[rows], path[rows], 0)]])
            rest = _double(x[rows]) - xp.einsum("nk,nkd->nd", coefficients[rows], atoms)
            left[rows] = (rest * rest).sum(1)
        return left

    def shares(self, x: NDArray[Any], nodes: NDArray[Any], coefficients: NDArray[Any]) -> tuple[Array, Array]:
        """Return the shares of ``||x||**2`` that the steps of one path per image explain.

        Both arrays have shape (n_images, depth) and are NaN beyond the end of a path.

        Returns
        -------
        explained : the share that the first k atoms explain with these coefficients
        own : the share along the direction that the k-th atom adds to the span of the atoms above it, without an
            anchor. It is never negative, and the sum over k is the share of x in the span of the path.
        """
        path = self.nodes_of_path[nodes]
        explained, own = np.full((2, *path.shape), np.nan)
        for at, along, triangle in along_supports(x, self.atoms, np.where(path >= 0, self.edges[path], -1)):
            squares = np.einsum("nd,nd->n", x[at], x[at], dtype=np.float64)[:, None]
            # In the basis q, the first k atoms explain the running sum of a_m times row m of the triangle.
            partial = np.cumsum(coefficients[at][:, :, None] * triangle, axis=1)
            left = squares - 2.0 * np.einsum("nkj,nj->nk", partial, along) + (partial**2).sum(2)
            squares[squares == 0.0] = 1.0
            explained[at], own[at] = 1.0 - left / squares, along**2 / squares
        explained[path < 0] = own[path < 0] = np.nan
        return explained, own

    # -- directions of one path ---------------------------------------------------------------------------------

    def path_directions(self, nodes: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return q_v of some nodes, shape (n_nodes, n_dims), and the numbers the anchor adds to their products."""
        column, sign = self.column[nodes], self.sign[nodes]  # the sign of a dependent atom is 0
        return sign[:, None] * self.directions[column], sign * self.offset[column]

    def affine(self, node: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the coefficients of a path as an affine map, ``a = gain @ x + prior``; gain is (length, n_dims)."""
        nodes = self.nodes_of_path[node][: self.tree.level[node]]
        directions, offset = self.path_directions(nodes)
        triangle = self.triangle[nodes, : len(nodes)].T.copy()
        triangle[np.diag_indices(len(nodes))] += np.diagonal(triangle) == 0.0
        solution = np.linalg.solve(triangle, np.column_stack([directions, offset]))
        return solution[:, :-1], solution[:, -1]

    # -- tensors ------------------------------------------------------------------------------------------

    def on(self, like: Array) -> PathProblem:
        """Return this problem as tensors on the device of `like`, with atoms and directions in its precision.

        The tensors are made once for each device and precision.
        """
        place = like.device, like.dtype
        if place not in self._on_devices:
            torch = sys.modules["torch"]

            def put(name: str, dtype: Any) -> Array:
                return torch.from_numpy(np.array(getattr(self, name))).to(like.device, dtype)

            tensors = {name: put(name, like.dtype) for name in ("atoms", "directions")}
            tensors |= {name: put(name, torch.float64) for name in ("offset", "sign", "share", "triangle")}
            self._on_devices[place] = replace(self, **tensors, column=put("column", torch.int64), _on_devices={})
        return self._on_devices[place]

    def __repr__(self) -> str:
        return f"PathProblem({self.tree.n_nodes - 1:,} paths, {len(self.directions):,} directions, {self.anchor=:g})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"_on_devices": {}}


def barred(values: Array, signed: bool, state: Array | None) -> Array:
    """Return which nodes no path may enter: closed ones and, under the signed rule, open ones with ``p_v <= 0``."""
    wrong_sign = ~(values > 0.0) if signed else values != values
    return wrong_sign if state is None else (state == CLOSED) | (wrong_sign & (state == OPEN))


#: The states of a node. A path may pass through an OPEN node or end there, may not enter a CLOSED one, must go on from
#: one that is ON_THE_WAY to a required concept, and may pass or end at a REACHED one. The last two ignore the sign.
OPEN, CLOSED, ON_THE_WAY, REACHED = 0, 1, 2, 3


def namespace(array: Array) -> Any:
    """Return the module whose functions work on this array: numpy or torch."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def as_numpy(array: Array) -> NDArray[Any]:
    """Return an array or a tensor of any device as an array."""
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


def _like(array: Array, values: NDArray[Any]) -> Array:
    """Return integer `values` as the same kind of array, on the same device, as `array`."""
    if isinstance(array, np.ndarray):
        return values
    return sys.modules["torch"].from_numpy(values.astype(np.int64)).to(array.device)


def _double(array: Array) -> Array:
    return array.astype(np.float64, copy=False) if isinstance(array, np.ndarray) else array.double()


# -- building ------------------------------------------------------------------------------------------


def build_path_problem(hierarchy: Hierarchy, atoms: NDArray[np.float64], anchor: float) -> PathProblem:
    """Build the problem of a dictionary; one warning counts the atoms that depend on their ancestors."""
    problem = PathProblem.of(hierarchy.path_tree, atoms, anchor)
    if not problem.share[1:].all():
        _warn_dependent(hierarchy, np.unique(problem.tree.edge[1:][problem.share[1:] == 0]))
    return problem


def _orthonormal(vectors: NDArray[Any], above: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Make vectors (n, n_dims) orthogonal to orthonormal rows (n, k, n_dims) and scale them to norm 1.

    A vector that depends on the rows becomes zero. Also returns the products with the rows, followed by the norm of
    what is left, shape (n, k + 1), and the share of each vector's norm that is left.
    """
    rest, along = vectors, np.zeros(above.shape[:2])
    for _ in range(2):  # one pass leaves a rounding error after cancellation
        part = np.einsum("nkd,nd->nk", above, rest)
        rest, along = rest - np.einsum("nkd,nk->nd", above, part), along + part
    norms, left = (vectors * vectors).sum(1) ** 0.5, (rest * rest).sum(1) ** 0.5
    left = np.where(left > DEPENDENT * norms, left, 0.0)
    unit = np.where(left[:, None] > 0.0, rest / np.where(left > 0.0, left, 1.0)[:, None], 0.0)
    return unit, np.column_stack([along, left]), left / np.where(norms > 0.0, norms, 1.0)


def _orthogonalise(tree: PathTree, atoms: NDArray[np.float64], anchor: float) -> tuple[Array, Array, Array]:
    """Compute q, the triangle and the share of every node, level by level, in chunks that bound memory."""
    nodes, n_dims = tree.ancestors(), atoms.shape[1]
    q = np.zeros((tree.n_nodes, n_dims + (tree.depth if anchor else 0)))
    triangle, share = np.zeros((tree.n_nodes, tree.depth)), np.zeros(tree.n_nodes)
    for level in range(1, tree.depth + 1):
        at_level = np.flatnonzero(tree.level == level)
        step = max(1, GATHERED // (level * q.shape[1]))
        for chunk in (at_level[start : start + step] for start in range(0, len(at_level), step)):
            vectors = np.zeros((len(chunk), q.shape[1]))
            vectors[:, :n_dims] = atoms[tree.edge[chunk]]
            if anchor:
                vectors[:, n_dims + level - 1] = anchor**0.5
            above = q[nodes[chunk, : level - 1]]
            q[chunk], triangle[chunk, :level], share[chunk] = _orthonormal(vectors, above)
    return q, triangle, share


def gram_schmidt(vectors: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormalise n sequences of k vectors, shape (n, k, n_dims).

    A vector that depends on those before it becomes zero. Also returns a triangle of shape (n, k, k), whose row m
    holds the products of the m-th vector with the orthonormal ones.
    """
    q, triangle = np.zeros(vectors.shape), np.zeros((*vectors.shape[:2], vectors.shape[1]))
    for m in range(vectors.shape[1]):
        q[:, m], triangle[:, m, : m + 1], _ = _orthonormal(vectors[:, m].astype(np.float64), q[:, :m])
    return q, triangle


def along_supports(
    x: NDArray[Any], atoms: NDArray[np.float64], order: NDArray[Any]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]]:
    """Orthonormalise the atoms of each image's support in their order, and multiply the image by them.

    Parameters
    ----------
    x : (n_images, n_dims)
    order : (n_images, n_steps); atoms, -1 beyond the last

    Yields
    ------
    rows : some of the images
    along : (n_rows, n_steps); their products with the orthonormal vectors, 0 beyond the last
    triangle : (n_rows, n_steps, n_steps); see `gram_schmidt`
    """
    supports, place = np.unique(order, axis=0, return_inverse=True)
    by_support, step = np.argsort(place.ravel(), kind="stable"), max(1, GATHERED // max(order.shape[1] * x.shape[1], 1))
    place = place.ravel()[by_support]
    for first in range(0, len(supports), step):
        chosen = supports[first : first + step]
        q, triangle = gram_schmidt(np.where((chosen >= 0)[..., None], atoms[chosen], 0.0))
        rows = slice(*np.searchsorted(place, [first, first + step]))
        for at in (slice(start, min(start + step, rows.stop)) for start in range(rows.start, rows.stop, step)):
            which, along = place[at] - first, np.empty((at.stop - at.start, order.shape[1]))
            for same in np.split(np.arange(len(along)), np.flatnonzero(np.diff(which)) + 1):  # images of one support
                along[same] = x[by_support[at][same]] @ q[which[same[0]]].T
            yield by_support[at], along, triangle[which]


def equal_or_opposite(units: NDArray[np.float64], group: NDArray[Any]) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of parallel unit rows within a group, with their cosine; the pairs connect all parallel rows."""
    key = np.abs(units @ np.random.default_rng(0).standard_normal(units.shape[1]))
    order = np.lexsort((key, group))
    close = (np.diff(group[order]) == 0) & (np.diff(key[order]) < 1e-9)
    for u, v in zip(order[:-1][close].tolist(), order[1:][close].tolist(), strict=True):
        cosine = float(units[u] @ units[v])
        if abs(cosine) > 1 - 1e-12:
            yield u, v, cosine


def _share_columns(
    tree: PathTree, q: NDArray[np.float64], share: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Let siblings with equal or opposite directions share one of them, that of the lowest index.

    The two atoms of a two-way split are opposite, so only rounding would distinguish their ``|p|`` and the choice would
    depend on the machine. Sharing one product makes the tie exact.
    """
    independent = share > 0
    column = np.where(independent, np.arange(tree.n_nodes), -1).astype(np.int32)
    sign = np.where(independent, 1.0, 0.0)
    for u, v, cosine in equal_or_opposite(q, tree.parent):
        first = tree.first_child[tree.parent[u]]
        siblings = np.arange(first, first + tree.n_children[tree.parent[u]])
        low, high = sorted((column[u], column[v]))
        moved = siblings[column[siblings] == high]
        sign[moved] *= np.sign(cosine) * sign[u] * sign[v]
        column[moved] = low
        if abs(share[u] - share[v]) <= 1e-9 * share[u]:
            share[v] = share[u]
    return column, sign


def _warn_dependent(hierarchy: Hierarchy, edges: NDArray[np.int32]) -> None:
    examples = [" → ".join(hierarchy.edges[e]) for e in edges[:3]]
    warnings.warn(
        f"{len(edges):,} of {hierarchy.n_edges:,} atoms are zero or lie in the span of the atoms above them "
        f"(such as {quoted(examples, 3)}), so their coefficients are always 0. Common causes are chains of single "
        "children, which hierarchy.collapse() merges, and synsets that are children both of a synset and of its parent",
        DependentAtomsWarning,
        stacklevel=4,
    )
