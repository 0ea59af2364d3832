"""Class labels in JSON: text or numbers, and the type that makes them the same array again."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from hcep._json import shown

#: Widest string type that is kept as it came where the labels themselves are shorter.
MAX_WIDTH = 1024


def class_record(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON, with the type that makes them the same array again."""
    labels, name = classes.tolist(), classes.dtype.name
    if classes.dtype.kind == "U":
        name = f"U{max(*map(len, labels), min(classes.dtype.itemsize // 4, MAX_WIDTH), 1)}"
    return {"dtype": name, "labels": labels}


class ClassRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Labels and the name of their numpy type: sorted, each once."""

    dtype: Annotated[
        str,
        Meta(
            pattern=r"^(U[1-9][0-9]{0,8}|object|u?int(8|16|32|64)|float(32|64)|bool)$",
            description="'object' or 'U' and a width for strings, or an integer, float or boolean type of numpy",
        ),
    ]
    labels: Annotated[list[Any], Meta(min_length=1, description="a list of at least one label")]

    def array(self) -> NDArray[Any]:
        """The labels as they were."""
        return np.array(self.labels, dtype=self.dtype)

    def __post_init__(self) -> None:
        kind = self._label_type()
        if not all(type(label) is kind for label in self.labels):
            self._refuse("labels", f"a list of values of type {kind.__name__}")
        if self.dtype.startswith("U") and int(self.dtype[1:]) > max(MAX_WIDTH, *map(len, self.labels)):
            self._refuse("dtype", f"a string type of at most {MAX_WIDTH} characters, or as long as the longest label")
        try:
            array = self.array()
        except OverflowError:
            array = np.empty(0)
        # Text too long for its type is cut off, a float may be rounded or NaN: then these are not the labels.
        if array.tolist() != self.labels:
            self._refuse("labels", f"values that fit {self.dtype}")
        if not np.array_equal(np.unique(array), array):
            self._refuse("labels", "sorted, each label once")

    def _label_type(self) -> type:
        if self.dtype == "object":
            return int if type(self.labels[0]) is int else str
        kinds = {"U": str, "float": float, "bool": bool}
        return next((kind for start, kind in kinds.items() if self.dtype.startswith(start)), int)

    def _refuse(self, field: str, expected: str) -> None:
        raise ValueError(f"{field} must be {expected}, got {shown(getattr(self, field))}")
