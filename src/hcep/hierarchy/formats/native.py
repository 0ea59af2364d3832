"""JSON: this package's own format, or by its content nested objects or level columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcep.hierarchy import serial
from hcep.hierarchy.formats import levels as level_columns, nested
from hcep.hierarchy.formats.draft import Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.table_shape import known_levels
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
    return nested.from_data(source, data, repeated or "raise")


def write(hierarchy: Hierarchy, format: str) -> str:
    return hierarchy.to_json()


def _has_levels(data: Any) -> bool:
    listed = data.get("categories") if isinstance(data, dict) else data
    first = listed[0] if isinstance(listed, list) and listed else None
    return isinstance(first, dict) and "children" not in first and bool(known_levels(first))
