"""The JSON format of a hierarchy, version 1: plain text, checked when it is read, never executed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, to_builtins

from hcep._checks import convert_record
from hcep._files import regular
from hcep.errors import HierarchyError, quote
from hcep.hierarchy.columns import Columns

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

FORMAT = "hcep-hierarchy"
VERSION = 1


class Synset(Struct):
    """One concept of the file; its first parent comes first."""

    id: str
    name: str | None = None
    parents: Annotated[list[str], Meta(description="a list of ids")] = []
    merged: Annotated[list[tuple[str, str]], Meta(description="a list of [id, name] pairs")] = []


class HierarchyRecord(Struct):
    """The content of a file, with the right types but not yet checked to be a DAG."""

    root: str
    synsets: list[Synset]
    classes: dict[str, str] = {}
    ranks: dict[str, str] = {}
    columns: Columns | None = None


def dumps(hierarchy: "Hierarchy") -> str:
    """The text of a hierarchy, one concept per line so that a diff shows what changed."""
    lines = []
    for synset in hierarchy:
        above, merged = hierarchy.parents(synset), hierarchy.merged(synset)
        # The own leaf of a class has the name of that class.
        usual = (
            hierarchy.name(label) if (label := hierarchy.class_of(synset)) in hierarchy and label != synset else synset
        )
        name = None if hierarchy.name(synset) == usual else hierarchy.name(synset)
        record = {"id": synset, "name": name, "parents": above, "merged": merged}
        fields = {key: value for key, value in record.items() if value not in (None, ())}
        lines.append("    " + json.dumps(fields, ensure_ascii=False))
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "root": hierarchy.root,
        "classes": dict(hierarchy.own_leaves),
    }
    if hierarchy.ranks:
        head["ranks"] = dict(hierarchy.ranks)
    if hierarchy.columns:
        head["columns"] = to_builtins(hierarchy.columns)
    opening = json.dumps(head, ensure_ascii=False, indent=2).removesuffix("\n}")
    return opening + ',\n  "synsets": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def loads(source: str | Path) -> HierarchyRecord:
    """Read a file or its text, and check that types are right, ids are unique and every concept is reachable."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    try:
        text = str(source) if is_text else regular(source).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HierarchyError(f"no hierarchy file at {str(source)!r}") from None
    except (OSError, ValueError) as error:  # a directory, another encoding, text that is neither JSON nor a path
        reason = getattr(error, "strerror", None) or error
        raise HierarchyError(f"{str(source)[:80]!r} is not a hierarchy file: {reason}") from None
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HierarchyError(f"not a hierarchy file: invalid JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise HierarchyError(f'not a hierarchy file: expected a JSON object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        advice = f"this release reads version {VERSION}: upgrade hcep"
        raise HierarchyError(f"hierarchy file of version {quote(data.get('version'))}; {advice}")
    record = convert_record(data, HierarchyRecord, "hierarchy file", HierarchyError)
    known: set[str] = set()
    for synset in record.synsets:
        if synset.id in known:
            raise HierarchyError(f"hierarchy file: concept {quote(synset.id)} appears twice; keep one")
        if not synset.parents and synset.id != record.root:
            raise HierarchyError(
                f"hierarchy file: concept {quote(synset.id)} has no parents and is not the root {quote(record.root)}; "
                'give it "parents" or remove it'
            )
        known.add(synset.id)
    inner = dict.fromkeys(parent for synset in record.synsets for parent in synset.parents)
    missing = [named for named in (*record.classes.values(), record.root, *inner) if named not in known]
    if missing:
        message = f'{quote(missing[0])} is a root, parent or class but is not in "synsets"; add it there'
        raise HierarchyError(f"hierarchy file: {message}")
    for label, leaf in record.classes.items():
        if leaf in inner:
            message = (
                f"the leaf of class {quote(label)} is {quote(leaf)}, which has concepts below it; it must be a leaf"
            )
            raise HierarchyError(f"hierarchy file: {message}")
    return record
