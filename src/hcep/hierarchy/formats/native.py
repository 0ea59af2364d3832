"""JSON and YAML by what is in them: this package's own format, level columns, tables, maps, graphs, nested branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hcep.hierarchy import serial
from hcep.hierarchy.edges import with_lone_tops
from hcep.hierarchy.formats import breadcrumbs, nested, tables
from hcep.hierarchy.formats.column_names import PARENT, known_levels, plain
from hcep.hierarchy.formats.draft import Repeated
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.table_file import Table
from hcep.hierarchy.graph import Hierarchy

#: What graphs call the two ends of an edge, the parent's first.
ENDS = (("source", "target"), ("from", "to"), ("parent", "child"), ("obj", "sub"))
Edges = list[tuple[str, str]]


def read(
    source: Source,
    *,
    repeated: Repeated | None = None,
    levels: Sequence[str] | None = None,
    leaf: str | None = None,
    name: str | None = None,
) -> Hierarchy:
    """Read JSON: an object with ``"format": "hcep-hierarchy"`` is ours; records with ranks are level columns."""
    text = source.text()
    data = source.json(text)
    if isinstance(data, dict) and (data.get("format") == serial.FORMAT or {"synsets", "root"} <= set(data)):
        source.understood = "hierarchy file of this package"
        return Hierarchy.from_json(text.lstrip())
    if levels is not None or leaf is not None or name is not None:
        table = tables.records_table(source, data)
        return tables.from_levels(source, table, levels, leaf=leaf, name=name)
    return from_data(source, data, repeated)


def from_data(source: Source, data: Any, repeated: Repeated | None = None) -> Hierarchy:
    """The hierarchy in what JSON or YAML hold, by its shape."""
    if isinstance(data, dict) and len(data) > 1 and all(isinstance(value, dict) for value in data.values()):
        data = _keyed(data)
    if _has_levels(data):
        return tables.from_levels(source, tables.records_table(source, data))
    if isinstance(data, dict) and repeated is None:
        found = _graph(source, data) or _map(source, data)
        if found:
            return found
    if isinstance(data, list) and len(data) > 1:
        if all(isinstance(row, list) and len(row) > 1 and not any(map(_holds, row)) for row in data):
            return tables.from_table(source, Table([(i + 1, list(map(str, row))) for i, row in enumerate(data)]))
        if all(isinstance(line, str) for line in data) and (mark := breadcrumbs.find_separator(data)):
            return breadcrumbs.from_lines(source, [(i + 1, line) for i, line in enumerate(data)], mark)
        if all(isinstance(record, dict) for record in data):
            records = _by_reference(source, data) or _table(source, data)
            if records:
                return records
    return nested.from_data(source, data, repeated or "raise")


def write(hierarchy: Hierarchy, format: str) -> str:
    return hierarchy.to_json()


def _keyed(data: dict[str, dict[str, Any]]) -> Any:
    """Records by their ids as a list of records, where they name a parent, what is below or levels."""
    first = {plain(key) for key in next(iter(data.values()))}
    refers = any(map(PARENT.fullmatch, first)) or (nested.BELOW & first and "name" in first)
    if refers:
        return [{"id": key, **record} for key, record in data.items()]
    return [{**record, "name": key} for key, record in data.items()] if known_levels([*first, "name"]) else data


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _has_levels(data: Any) -> bool:
    listed = data.get("categories") if isinstance(data, dict) else data
    first = listed[0] if isinstance(listed, list) and listed else None
    return isinstance(first, dict) and not nested.BELOW & set(map(plain, first)) and bool(known_levels(first))


def _table(source: Source, records: list[dict[str, Any]]) -> Hierarchy | None:
    """Flat records that name a parent, or have the same keys and a path or neither a name nor an id."""
    keys = {key for record in records for key in record}
    parents = {key for key in keys if PARENT.fullmatch(plain(key)) and plain(key) != "source"}
    if any(_holds(value) and key not in parents for record in records for key, value in record.items()):
        return None
    table = tables.records_table(source, records)
    if parents:
        return tables.from_table(source, table)
    if len(keys) < 2 or any(set(record) != keys for record in records):
        return None
    return breadcrumbs.in_table(source, table) or (
        None if keys & {"name", "id", "children"} else tables.from_table(source, table)
    )


def _by_reference(source: Source, records: list[dict[str, Any]]) -> Hierarchy | None:
    """Records that list the ids of others as what is below them."""
    ids = [str(record.get("id", record.get("name", ""))) for record in records]
    below = [[(key, value) for key, value in r.items() if plain(key) in nested.BELOW] for r in records]
    edges = [
        (parent, str(child))
        for parent, listed in zip(ids, below, strict=True)
        for _, children in listed
        for child in (children if isinstance(children, list) else ())
        if not _holds(child)
    ]
    if not all(ids) or not set(ids) & {child for _, child in edges}:
        return None
    key = next(key for listed in below for key, _ in listed)
    names = {i: name for i, record in zip(ids, records, strict=True) if (name := _label(record))}
    return _linked(source, f"records, ids of what is below in {key!r}", with_lone_tops(edges, ids), names)


def _label(record: dict[str, Any]) -> str | None:
    labels = {plain(key): value for key, value in record.items() if isinstance(value, str)}
    return next((labels[key] for key in nested.LABELS if labels.get(key)), None)


def _map(source: Source, data: dict[str, Any]) -> Hierarchy | None:
    """An object that maps classes to their parents, or concepts to lists of what is below, whole of which is one."""
    if len(data) > 1 and all(isinstance(value, str) for value in data.values()):
        if mark := breadcrumbs.find_separator(list(data.values())):
            lines = [(i + 1, f"{key}\t{path}") for i, (key, path) in enumerate(data.items())]
            return breadcrumbs.from_lines(source, lines, mark, has_ids=True)
        if len(set(data.values())) < len(data) and not all(key.isdigit() for key in data):
            edges = [(above, below) for below, above in data.items()]
            return _linked(source, "map of classes to their parents", edges, {})
        nested.refuse_index(source, data)
        raise source.fail(
            "it maps every name to another of its own: ids and their names are no hierarchy; parents and children are "
            "rows of parent, child in a .csv"
        )
    listed = {key: value or [] for key, value in data.items()}
    if not all(isinstance(v, list) and all(isinstance(child, str) for child in v) for v in listed.values()):
        return None
    firsts = Counter(value[0] for value in listed.values() if value)
    if len(data) > 2 and len({len(value) for value in listed.values()}) == 1 and 0 < 2 * len(firsts) <= len(data):
        rows = [[f"level {i + 1}" for i in range(len(next(iter(listed.values()))))], *listed.values()]
        names = ["name", *listed]
        return tables.from_table(source, Table([(i, [*row, names[i]]) for i, row in enumerate(rows)]))
    edges = [(above, below) for above, children in listed.items() for below in children]
    again = set(data) & {below for _, below in edges}
    return _linked(source, "map of concepts to what is below", with_lone_tops(edges, listed), {}) if again else None


def _graph(source: Source, data: dict[str, Any]) -> Hierarchy | None:
    """A graph as its nodes and its edges: networkx's and d3's, and OBO graphs."""
    listed = data.get("graphs")
    graphs = [graph for graph in (listed if isinstance(listed, list) else [data]) if isinstance(graph, dict)]
    nodes = [node for graph in graphs for node in _records(graph.get("nodes"))]
    links = [link for graph in graphs for link in _records(graph.get("edges", graph.get("links")))]
    edges = list(_ends(links))
    if not nodes or not edges or not all("id" in node for node in nodes):
        return None
    used = {end for edge in edges for end in edge}
    names = {str(node["id"]): label for node in nodes if (label := _label(node)) and str(node["id"]) in used}
    n_alone = len({str(node["id"]) for node in nodes} - used)
    source.notes += [f"passed over: {counted(len(links) - len(edges), 'other relation')}"] * (len(edges) < len(links))
    source.notes += [f"passed over: {counted(n_alone, 'node')} without an edge"] * (n_alone > 0)
    return _linked(source, "graph of nodes and edges", edges, names)


def _records(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ends(links: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for link in links:
        if str(link.get("pred", "is_a")) == "is_a":
            yield from ((str(link[p]), str(link[c])) for p, c in ENDS if p in link and c in link)


def _linked(source: Source, understood: str, edges: Edges, names: dict[str, str]) -> Hierarchy:
    source.understood = f"{'YAML' if source.format == 'yaml' else 'JSON'} {understood}"
    return Hierarchy.from_edges(edges, names)
