"""The formats a hierarchy can be read from and written to, and what each of them keeps of it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hcep.errors import HierarchyError, MissingExtraError, near_matches, quoted

ALL = ("ids", "names", "parents", "order", "merged", "classes")
GRAPH = ("ids", "names", "parents")
ALWAYS = ("root", "max_bytes", "timeout")  # options of every reader


@dataclass(frozen=True)
class Format:
    """A way to hold a hierarchy in a file.

    Attributes
    ----------
    name : str
        What ``format=`` takes.
    extensions : tuple of str
        File endings it is recognised by; the first is the usual one. Another format may own an ending for reading.
    module : str
        Module of this package with ``read(source, *, options)`` and ``write(hierarchy, format)``.
    reads, writes : bool
    keeps : tuple of str
        What survives being written and read: ``ids``, ``names``, ``parents`` (more than one), ``order`` (the index of
        each synset, and so that of a dictionary's atoms), ``merged`` (chains that `collapse` merged), ``classes``
        (classes that are inner synsets). Of a format that is only read: what it can tell.
    about : str
        One line for people.
    """

    name: str
    extensions: tuple[str, ...]
    module: str
    reads: bool
    writes: bool
    keeps: tuple[str, ...]
    about: str

    def options(self) -> tuple[str, ...]:
        """Names of the options that its reader takes."""
        if not self.reads:
            return ()
        from inspect import Parameter, signature  # slow to import, and asked for with options alone

        parameters = signature(self.functions().read).parameters.values()
        return tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)

    def functions(self) -> Any:
        """The module, imported when it is needed."""
        return import_module(f"hcep.hierarchy.formats.{self.module}")


FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format("json", (".json",), "native", True, True, ALL, "this package's own, exact"),
        Format("csv", (".csv",), "edge_list", True, True, (*GRAPH, "order"), "rows of parent, child[, name]"),
        Format("tsv", (".tsv",), "edge_list", True, True, (*GRAPH, "order"), "the same, apart by tabs"),
        Format("nested", (".nested.json",), "nested", True, True, GRAPH, "JSON objects in objects, or name/children"),
        Format("yaml", (".yaml", ".yml"), "nested_yaml", True, True, GRAPH, "the same shapes in YAML"),
        Format(
            "outline", (".txt", ".md"), "outline", True, True, ("names", "parents"), "indented, bulleted or numbered"
        ),
        Format("newick", (".nwk", ".newick"), "newick", True, True, ("names",), "trees of biology: (cat,dog)animal;"),
        Format(
            "levels", (), "levels", True, False, ("ids", "names"), "a column a level (iNaturalist): CSV, TSV or JSON"
        ),
        Format("folder", (), "folder_tree", True, False, GRAPH, "a directory tree; its directories are the synsets"),
        Format("obo", (".obo",), "ontology", True, False, GRAPH, "OBO ontologies, through pronto"),
        Format("owl", (".owl",), "ontology", True, False, GRAPH, "OWL ontologies in RDF/XML, through pronto"),
        Format("turtle", (".ttl", ".turtle"), "rdf", True, False, GRAPH, "SKOS or RDFS in Turtle, through rdflib"),
        Format("rdf", (".rdf",), "rdf", True, False, GRAPH, "SKOS or RDFS in RDF/XML, through rdflib"),
        Format("ntriples", (".nt",), "rdf", True, False, GRAPH, "SKOS or RDFS in N-Triples, through rdflib"),
        Format("jsonld", (".jsonld",), "rdf", True, False, GRAPH, "SKOS or RDFS in JSON-LD, through rdflib"),
        Format("dot", (".dot", ".gv"), "drawings", False, True, GRAPH, "Graphviz"),
        Format("mermaid", (".mmd", ".mermaid"), "drawings", False, True, ("names", "parents"), "Mermaid flowcharts"),
    )
}


def find_format(file_name: str, format: str | None, *, to: str) -> Format:
    """The format asked for, or the one a file's ending tells.

    Parameters
    ----------
    to : {"read", "write"}

    Raises
    ------
    HierarchyError
        An unknown name or ending, or a format that cannot do it.
    """
    if format is None:
        return _by_ending(file_name, to)
    if format not in FORMATS:
        raise HierarchyError(
            f"format {format!r} is unknown; expected one of {', '.join(FORMATS)}.{near_matches(format, FORMATS)}"
        )
    found = FORMATS[format]
    if not getattr(found, f"{to}s"):
        raise HierarchyError(f"format {format!r} cannot be {_DONE[to]}; those that can: {', '.join(_able(to))}")
    return found


_DONE = {"read": "read", "write": "written"}
_OPTION = {"read": "--format", "write": "--to"}


def _able(to: str) -> list[str]:
    return [known.name for known in FORMATS.values() if getattr(known, f"{to}s")]


def _by_ending(file_name: str, to: str) -> Format:
    ending = file_name.lower().removesuffix(".gz")
    able = [FORMATS[name] for name in _able(to)]
    fitting = [(len(e), known) for known in able for e in known.extensions if ending.endswith(e)]
    if fitting:
        return max(fitting, key=lambda pair: pair[0])[1]
    for known in FORMATS.values():
        if ending.endswith(known.extensions or ("\0",)):
            return find_format(file_name, known.name, to=to)
    endings = [e for known in able for e in known.extensions]
    raise HierarchyError(
        f"{file_name!r}: the ending tells no format that can be {_DONE[to]}; expected a file ending in "
        f"{', '.join(endings)}, or pass format= ({_OPTION[to]} on the command line): "
        f"{', '.join(_able(to))}"
    )


def require(module: str, why: str) -> Any:
    """Import a package of the extra ``formats``.

    Raises
    ------
    MissingExtraError
        When it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'{why} needs {error.name or module}, which is not installed: pip install "hcep[formats]"'
        ) from None


def check_options(known: Format, options: dict[str, Any]) -> None:
    """Refuse an option that the reader of a format does not take."""
    takes = known.options() if options else ()
    for name in options:
        if name not in takes:
            offered = quoted([*takes, *ALWAYS], 9) + near_matches(name, (*takes, *ALWAYS))
            raise HierarchyError(f"format {known.name!r} does not take the option {name!r}; it takes {offered}")
