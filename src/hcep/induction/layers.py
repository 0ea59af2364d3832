"""Layer by layer: which group each leaf is in so far, and which groups are still to be divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hcep.induction.induced import Fault
from hcep.induction.leaf_names import LeafNames
from hcep.induction.placement import Path, Placement, missing_fault
from hcep.induction.prompts import layer_prompt

#: A group of fewer leaves is not divided further.
SMALLEST_DIVIDED = 3


class Layers:
    """The taxonomy while it grows downwards: `paths` has the groups above each leaf that has a place."""

    def __init__(self, names: LeafNames) -> None:
        self.names = names
        self.paths: dict[str, Path] = {}
        self._open: set[Path] = {()}

    @property
    def finished(self) -> bool:
        """Whether every leaf has a place and no group is left to divide."""
        return not self._groups()

    def prompt(self, problems: Sequence[Fault]) -> str:
        """The question for the next layer, with what was wrong with the last answer."""
        asked = self._groups()
        groups = {" > ".join(path) or self.names.root: leaves for path, leaves in asked.items()}
        text = layer_prompt(groups, self._top() if () in asked else (), self.names.root)
        listed = "\n".join(f"- {problem}" for problem in problems[:20])
        return f"{text}\n\nYour last answer had faults; avoid them:\n{listed}" if listed else text

    def add(self, placement: Placement) -> tuple[Fault, ...]:
        """Take one layer from an answer; return what is wrong with it.

        A leaf goes one group deeper at most, and only below the group it is in. A group that would hold one leaf, or
        all the leaves of the group above, divides nothing and is left out.
        """
        asked = self._groups()
        found = placement.placed
        existing = {group.casefold(): group for group in self._top()}
        for path, leaves in asked.items():
            placed = [leaf for leaf in leaves if leaf in found]
            wanted = {leaf: self._next_group(path, found[leaf]) for leaf in placed}
            sizes = Counter(group.casefold() for group in wanted.values())
            spelling = {group.casefold(): group for group in reversed(wanted.values()) if group}
            kept = {key: group for key, group in spelling.items() if 1 < sizes[key] < len(leaves)}
            kept |= existing if path == () else {}
            for leaf, group in wanted.items():
                self.paths[leaf] = (*path, kept[group.casefold()]) if group.casefold() in kept else path
            if placed:
                self._open.discard(path)
        self._open |= {path for path in self.paths.values() if path and path not in asked and path[:-1] in asked}
        return self._problems(placement, asked)

    def _top(self) -> list[str]:
        """The groups right below the root."""
        return list(dict.fromkeys(path[0] for path in self.paths.values() if path))

    def _next_group(self, path: Path, answered: Path) -> str:
        """The first group of an answered path that is not already above the leaf; '' where there is none."""
        above = {group.casefold() for group in (*path, " > ".join(path), self.names.root)}
        return next((group for group in answered if group.casefold() not in above), "")

    def _groups(self) -> dict[Path, list[str]]:
        """The leaves of every group that is still to be divided, and those without a place under the root."""
        groups: dict[Path, list[str]] = {}
        for leaf in self.names.leaves:
            path = self.paths.get(leaf)
            if path is None or (path in self._open and path):
                groups.setdefault(path or (), []).append(leaf)
        return {path: leaves for path, leaves in groups.items() if not path or len(leaves) >= SMALLEST_DIVIDED}

    def _problems(self, placement: Placement, asked: dict[Path, list[str]]) -> tuple[Fault, ...]:
        """What is wrong with the layer; leaves that were not asked for are not missing from it."""
        wanted = {leaf for leaves in asked.values() for leaf in leaves}
        missing = (leaf for leaf in self.names.leaves if leaf in wanted and leaf not in self.paths)
        others = (fault for fault in placement.problems if fault.kind not in ("missing", "flat"))
        return (*others, *missing_fault(missing, "names"))
