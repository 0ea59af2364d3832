"""Hierarchies in files: read by what they are, written with word of what is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcep.errors import HierarchyError, near_matches, quoted
from hcep.hierarchy.edges import is_virtual
from hcep.hierarchy.formats.all_formats import FORMATS, check_options, find_format
from hcep.hierarchy.formats.source import MAX_BYTES, Source, counted, load, local_path
from hcep.hierarchy.formats.writing import detail_losses, graph_loss, write_whole
from hcep.hierarchy.graph import Hierarchy

logger = logging.getLogger(__name__)

Place = str | os.PathLike[str]


def read_hierarchy(
    place: Place,
    format: str | None = None,
    *,
    told: Callable[[str], object] | None = None,
    max_bytes: int = MAX_BYTES,
    timeout: float = 20.0,
    **options: Any,
) -> Hierarchy:
    """Read a hierarchy from a file, a directory or a web address; see `Hierarchy.read`.

    Parameters
    ----------
    place : path or address
    format : where the ending does not tell it
    told : called with a sentence of what the file was taken for, then with each of what the reader passed over
        (obsolete terms, branch lengths); they are logged by default
    max_bytes, timeout : most bytes to read, seconds to wait for a server
    options : of the format
    """
    source = open_source(place, format, max_bytes, timeout)
    hierarchy = hierarchy_in(source, **options)
    for note in (understood(source, hierarchy), *source.notes):
        told(note) if told else logger.info("%s", note)
    return hierarchy


def read_described(place: Place, format: str | None = None, **options: Any) -> tuple[Hierarchy, str]:
    r"""`read_hierarchy` with a sentence of what the file was taken for.

    Examples
    --------
    >>> from pathlib import Path
    >>> from hcep.hierarchy import read_described
    >>> _ = Path("pets.csv").write_text("Group,Species\nmammal,cat\nmammal,dog\nbird,parrot\n")
    >>> read_described("pets.csv")[1].partition(";")[0]
    'pets.csv: level columns Group > Species, 2 levels, 3 classes'
    """
    told: list[str] = []
    return read_hierarchy(place, format, told=told.append, **options), told[0]


def understood(source: Source, hierarchy: Hierarchy) -> str:
    """What a file was taken for, in a sentence, and where its cells or lines decided, how to say otherwise."""
    n_levels = hierarchy.depth + (not is_virtual(hierarchy.root))
    levels = "flat" if hierarchy.depth == 1 and n_levels == 1 else counted(n_levels, "level")
    what = f"{source.understood or source.format}, {levels}, {counted(len(hierarchy.leaves), 'class')}"
    hint = "if it has levels, say how it is written with --format" if levels == "flat" else ""
    otherwise = source.otherwise or hint
    return f"{source.name}: {what}" + (f"; {otherwise}" if otherwise else "")


def hierarchy_in(source: Source, *, root: str | None = None, encoding: str | None = None, **options: Any) -> Hierarchy:
    """The hierarchy in a source that is open; its notes grow by what the reader passes over."""
    known = FORMATS[source.format]
    check_options(known, options)
    source.encoding = encoding
    try:
        hierarchy = known.function("read")(source, **options)
        return hierarchy if root is None else branch(hierarchy, root)
    except HierarchyError as error:
        told = str(error)
        raise HierarchyError(told if told.startswith(source.name) else f"{source.name}: {told}") from None


def write_hierarchy(
    hierarchy: Hierarchy, path: Place, format: str | None = None, *, lossy: bool = False
) -> tuple[str, ...]:
    """Write a hierarchy; see `Hierarchy.write`."""
    file = Path(path)
    known = find_format(file.name, format, to="write")
    changed = graph_loss(known, hierarchy)
    if changed and not lossy:
        raise HierarchyError(
            f"{changed}; pass lossy=True to write it all the same, hierarchy.as_tree(policy) to choose the parents, "
            "or write .json (--lossy, --tree on the command line)"
        )
    text = known.function("write")(hierarchy, known.name)
    if "\0" in text:
        synset = next(s for s in hierarchy if "\0" in s + hierarchy.name(s))
        raise HierarchyError(f"{known.name} cannot hold synset {synset!r}: it has a NUL character; rename it")
    lost = ((changed,) if changed else ()) + detail_losses(known, hierarchy)
    write_whole(file, text)
    return lost


def branch(hierarchy: Hierarchy, root: str) -> Hierarchy:
    """What is below one synset, given by its id or, where it is the only one of that name, by its name."""
    synset = root if root in hierarchy else _named(hierarchy, root)
    inside = (synset, *hierarchy.descendants(synset))
    if len(inside) == 1:
        raise HierarchyError(f"root {root!r} has no synsets below it; give an inner synset")
    kept = set(inside)
    edges = [(parent, child) for child in inside for parent in hierarchy.parents(child) if parent in kept]
    return Hierarchy.from_edges(edges, {s: hierarchy.name(s) for s in inside}, root=synset)


def _named(hierarchy: Hierarchy, name: str) -> str:
    found = [s for s in hierarchy if hierarchy.name(s) == name]
    if len(found) > 1:
        raise HierarchyError(f"root {name!r} is the name of {len(found)} synsets: {quoted(found)}; give the id of one")
    if not found:
        known = [*hierarchy.ids, *map(hierarchy.name, hierarchy.ids)]
        raise HierarchyError(f"root {name!r} is neither an id nor a name here.{near_matches(name, known)}")
    return found[0]


def open_source(place: Place, format: str | None = None, max_bytes: int = MAX_BYTES, timeout: float = 20.0) -> Source:
    """The bytes at a place, with the format they are in; those of a folder are its names, read later."""
    place = os.fspath(place)
    path = local_path(place)
    is_folder = path is not None and path.is_dir()
    if format == "folder" or (is_folder and format is None):
        if path is None or not is_folder:
            raise HierarchyError(f"{place!r} is not a directory, which format 'folder' needs")
        return Source(path.resolve().name or str(path), b"", "folder", path)
    name = place.split("?")[0].split("#")[0] if path is None else path.name
    known = find_format(name, format, to="read")
    source = load(place, max_bytes, timeout)
    source.format = known.name
    return source
