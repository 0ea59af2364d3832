"""Lint of edges before they are a hierarchy: what `Hierarchy.from_edges` would refuse, all of it at once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hcep.curation.graph_checks import Finding, counted, lint
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.files import read_hierarchy
from hcep.hierarchy.formats.all_formats import find_format
from hcep.hierarchy.formats.edge_list import DELIMITERS, has_levels, header_order, table
from hcep.hierarchy.formats.source import MAX_BYTES, Source, load, local_path
from hcep.hierarchy.graph import Hierarchy

#: Cycles spelled out; the others are counted.
MAX_CYCLES = 20


class FileLint(NamedTuple):
    """What is wrong with a file, and the hierarchy in it, where the errors are none or safely repaired."""

    findings: list[Finding]
    hierarchy: Hierarchy | None


@dataclass(frozen=True)
class RawEdges:
    """The edges of a file as they stand there, and where."""

    edges: list[Sequence[str]]
    places: list[str]
    source: Source
    has_header: bool = True

    def unknown_header(self) -> Iterator[Finding]:
        """A first row whose two cells stand nowhere else: column names that are not known as such, read as an edge."""
        first, *others = self.edges or [()]
        if self.has_header or len(first) < 2 or not all(first[:2]) or len(others) < 2:
            return
        if not set(first[:2]) & {cell for row in others for cell in row[:2]}:
            text = (
                f"the first row, {quoted(first[:2])}, shares no synset with the others: if it is a header, remove it "
                "or write parent,child"
            )
            yield Finding("warning", "header-row", text, tuple(first[:2]), examples=(f"{self.places[0]}: {first!r}",))

    def below_others(self) -> tuple[list[Sequence[str]], list[str]]:
        """Edges and places without the rows of a table that have no parent: they name a root, which is no error."""
        if self.source.format not in DELIMITERS:
            return self.edges, self.places
        kept = [i for i, edge in enumerate(self.edges) if len(edge) < 2 or edge[0] or not edge[1]]
        return [self.edges[i] for i in kept], [self.places[i] for i in kept]

    def cleaned(self) -> Hierarchy:
        """The hierarchy without self-loops; edges that are there twice count once anyway."""
        if self.source.format in DELIMITERS:
            kept = [tuple(edge) for edge in self.edges if edge[0] != edge[1]]
            roots = {edge[1]: edge[2] for edge in kept if not edge[0] and len(edge) == 3}
            return Hierarchy.from_edges([edge for edge in kept if edge[0]], roots)
        data = json.loads(self.source.text())
        for synset in data["synsets"]:
            if "parents" in synset:
                synset["parents"] = [parent for parent in synset["parents"] if parent != synset["id"]]
        return Hierarchy.from_json(json.dumps(data))


def lint_edges(edges: Iterable[Sequence[str]], places: Sequence[str] | None = None) -> list[Finding]:
    """Look (parent, child[, name]) rows over that may not be a hierarchy at all.

    Parameters
    ----------
    edges : iterable of (parent, child) or (parent, child, name of the child)
    places : sequence of str, optional
        Where each row stands ("line 7"), for the messages; its number by default.

    Returns
    -------
    list of Finding
        Malformed rows, empty ids, self-loops, edges given twice, synsets with two names, every cycle, several roots.

    Examples
    --------
    >>> from hcep.curation import lint_edges
    >>> for finding in lint_edges([("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")]):
    ...     print(finding.code, finding.examples)
    self-loop ("row 4: 'd'",)
    cycle ("'a' → 'b' → 'c' → 'a'",)
    """
    rows = [tuple(edge) if isinstance(edge, list | tuple) else (edge,) for edge in edges]
    where = [f"row {i + 1}" for i in range(len(rows))] if places is None else list(places)
    sound = [i for i, row in enumerate(rows) if len(row) in (2, 3) and all(isinstance(part, str) for part in row)]
    whole = [i for i in sound if rows[i][0].strip() and rows[i][1].strip()]
    loops = [i for i in whole if rows[i][0] == rows[i][1]]
    first: dict[tuple[str, str], int] = {}
    for i in whole:
        first.setdefault(rows[i][:2], i)
    twice = [i for i in whole if first[rows[i][:2]] != i]
    findings = [
        *_malformed(rows, where, sound, whole),
        *_listed("error", "self-loop", "row", "with a synset as its own parent; drop", rows, where, loops),
        *_listed("warning", "duplicate-edge", "edge", "given before; keep one of each", rows, where, twice),
        *_two_names(rows, sound),
    ]
    graph = [rows[i][:2] for i in whole if rows[i][0] != rows[i][1]]
    return [*findings, *_cycles(graph), *_several_roots(graph)]


def lint_file(
    place: str | os.PathLike[str], classes: Iterable[str] | None = None, format: str | None = None, **options: Any
) -> FileLint:
    r"""Look a hierarchy file over, also one that cannot be read as a hierarchy.

    Parameters
    ----------
    place : str or path
        What `Hierarchy.read` takes. Edge lists and this package's JSON are looked at row by row first; of other formats
        the reader's own complaint is the finding.
    classes : iterable of str, optional
        As for `lint`.
    format, **options
        As for `Hierarchy.read`.

    Raises
    ------
    HierarchyError
        There is no such file, or its ending tells no format.

    Examples
    --------
    >>> from pathlib import Path
    >>> from hcep.curation import lint_file
    >>> _ = Path("animals.csv").write_text("animal,cat\nanimal,dog\ndog,dog\n")
    >>> found, hierarchy = lint_file("animals.csv")
    >>> [finding.code for finding in found], hierarchy.leaves
    (['self-loop', 'flat'], ('cat', 'dog'))
    """
    raw = None if options else _raw_edges(os.fspath(place), format)
    findings = [] if raw is None else [*raw.unknown_header(), *lint_edges(*raw.below_others())]
    errors = [finding for finding in findings if finding.severity == "error"]
    if any(not error.safe for error in errors):
        return FileLint(findings, None)
    try:
        hierarchy = raw.cleaned() if raw is not None and errors else read_hierarchy(place, format, **options)
    except HierarchyError as error:
        return FileLint([*findings, Finding("error", "unreadable", str(error), ())], None)
    kept = [finding for finding in findings if finding.code != "several-roots"]  # `lint` says it again
    return FileLint([*kept, *lint(hierarchy, classes)], hierarchy)


def _raw_edges(place: str, format: str | None) -> RawEdges | None:
    """The rows of an edge list or of our JSON; None for other formats, and for what is not even a table or JSON."""
    path = local_path(place)
    if path is not None and path.is_dir():
        return None
    source = load(place, MAX_BYTES, 20.0)
    source.format = find_format(source.name, format, to="read").name
    try:
        if source.format in DELIMITERS:
            return _table_edges(source)
        return _json_edges(source) if source.format == "json" else None
    except (HierarchyError, ValueError, RecursionError):
        return None  # the reader says what is wrong


def _table_edges(source: Source) -> RawEdges | None:
    rows = list(table(source, DELIMITERS[source.format]))
    if not rows or has_levels(rows[0][1]):
        return None
    order = header_order(rows[0][1])
    rows = rows[order is not None :]
    edges = [[*cells[1::-1], *cells[2:]] if order == (1, 0) else cells for _, cells in rows]
    edges = [cells[:2] if len(cells) == 3 and not cells[2] else cells for cells in edges]
    return RawEdges(list(edges), [f"line {line:,}" for line, _ in rows], source, has_header=order is not None)


def _json_edges(source: Source) -> RawEdges | None:
    data: Any = json.loads(source.text())
    synsets = data.get("synsets") if isinstance(data, dict) and data.get("format") == serial.FORMAT else None
    if not isinstance(synsets, list):
        return None
    if not all(isinstance(s, dict) and isinstance(s.get("parents", []), list) for s in synsets):
        return None
    edges, places = [], []
    for synset in synsets:
        for parent in synset.get("parents", ()):
            edges.append((parent, synset.get("id")))
            places.append(f"synset {synset.get('id')!r}")
    return RawEdges(list(edges), places, source)


def _malformed(rows: list[tuple[Any, ...]], where: list[str], sound: list[int], whole: list[int]) -> Iterator[Finding]:
    odd = sorted(set(range(len(rows))) - set(sound))
    empty = sorted(set(sound) - set(whole))
    if odd:
        text = f"{counted(odd, 'row')} other than parent, child[, name]; correct"
        yield Finding("error", "malformed-row", text, (), examples=tuple(f"{where[i]}: {rows[i]!r}" for i in odd))
    if empty:
        text = f"{counted(empty, 'row')} with an empty id; name the synset"
        yield Finding("error", "empty-id", text, (), examples=tuple(f"{where[i]}: {rows[i]!r}" for i in empty))


def _listed(
    severity: Any, code: str, noun: str, text: str, rows: list[tuple[Any, ...]], where: list[str], found: list[int]
) -> Iterator[Finding]:
    if found:
        synsets = tuple(dict.fromkeys(rows[i][1] for i in found))
        shown = tuple(f"{where[i]}: {quoted(dict.fromkeys(rows[i][:2]))}" for i in found)
        yield Finding(severity, code, f"{counted(found, noun)} {text}", synsets, safe=True, examples=shown)


def _two_names(rows: list[tuple[Any, ...]], sound: list[int]) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for i in sound:
        if len(rows[i]) == 3:
            names.setdefault(rows[i][1], []).append(rows[i][2])
    several = {synset: list(dict.fromkeys(given)) for synset, given in names.items() if len(set(given)) > 1}
    if several:
        text = f"{counted(several, 'synset')} with several names; keep one, or give the meanings ids of their own"
        shown = tuple(f"{synset!r}: {quoted(given)}" for synset, given in several.items())
        yield Finding("error", "two-names", text, tuple(several), examples=shown)


def _cycles(edges: Sequence[Sequence[str]]) -> Iterator[Finding]:
    found = list(_back_edges(edges))
    for cycle in found[:MAX_CYCLES]:
        loop = " → ".join(map(repr, [*cycle, cycle[0]]))
        text = f"a cycle of {len(cycle)} synsets: {loop}; remove one of these edges"
        yield Finding("error", "cycle", text, tuple(cycle), examples=(loop,))
    if len(found) > MAX_CYCLES:
        text = f"{len(found) - MAX_CYCLES} more cycles; break those above first"
        yield Finding("error", "cycle", text, tuple(cycle[0] for cycle in found[MAX_CYCLES:]))


def _back_edges(edges: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """One cycle for every edge that leads back to a synset above it in a depth-first walk.

    Without these edges nothing is left that goes round. All cycles could be exponentially many.
    """
    children: dict[str, dict[str, None]] = {}
    for parent, child in edges:
        children.setdefault(parent, {})[child] = None
        children.setdefault(child, {})
    below = {child for _, child in edges}
    done: set[str] = set()
    for start in [*(s for s in children if s not in below), *children]:
        trail = [] if start in done else [start]
        place = {synset: i for i, synset in enumerate(trail)}
        waiting = [iter(children[synset]) for synset in trail]
        while trail:
            lower = next(waiting[-1], None)
            if lower is None:
                done.add(trail[-1])
                del place[trail.pop()], waiting[-1]
            elif lower in place:
                yield trail[place[lower] :]
            elif lower not in done:
                place[lower] = len(trail)
                trail.append(lower)
                waiting.append(iter(children[lower]))


def _several_roots(edges: Sequence[Sequence[str]]) -> Iterator[Finding]:
    below = {child for _, child in edges}
    roots = tuple(dict.fromkeys(parent for parent, _ in edges if parent not in below))
    if len(roots) > 1:
        text = f"{len(roots)} roots will be joined under a virtual one; add a synset above those that belong together"
        yield Finding("note", "several-roots", text, roots)
