"""The concept dictionary: one atom per edge, the difference of a child's and its parent's embedding."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hcep.dictionary.checks import CHUNK, Embeddings, as_embeddings, check_shape, refuse_non_finite
from hcep.dictionary.moments import ClassMoments
from hcep.dictionary.path_problem import PathProblem, build_path_problem
from hcep.dictionary.transform import EmbeddingTransform, prepared_rows, shrunk_inverse_root
from hcep.errors import DictionaryError, near_matches, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.dictionary.geometry import Geometry
    from hcep.embeddings import Encoder

Missing = Literal["raise", "drop"]
Batch = tuple[ArrayLike, ArrayLike]
#: Path bases kept, one per anchor: each is as large as the dictionary.
KEPT_PROBLEMS = 4


class ConceptDictionary:
    """Synset embeddings and their child-parent differences.

    Build one with `from_images`, `from_leaf_embeddings` or `from_synset_embeddings`. Atom k, a row of `atoms` (n_atoms,
    n_dims) where the paper writes columns, is ``a(child) - a(parent)`` of ``edges[k]``.

    Parameters
    ----------
    synset_embeddings : (n_synsets, n_dims) float64
        In the hierarchy's index order, after the transform; row 0, the root's, is taken to be zero.
    transform : what raw embeddings go through before they meet the atoms
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        synset_embeddings: NDArray[np.float64],
        transform: EmbeddingTransform | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self.transform = transform or EmbeddingTransform()
        embeddings = np.array(synset_embeddings, dtype=np.float64, order="C")
        embeddings[0] = 0.0
        embeddings.setflags(write=False)
        self.synset_embeddings = embeddings
        self._problems: dict[float, PathProblem] = {}

    @classmethod
    def from_images(
        cls,
        hierarchy: Hierarchy,
        X: ArrayLike | Iterable[Batch] | ClassMoments,
        y: ArrayLike | None = None,
        *,
        unit_norm: bool = False,
        center: bool = False,
        shrinkage: float | None = None,
        rescale: bool = False,
        missing: Missing = "raise",
        power: float = 1.0,
    ) -> "ConceptDictionary":
        """Average image embeddings into a dictionary.

        >>> h = Hierarchy.from_edges([("animal", "cat"), ("animal", "dog"), ("thing", "animal"), ("thing", "car")])
        >>> X = np.array([[2.0, 1.0], [2.0, 3.0], [0.0, 4.0]])
        >>> d = ConceptDictionary.from_images(h, X, ["cat", "dog", "car"])
        >>> d.synset_embedding("animal")
        array([2., 2.])

        Parameters
        ----------
        X : (n_images, n_dims) array, or an iterable of (X, y) batches, which are summed up one at a time and not kept,
            or the `ClassMoments` of images that went through `unit_norm` and `power`
        y : (n_images,) array of str; the class of each row. An inner synset gets a leaf of its own below it.
        unit_norm : scale each embedding to norm 1 first
        center : subtract the mean of all training images
        shrinkage : measure in the metric of the within-class covariance, shrunk this far towards a multiple of the
            identity. None keeps the Euclidean metric, as published.
        rescale : scale so that training images have a mean square norm of 1, which gives an anchor the same meaning for
            every encoder
        missing : {"raise", "drop"}; what to do about leaves without an image
        power : raise every number of an embedding to this power before anything else, its sign kept
        """
        moments = X
        if not isinstance(moments, ClassMoments):
            moments = _summed_up(hierarchy, X, y, shrinkage is not None, power, unit_norm)
        mean = moments.total_mean() if center else None
        whitener = None if shrinkage is None else shrunk_inverse_root(moments.within_covariance(), shrinkage)
        scale = 1.0 / np.sqrt(moments.mean_square_norm(mean, whitener)) if rescale else 1.0
        transform = EmbeddingTransform(unit_norm, mean, whitener, float(scale), shrinkage, power=power)
        means = transform.after_unit_norm(moments.class_means())
        return cls._from_class_embeddings(hierarchy, dict(zip(moments.labels, means, strict=True)), transform, missing)

    @classmethod
    def from_leaf_embeddings(
        cls, hierarchy: Hierarchy, embeddings: Mapping[str, ArrayLike], *, missing: Missing = "raise"
    ) -> "ConceptDictionary":
        """Build a dictionary from one vector per leaf; inner synsets are the mean of their children."""
        if not embeddings:
            raise DictionaryError("embeddings is empty: give one vector for each leaf")
        _refuse_unknown(list(embeddings), hierarchy)
        by_label = dict(zip(embeddings, _stack(embeddings), strict=True))
        return cls._from_class_embeddings(hierarchy, by_label, None, missing)

    @classmethod
    def from_synset_embeddings(cls, hierarchy: Hierarchy, embeddings: Mapping[str, ArrayLike]) -> "ConceptDictionary":
        """Build a dictionary from a vector for every synset but the root, inner ones too (text embeddings, say)."""
        _refuse_unknown([synset for synset in embeddings if synset != hierarchy.root], hierarchy)
        absent = [synset for synset in hierarchy.ids[1:] if synset not in embeddings]
        if absent:
            raise DictionaryError(
                f"{len(absent):,} synsets have no embedding: {quoted(absent)}; "
                "from_leaf_embeddings averages inner synsets from their children"
            )
        vectors = _stack({synset: embeddings[synset] for synset in hierarchy.ids[1:]})
        return cls(hierarchy, np.vstack([np.zeros(vectors.shape[1]), vectors]))

    @classmethod
    def from_text(
        cls,
        hierarchy: Hierarchy,
        encoder: "Encoder",
        *,
        templates: Sequence[str] | None = None,
        descriptions: Mapping[str, str] | None = None,
        images: ArrayLike | None = None,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
    ) -> "ConceptDictionary":
        """Build a dictionary from the names of classes by a text tower; images, where there are some, help.

        Parameters
        ----------
        encoder : of texts and images, such as ``load_encoder("open_clip:ViT-B-32/openai")``
        templates, descriptions : as for `hcep.dictionary.from_text.text_vectors`
        images, X, y : as for `hcep.dictionary.from_text.text_dictionary`; unlabelled images, and labelled ones
        """
        from hcep.dictionary.from_text import TEMPLATES, text_dictionary, text_vectors

        texts = text_vectors(hierarchy, encoder, templates or TEMPLATES, descriptions)
        return text_dictionary(hierarchy, texts, images, X, y).dictionary

    @classmethod
    def _from_class_embeddings(
        cls,
        hierarchy: Hierarchy,
        embeddings: Mapping[str, NDArray[np.float64]],
        transform: EmbeddingTransform | None,
        missing: Missing,
    ) -> "ConceptDictionary":
        if missing not in ("raise", "drop"):
            raise DictionaryError(f"missing must be 'raise' or 'drop', got {missing!r}")
        hierarchy = hierarchy.with_classes(embeddings)
        by_leaf = {hierarchy.leaf_of(label): vector for label, vector in embeddings.items()}
        if len(by_leaf) < len(embeddings):
            twice = [label for label in embeddings if hierarchy.class_of(hierarchy.leaf_of(label)) != label]
            raise DictionaryError(
                f"labels {quoted(twice)} are the leaves of classes that stand beside them; use the class for both"
            )
        absent = [leaf for leaf in hierarchy.leaves if leaf not in by_leaf]
        if absent and missing == "raise":
            raise DictionaryError(
                f"{len(absent):,} of {len(hierarchy.leaves):,} leaves have no image: {quoted(absent)}; "
                "pass missing='drop' to leave them out, or restrict the hierarchy to your classes"
            )
        if absent:
            hierarchy = hierarchy.restrict(embeddings)
        return cls(hierarchy, average_upwards(hierarchy, by_leaf), transform)

    def moved(self, shifts: Mapping[str, ArrayLike]) -> "ConceptDictionary":
        """The same with some leaves' embeddings shifted, in the dictionary's space, and the means above them."""
        leaves = dict(zip(self.hierarchy.leaves, self.leaf_embeddings, strict=True))
        for leaf, shift in shifts.items():
            leaves[leaf] = leaves[leaf] + np.asarray(shift)
        return ConceptDictionary(self.hierarchy, average_upwards(self.hierarchy, leaves), self.transform)

    def without_transform(self) -> "ConceptDictionary":
        """The same dictionary for embeddings that are already in its space; path problems are not built again."""
        dictionary = copy(self)
        dictionary.transform = EmbeddingTransform()
        # Copies, as products with raw images are prepared for each problem object.
        dictionary._problems = {anchor: replace(problem) for anchor, problem in self._problems.items()}
        return dictionary

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(parent, child) of each atom."""
        return self.hierarchy.edges

    @cached_property
    def atoms(self) -> NDArray[np.float64]:
        parents = np.repeat(np.arange(len(self.hierarchy)), np.diff(self.hierarchy.child_pointer))
        atoms = self.synset_embeddings[self.hierarchy.child_index] - self.synset_embeddings[parents]
        # A child equal to its parent up to rounding differs from it by noise, not by a direction.
        noise = 1e-13 * np.linalg.norm(self.synset_embeddings, axis=1)[self.hierarchy.child_index]
        atoms[np.linalg.norm(atoms, axis=1) <= noise] = 0.0
        atoms.setflags(write=False)
        return atoms

    @property
    def n_atoms(self) -> int:
        return self.hierarchy.n_edges

    @property
    def n_dims(self) -> int:
        """Dimensions of raw embeddings; what the transform appends is not counted."""
        return int(self.synset_embeddings.shape[1]) - self.transform.n_constants

    def synset_embedding(self, synset: str) -> NDArray[np.float64]:
        """Embedding a(i) of a synset, after the transform; zero for the root."""
        return np.asarray(self.synset_embeddings[self.hierarchy.index(synset)])

    @property
    def leaf_embeddings(self) -> NDArray[np.float64]:
        """Embeddings of the leaves, (n_leaves, n_dims), in the order of ``hierarchy.leaves``."""
        return np.asarray(self.synset_embeddings[self.hierarchy.leaf_index])

    def path_problem(self, anchor: float = 0.0) -> PathProblem:
        """The anchored least-squares problem on every rooted path (see `PathProblem`); built once for each anchor."""
        if not 0.0 <= anchor < np.inf:
            raise DictionaryError(f"anchor must be a finite number, 0 or above; got {anchor!r}")
        anchor = float(anchor)
        if anchor not in self._problems:
            while len(self._problems) >= KEPT_PROBLEMS:
                self._problems.pop(next(iter(self._problems)))
            self._problems[anchor] = build_path_problem(self.hierarchy, self.atoms, anchor)
        return self._problems[anchor]

    @cached_property
    def geometry(self) -> "Geometry":
        """Diagnostics of the paper's geometric conditions."""
        from hcep.dictionary.geometry import Geometry

        return Geometry(self)

    def embed(self, X: ArrayLike, first_row: int = 0) -> Embeddings:
        """Check raw embeddings, counted from `first_row` in errors, and bring them into the dictionary's space."""
        rows = as_embeddings(X, self.n_dims)
        refuse_non_finite(rows, first_row)
        return self.transform(rows)

    def __repr__(self) -> str:
        return f"ConceptDictionary({self.n_atoms:,} atoms, {self.n_dims:,} dimensions, {self.hierarchy!r})"


def average_upwards(hierarchy: Hierarchy, by_leaf: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Embeddings of all synsets: the given ones at the leaves, each inner synset the mean of its *children*."""
    mean_of_children, n_children = _mean_of_children(hierarchy)
    embeddings = np.zeros((len(hierarchy), len(next(iter(by_leaf.values())))))
    for leaf, vector in by_leaf.items():
        embeddings[hierarchy.index(leaf)] = vector
    for level in range(hierarchy.depth - 1, 0, -1):
        inner = np.flatnonzero((hierarchy.levels == level) & (n_children > 0))
        embeddings[inner] = mean_of_children[inner] @ embeddings
    return embeddings


def leaf_shares(hierarchy: Hierarchy, leaves: Sequence[str]) -> sparse.csr_array:
    """What each leaf's embedding adds to every synset's, (n_synsets, n_leaves); the root's row is zero."""
    below, n_children = _mean_of_children(hierarchy)
    place = np.array([hierarchy.index(leaf) for leaf in leaves], dtype=np.intp)
    shares = sparse.csr_array((np.ones(len(place)), (place, np.arange(len(place)))), (len(hierarchy), len(place)))
    for level in range(hierarchy.depth - 1, 0, -1):
        inner = np.flatnonzero((hierarchy.levels == level) & (n_children > 0))
        rows = sparse.csr_array((np.ones(len(inner)), (inner, np.arange(len(inner)))), (len(hierarchy), len(inner)))
        shares = shares + rows @ (below[inner] @ shares)
    return shares


def _mean_of_children(hierarchy: Hierarchy) -> tuple[sparse.csr_array, NDArray[np.intp]]:
    """The matrix that averages synsets' children, and how many each has."""
    n_children = np.diff(hierarchy.child_pointer)
    weights = np.repeat(1.0 / np.maximum(n_children, 1), n_children)
    shape = (len(hierarchy), len(hierarchy))
    return sparse.csr_array((weights, hierarchy.child_index, hierarchy.child_pointer), shape=shape), n_children


def _summed_up(
    hierarchy: Hierarchy, X: Any, y: ArrayLike | None, second_moment: bool, power: float, unit_norm: bool
) -> ClassMoments:
    """Check labelled images, or batches of them, and sum them up: one pass, whatever is made of the moments later."""
    moments = ClassMoments(second_moment=second_moment)
    if y is None and isinstance(X, np.ndarray):
        raise DictionaryError("y is missing: from_images takes X and y, or one iterable of (X, y) batches")
    for i, batch in enumerate(X if y is None else [(X, y)]):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DictionaryError(f"batch {i} is not an (X, y) pair but {type(batch).__name__}")
        rows, labels = check_shape(batch[0]), np.asarray(batch[1])
        expected = moments.n_dims if moments.n_images else rows.shape[1]
        if rows.shape[1] != expected:
            raise DictionaryError(
                f"X has {rows.shape[1]:,} dimensions, the batches before it {expected:,}; do not mix encoders"
            )
        if labels.ndim != 1 or len(labels) != len(rows):
            raise DictionaryError(f"y must hold one label a row: X has {len(rows):,} rows, y has shape {labels.shape}")
        if not len(rows):
            continue
        refuse_non_finite(rows, first_row=moments.n_images)
        if labels.dtype == object and not all(isinstance(label, str) for label in labels):
            odd = next(label for label in labels if not isinstance(label, str))
            raise DictionaryError(
                f"labels must be synset ids (strings), got {quoted([odd])} ({type(odd).__name__}); use str()"
            )
        if labels.dtype.kind not in "UOT":
            raise DictionaryError(f"labels must be synset ids (strings), got dtype {labels.dtype}; use str()")
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        names = [str(c) for c in classes]
        _refuse_unknown(names, hierarchy, counts)
        for start in range(0, len(rows), CHUNK):
            chunk = as_embeddings(rows[start : start + CHUNK])
            moments.update(prepared_rows(chunk, power, unit_norm), names, index[start : start + CHUNK])
    if moments.n_images == 0:
        raise DictionaryError("X holds no image")
    return moments


def _refuse_unknown(labels: list[str], hierarchy: Hierarchy, counts: NDArray[np.intp] | None = None) -> None:
    unknown = [i for i, label in enumerate(labels) if label not in hierarchy and label not in hierarchy.own_leaves]
    if unknown:
        names = [labels[i] for i in unknown]
        images = "" if counts is None else f" ({sum(int(counts[i]) for i in unknown):,} images)"
        raise DictionaryError(
            f"{len(unknown):,} labels{images} are not synsets of the hierarchy: {quoted(names)}."
            + near_matches(names[0], hierarchy.ids)
        )
    if hierarchy.root in labels and hierarchy.root not in hierarchy.own_leaves:
        raise DictionaryError(f"{hierarchy.root!r} is the root: its embedding is zero and it cannot be a class")


def _stack(embeddings: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    vectors = [np.asarray(vector, dtype=np.float64) for vector in embeddings.values()]
    shapes = {vector.shape for vector in vectors}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DictionaryError(f"embeddings must be vectors of one length; got shapes {quoted(sorted(shapes))}")
    stacked = np.stack(vectors)
    refuse_non_finite(stacked, name="embeddings")
    return stacked
