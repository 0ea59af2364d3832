"""Dictionaries from class names: encode the names, close the gap between texts and images, and mix in images."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary.checks import as_embeddings, refuse_non_finite
from hcep.dictionary.concept_dictionary import ConceptDictionary, average_upwards
from hcep.dictionary.transform import EmbeddingTransform, unit_rows
from hcep.errors import DictionaryError, quoted
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.embeddings import Encoder

Floats = NDArray[np.float64]
#: The sentences that a name is put into; {parent} is the concept above it.
TEMPLATES = ("a photo of a {}.", "a photo of a {}, a kind of {parent}.")
#: The numbers of images that a text may count for, and the temperatures to try; without images, CLIP's is used.
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, np.inf)
TEMPERATURES = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
CLIP_TEMPERATURE = 0.02
#: The number of texts to encode at a time, and the most images of each class to leave out in turn.
BATCH, FOLDS = 256, 16


class TextDictionary(NamedTuple):
    """A dictionary built from texts and, optionally, images.

    Attributes
    ----------
    dictionary : ConceptDictionary
    weight : float
        The number of images that a class's text counts for; infinite without labelled images.
    temperature : float
        The scale of squared distances that gives the best probabilities.
    n_text_only : int
        The number of classes without an image.
    gap : float
        The distance between the mean of the texts and the mean of the images; NaN without images.
    """

    dictionary: ConceptDictionary
    weight: float
    temperature: float
    n_text_only: int
    gap: float


def text_vectors(
    hierarchy: Hierarchy,
    encoder: "Encoder",
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
) -> Floats:
    """Encode the names of the leaves as unit vectors, each the mean over its templates and description.

    Parameters
    ----------
    hierarchy : Hierarchy
    encoder : Encoder
        An encoder that can encode text.
    templates : sequence of str
        Sentences with ``{}`` for the name and, optionally, ``{parent}`` for the name of the concept above it.
    descriptions : mapping of str to str, optional
        Texts such as glosses, by leaf id. A leaf with a description is also encoded as "NAME: DESCRIPTION".

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
            f"encoder {encoder.name!r} cannot encode text; use an open_clip or transformers encoder that can"
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


def text_dictionary(
    hierarchy: Hierarchy,
    texts: ArrayLike,
    images: ArrayLike | None = None,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    close_gap: bool = True,
) -> TextDictionary:
    """Build a dictionary from one text vector per leaf and, optionally, from images.

    Parameters
    ----------
    hierarchy : Hierarchy
    texts : array of shape (n_leaves, n_dims)
        One vector per leaf, in the order of ``hierarchy.leaves``. All vectors are scaled to norm 1.
    images : array of shape (n_images, n_dims), optional
        Unlabelled images, of which only the mean is used; `X` by default.
    X, y : arrays of shape (n_labelled, n_dims) and (n_labelled,), optional
        Labelled images of some or all classes, and their leaves.
    close_gap : bool
        Subtract the mean of the texts from the texts and the mean of the images from the images. If False, subtract the
        mean of the images from both.

    Returns
    -------
    TextDictionary

    Notes
    -----
    An encoder puts texts and images into two separate cones, because all texts share a direction that no image has.
    Both are therefore scaled to norm 1 and centred at their own mean, ``t' = t - mean(t)`` and ``x' = x - mean(x)``.
    Without images, the mean of the texts is used for both. A class with n images of mean m has the embedding::

        (k s t' + n m') / (k + n)

    Its text counts for k images, with the same k for all classes. The scale s of the texts comes from least squares
    over the classes with images. k and the temperature are those with the lowest log loss on labelled images, where one
    image of each class at a time is left out of the means. If only some classes have images, these classes win some
    images of the others, because their embeddings are more accurate.
    """
    vectors = _units(texts, None, "texts")
    if len(vectors) != len(hierarchy.leaves):
        raise DictionaryError(
            f"texts must have one row for each of the {len(hierarchy.leaves):,} leaves, got {len(vectors):,} rows"
        )
    labelled = None if X is None else _units(X, vectors.shape[1], "X")
    pictures = labelled if images is None else _units(images, vectors.shape[1], "images")
    text_mean = vectors.mean(axis=0)
    centre = text_mean if pictures is None or not len(pictures) else pictures.mean(axis=0)
    shifted = vectors - (text_mean if close_gap else centre)
    leaves, weight, temperature, n_text_only = shifted, np.inf, CLIP_TEMPERATURE, len(vectors)
    if labelled is not None and len(labelled):
        classes = _leaf_index(hierarchy, y, len(labelled))
        leaves, weight, temperature = _mixed(shifted, labelled - centre, classes)
        n_text_only -= len(np.unique(classes))
    scale = 1.0 if pictures is None else 1.0 / float(np.sqrt(np.mean(np.sum((pictures - centre) ** 2, axis=1)) or 1.0))
    embeddings = average_upwards(hierarchy, dict(zip(hierarchy.leaves, scale * leaves, strict=True)))
    transform = EmbeddingTransform(unit_norm=True, mean=centre, scale=scale)
    gap = float("nan") if pictures is None else float(np.linalg.norm(text_mean - centre))
    dictionary = ConceptDictionary(hierarchy, embeddings, transform)
    return TextDictionary(dictionary, float(weight), temperature * scale**2, n_text_only, gap)


def _units(X: ArrayLike, n_dims: int | None, name: str) -> Floats:
    rows = as_embeddings(X, name=name)
    if n_dims is not None and rows.shape[1] != n_dims:
        raise DictionaryError(
            f"{name} has {rows.shape[1]:,} dimensions, but texts has {n_dims:,}; encode both with the same encoder"
        )
    refuse_non_finite(rows, name=name)
    return np.asarray(unit_rows(rows.astype(np.float64)))


def _leaf_index(hierarchy: Hierarchy, y: ArrayLike | None, n: int) -> NDArray[np.intp]:
    place = {leaf: i for i, leaf in enumerate(hierarchy.leaves)}
    labels = [] if y is None else np.asarray(y).tolist()
    if len(labels) != n:
        raise DictionaryError(f"y must hold one leaf per row of X, which has {n:,} rows; got {len(labels):,}")
    unknown = [label for label in dict.fromkeys(labels) if label not in place]
    if unknown:
        raise DictionaryError(f"{len(unknown):,} labels are not leaves of the hierarchy: {quoted(unknown)}")
    return np.array([place[label] for label in labels], dtype=np.intp)


def _mixed(texts: Floats, X: Floats, classes: NDArray[np.intp]) -> tuple[Floats, float, float]:
    """Mix texts and images into leaves, with the text weight and temperature that suit left-out images best."""
    counts = np.bincount(classes, minlength=len(texts)).astype(float)
    sums = np.zeros_like(texts)
    np.add.at(sums, classes, X)
    has_images = counts > 0
    means = sums[has_images] / counts[has_images, None]
    square = float((texts[has_images] ** 2).sum())
    scaled = texts * (max(float((texts[has_images] * means).sum()) / square, 0.0) if square > 0 else 1.0)
    by_class = np.argsort(classes, kind="stable")
    rank = np.arange(len(classes)) - (np.cumsum(counts) - counts)[classes[by_class]]
    folds = [np.sort(by_class[rank == fold]) for fold in range(min(int(counts.max()), FOLDS))]
    losses = []
    for weight in WEIGHTS:
        energies = np.empty((0, len(texts)))
        for rows in folds:  # one image per class: squared distances, up to a constant, to leaves without these images
            rest, n_rest = sums.copy(), counts.copy()
            rest[classes[rows]] -= X[rows]
            n_rest[classes[rows]] -= 1.0
            leaves = _blend(scaled, rest, n_rest, weight)
            energies = np.concatenate([energies, (leaves**2).sum(axis=1) - 2.0 * X[rows] @ leaves.T])
        energies -= energies.min(axis=1, keepdims=True)
        correct = energies[np.arange(len(energies)), classes[np.concatenate(folds)]]
        for t in TEMPERATURES:
            losses.append((float(np.mean(np.log(np.exp(-energies / t).sum(axis=1)) + correct / t)), -weight, t))
    _, negative, temperature = min(losses)  # the larger weight if two losses are equal
    return _blend(scaled, sums, counts, -negative), -negative, temperature


def _blend(texts: Floats, sums: Floats, counts: Floats, weight: float) -> Floats:
    return texts if np.isinf(weight) else np.asarray((weight * texts + sums) / (weight + counts)[:, None])
