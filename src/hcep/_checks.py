"""Options of functions and estimators: what each may be, and the sentence that says what came instead."""

from typing import Any

import numpy as np

from hcep.errors import HCEPError


def is_number(value: object) -> bool:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def require_positive(name: str, value: object, none_means: str | None = None) -> None:
    """Refuse a count that is not a positive integer, or None where that means something."""
    if value is None and none_means:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        alternative = f", or None for {none_means}" if none_means else ""
        raise HCEPError(f"{name} must be a positive integer{alternative}; got {value!r}")


def require_not_negative(name: str, value: Any, least: float = 0) -> float:
    """Refuse a tolerance or weight that is not a finite number of at least `least`."""
    if is_number(value) and least <= float(value) < float("inf"):
        return float(value)
    raise HCEPError(f"{name} must be a finite number of at least {least:g}, got {value!r}")


def require_share(name: str, value: Any) -> float:
    """Refuse what is no number from 0 to 1."""
    if is_number(value) and 0.0 <= float(value) <= 1.0:
        return float(value)
    raise HCEPError(f"{name} must be a number from 0 to 1, got {value!r}")
