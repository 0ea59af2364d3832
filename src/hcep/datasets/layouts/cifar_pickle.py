"""CIFAR's python form, read by an unpickler that builds nothing but what those files contain."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.datasets.layouts.listing import DatasetError


class _PickledType:
    """Stands for numpy.dtype: remembers its code."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = _text(code)

    def __setstate__(self, state: Any) -> None:
        """Byte order, fields and the like: bytes have none."""


class _PickledArray:
    """Stands for numpy.ndarray and for the function that makes an empty one to set the state on.

    It takes shape, type and bytes, and nothing else: no constructor of NumPy is within the file's reach, so neither
    are their memory and their bugs.
    """

    array: NDArray[np.uint8]

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        code = kind.code if isinstance(kind, _PickledType) else type(kind).__name__
        if code != "u1":
            raise pickle.UnpicklingError(f"it holds an array of {code!r}, and CIFAR's are of bytes, 'u1'")
        self.array = np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if is_fortran else "C")


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and CIFAR's files hold only dicts, lists, bytes and arrays"
            ) from None


def load_pickle(path: Path) -> dict[str, Any]:
    """The dict of a CIFAR python file, its keys as text.

    Raises
    ------
    DatasetError
        The file is no pickle, or holds something that CIFAR's files do not; nothing of it has been executed.
    """
    packed = BytesIO(path.read_bytes())
    try:
        content = _CifarUnpickler(packed, encoding="bytes").load()
        return {_text(k): v.array if isinstance(v, _PickledArray) else v for k, v in content.items()}
    except Exception as error:  # a damaged pickle can raise anything
        raise DatasetError(f"{str(path)!r} is refused as a CIFAR python file: {error}") from None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
