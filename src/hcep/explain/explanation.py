"""One image's rooted path as steps a person can read: concept, coefficient, its share of the image."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.models.atom_names import AtomNames
from hcep.pursuit import Hypothesis, PathResult


class Step(Struct, frozen=True):
    """A concept of the path: its coefficient, what the path explains of the image down to it, its own share."""

    synset: str
    name: str
    merged: tuple[str, ...]  #: names of the single-child chain that `collapse` merged into this synset, highest first
    #: 1 for an image that is exactly the synset's embedding; negative where the image points away from it
    coefficient: float
    #: share of the image's squared norm that the path explains up to here, with its final coefficients; it may dip
    #: where a later concept makes up for it
    explained: float
    meaning: str | None  #: what the step's atom adds to the synset above it, in words, where the atoms have names
    #: the concept's own share of the image's squared norm, along what its atom adds to those above it: never negative,
    #: and the shares of a path add up
    share: float


@dataclass(frozen=True)
class Explanation:
    """The rooted path of one image."""

    root: str  #: name of the root
    steps: tuple[Step, ...]
    residual_norm: float
    #: other paths of the final beam, the nearest first, where the pursuit was asked for ``n_best``
    runners_up: tuple[Hypothesis, ...]

    @property
    def leaf(self) -> str:
        """Id of the last synset; '' for an empty path."""
        return self.steps[-1].synset if self.steps else ""

    def __repr__(self) -> str:
        return f"Explanation({self.trail()})"

    def _repr_html_(self) -> str:
        from hcep.explain.report import steps_table

        return steps_table(self)

    def trail(self) -> str:
        """The path in one line: ``animal 0.98 → mammal 0.95 → cat 1.02``."""
        return " → ".join(f"{step.name} {step.coefficient:.2f}" for step in self.steps) or "(no concept)"


def explain(
    X: ArrayLike, result: PathResult, images: Iterable[int] | None = None, *, names: AtomNames | None = None
) -> list[Explanation]:
    """Explain what a pursuit found.

    >>> from hcep import ConceptDictionary, Hierarchy, hb_omp
    >>> from hcep.explain import explain
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> leaves = {"cat": [2.0, 1.0, 0.0], "dog": [2.0, -1.0, 0.0], "car": [0.0, 0.0, 3.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> X = np.array([[2.0, 1.2, 0.0]])
    >>> explain(X, hb_omp(X, d, signed=True))[0].trail()
    'animal 1.00 → cat 1.20'

    Parameters
    ----------
    X : (n_images, n_dims) array, the raw embeddings that the pursuit was given
    images : rows to explain; all by default
    names : words for the atoms, such as `hcep.models.load_atom_names` gives; steps then have a ``meaning``
    """
    rows = np.atleast_2d(np.asarray(X))
    if len(rows) != len(result):
        raise HCEPError(f"X has {len(rows):,} images, the result {len(result):,}; give the images of that pursuit")
    chosen = np.arange(len(rows)) if images is None else np.array([int(i) for i in images], dtype=np.intp)
    if result.explained_shares is None or result.own_shares is None:
        shares, own = _shares(rows[chosen], result, chosen)
    else:
        shares, own = result.explained_shares[chosen], result.own_shares[chosen]
    hierarchy, edges, codes = result.dictionary.hierarchy, result.dictionary.edges, result.codes
    root, several = hierarchy.name(hierarchy.root), result.n_best_nodes.shape[1] > 1

    @cache
    def concept(atom: int) -> tuple[str, str, tuple[str, ...], str | None]:
        synset = edges[atom][1]
        merged = tuple(name for _, name in hierarchy.merged(synset))
        return synset, hierarchy.name(synset), merged, None if names is None else names.meaning(*edges[atom])

    explanations = []
    for i, row, alone in zip(chosen.tolist(), shares.tolist(), own.tolist(), strict=True):
        part, steps = slice(codes.indptr[i], codes.indptr[i + 1]), []
        atoms, values = codes.indices[part].tolist(), codes.data[part].tolist()
        for atom, value, explained, share in zip(atoms, values, row, alone, strict=False):
            synset, name, merged, meaning = concept(atom)
            steps.append(Step(synset, name, merged, value, explained, meaning, share))
        others = tuple(result.hypotheses(i)[1:]) if several else ()
        explanations.append(Explanation(root, tuple(steps), float(result.residual_norms[i]), others))
    return explanations


def _shares(
    rows: NDArray[Any], result: PathResult, chosen: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of each image's squared norm, (n_images, depth): by the first atoms of its path, and by each alone."""
    from hcep.evaluate.energy import atom_order, explained_energy

    dictionary, codes = result.dictionary, result.codes
    left = dictionary.embed(rows).astype(np.float64)
    squares = np.einsum("ij,ij->i", left, left)
    squares[squares == 0] = 1.0
    order = atom_order(result, dictionary.hierarchy.path_tree.depth)[chosen]
    own = np.diff(explained_energy(left, dictionary, order), axis=1, prepend=0.0) / squares[:, None]
    shares = np.full(order.shape, np.nan)
    for k in range(order.shape[1]):
        at = np.flatnonzero(order[:, k] >= 0)
        values = codes.data[codes.indptr[chosen[at]] + k].astype(np.float64)
        left[at] -= values[:, None] * dictionary.atoms[order[at, k]]
        shares[at, k] = 1.0 - np.einsum("ij,ij->i", left[at], left[at]) / squares[at]
    return shares, own


@dataclass(frozen=True)
class Contrast:
    """Where the paths of two explanations of one image part."""

    shared: tuple[str, ...]  #: names of the synsets both have
    #: first, second: the step each takes next; None where its path has ended
    first: Step | None
    second: Step | None
    cosine: float  #: cosine between the two atoms at that step; -1 in a two-way split, NaN where one path has ended

    def sentence(self, first: str = "the first", second: str = "the second") -> str:
        """What happened at the fork, for a reader."""
        if self.first is None or self.second is None:
            return "Both take the same concepts; one path goes on where the other ends."
        where = f"Below {self.shared[-1]!r}" if self.shared else "At the first step"
        taken, value, name = self.first, f"{self.first.coefficient:.2f}", repr(self.first.name)
        told = f"{where} {first} takes {name} and {second} takes {self.second.name!r}."
        if self.cosine < -0.999:
            told += f" The two are the only children, so their atoms are exactly opposite (cosine {self.cosine:.2f}): "
            told += "by |cosine| and free-sign least squares they tie"
            away = f", and {first} reports {name} with coefficient {value}: the image points away from it, that is, to "
            return told + (f"{away}its sibling." if taken.coefficient < 0 else ".")
        if taken.coefficient < 0:
            told += f" The coefficient of {name} is {value}: its atom lowers the residual by pointing away from the "
            return told + "concept it names, which |cosine| does not see."
        told += f" With free coefficients ({value} here, where an image of the concept has 1) the wrong path "
        return told + "reconstructs the image a little better; a prior at 1 charges for that."


def contrast(first: Explanation, second: Explanation, result: PathResult) -> Contrast:
    """Find where two explanations of one image part; `result` is either pursuit, for its dictionary."""
    pairs = list(zip(first.steps, second.steps, strict=False))
    n_shared = next((i for i, (a, b) in enumerate(pairs) if a.synset != b.synset), len(pairs))
    shared = tuple(step.name for step in first.steps[:n_shared])
    a, b = (one.steps[n_shared] if n_shared < len(one.steps) else None for one in (first, second))
    if a is None or b is None:
        return Contrast(shared, a, b, float("nan"))
    above = first.steps[n_shared - 1].synset if n_shared else result.dictionary.hierarchy.root
    origin, *ends = map(result.dictionary.synset_embedding, (above, a.synset, b.synset))
    u, v = (end - origin for end in ends)
    norms = float(np.linalg.norm(u) * np.linalg.norm(v))
    return Contrast(shared, a, b, float(u @ v) / norms if norms else float("nan"))
