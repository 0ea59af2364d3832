"""Images with their labels and splits, and reproducible subsets of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from hcep.embeddings.images import Box, ImageItem, storable
from hcep.errors import DatasetError as DatasetError, quote, quoted

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}
SPLIT_NAMES = {name: split for split, names in _SPLITS.items() for name in names}


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """Images with their labels and splits, from `read_images`; iterating yields an `ImageItem` for each.

    A dataset never changes: `split` and the other methods return a new one.

    Attributes
    ----------
    root : folder that the files are relative to
    files : paths of the images, with forward slashes
    ids : unique names of the images: the path in the dataset, or the ``id`` column of a table
    labels : classes; None for an image without one
    splits : ``"train"``, ``"val"``, ``"test"`` or other names; None if there are no splits
    layout : the layout it was read from
    boxes : the part of its file that each image is; None for the whole file
    unused : what the source lists but the dataset leaves out, as (name, reason) pairs
    """

    root: Path
    files: Sequence[str]
    ids: Sequence[str]
    labels: Sequence[str | None]
    splits: Sequence[str | None]
    layout: str = "folder"
    boxes: Sequence[Box | None] = ()
    unused: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for name in ("files", "labels", "splits"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "boxes", tuple(self.boxes) or (None,) * len(self.files))
        object.__setattr__(self, "ids", tuple(map(storable, self.ids)))
        lengths = [len(part) for part in (self.files, self.ids, self.labels, self.splits, self.boxes)]
        if len(set(lengths)) > 1:
            raise DatasetError(f"files, ids, labels, splits and boxes must have the same length, got {lengths}")
        if len(set(self.ids)) < len(self.ids):
            repeated = [image for image, n in Counter(self.ids).items() if n > 1]
            raise DatasetError(f"ids must be unique; these occur more than once: {quoted(repeated)}")

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels that occur, sorted."""
        return tuple(sorted({label for label in self.labels if label is not None}))

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that occur, in order of appearance."""
        return tuple(dict.fromkeys(split for split in self.splits if split is not None))

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[ImageItem]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> ImageItem:
        parts = (self.labels[row], self.ids[row], self.splits[row], self.boxes[row])
        return ImageItem(self.root / self.files[row], *parts)

    def __repr__(self) -> str:
        counts = Counter(self.splits)
        splits = ", ".join(f"{split} {counts[split]:,}" for split in self.split_names) or "no splits"
        n_classes = len(self.classes)
        return f"ImageDataset({len(self):,} images, {n_classes:,} classes, layout {self.layout!r}, {splits})"

    def split(self, name: str) -> "ImageDataset":
        """The images of one split."""
        (wanted,) = choose_splits(self.splits, name, self.root)
        return self._take([row for row, split in enumerate(self.splits) if split == wanted])

    def pooled(self) -> "ImageDataset":
        """The same images without splits, to divide them in another way."""
        return replace(self, splits=(None,) * len(self))

    def relabel(self, rename: Callable[[str], str]) -> "ImageDataset":
        """The same images with each class renamed, for instance by `hcep.datasets.imagenet_wnid`."""
        renamed = {label: rename(label) for label in self.classes}
        return replace(self, labels=[None if label is None else renamed[label] for label in self.labels])

    def k_shot(self, k: int, seed: int = 0) -> "ImageDataset":
        """Draw k images of every class, reproducibly.

        The draw depends only on `seed` and on the images' ids, not on their order. A smaller k gives a subset.
        """
        self._check_one_split("k_shot")
        return self._take(k_shot_rows(self.ids, self.labels, k, seed))

    def train_val(self, fraction: float = 0.2, seed: int = 0) -> tuple["ImageDataset", "ImageDataset"]:
        """Divide into training and validation images, each class in the same proportion, reproducibly.

        Parameters
        ----------
        fraction : share of the validation images; a class of two or more images has at least one on each side
        seed : the draw depends only on it and on the images' ids
        """
        self._check_one_split("train_val")
        train, val = train_val_rows(self.ids, self.labels, fraction, seed)
        return self._take(train, "train"), self._take(val, "val")

    def _take(self, rows: Sequence[int], split: str | None = None) -> "ImageDataset":
        return replace(
            self,
            files=[self.files[row] for row in rows],
            ids=[self.ids[row] for row in rows],
            labels=[self.labels[row] for row in rows],
            splits=[split or self.splits[row] for row in rows],
            boxes=[self.boxes[row] for row in rows],
        )

    def _check_one_split(self, method: str) -> None:
        if len(self.split_names) > 1:
            raise DatasetError(
                f"{method} would mix the splits {quoted(self.split_names)}; choose one with "
                f".split({quote(self.split_names[0])}), or use .pooled() to divide all images again"
            )


def k_shot_rows(ids: Sequence[str], labels: Sequence[str | None], k: int, seed: int) -> list[int]:
    """Rows of k images of every class, in ascending order.

    An image's rank in the draw is a hash of the seed and its id: it depends neither on the order of the files nor on
    images of other classes, and the 1-shot subset is contained in the 5-shot subset with the same seed.
    """
    if k < 1:
        raise DatasetError(f"k must be at least 1, got {quote(k)}")
    drawn = _drawn_by_class(ids, labels, seed)
    if None in drawn:
        raise DatasetError(
            f"{len(drawn[None]):,} of {len(ids):,} images have no label, so no {k}-shot subset can be drawn; "
            "give them a label, or leave them out"
        )
    small = [f"{label} ({len(rows)})" for label, rows in drawn.items() if len(rows) < k]
    if small:
        raise DatasetError(f"{len(small):,} of {len(drawn):,} classes have fewer than k={k} images: {quoted(small)}")
    return sorted(row for rows in drawn.values() for row in rows[:k])


def train_val_rows(
    ids: Sequence[str], labels: Sequence[str | None], fraction: float, seed: int
) -> tuple[list[int], list[int]]:
    """Rows for training and for validation, each class divided in the same proportion.

    A class with two images or more has at least one on each side; a single image is for training. Images without a
    label are divided like a class.
    """
    if not 0.0 < fraction < 1.0:
        raise DatasetError(
            f"fraction, the share of the validation images, must be between 0 and 1; got {quote(fraction)}"
        )
    train, val = list[int](), list[int]()
    for rows in _drawn_by_class(ids, labels, seed).values():
        n_val = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        val += rows[:n_val]
        train += rows[n_val:]
    return sorted(train), sorted(val)


def _drawn_by_class(ids: Sequence[str], labels: Sequence[str | None], seed: int) -> dict[str | None, list[int]]:
    rows: dict[str | None, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    ranks = [blake2b(f"{seed}\0{image}".encode(), digest_size=16).digest() for image in ids]
    return {label: sorted(members, key=ranks.__getitem__) for label, members in rows.items()}


def canonical_split(name: str) -> str:
    """The usual name of a split: ``"validation"`` and ``"valid"`` become ``"val"``; other names stay."""
    return SPLIT_NAMES.get(name.strip().lower(), name.strip())


def choose_splits(available: Iterable[str | None], wanted: str | None, source: Path) -> list[str]:
    """The splits to read: all of them, or the wanted one."""
    known = list(dict.fromkeys(split for split in available if split is not None))
    if wanted is None:
        return known
    if not known:
        raise DatasetError(
            f"{str(source)!r} has no splits, so there is no split {quote(wanted)}; leave out the split "
            "to use all images, or divide them into the folders train/ and val/"
        )
    if canonical_split(wanted) not in known:
        raise DatasetError(f"split {quote(wanted)} is not in {str(source)!r}, which has {quoted(known)}")
    return [canonical_split(wanted)]
