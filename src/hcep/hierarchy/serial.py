"""The JSON schema of a hierarchy, version 1: plain text, checked on the way in, never executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hcep.errors import HierarchyError

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

FORMAT = "hcep-hierarchy"
VERSION = 1


class HierarchyRecord(NamedTuple):
    """A file's content, of the right types but not yet known to be a DAG."""

    root: str
    edges: list[tuple[str, str]]
    names: dict[str, str]
    merged: dict[str, tuple[tuple[str, str], ...]]
    classes: dict[str, str]
    order: dict[str, int]


def dumps(hierarchy: Hierarchy) -> str:
    """The text of a hierarchy, one synset per line so that a diff shows what changed."""
    lines = []
    for synset in hierarchy:
        name, above, merged = hierarchy.name(synset), hierarchy.parents(synset), hierarchy.merged(synset)
        record = {"id": synset, "name": name if name != synset else None, "parents": above, "merged": merged}
        given = {key: value for key, value in record.items() if value not in (None, ())}
        lines.append("    " + json.dumps(given, ensure_ascii=False))
    head = {"format": FORMAT, "version": VERSION, "root": hierarchy.root, "classes": dict(hierarchy.own_leaves)}
    opening = json.dumps(head, ensure_ascii=False, indent=2).removesuffix("\n}")
    return opening + ',\n  "synsets": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def loads(source: str | Path) -> HierarchyRecord:
    """Read a file or its text and check every field's type."""
    text = source if isinstance(source, str) and source.lstrip().startswith("{") else _read(Path(source))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HierarchyError(f"not a hierarchy file: invalid JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise HierarchyError(f'not a hierarchy file: expected a JSON object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        told = f"hierarchy file of version {data.get('version')!r}; this release reads version {VERSION}: upgrade hcep"
        raise HierarchyError(told)
    return _record(data)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HierarchyError(f"no hierarchy file at {str(path)!r}") from None
    except (OSError, ValueError) as error:  # a directory, another encoding, text that is neither JSON nor a path
        reason = getattr(error, "strerror", None) or error
        raise HierarchyError(f"{str(path)[:80]!r} is not a hierarchy file: {reason}") from None


def _record(data: dict[str, Any]) -> HierarchyRecord:
    root, synsets, classes = data.get("root"), data.get("synsets"), data.get("classes", {})
    named_classes = isinstance(classes, dict) and all(isinstance(leaf, str) for leaf in classes.values())
    if not isinstance(root, str) or not isinstance(synsets, list) or not named_classes:
        told = 'hierarchy file: "root" must be a string, "synsets" a list, "classes" an object of strings'
        raise HierarchyError(told)
    record = HierarchyRecord(root, [], {}, {}, dict(classes), {})
    for synset in synsets:
        _add(record, synset)
    named = [*classes.values(), root, *(parent for parent, _ in record.edges)]
    missing = [synset for synset in named if synset not in record.order]
    if missing:
        raise HierarchyError(
            f'hierarchy file: {missing[0]!r} is named as root, parent or class but is not in "synsets"; add it there'
        )
    inner = {parent for parent, _ in record.edges}
    not_leaves = [c for c, synset in classes.items() if synset in inner]
    if not_leaves:
        raise HierarchyError(
            f"hierarchy file: class {not_leaves[0]!r} stands for {classes[not_leaves[0]]!r}, which has synsets below "
            "it; a class is a leaf"
        )
    return record


def _add(record: HierarchyRecord, synset: Any) -> None:
    if not isinstance(synset, dict) or not isinstance(synset.get("id"), str):
        raise HierarchyError(f'hierarchy file: every synset needs a string "id"; got {synset!r}')
    key, name = synset["id"], synset.get("name")
    parents, merged = synset.get("parents", []), synset.get("merged", [])
    if key in record.order:
        raise HierarchyError(f"hierarchy file: synset {key!r} stands there twice; keep one")
    if name is not None and not isinstance(name, str):
        raise HierarchyError(f"hierarchy file: the name of synset {key!r} must be a string, got {name!r}")
    if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
        raise HierarchyError(f"hierarchy file: the parents of synset {key!r} must be a list of ids, got {parents!r}")
    if not isinstance(merged, list) or not all(
        isinstance(m, list) and len(m) == 2 and all(isinstance(part, str) for part in m) for m in merged
    ):
        raise HierarchyError(f"hierarchy file: merged of synset {key!r} must be [id, name] pairs, got {merged!r}")
    if not parents and key != record.root:
        raise HierarchyError(
            f"hierarchy file: synset {key!r} has no parents and is not the root {record.root!r}, so nothing "
            'reaches it; give it "parents" or remove it'
        )
    record.order[key] = len(record.order)
    record.edges.extend((parent, key) for parent in parents)
    if name is not None:
        record.names[key] = name
    if merged:
        record.merged[key] = tuple((m[0], m[1]) for m in merged)
