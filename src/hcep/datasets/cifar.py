"""CIFAR-10 and CIFAR-100: the published binary files, written as image files in class folders."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hcep._files import read_lines
from hcep.datasets.image_dataset import DatasetError
from hcep.errors import quoted

SIDE, CHANNELS = 32, 3
N_BYTES = CHANNELS * SIDE * SIDE
#: For each folder that an archive unpacks to: the file with the names of the classes, the bytes of labels before each
#: image, of which the last one counts the classes, and the files by split.
FORMS = {
    "cifar-10-batches-bin": (
        "batches.meta.txt",
        1,
        {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
    ),
    "cifar-100-binary": ("fine_label_names.txt", 2, {"train": ["train.bin"], "test": ["test.bin"]}),
}


def write_images(source: Path, target: Path) -> None:
    """Write every image of a published folder to a file such as ``train/cat/00003.png`` below the target."""
    class_file, n_labels, files = FORMS[source.name]
    names = _class_names(source / class_file)
    for split, parts in files.items():
        missing = [file for file in parts if not (source / file).is_file()]
        if missing:
            raise DatasetError(f"{str(source)!r} lacks {quoted(missing)}; delete the folder and fetch it again")
        records = np.concatenate([_records(source / file, n_labels + N_BYTES) for file in parts])
        numbers = records[:, n_labels - 1].tolist()
        if max(numbers) >= len(names):
            raise DatasetError(
                f"{str(source)!r} has the class number {max(numbers)}, but only {len(names)} class names"
            )
        for name in names:
            (target / split / name).mkdir(parents=True)
        # Stored as red, then green, then blue, row by row, after the labels.
        pictures = records[:, n_labels:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
        for i, (number, picture) in enumerate(zip(numbers, pictures, strict=True)):
            Image.fromarray(np.ascontiguousarray(picture)).save(target / split / names[number] / f"{i:05d}.png")


def _class_names(file: Path) -> list[str]:
    names = read_lines(file, DatasetError)
    # The names become folders, and none may point outside.
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
