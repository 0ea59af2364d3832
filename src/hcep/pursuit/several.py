"""Several objects in one picture: an image as a sum of rooted paths with shares."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hcep._checks import require_positive
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import check_shape
from hcep.errors import HCEPError
from hcep.pursuit.blocks import block_size, for_blocks
from hcep.pursuit.flat import MAX_ATOMS
from hcep.pursuit.result import Path, codes_of, path_of
from hcep.pursuit.search import SearchOptions, leaf_objectives, project, search_rules
from hcep.pursuit.tables import Tables

#: Partial sums kept where `beam_width` is None, and joint problems solved for each that is kept.
WIDTH, TRIED = 10, 4
#: How freely shares leave 1/k: their variance in units of the coefficients'.
SPREAD = 1.0
#: A path of a smaller share is no object.
SMALLEST = 0.05
#: Most paths that "auto" looks for.
MAX_PATHS = 4


class Stopping(NamedTuple):
    """When an image has a further path: if ``1 - J' / J > intercept + slope * J_1 / ||x||**2``.

    J is the objective without it, J' with it, J_1 that of one path: the worse one explains an image, the more must the
    next gain. A fitted classifier has a rule of its own (see `hcep.classify.objects.stopping_rule`).
    """

    intercept: float = 0.2
    slope: float = 0.0


@dataclass(frozen=True, eq=False)
class PathSums:
    """What a batch of images is a sum of."""

    dictionary: ConceptDictionary
    nodes: NDArray[np.int32]  # (n_images, k) ends of the paths in the path tree, largest share first; -1 beyond
    shares: NDArray[np.float64]  # (n_images, k) of the picture that each path stands for; they sum to 1
    codes: sparse.csr_array  # (n_images, n_atoms) coefficients on the union of the paths
    residual_norms: NDArray[np.float64]  # (n_images,) ``||x - D^T z||``
    objectives: NDArray[np.float64]  # (n_images, k) lowest one found with 1, 2, ... paths; NaN beyond the last

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def n_paths(self) -> NDArray[np.intp]:
        """Paths of each image."""
        return np.asarray((self.nodes >= 0).sum(axis=1))

    @cached_property
    def paths(self) -> list[list[Path]]:
        """For each image the synset ids along its paths, the largest share first, the root left out."""
        known = {int(node): path_of(self.dictionary, int(node)) for node in np.unique(self.nodes)}
        return [[known[node] for node in row if node >= 0] for row in self.nodes.tolist()]

    @cached_property
    def leaves(self) -> list[tuple[str, ...]]:
        """For each image the ids of the leaves its paths end in."""
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
    """Explain every image by a sum of up to `n_paths` complete rooted paths.

    Parameters
    ----------
    X : (n_images, n_dims) array of raw embeddings
    options : with an anchor above 0; its beam is the number of partial sums kept, 10 where it is None
    n_paths : int or "auto"; most paths per image; "auto" adds paths, up to four, until `stopping` says that there is no
        further one. A path whose share would be below 0.05 is never added, so that there may be fewer than asked for.

    Notes
    -----
    With paths to leaves a(1), ..., a(k) the objective is, over shares w that sum to 1 and over coefficients z on the
    union U of the paths' atoms::

        ||x - D_U^T z||**2 + lambda ||z - t(w)||**2 + lambda ||w - 1/k||**2,    t_v(w) = sum of w_j of paths through v

    for one path the objective of `hb_omp`. Given the paths it is one small ridge problem. Sets of paths are found by a
    beam: every partial sum is extended by every class, ranked in the limit of a large anchor (``||x - sum w_j a(j)||``,
    shares of the partial sum scaled), and the 4 best for each place in the beam are solved jointly. A set is lost when
    no part of it is among the best partial sums, or when its leaves alone rank it behind all that are solved.
    """
    from hcep.pursuit.several_kernel import SumProducts, SumRules, Sums, search_sums

    _refuse(dictionary, options, n_paths)
    rows = check_shape(X, dictionary.n_dims)
    problem = dictionary.path_problem(options.anchor)
    tables, path_rules = Tables.of(problem), search_rules(problem, options)
    order, leaves, vectors = _leaves(dictionary)
    n_leaves = len(leaves.first) - 1
    most = min(MAX_PATHS if n_paths == "auto" else n_paths, n_leaves)
    width = min(options.beam_width or WIDTH, n_leaves)
    rule = (stopping or Stopping()) if n_paths == "auto" else Stopping(-np.inf, 0.0)
    rules = SumRules(float(options.anchor), SPREAD, SMALLEST, width, TRIED * width, *rule)
    n, size = len(rows), most * dictionary.hierarchy.path_tree.depth
    sums = Sums(
        np.full((n, most), -1, dtype=np.int64), np.zeros((n, most)), np.full((n, most), np.nan),
        np.full((n, size), -1, dtype=np.int32), np.zeros((n, size)), np.zeros(n),
    )  # fmt: skip

    def work(block: slice) -> None:
        images = project(rows, block, dictionary, problem)
        singles = leaf_objectives(problem, images, tables, path_rules)[:, order]
        products = images.x.astype(np.float64) @ vectors.T
        block_of = SumProducts(images.squares, products, np.ascontiguousarray(singles))
        search_sums(block_of, leaves, rules, Sums(*(part[block] for part in sums)))

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
    """Columns of complete paths leaf by leaf, the kernel's tables of them, and the atoms followed by the leaves."""
    from hcep.pursuit.several_kernel import LeafPaths

    tree = dictionary.hierarchy.path_tree
    ends = tree.synset[tree.leaf_nodes]
    order = np.argsort(ends, kind="stable")
    synsets, leaf, counts = np.unique(ends[order], return_inverse=True, return_counts=True)
    vectors = np.concatenate([dictionary.atoms, dictionary.synset_embeddings[synsets]])
    nodes = tree.ancestors()[tree.leaf_nodes[order]]
    edges, first = np.where(nodes >= 0, tree.edge[nodes], -1).astype(np.int64), np.concatenate([[0], np.cumsum(counts)])
    return order, LeafPaths(edges, leaf.astype(np.int64), first, vectors @ vectors.T), vectors


def _refuse(dictionary: ConceptDictionary, options: SearchOptions, n_paths: int | str) -> None:
    if isinstance(n_paths, str) and n_paths != "auto":
        raise HCEPError(f"n_paths must be 'auto' or a positive number of paths, got {n_paths!r}")
    if n_paths != "auto":
        require_positive("n_paths", n_paths)
    if not options.anchor > 0.0:
        raise HCEPError("n_paths needs an anchor above 0, such as anchor=0.3: without one any share fits an image")
    if n_paths == "auto" and dictionary.transform.constants is not None:
        raise HCEPError(
            "n_paths='auto' needs a model that was fitted on images; this one was opened from a classifier's weights, "
            "which do not add up to pictures of several objects. Give a number, or fit a model"
        )
    if options.signed or options.tol or options.max_steps is not None:
        raise HCEPError("n_paths does not go with signed, tol or max_steps: sums are of complete paths")
    if dictionary.n_atoms > MAX_ATOMS:
        raise HCEPError(
            f"n_paths keeps the products of all pairs of atoms; {dictionary.n_atoms:,} atoms are more than "
            f"{MAX_ATOMS:,}. Restrict the hierarchy"
        )
