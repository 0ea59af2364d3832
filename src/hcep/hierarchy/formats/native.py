"""JSON: this package's own format, or by its content nested objects or level columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcep.hierarchy import serial
from hcep.hierarchy.formats import edge_list, levels as level_columns, nested
from hcep.hierarchy.formats.column_names import PARENT, known_levels, plain
from hcep.hierarchy.formats.draft import Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.graph import Hierarchy


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
    if levels is not None or leaf is not None or name is not None or _has_levels(data):
        table = level_columns.records_table(source, data)
        return level_columns.from_table(source, table, levels, leaf=leaf, name=name)
    if _is_table(data):
        return edge_list.from_table(source, level_columns.records_table(source, data))
    return nested.from_data(source, data, repeated or "raise")


def write(hierarchy: Hierarchy, format: str) -> str:
    return hierarchy.to_json()


def _is_table(data: Any) -> bool:
    """Whether JSON is a list of flat records with the same keys, that name a parent or neither a name nor an id."""
    if not isinstance(data, list) or len(data) < 2 or not all(isinstance(record, dict) for record in data):
        return False
    keys = set(data[0])
    flat = not any(isinstance(value, dict | list) for record in data for value in record.values())
    told = any(PARENT.fullmatch(plain(key)) for key in keys) or not keys & {"name", "id", "children"}
    return flat and told and len(keys) > 1 and all(set(record) == keys for record in data)


def _has_levels(data: Any) -> bool:
    listed = data.get("categories") if isinstance(data, dict) else data
    first = listed[0] if isinstance(listed, list) and listed else None
    return isinstance(first, dict) and "children" not in first and bool(known_levels(first))
