"""The formats that hierarchies are read from and written to, and what each format can hold.

To add a format, write a module in this folder with ``read``, ``write`` or both (see `Format`), and add a row to
`FORMATS`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hcep.errors import HierarchyError, near_matches, quote, quoted

ALL = ("ids", "names", "parents", "order", "merged", "classes", "ranks")
GRAPH = ("ids", "names", "parents")
ALWAYS = ("root", "encoding", "max_bytes", "timeout")  # options of every reader


@dataclass(frozen=True)
class Format:
    """A file format for hierarchies.

    Attributes
    ----------
    extensions : the file endings it is recognised by, the usual one first
    module : a module of this package with ``read(source, *, options)`` and ``write(hierarchy, format)``; after a colon
        the suffix of its functions, as in ``read_owl``
    does : "reads", "writes" or both
    keeps : what the format can hold: ``ids``, ``names``, ``parents`` (more than one), ``order`` (the index of each
        concept, and so of a dictionary's atoms), ``merged`` (chains that `collapse` merged), ``classes`` (classes that
        are inner concepts), ``ranks``
    about : one line for users
    """

    name: str
    extensions: tuple[str, ...]
    module: str
    does: str
    keeps: tuple[str, ...]
    about: str

    @property
    def reads(self) -> bool:
        return "reads" in self.does

    @property
    def writes(self) -> bool:
        return "writes" in self.does

    def options(self) -> tuple[str, ...]:
        """The names of its reader's options."""
        if not self.reads:
            return ()
        from inspect import Parameter, signature  # slow to import, and only needed with options

        parameters = signature(self.function("read")).parameters.values()
        return tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)

    def function(self, verb: str) -> Any:
        """Its reader or writer, imported on first use."""
        module, _, dialect = self.module.partition(":")
        return getattr(import_module(f"hcep.hierarchy.formats.{module}"), f"{verb}_{dialect}" if dialect else verb)


NEXUS = (".nex", ".nexus", ".nxs")
NEWICK = (".nwk", ".newick", ".tre", ".tree", ".new", *NEXUS, ".treefile", ".nw", ".nh", ".nhx", ".trees")
_BOTH = "reads, writes"
_NAMES, _ROWS = ("names", "parents"), (*GRAPH, "order", "ranks")
FORMATS: dict[str, Format] = {
    row[0]: Format(*row)
    for row in (
        ("json", (".json",), "nested:json", _BOTH, ALL, "this package's own format, without loss"),
        ("csv", (".csv",), "tables", _BOTH, _ROWS, "rows of parent, child[, name], or a column per level"),
        ("tsv", (".tsv",), "tables", _BOTH, _ROWS, "the same, separated by tabs"),
        ("xlsx", (".xlsx", ".xlsm"), "tables", "reads", GRAPH, "the same in a workbook, through openpyxl"),
        ("nested", (".nested.json",), "nested", _BOTH, (*GRAPH, "ranks"), "JSON objects in objects, or name/children"),
        ("outline", (".txt", ".md"), "outline", _BOTH, _NAMES, "indented, bulleted or numbered"),
        ("breadcrumbs", (), "breadcrumbs", "reads", ("ids", "names"), "lines such as 7 - Animals > Birds > Parrots"),
        ("newick", NEWICK, "newick", _BOTH, ("names",), "phylogenetic trees such as (cat,dog)animal; also in NEXUS"),
        ("levels", (), "tables", "reads", ("ids", "names"), "a column per level, as in iNaturalist (CSV, TSV, JSON)"),
        ("folder", (), "draft:folder", "reads", GRAPH, "a folder tree; its folders are the concepts"),
        ("obo", (".obo",), "ontology:obo", "reads", GRAPH, "OBO ontologies"),
        ("owl", (".owl",), "ontology:owl", "reads", GRAPH, "OWL ontologies in RDF/XML, through rdflib"),
        ("turtle", (".ttl", ".turtle"), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in Turtle, through rdflib"),
        ("rdf", (".rdf",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in RDF/XML, through rdflib"),
        ("ntriples", (".nt",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in N-Triples, through rdflib"),
        ("jsonld", (".jsonld",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in JSON-LD, through rdflib"),
    )
}
_DONE = {"read": "read", "write": "written"}
_OPTION = {"read": "-O format=NAME", "write": "--to"}


def find_format(file_name: str, format: str | None, *, to: str) -> Format:
    """The format of that name, or the one that a file's ending names; `to` is "read" or "write"."""
    able = [known for known in FORMATS.values() if f"{to}s" in known.does]
    names = ", ".join(known.name for known in able)
    if format and format not in FORMATS:
        close = near_matches(format, FORMATS)
        raise HierarchyError(f"format {quote(format)} is unknown; expected one of {', '.join(FORMATS)}.{close}")
    # The format with the longest matching ending; one that can be read (or written) comes first.
    name = file_name.lower().removesuffix(".gz")
    matches = [(k in able, len(e), k) for k in FORMATS.values() for e in k.extensions if name.endswith(e)]
    by_ending = max(matches, key=lambda match: match[:2])[2] if matches else None
    chosen = FORMATS[format] if format else by_ending
    if chosen is None:
        endings = ", ".join(ending for known in able for ending in known.extensions)
        raise HierarchyError(
            f"{quote(file_name)}: its ending does not name a format that can be {_DONE[to]}; expected a file ending in "
            f"{endings}, or pass {_OPTION[to]} (in Python: format=): {names}"
        )
    if chosen not in able:
        raise HierarchyError(f"format {quote(chosen.name)} cannot be {_DONE[to]}; these can: {names}")
    return chosen


def check_options(known: Format, options: dict[str, Any]) -> None:
    """Refuse an option that the reader of a format does not have."""
    takes = known.options() if options else ()
    for name in options:
        if name not in takes:
            offered = f"{quoted([*takes, *ALWAYS], 9)}.{near_matches(name, (*takes, *ALWAYS))}"
            raise HierarchyError(
                f"format {quote(known.name)} does not have the option {quote(name)}; its options are {offered}"
            )
