"""Labelled images wherever they are: folders, tables and the layouts datasets are published in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from hcep._files import replacing
from hcep.datasets.layouts import LAYOUTS
from hcep.datasets.layouts.listing import OWN_LABEL, DatasetError, Request, choose_splits, printable
from hcep.embeddings.images import IMAGE_SUFFIXES
from hcep.embeddings.store.manifest import ImageItem
from hcep.errors import near_matches, quoted

__all__ = ["DatasetError", "ImageDataset", "ImageItem", "read_images"]


def read_images(
    source: str | os.PathLike[str],
    *,
    layout: str | None = None,
    split: str | None = None,
    path_column: str = "path",
    label_column: str | None = OWN_LABEL,
) -> ImageDataset:
    """List the images of a dataset; none is opened.

    Parameters
    ----------
    source : a folder, or a .csv, .tsv or .parquet file
    layout : {"folder", "table", "cifar", "imagenet", "imagenette", "tiny_imagenet"}, optional
        How the dataset is laid out; found out from its files when left out.
    split : read only this split (``"validation"`` and ``"valid"`` are ``"val"``)
    path_column, label_column : str
        Columns of a table. The label column also chooses among the labels of datasets that have several:
        ``"fine_labels"`` (default) or ``"coarse_labels"`` of CIFAR-100, ``"noisy_labels_5"`` and the like of
        ImageNette. None for images without labels.

    Images are in the order of the table or, of folders, split by split and sorted by path.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from hcep.datasets.image_dataset import read_images
    >>> for name in ("cat/tom.png", "cat/felix.png", "dog/rex.png"):
    ...     Path("pets", name).parent.mkdir(parents=True, exist_ok=True)
    ...     Image.new("RGB", (8, 8)).save(Path("pets", name))
    >>> dataset = read_images("pets")
    >>> dataset
    ImageDataset(3 images, 2 classes, layout 'folder', no splits)
    >>> [(item.id, item.label) for item in dataset]
    [('cat/felix.png', 'cat'), ('cat/tom.png', 'cat'), ('dog/rex.png', 'dog')]
    """
    place = Path(source)
    if not place.exists():
        siblings = os.listdir(place.parent) if place.parent.is_dir() else []
        raise DatasetError(f"no file or folder at {str(place)!r}.{near_matches(place.name, siblings)}")
    name = layout if layout is not None else _detect(place)
    if name not in LAYOUTS:
        raise DatasetError(f"unknown layout {name!r}; there are {quoted(LAYOUTS, 10)}.{near_matches(name, LAYOUTS)}")
    listing = LAYOUTS[name].read(place, Request(split, path_column, label_column))
    if not listing.files:
        raise DatasetError(
            f"no images in {str(place)!r} as a {name!r} layout; images are files that end in {' '.join(IMAGE_SUFFIXES)}"
        )
    return ImageDataset(
        root=listing.root,
        files=tuple(listing.files),
        ids=tuple(map(printable, listing.files if listing.ids is None else listing.ids)),
        labels=tuple(listing.labels) if label_column is not None else (None,) * len(listing.files),
        splits=tuple(listing.splits),
        layout=name,
        class_names=listing.class_names,
        pixels=listing.pixels,
    )


def _detect(source: Path) -> str:
    for name, layout in LAYOUTS.items():
        if layout.detect(source):
            return name
    tried = "\n".join(f"  {name}: {layout.looks_for}" for name, layout in LAYOUTS.items())
    raise DatasetError(f"no images and no known layout in {str(source)!r}; looked for\n{tried}")


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """Images with their labels and splits; iterating gives an `ImageItem` for each. Made by `read_images`.

    The object never changes: `subset`, `split` and the like return a new one.

    Attributes
    ----------
    root : folder that the files are relative to
    files : the images' files; of images in memory (CIFAR), the files that `export` writes
    ids : what tells the images apart: the path in the dataset, or the table's ``id`` column
    labels : classes; None for an image without one
    splits : tuple of str or None
        ``"train"``, ``"val"``, ``"test"`` or a name of your own; None where there are no splits.
    layout : the layout it was read from
    class_names : mapping; display names of the classes where the dataset has them (``words.txt``, ``synset_words.txt``)
    pixels : (n, height, width, 3) uint8; the images, where they are in memory
    """

    root: Path
    files: tuple[str, ...]
    ids: tuple[str, ...]
    labels: tuple[str | None, ...]
    splits: tuple[str | None, ...]
    layout: str = "folder"
    class_names: Mapping[str, str] = field(default_factory=dict)
    pixels: NDArray[np.uint8] | None = None

    def __post_init__(self) -> None:
        pixels = () if self.pixels is None else (self.pixels,)
        lengths = [len(part) for part in (self.files, self.ids, self.labels, self.splits, *pixels)]
        if len(set(lengths)) > 1:
            raise DatasetError(f"files, ids, labels, splits and pixels must be equally many, got {lengths}")
        if len(set(self.ids)) < len(self.ids):
            repeated = [image for image, n in Counter(self.ids).items() if n > 1]
            raise DatasetError(f"{len(repeated):,} ids are there more than once: {quoted(repeated)}; ids must differ")
        object.__setattr__(self, "class_names", MappingProxyType(dict(self.class_names)))
        if self.pixels is not None:
            self.pixels.setflags(write=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels that occur, sorted."""
        return tuple(sorted({label for label in self.labels if label is not None}))

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that occur, in order of appearance."""
        return tuple(dict.fromkeys(split for split in self.splits if split is not None))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The images' files; images in memory have none before `export`."""
        self._check_on_disk()
        return tuple(self.root / file for file in self.files)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[ImageItem]:
        self._check_on_disk()
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> ImageItem:
        self._check_on_disk()
        return ImageItem(self.root / self.files[row], self.labels[row], self.ids[row], self.splits[row])

    def image(self, row: int) -> Image.Image:
        """One image, read or taken from memory."""
        if self.pixels is not None:
            return Image.fromarray(self.pixels[row])
        with Image.open(self.root / self.files[row]) as image:
            image.load()
        return image

    def __repr__(self) -> str:
        counts = Counter(self.splits)
        splits = ", ".join(f"{split} {counts[split]:,}" for split in self.split_names) or "no splits"
        n_classes = len(self.classes)
        return f"ImageDataset({len(self):,} images, {n_classes:,} classes, layout {self.layout!r}, {splits})"

    def subset(self, rows: ArrayLike | None = None, *, classes: Iterable[str] | None = None) -> ImageDataset:
        """The images of some rows, in the order given, or of some classes.

        rows : array-like of int or of bool, optional
        classes : iterable of str; of the given rows, keep the images with these labels
        """
        kept = self._rows(rows)
        if classes is None:
            return self._take(kept)
        wanted, known = list(classes), set(self.classes)
        unknown = [c for c in wanted if c not in known]
        if unknown:
            raise DatasetError(
                f"{len(unknown):,} of {len(wanted):,} classes have no image here: {quoted(unknown)}."
                + near_matches(unknown[0], known)
            )
        return self._take([row for row in kept if self.labels[row] in wanted])

    def split(self, name: str) -> ImageDataset:
        """The images of one split."""
        (wanted,) = choose_splits(self.splits, name, self.root)
        return self._take([row for row, split in enumerate(self.splits) if split == wanted])

    def pooled(self) -> ImageDataset:
        """The same images without splits, for those who want to divide them anew."""
        return replace(self, splits=(None,) * len(self))

    def relabel(self, rename: Callable[[str], str]) -> ImageDataset:
        """The same images with each class renamed, for instance by `hcep.datasets.wordnet.imagenet_wnid`.

        Display names of the old labels are dropped.
        """
        renamed = {label: rename(label) for label in self.classes}
        labels = tuple(None if label is None else renamed[label] for label in self.labels)
        return replace(self, labels=labels, class_names={})

    def k_shot(self, k: int, seed: int = 0) -> ImageDataset:
        """Draw k images of every class, reproducibly.

        The draw depends on `seed` and on the images' ids only, not on their order. A smaller k gives a subset.
        """
        self._check_one_split("k_shot")
        return self._take(k_shot_rows(self.ids, self.labels, k, seed))

    def train_val(self, fraction: float = 0.2, seed: int = 0) -> tuple[ImageDataset, ImageDataset]:
        """Divide into train and validation, each class in the same proportion, reproducibly.

        fraction : share of the validation images. A class of two or more has at least one on each side.
        seed : the draw depends on it and on the images' ids only
        """
        self._check_one_split("train_val")
        train, val = train_val_rows(self.ids, self.labels, fraction, seed)
        return self._take(train, "train"), self._take(val, "val")

    def export(self, folder: str | os.PathLike[str]) -> ImageDataset:
        """Write images that are in memory to PNG files, ``folder/split/label/number.png``; return the files' dataset.

        Each file is written whole or not at all and a file that is there already is left, so that an interrupted export
        can be run again. Ids, labels and splits stay. A dataset of files is returned as it is.
        """
        if self.pixels is None:
            return self
        target = Path(folder)
        for file, pixels in zip(self.files, self.pixels, strict=True):
            _write_once(target / file, pixels)
        return replace(self, root=target, pixels=None)

    def _take(self, rows: Sequence[int], split: str | None = None) -> ImageDataset:
        return replace(
            self,
            files=tuple(self.files[row] for row in rows),
            ids=tuple(self.ids[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
            splits=(split,) * len(rows) if split else tuple(self.splits[row] for row in rows),
            pixels=None if self.pixels is None else self.pixels[list(rows)],
        )

    def _rows(self, rows: ArrayLike | None) -> list[int]:
        wanted = np.arange(len(self)) if rows is None else np.asarray(rows)
        if wanted.dtype == np.bool_ and wanted.shape == (len(self),):
            wanted = np.flatnonzero(wanted)
        if wanted.size and (wanted.ndim != 1 or wanted.dtype.kind not in "iu"):
            raise DatasetError(
                f"rows must be whole numbers or {len(self):,} booleans, got {wanted.dtype} of shape {wanted.shape}"
            )
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise DatasetError(f"rows must lie between 0 and {len(self) - 1:,}, got {wanted.min()} to {wanted.max()}")
        return [int(row) for row in wanted]

    def _check_one_split(self, method: str) -> None:
        if len(self.split_names) > 1:
            raise DatasetError(
                f"{method} would mix the splits {quoted(self.split_names)}; choose one with "
                f".split({self.split_names[0]!r}), or .pooled() to divide all images anew"
            )

    def _check_on_disk(self) -> None:
        if self.pixels is not None:
            raise DatasetError(
                f"the images of this {self.layout!r} dataset are in memory and have no files; call "
                "dataset.export(folder) and use what it returns"
            )


def _write_once(target: Path, pixels: NDArray[np.uint8]) -> None:
    if not target.exists():
        with replacing(target, DatasetError) as partial:
            Image.fromarray(pixels).save(partial, format="PNG")
        return
    try:
        with Image.open(target) as image:
            same = np.array_equal(np.asarray(image), pixels)
    except OSError:
        same = False
    if not same:
        raise DatasetError(f"{str(target)!r} is there already and is another image; export to an empty folder")


def k_shot_rows(ids: Sequence[str], labels: Sequence[str | None], k: int, seed: int) -> list[int]:
    """Rows of k images of every class, in ascending order.

    An image's place in a draw is a hash of the seed and its id: it depends neither on the order of the files nor on
    images of other classes, and the 1-shot subset is contained in the 5-shot subset of the same seed.
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
    rows: dict[str | None, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    lots = [blake2b(f"{seed}\0{image}".encode(), digest_size=16).digest() for image in ids]
    return {label: sorted(members, key=lots.__getitem__) for label, members in rows.items()}
