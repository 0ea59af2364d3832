"""Atoms back in the encoder's own space, and the phrases nearest to them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.checks import as_embeddings, refuse_non_finite
from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError, HCEPError, quoted
from hcep.explain.naming.ranking import BestColumns
from hcep.models.atom_names import AtomName, AtomNames, Phrase

#: Phrases compared at a time.
CHUNK = 2048


def raw_atoms(dictionary: ConceptDictionary) -> NDArray[np.float64]:
    """Atoms as differences of embeddings as the encoder gives them, (n_atoms, n_dims).

    Raises DictionaryError: when the dictionary's metric cannot be undone.

    Notes
    -----
    The dictionary's space is ``T(x) = s (x - m) W``. An atom is a difference of averages of T(x), so the mean m cancels
    and the same difference of averages of x is ``atom W^-1 / s``; exactly, since averaging is linear. (An atom below
    the root is a difference to the origin, or to m where images are centred.) Where the dictionary scales images to
    norm 1, so are the x here, which cosines to texts take no notice of.

    Texts are compared in this space, not in the whitened one: W is made of the scatter of *images* within their
    classes, and stretches directions in which images of a class agree; texts lie off the images' part of the space
    (the modality gap) and what the stretch does to them is noise.
    """
    transform = dictionary.transform
    atoms = np.asarray(dictionary.atoms / transform.scale, dtype=np.float64)
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
    center: bool = False,
    edges: Sequence[tuple[str, str]] | None = None,
) -> AtomNames:
    """Find the phrases whose embeddings point most nearly the way each atom does.

    Raises HCEPError: no phrases, phrases given twice, embeddings of another number or length or with NaN, `top_k` below
    1.

    Parameters
    ----------
    phrases : candidates, each once
    phrase_embeddings : (n_phrases, n_dims) array, of the same encoder as the dictionary's images; norms do not matter
    top_k : phrases to keep for an atom
    center : subtract the mean of the (unit) phrase embeddings first. Texts of one encoder share a large common
        component, which adds nearly the same to all scores of an atom; without it the scores spread around 0 and tell
        more, while the order mostly stays. The names then depend on the rest of the pool
    edges : name these atoms only

    Returns
    -------
    AtomNames
        One record per edge. An atom that is zero (a child equal to its parent) has no direction and gets no phrase.

    Notes
    -----
    The score is the cosine in the encoder's own space, see `raw_atoms`; ties go to the phrase first in the alphabet, so
    the order of the pool does not matter.

    Examples
    --------
    >>> from hcep import ConceptDictionary, Hierarchy
    >>> from hcep.explain.naming import name_atoms
    >>> h = Hierarchy.from_edges([("thing", "bear"), ("bear", "polar bear"), ("bear", "panda"), ("thing", "car")])
    >>> leaves = {"polar bear": [3.0, 1.0, 0.0], "panda": [3.0, -1.0, 0.0], "car": [0.0, 0.0, 2.0]}
    >>> d = ConceptDictionary.from_leaf_embeddings(h, leaves)
    >>> names = name_atoms(d, ["fur", "white fur", "wheels"], [[2, 0, 0], [1, 1, 0], [0, 0, 1]], top_k=2)
    >>> names["bear", "polar bear"].phrases
    (Phrase(text='white fur', score=0.707107), Phrase(text='fur', score=0.0))
    >>> names.meaning("thing", "bear")
    'fur'
    """
    if isinstance(phrases, str):
        raise HCEPError(f"phrases must be a list of strings, got one string {phrases!r:.60}")
    if not len(phrases):
        raise HCEPError("phrases is empty: give candidate phrases to compare the atoms with")
    twice = [phrase for phrase, n in Counter(phrases).items() if n > 1]
    if twice:
        raise HCEPError(f"phrases has {quoted(twice)} twice; merge_pools() keeps each phrase once")
    if top_k < 1:
        raise HCEPError(f"top_k must be at least 1, got {top_k}")
    texts = as_embeddings(phrase_embeddings, dictionary.n_dims, name="phrase_embeddings")
    refuse_non_finite(texts, name="phrase_embeddings")
    if len(texts) != len(phrases):
        raise HCEPError(f"phrase_embeddings has {len(texts):,} rows for {len(phrases):,} phrases; give one a phrase")
    row_of = {edge: row for row, edge in enumerate(dictionary.edges)}
    wanted = dictionary.edges if edges is None else tuple(edges)
    unknown = [f"{p} → {c}" for p, c in wanted if (p, c) not in row_of]
    if unknown:
        raise HCEPError(f"edges: {quoted(unknown)} is not an edge of the hierarchy")
    rows = [row_of[edge] for edge in wanted]
    order = sorted(range(len(phrases)), key=phrases.__getitem__)
    best = _nearest(unit_rows(raw_atoms(dictionary)[rows]), texts, order, top_k, center)
    found = [tuple(Phrase(phrases[order[k]], score) for k, score in best.row(i)) for i in range(len(wanted))]
    return AtomNames(tuple(AtomName(*edge, some) for edge, some in zip(wanted, found, strict=True)), centered=center)


def _nearest(
    atoms: NDArray[np.float64], texts: NDArray[np.float64], order: list[int], top_k: int, center: bool
) -> BestColumns:
    """The best phrases of each atom, as places in `order`."""

    def chunks() -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(order), CHUNK):
            yield unit_rows(texts[order[start : start + CHUNK]].astype(np.float64))

    mean = sum(chunk.sum(axis=0) for chunk in chunks()) / len(order) if center else 0.0
    best = BestColumns(len(atoms), min(top_k, len(order)))
    for chunk in chunks():
        # An atom that is zero has no direction, so nothing is near it.
        best.add(np.where(atoms.any(axis=1, keepdims=True), atoms @ unit_rows(chunk - mean).T, -np.inf))
    return best
