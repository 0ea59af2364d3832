"""Texts of concepts: encode names, check vectors, and predict how the images of a class look from its text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.transform import unit_rows
from hcep.errors import DictionaryError, near_matches, quote, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.embeddings import Encoder

Floats = NDArray[np.float64]
#: The sentences that a name is put into; {parent} is the concept above it.
TEMPLATES = ("a photo of a {}.", "a photo of a {}, a kind of {parent}.")
#: The number of texts to encode at a time.
BATCH = 256
#: Ridge penalties to try, in mean squared singular values of the centred texts.
PENALTIES = np.geomspace(1e-3, 1e3, 25)


def text_vectors(
    hierarchy: Hierarchy,
    encoder: "Encoder",
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
) -> Floats:
    """Encode the names of the leaves as unit vectors, each the mean over its templates and description.

    Parameters
    ----------
    encoder : an encoder that can encode text
    templates : sentences with ``{}`` for the name and, optionally, ``{parent}`` for the name of the concept above it
    descriptions : texts such as glosses, by leaf id. A leaf with one is also encoded as "NAME: DESCRIPTION"

    Returns
    -------
    array of shape (n_leaves, n_dims), in the order of ``hierarchy.leaves``
    """
    bad = [template for template in templates if "{}" not in template]
    if bad or isinstance(templates, str) or not templates:
        raise DictionaryError(
            f"templates must be sentences with {{}} in place of the name, got {quoted(bad or [str(templates)])}"
        )
    if not encoder.has_text:
        raise DictionaryError(
            f"encoder {quote(encoder.name)} cannot encode text; use an open_clip or transformers encoder that can"
        )
    texts, owner = list[str](), list[int]()
    for i, leaf in enumerate(hierarchy.leaves):
        name, parent = hierarchy.name(leaf), hierarchy.name(hierarchy.parents(leaf)[0])
        sentences = [template.replace("{parent}", parent).replace("{}", name) for template in templates]
        description = (descriptions or {}).get(leaf)
        texts += [*sentences, *([f"{name}: {description}"] if description else [])]
        owner += [i] * (len(texts) - len(owner))
    parts = [encoder.encode_texts(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    vectors = unit_rows(np.concatenate(parts).astype(np.float64))
    sums = np.zeros((len(hierarchy.leaves), vectors.shape[1]))
    np.add.at(sums, owner, vectors)
    return np.asarray(unit_rows(sums))


def checked_texts(
    texts: ArrayLike | Mapping[Any, ArrayLike], order: Sequence[str], known: Iterable[str], n_dims: int | None = None
) -> dict[str, Floats]:
    """Return the text of each concept as a unit vector.

    Parameters
    ----------
    texts : array of shape (n_texts, n_dims) in the order of `order`, or mapping of concept to array of shape (n_dims,)
        or (n_texts, n_dims); several texts of a concept are averaged
    order, known : the concepts of the rows of an array, and those that a mapping may have
    n_dims : the number of dimensions that texts must have, if it is known
    """
    if not isinstance(texts, Mapping):
        if np.ndim(texts) != 2 or len(np.asarray(texts)) != len(order):
            raise DictionaryError(
                f"texts must have one row for each of the {len(order):,} leaves, got shape {np.shape(texts)}; "
                "pass a mapping of concept to vector to name the concepts"
            )
        texts = dict(zip(order, np.asarray(texts), strict=True))
    by_concept: dict[str, Any] = {str(concept): vectors for concept, vectors in texts.items()}
    concepts = set(known)
    unknown = [concept for concept in by_concept if concept not in concepts]
    if unknown:
        raise DictionaryError(
            f"texts has {len(unknown):,} concepts that are neither classes nor in the hierarchy: {quoted(unknown)}."
            + near_matches(unknown[0], concepts)
        )
    return {concept: _unit_text(concept, vectors, n_dims) for concept, vectors in by_concept.items()}


def _unit_text(concept: str, vectors: ArrayLike, n_dims: int | None) -> Floats:
    """Return the mean of the unit vectors of one concept, scaled to norm 1."""
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
    if rows.ndim != 2 or not rows.size or n_dims not in (None, rows.shape[1]):
        expected = "text vectors" if n_dims is None else f"text vectors of {n_dims:,} dimensions, as the images have"
        raise DictionaryError(f"texts[{quote(concept)}] must be {expected}; got shape {np.shape(vectors)}")
    if not np.isfinite(rows).all():
        raise DictionaryError(f"texts[{quote(concept)}] has NaN or infinite values; encode the text again")
    unit = unit_rows(unit_rows(rows).mean(axis=0, keepdims=True))[0]
    if not (unit.any() and rows.any(axis=1).all()):
        raise DictionaryError(
            f"texts[{quote(concept)}] is a vector of zeros, which has no direction; encode the text again"
        )
    return np.asarray(unit)


def predicted_means(texts: Floats, means: Floats, others: Floats) -> Floats:
    """Predict the mean image of classes from their texts, by ridge regression over classes that have both.

    With the two exchanged it predicts texts. The penalty is the one that predicts each class best when that class is
    left out.

    Parameters
    ----------
    texts, means : arrays of shape (n_classes, n_text_dims) and (n_classes, n_dims)
    others : array of shape (n_others, n_text_dims); the texts of the classes without images
    """
    from sklearn.linear_model import RidgeCV

    scale = float(np.var(texts, axis=0).sum()) * len(texts) / min(texts.shape)
    return np.asarray(RidgeCV(alphas=PENALTIES * (scale or 1.0)).fit(texts, means).predict(others))
