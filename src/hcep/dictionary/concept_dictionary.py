"""The concept dictionary: one atom per edge, the difference between a child's and its parent's embedding."""

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
from hcep.errors import DictionaryError, near_matches, quote, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.dictionary.geometry import Geometry

Missing = Literal["raise", "drop"]
Batch = tuple[ArrayLike, ArrayLike]
#: The most path problems to keep, one per anchor; each is as large as the dictionary.
KEPT_PROBLEMS = 4


class ConceptDictionary:
    """Embeddings of all synsets of a hierarchy, and the atoms between them.

    Build one with `from_images`, `from_leaf_embeddings`, `from_synset_embeddings` or `from_atoms`.

    Parameters
    ----------
    hierarchy : Hierarchy
    synset_embeddings : array of shape (n_synsets, n_dims)
        The embedding a(i) of each synset after the transform, in the order of ``hierarchy.ids``. The root's, row 0, is
        set to zero.
    transform : EmbeddingTransform, optional
        The map that raw embeddings go through before they are compared with atoms; the identity by default.
    anchor_unit : float, optional
        The weight that an anchor of 1 stands for: the mean square norm of images in the dictionary's space. By default
        it is that of the leaves.

    Attributes
    ----------
    atoms : array of shape (n_atoms, n_dims)
        Row k is ``a(child) - a(parent)`` of ``edges[k]``. The paper writes atoms as columns.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
    >>> d = ConceptDictionary.from_leaf_embeddings(h, {"cat": [2.0, 1.0], "dog": [2.0, 3.0], "car": [0.0, 4.0]})
    >>> d.edges[2], d.atoms[2]
    (('animal', 'cat'), array([ 0., -1.]))
    """

    #: Whether the atoms are not the differences of embeddings, which only `from_atoms` of a DAG allows.
    has_free_atoms: bool = False
    #: The argument `anchor_unit`. Dictionaries that were pickled before it existed have absolute anchors.
    _anchor_unit: float | None = 1.0

    def __init__(
        self,
        hierarchy: Hierarchy,
        synset_embeddings: NDArray[np.float64],
        transform: EmbeddingTransform | None = None,
        anchor_unit: float | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self.transform = transform or EmbeddingTransform()
        embeddings = np.array(synset_embeddings, dtype=np.float64, order="C")
        embeddings[0] = 0.0
        embeddings.setflags(write=False)
        self.synset_embeddings = embeddings
        self._problems: dict[float, PathProblem] = {}
        self._anchor_unit = anchor_unit

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
        """Build a dictionary from labelled images.

        A leaf's embedding is the mean of its images, and an inner synset's is the mean of its children.

        Parameters
        ----------
        hierarchy : Hierarchy
        X : array of shape (n_images, n_dims), iterable of (X, y) batches, or ClassMoments
            Raw embeddings. Batches are added up one at a time and not kept. Class moments must be those of images that
            have already been through `power` and `unit_norm`.
        y : array of str of shape (n_images,), optional
            The class of each row of X. A class that is an inner synset gets its own leaf below that synset.
        unit_norm : bool
            Scale each embedding to norm 1 first.
        center : bool
            Subtract the mean of all training images.
        shrinkage : float in (0, 1], optional
            Measure distances in the metric of the within-class covariance, shrunk by this weight towards a multiple of
            the identity. None keeps the Euclidean metric, as in the paper.
        rescale : bool
            Scale all embeddings so that the training images have a mean square norm of 1. Residuals and tolerances
            then have the same meaning for every encoder; an anchor always has.
        missing : {"raise", "drop"}
            What to do with leaves that have no image.
        power : float
            Raise the absolute value of every number to this power before everything else and keep its sign.

        Returns
        -------
        ConceptDictionary

        Examples
        --------
        >>> h = Hierarchy.from_edges([("animal", "cat"), ("animal", "dog"), ("thing", "animal"), ("thing", "car")])
        >>> X = np.array([[2.0, 1.0], [2.0, 3.0], [0.0, 4.0]])
        >>> d = ConceptDictionary.from_images(h, X, ["cat", "dog", "car"])
        >>> d.synset_embedding("animal")
        array([2., 2.])
        """
        moments = X
        if not isinstance(moments, ClassMoments):
            moments = _summed_up(hierarchy, X, y, shrinkage is not None, power, unit_norm)
        mean = moments.total_mean() if center else None
        whitener = None if shrinkage is None else shrunk_inverse_root(moments.within_covariance(), shrinkage)
        square = moments.mean_square_norm(mean, whitener)
        scale = float(1.0 / np.sqrt(square)) if rescale else 1.0
        transform = EmbeddingTransform(unit_norm, mean, whitener, scale, shrinkage, power=power)
        means = dict(zip(moments.labels, transform.after_unit_norm(moments.class_means()), strict=True))
        return cls._from_class_embeddings(hierarchy, means, transform, missing, 1.0 if rescale else square)

    @classmethod
    def from_leaf_embeddings(
        cls, hierarchy: Hierarchy, embeddings: Mapping[str, ArrayLike], *, missing: Missing = "raise"
    ) -> "ConceptDictionary":
        """Build a dictionary from one vector per leaf; each inner synset is the mean of its children.

        Parameters
        ----------
        hierarchy : Hierarchy
        embeddings : mapping of str to array of shape (n_dims,)
            The vector of each leaf, by id.
        missing : {"raise", "drop"}
            What to do with leaves that have no vector.
        """
        if not embeddings:
            raise DictionaryError("embeddings is empty; pass one vector for each leaf")
        _refuse_unknown(list(embeddings), hierarchy)
        by_label = dict(zip(embeddings, _stack(embeddings), strict=True))
        return cls._from_class_embeddings(hierarchy, by_label, None, missing)

    @classmethod
    def from_synset_embeddings(cls, hierarchy: Hierarchy, embeddings: Mapping[str, ArrayLike]) -> "ConceptDictionary":
        """Build a dictionary from one vector for every synset except the root, such as text embeddings.

        Parameters
        ----------
        hierarchy : Hierarchy
        embeddings : mapping of str to array of shape (n_dims,)
            The vector of each leaf and inner synset, by id.
        """
        _refuse_unknown([synset for synset in embeddings if synset != hierarchy.root], hierarchy)
        absent = [synset for synset in hierarchy.ids[1:] if synset not in embeddings]
        if absent:
            raise DictionaryError(
                f"{len(absent):,} synsets have no embedding: {quoted(absent)}; add them, or use "
                "from_leaf_embeddings, which computes inner synsets as the mean of their children"
            )
        vectors = _stack({synset: embeddings[synset] for synset in hierarchy.ids[1:]})
        return cls(hierarchy, np.vstack([np.zeros(vectors.shape[1]), vectors]))

    @classmethod
    def from_atoms(
        cls,
        hierarchy: Hierarchy,
        atoms: ArrayLike,
        transform: EmbeddingTransform | None = None,
        anchor_unit: float | None = None,
    ) -> "ConceptDictionary":
        """Build a dictionary from one atom per edge, such as atoms that were learned.

        In a tree, a synset's embedding is the sum of the atoms on its path, so any atoms are differences of embeddings.
        In a DAG, several paths lead to one synset: its embedding is the mean over its parents p of ``a(p) + atom``, and
        the atoms, which pursuits use, need not be differences.

        Parameters
        ----------
        hierarchy : Hierarchy
        atoms : array of shape (n_edges, n_dims)
            In the order of ``hierarchy.edges``.
        transform, anchor_unit
            As for `ConceptDictionary`.

        Examples
        --------
        >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("thing", "car")])
        >>> d = ConceptDictionary.from_atoms(h, [[1.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
        >>> h.edges, d.synset_embedding("cat")
        ((('thing', 'animal'), ('thing', 'car'), ('animal', 'cat')), array([1., 1.]))
        """
        rows = as_embeddings(atoms, name="atoms").astype(np.float64)
        refuse_non_finite(rows, name="atoms")
        if len(rows) != hierarchy.n_edges:
            raise DictionaryError(
                f"atoms must have one row for each of the {hierarchy.n_edges:,} edges, got {len(rows):,} rows"
            )
        embeddings = np.zeros((len(hierarchy), rows.shape[1]))
        n_parents = np.bincount(hierarchy.child_index, minlength=len(hierarchy))
        parents = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.child_pointer))
        for parent, child, atom in zip(parents, hierarchy.child_index, rows, strict=True):  # parents come first
            embeddings[child] += (embeddings[parent] + atom) / n_parents[child]
        dictionary = cls(hierarchy, embeddings, transform, anchor_unit)
        if not np.allclose(dictionary.atoms, rows, rtol=1e-9, atol=1e-12 * np.abs(rows).max(initial=0.0)):
            rows.setflags(write=False)
            dictionary.__dict__["atoms"], dictionary.has_free_atoms = rows, True
        return dictionary

    @classmethod
    def _from_class_embeddings(
        cls,
        hierarchy: Hierarchy,
        embeddings: Mapping[str, NDArray[np.float64]],
        transform: EmbeddingTransform | None,
        missing: Missing,
        anchor_unit: float | None = None,
    ) -> "ConceptDictionary":
        if missing not in ("raise", "drop"):
            raise DictionaryError(f"missing must be 'raise' or 'drop', got {quote(missing)}")
        hierarchy = hierarchy.with_classes(embeddings)
        by_leaf = {hierarchy.leaf_of(label): vector for label, vector in embeddings.items()}
        if len(by_leaf) < len(embeddings):
            twice = [label for label in embeddings if hierarchy.class_of(hierarchy.leaf_of(label)) != label]
            raise DictionaryError(
                f"labels {quoted(twice)} are leaves of classes that also occur as labels; use the class for both"
            )
        absent = [leaf for leaf in hierarchy.leaves if leaf not in by_leaf]
        if absent and missing == "raise":
            raise DictionaryError(
                f"{len(absent):,} of {len(hierarchy.leaves):,} leaves have no image: {quoted(absent)}; "
                "pass missing='drop' to leave them out, or restrict the hierarchy to your classes"
            )
        if absent:
            hierarchy = hierarchy.restrict(embeddings)
        return cls(hierarchy, average_upwards(hierarchy, by_leaf), transform, anchor_unit)

    def moved(self, shifts: Mapping[str, ArrayLike]) -> "ConceptDictionary":
        """Return a copy with the embeddings of some leaves shifted, in the dictionary's space.

        The embeddings of inner synsets, which are means of their children, follow. A text of their own stays.
        """
        self.refuse_free_atoms("moved")
        zero = np.zeros(self.synset_embeddings.shape[1])
        moves = {leaf: np.asarray(shifts.get(leaf, zero)) for leaf in self.hierarchy.leaves}
        embeddings = self.synset_embeddings + average_upwards(self.hierarchy, moves)
        return ConceptDictionary(self.hierarchy, embeddings, self.transform, self.anchor_unit)

    def with_words(
        self, texts: Mapping[str, NDArray[np.float64]], image_scale: float, text_scale: float
    ) -> "ConceptDictionary":
        """Return a copy with a word block: texts as a second view of every synset.

        Parameters
        ----------
        texts : mapping of str to array of shape (n_dims,)
            The unit vector of each leaf, by id. An inner synset without a text has the mean of its children.
        image_scale, text_scale : float
            The scales of the word block of images and of texts.
        """
        self.refuse_free_atoms("combined with texts")
        words = average_upwards(self.hierarchy, {synset: text_scale * text for synset, text in texts.items()})
        transform = replace(self.transform, words=float(image_scale))
        embeddings = np.hstack([self.synset_embeddings, words])
        return ConceptDictionary(self.hierarchy, embeddings, transform, self._anchor_unit)

    def refuse_free_atoms(self, what: str) -> None:
        """Raise DictionaryError if the atoms are not differences of embeddings, so that embeddings are not enough."""
        if self.has_free_atoms:
            raise DictionaryError(
                f"a dictionary whose atoms are not differences of embeddings cannot be {what}; use "
                "hierarchy.as_tree() before from_atoms, or atoms that are differences"
            )

    def with_hierarchy(self, hierarchy: Hierarchy) -> "ConceptDictionary":
        """Return this dictionary with a hierarchy that has the same edges, such as one with other names."""
        dictionary = copy(self)
        dictionary.hierarchy, dictionary._problems = hierarchy, {}
        dictionary.__dict__.pop("geometry", None)
        return dictionary

    @property
    def word_block(self) -> NDArray[np.float64]:
        """The word parts of the synset embeddings, shape (n_synsets, n_dims), or (n_synsets, 0) without texts."""
        return self.synset_embeddings[:, self.n_pictures :] if self.transform.words else self.synset_embeddings[:, :0]

    def without_transform(self) -> "ConceptDictionary":
        """Return this dictionary for embeddings that are already in its space; its path problems are reused."""
        dictionary = copy(self)
        dictionary.transform = EmbeddingTransform()
        # These are copies because `hcep.pursuit.folded` prepares products with raw images per problem object.
        dictionary._problems = {anchor: replace(problem) for anchor, problem in self._problems.items()}
        return dictionary

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """The (parent, child) pair of each atom."""
        return self.hierarchy.edges

    @cached_property
    def atoms(self) -> NDArray[np.float64]:
        """The atoms ``a(child) - a(parent)``, shape (n_atoms, n_dims), in the order of `edges`."""
        parents = np.repeat(np.arange(len(self.hierarchy)), np.diff(self.hierarchy.child_pointer))
        atoms = self.synset_embeddings[self.hierarchy.child_index] - self.synset_embeddings[parents]
        # If a child equals its parent up to rounding, the difference is noise and not a direction.
        noise = 1e-13 * np.linalg.norm(self.synset_embeddings, axis=1)[self.hierarchy.child_index]
        atoms[np.linalg.norm(atoms, axis=1) <= noise] = 0.0
        atoms.setflags(write=False)
        return atoms

    @property
    def n_atoms(self) -> int:
        return self.hierarchy.n_edges

    @property
    def n_dims(self) -> int:
        """The number of dimensions of raw embeddings."""
        return self.transform.n_dims(int(self.synset_embeddings.shape[1]))

    @property
    def n_pictures(self) -> int:
        """The number of columns of the picture block; those of the word block, if there is one, follow."""
        return self.transform.n_pictures(int(self.synset_embeddings.shape[1]))

    def synset_embedding(self, synset: str) -> NDArray[np.float64]:
        """Return the embedding a(i) of a synset after the transform; it is zero for the root."""
        return np.asarray(self.synset_embeddings[self.hierarchy.index(synset)])

    @property
    def leaf_embeddings(self) -> NDArray[np.float64]:
        """The embeddings of the leaves, shape (n_leaves, n_dims), in the order of ``hierarchy.leaves``."""
        return np.asarray(self.synset_embeddings[self.hierarchy.leaf_index])

    @cached_property
    def anchor_unit(self) -> float:
        """The weight that an anchor of 1 stands for, so that an anchor does not depend on the scale of embeddings."""
        if self._anchor_unit is not None:
            return self._anchor_unit
        squares = np.einsum("ij,ij->i", self.synset_embeddings, self.synset_embeddings)[self.hierarchy.leaf_index]
        return float(squares.mean()) or 1.0

    def path_problem(self, anchor: float = 0.0) -> PathProblem:
        """Return the anchored least-squares problem on every rooted path (see `PathProblem`), built once per anchor.

        The weight of its prior is `anchor` times `anchor_unit`.
        """
        if not 0.0 <= anchor < np.inf:
            raise DictionaryError(f"anchor must be a finite number of at least 0, got {quote(anchor)}")
        anchor = float(anchor)
        if anchor not in self._problems:
            while len(self._problems) >= KEPT_PROBLEMS:
                self._problems.pop(next(iter(self._problems)))
            self._problems[anchor] = build_path_problem(self.hierarchy, self.atoms, anchor * self.anchor_unit)
        return self._problems[anchor]

    @cached_property
    def geometry(self) -> "Geometry":
        """The `Geometry` of the dictionary, which measures the paper's geometric conditions."""
        from hcep.dictionary.geometry import Geometry

        return Geometry(self)

    def embed(self, X: ArrayLike, first_row: int = 0) -> Embeddings:
        """Check raw embeddings and transform them into the dictionary's space.

        Error messages count the rows from `first_row`.
        """
        rows = as_embeddings(X, self.n_dims)
        refuse_non_finite(rows, first_row)
        return self.transform(rows)

    def __repr__(self) -> str:
        return f"ConceptDictionary({self.n_atoms:,} atoms, {self.n_dims:,} dimensions, {self.hierarchy!r})"


def average_upwards(hierarchy: Hierarchy, by_leaf: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Compute the embeddings of all synsets, where each inner synset is the mean of its *children*.

    An inner synset that has a vector of its own in `by_leaf` keeps it.
    """
    mean_of_children, n_children = _mean_of_children(hierarchy)
    embeddings = np.zeros((len(hierarchy), len(next(iter(by_leaf.values())))))
    for leaf, vector in by_leaf.items():
        embeddings[hierarchy.index(leaf)] = vector
        n_children[hierarchy.index(leaf)] = 0
    for level in range(hierarchy.depth - 1, 0, -1):
        inner = np.flatnonzero((hierarchy.levels == level) & (n_children > 0))
        embeddings[inner] = mean_of_children[inner] @ embeddings
    return embeddings


def leaf_shares(hierarchy: Hierarchy, leaves: Sequence[str]) -> sparse.csr_array:
    """Return the weight of each leaf in every synset's mean, shape (n_synsets, n_leaves); the root's row is zero."""
    below, n_children = _mean_of_children(hierarchy)
    place = np.array([hierarchy.index(leaf) for leaf in leaves], dtype=np.intp)
    shares = sparse.csr_array((np.ones(len(place)), (place, np.arange(len(place)))), (len(hierarchy), len(place)))
    for level in range(hierarchy.depth - 1, 0, -1):
        inner = np.flatnonzero((hierarchy.levels == level) & (n_children > 0))
        rows = sparse.csr_array((np.ones(len(inner)), (inner, np.arange(len(inner)))), (len(hierarchy), len(inner)))
        shares = shares + rows @ (below[inner] @ shares)
    return shares


def _mean_of_children(hierarchy: Hierarchy) -> tuple[sparse.csr_array, NDArray[np.intp]]:
    """Return the matrix that averages the children of each synset, and the number of children."""
    n_children = np.diff(hierarchy.child_pointer)
    weights = np.repeat(1.0 / np.maximum(n_children, 1), n_children)
    shape = (len(hierarchy), len(hierarchy))
    return sparse.csr_array((weights, hierarchy.child_index, hierarchy.child_pointer), shape=shape), n_children


def _summed_up(
    hierarchy: Hierarchy, X: Any, y: ArrayLike | None, second_moment: bool, power: float, unit_norm: bool
) -> ClassMoments:
    """Check labelled images, or batches of them, and add them up in one pass."""
    moments = ClassMoments(second_moment=second_moment)
    if y is None and isinstance(X, np.ndarray):
        raise DictionaryError("y is missing; pass X and y, or one iterable of (X, y) batches")
    for i, batch in enumerate(X if y is None else [(X, y)]):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DictionaryError(f"batch {i} must be an (X, y) pair, got {type(batch).__name__}")
        rows, labels = check_shape(batch[0]), np.asarray(batch[1])
        expected = moments.n_dims if moments.n_images else rows.shape[1]
        if rows.shape[1] != expected:
            raise DictionaryError(
                f"X has {rows.shape[1]:,} dimensions, but the batches before it have {expected:,}; "
                "encode all images with the same encoder"
            )
        if labels.ndim != 1 or len(labels) != len(rows):
            raise DictionaryError(
                f"y must hold one label per row of X, which has {len(rows):,} rows; got shape {labels.shape}"
            )
        if not len(rows):
            continue
        refuse_non_finite(rows, first_row=moments.n_images)
        if labels.dtype == object and not all(isinstance(label, str) for label in labels):
            wrong = next(label for label in labels if not isinstance(label, str))
            raise DictionaryError(
                f"labels must be synset ids (strings), got {quoted([wrong])} ({type(wrong).__name__}); "
                "convert them with str()"
            )
        if labels.dtype.kind not in "UOT":
            raise DictionaryError(
                f"labels must be synset ids (strings), got dtype {labels.dtype}; convert them with str()"
            )
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        names = [str(c) for c in classes]
        _refuse_unknown(names, hierarchy, counts)
        for start in range(0, len(rows), CHUNK):
            chunk = as_embeddings(rows[start : start + CHUNK])
            moments.update(prepared_rows(chunk, power, unit_norm), names, index[start : start + CHUNK])
    if moments.n_images == 0:
        raise DictionaryError("X has no images")
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
        raise DictionaryError(f"{quote(hierarchy.root)} is the root, whose embedding is zero, so it cannot be a class")


def _stack(embeddings: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    vectors = [np.asarray(vector, dtype=np.float64) for vector in embeddings.values()]
    shapes = {vector.shape for vector in vectors}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DictionaryError(f"embeddings must be vectors of the same length; got shapes {quoted(sorted(shapes))}")
    stacked = np.stack(vectors)
    refuse_non_finite(stacked, name="embeddings")
    return stacked
