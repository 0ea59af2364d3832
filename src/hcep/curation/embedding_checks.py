"""What embeddings say about a hierarchy: cones that leak, atoms that lean on their parents, misplaced children."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.curation.findings import Finding
from hcep.curation.held_out import HeldOut
from hcep.curation.moves import MeasuredMove, measure_moves, propose_moves
from hcep.dictionary import ConceptDictionary
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError
from hcep.evaluate.labels import as_labels
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: Takes the number of moves to measure, returns what is called after each of them.
Progress = Callable[[int], Callable[[], object]]

#: Share of the (synset, descendant) angles of a level that its cones hold. The paper's schedule of half-angles is
#: stricter than real embeddings: every inner synset of Tiny-ImageNet breaks it, which says nothing about any one.
COVERAGE = 0.95
#: |cosine| of an atom and its parent from which it counts as leaning; real atoms are within 0.2 nine times in ten.
MAX_COSINE = 0.3


@dataclass(frozen=True, eq=False)
class MoveFinding(Finding):
    """A child nearer to another parent, with the move and what it did to held-out images."""

    measured: MeasuredMove | None = None


@dataclass(frozen=True, eq=False)
class _Images:
    """Images in the dictionary's space, by class, with what to call them."""

    dictionary: ConceptDictionary
    x: NDArray[Any]
    leaves: NDArray[np.str_]
    ids: list[str]
    n_shown: int

    def below(self, synset: str) -> NDArray[np.intp]:
        """Rows of the images of classes at or below a synset."""
        hierarchy = self.dictionary.hierarchy
        return np.flatnonzero(np.isin(self.leaves, [synset, *hierarchy.descendants(synset)]))

    def worst(self, rows: NDArray[np.intp], score: Floats) -> tuple[str, ...]:
        order = np.argsort(-score, kind="stable")[: self.n_shown]
        return tuple(self.ids[i] for i in rows[order])


def lint_embeddings(
    hierarchy: Hierarchy,
    X: ArrayLike,
    y: ArrayLike,
    ids: ArrayLike | None = None,
    *,
    max_moves: int = 60,
    n_images: int = 5,
    n_synsets: int = 5,
    half_angles: ArrayLike | None = None,
    max_cosine: float = MAX_COSINE,
    n_folds: int = 3,
    random_state: int = 0,
    held_out: HeldOut | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Look a hierarchy over with labelled embeddings.

    Parameters
    ----------
    hierarchy : Hierarchy
    X : (n_images, n_dims) array
    y : (n_images,) array of str
    ids : (n_images,) array of str, optional
        What to call images in findings; row numbers by default.
    max_moves : int
        Children nearer to another parent are tried in order of how clear the case is, at most this many.
    n_images, n_synsets : int
        Images listed in a finding, synsets listed for each geometric condition: the worst.
    half_angles : (depth,) array, optional
        Cones by level for containment; by default each level's cones hold 95% of its (synset, descendant) angles, so
        that what stands out is found. ``dictionary.geometry.geometric_schedule()`` is the paper's, far stricter.
    max_cosine : float
        Largest |cosine| of an atom and its parent that is no finding.
    n_folds, random_state
        Of the held-out images that moves are measured on (see `HeldOut.from_images`).
    held_out : HeldOut, optional
        Made from the same images before; saves making it again.
    progress : callable, optional
        Told how many moves there are to measure; what it returns is called after each.

    Returns
    -------
    list of Finding
        ``containment``, ``orthogonality`` (their `examples` are images) and ``nearer-parent`` (a `MoveFinding`).
        A nearer-parent finding is a warning where the move helps (see `MeasuredMove.helps`) and a note where the
        hierarchy is better left alone.

    Raises
    ------
    HCEPError
        `ids` of another length; what the estimators refuse.

    Examples
    --------
    >>> from hcep.datasets import load_sample
    >>> from hcep.curation import lint_embeddings
    >>> data = load_sample()
    >>> findings = lint_embeddings(data.hierarchy, data.X_train, data.y_train, max_moves=2)
    >>> sorted({finding.code for finding in findings})
    ['containment', 'nearer-parent', 'orthogonality']
    """
    labels, images = np.array(as_labels(y, "y")), np.asarray(X)
    names = [str(i) for i in (range(len(labels)) if ids is None else np.asarray(ids).tolist())]
    if len(names) != len(labels):
        raise HCEPError(f"ids must hold one name an image: {len(names):,} ids, {len(labels):,} labels")
    if held_out is None:
        held_out = HeldOut.from_images(hierarchy, images, labels, n_folds=n_folds, random_state=random_state)
    dictionary = held_out.dictionary
    leaf_of = {label: dictionary.hierarchy.leaf_of(label) for label in np.unique(labels).tolist()}
    leaves = np.array([leaf_of[label] for label in labels.tolist()])
    shown = _Images(dictionary, dictionary.embed(images), leaves, names, n_images)
    findings = [*_containment(shown, half_angles, n_synsets), *_orthogonality(shown, max_cosine, n_synsets)]
    return [*findings, *_moves(held_out, max_moves, progress)]


def _containment(images: _Images, half_angles: ArrayLike | None, n_synsets: int) -> Iterator[Finding]:
    hierarchy, geometry = images.dictionary.hierarchy, images.dictionary.geometry
    angles = _angles_below(images.dictionary)
    schedule = _schedule(hierarchy, angles) if half_angles is None else np.asarray(half_angles, dtype=np.float64)
    containment = geometry.containment(schedule)
    worst = [i for i in np.argsort(-np.nan_to_num(containment.mean_violation)) if containment.fraction[i] > 0]
    units = unit_rows(images.dictionary.synset_embeddings)
    for i in worst[:n_synsets]:
        synset, cone = hierarchy.ids[i], schedule[hierarchy.levels[i] - 1]
        outside = [s for s, angle in sorted(angles[i].items(), key=lambda pair: -pair[1]) if angle > cone]
        rows = np.unique(np.concatenate([images.below(s) for s in outside]))
        away = -(unit_rows(images.x[rows]) @ units[i])
        text = (
            f"{_named(hierarchy, synset)}: {len(outside)} of {len(angles[i])} synsets below lie outside its cone of "
            f"{cone:.0f}°, {_named(hierarchy, outside[0])} at {angles[i][outside[0]]:.0f}°; "
            "look at these images, or split the synset"
        )
        yield Finding("note", "containment", text, (synset, *outside), examples=images.worst(rows, away))
    if len(worst) > n_synsets:
        yield _rest("containment", "synsets below lie outside the cone", hierarchy, worst[n_synsets:])


def _angles_below(dictionary: ConceptDictionary) -> dict[int, dict[str, float]]:
    """Angle in degrees between each inner synset but the root and each synset below it."""
    hierarchy = dictionary.hierarchy
    units = unit_rows(dictionary.synset_embeddings)
    angles = {}
    for i in range(1, len(hierarchy)):
        below = hierarchy.descendants(hierarchy.ids[i])
        if below:
            cosines = units[[hierarchy.index(s) for s in below]] @ units[i]
            angles[i] = dict(zip(below, np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))).tolist(), strict=True))
    return angles


def _schedule(hierarchy: Hierarchy, angles: dict[int, dict[str, float]]) -> Floats:
    """Half-angle of each level, (depth,), that holds `COVERAGE` of its angles; 0 where a level has leaves alone."""
    by_level: list[list[float]] = [[] for _ in range(hierarchy.depth)]
    for i, below in angles.items():
        by_level[hierarchy.levels[i] - 1] += below.values()
    return np.array([np.quantile(found, COVERAGE) if found else 0.0 for found in by_level])


def _orthogonality(images: _Images, max_cosine: float, n_synsets: int) -> Iterator[Finding]:
    dictionary, hierarchy = images.dictionary, images.dictionary.hierarchy
    measured = dictionary.geometry.orthogonality()
    order = np.argsort(-np.abs(measured.cosine), kind="stable")
    worst = [k for k in order if abs(measured.cosine[k]) > max_cosine]
    for k in worst[:n_synsets]:
        parent, child = dictionary.edges[measured.atom[k]]
        above = dictionary.synset_embedding(parent)
        rows = images.below(child)
        lean = np.sign(measured.cosine[k]) * (unit_rows(images.x[rows] - above.astype(images.x.dtype)) @ above)
        text = (
            f"{_named(hierarchy, child)}: its atom leans on its parent {_named(hierarchy, parent)} "
            f"(cosine {measured.cosine[k]:+.2f}, 0 expected); these images lie {_where(measured.cosine[k])} than "
            "the parent: check them, or the place of the synset"
        )
        yield Finding("note", "orthogonality", text, (child, parent), examples=images.worst(rows, lean))
    if len(worst) > n_synsets:
        children = [hierarchy.index(dictionary.edges[measured.atom[k]][1]) for k in worst[n_synsets:]]
        yield _rest("orthogonality", "the atom leans on the parent", hierarchy, children)


def _moves(held_out: HeldOut, max_moves: int, progress: Progress | None) -> Iterator[Finding]:
    proposals = propose_moves(held_out)
    tried = proposals[:max_moves]
    for measured in measure_moves(held_out, tried, *([] if progress is None else [progress(len(tried))])):
        yield move_finding(held_out.hierarchy, measured)
    children = dict.fromkeys(p.move.synset for p in proposals[max_moves:])
    rest = [held_out.hierarchy.index(child) for child in children if child not in {p.move.synset for p in tried}]
    if rest:
        yield _rest("nearer-parent", "another parent is nearer, less clearly", held_out.hierarchy, rest)


def move_finding(hierarchy: Hierarchy, measured: MeasuredMove) -> MoveFinding:
    """A measured move as a hint about the embedding: a warning with a fix where it helps, a note where it does not."""
    move, gain = measured.move, measured.gain()
    assert move.from_parent is not None
    synsets = (move.synset, move.from_parent, move.to_parent)
    child, own, other = (_named(hierarchy, s) for s in synsets)
    tried = f", corrected for {measured.n_tried:,} moves tried" if measured.n_tried > 1 else ""
    verdict = "the embedding groups it there, which need not be wrong here" if measured.helps else "no clear gain"
    text = (
        f"in this encoder's space {child} lies nearer to {other} than to its parent {own} "
        f"({measured.proposal.distance:.2f} against {measured.proposal.own_distance:.2f}); with it there held-out "
        f"support F1 changes by {gain.difference:+.4f} (95% interval {gain.low:+.4f} to {gain.high:+.4f}{tried}), "
        f"accuracy by {measured.effect.accuracy.difference:+.4f}: {verdict}"
    )
    finding = MoveFinding("warning", "nearer-parent", text, synsets, (move,), measured=measured)
    return finding if measured.helps else replace(finding, severity="note", fixes=())


def _rest(code: str, what: str, hierarchy: Hierarchy, indices: list[int]) -> Finding:
    synsets = tuple(dict.fromkeys(hierarchy.ids[i] for i in indices))
    return Finding("note", code, f"{len(synsets):,} more: {what}; ask for more to see them", synsets)


def _where(cosine: float) -> str:
    return "further out" if cosine > 0 else "further in"


def _named(hierarchy: Hierarchy, synset: str) -> str:
    return repr(hierarchy.name(synset))
