"""``model.safetensors``: named arrays in and out, each of a known type and shape, all values finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from hcep.errors import near_matches, quoted
from hcep.models.schema import TENSORS, ModelError

_DTYPES: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


@dataclass(frozen=True)
class TensorSpec:
    """What an array of the file must be; None in a shape is any length."""

    dtypes: tuple[str, ...]
    shape: tuple[int | None, ...]


def dump_tensors(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a safetensors file."""
    return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def parse_tensors(data: bytes, specs: Mapping[str, TensorSpec], names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read arrays from the bytes of a safetensors file that must hold those in `specs`, and nothing else.

    Raises ModelError: bytes of another format, an array that is missing, unknown, of a wrong type or shape, or not
    finite.
    """
    deserialize: Any = safetensors.deserialize  # it has no types
    try:
        found = dict(deserialize(data))
    except safetensors.SafetensorError as error:
        raise ModelError(f"{TENSORS}: not a readable safetensors file ({error}); copy or download it again") from None
    unknown = [name for name in found if name not in specs]
    if unknown:
        raise ModelError(f"{TENSORS}: unknown array {unknown[0]!r}.{near_matches(unknown[0], specs)}")
    missing = [name for name in specs if name not in found]
    if missing:
        raise ModelError(f"{TENSORS}: array {quoted(missing)} is missing, which model.json speaks of")
    return {name: _array(name, found[name], specs[name]) for name in names if name in specs}


def _array(name: str, tensor: Mapping[str, Any], spec: TensorSpec) -> NDArray[Any]:
    dtype, shape = tensor["dtype"], tuple(tensor["shape"])
    if dtype not in spec.dtypes:
        raise ModelError(f"{TENSORS}: array {name!r} must be of type {' or '.join(spec.dtypes)}, got {dtype}")
    if len(shape) != len(spec.shape) or any(n not in (None, m) for n, m in zip(spec.shape, shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in spec.shape)
        raise ModelError(f"{TENSORS}: array {name!r} must have shape ({wanted}), got {shape}")
    # A copy of its own: aligned, writable, and free of the file's other arrays.
    array: NDArray[Any] = np.frombuffer(tensor["data"], dtype=_DTYPES[dtype]).reshape(shape).copy()
    _refuse_values(name, array)
    return array


def _refuse_values(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ModelError(f"{TENSORS}: array {name!r} must hold only 0 and 1")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ModelError(f"{TENSORS}: array {name!r} has NaN or infinite values, the first at {where}")
