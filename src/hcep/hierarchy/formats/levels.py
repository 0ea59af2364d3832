"""Level columns: a row a class, a column a level, as taxonomies are kept (iNaturalist's categories among them)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hcep.errors import near_matches, quoted
from hcep.hierarchy.formats.draft import Draft
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.graph import Hierarchy

#: Columns that are numbered, the highest level first.
NUMBERED = re.compile(r"level_?(\d+)")
RANKS = ("domain", "superkingdom", "kingdom", "phylum", "class", "order", "family", "subfamily", "genus", "species")

Record = Mapping[str, str]


def read(
    source: Source, *, levels: Sequence[str] | None = None, leaf: str | None = None, name: str | None = None
) -> Hierarchy:
    """Read level columns from a CSV, a TSV, or a JSON list of records (also under ``"categories"``).

    Parameters
    ----------
    levels : sequence of str, optional
        Columns from the highest level to the lowest. By default the biological ranks among the columns, with ``name``
        as the lowest where there is no ``species``; or ``level1, level2, ...``; or ``supercategory`` and ``name``
        (COCO).
    leaf : column with the ids of the classes, such as iNaturalist's ``image_dir_name``; the lowest level by default
    name : column with the display names of the classes, such as ``common_name``
    """
    text = source.text()
    if text.lstrip().startswith(("{", "[")):
        return from_records(source, source.json(text), levels, leaf, name)
    from hcep.hierarchy.formats.edge_list import table

    delimiter = "\t" if "\t" in text.split("\n", 1)[0] else ","
    return from_table(source, list(table(source, delimiter)), levels, leaf, name)


def known_levels(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that are levels by their names, highest first; none where there are fewer than two."""
    present = {column.lower(): column for column in columns}
    numbers = {int(match[1]): present[match[0]] for match in map(NUMBERED.fullmatch, present) if match}
    ranks = [present[rank] for rank in RANKS if rank in present] or [numbers[number] for number in sorted(numbers)]
    if "name" in present and "species" not in present:
        ranks.append(present["name"])
    if len(ranks) < 2 or ranks[0].lower() == "name":
        ranks = []
    if not ranks and {"supercategory", "name"} <= set(present):
        ranks = [present["supercategory"], present["name"]]
    return tuple(ranks)


def from_table(
    source: Source,
    rows: Sequence[tuple[int, Sequence[str]]],
    levels: Sequence[str] | None,
    leaf: str | None,
    name: str | None,
) -> Hierarchy:
    """Read rows below a header."""
    columns = list(rows[0][1])
    twice = [column for column, n in Counter(columns).items() if column and n > 1]
    if twice:
        raise source.fail(f"column {twice[0]!r} stands twice in the header; rename one", rows[0][0])
    records = []
    for line, cells in rows[1:]:
        if len(cells) > len(columns):
            raise source.fail(f"expected {len(columns)} cells, as in the header; got {len(cells)}", line)
        records.append((line, dict(zip(columns, cells, strict=False))))
    return _hierarchy(source, records, columns, levels, leaf, name)


def from_records(
    source: Source, data: Any, levels: Sequence[str] | None, leaf: str | None, name: str | None
) -> Hierarchy:
    """Read a list of JSON records, or an object with one under ``"categories"``."""
    listed = data.get("categories") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(record, dict) for record in listed):
        raise source.fail('expected a list of records such as {"kingdom": "Animalia", ..., "name": "Felis catus"}')
    records = [(None, {k: "" if v is None else str(v) for k, v in record.items()}) for record in listed]
    return _hierarchy(source, records, dict.fromkeys(c for _, r in records for c in r), levels, leaf, name)


def _hierarchy(
    source: Source,
    records: Sequence[tuple[int | None, Record]],
    columns: Iterable[str],
    levels: Sequence[str] | None,
    leaf: str | None,
    name: str | None,
) -> Hierarchy:
    columns = list(columns)
    chosen = known_levels(columns) if levels is None else tuple([levels] if isinstance(levels, str) else levels)
    if not chosen:
        raise source.fail(
            f"none of the columns {quoted(columns, 9)} is known as a level; pass levels=[highest, ...] "
            "(-O levels=highest,... on the command line)"
        )
    for column in (*chosen, *([leaf] if leaf else []), *([name] if name else [])):
        if column not in columns:
            raise source.fail(f"has no column {column!r}; it has {quoted(columns, 9)}.{near_matches(column, columns)}")
    draft = Draft(source, "qualify")
    for line, record in records:
        _add(draft, line, record, chosen, leaf, name)
    return draft.hierarchy()


def _add(
    draft: Draft, line: int | None, record: Record, levels: Sequence[str], leaf: str | None, name: str | None
) -> None:
    # A level that a row leaves empty is passed over: what is below hangs from the level above.
    *above, lowest = [cell for level in levels if (cell := record.get(level, "").strip())] or [""]
    if not lowest:
        raise draft.source.fail(f"a row without a value in any of the levels {quoted(levels, 9)}", line)
    parent = None
    for label in above:
        parent = draft.add(label, parent, line=line, same=True)
    label = record.get(leaf, "").strip() if leaf else lowest
    shown = record.get(name, "").strip() if name else ""
    draft.add(label, parent, name=shown or (lowest if leaf else None), line=line, same=True)
