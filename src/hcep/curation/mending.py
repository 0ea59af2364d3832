"""A hierarchy looked over, mended and measured in one go: what `hcep hierarchy lint` does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hcep.curation.edits import apply_edits, diff
from hcep.curation.embedding_checks import MoveFinding, Progress, lint_embeddings
from hcep.curation.file_checks import lint_file
from hcep.curation.findings import Finding
from hcep.curation.graph_checks import fix
from hcep.curation.held_out import HeldOut
from hcep.curation.moves import best_moves
from hcep.curation.what_if import Effect, what_if
from hcep.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class Review:
    """What was found, and what mending made of it.

    Attributes
    ----------
    findings : list of Finding
    errors : those that are left, because they cannot be mended safely or were not to be
    before, after : none where the file is no hierarchy
    changes : as `diff` tells them, after the rows of the file that were dropped
    effects : dict of str to Effect; what the moves do, by the images it was measured on
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
    n_moves: int = 0,
    n_images: int = 5,
    max_moves: int = 60,
    progress: Progress | None = None,
    **reading: Any,
) -> Review:
    """Look a hierarchy over, in a file or by name, and mend what is asked for; nothing is written.

    Parameters
    ----------
    place : as for `lint_file`
    images : (X, y, ids); labelled embeddings to check it against, as for `lint_embeddings`. Images of a class that the
        hierarchy lacks are left out: the class has a finding already.
    others : (X, y); images that have no part in the choice of moves, to measure them on as well
    classes : the data's labels; those of the images by default
    mend : apply the safe repairs
    n_moves : apply up to this many of the moves that help
    n_images, max_moves, progress : as for `lint_embeddings`
    **reading : as for `Hierarchy.read`
    """
    labels = classes if classes is not None or images is None else np.unique(np.asarray(images[1], dtype=str)).tolist()
    findings, before = lint_file(place, labels, **reading)
    left = [f for f in findings if f.severity == "error" and not (mend and f.safe and before is not None)]
    if before is None:
        return Review(findings, left, None, None)
    after, effects = before, dict[str, Effect]()
    X, y, ids = _known([*before, *before.own_leaves], *(images or ([], [], [])))
    if len(np.unique(y)) > 1:
        held_out = HeldOut.from_images(before, X, y)
        findings += lint_embeddings(
            before, X, y, ids, n_images=n_images, max_moves=max_moves, held_out=held_out, progress=progress
        )
        if n_moves:
            measured = [f.measured for f in findings if isinstance(f, MoveFinding) and f.measured is not None]
            chosen = best_moves(held_out, measured, n_moves)
            effects["the images they were chosen on"] = chosen
            X, y = _known(held_out.classes, *(others or ([], [])))
            if len(y):
                effects["other images, which had no part in it"] = what_if(held_out.on(X, y), chosen.edits)
            protected = [*(labels or ()), *map(before.class_of, before.leaves)]
            after = apply_edits(before, chosen.edits, protected)
    after = fix(after, labels) if mend else after
    dropped = [f for f in findings if mend and f.safe and f.code in ("self-loop", "duplicate-edge")]
    changes = [*(f"- {f.code}, {example}" for f in dropped for example in f.examples), *diff(before, after)]
    return Review(findings, left, before, after, changes, effects)


def _known(classes: Iterable[str], X: ArrayLike, y: ArrayLike, *more: ArrayLike) -> list[Any]:
    """The rows of arrays whose label is a class."""
    kept = np.flatnonzero(np.isin(np.asarray(y, dtype=str), list(classes)))
    return [np.asarray(array)[kept] for array in (X, np.asarray(y, dtype=str), *more)]
