"""Class labels in JSON: text or numbers, and the type that makes them the same array again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.models.fields import Fields

#: Widest string type that is kept as it came where the labels themselves are shorter.
MAX_WIDTH = 1024
_DTYPE = re.compile(r"U[1-9]\d{0,8}|object|u?int(8|16|32|64)|float(32|64)|bool")


def class_record(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON, with the type that makes them the same array again."""
    labels = classes.tolist()
    name = classes.dtype.name
    if classes.dtype.kind == "U":
        longest = max(map(len, labels))
        name = f"U{max(longest, min(classes.dtype.itemsize // 4, MAX_WIDTH), 1)}"
    return {"dtype": name, "labels": labels}


def read_classes(fields: Fields) -> NDArray[Any]:
    """The array of labels in field ``classes``: sorted, each once, of the type that is named there."""
    inner = fields.inner("classes", ("dtype", "labels"))
    name, labels = inner.text("dtype"), inner.values["labels"]
    if not _DTYPE.fullmatch(name):
        inner.fail("dtype", "'object' or 'U' and a width for strings, or an integer, float or boolean type of numpy")
    if not isinstance(labels, list) or not labels:
        inner.fail("labels", "a list of at least one label")
    kind = _label_type(name, labels)
    if not all(type(label) is kind for label in labels):
        inner.fail("labels", f"a list of values of type {kind.__name__}")
    if name.startswith("U") and int(name[1:]) > max(MAX_WIDTH, *map(len, labels)):
        inner.fail("dtype", f"a string type of at most {MAX_WIDTH} characters, or the length of the longest label")
    return _label_array(inner, name, labels)


def _label_type(name: str, labels: list[Any]) -> type:
    if name == "object":
        return int if type(labels[0]) is int else str
    if name.startswith("float"):
        return float
    if name == "bool":
        return bool
    return str if name.startswith("U") else int


def _label_array(fields: Fields, name: str, labels: list[Any]) -> NDArray[Any]:
    try:
        array = np.array(labels, dtype=name)
    except OverflowError:
        fields.fail("labels", f"values that fit {name}")
    # Text too long for its type is cut off, a float may be rounded or NaN: then these are not the labels.
    if array.tolist() != labels:
        fields.fail("labels", f"values that fit {name}")
    if not np.array_equal(np.unique(array), array):
        fields.fail("labels", "sorted, each label once")
    return array
