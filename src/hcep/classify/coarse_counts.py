"""How many images have labels above the classes, and how many of them each class has learned from.

Unlike `hcep.classify.coarse` this needs no compiler, which is slow to import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcep.dictionary.moments import one_hot
from hcep.errors import counted, quote
from hcep.hierarchy import Hierarchy

#: Most classes named after a label, and most labels named after a fit.
MOST_CLASSES, MOST_LABELS = 4, 12


class CoarseCount(NamedTuple):
    """How many images have a label above the classes, and how many of them each class learned from."""

    n_images: int
    classes: dict[str, float]  # images by class; empty if they were not used

    @classmethod
    def of(cls, n_images: int, counts: sparse.csr_array, classes: NDArray[Any]) -> CoarseCount:
        """From the images of each class, (1, n_classes)."""
        shares = zip(classes[counts.indices].tolist(), counts.data.tolist(), strict=True)
        return cls(n_images, {str(label): round(n, 2) for label, n in sorted(shares) if n >= 0.005})

    def joined(self, other: CoarseCount) -> CoarseCount:
        """The images of both."""
        labels = sorted({**self.classes, **other.classes})
        classes = {c: round(self.classes.get(c, 0.0) + other.classes.get(c, 0.0), 2) for c in labels}
        return CoarseCount(self.n_images + other.n_images, classes)

    def among(self, classes: set[str]) -> CoarseCount:
        """Without the images of other classes, which the model no longer has."""
        return CoarseCount(self.n_images, {c: n for c, n in self.classes.items() if c in classes})

    def most(self) -> list[tuple[str, float]]:
        """The classes that learned from at least half an image, most images first; all classes, if none did."""
        pairs = sorted(self.classes.items(), key=lambda pair: -pair[1])
        return [pair for pair in pairs if pair[1] >= 0.5] or pairs

    def __str__(self) -> str:
        """For people: "48 (they went to: versicolor 31, pseudacorus 17)"."""
        return self.text({})

    def text(self, names: Mapping[str, str]) -> str:
        """The same with names of classes (see `concept_names`) instead of their labels."""
        most = self.most()
        if not self.classes:
            return f"{self.n_images:,} (not used)"
        rest = f" and {len(most) - MOST_CLASSES:,} more classes" if len(most) > MOST_CLASSES else ""
        went = ", ".join(f"{names.get(label, label)} {n:,.{int(n < 0.5)}f}" for label, n in most[:MOST_CLASSES])
        return f"{self.n_images:,} ({'it' if self.n_images == 1 else 'they'} went to: {went}{rest})"


#: Counts by label. Unlike `CoarseLabels` they know nothing of single images: they are saved with a model.
CoarseCounts = dict[str, CoarseCount]


def likeliest(responsibilities: sparse.csr_array, classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The likeliest class of each image, and its probability."""
    most = np.asarray(responsibilities.argmax(axis=1)).ravel()
    return classes[most], np.asarray(responsibilities.max(axis=1).toarray()).ravel()


def count_labels(
    names: Sequence[str], label: NDArray[np.intp], responsibilities: sparse.csr_array, classes: NDArray[Any]
) -> CoarseCounts:
    """Counts of images, each with the position of its label in `names` and its responsibilities."""
    by_label = sparse.csr_array(one_hot(label, len(names)).T @ responsibilities)
    n_images = np.bincount(label, minlength=len(names)).tolist()
    return {name: CoarseCount.of(n_images[k], by_label[[k]], classes) for k, name in enumerate(names) if n_images[k]}


def joined_counts(first: CoarseCounts | None, second: CoarseCounts) -> CoarseCounts:
    """The images of both."""
    joined = dict(first or {})
    for name, count in second.items():
        joined[name] = joined[name].joined(count) if name in joined else count
    return joined


def concept_names(hierarchy: Hierarchy) -> dict[str, str]:
    """The names of all concepts by id, those that were merged into another one included."""
    merged = {concept: name for synset in hierarchy for concept, name in hierarchy.merged(synset)}
    return merged | {synset: hierarchy.name(synset) for synset in hierarchy}


def only_class_lines(y: Iterable[Any], classes: Mapping[str, str], what: str = "image labelled") -> list[str]:
    """Notes on labels that count as the only class below them, the most frequent first."""
    counts = Counter(label for label in y if isinstance(label, str) and label in classes).most_common()
    lines = []
    for label, n in counts[:MOST_LABELS]:
        noun, _, rest = what.partition(" ")
        count = "counts" if n == 1 else "count"
        said = f"{counted(n, noun)} {rest} {quote(label)} {count} as {quote(classes[label])}"
        lines.append(f"{said}, the only class below it")
    if others := counts[MOST_LABELS:]:
        n_others = sum(n for _, n in others)
        lines.append(f"{n_others:,} more with {len(others):,} other labels also count as the only class below them")
    return lines


def coarse_lines(counts: CoarseCounts, hierarchy: Hierarchy | None = None, own: str = "-P coarse=own") -> list[str]:
    """What was done with images that are labelled above the classes, one sentence per label.

    Parameters
    ----------
    hierarchy : of the fitted model, for the names of concepts
    own : what to type to make a label a class
    """
    if counts and not any(count.classes for count in counts.values()):
        n_images = sum(count.n_images for count in counts.values())
        return [
            f"{n_images:,} images are labelled above the classes; they are not used, because they "
            "did not improve the accuracy on held-out images"
        ]
    lines, names = [], {} if hierarchy is None else concept_names(hierarchy)
    order = sorted(counts.items(), key=lambda pair: -pair[1].n_images)
    for label, count in order[:MOST_LABELS]:
        images, teach = ("image", "teaches") if count.n_images == 1 else ("images", "teach")
        level = f"{names.get(label, label)}: {count.n_images:,} {images} labelled only to this level"
        classes = f"{len(count.classes):,} classes"
        if hierarchy is not None and label in hierarchy:
            classes = f"the {sum(map(hierarchy.is_leaf, hierarchy.descendants(label))):,} classes"
        lines.append(f"{level} {teach} {classes} below it ({own} makes it a class)")
    if rest := order[MOST_LABELS:]:
        n_images = sum(count.n_images for _, count in rest)
        lines.append(f"{n_images:,} images with {len(rest):,} other labels also teach the classes below them")
    return lines
