"""What the writers of all formats share, and what a format cannot hold."""

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hcep import _files
from hcep.errors import HierarchyError, counted, quote, quoted
from hcep.hierarchy.formats import Format
from hcep.hierarchy.graph import Hierarchy


def outline_order(hierarchy: Hierarchy) -> Iterator[tuple[int, str, str | None, bool]]:
    """Yield (depth, concept, parent, whether it came before) from the root down; descendants come only once."""
    seen: set[str] = set()
    waiting: list[tuple[int, str, str | None]] = [(0, hierarchy.root, None)]
    while waiting:
        depth, synset, parent = waiting.pop()
        again = synset in seen
        yield depth, synset, parent, again
        if not again:
            seen.add(synset)
            waiting += [(depth + 1, child, synset) for child in reversed(hierarchy.children(synset))]


def order_survives(hierarchy: Hierarchy) -> bool:
    """Whether concepts that are read in `outline_order` get the indices that they have now."""
    parents: dict[str, list[str]] = {}
    for _, synset, parent, _ in outline_order(hierarchy):
        parents.setdefault(synset, []).extend([] if parent is None else [parent])
    by_level = tuple(sorted(parents, key=hierarchy.level))
    return by_level == hierarchy.ids and all(tuple(above) == hierarchy.parents(s) for s, above in parents.items())


def labels(hierarchy: Hierarchy) -> dict[str, str]:
    """A unique label for each concept: its name, with the id in brackets if several share the name."""
    unique = {synset: hierarchy.name(synset) for synset in hierarchy}
    count = Counter(unique.values())
    taken = {name for name, n in count.items() if n == 1}
    for synset, label in unique.items():
        if count[label] > 1:
            label = f"{label} ({synset})" if synset != label else label
            while label in taken:
                label += "'"
            taken.add(label)
            unique[synset] = label
    return unique


def graph_loss(format: Format, hierarchy: Hierarchy) -> str | None:
    """What the format would change in the graph; None if it can hold the graph."""
    if "parents" in format.keeps or hierarchy.is_tree:
        return None
    n_shared = sum(len(hierarchy.parents(s)) > 1 for s in hierarchy)
    n_dropped = len(hierarchy) - len(hierarchy.as_tree())
    are = "is" if n_dropped == 1 else "are"
    dropped = f" and {counted(n_dropped, 'inner concept')} left without children {are} dropped" if n_dropped else ""
    lose = "loses" if n_shared == 1 else "lose"
    return f"{format.name} keeps one parent per concept: {counted(n_shared, 'concept')} {lose} the others{dropped}"


def detail_losses(format: Format, hierarchy: Hierarchy) -> tuple[str, ...]:
    """What else is lost, one sentence each: ids, numbering, merged chains, ranks."""
    names = {s: hierarchy.name(s) for s in hierarchy}
    n_renamed = sum(name != s for s, name in names.items())
    merged = {s: hierarchy.merged(s) for s in hierarchy if hierarchy.merged(s)}
    chains = quoted(name for pairs in merged.values() for _, name in pairs)
    some_share = len(set(names.values())) < len(names)
    shared = "; a name that several concepts share is followed by the id" if some_share and format.reads else ""
    lost = [
        ("ids", n_renamed, f"names kept, ids lost ({counted(n_renamed, 'concept')}){shared}"),
        ("merged", len(merged), f"the names merged into {counted(len(merged), 'concept')} are lost ({chains})"),
        ("ranks", len(hierarchy.ranks), f"the ranks of {counted(len(hierarchy.ranks), 'concept')} are lost"),
    ]
    losses = [text for part, n, text in lost if n and part not in format.keeps]
    if format.reads and "order" not in format.keeps and not order_survives(hierarchy):
        losses.append("concepts, and with them a dictionary's atoms, will be numbered in a different order")
    return tuple(f"{format.name}: {text}" for text in losses)


def class_losses(format: Format, hierarchy: Hierarchy) -> tuple[str, ...]:
    """A sentence on the classes that are inner concepts, if the format does not mark classes."""
    inner = [hierarchy.name(leaf) for label, leaf in hierarchy.own_leaves.items() if label in hierarchy]
    if not inner or "classes" in format.keeps:
        return ()
    what = f"{counted(len(inner), 'class')} above other classes ({quoted(inner)})"
    return (f"{format.name}: {what} written only as a concept; images with this label make it a class again",)


def write_whole(path: Path, text: str) -> None:
    """Write text in UTF-8, compressed if the path ends in ``.gz``; a failure changes no file."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = (
            f"cannot write {str(path)!r}: a name contains {quote(error.object[error.start])}, which UTF-8 cannot hold"
        )
        raise HierarchyError(f"{message}; rename the concept") from None
    packed = gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data
    _files.write_bytes(path, packed, HierarchyError)
