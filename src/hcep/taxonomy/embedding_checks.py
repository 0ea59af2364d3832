"""Checks of a hierarchy with embeddings: containment in cones, orthogonality of atoms, misplaced children.

`review` runs all checks and repairs at once; it is what `hcep hierarchy lint` calls.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.dictionary import ConceptDictionary
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError, quote
from hcep.evaluate.truths import as_labels
from hcep.hierarchy import Hierarchy
from hcep.taxonomy.checks import Finding, findings_about, fix, lint_file
from hcep.taxonomy.edits import apply_edits, diff
from hcep.taxonomy.effects import (
    Effect,
    Floats,
    HeldOut,
    MeasuredMove,
    best_moves,
    ids_of,
    measure_moves,
    propose_moves,
    what_if,
)

#: Takes the number of moves to measure, and returns a function that is called after each.
Progress = Callable[[int], Callable[[], object]]

#: Share of the (concept, descendant) angles of a level inside its cones. The paper's schedule of half-angles is too
#: strict for real embeddings: every inner concept of Tiny-ImageNet violates it.
COVERAGE = 0.95
#: |cosine| of an atom and its parent above which it is reported; nine of ten real atoms are within 0.2.
MAX_COSINE = 0.3
#: Concepts listed for each geometric condition, the worst first.
N_SYNSETS = 5


class _Images(NamedTuple):
    """Images in the dictionary's space, with their leaves and ids, and how many to list."""

    dictionary: ConceptDictionary
    x: NDArray[Any]
    leaves: NDArray[np.str_]
    ids: list[str]
    n_images: int

    def below(self, *synsets: str) -> NDArray[np.intp]:
        """Rows of the images of classes at or below any of the concepts."""
        inside = {s for synset in synsets for s in (synset, *self.dictionary.hierarchy.descendants(synset))}
        return np.flatnonzero(np.isin(self.leaves, list(inside)))

    def finding(self, code: str, text: str, synsets: tuple[str, ...], rows: NDArray[np.intp], score: Floats) -> Finding:
        """A note that lists the images with the highest scores."""
        worst = rows[np.argsort(-score, kind="stable")[: self.n_images]]
        return Finding("note", code, text, synsets, examples=tuple(self.ids[i] for i in worst))


def lint_embeddings(
    hierarchy: Hierarchy,
    X: ArrayLike,
    y: ArrayLike,
    ids: ArrayLike | None = None,
    *,
    max_moves: int = 60,
    n_images: int = 5,
    held_out: HeldOut | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Check a hierarchy with labelled embeddings.

    Findings are ``containment`` and ``orthogonality``, whose `examples` are images, and ``nearer-parent``: a warning if
    the move helps (see `MeasuredMove.helps`), otherwise a note.

    Parameters
    ----------
    X : (n_images, n_dims) array
    y : (n_images,) array of str; images that are labelled above the classes of others are left out, as a note says
    ids : (n_images,) array of str; names of the images in findings; row numbers by default
    max_moves : maximum number of moves to measure, the clearest cases first
    n_images : maximum number of images listed in a finding, the worst first
    held_out : from the same images, if it exists already
    progress : called with the number of moves to measure; the function it returns is called after each
    """
    labels, images = np.array(as_labels(y, "y")), np.asarray(X)
    names = [str(i) for i in (range(len(labels)) if ids is None else np.asarray(ids).tolist())]
    if len(names) != len(labels):
        raise HCEPError(f"ids must have one name per image; got {len(names):,} ids and {len(labels):,} labels")
    coarse: list[Finding] = []
    if held_out is None:
        exact, coarse = _exact_images(hierarchy, labels)
        images, labels, names = images[exact], labels[exact], np.array(names)[exact].tolist()
        held_out = HeldOut.from_images(hierarchy, images, labels)
    dictionary = held_out.dictionary
    leaf_of = {label: dictionary.hierarchy.leaf_of(label) for label in np.unique(labels).tolist()}
    leaves = np.array([leaf_of[label] for label in labels.tolist()])
    labelled = _Images(dictionary, dictionary.embed(images), leaves, names, n_images)
    proposals = propose_moves(held_out)
    tried = proposals[:max_moves]
    measured = measure_moves(held_out, tried, *([] if progress is None else [progress(len(tried))]))
    reported = {move.synset for move in tried}
    rest = [move.synset for move in proposals[max_moves:] if move.synset not in reported]
    return [
        *coarse,
        *_containment(labelled),
        *_orthogonality(labelled),
        *(move_finding(held_out.hierarchy, one) for one in measured),
        *_more("nearer-parent", rest, "another parent is nearer, less clearly"),
    ]


def _exact_images(hierarchy: Hierarchy, labels: NDArray[np.str_]) -> tuple[NDArray[np.bool_], list[Finding]]:
    """Which images are labelled with a class, and a note on those labelled with a concept above other labels."""
    above = {concept for label in np.unique(labels).tolist() for concept in hierarchy.ancestors(label)}
    exact = ~np.isin(labels, list(above))
    text = f"{(~exact).sum():,} of {len(labels):,} images are labelled above the classes"
    note = Finding("note", "coarse-labels", f"{text}; the checks with images use the others", ())
    return exact, [] if exact.all() else [note]


def _containment(images: _Images) -> Iterator[Finding]:
    hierarchy, geometry = images.dictionary.hierarchy, images.dictionary.geometry
    units = unit_rows(images.dictionary.synset_embeddings)
    angles: dict[int, dict[str, float]] = {}  # in degrees, between a concept and each concept below it
    for i in range(1, len(hierarchy)):
        if below := hierarchy.descendants(hierarchy.ids[i]):
            cosines = units[[hierarchy.index(s) for s in below]] @ units[i]
            angles[i] = dict(zip(below, np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))).tolist(), strict=True))
    by_level: list[list[float]] = [[] for _ in range(hierarchy.depth)]
    for i, lower in angles.items():
        by_level[hierarchy.levels[i] - 1] += lower.values()
    # A level of leaves has no angles.
    schedule = np.array([np.quantile(level, COVERAGE) if level else 0.0 for level in by_level])
    containment = geometry.containment(schedule)
    worst = [i for i in np.argsort(-np.nan_to_num(containment.mean_violation)) if containment.fraction[i] > 0]
    for i in worst[:N_SYNSETS]:
        synset, cone = hierarchy.ids[i], schedule[hierarchy.levels[i] - 1]
        outside = sorted((s for s, angle in angles[i].items() if angle > cone), key=lambda s: -angles[i][s])
        rows = images.below(*outside)
        text = (
            f"{quote(hierarchy.name(synset))}: photos of {len(outside)} of the {len(angles[i])} concepts below it look "
            f"different from the others, {_likeness(hierarchy, units, i, outside[0])}; check these images, "
            "or split the concept"
        )
        yield images.finding("containment", text, (synset, *outside), rows, -(unit_rows(images.x[rows]) @ units[i]))
    rest = [hierarchy.ids[i] for i in worst[N_SYNSETS:]]
    yield from _more("containment", rest, "photos of concepts below look different from the others")


def _likeness(hierarchy: Hierarchy, units: Floats, i: int, synset: str) -> str:
    """What the photos of a concept below the i-th look like: another concept of its level, or least like its others."""
    level = np.flatnonzero(hierarchy.levels == hierarchy.levels[i])
    cosines = units[level] @ units[hierarchy.index(synset)]
    nearest = int(level[np.argmax(cosines)])
    name = hierarchy.name(synset)
    return (
        f"those of {quote(name)} most of all"
        if nearest == i
        else f"and photos of {quote(name)} look, on average, more like {quote(hierarchy.name(hierarchy.ids[nearest]))}"
    )


def _orthogonality(images: _Images) -> Iterator[Finding]:
    dictionary, hierarchy = images.dictionary, images.dictionary.hierarchy
    measured = dictionary.geometry.orthogonality()
    order = np.argsort(-np.abs(measured.cosine), kind="stable")
    worst = [k for k in order if abs(measured.cosine[k]) > MAX_COSINE]
    for k in worst[:N_SYNSETS]:
        (parent, child), cosine = dictionary.edges[measured.atom[k]], measured.cosine[k]
        above = dictionary.synset_embedding(parent)
        rows = images.below(child)
        lean = np.sign(cosine) * (unit_rows(images.x[rows] - above.astype(images.x.dtype)) @ above)
        text = (
            f"{quote(hierarchy.name(child))}: its photos look like {'more' if cosine > 0 else 'less'} typical photos "
            f"of its parent {quote(hierarchy.name(parent))} rather than like a kind of their own; check these images, "
            "or the place of the concept"
        )
        yield images.finding("orthogonality", text, (child, parent), rows, lean)
    rest = [dictionary.edges[measured.atom[k]][1] for k in worst[N_SYNSETS:]]
    yield from _more("orthogonality", rest, "photos look like more or less typical ones of the parent")


def _more(code: str, synsets: list[str], what: str) -> list[Finding]:
    return findings_about("note", code, dict.fromkeys(synsets), f"more: {what}; raise the limit to see them")


def move_finding(hierarchy: Hierarchy, measured: MeasuredMove) -> Finding:
    """The finding for a measured move: a warning with a fix if it helps, otherwise a note."""
    move, gain = measured.move, measured.gain()
    assert move.from_parent is not None
    synsets = (move.synset, move.from_parent, move.to_parent)
    child, own, other = (repr(hierarchy.name(s)) for s in synsets)
    tried = f", corrected for {measured.n_tried:,} moves tried" if measured.n_tried > 1 else ""
    verdict = "a clear gain, though the present place may be intended" if measured.helps else "no clear gain"
    text = (
        f"photos of {child} look, on average, more like {other} than like its parent {own}; moving it there changes "
        f"the right concepts on the paths of held-out photos (support F1) by {100 * gain.difference:+.2f} points (95% "
        f"interval {100 * gain.low:+.2f} to {100 * gain.high:+.2f}{tried}) and the right classes by "
        f"{100 * measured.effect.accuracy.difference:+.2f} points: {verdict}"
    )
    finding = Finding("warning", "nearer-parent", text, synsets, (move,), measured=measured)
    return finding if measured.helps else replace(finding, severity="note", fixes=())


@dataclass(frozen=True, eq=False)
class Review:
    """The findings of `review`, and the repaired hierarchy.

    Attributes
    ----------
    errors : the findings that remain, because they cannot be repaired safely or repairs were not requested
    before, after : the hierarchy; None if the file is not a hierarchy
    changes : the rows of the file that were removed, and the lines of `diff`
    effects : the effect of the moves, by a description of the images it was measured on
    """

    findings: list[Finding]
    errors: list[Finding]
    before: Hierarchy | None
    after: Hierarchy | None
    changes: list[str] = field(default_factory=list)
    effects: dict[str, Effect] = field(default_factory=dict)


def review(
    place: str | os.PathLike[str],
    images: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    others: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    classes: Sequence[str] | None = None,
    mend: bool = False,
    collapse: bool = False,
    n_moves: int = 0,
    n_images: int = 5,
    max_moves: int = 60,
    progress: Progress | None = None,
    **reading: Any,
) -> Review:
    """Check a hierarchy in a file, or by name, and repair what is requested; no file is written.

    Parameters
    ----------
    place : as for `lint_file`
    images : (X, y, ids); labelled embeddings, as for `lint_embeddings`. Images of a class that is not in the hierarchy
        are left out; the class has a finding of its own.
    others : (X, y); images that play no part in the choice of moves, on which their effect is measured as well
    classes : the labels of the data; those of the images by default
    mend : apply the safe repairs
    collapse : with `mend`, also merge chains
    n_moves : apply at most this many of the moves that help
    n_images, max_moves, progress : as for `lint_embeddings`
    **reading : as for `hcep.read_hierarchy`
    """
    labels = classes if classes is not None or images is None else np.unique(np.asarray(images[1], dtype=str)).tolist()
    findings, before = lint_file(place, labels, **reading)
    left = [f for f in findings if f.severity == "error" and not (mend and f.safe and before is not None)]
    if before is None:
        return Review(findings, left, None, None)
    after, effects = before, dict[str, Effect]()
    X, y, ids = _known_images(before, [*before, *before.own_leaves], *(images or ([], [], [])))
    exact, coarse = _exact_images(before, y)
    findings += coarse
    X, y, ids = X[exact], y[exact], ids[exact]
    if len(np.unique(y)) > 1:
        held_out = HeldOut.from_images(before, X, y)
        limits: Any = {"n_images": n_images, "max_moves": max_moves, "progress": progress}
        findings += lint_embeddings(before, X, y, ids, held_out=held_out, **limits)
        if n_moves:
            measured = [f.measured for f in findings if f.measured is not None]
            chosen = best_moves(held_out, measured, n_moves)
            effects["the images they were chosen on"] = chosen
            X, y = _known_images(before, held_out.classes, *(others or ([], [])))
            if len(y):
                effects["other images, which played no part in the choice"] = what_if(held_out.on(X, y), chosen.edits)
            protected = [*(labels or ()), *map(before.class_of, before.leaves)]
            after = apply_edits(before, chosen.edits, protected)
    after = fix(after, labels, collapse=collapse) if mend else after
    dropped = [f for f in findings if mend and f.safe and f.code in ("self-loop", "duplicate-edge")]
    changes = [*(f"- {f.code}, {example}" for f in dropped for example in f.examples), *diff(before, after)]
    return Review(findings, left, before, after, changes, effects)


def _known_images(
    hierarchy: Hierarchy, classes: Iterable[str], X: ArrayLike, y: ArrayLike, *more: ArrayLike
) -> list[Any]:
    """The rows of arrays whose label is a class, with labels as ids of the hierarchy."""
    labels = ids_of(hierarchy, y)
    rows = np.flatnonzero(np.isin(labels, list(classes)))
    return [np.asarray(array)[rows] for array in (X, labels, *more)]
