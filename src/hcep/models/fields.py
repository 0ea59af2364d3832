"""Reading a JSON object field by field, each of the right type or an error that names it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NoReturn

from hcep.errors import HCEPError, near_matches, quoted


class ModelError(HCEPError):
    """A saved model is damaged, of another version, or not a model; the message names the file and the field."""


class Fields:
    """One object of a JSON file, whose keys must be exactly those expected.

    Parameters
    ----------
    file : str
        Name of the file, for messages.
    path : str
        Where in the file the object stands, such as ``"parameters"``; '' at the top.
    value : object
        What the file holds there.
    keys : iterable of str

    Raises
    ------
    ModelError
        When `value` is no object, has a key that is not expected (the nearest is named) or lacks one.
    """

    def __init__(self, file: str, path: str, value: object, keys: Iterable[str]) -> None:
        self.file = file
        self.path = path
        expected = list(keys)
        if not isinstance(value, dict):
            raise ModelError(f"{file}: {path or 'the file'} must be a JSON object, got {_shown(value)}")
        unknown = [key for key in value if key not in expected]
        if unknown:
            raise ModelError(f"{file}: unknown field {self._at(unknown[0])!r}.{near_matches(unknown[0], expected)}")
        missing = [key for key in expected if key not in value]
        if missing:
            raise ModelError(f"{file}: field {quoted(self._at(key) for key in missing)} is missing")
        self.values: dict[str, Any] = value

    def fail(self, key: str, expected: str) -> NoReturn:
        """Say what field `key` should be and what it is."""
        raise ModelError(f"{self.file}: {self._at(key)} must be {expected}, got {_shown(self.values[key])}")

    def text(self, key: str) -> str:
        value = self.values[key]
        return value if isinstance(value, str) else self.fail(key, "a string")

    def boolean(self, key: str) -> bool:
        value = self.values[key]
        return value if isinstance(value, bool) else self.fail(key, "true or false")

    def integer(self, key: str, low: int = 0) -> int:
        value = self.values[key]
        valid = isinstance(value, int) and not isinstance(value, bool) and value >= low
        return int(value) if valid else self.fail(key, f"an integer of at least {low}")

    def number(self, key: str, low: float = 0.0, high: float = math.inf, *, above: bool = False) -> float:
        """A finite number between the bounds; `above` leaves `low` itself out. An integer stays one."""
        value: Any = self.values[key]
        valid = isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
        if valid and low <= value <= high and not (above and value == low):
            number: float = value
            return number
        return self.fail(key, _range(low, high, above))

    def choice(self, key: str, choices: tuple[str | None, ...]) -> Any:
        value = self.values[key]
        is_choice = value is None or isinstance(value, str)
        return value if is_choice and value in choices else self.fail(key, f"one of {quoted(choices)}")

    def texts(self, key: str) -> list[str]:
        value = self.values[key]
        valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return list(value) if valid else self.fail(key, "a list of strings")

    def inner(self, key: str, keys: Iterable[str]) -> Fields:
        """The object in field `key`, which must have exactly these keys."""
        return Fields(self.file, self._at(key), self.values[key], keys)

    def mapping(self, key: str) -> Fields:
        """The object in field `key`, whatever its keys."""
        value = self.values[key]
        return self.inner(key, value if isinstance(value, dict) else ())

    def is_null(self, key: str) -> bool:
        return self.values[key] is None

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _range(low: float, high: float, above: bool) -> str:
    if low == -math.inf:
        return "a finite number"
    start = f"above {low:g}" if above else f"of at least {low:g}"
    return f"a finite number {start}" + (f" and at most {high:g}" if high < math.inf else "")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
