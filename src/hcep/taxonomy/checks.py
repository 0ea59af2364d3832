"""What may be wrong with a hierarchy before any image is seen: its file, graph and names, its fit to the labels."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from hcep.datasets.hierarchies import NAMED, place_of
from hcep.errors import HierarchyError, counted, near_matches, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.edges import find_cycles, is_virtual
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import nearly_same, same_but_for_spelling, tidy
from hcep.taxonomy.edits import Collapse, Cut, Edit, Rename, apply_edits
from hcep.taxonomy.files import class_ids, hierarchy_in
from hcep.taxonomy.formats.source import MAX_BYTES, Source, open_source
from hcep.taxonomy.formats.table_file import DELIMITERS
from hcep.taxonomy.formats.tables import edge_rows

Severity = Literal["error", "warning", "note"]
#: The edges of a file as they stand there, where each does, and what builds their hierarchy without self-loops.
RawEdges = tuple[list[Sequence[str]], list[str], Callable[[], Hierarchy]]
#: Children from which a synset is called wide: above this no one reads the list, and a level is often missing.
WIDE = 50
#: Cycles spelled out; the others are counted.
MAX_CYCLES = 20


@dataclass(frozen=True)
class Finding:
    """One thing to look at, the synsets it concerns and what to do.

    Attributes
    ----------
    severity : an error must be repaired before a model can be fitted; a note may be as wanted
    message : what is there, then what to do about it
    fixes : edits that would settle it, for `apply_edits`
    safe : whether the edits keep every concept and every "is below" of the hierarchy, so that `--fix` may apply them
    examples : the worst cases in words: a pair of names, a cycle, an image
    measured : of a child nearer to another parent, the `MeasuredMove`
    """

    severity: Severity
    code: str
    message: str
    synsets: tuple[str, ...]
    fixes: tuple[Edit, ...] = ()
    safe: bool = False
    examples: tuple[str, ...] = ()
    measured: Any = None


def found(
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
    """The finding about some things (its `synsets` when left out), none where there are none; with edits it is safe."""
    if not things:
        return []
    concerned = tuple(dict.fromkeys(map(str, things) if synsets is None else synsets))
    message, edits = f"{counted(len(things), noun)} {text}", tuple(fixes)
    return [Finding(severity, code, message, concerned, edits, bool(edits) if safe is None else safe, tuple(examples))]


def lint(hierarchy: Hierarchy, classes: Iterable[str] | None = None) -> list[Finding]:
    """Look a hierarchy over, a finding per code; with `classes`, the data's labels, also whether it fits them.

    What cannot become a hierarchy, because of a cycle say, is for `lint_edges` or `lint_file`. Classes are looked up as
    `match_classes` does, and one of them is no chain.
    """
    labels = dict.fromkeys(class_ids(hierarchy, classes or ()).values())
    chains = [s for s in hierarchy.ids[1:] if len(hierarchy.children(s)) == 1 and s not in labels]
    text = "with one child; a model merges each into its child, and so does --collapse in the file"
    findings = found("warning", "chain", chains, text, fixes=map(Collapse, chains), safe=False)
    findings += [finding for check in (_graph, _names, _levels) for finding in check(hierarchy)]
    return findings + (_classes(hierarchy, list(labels)) if classes is not None else [])


def fix(hierarchy: Hierarchy, classes: Iterable[str] | None = None, *, collapse: bool = False) -> Hierarchy:
    """Apply the safe edits of `lint` until none is left, and on request merge chains; `diff` shows what changed."""
    labels = None if classes is None else list(class_ids(hierarchy, classes).values())
    protected = [*(labels or ()), *map(hierarchy.class_of, hierarchy.leaves)]
    # One kind at a time: a chain that is merged may take a shortcut with it, and one dropped may leave a chain.
    while edits := next((f.fixes for f in lint(hierarchy, labels) if f.safe or (collapse and f.code == "chain")), None):
        hierarchy = apply_edits(hierarchy, edits, protected)
    return hierarchy


def _several_roots(roots: Iterable[str], joined: str) -> list[Finding]:
    """The note that roots "were" or "will be" joined."""
    text = f"{joined} joined under a virtual one; add a concept above those that belong together"
    return found("note", "several-roots", tuple(roots), text, noun="root")


def _graph(hierarchy: Hierarchy) -> Iterator[Finding]:
    if is_virtual(hierarchy.root):
        tops = hierarchy.children(hierarchy.root)
        alone = [top for top in tops if hierarchy.is_leaf(top)]
        yield from _several_roots(tops, "were")
        text = "with neither parents nor children; give each a parent, or remove it"
        yield from found("warning", "orphan", alone, text)
    several = [s for s in hierarchy if len(hierarchy.parents(s)) > 1]
    text = "with several parents; nothing is wrong with that, `hcep hierarchy convert --single-parent first` keeps one"
    parents = (f"{hierarchy.name(s)!r}: {quoted(map(hierarchy.name, hierarchy.parents(s)))}" for s in several)
    yield from found("note", "several-parents", several, text, examples=parents)
    above = {s: {a for p in hierarchy.parents(s) for a in hierarchy.ancestors(p)} for s in several}
    cuts = [Cut(parent, s) for s in several for parent in hierarchy.parents(s) if parent in above[s]]
    text = "below a concept and directly below one above it; drop that edge, a shortcut"
    yield from found("warning", "shortcut", dict.fromkeys(cut.child for cut in cuts), text, fixes=cuts)


def _names(hierarchy: Hierarchy) -> Iterator[Finding]:
    by_name: dict[str, list[str]] = {}
    for synset in hierarchy:
        by_name.setdefault(hierarchy.name(synset).casefold(), []).append(synset)
    repeated = {hierarchy.name(ids[0]): ids for ids in by_name.values() if len(ids) > 1}
    text = f"for several concepts: {quoted(repeated)}; rename them apart, or merge what is the same"
    examples = (f"{name}: {', '.join(ids)}" for name, ids in repeated.items())
    concerned = (s for ids in repeated.values() for s in ids)
    yield from found("warning", "repeated-name", repeated, text, noun="name", synsets=concerned, examples=examples)
    ids = {hierarchy.name(synset): synset for synset in hierarchy}

    def of_pairs(severity: Severity, code: str, pairs: list[tuple[str, str]], text: str) -> list[Finding]:
        synsets = (ids[name] for pair in pairs for name in pair)
        examples = (f"{a!r} and {b!r}" for a, b in pairs)
        return found(severity, code, pairs, f"of names {text}", noun="pair", synsets=synsets, examples=examples)

    alike = "apart in case, punctuation or number only; merge them or rename one"
    yield from of_pairs("warning", "same-name", same_but_for_spelling(ids), alike)
    near = "one letter apart; correct the spelling where it is one word"
    yield from of_pairs("note", "near-name", nearly_same(ids), near)
    tidied = {s: tidy(hierarchy.name(s)) for s in hierarchy}
    yield from found("warning", "blank-name", [s for s in tidied if not tidied[s]], "with a blank name; rename")
    edits = [Rename(s, name) for s, name in tidied.items() if name and name != hierarchy.name(s)]
    text = "with spaces around or several within; strip them"
    yield from found("warning", "untidy-name", [e.synset for e in edits], text, noun="name", fixes=edits)


def _levels(hierarchy: Hierarchy) -> Iterator[Finding]:
    top, levels = hierarchy.root, hierarchy.levels[hierarchy.leaf_index]
    if levels.min() * 3 <= levels.max():
        shallow = tuple(hierarchy.ids[i] for i in hierarchy.leaf_index[np.argsort(levels, kind="stable")[:5]])
        text = f"leaves lie {levels.min()} to {levels.max()} steps below the root; group the shallow, flatten the deep"
        yield Finding("note", "uneven-depth", text, shallow)
    if hierarchy.depth == 1:
        text = "the hierarchy is flat: every path is one concept and explains nothing; group classes under others"
        yield Finding("note", "flat", text, (top,))
        return
    # Below a virtual root they are orphans already.
    below = () if is_virtual(top) else hierarchy.children(top)
    leaves = [s for s in below if hierarchy.is_leaf(s) and hierarchy.parents(s) == (top,)]
    text = "directly below the root, grouped by nothing; move below a concept"
    yield from found("note", "leaf-at-root", leaves, text, noun="class")
    wide = [s for s in hierarchy if len(hierarchy.children(s)) >= WIDE]
    yield from found("note", "wide", wide, f"with {WIDE} children or more; add concepts between")


def _classes(hierarchy: Hierarchy, classes: list[str]) -> list[Finding]:
    own, wanted = hierarchy.own_leaves, set(classes)
    missing = [c for c in classes if c not in hierarchy and c not in own]
    inner = [c for c in classes if c in hierarchy and not hierarchy.is_leaf(c) and c not in own]
    extra = [leaf for leaf in hierarchy.leaves if hierarchy.class_of(leaf) not in wanted]
    near = (f"{c!r}: {near_matches(c, hierarchy.ids).strip() or 'no near match'}" for c in missing[:20])
    unknown = "of the data not in the hierarchy; add below a parent, or correct the label"
    above = "of the data with concepts below; each gets a leaf of its own below itself"
    unused = "without a class of the data; left out when a model is fitted"
    return [
        *found("error", "missing-class", missing, unknown, noun="class", examples=near),
        *found("note", "inner-class", inner, above, noun="class"),
        *found("note", "extra-leaf", extra, unused, noun="leaf"),
    ]


class FileLint(NamedTuple):
    """What is wrong with a file, and the hierarchy in it, where the errors are none or safely repaired."""

    findings: list[Finding]
    hierarchy: Hierarchy | None


def lint_edges(edges: Iterable[Sequence[str]], places: Sequence[str] | None = None) -> list[Finding]:
    """Look (parent, child[, name]) rows over that may not be a hierarchy at all.

    Malformed rows, empty ids, self-loops, edges given twice, synsets with two names, every cycle, several roots; with
    the `places` where each row stands ("line 7"), by default its number.
    """
    rows = [tuple(edge) if isinstance(edge, list | tuple) else (edge,) for edge in edges]
    where = [f"row {i + 1}" for i in range(len(rows))] if places is None else list(places)
    sound = [i for i, row in enumerate(rows) if len(row) in (2, 3) and all(isinstance(part, str) for part in row)]
    whole = [i for i in sound if rows[i][0].strip() and rows[i][1].strip()]
    first: dict[tuple[str, str], int] = {}
    for i in whole:
        first.setdefault(rows[i][:2], i)

    def listed(severity: Any, code: str, at: Iterable[int], text: str, noun: str = "row") -> list[Finding]:
        shown, safe = sorted(at), set(at) <= set(whole)
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
    names: dict[str, dict[str, None]] = {}
    for i in sound:
        names.setdefault(rows[i][1], {}).update(dict.fromkeys(rows[i][2:]))
    several = {synset: given for synset, given in names.items() if len(given) > 1}
    two_names = "with several names; keep one, or give the meanings ids of their own"
    told_names = (f"{synset!r}: {quoted(given)}" for synset, given in several.items())
    cycles = []
    for cycle in (found_cycles := list(find_cycles(graph)))[:MAX_CYCLES]:
        loop = " → ".join(map(repr, [*cycle, cycle[0]]))
        text = f"a cycle of {len(cycle)} concepts: {loop}; remove one of these edges"
        cycles.append(Finding("error", "cycle", text, tuple(cycle), examples=(loop,)))
    if more := tuple(cycle[0] for cycle in found_cycles[MAX_CYCLES:]):
        cycles.append(Finding("error", "cycle", f"{len(more)} more cycles; break those above first", more))
    return [
        *listed("error", "malformed-row", odd, "other than parent, child[, name]; correct"),
        *listed("error", "empty-id", empty, "with an empty id; name the concept"),
        *listed("error", "self-loop", loops, "with a concept as its own parent; drop"),
        *listed("warning", "duplicate-edge", twice, "given before; keep one of each", "edge"),
        *found("error", "two-names", several, two_names, examples=told_names),
        *cycles,
        *_several_roots(roots if len(roots) > 1 else (), "will be"),
    ]


def lint_file(
    place: str | os.PathLike[str], classes: Iterable[str] | None = None, format: str | None = None, **options: Any
) -> FileLint:
    """Look a hierarchy file over, also one that cannot be read as a hierarchy.

    Raises HierarchyError: there is no such file, or its ending tells no format.

    Parameters
    ----------
    place : what `find_hierarchy` takes. Edge lists and this package's JSON are looked at row by row first; of other
        formats the reader's own complaint is the finding.
    classes : as for `lint`
    format, **options : as for `hcep.read_hierarchy`
    """
    if place in NAMED:
        named = NAMED[str(place)]()
        return FileLint(lint(named, classes), named)
    limits = (options.pop("max_bytes", MAX_BYTES), options.pop("timeout", 20.0))
    source = open_source(place_of(place, format), format, *limits)
    raw = None
    with suppress(HierarchyError, ValueError, RecursionError):  # the reader says what is wrong
        kinds = {"json": _json_edges, **dict.fromkeys(DELIMITERS, _table_edges)}
        raw = kinds[source.format](source) if source.format in kinds and not options else None
    findings = [] if raw is None else lint_edges(*raw[:2])
    errors = [finding for finding in findings if finding.severity == "error"]
    if any(not error.safe for error in errors):
        return FileLint(findings, None)
    try:
        hierarchy = raw[2]() if raw is not None and errors else hierarchy_in(source, **options)
    except HierarchyError as error:
        return FileLint([*findings, Finding("error", "unreadable", str(error), ())], None)
    kept = [finding for finding in findings if finding.code != "several-roots"]  # `lint` says it again
    return FileLint([*kept, *lint(hierarchy, classes)], hierarchy)


def _table_edges(source: Source) -> RawEdges | None:
    rows = edge_rows(source)
    if rows is None:
        return None
    # A row without a parent names a root, which is no error.
    is_root = [len(edge) > 1 and bool(edge[1]) and not edge[0] for _, edge in rows]
    names = {edge[1]: edge[2] for (_, edge), root in zip(rows, is_root, strict=True) if root and len(edge) == 3}
    kept = [row for row, root in zip(rows, is_root, strict=True) if not root]
    edges: list[Sequence[str]] = [edge for _, edge in kept]
    places = [f"line {line:,}" for line, _ in kept]
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
    return pairs, [f"concept {pair[1]!r}" for pair in pairs], cleaned
