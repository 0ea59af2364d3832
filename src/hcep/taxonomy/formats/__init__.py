"""The formats a hierarchy can be read from and written to, and what each of them keeps of it.

To add one: a module in this folder with ``read``, ``write`` or both (see `Format`), and its row in `FORMATS`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hcep.errors import HierarchyError, near_matches, quoted

ALL = ("ids", "names", "parents", "order", "merged", "classes")
GRAPH = ("ids", "names", "parents")
ALWAYS = ("root", "encoding", "max_bytes", "timeout")  # options of every reader


@dataclass(frozen=True)
class Format:
    """A way to hold a hierarchy in a file.

    Attributes
    ----------
    extensions : file endings it is recognised by, the usual one first; another format may own one for reading
    module : of this package, with ``read(source, *, options)`` and ``write(hierarchy, format)``; after a colon the
        dialect that its functions are named by, as in ``read_yaml``
    does : "reads", "writes" or both
    keeps : what survives being written and read: ``ids``, ``names``, ``parents`` (more than one), ``order`` (the index
        of each synset, and so that of a dictionary's atoms), ``merged`` (chains that `collapse` merged), ``classes``
        (classes that are inner synsets); of a format that is only read, what it can tell
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
        """Names of the options that its reader takes."""
        if not self.reads:
            return ()
        from inspect import Parameter, signature  # slow to import, and asked for with options alone

        parameters = signature(self.function("read")).parameters.values()
        return tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)

    def function(self, verb: str) -> Any:
        """Its reader or writer, imported when it is needed."""
        module, _, dialect = self.module.partition(":")
        return getattr(import_module(f"hcep.taxonomy.formats.{module}"), f"{verb}_{dialect}" if dialect else verb)


NEXUS = (".nex", ".nexus", ".nxs")
NEWICK = (".nwk", ".newick", ".tre", ".tree", ".new", *NEXUS, ".treefile", ".nw", ".nh", ".nhx", ".trees")
_BOTH = "reads, writes"
_NAMES, _ROWS = ("names", "parents"), (*GRAPH, "order")
FORMATS: dict[str, Format] = {
    row[0]: Format(*row)
    for row in (
        ("json", (".json",), "nested:json", _BOTH, ALL, "this package's own, exact"),
        ("csv", (".csv",), "tables", _BOTH, _ROWS, "rows of parent, child[, name], or a column per level"),
        ("tsv", (".tsv",), "tables", _BOTH, _ROWS, "the same, apart by tabs"),
        ("xlsx", (".xlsx", ".xlsm"), "tables", "reads", GRAPH, "the same in a workbook, through openpyxl"),
        ("nested", (".nested.json",), "nested", _BOTH, GRAPH, "JSON objects in objects, or name/children"),
        ("yaml", (".yaml", ".yml"), "nested:yaml", _BOTH, GRAPH, "the same shapes in YAML"),
        ("outline", (".txt", ".md"), "outline", _BOTH, _NAMES, "indented, bulleted or numbered"),
        ("breadcrumbs", (), "breadcrumbs", "reads", ("ids", "names"), "lines such as 7 - Animals > Birds > Parrots"),
        ("newick", NEWICK, "newick", _BOTH, ("names",), "trees of biology, (cat,dog)animal; also in NEXUS"),
        ("levels", (), "tables", "reads", ("ids", "names"), "a column per level, as iNaturalist: CSV, TSV, JSON"),
        ("folder", (), "draft:folder", "reads", GRAPH, "a directory tree; its directories are the concepts"),
        ("obo", (".obo",), "ontology:obo", "reads", GRAPH, "OBO ontologies"),
        ("owl", (".owl",), "ontology:owl", "reads", GRAPH, "OWL ontologies in RDF/XML, through rdflib"),
        ("turtle", (".ttl", ".turtle"), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in Turtle, through rdflib"),
        ("rdf", (".rdf",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in RDF/XML, through rdflib"),
        ("ntriples", (".nt",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in N-Triples, through rdflib"),
        ("jsonld", (".jsonld",), "ontology:rdf", "reads", GRAPH, "SKOS or RDFS in JSON-LD, through rdflib"),
        ("dot", (".dot", ".gv"), "writing", "writes", GRAPH, "Graphviz"),
        ("mermaid", (".mmd", ".mermaid"), "writing", "writes", _NAMES, "Mermaid flowcharts"),
    )
}
_DONE = {"read": "read", "write": "written"}
_OPTION = {"read": "-O format=NAME", "write": "--to"}


def find_format(file_name: str, format: str | None, *, to: str) -> Format:
    """The format asked for, or the one a file's ending tells; `to` is "read" or "write"."""
    able = [known for known in FORMATS.values() if f"{to}s" in known.does]
    names = ", ".join(known.name for known in able)
    if format and format not in FORMATS:
        close = near_matches(format, FORMATS)
        raise HierarchyError(f"format {format!r} is unknown; expected one of {', '.join(FORMATS)}.{close}")
    # The format with the longest ending that fits, one that can do what is asked before one that cannot.
    name = file_name.lower().removesuffix(".gz")
    fitting = [(k in able, len(e), k) for k in FORMATS.values() for e in k.extensions if name.endswith(e)]
    by_ending = max(fitting, key=lambda found: found[:2])[2] if fitting else None
    found = FORMATS[format] if format else by_ending
    if found is None:
        endings = ", ".join(ending for known in able for ending in known.extensions)
        raise HierarchyError(
            f"{file_name!r}: the ending tells no format that can be {_DONE[to]}; expected a file ending in {endings}, "
            f"or pass format= ({_OPTION[to]} on the command line): {names}"
        )
    if found not in able:
        raise HierarchyError(f"format {found.name!r} cannot be {_DONE[to]}; those that can: {names}")
    return found


def check_options(known: Format, options: dict[str, Any]) -> None:
    """Refuse an option that the reader of a format does not take."""
    takes = known.options() if options else ()
    for name in options:
        if name not in takes:
            offered = quoted([*takes, *ALWAYS], 9) + near_matches(name, (*takes, *ALWAYS))
            raise HierarchyError(f"format {known.name!r} does not take the option {name!r}; it takes {offered}")
