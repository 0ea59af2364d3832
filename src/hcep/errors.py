"""The errors of the package, and words for their messages."""

import csv
from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np

#: Most characters of a quotation in a message.
MAX_QUOTE = 80


class HCEPError(ValueError):
    """Base of every error that HCEP raises about its input."""


class HierarchyError(HCEPError):
    """A hierarchy is malformed, or does not contain a concept."""


class DictionaryError(HCEPError):
    """A concept dictionary cannot be built from the images, labels and hierarchy."""


class DatasetError(HCEPError):
    """Images, labels or splits are missing or contradict each other."""


class MissingExtraError(ImportError):
    """An optional dependency is needed; the message has the command that installs it."""


def quote(value: object) -> str:
    """A value from a file or a user for a message: its repr, cut to 80 characters."""
    # The repr of NumPy's scalars would be np.str_('cat') and np.int64(3).
    plain = value.item() if isinstance(value, np.generic) else value
    return cut(repr(plain))


def cut(text: str) -> str:
    """A text for a message, its middle left out if it is longer than 80 characters."""
    return text if len(text) <= MAX_QUOTE else f"{text[: MAX_QUOTE - 4]}...{text[-1]}"


def reason_of(error: Exception) -> str:
    """What another library says about a file: the first line, with every long word cut."""
    line = str(getattr(error, "strerror", None) or error).partition("\n")[0]
    return " ".join(map(cut, line.split(" ")))[:300] or type(error).__name__


def quoted(ids: Iterable[object], limit: int = 5) -> str:
    """List ids for a message: the first `limit` in quotes, each cut to 80 characters, and the number of the others."""
    everything = list(ids)
    more = len(everything) - limit
    return ", ".join(map(quote, everything[:limit])) + (f" and {more:,} more" if more > 0 else "")


def csv_problem(error: csv.Error) -> str:
    """What is wrong with a table; the csv module's limit of a cell in words about the file."""
    if "field limit" in str(error):
        return f"a cell has more than {csv.field_size_limit():,} characters; is a quotation mark not closed?"
    return f"is not a table: {error}"


def close_names(unknown: object, known: Iterable[str]) -> list[str]:
    """The known names that are spelled much like an unknown one, at most three, the closest first."""
    # The comparison takes the product of the lengths, so that only names of a usual length are compared.
    names = [name for name in known if len(name) <= MAX_QUOTE] if len(str(unknown)) <= MAX_QUOTE else []
    return get_close_matches(str(unknown), names, n=3, cutoff=0.6)


def near_matches(unknown: object, known: Iterable[str]) -> str:
    """The known names closest to an unknown one, as the end of a message; empty if none is close."""
    close = close_names(unknown, known)
    return f" Near matches: {quoted(close)}." if close else ""


def counted(n: int, what: str) -> str:
    """A number with its noun in the right form, as in "1 class" and "2 classes"."""
    plural = "leaves" if what == "leaf" else f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{n:,} {what if n == 1 else plural}"
