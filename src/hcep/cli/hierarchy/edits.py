"""Edits as they are written on a command line, and their effect as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hcep.curation import Add, Edit, Merge, Move, Remove, Rename
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.curation.what_if import Effect

Check = Callable[[str], bool]

#: What the metrics are called in a terminal.
METRICS = {
    "accuracy": "accuracy",
    "support_precision": "support precision",
    "support_recall": "support recall",
    "support_f1": "support F1",
    "f1_above_chance": "support F1 above chance",
    "class_f1_before": "class F1 in the hierarchy before",
}


def parse_edits(
    hierarchy: Hierarchy,
    add: Sequence[str] = (),
    merge: Sequence[str] = (),
    move: Sequence[str] = (),
    remove: Sequence[str] = (),
    rename: Sequence[str] = (),
) -> list[Edit]:
    """Edits in the order in which they are applied: add, merge, move, remove, rename.

    Parts are apart by colons. Where ids have colons of their own (``HP:0000118``), the one way to take the text apart
    into synsets that exist is taken.

    Raises
    ------
    HCEPError
        Too few parts, or several ways to take them apart.
    """
    known = {*hierarchy.ids, *(hierarchy.name(s).casefold() for s in hierarchy.ids)}

    def is_known(text: str) -> bool:
        return text in known or text.casefold() in known

    def all_known(text: str) -> bool:
        return all(map(is_known, text.split(",")))

    edits: list[Edit] = []
    for text in add:
        new, parent, *rest = _parts("--add", "NAME:PARENT[:CHILD,CHILD]", text, (_anything, is_known, all_known), 2)
        edits.append(Add(new, parent, tuple(rest[0].split(",")) if rest else ()))
        known.add(new)
    for text in merge:
        edits.append(Merge(*_parts("--merge", "SYNSET:INTO", text, (is_known, is_known), 2)))
    for text in move:
        parts = _parts("--move", "SYNSET[:OLD_PARENT]:NEW_PARENT", text, (is_known, is_known, is_known), 2)
        edits.append(Move(parts[0], parts[-1], parts[1] if len(parts) == 3 else None))
    edits += [Remove(text) for text in remove]
    for text in rename:
        edits.append(Rename(*_parts("--rename", "SYNSET:NAME", text, (is_known, _anything), 2)))
    return edits


def effect_table(effect: Effect) -> Table:
    """Metrics before and after, with the paired difference and its standard error."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "before", "after", "difference", "± s.e."):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, change in effect.metrics.items():
        difference = f"{change.difference:+.4f}"
        table.add_row(METRICS[name], f"{change.before:.4f}", f"{change.after:.4f}", difference, f"{change.error:.4f}")
    return table


def effect_record(effect: Effect) -> dict[str, Any]:
    """The same for JSON."""
    return {name: change._asdict() for name, change in effect.metrics.items()}


def _anything(text: str) -> bool:
    return bool(text.strip())


def _parts(option: str, form: str, text: str, checks: Sequence[Check], fewest: int) -> list[str]:
    pieces = text.split(":")
    ways = [
        parts
        for n in range(fewest, len(checks) + 1)
        for parts in _ways(pieces, n)
        if all(check(part) for check, part in zip(checks, parts, strict=False))
    ]
    if len(ways) == 1:
        return ways[0]
    if pieces in ways and checks[0] is _anything:
        return pieces  # "pet:animal:cat" adds "pet"; that its new name be "pet:animal" is hardly meant
    if not ways and fewest <= len(pieces) <= len(checks) and all(pieces):
        return pieces  # a synset that is not there: the edit itself says which, with near matches
    what = "can be taken apart in several ways" if ways else "is not of this form, or names no synset"
    raise HCEPError(f"{option}: expected {form}; {text!r} {what}. Give synsets by id")


def _ways(pieces: list[str], n: int) -> Iterator[list[str]]:
    """All ways to join neighbouring pieces into n parts."""
    for cuts in combinations(range(1, len(pieces)), n - 1):
        bounds = [0, *cuts, len(pieces)]
        yield [":".join(pieces[a:b]) for a, b in pairwise(bounds)]
