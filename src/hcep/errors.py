"""The errors of the package, and words for their messages."""

from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np


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


def quoted(ids: Iterable[object], limit: int = 5) -> str:
    """List ids for a message: the first `limit` in quotes, and the number of the others."""
    everything = list(ids)
    more = len(everything) - limit
    # The repr of NumPy's scalars would be np.str_('cat') and np.int64(3).
    first = [repr(i.item() if isinstance(i, np.generic) else i) for i in everything[:limit]]
    return ", ".join(first) + (f" and {more:,} more" if more > 0 else "")


def near_matches(unknown: object, known: Iterable[str]) -> str:
    """The known names closest to an unknown one, as the end of a message; empty if none is close."""
    close = get_close_matches(str(unknown), list(known), n=3, cutoff=0.6)
    return f" Near matches: {quoted(close)}." if close else ""


def counted(n: int, what: str) -> str:
    """A number with its noun in the right form, as in "1 class" and "2 classes"."""
    plural = "leaves" if what == "leaf" else f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{n:,} {what if n == 1 else plural}"
