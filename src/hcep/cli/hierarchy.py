"""`hcep hierarchy`: show, convert, check, edit and compare hierarchies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from hcep import datasets
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, say_json, show_notes
from hcep.cli.options import argument, option
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, write_hierarchy
from hcep.hierarchy.edges import refuse_many_paths
from hcep.hierarchy.files import branch, in_words
from hcep.hierarchy.formats import find_format
from hcep.hierarchy.formats.writing import graph_loss


def read(place: str, options: Sequence[str] | None = None, *, described: bool = False) -> Hierarchy:
    """The hierarchy at a place; notes of the reader are printed and, on request, what it took the file for."""
    notes: list[str] = []
    hierarchy = datasets.find_hierarchy(place, on_note=notes.append, **opt.reader_options(options))
    if hierarchy is None:
        raise HCEPError(f"{place!r} is not a hierarchy; for a file of that name, give ./{place}")
    if described and notes:
        say(notes[0], err=True)
    show_notes(notes[1:])
    return hierarchy


def show(
    tree: opt.Tree,
    *,
    depth: Annotated[int | None, option("Number of levels to draw.", "--depth N", min=0)] = None,
    children: Annotated[int, option("Number of children to draw for each concept.", "--children N", min=1)] = 12,
    concept: opt.Concept = None,
    collapse: opt.Collapse = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Draw a hierarchy as a tree; a concept marked ↑ is drawn further up, with everything below it."""
    hierarchy = read(tree, options, described=not as_json)
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    parts = [_part(hierarchy, one) for one in concept] if concept else [hierarchy]
    for part in parts:
        refuse_many_paths(part)
    if as_json:
        say_json(_record(parts[0]) if len(parts) == 1 else list(map(_record, parts)))
        return
    for part in parts:
        say(part.format_tree(depth, children))
        say(f"\n{in_words(part)}")


def _part(hierarchy: Hierarchy, concept: str) -> Hierarchy:
    """A concept and what is below it; for a leaf, its paths."""
    is_leaf = concept in hierarchy and hierarchy.is_leaf(concept)
    return hierarchy.restrict([concept]) if is_leaf else branch(hierarchy, concept)


def _record(hierarchy: Hierarchy) -> dict[str, Any]:
    keys = ("n_edges", "depth", "max_branching", "is_tree", "edges")
    facts = {"root": hierarchy.root, "n_synsets": len(hierarchy), "n_leaves": len(hierarchy.leaves)}
    names = {synset: hierarchy.name(synset) for synset in hierarchy}
    return {**facts, **{key: getattr(hierarchy, key) for key in keys}, "names": names}


def convert(
    tree: opt.Tree,
    target: Annotated[Path, argument("File to write; `hcep info --formats` lists the formats.", metavar="TARGET")],
    *,
    to: Annotated[str | None, option("Format to write (default: from the name of the file).", "--to FORMAT")] = None,
    single_parent: Annotated[
        str | None, option("Keep one parent per concept: first, shortest or longest.", "--single-parent RULE")
    ] = None,
    collapse: opt.Collapse = False,
    lossy: Annotated[bool, option("Write even if the format cannot keep all parents.", "--lossy")] = False,
    overwrite: opt.Overwrite = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Convert a hierarchy to another format; notes on standard error say what is lost."""
    find_format(target.name, to, to="write")
    refuse_existing(target, overwrite, "TARGET")
    hierarchy = read(tree, options)
    hierarchy = hierarchy.as_tree(single_parent) if single_parent else hierarchy  # type: ignore[arg-type] # checked there
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    show_notes(write_hierarchy(hierarchy, target, to, lossy=lossy))
    # A format that keeps one parent holds a tree, which may have fewer concepts.
    written = hierarchy.as_tree() if graph_loss(find_format(target.name, to, to="write"), hierarchy) else hierarchy
    say(f"{target}: {in_words(written)}")
