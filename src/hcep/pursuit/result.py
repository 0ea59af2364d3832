"""The results of a pursuit: arrays, and the ids and paths that are built from them on demand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep._checks import html_table
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.path_problem import as_numpy
from hcep.hierarchy import PathTree

Path = tuple[str, ...]
#: The number of rows that a result shows in a notebook.
N_SHOWN = 10


class Hypothesis(NamedTuple):
    """One rooted path of a beam, and the norm of its residual."""

    path: Path
    residual_norm: float


@dataclass(frozen=True, eq=False)
class Trace:
    """The beam before every step and after the last one.

    Attributes
    ----------
    dictionary : ConceptDictionary
    nodes : int32 array of shape (n_images, n_steps + 1, beam_width)
        Path-tree nodes with the best first; -1 if the beam is narrower or the search has ended.
    residual_norms : float64 array of the same shape
    """

    dictionary: ConceptDictionary
    nodes: NDArray[np.int32]
    residual_norms: NDArray[np.float64]

    def steps(self, image: int) -> list[list[Hypothesis]]:
        """Return the beams of one image, step by step; step 0 holds the empty path."""
        arrays = zip(self.nodes[image], self.residual_norms[image], strict=True)
        beams = [_hypotheses(self.dictionary, nodes, norms) for nodes, norms in arrays]
        return [beam for beam in beams if beam]


@dataclass(frozen=True, eq=False)
class PathResult:
    """The rooted path of each image of a batch, as `hb_omp` returns them.

    Attributes
    ----------
    dictionary : ConceptDictionary
    codes : CSR array of shape (n_images, n_atoms)
        The coefficients of the atoms along each path.
    residual_norms : float64 array of shape (n_images,)
        ``||x - D^T a||`` of each image.
    nodes : int32 array of shape (n_images,)
        The path-tree node at the end of each path.
    n_best_nodes, n_best_residual_norms : arrays of shape (n_images, n_best)
        The best hypotheses of the final beam, starting with the answer; -1 and NaN if there are fewer.
    trace : Trace, optional
    explained_shares : float64 array of shape (n_images, depth), optional
        The share of ``||x||**2`` that the first k atoms of a path explain with the final coefficients; NaN beyond the
        end of the path.
    own_shares : float64 array of shape (n_images, depth), optional
        The share of ``||x||**2`` along the direction that the k-th atom adds to the span of the atoms above it. It is
        never negative.
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
        """The id of the last synset of each path; the root for an empty path."""
        tree, ids = self.dictionary.hierarchy.path_tree, np.array(self.dictionary.hierarchy.ids)
        return np.asarray(ids[tree.synset[as_numpy(self.nodes)]])

    @cached_property
    def paths(self) -> list[Path]:
        """The synset ids along each path, without the root."""
        distinct, index = np.unique(as_numpy(self.nodes), return_inverse=True)
        paths = [path_of(self.dictionary, node) for node in distinct]
        return [paths[i] for i in index]

    @property
    def supports(self) -> list[Path]:
        """The same as `paths`; flat results have supports too."""
        return self.paths

    @property
    def explained(self) -> NDArray[np.float64]:
        """The share of ``||x||**2`` that each whole path explains; 0 for an empty path. Needs ``explained_shares``."""
        assert self.explained_shares is not None
        length = self.dictionary.hierarchy.path_tree.level[self.nodes]
        shares: NDArray[np.float64] = self.explained_shares[np.arange(len(self)), np.maximum(length - 1, 0)]
        return np.where(length > 0, shares, 0.0)

    def hypotheses(self, image: int) -> list[Hypothesis]:
        """Return the `n_best` hypotheses of one image, starting with the answer.

        They are ranked by the objective. With an anchor, this is more than the residual, so the residual norms are not
        always in increasing order.
        """
        return _hypotheses(self.dictionary, self.n_best_nodes[image], self.n_best_residual_norms[image])

    def coefficients(self, image: int) -> NDArray[np.floating]:
        """Return the coefficients along the path of one image, in the order of ``paths[image]``."""
        # Edges are numbered by parent, and parents come before children, so columns are in the order of the path.
        row: NDArray[np.floating] = self.codes.data[self.codes.indptr[image] : self.codes.indptr[image + 1]]
        return row

    def trail(self, image: int) -> str:
        """Return the path of one image as one line of text, such as ``animal 0.98 → mammal 0.95 → cat 1.02``."""
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
    """The sparse code of each image of a batch, as `omp` returns them; its support need not be a path.

    Attributes
    ----------
    dictionary : ConceptDictionary
    codes : CSR array of shape (n_images, n_atoms)
    residual_norms : float64 array of shape (n_images,)
    selected : int32 array of shape (n_images, n_nonzero)
        The atoms in the order of selection, with -1 beyond the last.
    """

    dictionary: ConceptDictionary
    codes: sparse.csr_array
    residual_norms: NDArray[np.float64]
    selected: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.selected)

    @cached_property
    def supports(self) -> list[Path]:
        """For each image, the child synset of every selected atom, in the order of selection."""
        hierarchy = self.dictionary.hierarchy
        children = [hierarchy.ids[c] for c in hierarchy.child_index]
        return [tuple(children[atom] for atom in row if atom >= 0) for row in self.selected.tolist()]

    def __repr__(self) -> str:
        return f"FlatResult({len(self):,} images, {self.dictionary!r})"


def path_of(dictionary: ConceptDictionary, node: int) -> Path:
    """Return the synset ids along the path to a path-tree node, without the root."""
    tree, ids = dictionary.hierarchy.path_tree, dictionary.hierarchy.ids
    path: list[str] = []
    while node > 0:
        path.append(ids[tree.synset[node]])
        node = int(tree.parent[node])
    return tuple(path[::-1])


def path_codes(
    dictionary: ConceptDictionary, nodes: NDArray[np.int32], coefficients: NDArray[np.floating]
) -> sparse.csr_array:
    """Return the sparse codes of the coefficients along each path, shape (n_images, depth)."""
    distinct, index = np.unique(nodes, return_inverse=True)
    return codes_of(atoms_along(dictionary.hierarchy.path_tree, distinct)[index], coefficients, dictionary.n_atoms)


def codes_of(selected: NDArray[np.int32], coefficients: NDArray[Any], n_atoms: int) -> sparse.csr_array:
    """Return CSR codes from the atoms of every image, padded with -1, and their coefficients."""
    inside = selected >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1), dtype=np.int64)])
    if pointer[-1] <= np.iinfo(np.int32).max:  # many of scikit-learn's classifiers accept only int32
        pointer = pointer.astype(np.int32)
    codes = sparse.csr_array((coefficients[inside], selected[inside], pointer), shape=(len(selected), n_atoms))
    codes.sort_indices()
    return codes


def atoms_along(tree: PathTree, nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the atoms along the path to each node, shape (n_nodes, depth), with -1 beyond its end."""
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
