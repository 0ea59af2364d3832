"""OBO and OWL ontologies (HPO, RadLex, Uberon, ...) by pronto; SKOS thesauri and RDFS class trees by rdflib."""

import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from hcep._checks import require
from hcep.errors import HierarchyError, counted, quoted
from hcep.hierarchy.graph import Hierarchy
from hcep.taxonomy.formats.source import Source

TAG = re.compile(r"[A-Za-z][\w-]*")
#: Qualifiers behind a value of OBO: ``is_a: X:1 {is_inferred="true"}``.
TRAILING = re.compile(r"\s*\{[^{}]*\}\s*$")
SYNTAX = {"turtle": "turtle", "rdf": "xml", "ntriples": "nt", "jsonld": "json-ld"}
#: Characters of an XML entity, and how many times the file they may come to: namespaces stay far below.
MAX_ENTITY, MAX_GROWTH = 500, 3


def read(source: Source, *, relationships: Sequence[str] = ("is_a",)) -> Hierarchy:
    """Read the terms of an ontology; obsolete ones are passed over, imports are not followed.

    `relationships` are what makes a parent: ``"is_a"``, and ids or names of relationships such as ``"part_of"``.
    """
    wanted = (relationships,) if isinstance(relationships, str) else tuple(relationships)
    source.understood = f"{source.format.upper()} ontology"
    try:
        ontology = _ontology(source)
    except _GaveUpError as error:
        found = _line_by_line(source, wanted, str(error)) if source.format == "obo" else None
        if found is None:
            raise HierarchyError(str(error)) from None
        return found
    terms = [term for term in ontology.terms() if not term.obsolete]
    n_obsolete = len(ontology.terms()) - len(terms)
    kept = {term.id for term in terms}
    edges = [edge for term in terms for edge in _parents(term, wanted, kept)]
    if not edges:
        known = ["is_a", *sorted(relation.id for relation in ontology.relationships())]
        others = [kind for kind in known if kind not in wanted]
        hint = "expected terms with a parent each, such as 'is_a: ID' in OBO"
        if others:
            choose = f"choose with relationships= (-O relationships={others[0]} on the command line)"
            hint = f"it has {quoted(others, 9)}: {choose}"
        raise source.fail(f"no term has a parent by {quoted(wanted)}; {hint}")
    linked = {synset for edge in edges for synset in edge}
    _pass_over(source, {"obsolete term": n_obsolete, "term|without parents and children": len(kept - linked)})
    return Hierarchy.from_edges(edges, {term.id: term.name for term in terms if term.name and term.id in linked})


class _GaveUpError(HierarchyError):
    """The strict parser cannot read the file."""


def _line_by_line(source: Source, wanted: Sequence[str], reason: str) -> Hierarchy | None:
    """Terms, names and parents of an OBO file that the strict parser refuses; None where there are none."""
    terms: dict[str, dict[str, list[str]]] = {}
    term: dict[str, list[str]] = {}
    skipped: list[int] = []
    inside = False
    for number, line in enumerate(source.lines(), start=1):
        text = line.partition(" !")[0].strip()
        if text.startswith("["):
            inside, term = text.casefold() == "[term]", {}
        elif inside and text and not text.startswith("!"):
            tag, colon, value = text.partition(":")
            value = TRAILING.sub("", value).strip()
            if not colon or not value or not TAG.fullmatch(tag):
                skipped.append(number)
                continue
            term.setdefault(tag, []).append(value)
            if tag == "id":
                terms[value] = term
    kept = {synset: term for synset, term in terms.items() if term.get("is_obsolete") != ["true"]}
    edges, dangling = [], 0
    for synset, term in kept.items():
        related = [pair.split()[:2] for pair in term.get("relationship", [])]
        above: list[str] = []  # in the strict parser's order
        for kind in wanted:
            above += sorted(term.get("is_a", []) if kind == "is_a" else [p[-1] for p in related if p[0] == kind])
        edges += [(parent, synset) for parent in dict.fromkeys(above) if parent in kept and parent != synset]
        dangling += sum(parent not in terms for parent in above)
    if not edges:
        return None
    linked = {synset for edge in edges for synset in edge}
    source.notes.append(
        f"the strict parser refuses it ({reason.removeprefix(source.name).strip(', :')}): terms, names and "
        "parents were read line by line, everything else of it was skipped"
    )
    told = {
        f"line|without 'tag: value', from line {min(skipped, default=0):,}": len(skipped),
        "obsolete term": len(terms) - len(kept),
        "parent|that is no term of this file": dangling,
        "term|without parents and children": len(kept.keys() - linked),
    }
    _pass_over(source, told)
    return Hierarchy.from_edges(edges, {s: kept[s]["name"][0] for s in kept if s in linked and "name" in kept[s]})


def _pass_over(source: Source, counts: dict[str, int]) -> None:
    """Note what is passed over: how many of each noun, with what is said of it after a bar."""
    for what, n in counts.items():
        noun, _, more = what.partition("|")
        source.notes += [f"passed over: {counted(n, noun)}{' ' * bool(more)}{more}"] if n else []


def _ontology(source: Source) -> Any:
    pronto = require("pronto", "formats", f"reading {source.format.upper()}")
    if source.format == "owl":
        start = source.data[:2_000].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith((b"Prefix(", b"Ontology(", b"@prefix", b"Prefix:")):
            raise source.fail(
                "is OWL, but not in RDF/XML; pass format='turtle' (-O format=turtle on the command line) "
                "for Turtle, or convert it (robot convert --output x.obo)"
            )
        if b"<Ontology" in start and b"rdf:RDF" not in start:
            raise source.fail("is OWL/XML; expected OWL in RDF/XML: convert it (robot convert --output x.obo)")
        _refuse_unsafe_xml(source)
    else:
        source.text()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # pronto takes an encoding only with a path, and guesses it, sometimes wrongly, without one.
        copy = Path(folder) / f"ontology.{source.format}"
        # It stumbles over a byte order mark, and over lines of comment in OBO.
        data = source.data.removeprefix(b"\xef\xbb\xbf")
        copy.write_bytes(re.sub(rb"(?m)^[ \t]*![^\r\n]*", b"", data) if source.format == "obo" else data)
        warnings.simplefilter("ignore")  # it warns of every axiom beyond what a hierarchy needs
        try:
            return pronto.Ontology(copy, import_depth=0, encoding="utf-8")
        except SyntaxError as error:
            raise _GaveUpError(str(source.fail(f"is not {source.format.upper()}: {error.msg}", error.lineno))) from None
        except KeyError as error:
            raise source.fail(
                f"{error.args[0]!r} is a parent but no term of this file; imports are not followed: merge them first "
                "(robot merge), or read a release that is whole"
            ) from None
        except Exception as error:  # malformed content comes out of it as errors of many kinds, down to re.error
            reason = str(error).replace(str(copy), source.name) or type(error).__name__
            raise _GaveUpError(str(source.fail(f"cannot be read as {source.format.upper()}: {reason}"))) from None
        except BaseException as error:
            # The parser below pronto is in Rust; where it gives up on itself, the error is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            told = f"cannot be read as {source.format.upper()}: its parser gave up ({error})"
            raise _GaveUpError(str(source.fail(told))) from None


def _parents(term: Any, wanted: Sequence[str], kept: set[str]) -> Iterator[tuple[str, str]]:
    found: list[str] = []
    for kind in wanted:
        related = [terms for relation, terms in term.relationships.items() if kind in (relation.id, relation.name)]
        several = [term.superclasses(1, with_self=False)] if kind == "is_a" else related
        found += sorted(above.id for terms in several for above in terms)
    return ((above, term.id) for above in dict.fromkeys(found) if above in kept and above != term.id)


def read_rdf(source: Source, *, language: str = "en", ids: Literal["iri", "local"] = "iri") -> Hierarchy:
    """Read skos:broader, skos:narrower and rdfs:subClassOf; deprecated resources are passed over.

    `language` is that of the names (skos:prefLabel, then rdfs:label); without one in it, a label without a language,
    then any. `ids` are whole addresses, or what follows their last ``#`` or ``/``.
    """
    if ids not in ("iri", "local"):
        raise HierarchyError(f"ids must be 'iri' or 'local', got {ids!r}")
    source.understood = "SKOS or RDFS"
    rdflib = require("rdflib", "formats", "reading RDF")
    graph = _graph(source, rdflib)
    deprecated = {s for s, value in graph.subject_objects(rdflib.OWL.deprecated) if str(value) in ("true", "1")}
    edges = [(p, c) for p, c in _edges(graph, rdflib) if p not in deprecated and c not in deprecated]
    _pass_over(source, {"deprecated resource": len(deprecated)})
    if not edges:
        raise source.fail("holds no skos:broader, skos:narrower or rdfs:subClassOf between named resources")
    # A graph has no order: sorted, so that the same file gives the same hierarchy.
    edges = sorted(set(edges))
    known = _ids(source, sorted({r for edge in edges for r in edge}), ids)
    names = {known[r]: name for r in known if (name := _name(graph, rdflib, r, language))}
    return Hierarchy.from_edges([(known[p], known[c]) for p, c in edges], names)


def _graph(source: Source, rdflib: Any) -> Any:
    if source.format == "rdf":
        _refuse_unsafe_xml(source)
    else:
        source.text()
    if source.format == "jsonld":
        _refuse_remote_context(source, source.json())
    graph = rdflib.Graph()
    try:
        # The address stands for the file in relative references; nothing is fetched from it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of one of its parts by another
            logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)  # a date that is none is nothing to us
            graph.parse(data=source.data, format=SYNTAX[source.format], publicID="file:///")
    except RecursionError:
        raise source.fail("is nested too deeply to be read") from None
    except IndexError:
        raise source.fail(f"is not {source.format} that rdflib can read: it ends within a statement") from None
    except Exception as error:  # each of its parsers raises errors of its own, down to plain Exception
        first, *others = (str(error) or type(error).__name__).splitlines()
        place = re.match(r"at line (\d+) of", first)
        reason, line = others[0] if place and others else first, int(place[1]) if place else None
        raise source.fail(f"is not {source.format} that rdflib can read: {reason}", line) from None
    return graph


def _refuse_remote_context(source: Source, data: Any) -> None:
    """A JSON-LD context given by its address would be fetched while parsing."""
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
                raise source.fail(f"its context is at another place, {remote[0]!r}; write the context into the file")
            waiting += value.values()


def _edges(graph: Any, rdflib: Any) -> Iterator[tuple[Any, Any]]:
    """(parent, child) pairs of named resources."""
    upwards = (rdflib.SKOS.broader, rdflib.RDFS.subClassOf)
    pairs = [(above, below) for predicate in upwards for below, above in graph.subject_objects(predicate)]
    pairs += list(graph.subject_objects(rdflib.SKOS.narrower))
    own = (str(rdflib.OWL), str(rdflib.SKOS), str(rdflib.RDFS))
    for above, below in pairs:
        named = isinstance(above, rdflib.URIRef) and isinstance(below, rdflib.URIRef)
        # Every class is a subclass of itself and of owl:Thing; some tools write it down, or whose kinds they are.
        if named and above != below and not str(above).startswith(own):
            yield above, below


def _ids(source: Source, resources: list[Any], ids: str) -> dict[Any, str]:
    if ids == "iri":
        return {resource: str(resource) for resource in resources}
    known = {r: str(r).rstrip("#/").replace("#", "/").rsplit("/", 1)[-1] for r in resources}
    first: dict[str, Any] = {}
    for resource, synset in known.items():
        other = first.setdefault(synset, resource)
        if other != resource:
            raise source.fail(f"{str(other)!r} and {str(resource)!r} are both {synset!r} by local name; pass ids='iri'")
    return known


def _name(graph: Any, rdflib: Any, resource: Any, language: str) -> str | None:
    def distance(found: str, wanted: str) -> int:
        """0 for the language asked for, then its regions, no language, any other."""
        return 0 if found == wanted else 1 if found.startswith(f"{wanted}-") else 2 if not found else 3

    for predicate in (rdflib.SKOS.prefLabel, rdflib.RDFS.label):
        texts = [o for o in graph.objects(resource, predicate) if hasattr(o, "language") and str(o).strip()]
        labels = sorted((str(o.language or ""), str(o)) for o in texts)
        if labels:
            return min(labels, key=lambda label: (distance(label[0].lower(), language.lower()), label))[1]
    return None


class _DeclarationsOver(Exception):  # noqa: N818 # no error: it ends the parsing
    """The first element has come."""


def _refuse_unsafe_xml(source: Source) -> None:
    """Refuse external entities and definitions, entities made of entities, and those that multiply the file.

    Ours and not `defusedxml`: that refuses every entity or none, while older tools write the namespaces of an ontology
    as entities (``&owl;Class``); and rdflib and pronto bring parsers of their own, which it does not reach.
    """
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
