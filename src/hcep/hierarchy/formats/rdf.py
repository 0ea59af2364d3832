"""SKOS thesauri and RDFS class trees in any syntax of RDF, parsed by rdflib."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from hcep._optional import require
from hcep.errors import HierarchyError
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.xml_guard import refuse_unsafe_xml
from hcep.hierarchy.graph import Hierarchy

SYNTAX = {"turtle": "turtle", "rdf": "xml", "ntriples": "nt", "jsonld": "json-ld"}


def read(source: Source, *, language: str = "en", ids: Literal["iri", "local"] = "iri") -> Hierarchy:
    """Read skos:broader, skos:narrower and rdfs:subClassOf; deprecated resources are passed over.

    Parameters
    ----------
    language : of the names (skos:prefLabel, then rdfs:label); without one in it, a label without a language, then any
    ids : {"iri", "local"}; whole addresses, or what follows their last ``#`` or ``/``
    """
    if ids not in ("iri", "local"):
        raise HierarchyError(f"ids must be 'iri' or 'local', got {ids!r}")
    source.understood = "SKOS or RDFS"
    rdflib = require("rdflib", "formats", "reading RDF")
    graph = _graph(source, rdflib)
    deprecated = {s for s, value in graph.subject_objects(rdflib.OWL.deprecated) if str(value) in ("true", "1")}
    edges = [(p, c) for p, c in _edges(graph, rdflib) if p not in deprecated and c not in deprecated]
    if deprecated:
        source.notes.append(f"passed over: {counted(len(deprecated), 'deprecated resource')}")
    if not edges:
        raise source.fail("holds no skos:broader, skos:narrower or rdfs:subClassOf between named resources")
    # A graph has no order: sorted, so that the same file gives the same hierarchy.
    edges = sorted(set(edges))
    known = _ids(source, sorted({r for edge in edges for r in edge}), ids)
    names = {known[r]: name for r in known if (name := _name(graph, rdflib, r, language))}
    return Hierarchy.from_edges([(known[p], known[c]) for p, c in edges], names)


def _graph(source: Source, rdflib: Any) -> Any:
    if source.format == "rdf":
        refuse_unsafe_xml(source)
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
        reason, line = _told(error)
        raise source.fail(f"is not {source.format} that rdflib can read: {reason}", line) from None
    return graph


def _told(error: Exception) -> tuple[str, int | None]:
    """What a parser says, in one line, and the line of the file where it says that."""
    first, *others = (str(error) or type(error).__name__).splitlines()
    place = re.match(r"at line (\d+) of", first)
    return (others[0] if place and others else first), int(place[1]) if place else None


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
    for above, below in pairs:
        named = isinstance(above, rdflib.URIRef) and isinstance(below, rdflib.URIRef)
        # Every class is a subclass of itself and of owl:Thing; some tools write it down, or whose kinds they are.
        if (
            named
            and above != below
            and not str(above).startswith((str(rdflib.OWL), str(rdflib.SKOS), str(rdflib.RDFS)))
        ):
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
    for predicate in (rdflib.SKOS.prefLabel, rdflib.RDFS.label):
        texts = [o for o in graph.objects(resource, predicate) if hasattr(o, "language") and str(o).strip()]
        labels = sorted((str(o.language or ""), str(o)) for o in texts)
        if labels:
            return min(labels, key=lambda label: (_distance(label[0], language), label))[1]
    return None


def _distance(found: str, wanted: str) -> int:
    """0 for the language asked for, then its regions, no language, any other."""
    found, wanted = found.lower(), wanted.lower()
    return 0 if found == wanted else 1 if found.startswith(f"{wanted}-") else 2 if not found else 3
