"""OBO ontologies (HPO, RadLex, Uberon, ...) line by line; OWL, SKOS thesauri and RDFS class trees by rdflib.

OBO has one reader, ours: strict parsers refuse many published files, so a lenient one is needed in any case.
"""

import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal
from xml.parsers import expat

from hcep._checks import require
from hcep.errors import HierarchyError, counted, cut, quote, quoted
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.graph import Hierarchy

TAG = re.compile(r"[A-Za-z][\w-]*")
ESCAPED = re.compile(r"\\(.)")
SYNTAX = {"turtle": "turtle", "rdf": "xml", "owl": "xml", "ntriples": "nt", "jsonld": "json-ld"}
#: Addresses of OBO's terms, which its tools write as ``HP:0000118``.
OBO_ADDRESS = re.compile(r"http://purl\.obolibrary\.org/obo/([^#_/]+)_(.+)")
#: Characters of an XML entity, number of entities, and how much longer they may make the file: namespaces stay far
#: below all three.
MAX_ENTITY, MAX_ENTITIES, MAX_GROWTH = 500, 200, 3

#: Tags and values of a stanza.
Stanza = dict[str, list[str]]


def read_obo(source: Source, *, relationships: str | Sequence[str] = ("is_a",)) -> Hierarchy:
    """Read the terms of an OBO ontology; obsolete terms are skipped, imports are not followed.

    `relationships` are what makes a parent: ``"is_a"``, and ids or names of relationships such as ``"part_of"``.
    """
    source.understood = "OBO ontology"
    stanzas, skipped = _stanzas(source)
    terms = stanzas["[term]"]
    if not terms:
        raise source.fail("has no terms; expected OBO: lines such as '[Term]', 'id: X:1' and 'is_a: X:2'")
    current = {term: tags for term, tags in terms.items() if tags.get("is_obsolete") != ["true"]}
    relation_ids = {name: i for i, tags in stanzas["[typedef]"].items() for name in (i, *tags.get("name", ()))}
    wanted = [relation_ids.get(kind, kind) for kind in _listed(relationships)]
    parents: dict[str, list[str]] = {}
    for term, tags in current.items():
        related = [value.split()[:2] for value in tags.get("relationship", ())]
        by_kind = [tags.get(k, []) if k == "is_a" else [pair[-1] for pair in related if pair[0] == k] for k in wanted]
        parents[term] = [parent for several in by_kind for parent in sorted(several)]
    undefined = [parent for several in parents.values() for parent in several if parent not in terms]
    if undefined and not skipped:
        raise source.fail(
            f"{quote(undefined[0])} is a parent but not a term of this file; imports are not followed: merge them "
            "first (robot merge), or read a complete release"
        )
    edges = [
        (p, term) for term, several in parents.items() for p in dict.fromkeys(several) if p in current and p != term
    ]
    names = {term: ESCAPED.sub(_unescaped, tags["name"][0]) for term, tags in current.items() if "name" in tags}
    counts = {
        f"line|without 'tag: value', from line {min(skipped, default=0):,}": len(skipped),
        "obsolete term": len(terms) - len(current),
        "parent|that is not a term of this file": len(undefined),
    }
    return _from_terms(source, edges, names, current, counts, wanted, ["is_a", *stanzas["[typedef]"]])


def _stanzas(source: Source) -> tuple[dict[str, dict[str, Stanza]], list[int]]:
    """The terms and relationships of an OBO file by id, and the numbers of the lines that cannot be read."""
    stanzas: dict[str, dict[str, Stanza]] = {"[term]": {}, "[typedef]": {}}
    skipped: list[int] = []
    kind, tags = "", Stanza()
    for number, line in enumerate(source.lines(), start=1):
        text = line.partition(" !")[0].strip()
        if text.startswith("["):
            kind, tags = text.casefold(), {}
        elif kind in stanzas and text and not text.startswith("!"):
            tag, colon, value = text.partition(":")
            value = _without_qualifiers(value.strip())
            if not colon or not value or not TAG.fullmatch(tag):
                skipped.append(number)
                continue
            tags.setdefault(tag, []).append(value)
            if tag == "id":
                stanzas[kind][value] = tags
    return stanzas, skipped


def _without_qualifiers(value: str) -> str:
    """A value without what follows it in braces, as in ``is_a: X:1 {is_inferred="true"}``."""
    before, opening, inside = value.rpartition("{")
    closed = inside.endswith("}") and inside.count("}") == 1 and not inside.endswith("\\}")
    return before.rstrip() if opening and closed and not before.endswith("\\") else value


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "W": " "}.get(match[1], match[1])


def _listed(relationships: str | Sequence[str]) -> tuple[str, ...]:
    return (relationships,) if isinstance(relationships, str) else tuple(relationships)


def _from_terms(
    source: Source,
    edges: Sequence[tuple[str, str]],
    names: Mapping[str, str],
    terms: Iterable[str],
    counts: Mapping[str, int],
    wanted: Sequence[str],
    known: Sequence[str],
) -> Hierarchy:
    """The hierarchy of an ontology's edges, with notes on what was skipped."""
    if not edges:
        others = [kind for kind in known if kind not in wanted]
        hint = "expected terms with a parent each, such as 'is_a: ID' in OBO"
        if others and "is_a" not in wanted:
            choose = f"choose with relationships= (-O relationships={others[0]} on the command line)"
            hint = f"it has {quoted(others, 9)}: {choose}"
        raise source.fail(f"no term has a parent by {quoted(wanted)}; {hint}")
    linked = {term for edge in edges for term in edge}
    alone = {"term|without parents and children": len(set(terms) - linked)}
    _note_skipped(source, {**counts, **alone})
    return Hierarchy.from_edges(edges, {term: name for term, name in names.items() if term in linked})


def _note_skipped(source: Source, counts: Mapping[str, int]) -> None:
    """Note how many of each thing were skipped: a noun, and more about it after a bar."""
    for what, n in counts.items():
        noun, _, more = what.partition("|")
        source.notes += [f"skipped: {counted(n, noun)}{' ' * bool(more)}{more}"] if n else []


def read_owl(source: Source, *, relationships: str | Sequence[str] = ("is_a",)) -> Hierarchy:
    """Read the classes of an OWL ontology in RDF/XML; deprecated classes are skipped, imports are not followed.

    `relationships` are what makes a parent: ``"is_a"``, and ids or labels of properties such as ``"part of"``, by
    restrictions "some values from".
    """
    start = source.data[:2_000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"Prefix(", b"Ontology(", b"@prefix", b"Prefix:")):
        raise source.fail(
            "is OWL, but not in RDF/XML; pass format='turtle' (--format turtle on the command line) "
            "for Turtle, or convert it (robot convert --output x.obo)"
        )
    if b"<Ontology" in start and b"rdf:RDF" not in start:
        raise source.fail("is OWL/XML; expected OWL in RDF/XML: convert it (robot convert --output x.obo)")
    source.understood = "OWL ontology"
    rdflib = require("rdflib", "formats", "reading OWL")
    graph, wanted = _graph(source, rdflib), _listed(relationships)
    deprecated = _deprecated(graph, rdflib)
    kinds = {"is_a": list(_edges(graph, rdflib, (rdflib.RDFS.subClassOf,)))}
    for restriction, target in graph.subject_objects(rdflib.OWL.someValuesFrom):
        for relation in graph.objects(restriction, rdflib.OWL.onProperty):
            pairs = [(target, child) for child in graph.subjects(rdflib.RDFS.subClassOf, restriction)]
            for name in {_short(relation), *map(str, graph.objects(relation, rdflib.RDFS.label))}:
                kinds.setdefault(name, []).extend(pairs)
    classes = [c for c in graph.subjects(rdflib.RDF.type, rdflib.OWL.Class) if isinstance(c, rdflib.URIRef)]
    edges = [pair for kind in wanted for pair in sorted(set(kinds.get(kind, ()))) if not deprecated & set(pair)]
    names = {_short(c): _name(graph, rdflib, c, "en") or _short(c) for pair in edges for c in pair}
    return _from_terms(
        source,
        [(_short(parent), _short(child)) for parent, child in edges],
        names,
        {_short(c) for c in classes if c not in deprecated},
        {"obsolete term": len(deprecated)},
        wanted,
        list(kinds),
    )


def _short(address: Any) -> str:
    """An address as OBO's tools write it, ``HP:0000118``; others as they are."""
    match = OBO_ADDRESS.fullmatch(str(address))
    return f"{match[1]}:{match[2]}" if match else str(address)


def read_rdf(source: Source, *, language: str = "en", ids: Literal["iri", "local"] = "iri") -> Hierarchy:
    """Read skos:broader, skos:narrower and rdfs:subClassOf; deprecated resources are skipped.

    `language` is that of the names (skos:prefLabel, then rdfs:label); without one in it, a label without a language is
    used, then any. `ids` are complete addresses, or what follows their last ``#`` or ``/``.
    """
    if ids not in ("iri", "local"):
        raise HierarchyError(f"ids must be 'iri' or 'local', got {quote(ids)}")
    source.understood = "SKOS or RDFS"
    rdflib = require("rdflib", "formats", "reading RDF")
    graph = _graph(source, rdflib)
    deprecated = _deprecated(graph, rdflib)
    pairs = _edges(graph, rdflib, (rdflib.SKOS.broader, rdflib.RDFS.subClassOf), rdflib.SKOS.narrower)
    # A graph has no order: edges are sorted, so that the same file gives the same hierarchy.
    edges = sorted({pair for pair in pairs if not deprecated & set(pair)})
    _note_skipped(source, {"deprecated resource": len(deprecated)})
    if not edges:
        raise source.fail("has no skos:broader, skos:narrower or rdfs:subClassOf between named resources")
    known = _ids(source, sorted({r for edge in edges for r in edge}), ids)
    names = {known[r]: name for r in known if (name := _name(graph, rdflib, r, language))}
    return Hierarchy.from_edges([(known[p], known[c]) for p, c in edges], names)


def _graph(source: Source, rdflib: Any) -> Any:
    if SYNTAX[source.format] == "xml":
        _refuse_unsafe_xml(source)
    else:
        source.text()
    if source.format == "jsonld":
        _refuse_remote_context(source, source.json())
    graph = rdflib.Graph()
    try:
        # The address stands for the file in relative references; nothing is fetched from it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from one part of rdflib about another
            logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)  # invalid dates do not matter here
            graph.parse(data=source.data, format=SYNTAX[source.format], publicID="file:///")
    except RecursionError:
        raise source.fail("is nested too deeply to be read") from None
    except IndexError:
        raise source.fail(
            f"is not {source.format} that rdflib can read: it ends in the middle of a statement"
        ) from None
    except Exception as error:  # each parser raises errors of its own, even plain Exception
        first, *others = (str(error) or type(error).__name__).splitlines()
        place = re.match(r"at line (\d+) of", first)
        reason, line = others[0] if place and others else first, int(place[1]) if place else None
        raise source.fail(f"is not {source.format} that rdflib can read: {cut(reason)}", line) from None
    return graph


def _refuse_remote_context(source: Source, data: Any) -> None:
    """Refuse a JSON-LD context given by its address, which would be fetched while parsing."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            context = value.get("@context")
            listed = context if isinstance(context, list) else [context]
            remote = [c for c in (*listed, value.get("@import")) if isinstance(c, str)]
            if remote:
                raise source.fail(
                    f"its context is at another address, {quote(remote[0])}; write the context into the file"
                )
            waiting += value.values()


def _deprecated(graph: Any, rdflib: Any) -> set[Any]:
    return {s for s, value in graph.subject_objects(rdflib.OWL.deprecated) if str(value) in ("true", "1")}


def _edges(graph: Any, rdflib: Any, upwards: Sequence[Any], *downwards: Any) -> Iterator[tuple[Any, Any]]:
    """(parent, child) pairs of named resources, by predicates that point up and predicates that point down."""
    pairs = [(above, below) for predicate in upwards for below, above in graph.subject_objects(predicate)]
    pairs += [pair for predicate in downwards for pair in graph.subject_objects(predicate)]
    own = (str(rdflib.OWL), str(rdflib.SKOS), str(rdflib.RDFS))
    for above, below in pairs:
        named = isinstance(above, rdflib.URIRef) and isinstance(below, rdflib.URIRef)
        # Every class is a subclass of itself and of owl:Thing, and some tools write it down.
        if named and above != below and not str(above).startswith(own):
            yield above, below


def _ids(source: Source, resources: list[Any], ids: str) -> dict[Any, str]:
    if ids == "iri":
        return {resource: str(resource) for resource in resources}
    known = {r: str(r).rstrip("#/").replace("#", "/").rsplit("/", 1)[-1] for r in resources}
    first: dict[str, Any] = {}
    for resource, name in known.items():
        other = first.setdefault(name, resource)
        if other != resource:
            raise source.fail(
                f"{quote(str(other))} and {quote(str(resource))} are both {quote(name)} by local name; pass ids='iri'"
            )
    return known


def _name(graph: Any, rdflib: Any, resource: Any, language: str) -> str | None:
    def distance(tag: str, wanted: str) -> int:
        """0 for the wanted language, then its regions, no language, any other."""
        return 0 if tag == wanted else 1 if tag.startswith(f"{wanted}-") else 2 if not tag else 3

    for predicate in (rdflib.SKOS.prefLabel, rdflib.RDFS.label):
        texts = [o for o in graph.objects(resource, predicate) if hasattr(o, "language") and str(o).strip()]
        labels = sorted((str(o.language or ""), str(o)) for o in texts)
        if labels:
            return min(labels, key=lambda label: (distance(label[0].lower(), language.lower()), label))[1]
    return None


class _DeclarationsOver(Exception):  # noqa: N818 # not an error: it ends the parsing
    """The first element begins."""


def _refuse_unsafe_xml(source: Source) -> None:
    """Refuse external entities and definitions, entities made of entities, and those that multiply the file.

    `defusedxml` would refuse every entity or none, while older tools write the namespaces of an ontology as entities
    (``&owl;Class``); and it does not reach the parser that rdflib brings.
    """
    entities: dict[str, str] = {}

    def declared(name: str, is_parameter: bool, value: str | None, *outside: str | None) -> None:
        if is_parameter or value is None or any(outside[1:]):
            raise source.fail(f"XML entity {quote(name)} comes from outside the file; such entities are not supported")
        if len(value) > MAX_ENTITY or set("&%<") & set(value):
            raise source.fail(
                f"XML entity {quote(name)} expands to more than a short text; such entities are not supported"
            )
        entities[name] = value

    def doctype(name: str, system: str | None, public: str | None, has_internal: bool) -> None:
        if system is not None or public is not None:
            raise source.fail(f"XML DOCTYPE names a definition outside the file, {quote(system)}; remove the DOCTYPE")

    def attribute(element: str, name: str, *rest: object) -> None:
        raise source.fail(f"XML DOCTYPE gives <{element}> the attribute {quote(name)}; such files are not supported")

    def element(name: str, attributes: dict[str, str]) -> None:
        raise _DeclarationsOver

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = declared
    parser.AttlistDeclHandler = attribute  # its default comes with every element and can flood the reader
    parser.StartElementHandler = element
    try:
        parser.Parse(source.data, True)
    except _DeclarationsOver:
        pass
    except expat.ExpatError as error:
        raise source.fail(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    if len(entities) > MAX_ENTITIES:
        raise source.fail(
            f"declares {len(entities):,} XML entities, more than {MAX_ENTITIES}; such files are not supported"
        )
    if entities:
        # Counting needs the text itself, so a file that declares entities must be in UTF-8.
        text = source.text()
        grown = sum(text.count(f"&{name};") * len(value) for name, value in entities.items())
        if grown > MAX_GROWTH * len(text) + 1_000_000:
            raise source.fail(
                f"XML entities expand {len(text):,} characters to {grown:,}; such files are not supported"
            )
