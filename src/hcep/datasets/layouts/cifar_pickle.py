"""CIFAR's python form: pickles of bytes, lists and arrays, of which nothing is executed."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep._pickles import PickleError, Stateful, read_pickle
from hcep.datasets.layouts.listing import DatasetError


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
        reason = str(error).replace("the pickle", "it", 1)
        reason = reason.replace(*_REFUSAL)
        raise DatasetError(f"{str(path)!r} is refused as a CIFAR python file: {reason}") from None


def as_text(value: Any) -> str:
    """A string of Python 2 or 3 as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
