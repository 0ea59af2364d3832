"""CIFAR-10 and CIFAR-100, in the published binary versions; those for Python are pickles, which are not read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep._files import read_lines
from hcep.datasets.image_dataset import DatasetError, ImageDataset, choose_splits
from hcep.datasets.layouts.listing import OWN_LABEL, LayoutOptions, column_error
from hcep.errors import quote, quoted

SIDE, CHANNELS = 32, 3
N_BYTES = CHANNELS * SIDE * SIDE


class _Form(NamedTuple):
    """A dataset: its files by split, and for each kind of label the file with the names of the classes.

    The kinds are in the order of the first bytes of a record; the last one is the default.
    """

    title: str
    files: Mapping[str, Sequence[str]]
    names: Mapping[str, str]


FORMS = (
    _Form(
        "CIFAR-10",
        {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
        {"labels": "batches.meta.txt"},
    ),
    _Form(
        "CIFAR-100",
        {"train": ["train.bin"], "test": ["test.bin"]},
        {f"{kind}_labels": f"{kind}_label_names.txt" for kind in ("coarse", "fine")},
    ),
)
LOOKS_FOR = (
    "the binary version: data_batch_1.bin to 5 and test_batch.bin with batches.meta.txt, or train.bin and test.bin "
    "with fine_label_names.txt"
)


def detect(source: Path) -> bool:
    """Whether there are the names of classes and at least one file of images."""
    return _form(source) is not None


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """Read the images into memory; ids are the files that `export` writes."""
    form = _form(source)
    if form is None:
        raise DatasetError(f"{str(source)!r} is not CIFAR: looked for {LOOKS_FOR}")
    kind = options.label_column if options.label_column not in (OWN_LABEL, None) else list(form.names)[-1]
    if kind not in form.names:
        raise column_error("label_column", str(kind), form.names, source)
    names = _class_names(source / form.names[kind])
    files, labels, splits, pixels = list[str](), list[str](), list[str](), list[NDArray[np.uint8]]()
    for split in choose_splits(form.files, options.split, source):
        missing = [file for file in form.files[split] if not (source / file).is_file()]
        if missing:
            raise DatasetError(f"{form.title}: {quoted(missing)} of split {quote(split)} not in {str(source)!r}")
        for file in form.files[split]:
            records = _records(source / file, len(form.names) + N_BYTES)
            numbers = records[:, list(form.names).index(kind)].tolist()
            if max(numbers) >= len(names):
                raise DatasetError(
                    f"{str(source)!r} has the class number {max(numbers)}, but only {len(names)} class names"
                )
            start = splits.count(split)
            labels += [names[n] for n in numbers]
            files += [f"{split}/{names[n]}/{start + i:05d}.png" for i, n in enumerate(numbers)]
            splits += [split] * len(numbers)
            # Stored as red, then green, then blue, row by row, after a byte for each label.
            flat = records[:, len(form.names) :]
            pixels.append(np.ascontiguousarray(flat.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)))
    return ImageDataset(source, files, files, labels, splits, pixels=np.concatenate(pixels))


def _form(source: Path) -> _Form | None:
    for form in FORMS:
        data = [file for files in form.files.values() for file in files]
        if all((source / f).is_file() for f in form.names.values()) and any((source / f).is_file() for f in data):
            return form
    return None


def _class_names(file: Path) -> list[str]:
    names = read_lines(file, DatasetError)
    # The names become folders on export, and none may point outside.
    unsafe = [name for name in names if name.startswith(".") or "/" in name or "\\" in name]
    if unsafe:
        raise DatasetError(f"{str(file)!r} has class names that cannot be folder names: {quoted(unsafe)}")
    return names


def _records(file: Path, size: int) -> NDArray[np.uint8]:
    """The images of a file, one record of `size` bytes each."""
    content = np.fromfile(file, dtype=np.uint8)
    if len(content) == 0 or len(content) % size:
        raise DatasetError(f"{str(file)!r} has {len(content):,} bytes, not a multiple of the {size:,} of a record")
    return content.reshape(-1, size)
