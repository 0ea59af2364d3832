"""What an XML file may declare before it is parsed: nothing outside it, and no entities that unfold into a flood.

Ours and not `defusedxml`: that refuses every entity or none, while older tools write the namespaces of an ontology as
entities (``&owl;Class``); and rdflib and pronto bring parsers of their own, which it does not reach.
"""

from __future__ import annotations

from xml.parsers import expat

from hcep.hierarchy.formats.source import Source

MAX_ENTITY = 500
MAX_GROWTH = 3  # times the file: what namespaces written as entities come to is far below


class _DeclarationsOver(Exception):  # noqa: N818 # no error: it ends the parsing
    """The first element has come."""


def refuse_unsafe_xml(source: Source) -> None:
    """Refuse external entities and definitions, entities made of entities, and those that multiply the file."""
    entities: dict[str, str] = {}

    def declared(name: str, is_parameter: bool, value: str | None, *outside: str | None) -> None:
        if is_parameter or value is None or any(outside[1:]):
            raise source.fail(f"XML entity {name!r} comes from outside the file; such entities are not read")
        if len(value) > MAX_ENTITY or set("&%<") & set(value):
            raise source.fail(f"XML entity {name!r} unfolds into more than a short text; such entities are not read")
        entities[name] = value

    def doctype(name: str, system: str | None, public: str | None, has_internal: bool) -> None:
        if system is not None or public is not None:
            raise source.fail(f"XML DOCTYPE names a definition outside the file, {system!r}; remove the DOCTYPE")

    def attribute(element: str, name: str, *rest: object) -> None:
        raise source.fail(f"XML DOCTYPE gives <{element}> the attribute {name!r}; such files are not read")

    def element(name: str, attributes: dict[str, str]) -> None:
        raise _DeclarationsOver

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = declared
    parser.AttlistDeclHandler = attribute  # its default comes with every element: a flood without an entity
    parser.StartElementHandler = element
    try:
        parser.Parse(source.data, True)
    except _DeclarationsOver:
        pass
    except expat.ExpatError as error:
        raise source.fail(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    if entities:
        # Counting needs the text itself, so a file that declares entities must be in UTF-8.
        text = source.text()
        grown = sum(text.count(f"&{name};") * len(value) for name, value in entities.items())
        if grown > MAX_GROWTH * len(text) + 1_000_000:
            raise source.fail(f"XML entities unfold {len(text):,} characters into {grown:,}; such a file is not read")
