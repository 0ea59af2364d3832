"""JSON, by its content: our own format, level columns, tables, maps, graphs, nested branches.

Branches are objects in objects and lists, or {"name": ..., "children": [...]} as in d3.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hcep.errors import HierarchyError, counted, cut, quote, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.columns import Cells, Columns, Role
from hcep.hierarchy.edges import with_lone_tops
from hcep.hierarchy.formats import breadcrumbs, tables
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_file import PARENT, RANK_COLUMNS, Table, is_identity, known_levels, plain
from hcep.hierarchy.formats.tables import Option, Titles
from hcep.hierarchy.formats.writing import outline_order
from hcep.hierarchy.graph import Hierarchy

#: Keys under which records have their children, and their name.
BELOW = frozenset(("children", "child ids", "subcategory", "subcategories", "nodes", "items", "subclasses", "narrower"))
LABELS = ("name", "label", "title", "text", "label name", "lbl", "category")
EXPECTED = 'an object, a list, a name, null, or {"name": ..., "children": [...]}'
#: Keys of the two ends of an edge in graphs, the parent's first.
ENDS = (("source", "target"), ("from", "to"), ("parent", "child"), ("obj", "sub"))
Edges = list[tuple[str, str]]
Record = dict[str, Any]
#: Label, name, whether the label is an id in the file, and other names and the rank, by their keys.
Item = tuple[str, str | None, bool, Cells]


def read_json(
    source: Source,
    *,
    repeated: Repeated | None = None,
    levels: Titles = None,
    leaf: Option = None,
    name: Option = None,
) -> Hierarchy:
    """Read JSON: our own format, records with ranks as level columns, or any of the shapes of `from_data`."""
    text = source.text()
    data = source.json(text)
    if isinstance(data, dict) and (data.get("format") == serial.FORMAT or {"synsets", "root"} <= set(data)):
        source.understood = "hierarchy file of this package"
        return Hierarchy.from_json(text.lstrip())
    if levels is not None or leaf is not None or name is not None:
        return tables.from_levels(source, tables.records_table(source, data), levels, leaf=leaf, name=name)
    return from_data(source, data, repeated)


def write_json(hierarchy: Hierarchy, format: str) -> str:
    return hierarchy.to_json()


def read(source: Source, *, repeated: Repeated = "raise") -> Hierarchy:
    """Read nested JSON; `repeated` says what a name in several places means (see `Draft`).

    A record's ``"id"`` identifies its concept: two records with one id are one concept with two parents.
    """
    return from_branches(source, source.json(), repeated)


def from_data(source: Source, data: Any, repeated: Repeated | None = None) -> Hierarchy:
    """The hierarchy in data from JSON, by its shape."""
    if isinstance(data, dict) and len(data) > 1 and all(isinstance(value, dict) for value in data.values()):
        data = _keyed(data)
    listed = data.get("categories") if isinstance(data, dict) else data
    first = listed[0] if isinstance(listed, list) and listed else None
    if isinstance(first, dict) and not BELOW & set(map(plain, first)) and known_levels(first):
        return tables.from_levels(source, tables.records_table(source, data))
    hierarchy = None
    if isinstance(data, dict) and repeated is None:
        hierarchy = _graph(source, data) or _map(source, data)
    if isinstance(data, list) and len(data) > 1:
        if all(isinstance(row, list) and len(row) > 1 and not any(map(_is_nested, row)) for row in data):
            return tables.from_table(source, Table([(i + 1, list(map(str, row))) for i, row in enumerate(data)]))
        if all(isinstance(line, str) for line in data) and (mark := breadcrumbs.find_separator(data)):
            return breadcrumbs.from_lines(source, [(i + 1, line) for i, line in enumerate(data)], mark)
        if all(isinstance(record, dict) for record in data):
            hierarchy = _by_reference(source, data) or _table(source, data)
    return hierarchy or from_branches(source, data, repeated or "raise")


def _keyed(data: dict[str, Record]) -> Any:
    """Records by id as a list of records, if they have a parent, children or levels."""
    first = {plain(key) for key in next(iter(data.values()))}
    if any(map(PARENT.fullmatch, first)) or (BELOW & first and "name" in first):
        return [{"id": key, **record} for key, record in data.items()]
    return [{**record, "name": key} for key, record in data.items()] if known_levels([*first, "name"]) else data


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _table(source: Source, records: list[Record]) -> Hierarchy | None:
    """Flat records with a parent, or with the same keys and either a path or neither a name nor an id."""
    keys = {key for record in records for key in record}
    parents = {key for key in keys if PARENT.fullmatch(plain(key)) and plain(key) != "source"}
    if any(_is_nested(value) and key not in parents for record in records for key, value in record.items()):
        return None
    table = tables.records_table(source, records)
    if parents:
        return tables.from_table(source, table)
    if len(keys) < 2 or any(set(record) != keys for record in records):
        return None
    nameless = not keys & {"name", "id", "children"}
    return breadcrumbs.in_table(source, table) or (tables.from_table(source, table) if nameless else None)


def _by_reference(source: Source, records: list[Record]) -> Hierarchy | None:
    """Records that list the ids of their children."""
    ids = [str(record.get("id", record.get("name", ""))) for record in records]
    below = [{key: value for key, value in r.items() if plain(key) in BELOW} for r in records]
    listed = [(parent, v) for parent, r in zip(ids, below, strict=True) for v in r.values() if isinstance(v, list)]
    edges = [(parent, str(child)) for parent, children in listed for child in children if not _is_nested(child)]
    if not all(ids) or not set(ids) & {child for _, child in edges}:
        return None
    key = next(key for r in below for key in r)
    names = _labels(zip(ids, records, strict=True))
    return _linked(source, f"records, ids of children in {quote(key)}", with_lone_tops(edges, ids), names)


def _labels(records: Iterable[tuple[str, Record]]) -> dict[str, str]:
    """The names of records, by id."""
    names: dict[str, str] = {}
    for synset, record in records:
        labels = {plain(key): value for key, value in record.items() if isinstance(value, str)}
        if label := next((labels[key] for key in LABELS if labels.get(key)), None):
            names[synset] = label
    return names


def _map(source: Source, data: Record) -> Hierarchy | None:
    """An object that maps classes to their parents, or concepts to lists of their children."""
    if len(data) > 1 and all(isinstance(value, str) for value in data.values()):
        if mark := breadcrumbs.find_separator(list(data.values())):
            lines = [(i + 1, f"{key}\t{path}") for i, (key, path) in enumerate(data.items())]
            return breadcrumbs.from_lines(source, lines, mark, has_ids=True)
        if len(set(data.values())) < len(data) and not all(key.isdigit() for key in data):
            return _linked(source, "map of classes to their parents", [(above, below) for below, above in data.items()])
        _refuse_index(source, data)
        raise source.fail(
            "it maps every name to a different one: ids and their names are not a hierarchy; for parents and children "
            "write rows of parent, child in a .csv"
        )
    listed = {key: value or [] for key, value in data.items()}
    if not all(isinstance(v, list) and all(isinstance(child, str) for child in v) for v in listed.values()):
        return None
    firsts = Counter(value[0] for value in listed.values() if value)
    if len(data) > 2 and len({len(value) for value in listed.values()}) == 1 and 0 < 2 * len(firsts) <= len(data):
        header = [f"level {i + 1}" for i in range(len(next(iter(listed.values()))))]
        rows = [("name", header), *listed.items()]
        return tables.from_table(source, Table([(i, [*row, name]) for i, (name, row) in enumerate(rows)]))
    edges = [(above, below) for above, children in listed.items() for below in children]
    again = set(data) & {below for _, below in edges}
    return _linked(source, "map of concepts to their children", with_lone_tops(edges, listed)) if again else None


def _graph(source: Source, data: Record) -> Hierarchy | None:
    """A graph as nodes and edges: networkx's, d3's and OBO graphs."""
    several = data.get("graphs")
    graphs = [graph for graph in (several if isinstance(several, list) else [data]) if isinstance(graph, dict)]
    nodes = _records(graph.get("nodes") for graph in graphs)
    links = _records(graph.get("edges", graph.get("links")) for graph in graphs)
    kinds = [link for link in links if str(link.get("pred", "is_a")) == "is_a"]
    edges = [(str(link[p]), str(link[c])) for link in kinds for p, c in ENDS if p in link and c in link]
    if not nodes or not edges or not all("id" in node for node in nodes):
        return None
    used = {end for edge in edges for end in edge}
    names = _labels((str(node["id"]), node) for node in nodes if str(node["id"]) in used)
    n_alone = len({str(node["id"]) for node in nodes} - used)
    source.notes += [f"skipped: {counted(len(links) - len(edges), 'other relation')}"] * (len(edges) < len(links))
    source.notes += [f"skipped: {counted(n_alone, 'node')} without an edge"] * (n_alone > 0)
    return _linked(source, "graph of nodes and edges", edges, names)


def _records(values: Iterable[Any]) -> list[Record]:
    return [item for value in values if isinstance(value, list) for item in value if isinstance(item, dict)]


def _linked(source: Source, understood: str, edges: Edges, names: dict[str, str] | None = None) -> Hierarchy:
    source.understood = f"JSON {understood}"
    return Hierarchy.from_edges(edges, names)


def from_branches(source: Source, data: Any, repeated: Repeated) -> Hierarchy:
    """Read nested Python objects of any depth."""
    if isinstance(data, str) or not isinstance(data, dict | list):
        raise source.fail(f"expected {EXPECTED}; got {_short(data)}")
    for part in (data, *(data.values() if isinstance(data, dict) else ())):
        _refuse_index(source, part)
    source.understood = "nested JSON"
    draft, cells = Draft(source, repeated), dict[int, Cells]()
    keys = _record_keys(data)
    waiting: list[tuple[Item, Any, int | None]] = [(*entry, None) for entry in _entries(draft, data, None, keys)[::-1]]
    while waiting:
        (label, name, has_id, fields), value, parent = waiting.pop()
        here = draft.add(label, parent, name=name, has_id=has_id)
        cells |= {here: fields} if fields else {}
        waiting += [(*entry, here) for entry in _entries(draft, value, here, keys)[::-1]]
    source.notes += [f"fields of records that were ignored: {quoted(draft.ignored)}"] if draft.ignored else []
    hierarchy = draft.hierarchy()
    ranks = {draft.ids[i]: text for i, own in cells.items() for key, text in own.items() if plain(key) in RANK_COLUMNS}
    others = {i: {key: text for key, text in own.items() if plain(key) not in RANK_COLUMNS} for i, own in cells.items()}
    rows = {draft.ids[i]: [own] for i, own in others.items() if own}
    roles: dict[str, Role] = {key: "other" for own in others.values() for key in own}
    hierarchy = hierarchy.with_columns(Columns(roles, rows)) if rows else hierarchy
    return tables.with_rank_cells(source, hierarchy, ranks, "rank")


def _refuse_index(source: Source, data: Any) -> None:
    """Refuse an object that maps numbers to classes."""
    if isinstance(data, dict) and len(data) > 1 and all(k.isdigit() and isinstance(v, str) for k, v in data.items()):
        raise source.fail(
            "it maps numbers to names, which is a list of classes and not a hierarchy; use names of concepts as keys "
            "and their children as values"
        )


def _record_keys(data: Any) -> tuple[str, str]:
    """The keys under which records have their name and their children, usually "name" and "children"."""
    counts: Counter[tuple[str, str]] = Counter()
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            named = {plain(key): key for key, text in value.items() if isinstance(text, str)}
            label = next((named[key] for key in LABELS if key in named), "name" if "id" in value else None)
            counts.update((label, k) for k, v in value.items() if label and plain(k) in BELOW and isinstance(v, list))
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return counts.most_common(1)[0][0] if counts else ("name", "children")


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write {"name", "children"}, with an "id" if it is not the name; descendants are written only once."""
    top: dict[str, Any] = {}
    record = {hierarchy.root: top}
    for _, synset, parent, again in outline_order(hierarchy):
        entry = top if parent is None else {}
        entry.update(_identified(hierarchy, synset))
        if parent is not None:
            record[parent].setdefault("children", []).append(entry)
        if not again:
            record[synset] = entry
    try:
        return json.dumps(top, ensure_ascii=False, indent=1) + "\n"
    except RecursionError:
        message = f"nested JSON cannot hold {hierarchy.depth:,} levels; write .csv or .json"
        raise HierarchyError(message) from None


def _identified(hierarchy: Hierarchy, synset: str) -> dict[str, str]:
    """The name of a concept, its id if that differs or the concept appears in several places, rank and other names."""
    name, rank = hierarchy.name(synset), hierarchy.ranks.get(synset)
    own = {"name": name} if name == synset and len(hierarchy.parents(synset)) < 2 else {"id": synset, "name": name}
    own |= {"rank": rank} if rank else {}
    columns = hierarchy.columns or Columns({})
    rows = columns.rows.get(synset, [])
    others = {title: dict.fromkeys(row[title] for row in rows if title in row) for title in columns.titles("other")}
    return {**{title: "; ".join(texts) for title, texts in others.items() if texts}, **own}


def _entries(draft: Draft, value: Any, parent: int | None, keys: tuple[str, str]) -> list[tuple[Item, Any]]:
    """The concepts in a value, each with the value below it."""
    (label, below), source = keys, draft.source
    where = "" if parent is None else f"below {quote(draft.branches[parent].label)}: "
    if value is None:
        return []
    if isinstance(value, str):
        return [((value, None, False, {}), None)]
    if isinstance(value, list):
        if wrong := [item for item in value if item is None or isinstance(item, list)]:
            raise source.fail(f"{where}a list contains {_short(wrong[0])}; expected names or objects")
        return [entry for item in value for entry in _entries(draft, item, parent, keys)]
    if not isinstance(value, dict):
        raise source.fail(f"{where}expected {EXPECTED}; got {_short(value)}")
    labelled = isinstance(value.get(label, value.get("id")), str) and not any(map(_is_nested, value.values()))
    is_record = (label in value or "id" in value) if below in value else labelled
    if not is_record:  # its keys are concepts
        return [((key, None, False, {}), lower) for key, lower in value.items()]
    draft.ignored |= dict.fromkeys(key for key, other in value.items() if key != below and other and _is_nested(other))
    identity, name = value.get("id"), value.get(label)
    if name is not None and not isinstance(name, str):
        raise source.fail(f'{where}"{label}" must be a string, got {_short(name)}')
    # d3 numbers its records: a number may be an id.
    if identity is not None and (not isinstance(identity, str | int) or isinstance(identity, bool)):
        raise source.fail(f'{where}"id" must be a string or an integer, got {_short(identity)}')
    texts = {key: text.strip() for key, text in value.items() if isinstance(text, str) and key not in (label, "id")}
    fields = {k: text for k, text in texts.items() if text and (plain(k) in RANK_COLUMNS or is_identity(k))}
    entry = (str(name), None, False, fields) if identity is None else (str(identity), name, True, fields)
    return [(entry, value.get(below))]


def _short(value: Any) -> str:
    """A JSON value in a message, shortened."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    return cut(json.dumps(value, ensure_ascii=False))
