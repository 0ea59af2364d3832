"""What lies nearest to each atom: phrases in the encoder's own space, and images below its parent."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import as_embeddings, refuse_non_finite
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError, HCEPError, near_matches, quote, quoted
from hcep.explain.neighbours import BestColumns
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase

#: From this many phrases on, their mean is what all texts share, and not what these phrases are about.
MANY_PHRASES = 100
#: How many phrases, and how many images, are compared at a time.
PHRASE_CHUNK, IMAGE_CHUNK = 2048, 4096


def raw_atoms(dictionary: ConceptDictionary) -> NDArray[np.float64]:
    """Atoms as differences of the encoder's own embeddings, (n_atoms, n_dims).

    The dictionary's space is ``T(x) = s (x - m) W``. An atom is a difference of averages of T(x), so the mean m cancels
    and the same difference of averages of x is ``atom W^-1 / s``. Texts are compared in this space and not in the
    whitened one: W comes from the scatter of *images*, and its effect on texts, which lie elsewhere (the modality gap),
    is noise.
    """
    transform = dictionary.transform
    if transform.scale == 0.0:
        return np.asarray(dictionary.atoms / transform.words)
    pictures = dictionary.atoms[:, : transform.n_pictures(dictionary.atoms.shape[1])]
    atoms = np.asarray(pictures / transform.scale, dtype=np.float64)
    if transform.whitener is None:
        return atoms
    try:
        back = np.linalg.solve(transform.whitener.T, atoms.T).T
    except np.linalg.LinAlgError:
        raise DictionaryError("the dictionary's whitener is singular, so its metric cannot be undone") from None
    return np.asarray(back, dtype=np.float64)


def name_atoms(
    dictionary: ConceptDictionary,
    phrases: Sequence[str],
    phrase_embeddings: ArrayLike,
    *,
    top_k: int = 10,
    center: bool | None = None,
    edges: Sequence[tuple[str, str]] | None = None,
) -> AtomNames:
    """Find the phrases whose embeddings point most nearly in the direction of each atom.

    The score is the cosine in the encoder's own space (see `raw_atoms`). Ties go to the phrase that comes first in the
    alphabet, so the order of the phrases does not matter. A zero atom, whose child equals its parent, gets no phrase.

    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("thing", "bear"), ("bear", "polar bear"), ("bear", "panda"), ("thing", "car")])
    >>> leaves = {"polar bear": [3.0, 1.0, 0.0], "panda": [3.0, -1.0, 0.0], "car": [0.0, 0.0, 2.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> names = name_atoms(d, ["fur", "white fur", "wheels"], [[2, 0, 0], [1, 1, 0], [0, 0, 1]], top_k=2)
    >>> names["bear", "polar bear"].phrases
    (Phrase(text='white fur', score=0.707107), Phrase(text='fur', score=0.0))
    >>> names.meaning("thing", "bear")
    'fur'

    Parameters
    ----------
    phrases : candidates, without duplicates
    phrase_embeddings : (n_phrases, n_dims) array from the text tower of the images' encoder; norms do not matter
    top_k : phrases to keep per atom
    center : first subtract the mean of the (unit) phrase embeddings, by default from 100 phrases on. All texts of an
        encoder share this mean, which images do not have (the modality gap). The result then depends on the other
        phrases as well.
    edges : the (parent, child) pairs whose atoms to name; all by default
    """
    if isinstance(phrases, str):
        raise HCEPError(f"phrases must be a list of strings, got one string {quote(phrases)}")
    if not len(phrases):
        raise HCEPError("phrases is empty: give candidate phrases to compare the atoms with")
    repeated = [phrase for phrase, n in Counter(phrases).items() if n > 1]
    if repeated:
        raise HCEPError(f"phrases has {quoted(repeated)} twice; give each phrase once")
    if top_k < 1:
        raise HCEPError(f"top_k must be at least 1, got {top_k}")
    texts = as_embeddings(phrase_embeddings, dictionary.n_dims, name="phrase_embeddings")
    refuse_non_finite(texts, name="phrase_embeddings")
    if len(texts) != len(phrases):
        raise HCEPError(
            f"phrase_embeddings has {len(texts):,} rows for {len(phrases):,} phrases; give one row per phrase"
        )
    row_of = {edge: row for row, edge in enumerate(dictionary.edges)}
    wanted = dictionary.edges if edges is None else tuple(edges)
    unknown = [f"{p} → {c}" for p, c in wanted if (p, c) not in row_of]
    if unknown:
        raise HCEPError(f"edges: {quoted(unknown)} is not an edge of the hierarchy")
    rows = [row_of[edge] for edge in wanted]
    center = len(phrases) >= MANY_PHRASES if center is None else center
    order = sorted(range(len(phrases)), key=phrases.__getitem__)
    best = _nearest(unit_rows(raw_atoms(dictionary)[rows]), texts, order, top_k, center)
    nearest = [tuple(Phrase(phrases[order[k]], score) for k, score in best.row(i)) for i in range(len(wanted))]
    return AtomNames(
        tuple(AtomName(*edge, texts) for edge, texts in zip(wanted, nearest, strict=True)), centered=center
    )


def _nearest(
    atoms: NDArray[np.float64], texts: NDArray[np.float64], order: list[int], top_k: int, center: bool
) -> BestColumns:
    """The best phrases of each atom, as positions in `order`."""

    def chunks() -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(order), PHRASE_CHUNK):
            yield unit_rows(texts[order[start : start + PHRASE_CHUNK]].astype(np.float64))

    mean = sum(chunk.sum(axis=0) for chunk in chunks()) / len(order) if center else 0.0
    best = BestColumns(len(atoms), min(top_k, len(order)))
    for chunk in chunks():
        # An atom that is zero has no direction, so nothing is near it.
        best.add(np.where(atoms.any(axis=1, keepdims=True), atoms @ unit_rows(chunk - mean).T, -np.inf))
    return best


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

    These are the images below the parent with the highest projection on the atom, ``<T(x) - a(p), d> / <d, d>`` in the
    dictionary's own space: 0 for an image at the parent's embedding, 1 for one at the child's. Ties go to the first
    image; a zero atom has no images. Memory does not grow with the number of images.

    >>> from hcep import ConceptDictionary, Hierarchy
    >>> h = Hierarchy.from_edges([("animal", "cat"), ("animal", "dog"), ("thing", "animal"), ("thing", "car")])
    >>> X, y = np.array([[2.0, 1.0], [2.0, 3.0], [2.0, 4.0], [0.0, 9.0]]), ["cat", "dog", "dog", "car"]
    >>> d = ConceptDictionary.from_images(h, X, y)
    >>> names = exemplars(d, X, y, ["a.jpg", "b.jpg", "c.jpg", "d.jpg"], top_k=1, contrast=1)
    >>> names["animal", "dog"].exemplars, names["animal", "dog"].contrast
    ((Exemplar(id='c.jpg', projection=1.4),), (Exemplar(id='a.jpg', projection=-1.0),))

    Parameters
    ----------
    X : (n_images, n_dims) array, or an iterable of (X, y) batches
        Raw embeddings. Batches, such as ``store.batches()``, are read one at a time.
    y : (n_images,) array of str, the class of each row; not used with batches
    ids : names of the images, in the order of all rows; row numbers by default
    top_k : images per atom
    contrast : number of images with the lowest projections to keep as well
    """
    if top_k < 1 or contrast < 0:
        raise HCEPError(f"top_k must be at least 1 and contrast at least 0, got {top_k} and {contrast}")
    highest, lowest = BestColumns(dictionary.n_atoms, top_k), BestColumns(dictionary.n_atoms, max(contrast, 1))
    hierarchy, atoms, n_images = dictionary.hierarchy, dictionary.atoms, 0
    parents, squares = [parent for parent, _ in dictionary.edges], np.einsum("ij,ij->i", atoms, atoms)
    directions = atoms / np.where(squares == 0, 1.0, squares)[:, None]
    origins = dictionary.synset_embeddings[[hierarchy.index(parent) for parent in parents]]
    offsets = np.einsum("ij,ij->i", directions, origins)
    class_row = {hierarchy.class_of(leaf): row for row, leaf in enumerate(hierarchy.leaves)}
    below = {parent: set(hierarchy.descendants(parent)) for parent in dict.fromkeys(parents)}
    # A zero atom has no direction: to it, every image is outside.
    outside = np.array([[leaf not in below[parent] for leaf in hierarchy.leaves] for parent in parents])
    outside |= (squares == 0)[:, None]
    for rows, labels in _pieces(X, y):
        classes = [str(label) for label in labels.tolist()]
        unknown = sorted(set(classes) - set(class_row))
        if unknown:
            raise DictionaryError(
                f"{len(unknown):,} labels of y are not classes of the dictionary: {quoted(unknown)}."
                + near_matches(unknown[0], class_row)
            )
        # In double precision the rounded projections do not depend on how images are batched.
        images = dictionary.embed(as_embeddings(rows, dictionary.n_dims).astype(np.float64))
        scores, elsewhere = directions @ images.T - offsets[:, None], outside[:, [class_row[c] for c in classes]]
        highest.add(np.where(elsewhere, -np.inf, scores))
        if contrast:
            lowest.add(np.where(elsewhere, -np.inf, -scores))
        n_images += len(rows)
    if not n_images:
        raise HCEPError("X has no images")
    if ids is not None and len(ids) != n_images:
        raise HCEPError(f"ids has {len(ids):,} entries for {n_images:,} images; give one id per image")
    image_ids, records = [str(name) for name in (range(n_images) if ids is None else ids)], []
    for i, edge in enumerate(dictionary.edges):
        best = tuple(Exemplar(image_ids[k], score) for k, score in highest.row(i))
        against = tuple(Exemplar(image_ids[k], 0.0 - score) for k, score in lowest.row(i))
        records.append(AtomName(*edge, exemplars=best, contrast=against))
    return AtomNames(tuple(records))


def _pieces(X: Any, y: ArrayLike | None) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Images and labels, at most IMAGE_CHUNK at a time."""
    if y is None and isinstance(X, np.ndarray):
        raise HCEPError("y is missing: exemplars takes X and y, or one iterable of (X, y) batches")
    for rows, labels in [(X, y)] if y is not None else X:
        images, classes = np.asarray(rows), np.asarray(labels)
        if classes.shape != (len(images),):
            raise HCEPError(f"y must have one label per row: X has {len(images):,} rows, y has shape {classes.shape}")
        for start in range(0, len(images), IMAGE_CHUNK):
            yield images[start : start + IMAGE_CHUNK], classes[start : start + IMAGE_CHUNK]
