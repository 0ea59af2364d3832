"""CIFAR-10 and CIFAR-100 in their published python and binary forms."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep._pickles import PickleError, Stateful, read_pickle
from hcep.datasets.image_dataset import DatasetError, ImageDataset, choose_splits
from hcep.datasets.layouts.listing import OWN_LABEL, Request, column_error, read_lines
from hcep.errors import quoted

SIDE, CHANNELS = 32, 3
N_BYTES = CHANNELS * SIDE * SIDE


class _Form(NamedTuple):
    """One of the four published forms.

    `names` are the files with the names of the classes by kind of label: of the python form the file and its key, of
    the binary form the text file. The kinds stand in the order of a binary record's first bytes; the last is the one
    that is read when none is named.
    """

    title: str
    is_binary: bool
    files: Mapping[str, Sequence[str]]
    names: Mapping[str, tuple[str, str]]


_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
_BOTH = ("coarse", "fine")
FORMS = tuple(
    _Form(f"{title}, {'binary' if binary else 'python'}", binary, {"train": train, "test": [test]}, names)
    for title, binary, train, test, names in (
        ("CIFAR-10", False, _BATCHES, "test_batch", {"labels": ("batches.meta", "label_names")}),
        ("CIFAR-10", True, [f"{b}.bin" for b in _BATCHES], "test_batch.bin", {"labels": ("batches.meta.txt", "")}),
        ("CIFAR-100", False, ["train"], "test", {f"{k}_labels": ("meta", f"{k}_label_names") for k in _BOTH}),
        ("CIFAR-100", True, ["train.bin"], "test.bin", {f"{k}_labels": (f"{k}_label_names.txt", "") for k in _BOTH}),
    )
)
LOOKS_FOR = (
    "data_batch_1 to 5 and test_batch with batches.meta, or train and test with meta (python, or .bin with .txt)"
)


def detect(source: Path) -> bool:
    """Whether a form's names and any of its files are there."""
    return _form(source) is not None


def read(source: Path, request: Request) -> ImageDataset:
    """Read the images into memory; ids are the files that they are exported to, the same for both forms."""
    form = _form(source)
    if form is None:
        raise DatasetError(f"{str(source)!r} is not CIFAR: looked for {LOOKS_FOR}")
    kind = _label_kind(form, request.label_column, source)
    names = _class_names(form, kind, source)
    files, labels, splits, pixels = list[str](), list[str](), list[str](), list[NDArray[np.uint8]]()
    for split in choose_splits(form.files, request.split, source):
        for images, numbers in _batches(form, split, kind, source):
            start = splits.count(split)
            batch = _named(numbers, names, source)
            files += [f"{split}/{label}/{start + i:05d}.png" for i, label in enumerate(batch)]
            labels += batch
            splits += [split] * len(batch)
            pixels.append(images)
    return ImageDataset(source, files, files, labels, splits, pixels=np.concatenate(pixels))


def _form(source: Path) -> _Form | None:
    for form in FORMS:
        names = {file for file, _ in form.names.values()}
        data = [file for files in form.files.values() for file in files]
        if all((source / f).is_file() for f in names) and any((source / f).is_file() for f in data):
            return form
    return None


def _label_kind(form: _Form, column: str | None, source: Path) -> str:
    if column in (OWN_LABEL, None):
        return list(form.names)[-1]
    if column not in form.names:
        raise column_error("label_column", str(column), form.names, source)
    return str(column)


def _class_names(form: _Form, kind: str, source: Path) -> list[str]:
    file, key = form.names[kind]
    if form.is_binary:
        names = read_lines(source / file)
    else:
        entry = _get(load_pickle(source / file), key, source / file)
        names = [as_text(name) for name in entry]
    # The names become folders on export: none may lead out of it.
    strange = [name for name in names if not name or name.startswith(".") or "/" in name or "\\" in name]
    if strange:
        raise DatasetError(f"{str(source / file)!r} has class names that cannot be folder names: {quoted(strange)}")
    return names


def _batches(form: _Form, split: str, kind: str, source: Path) -> list[tuple[NDArray[np.uint8], list[int]]]:
    files = form.files[split]
    missing = [file for file in files if not (source / file).is_file()]
    if missing:
        raise DatasetError(f"{form.title}: {quoted(missing)} of split {split!r} not in {str(source)!r}")
    if form.is_binary:
        return [_read_binary(source / file, list(form.names).index(kind), len(form.names)) for file in files]
    return [_read_python(source / file, kind) for file in files]


def _read_binary(file: Path, label_at: int, n_labels: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Records of a byte for each label and 3,072 for the image: red, then green, then blue, row by row."""
    content = np.fromfile(file, dtype=np.uint8)
    size = n_labels + N_BYTES
    if len(content) == 0 or len(content) % size:
        raise DatasetError(f"{str(file)!r} has {len(content):,} bytes, not a multiple of the {size:,} of a record")
    records = content.reshape(-1, size)
    return _images(records[:, n_labels:]), records[:, label_at].tolist()


def _read_python(file: Path, kind: str) -> tuple[NDArray[np.uint8], list[int]]:
    content = load_pickle(file)
    data, numbers = (_get(content, key, file) for key in ("data", kind))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != N_BYTES:
        raise DatasetError(f"{str(file)!r}: 'data' must be bytes of shape (n, {N_BYTES})")
    if not isinstance(numbers, list) or len(numbers) != len(data) or not all(isinstance(n, int) for n in numbers):
        raise DatasetError(f"{str(file)!r}: {kind!r} must be {len(data):,} whole numbers, one for each image")
    return _images(data), numbers


def _get(content: Mapping[str, Any], key: str, file: Path) -> Any:
    if key not in content:
        raise DatasetError(f"{str(file)!r} has no entry {key!r}, only {quoted(content)}")
    return content[key]


def _images(flat: NDArray[np.uint8]) -> NDArray[np.uint8]:
    planes = flat.reshape(-1, CHANNELS, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _named(numbers: Sequence[int], names: Sequence[str], source: Path) -> list[str]:
    wrong = [n for n in numbers if not 0 <= n < len(names)]
    if wrong:
        raise DatasetError(f"{str(source)!r} has the class number {wrong[0]}, but only {len(names)} class names")
    return [names[n] for n in numbers]


class _Dtype(Stateful):
    """Stands for numpy.dtype: remembers its code; byte order and the like bytes have none."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = as_text(code)


class _Array(Stateful):
    """Stands for numpy.ndarray, and for the function that makes an empty one to set the state on."""

    array: NDArray[np.uint8]

    def __init__(self, *_: Any) -> None: ...

    def set_state(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        code = kind.code if isinstance(kind, _Dtype) else type(kind).__name__
        if code != "u1":
            raise PickleError(f"it holds an array of {code!r}, and CIFAR's are of bytes, 'u1'")
        self.array = np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if is_fortran else "C")


#: What a refused name is told instead of the general words.
_REFUSAL = (
    "which is not admitted; nothing was executed",
    "and CIFAR's files hold only dicts, lists, bytes and arrays; nothing was executed",
)
ADMITTED = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
}


def load_pickle(path: Path) -> dict[str, Any]:
    """The dict of a CIFAR python file, its keys as text."""
    try:
        content = read_pickle(BytesIO(path.read_bytes()), ADMITTED)
        return {as_text(key): value.array if isinstance(value, _Array) else value for key, value in content.items()}
    except (PickleError, AttributeError) as error:
        reason = str(error).replace("the pickle", "it", 1).replace(*_REFUSAL)
        raise DatasetError(f"{str(path)!r} is refused as a CIFAR python file: {reason}") from None


def as_text(value: Any) -> str:
    """A string of Python 2 or 3 as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
