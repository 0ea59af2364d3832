"""Lint of edges before they are a hierarchy: what `Hierarchy.from_edges` would refuse, all of it at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hcep.curation.findings import Finding, found
from hcep.curation.graph_checks import lint, several_roots
from hcep.datasets.hierarchies import NAMED, place_of
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.files import hierarchy_in, open_source
from hcep.hierarchy.formats.edge_list import edge_rows
from hcep.hierarchy.formats.source import MAX_BYTES, Source
from hcep.hierarchy.formats.table_file import DELIMITERS
from hcep.hierarchy.graph import Hierarchy

#: Cycles spelled out; the others are counted.
MAX_CYCLES = 20


class FileLint(NamedTuple):
    """What is wrong with a file, and the hierarchy in it, where the errors are none or safely repaired."""

    findings: list[Finding]
    hierarchy: Hierarchy | None


@dataclass
class RawEdges:
    """The edges of a file as they stand there, where, and how to build their hierarchy without self-loops."""

    cleaned: Callable[[], Hierarchy]
    edges: list[Sequence[str]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def add(self, edge: Sequence[str], place: str) -> None:
        self.edges.append(edge)
        self.places.append(place)


def lint_edges(edges: Iterable[Sequence[str]], places: Sequence[str] | None = None) -> list[Finding]:
    """Look (parent, child[, name]) rows over that may not be a hierarchy at all.

    Parameters
    ----------
    edges : iterable of (parent, child) or (parent, child, name of the child)
    places : where each row stands ("line 7"), for the messages; its number by default

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
    first: dict[tuple[str, str], int] = {}
    for i in whole:
        first.setdefault(rows[i][:2], i)

    def listed(severity: Any, code: str, at: Iterable[int], noun: str, text: str, safe: bool = True) -> list[Finding]:
        shown = sorted(at)
        synsets = [rows[i][1] for i in shown] if safe else []
        told = [quoted(dict.fromkeys(rows[i][:2])) if safe else repr(rows[i]) for i in shown]
        examples = (f"{where[i]}: {text}" for i, text in zip(shown, told, strict=True))
        return found(severity, code, shown, text, noun=noun, synsets=synsets, examples=examples, safe=safe)

    odd, empty = set(range(len(rows))) - set(sound), set(sound) - set(whole)
    loops = [i for i in whole if rows[i][0] == rows[i][1]]
    twice = [i for i in whole if first[rows[i][:2]] != i]
    graph = [edge for edge in first if edge[0] != edge[1]]
    below = {child for _, child in graph}
    roots = dict.fromkeys(parent for parent, _ in graph if parent not in below)
    return [
        *listed("error", "malformed-row", odd, "row", "other than parent, child[, name]; correct", safe=False),
        *listed("error", "empty-id", empty, "row", "with an empty id; name the concept", safe=False),
        *listed("error", "self-loop", loops, "row", "with a concept as its own parent; drop"),
        *listed("warning", "duplicate-edge", twice, "edge", "given before; keep one of each"),
        *_two_names([rows[i] for i in sound]),
        *_cycles(graph),
        *several_roots(roots if len(roots) > 1 else (), "will be"),
    ]


def lint_file(
    place: str | os.PathLike[str], classes: Iterable[str] | None = None, format: str | None = None, **options: Any
) -> FileLint:
    r"""Look a hierarchy file over, also one that cannot be read as a hierarchy.

    Raises HierarchyError: there is no such file, or its ending tells no format.

    Parameters
    ----------
    place : what `find_hierarchy` takes. Edge lists and this package's JSON are looked at row by row first; of other
        formats the reader's own complaint is the finding.
    classes : iterable of str; as for `lint`
    format, **options : as for `Hierarchy.read`

    Examples
    --------
    >>> from pathlib import Path
    >>> from hcep.curation import lint_file
    >>> _ = Path("animals.csv").write_text("animal,cat\nanimal,dog\ndog,dog\n")
    >>> found, hierarchy = lint_file("animals.csv")
    >>> [finding.code for finding in found], hierarchy.leaves
    (['self-loop', 'flat'], ('cat', 'dog'))
    """
    if place in NAMED:
        named = NAMED[str(place)]()
        return FileLint(lint(named, classes), named)
    limits = (options.pop("max_bytes", MAX_BYTES), options.pop("timeout", 20.0))
    source = open_source(place_of(place, format), format, *limits)
    raw = None if options else _raw_edges(source)
    findings = [] if raw is None else lint_edges(raw.edges, raw.places)
    errors = [finding for finding in findings if finding.severity == "error"]
    if any(not error.safe for error in errors):
        return FileLint(findings, None)
    try:
        hierarchy = raw.cleaned() if raw is not None and errors else hierarchy_in(source, **options)
    except HierarchyError as error:
        return FileLint([*findings, Finding("error", "unreadable", str(error), ())], None)
    kept = [finding for finding in findings if finding.code != "several-roots"]  # `lint` says it again
    return FileLint([*kept, *lint(hierarchy, classes)], hierarchy)


def _raw_edges(source: Source) -> RawEdges | None:
    """The rows of an edge list or of our JSON; None for other formats, and for what is not even a table or JSON."""
    try:
        if source.format in DELIMITERS:
            return _table_edges(source)
        return _json_edges(source) if source.format == "json" else None
    except (HierarchyError, ValueError, RecursionError):
        return None  # the reader says what is wrong


def _table_edges(source: Source) -> RawEdges | None:
    rows = edge_rows(source)
    if rows is None:
        return None
    roots: dict[str, str] = {}  # a row without a parent names a root, which is no error
    raw = RawEdges(lambda: Hierarchy.from_edges([edge for edge in raw.edges if edge[0] != edge[1]], roots))
    for line, edge in rows:
        if len(edge) > 1 and edge[1] and not edge[0]:
            roots |= {edge[1]: edge[2]} if len(edge) == 3 else {}
        else:
            raw.add(edge, f"line {line:,}")
    return raw


def _json_edges(source: Source) -> RawEdges | None:
    data: Any = json.loads(source.text())
    synsets = data.get("synsets") if isinstance(data, dict) and data.get("format") == serial.FORMAT else None
    if not isinstance(synsets, list) or not all(
        isinstance(s, dict) and isinstance(s.get("parents", []), list) for s in synsets
    ):
        return None

    def cleaned() -> Hierarchy:
        for synset in synsets:
            if "parents" in synset:
                synset["parents"] = [parent for parent in synset["parents"] if parent != synset["id"]]
        return Hierarchy.from_json(json.dumps(data))

    raw = RawEdges(cleaned)
    for synset in synsets:
        for parent in synset.get("parents", ()):
            raw.add((parent, synset.get("id")), f"synset {synset.get('id')!r}")
    return raw


def _two_names(rows: list[tuple[Any, ...]]) -> list[Finding]:
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        names.setdefault(row[1], {}).update(dict.fromkeys(row[2:]))
    several = {synset: given for synset, given in names.items() if len(given) > 1}
    text = "with several names; keep one, or give the meanings ids of their own"
    examples = (f"{synset!r}: {quoted(given)}" for synset, given in several.items())
    return found("error", "two-names", several, text, examples=examples)


def _cycles(edges: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    cycles = list(_back_edges(edges))
    for cycle in cycles[:MAX_CYCLES]:
        loop = " → ".join(map(repr, [*cycle, cycle[0]]))
        text = f"a cycle of {len(cycle)} concepts: {loop}; remove one of these edges"
        yield Finding("error", "cycle", text, tuple(cycle), examples=(loop,))
    more = [cycle[0] for cycle in cycles[MAX_CYCLES:]]
    if more:
        yield Finding("error", "cycle", f"{len(more)} more cycles; break those above first", tuple(more))


def _back_edges(edges: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
    """One cycle for every edge that leads back to a synset above it in a depth-first walk.

    Without these edges nothing is left that goes round. All cycles could be exponentially many.
    """
    children: dict[str, dict[str, None]] = {}
    for parent, child in edges:
        children.setdefault(parent, {})[child] = None
        children.setdefault(child, {})
    below = {child for lower in children.values() for child in lower}
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
