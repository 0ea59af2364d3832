"""Read and write hierarchies in files, and match their ids to the classes of the data."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hcep.errors import HierarchyError, counted, quote
from hcep.hierarchy.columns import Columns
from hcep.hierarchy.edges import is_virtual, many_paths
from hcep.hierarchy.formats import FORMATS, check_options, find_format
from hcep.hierarchy.formats.source import MAX_BYTES, Place, Source, open_source
from hcep.hierarchy.formats.tables import level_losses
from hcep.hierarchy.formats.writing import class_losses, detail_losses, graph_loss, write_whole
from hcep.hierarchy.graph import Hierarchy
from hcep.hierarchy.names import loose_key

logger = logging.getLogger(__name__)


def read_hierarchy(
    place: Place,
    format: str | None = None,
    *,
    on_note: Callable[[str], object] | None = None,
    max_bytes: int = MAX_BYTES,
    timeout: float = 20.0,
    **options: Any,
) -> Hierarchy:
    """Read a hierarchy from a file, a folder, or a ``file://``, ``http://`` or ``https://`` address.

    Parameters
    ----------
    place : the file, which may be compressed by gzip
    format : a name in `hcep.hierarchy.formats.FORMATS`; the file's ending decides by default
    on_note : called with a sentence that says how the file was read, then with a sentence for everything the reader
        skipped (obsolete terms, branch lengths); these are logged by default
    max_bytes : maximum size of the file, uncompressed
    timeout : seconds to wait for a silent server
    **options : ``root`` (read one branch, by id or name), ``encoding``, and the options of the format: ``repeated``
        ("raise", "merge" or "qualify": what a label that stands in several places means) for nested files, outlines,
        Newick and folders; ``levels``, ``leaf`` and ``name`` for columns of levels; ``relationships`` for OBO and OWL;
        ``language`` and ``ids`` for RDF

    Raises
    ------
    HierarchyError : the file is missing, too large, malformed, or not a rooted DAG
    """
    source = open_source(place, format, max_bytes, timeout)
    hierarchy = hierarchy_in(source, **options)
    for note in (understood(source, hierarchy), *source.notes):
        on_note(note) if on_note else logger.info("%s", note)
    return hierarchy


def read_described(place: Place, format: str | None = None, **options: Any) -> tuple[Hierarchy, str]:
    """Read a hierarchy as `read_hierarchy` does; also return the sentence that says how the file was read."""
    notes: list[str] = []
    return read_hierarchy(place, format, on_note=notes.append, **options), notes[0]


def understood(source: Source, hierarchy: Hierarchy) -> str:
    """How a file was read, in one sentence, with the option that changes it if the content decided."""
    levels = "flat" if hierarchy.depth == 1 and is_virtual(hierarchy.root) else _levels(hierarchy)
    what = f"{source.understood or source.format}, {levels}, {counted(len(hierarchy.leaves), 'class')}"
    otherwise = source.otherwise or (levels == "flat" and "if it has levels, name its format with -O format=NAME")
    what += "" if hierarchy.is_tree else f", {counted(hierarchy.n_paths, 'rooted path')}"
    return f"{source.name}: {what}" + (f"; {otherwise}" if otherwise else "")


def in_words(hierarchy: Hierarchy) -> str:
    """The size of a hierarchy in words."""
    concepts, classes = counted(len(hierarchy), "concept"), counted(len(hierarchy.leaves), "class")
    paths = "" if hierarchy.is_tree else f"{counted(hierarchy.n_paths, 'rooted path')}, "
    edges, root = counted(hierarchy.n_edges, "edge"), quote(hierarchy.root)
    return f"{concepts}, {classes}, {edges}, {paths}{_levels(hierarchy)}, root {root}"


def _levels(hierarchy: Hierarchy) -> str:
    return counted(hierarchy.depth + (not is_virtual(hierarchy.root)), "level")


def hierarchy_in(source: Source, *, root: str | None = None, encoding: str | None = None, **options: Any) -> Hierarchy:
    """The hierarchy in an open source; the reader adds notes to the source."""
    known = FORMATS[source.format]
    check_options(known, options)
    source.encoding = encoding
    try:
        hierarchy = known.function("read")(source, **options)
        hierarchy = hierarchy if "classes" in known.keeps else _with_old_leaves(hierarchy)
        hierarchy = hierarchy if root is None else branch(hierarchy, root)
        source.notes += filter(None, [many_paths(hierarchy)])
        return hierarchy
    except HierarchyError as error:
        message = str(error)
        raise HierarchyError(message if message.startswith(source.name) else f"{source.name}: {message}") from None


def _with_old_leaves(hierarchy: Hierarchy) -> Hierarchy:
    """The hierarchy with the leaves of inner classes known as such, which earlier versions wrote as "cat (itself)"."""
    leaves = [leaf for leaf in hierarchy.leaves if leaf.endswith(" (itself)")]
    above = {hierarchy.parents(leaf): leaf for leaf in leaves}
    own = {p[0]: leaf for p, leaf in above.items() if leaf in [f"{s} (itself)" for s in (p[0], hierarchy.name(p[0]))]}
    return hierarchy._with(own_leaf=own) if own else hierarchy


def write_hierarchy(
    hierarchy: Hierarchy, path: Place, format: str | None = None, *, lossy: bool = False
) -> tuple[str, ...]:
    """Write a hierarchy in the format that `format` or the file's ending names; a failure leaves the old file.

    Returns a sentence for everything the format cannot hold. A format that cannot hold several parents per concept
    raises HierarchyError unless `lossy` is True.
    """
    file = Path(path)
    known = find_format(file.name, format, to="write")
    whole = hierarchy
    hierarchy = hierarchy if "classes" in known.keeps else hierarchy.without_own_leaves()
    changed = graph_loss(known, hierarchy)
    if changed and not lossy:
        raise HierarchyError(
            f"{changed}; pass lossy=True to write it anyway, use hierarchy.as_tree(policy) to choose the parents, "
            "or write .json (`hcep hierarchy convert` has --lossy and --single-parent)"
        )
    text = known.function("write")(hierarchy, known.name)
    if "\0" in text:
        synset = next(s for s in hierarchy if "\0" in s + hierarchy.name(s))
        raise HierarchyError(
            f"{known.name} cannot hold concept {quote(synset)}: it contains a NUL character; rename it"
        )
    lost = ((changed,) if changed else ()) + class_losses(known, whole)
    details = level_losses(hierarchy, known, text) if known.module == "tables" else None
    lost += detail_losses(known, hierarchy) if details is None else details
    write_whole(file, text)
    return lost


def branch(hierarchy: Hierarchy, root: str) -> Hierarchy:
    """The part of a hierarchy at and below one concept, given as `Hierarchy.find` takes it."""
    try:
        top = hierarchy.find(root)
    except HierarchyError as error:
        raise HierarchyError(f"root: {error}") from None
    below = hierarchy.descendants(top)
    if not below:
        raise HierarchyError(f"root {quote(root)} has no concepts below it; give an inner concept")
    place = {synset: i for i, synset in enumerate((top, *below))}
    parents = [[place[p] for p in hierarchy.parents(s) if p in place] if s != top else [] for s in place]
    return hierarchy._with(ids=list(place), parents=parents, names={s: hierarchy.name(s) for s in place})


def match_classes(hierarchy: Hierarchy, classes: Iterable[str]) -> tuple[Hierarchy, tuple[str, ...]]:
    """The hierarchy with some ids replaced by the classes that mean them, and sentences that say which.

    A class that is not an id means the concept whose id differs from it in ``_`` for a space (as in Newick), or else
    whose name it is, or else whose id or name differs from it only in case, blanks, underscores, hyphens and the form
    of accents. If there are several such concepts, it means none.
    """
    known = {*hierarchy, *(hierarchy.class_of(leaf) for leaf in hierarchy.leaves)}
    absent = [label for label in dict.fromkeys(classes) if label not in known]
    if hierarchy.own_leaves or any(hierarchy.merged(synset) for synset in hierarchy):
        absent = []  # a file of this package, which records its classes
    spaced: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    loose: dict[str, list[str]] = {}
    for synset in hierarchy if absent else ():
        spaced.setdefault(synset.replace("_", " "), []).append(synset)
        named.setdefault(hierarchy.name(synset).replace("_", " "), []).append(synset)
        for key in {loose_key(synset), loose_key(hierarchy.name(synset))}:
            loose.setdefault(key, []).append(synset)
    own: dict[str, str] = {}
    sentences = []
    for concepts, how in ((spaced, "with '_' for a space"), (named, "by name"), (loose, "ignoring case and spacing")):
        key_of = loose_key if concepts is loose else _with_spaces
        matches = {label: concepts.get(key_of(label), []) for label in absent if label not in own.values()}
        sure = {label: synsets[0] for label, synsets in matches.items() if len(synsets) == 1 and synsets[0] not in own}
        own |= {synset: label for label, synset in sure.items()}
        sentences += [how_matched(sure, how)] if sure else []
    return with_ids(hierarchy, own), tuple(sentences)


def how_matched(synsets: Mapping[str, str], how: str) -> str:
    """The sentence that says which concepts some labels were taken for."""
    pairs = [f"{quote(label)} is {quote(synset)}" for label, synset in synsets.items()]
    more = f" and {len(pairs) - 3:,} more" if len(pairs) > 3 else ""
    return f"matched {how}: {', '.join(pairs[:3])}{more}"


def _with_spaces(label: str) -> str:
    return label.replace("_", " ")


def class_ids(hierarchy: Hierarchy, classes: Iterable[str]) -> dict[str, str]:
    """The id of each class in the hierarchy, as `match_classes` finds it; an unknown class stays as it is."""
    labels = list(classes)
    own = dict(zip(match_classes(hierarchy, labels)[0], hierarchy, strict=True))
    return {label: own.get(label, label) for label in labels}


def with_ids(hierarchy: Hierarchy, ids: Mapping[str, str]) -> Hierarchy:
    """The hierarchy, in the same order, with other ids for some of its concepts."""
    if not ids:
        return hierarchy
    new = {synset: ids.get(synset, synset) for synset in hierarchy}
    parents = [[hierarchy.index(p) for p in hierarchy.parents(s)] for s in hierarchy]
    names = {new[s]: hierarchy.name(s) for s in hierarchy}
    merged = {new[s]: hierarchy.merged(s) for s in hierarchy}
    own_leaves = {new.get(c, c): new[leaf] for c, leaf in hierarchy.own_leaves.items()}
    ranks = {new.get(s, s): rank for s, rank in hierarchy.ranks.items()}
    columns = hierarchy.columns
    columns = columns and Columns(columns.roles, {new.get(s, s): cells for s, cells in columns.rows.items()})
    return Hierarchy(list(new.values()), parents, names, merged, own_leaves, ranks, columns)


def named_as_ids(hierarchy: Hierarchy, keep: Iterable[str]) -> Hierarchy:
    """The hierarchy with names as ids, except for the ids to keep and for names that are not unique."""
    named, fixed = Counter(map(hierarchy.name, hierarchy)), {*keep, *hierarchy.own_leaves}
    ids = {s: hierarchy.name(s) for s in hierarchy if s not in fixed}
    return with_ids(hierarchy, {s: name for s, name in ids.items() if named[name] == 1 and name not in hierarchy})
