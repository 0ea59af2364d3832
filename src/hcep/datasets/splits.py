"""Which images go where: k-shot subsets and train/validation splits that depend on the images' ids alone.

An image's place in the draw is a hash of the seed and its id. So a draw does not depend on the order of the files, nor
on the images of other classes; the 1-shot subset is contained in the 5-shot subset of the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from hcep.datasets.layouts.listing import DatasetError
from hcep.errors import quoted


def k_shot_rows(ids: Sequence[str], labels: Sequence[str | None], k: int, seed: int) -> list[int]:
    """Rows of k images of every class, in ascending order.

    Examples
    --------
    >>> from hcep.datasets.splits import k_shot_rows
    >>> k_shot_rows(["a", "b", "c", "d"], ["cat", "cat", "dog", "dog"], k=1, seed=0)
    [0, 3]
    """
    if k < 1:
        raise DatasetError(f"k must be at least 1, got {k!r}")
    drawn = _drawn_by_class(ids, labels, seed)
    if None in drawn:
        raise DatasetError(
            f"{len(drawn[None]):,} of {len(ids):,} images have no label, so no {k}-shot subset can be drawn; "
            "subset(classes=dataset.classes) leaves them out"
        )
    small = [f"{label} ({len(rows)})" for label, rows in drawn.items() if len(rows) < k]
    if small:
        raise DatasetError(f"{len(small):,} of {len(drawn):,} classes have fewer than k={k} images: {quoted(small)}")
    return sorted(row for rows in drawn.values() for row in rows[:k])


def train_val_rows(
    ids: Sequence[str], labels: Sequence[str | None], fraction: float, seed: int
) -> tuple[list[int], list[int]]:
    """Rows for training and for validation, each class divided in the same proportion.

    Of every class with two images or more, at least one goes to each side; a single one is for training. Images without
    a label are divided like a class.

    Examples
    --------
    >>> from hcep.datasets.splits import train_val_rows
    >>> train_val_rows(["a", "b", "c", "d"], ["cat", "cat", "cat", "dog"], fraction=0.3, seed=0)
    ([1, 2, 3], [0])
    """
    if not 0.0 < fraction < 1.0:
        raise DatasetError(f"fraction is the share of the validation images, between 0 and 1; got {fraction!r}")
    train, val = list[int](), list[int]()
    for rows in _drawn_by_class(ids, labels, seed).values():
        n_val = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        val += rows[:n_val]
        train += rows[n_val:]
    return sorted(train), sorted(val)


def _drawn_by_class(ids: Sequence[str], labels: Sequence[str | None], seed: int) -> dict[str | None, list[int]]:
    """The rows of each class in the order they are drawn."""
    rows: dict[str | None, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    lots = [blake2b(f"{seed}\0{image}".encode(), digest_size=16).digest() for image in ids]
    return {label: sorted(members, key=lots.__getitem__) for label, members in rows.items()}
