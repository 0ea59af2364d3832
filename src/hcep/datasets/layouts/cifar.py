"""CIFAR-10 and CIFAR-100, in the published Python and binary versions."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep._files import read_lines
from hcep.datasets.image_dataset import DatasetError, ImageDataset, choose_splits
from hcep.datasets.layouts.listing import OWN_LABEL, LayoutOptions, column_error
from hcep.embeddings.pickles import PickleError, Stateful, read_pickle
from hcep.errors import quote, quoted

SIDE, CHANNELS = 32, 3
N_BYTES = CHANNELS * SIDE * SIDE


class _Form(NamedTuple):
    """One of the four published versions.

    `names` has, for each kind of label, the file with the names of the classes, and for the Python version its key. The
    kinds are in the order of the first bytes of a binary record; the last one is the default.
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
LOOKS_FOR = "data_batch_1 to 5 and test_batch with batches.meta, or train, test with meta (python, or .bin with .txt)"


def detect(source: Path) -> bool:
    """Whether there are the names of classes and at least one file of a version."""
    return _form(source) is not None


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """Read the images into memory; ids are the files that `export` writes, the same for both versions."""
    form = _form(source)
    if form is None:
        raise DatasetError(f"{str(source)!r} is not CIFAR: looked for {LOOKS_FOR}")
    kind = options.label_column if options.label_column not in (OWN_LABEL, None) else list(form.names)[-1]
    if kind not in form.names:
        raise column_error("label_column", str(kind), form.names, source)
    names = _class_names(form, str(kind), source)
    files, labels, splits, pixels = list[str](), list[str](), list[str](), list[NDArray[np.uint8]]()
    for split in choose_splits(form.files, options.split, source):
        missing = [file for file in form.files[split] if not (source / file).is_file()]
        if missing:
            raise DatasetError(f"{form.title}: {quoted(missing)} of split {quote(split)} not in {str(source)!r}")
        for file in form.files[split]:
            flat, numbers = _read_file(form, source / file, str(kind))
            wrong = [n for n in numbers if not 0 <= n < len(names)]
            if wrong:
                raise DatasetError(
                    f"{str(source)!r} has the class number {wrong[0]}, but only {len(names)} class names"
                )
            start = splits.count(split)
            labels += [names[n] for n in numbers]
            files += [f"{split}/{names[n]}/{start + i:05d}.png" for i, n in enumerate(numbers)]
            splits += [split] * len(numbers)
            # Stored as red, then green, then blue, row by row.
            pixels.append(np.ascontiguousarray(flat.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)))
    return ImageDataset(source, files, files, labels, splits, pixels=np.concatenate(pixels))


def _form(source: Path) -> _Form | None:
    for form in FORMS:
        names = {file for file, _ in form.names.values()}
        data = [file for files in form.files.values() for file in files]
        if all((source / f).is_file() for f in names) and any((source / f).is_file() for f in data):
            return form
    return None


def _class_names(form: _Form, kind: str, source: Path) -> list[str]:
    file, key = form.names[kind]
    place = source / file
    entries = read_lines(place, DatasetError) if form.is_binary else _get(load_pickle(place), key, place)
    names = [as_text(name) for name in entries]
    # The names become folders on export, and none may point outside.
    unsafe = [name for name in names if not name or name.startswith(".") or "/" in name or "\\" in name]
    if unsafe:
        raise DatasetError(f"{str(source / file)!r} has class names that cannot be folder names: {quoted(unsafe)}")
    return names


def _read_file(form: _Form, file: Path, kind: str) -> tuple[NDArray[np.uint8], list[int]]:
    """Images, 3,072 bytes each, and their class numbers; in the binary version a byte for each label comes first."""
    if form.is_binary:
        content, size = np.fromfile(file, dtype=np.uint8), len(form.names) + N_BYTES
        if len(content) == 0 or len(content) % size:
            raise DatasetError(f"{str(file)!r} has {len(content):,} bytes, not a multiple of the {size:,} of a record")
        records = content.reshape(-1, size)
        return records[:, len(form.names) :], records[:, list(form.names).index(kind)].tolist()
    entries = load_pickle(file)
    data, numbers = (_get(entries, key, file) for key in ("data", kind))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != N_BYTES:
        raise DatasetError(f"{str(file)!r}: 'data' must be bytes of shape (n, {N_BYTES})")
    if not isinstance(numbers, list) or len(numbers) != len(data) or not all(isinstance(n, int) for n in numbers):
        raise DatasetError(f"{str(file)!r}: {quote(kind)} must be {len(data):,} whole numbers, one for each image")
    return data, numbers


def _get(content: Mapping[str, Any], key: str, file: Path) -> Any:
    if key not in content:
        raise DatasetError(f"{str(file)!r} has no entry {quote(key)}, only {quoted(content)}")
    return content[key]


class _Dtype(Stateful):
    """Stands in for numpy.dtype and keeps its code; bytes have no byte order."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = as_text(code)


class _Array(Stateful):
    """Stands in for numpy.ndarray, and for the function that creates an empty one."""

    array: NDArray[np.uint8]

    def __init__(self, *_: Any) -> None: ...

    def set_state(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        code = kind.code if isinstance(kind, _Dtype) else type(kind).__name__
        if code != "u1":
            raise PickleError(f"it holds an array of {quote(code)}, and CIFAR's are of bytes, 'u1'")
        self.array = np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if is_fortran else "C")


#: Replaces the general end of the message about a refused name.
_REFUSAL = (
    "which is not allowed; nothing was executed",
    "and CIFAR's files hold only dicts, lists, bytes and arrays; nothing was executed",
)
ADMITTED = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
}


def load_pickle(path: Path) -> dict[str, Any]:
    """The dict in a CIFAR Python file, with its keys as text."""
    try:
        content = read_pickle(BytesIO(path.read_bytes()), ADMITTED)
        return {as_text(key): value.array if isinstance(value, _Array) else value for key, value in content.items()}
    except (PickleError, AttributeError) as error:
        reason = str(error).replace("the pickle", "it", 1).replace(*_REFUSAL)
        raise DatasetError(f"{str(path)!r} is refused as a CIFAR python file: {reason}") from None


def as_text(value: Any) -> str:
    """A string of Python 2 or 3 as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
