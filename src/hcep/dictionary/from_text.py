"""Dictionaries from text: names through a text tower, the gap between texts and images removed, images mixed in."""

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
#: What a name is put into; {parent} is the concept above it.
TEMPLATES = ("a photo of a {}.", "a photo of a {}, a kind of {parent}.")
#: Images that a text may count for, and temperatures tried; the last is CLIP's own, and the one without images.
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, np.inf)
TEMPERATURES = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
CLIP_TEMPERATURE = 0.02
#: Texts encoded at a time, and images of each class that are left out.
BATCH, FOLDS = 256, 16


class TextDictionary(NamedTuple):
    """A dictionary of texts, and of images where there are some."""

    dictionary: ConceptDictionary
    weight: float  # images that a class's text counts for beside its images; infinite where there are none
    temperature: float  # scale of squared distances at which they are most like probabilities
    n_text_only: int  # classes without an image
    gap: float  # distance of the texts' mean from the images', NaN without images


def text_vectors(
    hierarchy: Hierarchy,
    encoder: "Encoder",
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
) -> Floats:
    """Unit vectors of the leaves' names, (n_leaves, n_dims): the mean over templates, and over descriptions.

    Parameters
    ----------
    encoder : with a text tower
    templates : each with ``{}`` for the name; ``{parent}`` is the name of the concept above
    descriptions : mapping of id to text; glosses, say: a leaf that has one is also "NAME: DESCRIPTION"
    """
    bad = [template for template in templates if "{}" not in template]
    if bad or isinstance(templates, str) or not templates:
        raise DictionaryError(f"templates must be texts with {{}} for the name, got {quoted(bad or [str(templates)])}")
    if not encoder.has_text:
        raise DictionaryError(f"encoder {encoder.name!r} has no text tower; give one of open_clip or transformers")
    texts, owner = list[str](), list[int]()
    for i, leaf in enumerate(hierarchy.leaves):
        name, parent = hierarchy.name(leaf), hierarchy.name(hierarchy.parents(leaf)[0])
        own = [template.replace("{parent}", parent).replace("{}", name) for template in templates]
        description = (descriptions or {}).get(leaf)
        texts += [*own, *([f"{name}: {description}"] if description else [])]
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
    """Build a dictionary from one text vector per leaf, and from images as far as there are some.

    Texts and images of one encoder lie in two cones: all texts share a direction that no image has. Both go to norm 1
    and lose their own mean, ``t' = t - mean(t)`` and ``x' = x - mean(x)``; without any image the texts' mean stands for
    both. A class with n images of mean m is ``(k s t' + n m') / (k + n)``: its text counts for k images, the same k for
    all classes, and s, the scale of texts, is that of least squares over classes with images. k and the temperature
    are those of lowest log loss over labelled images, one of each class left out of the means at a time. Where some
    classes have images and others none, those with images win some images of the others: they are surer of their place.

    Parameters
    ----------
    texts : (n_leaves, n_dims) array; in the order of ``hierarchy.leaves``; lengths do not matter
    images : (n_images, n_dims) array; unlabelled images, of which only the mean is used; `X` by default
    X, y : (n_labelled, n_dims) array and their leaves; labelled images, of some classes or all
    close_gap : subtract from texts their own mean, and from images theirs; otherwise that of the images from both
    """
    vectors = _units(texts, None, "texts")
    if len(vectors) != len(hierarchy.leaves):
        raise DictionaryError(f"texts has {len(vectors):,} rows for {len(hierarchy.leaves):,} leaves; give one a leaf")
    known = None if X is None else _units(X, vectors.shape[1], "X")
    seen = known if images is None else _units(images, vectors.shape[1], "images")
    text_mean = vectors.mean(axis=0)
    centre = text_mean if seen is None or not len(seen) else seen.mean(axis=0)
    shifted = vectors - (text_mean if close_gap else centre)
    leaves, weight, temperature, n_text_only = shifted, np.inf, CLIP_TEMPERATURE, len(vectors)
    if known is not None and len(known):
        own = _leaf_index(hierarchy, y, len(known))
        leaves, weight, temperature = _mixed(shifted, known - centre, own)
        n_text_only -= len(np.unique(own))
    scale = 1.0 if seen is None else 1.0 / float(np.sqrt(np.mean(np.sum((seen - centre) ** 2, axis=1)) or 1.0))
    embeddings = average_upwards(hierarchy, dict(zip(hierarchy.leaves, scale * leaves, strict=True)))
    transform = EmbeddingTransform(unit_norm=True, mean=centre, scale=scale)
    gap = float("nan") if seen is None else float(np.linalg.norm(text_mean - centre))
    found = ConceptDictionary(hierarchy, embeddings, transform)
    return TextDictionary(found, float(weight), temperature * scale**2, n_text_only, gap)


def _units(X: ArrayLike, n_dims: int | None, name: str) -> Floats:
    rows = as_embeddings(X, name=name)
    if n_dims is not None and rows.shape[1] != n_dims:
        raise DictionaryError(f"{name} has {rows.shape[1]:,} dimensions, texts {n_dims:,}; encode both by one encoder")
    refuse_non_finite(rows, name=name)
    return np.asarray(unit_rows(rows.astype(np.float64)))


def _leaf_index(hierarchy: Hierarchy, y: ArrayLike | None, n: int) -> NDArray[np.intp]:
    place = {leaf: i for i, leaf in enumerate(hierarchy.leaves)}
    labels = [] if y is None else np.asarray(y).tolist()
    if len(labels) != n:
        raise DictionaryError(f"y must hold one leaf a row: X has {n:,} rows, y {len(labels):,}")
    unknown = [label for label in dict.fromkeys(labels) if label not in place]
    if unknown:
        raise DictionaryError(f"{len(unknown):,} labels are not leaves of the hierarchy: {quoted(unknown)}")
    return np.array([place[label] for label in labels], dtype=np.intp)


def _mixed(texts: Floats, X: Floats, own: NDArray[np.intp]) -> tuple[Floats, float, float]:
    """Leaves of texts and images, the weight of texts and the temperature that left-out images choose."""
    counts = np.bincount(own, minlength=len(texts)).astype(float)
    sums = np.zeros_like(texts)
    np.add.at(sums, own, X)
    seen = counts > 0
    means = sums[seen] / counts[seen, None]
    square = float((texts[seen] ** 2).sum())
    scaled = texts * (max(float((texts[seen] * means).sum()) / square, 0.0) if square > 0 else 1.0)
    by_class = np.argsort(own, kind="stable")
    rank = np.arange(len(own)) - (np.cumsum(counts) - counts)[own[by_class]]
    folds = [np.sort(by_class[rank == fold]) for fold in range(min(int(counts.max()), FOLDS))]
    tried = []
    for weight in WEIGHTS:
        energies = np.empty((0, len(texts)))
        for rows in folds:  # squared distances, up to a constant, of one image per class to leaves that none is in
            rest, n_rest = sums.copy(), counts.copy()
            rest[own[rows]] -= X[rows]
            n_rest[own[rows]] -= 1.0
            leaves = _blend(scaled, rest, n_rest, weight)
            energies = np.concatenate([energies, (leaves**2).sum(axis=1) - 2.0 * X[rows] @ leaves.T])
        energies -= energies.min(axis=1, keepdims=True)
        mine = energies[np.arange(len(energies)), own[np.concatenate(folds)]]
        for t in TEMPERATURES:
            tried.append((float(np.mean(np.log(np.exp(-energies / t).sum(axis=1)) + mine / t)), -weight, t))
    _, negative, temperature = min(tried)
    return _blend(scaled, sums, counts, -negative), -negative, temperature


def _blend(texts: Floats, sums: Floats, counts: Floats, weight: float) -> Floats:
    return texts if np.isinf(weight) else np.asarray((weight * texts + sums) / (weight + counts)[:, None])
