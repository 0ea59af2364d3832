"""The given classes, and how a label that somebody else wrote is compared with them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from os import PathLike
from pathlib import Path

from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.names import singular, tidy

EMPHASIS = "*_`~ \t"
QUOTES = "\"'“”‘’«»"
#: What may follow a name on its line: an explanation after a dash or colon, or in brackets.
TRAILING = re.compile(r"\s+[-–—]+\s+.*$|\s*[:;]\s.*$|\s*[(\[].*$|\s*(?:→|=>|->).*$")

EXPLANATION = re.compile(r"\s*:\s.*$|\s+[-–—]+\s+.*$")


class LeafNames:
    """Leaves in their order, found by what a label says."""

    def __init__(self, leaves: Iterable[str], root: str) -> None:
        given = [leaves] if isinstance(leaves, str) else list(leaves)
        if any(not isinstance(leaf, str) or not leaf.strip() for leaf in given) or isinstance(leaves, str):
            raise HierarchyError(f"leaves must be a list of class names, none of them empty; got {quoted(given, 3)}")
        if not isinstance(root, str) or not root.strip():
            raise HierarchyError(f"root must be a name, got {root!r}")
        self.leaves = tuple(str(leaf) for leaf in given)
        self.root = root
        self._exact = {tidy(leaf): leaf for leaf in self.leaves}
        if len(self._exact) < len(self.leaves):
            counts = Counter(map(tidy, self.leaves))
            repeated = [leaf for leaf, n in counts.items() if n > 1]
            raise HierarchyError(f"leaves has names twice: {quoted(repeated)}; give each class once")
        if len(self.leaves) < 2:
            raise HierarchyError(f"leaves must hold at least two classes to build a hierarchy above; got {given!r}")
        if tidy(root) in self._exact:
            raise HierarchyError(f"root {root!r} is also one of the leaves; name another root")
        alike: dict[str, list[str]] = {}
        for leaf in self.leaves:
            alike.setdefault(normal_form(leaf), []).append(leaf)
        self._alike = {key: found[0] for key, found in alike.items() if len(found) == 1}
        self.exact = cache(self._find_exact)
        self.alike = cache(self._find_alike)

    def _find_exact(self, label: str) -> str | None:
        """The leaf that a label spells exactly, emphasis, quotes or an explanation behind it aside."""
        return next((self._exact[text] for text in _readings(label) if text in self._exact), None)

    def _find_alike(self, label: str) -> str | None:
        """The one leaf that differs in case, spacing, punctuation or number alone."""
        forms = (normal_form(text) for text in _readings(label))
        return next((self._alike[form] for form in forms if form in self._alike), None)

    def near(self, label: str, among: Iterable[str]) -> str | None:
        """The closest of some leaves to a label, if any is close."""
        by_form = {normal_form(leaf): leaf for leaf in among}
        close = get_close_matches(normal_form(label), by_form, n=1, cutoff=0.75)
        return by_form[close[0]] if close else None


def read_names(path: str | PathLike[str]) -> list[str]:
    """Class names of a file: a JSON list of strings, or one per line, blank lines left out.

    Raises HierarchyError: a file that cannot be read or holds no names, or JSON that is no list of strings.
    """
    place, is_json = repr(str(path)), str(path).lower().endswith(".json")
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
        names = json.loads(content) if is_json else [line.strip() for line in content.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise HierarchyError(f"cannot read names from {place}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise HierarchyError(f"{place} must hold a JSON list of names")
    if not names:
        raise HierarchyError(f"{place} holds no names; expected {'a JSON list of them' if is_json else 'one per line'}")
    return names


def clean_label(label: str) -> str:
    """A label without emphasis, quotes and what JSON or an outline ends a line with, its spaces single."""
    return tidy(label).strip(EMPHASIS).rstrip(":,{[" + EMPHASIS).strip(EMPHASIS + QUOTES + ":")


def group_label(label: str) -> str:
    """The name of a group, an explanation after a colon or dash left out."""
    return clean_label(EXPLANATION.sub("", tidy(label))) or clean_label(label)


def normal_form(label: str) -> str:
    """A label without case, punctuation and plural, to compare."""
    words = re.sub(r"[\W_]+", " ", label.casefold()).split()
    return " ".join([*words[:-1], singular(words[-1])]) if words else ""


def _readings(label: str) -> Iterator[str]:
    """What a label may mean, literally first."""
    yield tidy(label)
    with suppress(ValueError, RecursionError):
        yield tidy(str(json.loads(label.strip(" ,"))))
    cleaned = clean_label(label)
    yield cleaned
    with suppress(ValueError):
        yield tidy(str(json.loads(f'"{cleaned}"')))
    yield clean_label(TRAILING.sub("", tidy(label)))
