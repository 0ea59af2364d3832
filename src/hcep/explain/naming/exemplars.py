"""Atoms shown by images: those below the parent that lie furthest along the atom, and furthest against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import as_embeddings
from hcep.errors import DictionaryError, HCEPError, near_matches, quoted
from hcep.explain.naming.ranking import BestColumns
from hcep.models.atom_names import AtomName, AtomNames, Exemplar

#: Images looked at a time.
CHUNK = 4096


def exemplars(
    dictionary: ConceptDictionary,
    X: ArrayLike | Iterable[tuple[ArrayLike, ArrayLike]],
    y: ArrayLike | None = None,
    ids: Sequence[str] | NDArray[Any] | None = None,
    top_k: int = 5,
    *,
    contrast: int = 0,
) -> AtomNames:
    """Find the images that show what each atom adds to its parent.

    Among the images of all classes below the parent, those with the highest projection on the atom; no text tower is
    needed. Raises HCEPError: labels that are not classes of the dictionary, another number of labels or ids than
    images, `top_k` below 1.

    Parameters
    ----------
    X : (n_images, n_dims) array, or an iterable of (X, y) batches
        Raw embeddings. Batches, such as ``store.batches()``, are looked at one at a time and not kept.
    y : (n_images,) array of str, the class of each row; with batches, left out
    ids : what to call the images, in the order of all rows; their numbers by default
    top_k : images per atom
    contrast : how many of the lowest projections to keep as well

    Returns
    -------
    AtomNames
        One record per edge; a zero atom has no images.

    Notes
    -----
    The projection is ``<T(x) - a(p), d> / <d, d>`` in the dictionary's own space (its metric): 0 for an image at the
    parent's embedding, 1 for one at the child's; beyond 1 the image has more of what the atom adds than the average
    image of the child. Ties go to the image that comes first. Memory does not grow with the number of images.

    Examples
    --------
    >>> import numpy as np
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.explain.naming import exemplars
    >>> h = Hierarchy.from_edges([("animal", "cat"), ("animal", "dog"), ("thing", "animal"), ("thing", "car")])
    >>> X, y = np.array([[2.0, 1.0], [2.0, 3.0], [2.0, 4.0], [0.0, 9.0]]), ["cat", "dog", "dog", "car"]
    >>> d = ConceptDictionary.from_images(h, X, y)
    >>> names = exemplars(d, X, y, ["a.jpg", "b.jpg", "c.jpg", "d.jpg"], top_k=1, contrast=1)
    >>> names["animal", "dog"].exemplars, names["animal", "dog"].contrast
    ((Exemplar(id='c.jpg', projection=1.4),), (Exemplar(id='a.jpg', projection=-1.0),))
    """
    if top_k < 1 or contrast < 0:
        raise HCEPError(f"top_k must be at least 1 and contrast at least 0, got {top_k} and {contrast}")
    highest, lowest = BestColumns(dictionary.n_atoms, top_k), BestColumns(dictionary.n_atoms, max(contrast, 1))
    projector, n_images = _Projector(dictionary), 0
    for rows, labels in _pieces(X, y):
        scores, outside = projector(rows, labels)
        highest.add(np.where(outside, -np.inf, scores))
        if contrast:
            lowest.add(np.where(outside, -np.inf, -scores))
        n_images += len(rows)
    if not n_images:
        raise HCEPError("X holds no image")
    if ids is not None and len(ids) != n_images:
        raise HCEPError(f"ids has {len(ids):,} entries for {n_images:,} images; give one an image")
    called = [str(name) for name in (range(n_images) if ids is None else ids)]
    records = (
        AtomName(
            parent,
            child,
            exemplars=tuple(Exemplar(called[k], score) for k, score in highest.row(i)),
            contrast=tuple(Exemplar(called[k], 0.0 - score) for k, score in lowest.row(i)),
        )
        for i, (parent, child) in enumerate(dictionary.edges)
    )
    return AtomNames(tuple(records))


class _Projector:
    """Projections of images on the atoms, and which images are not below an atom's parent."""

    def __init__(self, dictionary: ConceptDictionary) -> None:
        atoms, hierarchy = dictionary.atoms, dictionary.hierarchy
        squares = np.einsum("ij,ij->i", atoms, atoms)
        parents = np.array([hierarchy.index(parent) for parent, _ in dictionary.edges])
        self._dictionary = dictionary
        self._directions = atoms / np.where(squares == 0, 1.0, squares)[:, None]
        self._offsets = np.einsum("ij,ij->i", self._directions, dictionary.synset_embeddings[parents])
        self._class_row = {hierarchy.class_of(leaf): row for row, leaf in enumerate(hierarchy.leaves)}
        below = {p: set(hierarchy.descendants(p)) for p in dict.fromkeys(parent for parent, _ in dictionary.edges)}
        outside = [[leaf not in below[parent] for leaf in hierarchy.leaves] for parent, _ in dictionary.edges]
        # A zero atom has no direction: to it, every image is outside.
        self._outside = np.array(outside) | (squares == 0)[:, None]

    def __call__(self, rows: Any, labels: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Both (n_atoms, n_images)."""
        classes = [str(label) for label in labels.tolist()]
        unknown = sorted({label for label in classes if label not in self._class_row})
        if unknown:
            raise DictionaryError(
                f"{len(unknown):,} labels of y are not classes of the dictionary: {quoted(unknown)}."
                + near_matches(unknown[0], self._class_row)
            )
        # In double precision the rounded projections do not depend on how images are batched.
        images = as_embeddings(rows, self._dictionary.n_dims).astype(np.float64)
        scores = self._directions @ self._dictionary.embed(images).T - self._offsets[:, None]
        return scores, self._outside[:, [self._class_row[label] for label in classes]]


def _pieces(X: Any, y: ArrayLike | None) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Images and labels, at most CHUNK at a time."""
    if y is None and isinstance(X, np.ndarray):
        raise HCEPError("y is missing: exemplars takes X and y, or one iterable of (X, y) batches")
    for rows, labels in [(X, y)] if y is not None else X:
        images, classes = np.asarray(rows), np.asarray(labels)
        if classes.shape != (len(images),):
            raise HCEPError(f"y must hold one label a row: X has {len(images):,} rows, y has shape {classes.shape}")
        for start in range(0, len(images), CHUNK):
            yield images[start : start + CHUNK], classes[start : start + CHUNK]
