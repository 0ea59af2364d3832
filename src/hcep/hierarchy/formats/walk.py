"""A hierarchy in the order of an outline, for the formats that write branches inside branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hcep.errors import HierarchyError

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

MAX_INDENTED = 5_000


def outline_order(hierarchy: Hierarchy) -> Iterator[tuple[int, str, str | None, bool]]:
    """Yield (depth, synset, parent, met before) from the root down; what is below a synset comes only once."""
    seen: set[str] = set()
    waiting: list[tuple[int, str, str | None]] = [(0, hierarchy.root, None)]
    while waiting:
        depth, synset, parent = waiting.pop()
        again = synset in seen
        yield depth, synset, parent, again
        if not again:
            seen.add(synset)
            waiting += [(depth + 1, child, synset) for child in reversed(hierarchy.children(synset))]


def refuse_deep(hierarchy: Hierarchy, format: str) -> None:
    """Indentation grows with the square of the depth: refuse what would fill a disk."""
    if hierarchy.depth > MAX_INDENTED:
        raise HierarchyError(
            f"{format} cannot hold {hierarchy.depth:,} levels, more than {MAX_INDENTED:,}; write .csv or .json"
        )


def order_survives(hierarchy: Hierarchy) -> bool:
    """Whether synsets numbered as `outline_order` meets them, level by level, get the index they have now."""
    met: list[str] = []
    parents: dict[str, list[str]] = {}
    for _, synset, parent, again in outline_order(hierarchy):
        met += [] if again else [synset]
        parents.setdefault(synset, []).extend([] if parent is None else [parent])
    by_level = tuple(sorted(met, key=hierarchy.level))
    return by_level == hierarchy.ids and all(tuple(parents[s]) == hierarchy.parents(s) for s in met)


def labels(hierarchy: Hierarchy) -> dict[str, str]:
    """A label of its own for each synset: its name, with the id in brackets where several share it."""
    count = Counter(hierarchy.name(s) for s in hierarchy)
    taken = {name for name, n in count.items() if n == 1}
    found = {}
    for synset in hierarchy:
        label = hierarchy.name(synset)
        if count[label] > 1:
            label = f"{label} ({synset})" if synset != label else label
            while label in taken:
                label += "'"
            taken.add(label)
        found[synset] = label
    return found
