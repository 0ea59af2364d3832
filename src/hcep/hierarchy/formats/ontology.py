"""OBO and OWL ontologies (HPO, RadLex, Uberon, ...), parsed by pronto."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hcep._optional import require
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.xml_guard import refuse_unsafe_xml
from hcep.hierarchy.graph import Hierarchy

TAG = re.compile(r"[A-Za-z][\w-]*")
#: Qualifiers behind a value of OBO: ``is_a: X:1 {is_inferred="true"}``.
TRAILING = re.compile(r"\s*\{[^{}]*\}\s*$")


def read(source: Source, *, relationships: Sequence[str] = ("is_a",)) -> Hierarchy:
    """Read the terms of an ontology; obsolete ones are passed over, imports are not followed.

    Parameters
    ----------
    relationships : what makes a parent: ``"is_a"``, and ids or names of relationships such as ``"part_of"``
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
    if n_obsolete:
        source.notes.append(f"passed over: {counted(n_obsolete, 'obsolete term')}")
    kept = {term.id for term in terms}
    edges = [edge for term in terms for edge in _parents(term, wanted, kept)]
    if not edges:
        known = ["is_a", *sorted(relation.id for relation in ontology.relationships())]
        others = [kind for kind in known if kind not in wanted]
        hint = (
            f"it has {quoted(others, 9)}: choose with relationships= (-O relationships={others[0]} on the command line)"
            if others
            else "expected terms with a parent each, such as 'is_a: ID' in OBO"
        )
        raise source.fail(f"no term has a parent by {quoted(wanted)}; {hint}")
    linked = {synset for edge in edges for synset in edge}
    if len(linked) < len(kept):
        source.notes.append(f"passed over: {counted(len(kept - linked), 'term')} without parents and children")
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
    told = {
        f"{counted(len(skipped), 'line')} without 'tag: value', from line {min(skipped, default=0):,}": skipped,
        counted(len(terms) - len(kept), "obsolete term"): len(terms) - len(kept),
        f"{counted(dangling, 'parent')} that is no term of this file": dangling,
        f"{counted(len(kept.keys() - linked), 'term')} without parents and children": kept.keys() - linked,
    }
    source.notes.append(
        f"the strict parser refuses it ({reason.removeprefix(source.name).strip(', :')}): terms, names and "
        "parents were read line by line, everything else of it was skipped"
    )
    source.notes += [f"passed over: {what}" for what, some in told.items() if some]
    return Hierarchy.from_edges(edges, {s: kept[s]["name"][0] for s in kept if s in linked and "name" in kept[s]})


def _ontology(source: Source) -> Any:
    pronto = require("pronto", "formats", f"reading {source.format.upper()}")
    if source.format == "owl":
        _refuse_other_syntax(source)
        refuse_unsafe_xml(source)
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


def _refuse_other_syntax(source: Source) -> None:
    start = source.data[:2_000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"Prefix(", b"Ontology(", b"@prefix", b"Prefix:")):
        raise source.fail(
            "is OWL, but not in RDF/XML; pass format='turtle' (--format turtle on the command line) "
            "for Turtle, or convert it (robot convert --output x.obo)"
        )
    if b"<Ontology" in start and b"rdf:RDF" not in start:
        raise source.fail("is OWL/XML; expected OWL in RDF/XML: convert it (robot convert --output x.obo)")


def _parents(term: Any, wanted: Sequence[str], kept: set[str]) -> Iterator[tuple[str, str]]:
    found: dict[str, None] = {}
    for kind in wanted:
        if kind == "is_a":
            found.update(dict.fromkeys(sorted(above.id for above in term.superclasses(1, with_self=False))))
        else:
            related = [terms for relation, terms in term.relationships.items() if kind in (relation.id, relation.name)]
            found.update(dict.fromkeys(sorted(above.id for terms in related for above in terms)))
    return ((above, term.id) for above in found if above in kept and above != term.id)
