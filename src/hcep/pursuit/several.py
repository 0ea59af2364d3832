"""Several objects in one picture: explain an image as a weighted sum of rooted paths."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hcep._checks import require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape
from hcep.errors import HCEPError, quote
from hcep.pursuit.blocks import block_size, for_blocks
from hcep.pursuit.flat import MAX_ATOMS
from hcep.pursuit.result import Path, codes_of, path_of
from hcep.pursuit.search import SearchOptions, leaf_objectives, project, search_rules
from hcep.pursuit.tables import Tables

#: The number of partial sums to keep if `beam_width` is None, and of joint problems to solve for each of them.
WIDTH, TRIED = 10, 4
#: The variance of the shares around 1/k, relative to that of the coefficients around 1.
SPREAD = 1.0
#: A path with a smaller share does not count as an object.
SMALLEST = 0.05
#: The most paths that "auto" looks for.
MAX_PATHS = 4


class Stopping(NamedTuple):
    """The rule that decides whether an image has another path.

    It has another path if ``1 - J' / J > intercept + slope * J_1 / ||x||**2``, where J is the objective without that
    path, J' the objective with it, and J_1 the objective of one path. With a positive slope, the next path must gain
    more if one path explains the image badly. `hcep.classify.objects.stopping_rule` learns both numbers from images.
    """

    intercept: float = 0.2
    slope: float = 0.0


@dataclass(frozen=True, eq=False)
class PathSums:
    """The paths of each image of a batch and their shares, as `search_several` returns them.

    Attributes
    ----------
    dictionary : ConceptDictionary
    nodes : int32 array of shape (n_images, k)
        The path-tree node at the end of each path, largest share first; -1 if an image has fewer paths.
    shares : array of shape (n_images, k)
        The share of the picture that each path explains; the shares of an image sum to 1.
    codes : CSR array of shape (n_images, n_atoms)
        The coefficients on the union of the paths.
    residual_norms : array of shape (n_images,)
        ``||x - D^T z||`` of each image.
    objectives : array of shape (n_images, k)
        The lowest objective with 1, 2, ... paths; NaN beyond the last.
    """

    dictionary: ConceptDictionary
    nodes: NDArray[np.int32]
    shares: NDArray[np.float64]
    codes: sparse.csr_array
    residual_norms: NDArray[np.float64]
    objectives: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def n_paths(self) -> NDArray[np.intp]:
        """The number of paths of each image."""
        return np.asarray((self.nodes >= 0).sum(axis=1))

    @cached_property
    def paths(self) -> list[list[Path]]:
        """For each image, the synset ids along its paths without the root, largest share first."""
        by_node = {int(node): path_of(self.dictionary, int(node)) for node in np.unique(self.nodes)}
        return [[by_node[node] for node in row if node >= 0] for row in self.nodes.tolist()]

    @cached_property
    def leaves(self) -> list[tuple[str, ...]]:
        """For each image, the ids of the leaves at the end of its paths."""
        return [tuple(path[-1] for path in paths) for paths in self.paths]

    def __repr__(self) -> str:
        return f"PathSums({len(self):,} images, {self.n_paths.sum():,} paths, {self.dictionary!r})"


def search_several(
    X: ArrayLike,
    dictionary: ConceptDictionary,
    options: SearchOptions,
    n_paths: int | Literal["auto"] = "auto",
    *,
    stopping: Stopping | None = None,
    progress: bool = False,
) -> PathSums:
    """Explain every image as a sum of up to `n_paths` complete rooted paths.

    Parameters
    ----------
    X : array of shape (n_images, n_dims)
        Raw embeddings.
    dictionary : ConceptDictionary
    options : SearchOptions
        The anchor must be above 0. The beam width is the number of partial sums to keep; None means 10.
    n_paths : int or "auto"
        The most paths per image. "auto" adds up to four paths, until `stopping` finds no other. A path with a share
        below 0.05 is never added, so an image may have fewer paths.
    stopping : Stopping, optional
        The rule for "auto".
    progress : bool
        Show a progress bar.

    Returns
    -------
    PathSums

    Notes
    -----
    Let a(1), ..., a(k) be the leaves of k paths. The objective, over shares w that sum to 1 and over coefficients z on
    the union U of the paths' atoms, is::

        ||x - D_U^T z||**2 + lambda ||z - t(w)||**2 + lambda ||w - 1/k||**2

    where t_v(w) is the sum of w_j over the paths through v. For one path, this is the objective of `hb_omp`. For given
    paths, it is a small ridge regression.

    A beam search chooses the paths. It extends every partial sum by every class and ranks these extensions by
    ``||x - sum_j w_j a(j)||``, the limit of a large anchor, in which the shares of the partial sum are only scaled. It
    then solves the joint problem of the 4 best extensions for each place in the beam. The search misses a set of paths
    if no part of it is among the best partial sums, or if its leaves alone rank it behind all that are solved.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.pursuit import SearchOptions, search_several
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.0], "car": [0.0, 0.0, 3.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> search_several([[1.0, 0.5, 1.5]], d, SearchOptions(anchor=0.3), n_paths=2).paths
    [[('car',), ('animal', 'cat')]]
    """
    from hcep.pursuit.several_kernel import SumProducts, SumRules, Sums, search_sums

    _check(dictionary, options, n_paths)
    rows = check_shape(X, dictionary.n_dims)
    problem = dictionary.path_problem(options.anchor)
    tables, path_rules = Tables.of(problem), search_rules(problem, options)
    order, leaves, vectors = _leaves(dictionary)
    n_leaves = len(leaves.first) - 1
    most = min(MAX_PATHS if n_paths == "auto" else n_paths, n_leaves)
    width = min(options.beam_width or WIDTH, n_leaves)
    rule = (stopping or Stopping()) if n_paths == "auto" else Stopping(-np.inf, 0.0)
    rules = SumRules(float(problem.anchor), SPREAD, SMALLEST, width, TRIED * width, *rule)
    n, size = len(rows), most * dictionary.hierarchy.path_tree.depth
    sums = Sums(
        np.full((n, most), -1, dtype=np.int64), np.zeros((n, most)), np.full((n, most), np.nan),
        np.full((n, size), -1, dtype=np.int32), np.zeros((n, size)), np.zeros(n),
    )  # fmt: skip

    def work(block: slice) -> None:
        images = project(rows, block, dictionary, problem)
        singles = leaf_objectives(problem, images, tables, path_rules)[:, order]
        products = images.x.astype(np.float64) @ vectors.T
        inputs = SumProducts(images.squares, products, np.ascontiguousarray(singles))
        search_sums(inputs, leaves, rules, Sums(*(part[block] for part in sums)))

    for_blocks(n, work, options.n_jobs, progress, "pursuit", min(128, block_size(dictionary.n_atoms)))
    ranked = np.argsort(-np.where(sums.paths >= 0, sums.shares, -np.inf), axis=1, kind="stable")
    nodes = np.append(dictionary.hierarchy.path_tree.leaf_nodes[order], -1)[sums.paths]
    return PathSums(
        dictionary,
        np.take_along_axis(nodes, ranked, axis=1).astype(np.int32),
        np.take_along_axis(sums.shares, ranked, axis=1),
        codes_of(sums.atoms, sums.coefficients, dictionary.n_atoms),
        sums.residuals,
        sums.objectives,
    )


def _leaves(dictionary: ConceptDictionary) -> tuple[NDArray[np.intp], Any, NDArray[np.float64]]:
    """Return the complete paths ordered by leaf, the kernel's tables of them, and the atoms followed by the leaves."""
    from hcep.pursuit.several_kernel import LeafPaths

    tree = dictionary.hierarchy.path_tree
    ends = tree.synset[tree.leaf_nodes]
    order = np.argsort(ends, kind="stable")
    synsets, leaf, counts = np.unique(ends[order], return_inverse=True, return_counts=True)
    vectors = np.concatenate([dictionary.atoms, dictionary.synset_embeddings[synsets]])
    nodes = tree.ancestors()[tree.leaf_nodes[order]]
    edges, first = np.where(nodes >= 0, tree.edge[nodes], -1).astype(np.int64), np.concatenate([[0], np.cumsum(counts)])
    return order, LeafPaths(edges, leaf.astype(np.int64), first, vectors @ vectors.T), vectors


def _check(dictionary: ConceptDictionary, options: SearchOptions, n_paths: int | str) -> None:
    if isinstance(n_paths, str) and n_paths != "auto":
        raise HCEPError(f"n_paths must be 'auto' or a positive number of paths, got {quote(n_paths)}")
    if n_paths != "auto":
        require_positive("n_paths", n_paths)
    if not options.anchor > 0.0:
        raise HCEPError(
            "n_paths needs an anchor above 0, such as anchor=0.3; without an anchor, the shares are not determined"
        )
    if n_paths == "auto" and dictionary.transform.constants is not None:
        raise HCEPError(
            "n_paths='auto' needs a model that was fitted on images, but this one was opened from a classifier's "
            "weights, from which the number of objects cannot be told; pass a number, or fit a model"
        )
    if options.signed or options.tol or options.max_steps is not None or options.select != "cosine":
        raise HCEPError(
            "n_paths cannot be combined with signed, tol, max_steps or select, because all paths of a sum are complete"
        )
    if dictionary.n_atoms > MAX_ATOMS:
        raise HCEPError(
            f"n_paths keeps the products of all pairs of atoms, and {dictionary.n_atoms:,} atoms are more than its "
            f"limit of {MAX_ATOMS:,}; restrict the hierarchy to fewer classes"
        )
