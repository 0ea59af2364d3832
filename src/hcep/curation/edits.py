"""Edits of a hierarchy: move, add, merge, remove, rename, cut, collapse; and what changed between two hierarchies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hcep.curation.working_copy import WorkingCopy
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy.graph import Hierarchy


@dataclass(frozen=True)
class Edit:
    """A change of a hierarchy; synsets are given by id, or by a display name that only one has."""

    words: ClassVar[str]

    def apply(self, copy: WorkingCopy) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.words.format_map(vars(self))


@dataclass(frozen=True)
class Move(Edit):
    """Hang a synset, and all that is below it, from another parent.

    Without `from_parent` it leaves every parent it has.
    """

    synset: str
    to_parent: str
    from_parent: str | None = None

    def apply(self, copy: WorkingCopy) -> None:
        synset, target = copy.find(self.synset), copy.find(self.to_parent)
        old = [copy.find(self.from_parent)] if self.from_parent is not None else list(copy.parents[synset])
        copy.refuse_root(synset, "; move what is below it instead")
        copy.require_edge(old[0], synset)
        copy.refuse_own_leaf_parent(target)
        copy.refuse_cycle(target, synset)
        copy.link(target, synset, instead_of=old[0])
        for parent in old:
            if parent != target:
                copy.unlink(parent, synset)

    def __str__(self) -> str:
        source = "" if self.from_parent is None else f" from {self.from_parent!r}"
        return f"move {self.synset!r}{source} to {self.to_parent!r}"


@dataclass(frozen=True)
class Add(Edit):
    """A new synset below `parent` that takes over `children`: from `parent`, or from the one parent they have."""

    words = "add {synset!r} below {parent!r}"
    synset: str
    parent: str
    children: tuple[str, ...] = ()
    name: str | None = None

    def apply(self, copy: WorkingCopy) -> None:
        parent, children = copy.find(self.parent), [copy.find(child) for child in self.children]
        copy.refuse_own_leaf_parent(parent)
        copy.create(self.synset, self.name)
        copy.link(parent, self.synset)
        for child in children:
            above = copy.parents[child]
            if parent not in above and len(above) != 1:
                raise HierarchyError(
                    f"{copy.label(child)} has {len(above)} parents and {copy.label(parent)} is none of them; "
                    "say which it leaves with a Move"
                )
            Move(child, self.synset, parent if parent in above else above[0]).apply(copy)


@dataclass(frozen=True)
class Merge(Edit):
    """Make one synset of two: `into` keeps its id, name and place, and takes over the children of `synset`."""

    words = "merge {synset!r} into {into!r}"
    synset: str
    into: str

    def apply(self, copy: WorkingCopy) -> None:
        synset, into = copy.find(self.synset), copy.find(self.into)
        if synset == into:
            raise HierarchyError(f"cannot merge {copy.label(synset)} into itself")
        copy.refuse_root(synset, f" and stays; merge {copy.label(into)} into it")
        copy.refuse_own_leaf_parent(into)
        children = [child for child in copy.children[synset] if child != into]
        for child in children:
            copy.refuse_cycle(into, child)
        if into in copy.children[synset]:
            copy.hand_up(into, synset)
        for child in children:
            copy.link(into, child, instead_of=synset)
        copy.remember(synset, into)
        copy.delete(synset)


@dataclass(frozen=True)
class Remove(Edit):
    """Take a synset out; its children go to its parents."""

    words = "remove {synset!r}"
    synset: str

    def apply(self, copy: WorkingCopy) -> None:
        synset = copy.find(self.synset)
        copy.refuse_root(synset, " and cannot be removed; merge a child into it")
        for child in list(copy.children[synset]):
            copy.hand_up(child, synset)
        copy.delete(synset)


@dataclass(frozen=True)
class Rename(Edit):
    """Give a synset another display name; its id, and with it every label, stays."""

    words = "rename {synset!r} to {name!r}"
    synset: str
    name: str

    def apply(self, copy: WorkingCopy) -> None:
        synset = copy.find(self.synset)
        if not self.name.strip():
            raise HierarchyError(f"the new name of {copy.label(synset)} is blank; give it one that can be read")
        copy.names[synset] = self.name


@dataclass(frozen=True)
class Cut(Edit):
    """Drop one edge; the child must have another parent."""

    words = "drop the edge {parent!r} → {child!r}"
    parent: str
    child: str

    def apply(self, copy: WorkingCopy) -> None:
        parent, child = copy.find(self.parent), copy.find(self.child)
        copy.require_edge(parent, child)
        if len(copy.parents[child]) == 1:
            raise HierarchyError(
                f"{copy.label(parent)} is the only parent of {copy.label(child)}; move the child, or remove it"
            )
        copy.unlink(parent, child)


@dataclass(frozen=True)
class Collapse(Edit):
    """Merge a synset with one child into that child, as `Hierarchy.collapse` does to every such synset."""

    words = "collapse {synset!r} into its only child"
    synset: str

    def apply(self, copy: WorkingCopy) -> None:
        synset = copy.find(self.synset)
        child, *others = copy.children[synset] or [""]
        if others or not child:
            raise HierarchyError(
                f"{copy.label(synset)} has {len(copy.children[synset])} children; only a synset with one collapses"
            )
        if synset == copy.root:
            if not copy.children[child]:
                raise HierarchyError(f"{copy.label(synset)} is the root and {copy.label(child)} all that is below it")
            copy.root = child
        copy.hand_up(child, synset)
        copy.remember(synset, child, above=True)
        copy.delete(synset)


def apply_edits(hierarchy: Hierarchy, edits: Iterable[Edit], classes: Iterable[str] | None = None) -> Hierarchy:
    r"""Apply edits one after the other; the hierarchy given does not change.

    An inner synset that an edit leaves without children is dropped, so that it does not turn into a class. Raises
    HierarchyError: an unknown or ambiguous synset, an edit that would close a cycle or lose a class.

    Parameters
    ----------
    edits : iterable of Move, Add, Merge, Remove, Rename, Cut, Collapse
    classes : iterable of str; the labels that must survive; those of the leaves by default

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.curation import Move, apply_edits, diff
    >>> h = Hierarchy.from_edges([("r", "land"), ("r", "sea"), ("land", "cat"), ("land", "seal"), ("sea", "cod")])
    >>> after = apply_edits(h, [Move("seal", "sea")])
    >>> print("\n".join(diff(h, after)))
    - land → seal
    + sea → seal
    """
    leaves = [hierarchy.class_of(leaf) for leaf in hierarchy.leaves]
    copy = WorkingCopy(hierarchy, dict.fromkeys(leaves if classes is None else classes))
    for edit in edits:
        try:
            edit.apply(copy)
            copy.prune()
            copy.refuse_lost_classes()
        except HierarchyError as error:
            raise HierarchyError(f"cannot {edit}: {error}") from None
    return copy.hierarchy()


def refuse_inner_classes(before: Hierarchy, after: Hierarchy, classes: Sequence[str] | None = None) -> None:
    """Refuse edits that hang something below a class: a file keeps no note of it, and the class is gone when read."""
    kept = before.leaves if classes is None else [leaf for leaf in before.leaves if leaf in classes]
    inner = [leaf for leaf in kept if leaf in after and after.children(leaf)]
    if inner:
        raise HierarchyError(
            f"class {quoted(inner)} would be lost: with {quoted(after.children(inner[0]))} below it, {inner[0]!r} is "
            f"no leaf. Add an inner synset above both instead (--add NAME:PARENT:{inner[0]} --move CONCEPT:NAME), or, "
            "where it is no class, give those that are in --classes"
        )


def diff(before: Hierarchy, after: Hierarchy) -> list[str]:
    """What changed, one line per change: ``-`` and ``+`` edges, ``~`` names, ``=`` merged synsets.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.curation import diff
    >>> h = Hierarchy.from_edges([("r", "feline"), ("feline", "cat"), ("r", "dog")])
    >>> diff(h, h.collapse())
    ['- r → feline', '- feline → cat', '+ r → cat', '= feline merged into cat']
    """

    def shown(synset: str, name: str) -> str:
        return name if name == synset else f"{name} ({synset})"

    def edges(sign: str, of: Hierarchy, other: Hierarchy) -> list[str]:
        known = set(other.edges)
        names = (map(shown, edge, map(of.name, edge)) for edge in of.edges if edge not in known)
        return [f"{sign} {' → '.join(pair)}" for pair in names]

    both = [synset for synset in after.ids if synset in before]
    renamed = ((s, before.name(s), after.name(s)) for s in both)
    merged = (
        (s, pair) for s in after.ids for pair in after.merged(s) if s not in before or pair not in before.merged(s)
    )
    return [
        *edges("-", before, after),
        *edges("+", after, before),
        *(f"~ {synset}: {old!r} → {new!r}" for synset, old, new in renamed if old != new),
        *(f"= {shown(*pair)} merged into {shown(synset, after.name(synset))}" for synset, pair in merged),
    ]
