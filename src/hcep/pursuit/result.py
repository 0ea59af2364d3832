"""What a pursuit returns: arrays for machines, ids and paths for people, made when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._checks import html_table
from hcep.dictionary import ConceptDictionary
from hcep.hierarchy import PathTree

Path = tuple[str, ...]
#: Rows that a result shows in a notebook.
N_SHOWN = 10


class Hypothesis(NamedTuple):
    """One rooted path of a beam, with the norm of what it leaves unexplained."""

    path: Path
    residual_norm: float


@dataclass(frozen=True, eq=False)
class Trace:
    """The beam before every step and after the last one.

    Attributes
    ----------
    nodes : (n_images, n_steps + 1, beam_width) int32
        Path-tree nodes, best first; -1 where the beam is narrower or the search had ended.
    residual_norms : as `nodes`, float64
    """

    dictionary: ConceptDictionary
    nodes: NDArray[np.int32]
    residual_norms: NDArray[np.float64]

    def steps(self, image: int) -> list[list[Hypothesis]]:
        """The beams of one image, step by step; step 0 holds the empty path."""
        beams = zip(self.nodes[image], self.residual_norms[image], strict=True)
        found = [_hypotheses(self.dictionary, nodes, norms) for nodes, norms in beams]
        return [beam for beam in found if beam]


@dataclass(frozen=True, eq=False)
class PathResult:
    """Rooted paths of a batch of images.

    Attributes
    ----------
    codes : (n_images, n_atoms) CSR array; coefficients of the atoms along each path
    residual_norms : (n_images,) float64, ``||x - D^T a||``
    nodes : (n_images,) int32; the path-tree node of each path
    n_best_nodes, n_best_residual_norms : (n_images, n_best) arrays
        The best hypotheses of the final beam, the answer first; -1 and NaN where there are fewer.
    explained_shares : (n_images, depth) float64 or None
        Share of ``||x||**2`` that the first k atoms of a path explain, with its final coefficients; NaN beyond its end.
    own_shares : (n_images, depth) float64 or None
        Share of ``||x||**2`` along what the k-th atom adds to the span of those above it; never negative.
    """

    dictionary: ConceptDictionary
    codes: sparse.csr_array
    residual_norms: NDArray[np.float64]
    nodes: NDArray[np.int32]
    n_best_nodes: NDArray[np.int32]
    n_best_residual_norms: NDArray[np.float64]
    trace: Trace | None = None
    explained_shares: NDArray[np.float64] | None = None
    own_shares: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def leaves(self) -> NDArray[np.str_]:
        """Id of the last synset of each path; the root's for an empty path."""
        tree = self.dictionary.hierarchy.path_tree
        return np.array(self.dictionary.hierarchy.ids)[tree.synset[self.nodes]]

    @cached_property
    def paths(self) -> list[Path]:
        """The synset ids along each path, the root left out."""
        distinct, index = np.unique(self.nodes, return_inverse=True)
        known = [path_of(self.dictionary, node) for node in distinct]
        return [known[i] for i in index]

    @property
    def supports(self) -> list[Path]:
        """The paths, by the name that they share with flat supports."""
        return self.paths

    @property
    def explained(self) -> NDArray[np.float64]:
        """Share of ``||x||**2`` that each whole path explains; 0 for an empty one. Needs ``explained_shares``."""
        assert self.explained_shares is not None
        length = self.dictionary.hierarchy.path_tree.level[self.nodes]
        shares: NDArray[np.float64] = self.explained_shares[np.arange(len(self)), np.maximum(length - 1, 0)]
        return np.where(length > 0, shares, 0.0)

    def hypotheses(self, image: int) -> list[Hypothesis]:
        """The best hypotheses of one image's final beam, the answer first; ask for several with ``n_best``.

        They are ranked by the objective. With an anchor that is not the residual alone, so residuals need not ascend.
        """
        return _hypotheses(self.dictionary, self.n_best_nodes[image], self.n_best_residual_norms[image])

    def coefficients(self, image: int) -> NDArray[np.floating]:
        """Coefficients along the path of one image, in the order of ``paths[image]``."""
        # Edges are numbered by parent and parents before children, so columns already run down the path.
        row: NDArray[np.floating] = self.codes.data[self.codes.indptr[image] : self.codes.indptr[image + 1]]
        return row

    def trail(self, image: int) -> str:
        """The path of one image with its coefficients in one line: ``animal 0.98 → mammal 0.95 → cat 1.02``."""
        names = map(self.dictionary.hierarchy.name, path_of(self.dictionary, int(self.nodes[image])))
        steps = zip(names, self.coefficients(image).tolist(), strict=True)
        return " → ".join(f"{name} {a:.2f}" for name, a in steps) or "(no concept)"

    def __repr__(self) -> str:
        return f"PathResult({len(self):,} images, {self.dictionary!r})"

    def _repr_html_(self) -> str:
        shown = range(min(len(self), N_SHOWN))
        rows = [[str(i), self.trail(i), f"{self.residual_norms[i]:.3g}"] for i in shown]
        more = f"<p>and {len(self) - N_SHOWN:,} more</p>" if len(self) > N_SHOWN else ""
        return html_table(["image", "path and coefficients", "residual norm"], rows) + more


@dataclass(frozen=True, eq=False)
class FlatResult:
    """Supports of a batch of images that need not be paths.

    Attributes
    ----------
    codes : (n_images, n_atoms) CSR array
    residual_norms : (n_images,) float64
    selected : (n_images, n_nonzero) int32; atoms in the order of selection, -1 beyond the last
    """

    dictionary: ConceptDictionary
    codes: sparse.csr_array
    residual_norms: NDArray[np.float64]
    selected: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.selected)

    @cached_property
    def supports(self) -> list[Path]:
        """For each image the synset at the lower end of every selected atom, in the order of selection."""
        hierarchy = self.dictionary.hierarchy
        children = [hierarchy.ids[c] for c in hierarchy.child_index]
        return [tuple(children[atom] for atom in row if atom >= 0) for row in self.selected.tolist()]

    def __repr__(self) -> str:
        return f"FlatResult({len(self):,} images, {self.dictionary!r})"


def path_of(dictionary: ConceptDictionary, node: int) -> Path:
    """Synset ids along the path that a path-tree node stands for."""
    tree, ids = dictionary.hierarchy.path_tree, dictionary.hierarchy.ids
    path: list[str] = []
    while node > 0:
        path.append(ids[tree.synset[node]])
        node = int(tree.parent[node])
    return tuple(path[::-1])


def path_codes(
    dictionary: ConceptDictionary, nodes: NDArray[np.int32], coefficients: NDArray[np.floating]
) -> sparse.csr_array:
    """Sparse codes from the coefficients along each path, (n_images, depth)."""
    distinct, index = np.unique(nodes, return_inverse=True)
    return codes_of(_atoms_along(dictionary.hierarchy.path_tree, distinct)[index], coefficients, dictionary.n_atoms)


def codes_of(selected: NDArray[np.int32], coefficients: NDArray[Any], n_atoms: int) -> sparse.csr_array:
    """CSR codes from the atoms of every image, -1 for none, and their coefficients."""
    inside = selected >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1), dtype=np.int64)])
    if pointer[-1] <= np.iinfo(np.int32).max:  # many of scikit-learn's classifiers take no other
        pointer = pointer.astype(np.int32)
    codes = sparse.csr_array((coefficients[inside], selected[inside], pointer), shape=(len(selected), n_atoms))
    codes.sort_indices()
    return codes


def _atoms_along(tree: PathTree, nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Atoms along the path to each node, (n_nodes, depth), -1 beyond its end."""
    atoms = np.full((len(nodes), tree.depth), -1, dtype=np.int32)
    rows, at = np.flatnonzero(nodes > 0), nodes[nodes > 0]
    while len(at):
        atoms[rows, tree.level[at] - 1] = tree.edge[at]
        at = tree.parent[at]
        rows, at = rows[at > 0], at[at > 0]
    return atoms


def _hypotheses(
    dictionary: ConceptDictionary, nodes: NDArray[np.int32], norms: NDArray[np.float64]
) -> list[Hypothesis]:
    return [
        Hypothesis(path_of(dictionary, int(node)), float(norm))
        for node, norm in zip(nodes, norms, strict=True)
        if node >= 0
    ]
