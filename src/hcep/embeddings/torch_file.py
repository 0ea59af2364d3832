"""Read files of ``torch.save``, in the old and the new format, as arrays: without torch, and without executing code."""

import io
import math
import os
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.pickles import PickleError, read_pickle
from hcep.errors import quote

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_BFLOAT16 = "bfloat16"
_STORAGES = {
    "Float": "<f4", "Double": "<f8", "Half": "<f2", "BFloat16": _BFLOAT16, "Long": "<i8", "Int": "<i4", "Short": "<i2",
    "Char": "|i1", "Byte": "|u1", "Bool": "|b1"
}  # fmt: skip
_TENSOR = "torch._utils._rebuild_tensor_v2"
_ADMITTED: dict[str, Any] = {
    "collections.OrderedDict": lambda *pairs: dict(*pairs),
    "torch.Size": tuple,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    **{f"torch.{name}Storage": dtype for name, dtype in _STORAGES.items()},
}
#: Most containers within containers.
_DEPTH = 32


class _Storage(NamedTuple):
    key: str
    dtype: str
    n_items: int

    @property
    def item_size(self) -> int:
        return 2 if self.dtype == _BFLOAT16 else np.dtype(self.dtype).itemsize


def read_torch_file(path: str | os.PathLike[str]) -> Any:
    """The content of a file of ``torch.save``: a tensor, or dicts, lists and tuples of tensors and plain values."""
    try:
        with Path(path).open("rb") as file:
            content = _zipped(file) if zipfile.is_zipfile(file) else _legacy(file)
        _refuse_others(content, _DEPTH, set())
    except (PickleError, zipfile.BadZipFile, KeyError, OSError, EOFError) as error:
        reason = f"{quote(error.args[0])} is missing in it" if isinstance(error, KeyError) else str(error)
        reason = getattr(error, "strerror", None) or reason
        raise PickleError(f"{os.fspath(path)!r} is refused as a torch file: {reason}") from None
    return content


def _legacy(file: BinaryIO) -> Any:
    """The format before version 1.6: five pickles, then the length and the bytes of each storage."""
    file.seek(0)
    if read_pickle(file, {}) != _MAGIC or read_pickle(file, {}) != _PROTOCOL:
        raise PickleError("it does not start like a file of torch")
    system = read_pickle(file, {})
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise PickleError("it was not written on a little-endian machine")
    start, storages = file.tell(), dict[str, _Storage]()
    read_pickle(file, _ADMITTED | {_TENSOR: lambda *_: None}, lambda key: _storage(key, storages))
    keys = read_pickle(file, {})
    if not isinstance(keys, list) or set(map(str, keys)) != set(storages):
        raise PickleError("its list of storages does not match its tensors")
    held: dict[str, bytes] = {}
    for storage in (storages[str(key)] for key in keys):
        n_items = int.from_bytes(_exactly(file, 8), "little", signed=True)
        if n_items != storage.n_items:
            raise PickleError(f"storage {storage.key} has {n_items:,} items where its tensors say {storage.n_items:,}")
        held[storage.key] = _exactly(file, n_items * storage.item_size)
    if file.read(1):
        raise PickleError("something follows its last storage")
    file.seek(start)
    return _content(file, held.__getitem__)


def _zipped(file: BinaryIO) -> Any:
    """The format since version 1.6: an uncompressed archive with a pickle and one file per storage."""
    archive = zipfile.ZipFile(file)

    def member(name: str) -> bytes:
        # Torch never compresses, so that nothing can unpack to more than the file's size.
        if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            raise PickleError(f"{name} is compressed, which torch never does")
        return archive.read(name)

    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise PickleError("the archive must contain exactly one data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist() and member(f"{folder}byteorder") != b"little":
        raise PickleError("it was not written on a little-endian machine")
    return _content(io.BytesIO(member(pickles[0])), lambda key: member(f"{folder}data/{key}"))


def _content(stream: BinaryIO, load: Callable[[str], bytes]) -> Any:
    """The content of a pickle; `load` returns the bytes of a storage by its key."""

    @cache
    def items(storage: _Storage) -> NDArray[Any]:
        data = load(storage.key)
        if len(data) != storage.n_items * storage.item_size:
            raise PickleError(
                f"storage {storage.key} has {len(data):,} bytes, not the size of {storage.n_items:,} items"
            )
        if storage.dtype != _BFLOAT16:
            return np.frombuffer(data, dtype=storage.dtype)
        return (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)

    def tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> NDArray[Any]:
        if not isinstance(storage, _Storage) or len(shape) != len(strides) or len(shape) > 16:
            raise PickleError("a tensor is not described in torch's way")
        if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in (offset, *shape, *strides)):
            raise PickleError("a tensor's offset, shape or strides are not counts")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if math.prod(shape) > storage.n_items or (math.prod(shape) and last >= storage.n_items):
            raise PickleError(f"a tensor of shape {tuple(shape)} reaches beyond its {storage.n_items:,} items")
        values = items(storage)
        steps = tuple(step * values.itemsize for step in strides)
        return np.lib.stride_tricks.as_strided(values[offset:], tuple(shape), steps, writeable=False).copy()

    return read_pickle(stream, _ADMITTED | {_TENSOR: tensor}, lambda key: _storage(key, {}))


def _storage(key: Any, seen: dict[str, _Storage]) -> _Storage:
    if not (isinstance(key, tuple) and len(key) in (5, 6) and key[0] == "storage" and isinstance(key[1], str)):
        raise PickleError("it refers to something that is not the storage of a tensor")
    if len(key) == 6 and key[5] is not None:
        raise PickleError("it has views of storages, which only very old versions wrote")
    if not isinstance(key[4], int) or isinstance(key[4], bool) or key[4] < 0:
        raise PickleError(f"a storage has a length of {quote(key[4])}")
    storage = _Storage(str(key[2]), key[1], key[4])
    if seen.setdefault(storage.key, storage) != storage:
        raise PickleError(f"storage {storage.key} is described in two ways")
    return storage


def _refuse_others(content: Any, depth: int, seen: set[tuple[int, int]]) -> None:
    """Refuse everything except tensors and plain values; a container that occurs many times is checked once."""
    if depth == 0:
        raise PickleError(f"its containers are nested more than {_DEPTH} deep")
    if isinstance(content, dict | list | tuple) and not isinstance(content, _Storage):
        if (id(content), depth) not in seen:
            seen.add((id(content), depth))
            for value in content.values() if isinstance(content, dict) else content:
                _refuse_others(value, depth - 1, seen)
    elif content is not None and not isinstance(content, bool | int | float | str | np.ndarray):
        raise PickleError(f"it holds a {type(content).__name__}, and only tensors and plain values are read")


def _exactly(file: BinaryIO, n_bytes: int) -> bytes:
    left = os.fstat(file.fileno()).st_size - file.tell()
    if n_bytes > left:
        raise PickleError(f"it is truncated: {n_bytes:,} bytes are expected, {left:,} are left")
    return file.read(n_bytes)
