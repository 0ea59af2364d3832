"""The shapes of nested JSON in YAML. Only its events are read: nothing is constructed, every scalar is text."""

from __future__ import annotations

import re
from typing import Any

from hcep._optional import require
from hcep.hierarchy.formats import native, nested
from hcep.hierarchy.formats.draft import Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.writing import outline_order, refuse_deep
from hcep.hierarchy.graph import Hierarchy

NULLS = ("", "~", "null", "Null", "NULL")
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_ -]*(?<! )")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
MAX_DEPTH = 10_010  # what `write` makes of its deepest hierarchy
ESCAPED = re.compile(r'["\\]|[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]')


def read(source: Source, *, repeated: Repeated | None = None) -> Hierarchy:
    """Read nested YAML; `repeated` says what a name in several places means (see `Draft`).

    Anchors, aliases and tags are refused: the first can unfold a small file into a huge one, the last call code.
    """
    return native.from_data(source, _data(source), repeated)


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write the records of nested JSON in YAML's block style."""
    refuse_deep(hierarchy, format)
    lines = []
    for depth, synset, _, again in outline_order(hierarchy):
        record = [f"{key}: {_scalar(value)}" for key, value in nested.identified(hierarchy, synset).items()]
        if not again and not hierarchy.is_leaf(synset):
            record.append("children:")
        indent = "  " * depth
        first = "" if depth == 0 else f"{indent[2:]}- "
        lines += [(first if i == 0 else indent) + text for i, text in enumerate(record)]
    return "\n".join(lines) + "\n"


def _data(source: Source) -> Any:
    """The one document of a YAML file as dicts, lists, strings and None."""
    yaml = require("yaml", "formats", "reading YAML")
    text = source.text()
    # libyaml's parser is ten times quicker, and not in every build of the package.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    building = _Building(source)
    try:
        for event in yaml.parse(text, Loader=loader):
            building.take(event, type(event).__name__)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise source.fail(f"is not YAML: {error.problem}", line) from None
    except yaml.YAMLError as error:
        raise source.fail(f"is not YAML: {str(error).splitlines()[0]}") from None
    return building.document


class _Building:
    """Collections put together event by event, without recursion."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.document: Any = None
        self._n_documents = 0
        self._open: list[tuple[Any, list[Any]]] = []  # each collection with the key it waits to give a value

    def take(self, event: Any, kind: str) -> None:
        line = event.start_mark.line + 1
        if kind == "AliasEvent" or getattr(event, "anchor", None):
            raise self.source.fail("YAML anchors and aliases are not read; write the branch out", line)
        if getattr(event, "tag", None) not in (None, "!"):
            raise self.source.fail(f"YAML tags such as {event.tag} are not read; remove it", line)
        if kind == "DocumentStartEvent" and self._n_documents:
            raise self.source.fail("holds a second YAML document; expected one", line)
        self._n_documents += kind == "DocumentStartEvent"
        if kind == "ScalarEvent":
            self._put(None if not event.style and event.value in NULLS else event.value, line)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            if len(self._open) >= MAX_DEPTH:  # the parser's time grows with the square of the depth
                raise self.source.fail(f"is nested more than {MAX_DEPTH:,} deep; write it as an edge list (.csv)", line)
            self._open.append(({} if kind == "MappingStartEvent" else [], []))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._put(self._open.pop()[0], line)

    def _put(self, value: Any, line: int) -> None:
        if not self._open:
            self.document = value
            return
        collection, key = self._open[-1]
        if isinstance(collection, list):
            collection.append(value)
        elif key:
            collection[key.pop()] = value
        elif not isinstance(value, str):
            raise self.source.fail("a key must be a name", line)
        elif value in collection:
            raise self.source.fail(f"{value!r} stands twice in one mapping; remove one of them", line)
        else:
            key.append(value)


def _scalar(text: str) -> str:
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    return '"' + ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
