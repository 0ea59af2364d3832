"""Checks of a hierarchy without images: its file, its graph, its names, and whether it fits the labels."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hcep.datasets.hierarchies import NAMED, place_of
from hcep.errors import HierarchyError, counted, near_matches, quote, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.edges import find_cycles, is_virtual, loop, many_paths, refuse_many_paths
from hcep.hierarchy.files import class_ids, hierarchy_in
from hcep.hierarchy.formats.source import MAX_BYTES, Source, open_source
from hcep.hierarchy.formats.table_file import DELIMITERS
from hcep.hierarchy.formats.tables import edge_rows
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import nearly_same, same_but_for_spelling, tidy
from hcep.taxonomy.edits import Collapse, Cut, Edit, Rename, apply_edits

Severity = Literal["error", "warning", "note"]
#: The edges of a file, the place of each, and a function that builds their hierarchy without self-loops.
RawEdges = tuple[list[Sequence[str]], list[str], Callable[[], Hierarchy]]
#: A concept with this many children is called wide: a level is often missing.
WIDE = 50
#: Cycles that are spelled out; the others are counted.
MAX_CYCLES = 20


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    Attributes
    ----------
    severity : an error must be repaired before a model can be fitted; a note may be intended
    code : what kind of finding it is
    message : what was found and what to do about it
    synsets : the concepts it concerns
    fixes : edits that would repair it, for `apply_edits`
    safe : whether the edits keep every concept and everything that is below it, so that `--fix` may apply them
    examples : the worst cases in words: a pair of names, a cycle, an image
    measured : the `MeasuredMove` of a child that is nearer to another parent
    """

    severity: Severity
    code: str
    message: str
    synsets: tuple[str, ...]
    fixes: tuple[Edit, ...] = ()
    safe: bool = False
    examples: tuple[str, ...] = ()
    measured: Any = None


def findings_about(
    severity: Severity,
    code: str,
    things: Collection[object],
    text: str,
    *,
    noun: str = "concept",
    synsets: Iterable[str] | None = None,
    fixes: Iterable[Edit] = (),
    examples: Iterable[str] = (),
    safe: bool | None = None,
) -> list[Finding]:
    """One finding about some things, or none if there are none; `synsets` are the things by default."""
    if not things:
        return []
    concerned = tuple(dict.fromkeys(map(str, things) if synsets is None else synsets))
    message, edits = f"{counted(len(things), noun)} {text}", tuple(fixes)
    return [Finding(severity, code, message, concerned, edits, bool(edits) if safe is None else safe, tuple(examples))]


def lint(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> list[Finding]:
    """Check a hierarchy; with `classes`, the labels of the data, also check whether it fits them.

    Edges that are not a hierarchy, because of a cycle for instance, are for `lint_edges` and `lint_file`. Classes are
    looked up as `match_classes` does.
    """
    try:
        refuse_many_paths(hierarchy)
    except HierarchyError as error:
        return [Finding("error", "too-many-paths", str(error), ())]
    labels = dict.fromkeys(class_ids(hierarchy, classes or ()).values())
    chains = [s for s in hierarchy.ids[1:] if len(hierarchy.children(s)) == 1 and s not in labels]
    text = "with one child; a model merges each into its child, and --collapse does the same in the file"
    findings = findings_about("warning", "chain", chains, text, fixes=map(Collapse, chains), safe=False)
    findings += [finding for check in (_graph, _names, _levels) for finding in check(hierarchy)]
    return findings + (_classes(hierarchy, list(labels)) if classes is not None else [])


def fix(hierarchy: Hierarchy, classes: Iterable[str] | None = None, *, collapse: bool = False) -> Hierarchy:
    """Apply the safe fixes of `lint` until none is left, and with `collapse` also merge chains; see `diff`."""
    labels = None if classes is None else list(class_ids(hierarchy, classes).values())
    protected = [*(labels or ()), *map(hierarchy.class_of, hierarchy.leaves)]
    # One kind at a time: merging a chain may remove a shortcut, and removing a shortcut may leave a chain.
    while edits := next((f.fixes for f in lint(hierarchy, labels) if f.safe or (collapse and f.code == "chain")), None):
        hierarchy = apply_edits(hierarchy, edits, protected)
    return hierarchy


def _several_roots(roots: Iterable[str], joined: str) -> list[Finding]:
    """The note that roots "were" or "will be" joined."""
    text = f"{joined} joined under a common root; add a concept above those that belong together"
    return findings_about("note", "several-roots", tuple(roots), text, noun="root")


def _graph(hierarchy: Hierarchy) -> Iterator[Finding]:
    if is_virtual(hierarchy.root):
        tops = hierarchy.children(hierarchy.root)
        alone = [top for top in tops if hierarchy.is_leaf(top)]
        yield from _several_roots(tops, "were")
        text = "with neither parents nor children; give each a parent, or remove it"
        yield from findings_about("warning", "orphan", alone, text)
    if warning := many_paths(hierarchy):
        yield Finding("warning", "many-paths", warning, ())
    several = [s for s in hierarchy if len(hierarchy.parents(s)) > 1]
    text = "with several parents, which is allowed; `hcep hierarchy convert --single-parent first` keeps one"
    parents = (f"{quote(hierarchy.name(s))}: {quoted(map(hierarchy.name, hierarchy.parents(s)))}" for s in several)
    yield from findings_about("note", "several-parents", several, text, examples=parents)
    above = ((s, {a for p in hierarchy.parents(s) for a in hierarchy.ancestors(p)}) for s in several)
    cuts = [Cut(parent, s) for s, higher in above for parent in hierarchy.parents(s) if parent in higher]
    text = "below a concept and also directly below that concept's ancestor; remove this shortcut"
    yield from findings_about("warning", "shortcut", dict.fromkeys(cut.child for cut in cuts), text, fixes=cuts)


def _names(hierarchy: Hierarchy) -> Iterator[Finding]:
    by_name: dict[str, list[str]] = {}
    for synset in (s for s in hierarchy if hierarchy.class_of(s) == s):  # an own leaf has the name of its class
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    repeated = {hierarchy.name(ids[0]): ids for ids in by_name.values() if len(ids) > 1}
    text = f"for several concepts: {quoted(repeated)}; give them different names, or merge the concepts"
    examples = (f"{name}: {', '.join(ids)}" for name, ids in repeated.items())
    concerned = (s for ids in repeated.values() for s in ids)
    yield from findings_about(
        "warning", "repeated-name", repeated, text, noun="name", synsets=concerned, examples=examples
    )
    ids = {hierarchy.name(synset): synset for synset in hierarchy}

    def of_pairs(severity: Severity, code: str, pairs: list[tuple[str, str]], text: str) -> list[Finding]:
        synsets = (ids[name] for pair in pairs for name in pair)
        examples = (f"{quote(a)} and {quote(b)}" for a, b in pairs)
        return findings_about(
            severity, code, pairs, f"of names {text}", noun="pair", synsets=synsets, examples=examples
        )

    alike = "that differ only in case, punctuation or number; merge them or rename one"
    yield from of_pairs("warning", "same-name", same_but_for_spelling(ids), alike)
    near = "that differ in one letter; correct the spelling if they are the same word"
    yield from of_pairs("note", "near-name", nearly_same(ids), near)
    tidied = {s: tidy(hierarchy.name(s)) for s in hierarchy}
    yield from findings_about(
        "warning", "blank-name", [s for s in tidied if not tidied[s]], "with a blank name; rename it"
    )
    edits = [Rename(s, name) for s, name in tidied.items() if name and name != hierarchy.name(s)]
    text = "with extra spaces; remove them"
    yield from findings_about("warning", "untidy-name", [e.synset for e in edits], text, noun="name", fixes=edits)


def _levels(hierarchy: Hierarchy) -> Iterator[Finding]:
    top, levels = hierarchy.root, hierarchy.levels[hierarchy.leaf_index]
    if levels.min() * 3 <= levels.max():
        shallow = tuple(hierarchy.ids[i] for i in hierarchy.leaf_index[np.argsort(levels, kind="stable")[:5]])
        text = f"leaves are {levels.min()} to {levels.max()} steps below the root; group the shallow ones"
        yield Finding("note", "uneven-depth", text, shallow)
    if hierarchy.depth == 1:
        text = "the hierarchy is flat: every path has one concept and explains nothing; add concepts above the classes"
        yield Finding("note", "flat", text, (top,))
        return
    # Below a virtual root they were reported as orphans.
    below = () if is_virtual(top) else hierarchy.children(top)
    leaves = [s for s in below if hierarchy.is_leaf(s) and hierarchy.parents(s) == (top,)]
    text = "directly below the root, without a group; move each below a concept"
    yield from findings_about("note", "leaf-at-root", leaves, text, noun="class")
    wide = [s for s in hierarchy if len(hierarchy.children(s)) >= WIDE]
    yield from findings_about("note", "wide", wide, f"with {WIDE} or more children; add intermediate concepts")


def _classes(hierarchy: Hierarchy, classes: list[str]) -> list[Finding]:
    own, wanted = hierarchy.own_leaves, set(classes)
    missing = [c for c in classes if c not in hierarchy and c not in own]
    inner = [c for c in classes if c in hierarchy and not hierarchy.is_leaf(c) and c not in own]
    extra = [leaf for leaf in hierarchy.leaves if hierarchy.class_of(leaf) not in wanted]
    near = (f"{quote(c)}: {near_matches(c, hierarchy.ids).strip() or 'no near match'}" for c in missing[:20])
    unknown = "of the data not in the hierarchy; add it below a parent, or correct the label"
    above = "of the data with concepts below; each gets its own leaf"
    unused = "without a class in the data; omitted when a model is fitted"
    return [
        *findings_about("error", "missing-class", missing, unknown, noun="class", examples=near),
        *findings_about("note", "inner-class", inner, above, noun="class"),
        *findings_about("note", "extra-leaf", extra, unused, noun="leaf"),
    ]


def lint_edges(edges: Iterable[Sequence[str]], places: Sequence[str] | None = None) -> list[Finding]:
    """Check (parent, child[, name]) rows that may not be a hierarchy.

    Finds malformed rows, empty ids, self-loops, repeated edges, concepts with two names, cycles and several roots.
    `places` says where each row is ("line 7"); by default its number.
    """
    rows = [tuple(edge) if isinstance(edge, list | tuple) else (edge,) for edge in edges]
    where = [f"row {i + 1}" for i in range(len(rows))] if places is None else list(places)
    sound = [i for i, row in enumerate(rows) if len(row) in (2, 3) and all(isinstance(part, str) for part in row)]
    whole = [i for i in sound if rows[i][0].strip() and rows[i][1].strip()]
    first: dict[tuple[str, str], int] = {}
    for i in whole:
        first.setdefault(rows[i][:2], i)

    def listed(severity: Any, code: str, at: Iterable[int], text: str, noun: str = "row") -> list[Finding]:
        order, safe = sorted(at), set(at) <= set(whole)
        synsets = [rows[i][1] for i in order] if safe else []
        texts = [quoted(dict.fromkeys(rows[i][:2])) if safe else repr(rows[i]) for i in order]
        examples = (f"{where[i]}: {text}" for i, text in zip(order, texts, strict=True))
        return findings_about(severity, code, order, text, noun=noun, synsets=synsets, examples=examples, safe=safe)

    odd, empty = set(range(len(rows))) - set(sound), set(sound) - set(whole)
    loops = [i for i in whole if rows[i][0] == rows[i][1]]
    twice = [i for i in whole if first[rows[i][:2]] != i]
    graph = [edge for edge in first if edge[0] != edge[1]]
    below = {child for _, child in graph}
    roots = dict.fromkeys(parent for parent, _ in graph if parent not in below)
    names: dict[str, dict[str, None]] = {}
    for i in sound:
        names.setdefault(rows[i][1], {}).update(dict.fromkeys(rows[i][2:]))
    several = {synset: all_names for synset, all_names in names.items() if len(all_names) > 1}
    two_names = "with several names; keep one, or give each meaning its own id"
    examples = (f"{quote(synset)}: {quoted(all_names)}" for synset, all_names in several.items())
    cycles = []
    for cycle in (all_cycles := list(find_cycles(graph)))[:MAX_CYCLES]:
        text = f"a cycle of {len(cycle)} concepts: {loop(cycle)}; remove one of these edges"
        cycles.append(Finding("error", "cycle", text, tuple(cycle), examples=(loop(cycle),)))
    if more := tuple(cycle[0] for cycle in all_cycles[MAX_CYCLES:]):
        cycles.append(Finding("error", "cycle", f"{len(more)} more cycles; break those above first", more))
    return [
        *listed("error", "malformed-row", odd, "that are not parent, child[, name]; correct them"),
        *listed("error", "empty-id", empty, "with an empty id; name the concept"),
        *listed("error", "self-loop", loops, "with a concept as its own parent; remove them"),
        *listed("warning", "duplicate-edge", twice, "that are repeated; keep one of each", "edge"),
        *findings_about("error", "two-names", several, two_names, examples=examples),
        *cycles,
        *_several_roots(roots if len(roots) > 1 else (), "will be"),
    ]


def lint_file(
    place: str | os.PathLike[str], classes: Iterable[str] | None = None, format: str | None = None, **options: Any
) -> tuple[list[Finding], Hierarchy | None]:
    """Check a hierarchy file, also one that cannot be read as a hierarchy.

    Returns the findings, and the hierarchy if the file has no errors or only errors with a safe repair. Raises
    HierarchyError if the file does not exist or its format is unknown.

    Parameters
    ----------
    place : as for `find_hierarchy`. Edge lists and this package's JSON are checked row by row first; for other formats
        the reader's error is the finding.
    classes : as for `lint`
    format, **options : as for `hcep.read_hierarchy`
    """
    if place in NAMED:
        named = NAMED[str(place)]()
        return lint(named, classes), named
    limits = (options.pop("max_bytes", MAX_BYTES), options.pop("timeout", 20.0))
    source = open_source(place_of(place, format), format, *limits)
    raw = None
    with suppress(HierarchyError, ValueError, RecursionError):  # the reader reports the error
        kinds = {"json": _json_edges, **dict.fromkeys(DELIMITERS, _table_edges)}
        raw = kinds[source.format](source) if source.format in kinds and not options else None
    findings = [] if raw is None else lint_edges(*raw[:2])
    errors = [finding for finding in findings if finding.severity == "error"]
    if any(not error.safe for error in errors):
        return findings, None
    try:
        hierarchy = raw[2]() if raw is not None and errors else hierarchy_in(source, **options)
    except HierarchyError as error:
        return [*findings, Finding("error", "unreadable", str(error), ())], None
    others = [finding for finding in findings if finding.code != "several-roots"]  # `lint` reports it again
    return [*others, *lint(hierarchy, classes)], hierarchy


def _table_edges(source: Source) -> RawEdges | None:
    rows = edge_rows(source)
    if rows is None:
        return None
    # A row without a parent names a root, which is not an error.
    is_root = [len(edge) > 1 and bool(edge[1]) and not edge[0] for _, edge in rows]
    names = {edge[1]: edge[2] for (_, edge), root in zip(rows, is_root, strict=True) if root and len(edge) == 3}
    others = [row for row, root in zip(rows, is_root, strict=True) if not root]
    edges: list[Sequence[str]] = [edge for _, edge in others]
    places = [f"line {line:,}" for line, _ in others]
    return edges, places, (lambda: Hierarchy.from_edges([e for e in edges if e[0] != e[1]], names))


def _json_edges(source: Source) -> RawEdges | None:
    data: Any = json.loads(source.text())
    known = isinstance(data, dict) and data.get("format") == serial.FORMAT and isinstance(data.get("synsets"), list)
    synsets: list[Any] = data["synsets"] if known else [None]
    if not all(isinstance(s, dict) and isinstance(s.get("parents", []), list) for s in synsets):
        return None

    def cleaned() -> Hierarchy:
        for synset in synsets:
            if "parents" in synset:
                synset["parents"] = [parent for parent in synset["parents"] if parent != synset["id"]]
        return Hierarchy.from_json(json.dumps(data))

    pairs: list[Sequence[str]] = [(parent, s.get("id")) for s in synsets for parent in s.get("parents", ())]
    return pairs, [f"concept {quote(pair[1])}" for pair in pairs], cleaned
