"""What ``torch.save`` wrote, in the old and the new format, as arrays: without torch, and nothing in it is executed."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hcep._pickles import PickleError, read_pickle
from hcep.errors import HCEPError

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_BFLOAT16 = "bfloat16"
_STORAGES = {
    "Float": "<f4", "Double": "<f8", "Half": "<f2", "BFloat16": _BFLOAT16, "Long": "<i8", "Int": "<i4", "Short": "<i2",
    "Char": "|i1", "Byte": "|u1", "Bool": "|b1"
}  # fmt: skip
#: Containers within containers at most.
_DEPTH = 32


class TorchFileError(HCEPError):
    """A file is none of torch's, is damaged, or holds more than tensors and plain values."""


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    n_items: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch_file(path: str | os.PathLike[str]) -> Any:
    """What ``torch.save`` wrote, as arrays: a tensor, or dicts, lists and tuples of tensors and plain values."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            content, load = _zipped(file) if zipfile.is_zipfile(file) else _legacy(file)
            return _Filler(load).fill(content)
    except (PickleError, zipfile.BadZipFile, KeyError, OSError, EOFError) as error:
        raise TorchFileError(f"{str(source)!r} is refused as a file of torch: {_reason(error)}") from None
    except TorchFileError as error:
        raise TorchFileError(f"{str(source)!r} is refused as a file of torch: {error}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing in it"
    return getattr(error, "strerror", None) or str(error)


Load = Callable[[_Storage], bytes]


def _legacy(file: BinaryIO) -> tuple[Any, Load]:
    """The format before version 1.6: five pickles, then each storage's length and bytes."""
    file.seek(0)
    magic = read_pickle(file, {})
    if magic != _MAGIC or read_pickle(file, {}) != _PROTOCOL:
        raise TorchFileError("it does not start as one")
    system = read_pickle(file, {})
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise TorchFileError("it was not written on a little-endian machine")
    storages: dict[str, _Storage] = {}
    content = read_pickle(file, _ADMITTED, lambda key: _storage(key, storages))
    keys = read_pickle(file, {})
    if not isinstance(keys, list) or set(map(str, keys)) != set(storages):
        raise TorchFileError("its list of storages does not fit its tensors")
    held: dict[str, bytes] = {}
    for key in map(str, keys):
        storage = storages[key]
        n_items = int.from_bytes(_exactly(file, 8), "little", signed=True)
        if n_items != storage.n_items:
            raise TorchFileError(f"storage {key} has {n_items:,} items where its tensors say {storage.n_items:,}")
        held[key] = _exactly(file, n_items * _item_size(storage.dtype))
    if file.read(1):
        raise TorchFileError("something follows its last storage")
    return content, lambda storage: held[storage.key]


def _zipped(file: BinaryIO) -> tuple[Any, Load]:
    """The format since version 1.6: an archive with a pickle and a file per storage, not compressed."""
    archive = zipfile.ZipFile(file)
    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise TorchFileError("it is an archive without exactly one data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist() and _member(archive, f"{folder}byteorder") != b"little":
        raise TorchFileError("it was not written on a little-endian machine")
    content = read_pickle(io.BytesIO(_member(archive, pickles[0])), _ADMITTED, lambda key: _storage(key, {}))
    return content, lambda storage: _member(archive, f"{folder}data/{storage.key}")


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member as it lies in the archive: torch compresses none, so that none can unpack to more than the file."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise TorchFileError(f"{name} is compressed, which torch never does")
    return archive.read(name)


def _storage(key: Any, seen: dict[str, _Storage]) -> _Storage:
    if not (isinstance(key, tuple) and len(key) in (5, 6) and key[0] == "storage" and isinstance(key[1], str)):
        raise TorchFileError("it refers to something that is no storage of a tensor")
    if len(key) == 6 and key[5] is not None:
        raise TorchFileError("it has views of storages, as only very old versions wrote")
    if not isinstance(key[4], int) or isinstance(key[4], bool) or key[4] < 0:
        raise TorchFileError(f"a storage has a length of {key[4]!r}")
    storage = _Storage(str(key[2]), key[1], key[4])
    if seen.setdefault(storage.key, storage) != storage:
        raise TorchFileError(f"storage {storage.key} is described in two ways")
    return storage


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or len(shape) != len(strides) or len(shape) > 16:
        raise TorchFileError("a tensor is not described as torch does")
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in numbers):
        raise TorchFileError("a tensor's offset, shape or strides are not counts")
    tensor = _Tensor(storage, offset, tuple(shape), tuple(strides))
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if math.prod(shape) > storage.n_items or (math.prod(shape) and last >= storage.n_items):
        raise TorchFileError(f"a tensor of shape {tensor.shape} reaches beyond its {storage.n_items:,} items")
    return tensor


_ADMITTED: dict[str, Any] = {
    "collections.OrderedDict": lambda *pairs: dict(*pairs),
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    **{f"torch.{name}Storage": dtype for name, dtype in _STORAGES.items()},
}


class _Filler:
    """Puts arrays in the place of tensors; what occurs a thousand times is made once."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.storages: dict[str, NDArray[Any]] = {}
        self.done: dict[int, Any] = {}

    def fill(self, content: Any, depth: int = _DEPTH) -> Any:
        if depth == 0:
            raise TorchFileError(f"it nests containers more than {_DEPTH} deep")
        if content is None or isinstance(content, bool | int | float | str):
            return content
        if id(content) not in self.done:
            self.done[id(content)] = self._made(content, depth - 1)
        return self.done[id(content)]

    def _made(self, content: Any, depth: int) -> Any:
        if isinstance(content, _Tensor):
            return self._array(content)
        if isinstance(content, dict):
            return {key: self.fill(value, depth) for key, value in content.items()}
        if isinstance(content, list | tuple):
            return type(content)(self.fill(value, depth) for value in content)
        raise TorchFileError(f"it holds a {type(content).__name__}, and only tensors and plain values are read")

    def _array(self, tensor: _Tensor) -> NDArray[Any]:
        storage = tensor.storage
        if storage.key not in self.storages:
            self.storages[storage.key] = _array(self.load(storage), storage)
        items = self.storages[storage.key]
        strides = tuple(step * items.itemsize for step in tensor.strides)
        return np.lib.stride_tricks.as_strided(items[tensor.offset :], tensor.shape, strides, writeable=False).copy()


def _array(data: bytes, storage: _Storage) -> NDArray[Any]:
    if len(data) != storage.n_items * _item_size(storage.dtype):
        raise TorchFileError(f"storage {storage.key} has {len(data):,} bytes, not those of {storage.n_items:,} items")
    if storage.dtype != _BFLOAT16:
        return np.frombuffer(data, dtype=storage.dtype)
    return (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


def _item_size(dtype: str) -> int:
    return 2 if dtype == _BFLOAT16 else np.dtype(dtype).itemsize


def _exactly(file: BinaryIO, n_bytes: int) -> bytes:
    left = os.fstat(file.fileno()).st_size - file.tell()
    if n_bytes > left:
        raise TorchFileError(f"it is truncated: {n_bytes:,} bytes are due where {left:,} are left")
    return file.read(n_bytes)
