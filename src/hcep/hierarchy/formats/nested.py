"""Branches inside branches, in JSON: objects in objects and lists, or {"name": ..., "children": [...]} (d3)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.formats.column_names import plain
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.writing import outline_order
from hcep.hierarchy.graph import Hierarchy

#: What records call what is below them, and themselves.
BELOW = frozenset(("children", "child ids", "subcategory", "subcategories", "nodes", "items", "subclasses", "narrower"))
LABELS = ("name", "label", "title", "text", "label name", "lbl", "category")
EXPECTED = 'an object, a list, a name, null, or {"name": ..., "children": [...]}'


def read(source: Source, *, repeated: Repeated = "raise") -> Hierarchy:
    """Read nested JSON; `repeated` says what a name in several places means (see `Draft`).

    A record's ``"id"`` identifies its synset: two records with one id are one synset with two parents.
    """
    return from_data(source, source.json(), repeated)


def from_data(source: Source, data: Any, repeated: Repeated) -> Hierarchy:
    """Read nested Python objects, however deep."""
    if isinstance(data, str) or not isinstance(data, dict | list):
        raise source.fail(f"expected {EXPECTED}; got {_shown(data)}")
    for part in (data, *(data.values() if isinstance(data, dict) else ())):
        refuse_index(source, part)
    source.understood = "nested YAML" if source.format == "yaml" else "nested JSON"
    draft = Draft(source, repeated)
    keys = _record_keys(data)
    top: int | None = None
    waiting = [(*found, top) for found in _entries(draft, data, None, keys)[::-1]]
    while waiting:
        (label, name, has_id), value, parent = waiting.pop()
        here = draft.add(label, parent, name=name, has_id=has_id)
        waiting += [(*found, here) for found in _entries(draft, value, here, keys)[::-1]]
    return draft.hierarchy()


def refuse_index(source: Source, data: Any) -> None:
    """Refuse an object that numbers its classes."""
    if isinstance(data, dict) and len(data) > 1 and all(k.isdigit() and isinstance(v, str) for k, v in data.items()):
        raise source.fail(
            "it maps numbers to names, which is a list of classes and no hierarchy; give names of concepts as keys, "
            "what is below them as values"
        )


def _record_keys(data: Any) -> tuple[str, str]:
    """What records call their name, and what is below them: name and children, as a rule."""
    found: Counter[tuple[str, str]] = Counter()
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            named = {plain(key): key for key, text in value.items() if isinstance(text, str)}
            label = next((named[key] for key in LABELS if key in named), "name" if "id" in value else None)
            found.update((label, k) for k, v in value.items() if label and plain(k) in BELOW and isinstance(v, list))
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found.most_common(1)[0][0] if found else ("name", "children")


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write {"name", "children"}, with the "id" where it is not the name; what is below a synset stands only once."""
    top: dict[str, Any] = {}
    record = {hierarchy.root: top}
    for _, synset, parent, again in outline_order(hierarchy):
        entry = top if parent is None else {}
        entry.update(identified(hierarchy, synset))
        if parent is not None:
            record[parent].setdefault("children", []).append(entry)
        if not again:
            record[synset] = entry
    try:
        return json.dumps(top, ensure_ascii=False, indent=1) + "\n"
    except RecursionError:
        raise HierarchyError(
            f"nested JSON cannot hold {hierarchy.depth:,} levels; write .csv, .yaml or .json"
        ) from None


def identified(hierarchy: Hierarchy, synset: str) -> dict[str, str]:
    """The name of a synset, and its id where it has another or stands in several places."""
    name = hierarchy.name(synset)
    return {"name": name} if name == synset and len(hierarchy.parents(synset)) < 2 else {"id": synset, "name": name}


Entry = tuple[str, str | None, bool]  # label, name, whether the label is an id that the file gives


def _entries(draft: Draft, value: Any, parent: int | None, keys: tuple[str, str]) -> list[tuple[Entry, Any]]:
    """The synsets that a value lists, each with what is below it."""
    if value is None:
        return []
    if isinstance(value, str):
        return [((value, None, False), None)]
    if isinstance(value, list):
        if wrong := [item for item in value if item is None or isinstance(item, list)]:
            told = f"a list holds {_shown(wrong[0])}; expected names or objects"
            raise draft.source.fail(f"{_where(draft, parent)}{told}")
        return [found for item in value for found in _entries(draft, item, parent, keys)]
    if not isinstance(value, dict):
        raise draft.source.fail(f"{_where(draft, parent)}expected {EXPECTED}; got {_shown(value)}")
    if _is_record(value, *keys):
        left = quoted(
            [key for key, other in value.items() if key != keys[1] and other and isinstance(other, dict | list)]
        )
        note = f"fields left out of records: {left}"
        draft.source.notes += [note] if left and note not in draft.source.notes else []
        return [(_entry(draft, value, parent, keys[0]), value.get(keys[1]))]
    return [((key, None, False), below) for key, below in value.items()]


def _is_record(value: dict[str, Any], label: str, below: str) -> bool:
    """Whether an object describes one synset, rather than listing synsets by its keys."""
    if below in value:
        return label in value or "id" in value
    labelled = isinstance(value.get(label, value.get("id")), str)
    return labelled and not any(isinstance(below, dict | list) for below in value.values())


def _entry(draft: Draft, record: dict[str, Any], parent: int | None, label: str) -> Entry:
    identity, name = record.get("id"), record.get(label)
    if name is not None and not isinstance(name, str):
        raise draft.source.fail(f'{_where(draft, parent)}"{label}" must be a string, got {_shown(name)}')
    # d3 numbers its records: a number is an id as good as another.
    if identity is not None and (not isinstance(identity, str | int) or isinstance(identity, bool)):
        raise draft.source.fail(f'{_where(draft, parent)}"id" must be a string or an integer, got {_shown(identity)}')
    if identity is None:
        return str(name), None, False
    return str(identity), name, True


def _where(draft: Draft, parent: int | None) -> str:
    return "" if parent is None else f"below {draft.branches[parent].label!r}: "


def _shown(value: Any) -> str:
    """A value of JSON in a message, whatever its size."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
