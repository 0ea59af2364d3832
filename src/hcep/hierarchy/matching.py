"""Classes and the synsets they mean, written differently: a blank for an underscore, a name for an id."""

from __future__ import annotations

from collections.abc import Iterable

from hcep.hierarchy.graph import Hierarchy


def match_classes(hierarchy: Hierarchy, classes: Iterable[str]) -> tuple[Hierarchy, tuple[str, ...]]:
    """The hierarchy with the ids of some synsets as the classes spell them, and what was matched, in sentences.

    A class that is no id of the hierarchy is the synset whose id differs in ``_`` for a blank (as in Newick, where an
    underscore out of quotes is one), or else whose name it is; where several are, none.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.hierarchy import match_classes
    >>> tree = Hierarchy.from_edges([("cats", "Felis_catus"), ("cats", "Panthera_leo")])
    >>> matched, told = match_classes(tree, ["Felis catus"])
    >>> matched.leaves, told
    (('Felis catus', 'Panthera_leo'), ("matched with '_' for a blank: 'Felis catus' is 'Felis_catus'",))
    """
    known = {*hierarchy, *(hierarchy.class_of(leaf) for leaf in hierarchy.leaves)}
    absent = [label for label in dict.fromkeys(classes) if label not in known]
    if hierarchy.own_leaves or any(hierarchy.merged(synset) for synset in hierarchy):
        absent = []  # a file of this package's own, which says what its classes are
    spaced: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    for synset in hierarchy if absent else ():
        spaced.setdefault(synset.replace("_", " "), []).append(synset)
        named.setdefault(hierarchy.name(synset).replace("_", " "), []).append(synset)
    own: dict[str, str] = {}
    told = []
    for found, what in ((spaced, "with '_' for a blank"), (named, "by name")):
        meant = {label: found.get(label.replace("_", " "), []) for label in absent if label not in own.values()}
        sure = {label: synsets[0] for label, synsets in meant.items() if len(synsets) == 1 and synsets[0] not in own}
        own |= {synset: label for label, synset in sure.items()}
        pairs = [f"{label!r} is {synset!r}" for label, synset in sure.items()]
        more = f" and {len(pairs) - 3:,} more" if len(pairs) > 3 else ""
        told += [f"matched {what}: {', '.join(pairs[:3])}{more}"] if pairs else []
    if not own:
        return hierarchy, ()
    edges = [(own.get(p, p), own.get(c, c)) for c in hierarchy for p in hierarchy.parents(c)]
    names = {own.get(synset, synset): hierarchy.name(synset) for synset in hierarchy}
    return Hierarchy.from_edges(edges, names, root=own.get(hierarchy.root, hierarchy.root)), tuple(told)
