"""Edits of a hierarchy (move, add, merge, remove, rename, cut, collapse), and the differences of two hierarchies."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import ClassVar

from hcep.errors import HCEPError, HierarchyError, near_matches, quote, quoted
from hcep.hierarchy.edges import reach
from hcep.hierarchy.files import class_ids
from hcep.hierarchy.graph import Hierarchy


class WorkingCopy:
    """A hierarchy that can change: dictionaries, so that an edit takes time for what it touches alone."""

    def __init__(self, hierarchy: Hierarchy, classes: Iterable[str]) -> None:
        self.root = hierarchy.root
        self.parents = {synset: list(hierarchy.parents(synset)) for synset in hierarchy}
        # Dictionaries keep the order; sets would make the result depend on hashes.
        self.children = {synset: dict.fromkeys(hierarchy.children(synset)) for synset in hierarchy}
        self.names = {synset: hierarchy.name(synset) for synset in hierarchy}
        self.merged = {synset: hierarchy.merged(synset) for synset in hierarchy}
        self.own_leaves = dict(hierarchy.own_leaves)
        self.ranks, self.columns = dict(hierarchy.ranks), hierarchy.columns
        self.classes = {c for c in class_ids(hierarchy, classes).values() if c in hierarchy or c in self.own_leaves}
        self.class_of = {leaf: c for c, leaf in self.own_leaves.items()}
        self._emptied: list[str] = []
        self._deleted: list[str] = []

    def find(self, concept: str) -> str:
        """The id of a concept, given by its id or by a name that no other concept has."""
        if concept in self.parents:
            return concept
        matches = [synset for synset, name in self.names.items() if name.casefold() == concept.casefold()]
        matches = [synset for synset in matches if self.class_of.get(synset) not in matches]  # the class, not its leaf
        if len(matches) > 1:
            raise HierarchyError(
                f"{quote(concept)} is the name of {len(matches)} concepts; give one of the ids {quoted(matches)}"
            )
        if not matches:
            known = [*self.parents, *(name for synset, name in self.names.items() if name != synset)]
            raise HierarchyError(
                f"{quote(concept)} is neither the id nor the name of a concept.{near_matches(concept, known)}"
            )
        return matches[0]

    def label(self, synset: str) -> str:
        name = self.names[synset]
        return repr(synset) if name == synset else f"{quote(name)} ({synset})"

    def link(self, parent: str, child: str, instead_of: str | None = None) -> None:
        """Add an edge; the new parent stands where `instead_of` stood among the child's parents."""
        if child in self.children[parent]:
            return
        above = self.parents[child]
        above.insert(above.index(instead_of) if instead_of in above else len(above), parent)
        self.children[parent][child] = None

    def unlink(self, parent: str, child: str) -> None:
        self.parents[child].remove(parent)
        del self.children[parent][child]
        self._emptied.append(parent)

    def hand_up(self, child: str, synset: str) -> None:
        """Hang a child of a concept that is about to go from the concept's parents."""
        for parent in list(self.parents[synset]):
            self.link(parent, child, instead_of=synset)

    def delete(self, synset: str) -> None:
        """Remove a concept and its edges."""
        for parent in list(self.parents[synset]):
            self.unlink(parent, synset)
        for child in list(self.children[synset]):
            self.unlink(synset, child)
        self._deleted.append(synset)
        del self.parents[synset], self.children[synset], self.names[synset], self.merged[synset]

    def settle(self) -> None:
        """Drop inner concepts that lost their last child, unless they are classes; refuse the loss of a class."""
        while self._emptied:
            synset = self._emptied.pop()
            if synset in self.children and not self.children[synset] and synset not in self.classes:
                if synset == self.root:
                    raise HierarchyError("nothing would be left below the root")
                self.delete(synset)
        gone, self._deleted = self._deleted, []
        lost = [label for label in (self.class_of.get(s, s) for s in gone) if label in self.classes]
        lost = [label for label in lost if self.own_leaves.get(label, label) not in self.parents]
        if lost:
            raise HierarchyError(
                f"class {quoted(lost)} would be lost: images with this label would have no leaf. Keep the concept, or "
                "relabel the images and pass the remaining classes (--classes on the command line)"
            )

    def require_edge(self, parent: str, child: str) -> None:
        if child not in self.children[parent]:
            above = ", ".join(map(self.label, self.parents[child])) or "none"
            message = f"{self.label(parent)} is not a parent of {self.label(child)}; its parents are {above}"
            raise HierarchyError(message)

    def refuse_root(self, synset: str, instead: str) -> None:
        if synset == self.root:
            raise HierarchyError(f"{self.label(synset)} is the root{instead}")

    def refuse_cycle(self, parent: str, child: str) -> None:
        """Raise if an edge parent → child would create a cycle."""
        if child == parent or child in reach([parent], self.parents.__getitem__):
            where = "is the same concept" if parent == child else f"is below {self.label(child)}"
            raise HierarchyError(f"this would create a cycle: {self.label(parent)} {where}")

    def refuse_own_leaf_parent(self, parent: str) -> None:
        if parent in self.class_of:
            raise HierarchyError(
                f"{self.label(parent)} is the leaf of the class {quote(self.class_of[parent])} and cannot have "
                f"children; use {self.label(self.parents[parent][0])} as their parent"
            )

    def hierarchy(self) -> Hierarchy:
        place = {synset: i for i, synset in enumerate(self.parents)}
        parents = [[place[p] for p in above] for above in self.parents.values()]
        rest = (self.names, self.merged, self.own_leaves, self.ranks, self.columns)
        return Hierarchy(list(self.parents), parents, *rest)


@dataclass(frozen=True)
class Edit:
    """A change of a hierarchy; concepts are given by id, or by a name that no other concept has."""

    words: ClassVar[str]

    def apply(self, copy: WorkingCopy) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.words.format_map(vars(self))


@dataclass(frozen=True)
class Move(Edit):
    """Move a concept, with everything below it, to another parent; by default it leaves all its parents."""

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
        source = "" if self.from_parent is None else f" from {quote(self.from_parent)}"
        return f"move {quote(self.synset)}{source} to {quote(self.to_parent)}"


@dataclass(frozen=True)
class Add(Edit):
    """Add a concept below `parent`, and move `children` to it, from `parent` or from their only parent."""

    words = "add {synset!r} below {parent!r}"
    synset: str
    parent: str
    children: tuple[str, ...] = ()
    name: str | None = None

    def apply(self, copy: WorkingCopy) -> None:
        synset, parent, children = self.synset, copy.find(self.parent), list(map(copy.find, self.children))
        copy.refuse_own_leaf_parent(parent)
        if not synset.strip():
            raise HierarchyError("the id of the new concept is blank")
        if synset in copy.parents:
            raise HierarchyError(f"there is already a concept {copy.label(synset)}; choose another id")
        rank = copy.hierarchy().rank_of_place(parent, children) if copy.ranks else None
        copy.ranks |= {synset: rank} if rank else {}
        copy.parents[synset], copy.children[synset] = [], {}
        copy.names[synset], copy.merged[synset] = self.name or synset, ()
        copy.link(parent, synset)
        for child in children:
            above = copy.parents[child]
            if parent not in above and len(above) != 1:
                raise HierarchyError(
                    f"{copy.label(child)} has {len(above)} parents, and {copy.label(parent)} is not one of them; "
                    "move it with a Move that names the parent it leaves"
                )
            Move(child, synset, parent if parent in above else above[0]).apply(copy)


@dataclass(frozen=True)
class Merge(Edit):
    """Merge a concept into another one, which keeps its id, name and place and takes over the children."""

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
        copy.merged[into] = (*copy.merged[into], *copy.merged[synset], (synset, copy.names[synset]))
        copy.delete(synset)


@dataclass(frozen=True)
class Remove(Edit):
    """Remove a concept; its children go to its parents."""

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
    """Change the display name of a concept; its id, and with it every label, stays."""

    words = "rename {synset!r} to {name!r}"
    synset: str
    name: str

    def apply(self, copy: WorkingCopy) -> None:
        synset = copy.find(self.synset)
        label = copy.class_of.get(synset, synset)
        synset = label if label in copy.parents else synset  # an own leaf has the name of its class
        if not self.name.strip():
            raise HierarchyError(f"the new name of {copy.label(synset)} is blank")
        copy.names[synset] = self.name


@dataclass(frozen=True)
class Cut(Edit):
    """Remove one edge; the child must have another parent."""

    words = "drop the edge {parent!r} → {child!r}"
    parent: str
    child: str

    def apply(self, copy: WorkingCopy) -> None:
        parent, child = copy.find(self.parent), copy.find(self.child)
        copy.require_edge(parent, child)
        if len(copy.parents[child]) == 1:
            message = f"{copy.label(parent)} is the only parent of {copy.label(child)}; move the child, or remove it"
            raise HierarchyError(message)
        copy.unlink(parent, child)


@dataclass(frozen=True)
class Collapse(Edit):
    """Merge a concept with one child into that child, as `Hierarchy.collapse` does to every such concept."""

    words = "collapse {synset!r} into its only child"
    synset: str

    def apply(self, copy: WorkingCopy) -> None:
        synset = copy.find(self.synset)
        child, *others = copy.children[synset] or [""]
        if others or not child:
            n_children = len(copy.children[synset])
            raise HierarchyError(
                f"{copy.label(synset)} has {n_children} children; only a concept with a single child can be collapsed"
            )
        if synset == copy.root:
            if not copy.children[child]:
                raise HierarchyError(f"{copy.label(synset)} is the root, with only {copy.label(child)} below it")
            copy.root = child
        copy.hand_up(child, synset)
        copy.merged[child] = (*copy.merged[synset], (synset, copy.names[synset]), *copy.merged[child])
        copy.delete(synset)


def apply_edits(hierarchy: Hierarchy, edits: Iterable[Edit], classes: Iterable[str] | None = None) -> Hierarchy:
    """Apply edits one after the other to a copy of the hierarchy.

    `classes` are the labels that must not be lost, by default those of the leaves. An inner concept that an edit leaves
    without children is dropped, so that it does not become a class.
    """
    copy = WorkingCopy(hierarchy, map(hierarchy.class_of, hierarchy.leaves) if classes is None else classes)
    for edit in edits:
        try:
            edit.apply(copy)
            copy.settle()
        except HierarchyError as error:
            raise HierarchyError(f"cannot {edit}: {error}") from None
    return copy.hierarchy()


def parse_edits(
    hierarchy: Hierarchy,
    *,
    add: Iterable[str] = (),
    merge: Iterable[str] = (),
    move: Iterable[str] = (),
    remove: Iterable[str] = (),
    rename: Iterable[str] = (),
) -> list[Edit]:
    """Parse edits as people write them, in the order in which they are applied: add, merge, move, remove, rename.

    Parameters
    ----------
    add : texts such as "NAME:PARENT" or "NAME:PARENT:CHILD,CHILD"
    merge : texts "CONCEPT:INTO"
    move : texts "CONCEPT:NEW_PARENT" or "CONCEPT:OLD_PARENT:NEW_PARENT"
    remove : concepts
    rename : texts "CONCEPT:NAME"

    Notes
    -----
    Ids may contain colons themselves (``HP:0000118``): a text is split in the one way that gives concepts which exist.

    Raises
    ------
    HCEPError : a text has too few parts, or can be split in several ways; the message names the option
    """
    known = {*hierarchy.ids, *(hierarchy.name(s).casefold() for s in hierarchy.ids)}

    def is_known(text: str) -> bool:
        return text in known or text.casefold() in known

    def all_known(text: str) -> bool:
        return all(map(is_known, text.split(",")))

    edits: list[Edit] = []
    for text in add:
        new, parent, *rest = _parts("--add", "NAME:PARENT[:CHILD,CHILD]", text, _anything, is_known, all_known)
        edits.append(Add(new, parent, tuple(rest[0].split(",")) if rest else ()))
        known.add(new)
    edits += [Merge(*_parts("--merge", "CONCEPT:INTO", text, is_known, is_known)) for text in merge]
    for text in move:
        form = "CONCEPT[:OLD_PARENT]:NEW_PARENT"
        synset, *old, target = _parts("--move", form, text, is_known, is_known, is_known)
        edits.append(Move(synset, target, *old))
    edits += [Remove(text) for text in remove]
    return edits + [Rename(*_parts("--rename", "CONCEPT:NAME", text, is_known, _anything)) for text in rename]


def _anything(text: str) -> bool:
    return bool(text.strip())


def _parts(option: str, form: str, text: str, *checks: Callable[[str], bool]) -> list[str]:
    """Split a text at colons into two or more parts, at most one for each check; parts may contain colons."""
    pieces = text.split(":")
    cuts = (cut for n in range(1, len(checks)) for cut in combinations(range(1, len(pieces)), n))
    splits = ([":".join(pieces[a:b]) for a, b in pairwise([0, *cut, len(pieces)])] for cut in cuts)
    ways = [parts for parts in splits if all(check(part) for check, part in zip(checks, parts, strict=False))]
    if len(ways) == 1:
        return ways[0]
    if pieces in ways and checks[0] is _anything:
        return pieces  # "pet:animal:cat" adds "pet"; hardly anybody means the name "pet:animal"
    if not ways and 2 <= len(pieces) <= len(checks) and all(pieces):
        return pieces  # an unknown concept: the edit's own error names it, with near matches
    what = "can be split in several ways" if ways else "has a different form, or names no concept"
    raise HCEPError(f"{option}: expected {form}; {quote(text)} {what}. Give concepts by their ids")


def refuse_inner_classes(before: Hierarchy, after: Hierarchy, classes: Sequence[str] | None = None) -> None:
    """Refuse edits that put something below a class: a file does not record it, and the class would be lost."""
    kept = before.leaves if classes is None else [leaf for leaf in before.leaves if leaf in classes]
    inner = [leaf for leaf in kept if leaf in after and after.children(leaf)]
    if inner:
        raise HierarchyError(
            f"class {quoted(inner)} would be lost: with {quoted(after.children(inner[0]))} below it, {quote(inner[0])} "
            f"is not a leaf. Add a concept above both instead (--add NAME:PARENT:{inner[0]} --move CONCEPT:NAME), or "
            "pass --classes if it is not a class"
        )


def diff(before: Hierarchy, after: Hierarchy) -> list[str]:
    """The changes, one line each: ``-`` and ``+`` edges, ``~`` names, ``=`` merges; ids in brackets after names."""

    def label(synset: str, name: str) -> str:
        return name if name == synset else f"{name} ({synset})"

    def edges(sign: str, of: Hierarchy, other: Hierarchy) -> list[str]:
        known = set(other.edges)
        names = (map(label, edge, map(of.name, edge)) for edge in of.edges if edge not in known)
        return [f"{sign} {' → '.join(pair)}" for pair in names]

    renamed = ((s, before.name(s), after.name(s)) for s in after if s in before)
    known = {s: before.merged(s) for s in before}
    merged = ((s, pair) for s in after for pair in after.merged(s) if pair not in known.get(s, ()))
    return [
        *edges("-", before, after),
        *edges("+", after, before),
        *(f"~ {synset}: {old!r} → {new!r}" for synset, old, new in renamed if old != new),
        *(f"= {label(*pair)} merged into {label(synset, after.name(synset))}" for synset, pair in merged),
    ]
