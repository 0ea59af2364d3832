"""A hierarchy while it is being edited: plain dictionaries, checked and made immutable again at the end."""

from __future__ import annotations

from collections.abc import Iterable

from hcep.errors import HierarchyError, near_matches, quoted
from hcep.hierarchy.edges import reach
from hcep.hierarchy.graph import Hierarchy


class WorkingCopy:
    """The graph of a hierarchy as dictionaries, so that an edit costs what it touches and not the whole graph.

    Parameters
    ----------
    classes : iterable of str; labels that no edit may lose
    """

    def __init__(self, hierarchy: Hierarchy, classes: Iterable[str]) -> None:
        self.root = hierarchy.root
        self.parents = {synset: list(hierarchy.parents(synset)) for synset in hierarchy}
        # Dictionaries for their order: sets would make the result depend on hashes.
        self.children = {synset: dict.fromkeys(hierarchy.children(synset)) for synset in hierarchy}
        self.names = {synset: hierarchy.name(synset) for synset in hierarchy}
        self.merged = {synset: hierarchy.merged(synset) for synset in hierarchy}
        self.own_leaves = dict(hierarchy.own_leaves)
        self.classes = {c for c in classes if c in hierarchy or c in self.own_leaves}
        self._class_of = {leaf: c for c, leaf in self.own_leaves.items()}
        self._emptied: list[str] = []
        self._deleted: list[str] = []

    def find(self, wanted: str) -> str:
        """The id meant by an id, or by a name that one synset alone has."""
        if wanted in self.parents:
            return wanted
        found = [synset for synset, name in self.names.items() if name.casefold() == wanted.casefold()]
        if len(found) > 1:
            raise HierarchyError(f"{len(found)} synsets are called {wanted!r}: {quoted(found)}; say which by its id")
        if not found:
            known = [*self.parents, *(name for synset, name in self.names.items() if name != synset)]
            raise HierarchyError(f"{wanted!r} is neither the id nor the name of a synset.{near_matches(wanted, known)}")
        return found[0]

    def label(self, synset: str) -> str:
        name = self.names[synset]
        return repr(synset) if name == synset else f"{name!r} ({synset})"

    def create(self, synset: str, name: str | None) -> None:
        if not synset.strip():
            raise HierarchyError("the new synset needs an id that is not blank")
        if synset in self.parents:
            raise HierarchyError(f"there is a synset {self.label(synset)} already; choose another id")
        self.parents[synset], self.children[synset] = [], {}
        self.names[synset], self.merged[synset] = name or synset, ()

    def link(self, parent: str, child: str, instead_of: str | None = None) -> None:
        """Add an edge; in the child's list of parents it stands before `instead_of`, which keeps the first first."""
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
        """Hang a child of a synset that is about to go from the parents of that synset."""
        for parent in list(self.parents[synset]):
            self.link(parent, child, instead_of=synset)

    def delete(self, synset: str) -> None:
        """Take a synset and its edges out."""
        for parent in list(self.parents[synset]):
            self.unlink(parent, synset)
        for child in list(self.children[synset]):
            self.unlink(synset, child)
        self._deleted.append(synset)
        del self.parents[synset], self.children[synset], self.names[synset], self.merged[synset]

    def remember(self, synset: str, into: str, above: bool = False) -> None:
        """Keep the names of a synset that is about to go, highest first where it stood `above`."""
        gone = (*self.merged[synset], (synset, self.names[synset]))
        self.merged[into] = (*gone, *self.merged[into]) if above else (*self.merged[into], *gone)

    def prune(self) -> None:
        """Drop inner synsets that lost their last child; a class among them has become a leaf and stays."""
        while self._emptied:
            synset = self._emptied.pop()
            if synset in self.children and not self.children[synset] and synset not in self.classes:
                if synset == self.root:
                    raise HierarchyError("nothing would be left below the root")
                self.delete(synset)

    def require_edge(self, parent: str, child: str) -> None:
        if child not in self.children[parent]:
            raise HierarchyError(
                f"{self.label(parent)} is not a parent of {self.label(child)}; its parents are "
                f"{', '.join(map(self.label, self.parents[child])) or 'none'}"
            )

    def refuse_root(self, synset: str, instead: str) -> None:
        if synset == self.root:
            raise HierarchyError(f"{self.label(synset)} is the root{instead}")

    def refuse_cycle(self, parent: str, child: str) -> None:
        """Raise when an edge parent → child would close a cycle: the parent is the child, or below it."""
        if child == parent or child in reach([parent], self.parents.__getitem__):
            where = "is the same synset" if parent == child else f"is below {self.label(child)}"
            raise HierarchyError(f"this would close a cycle: {self.label(parent)} {where}")

    def refuse_own_leaf_parent(self, parent: str) -> None:
        if parent in self._class_of:
            above = self.parents[parent][0]
            raise HierarchyError(
                f"{self.label(parent)} is the leaf of the class {self._class_of[parent]!r} and cannot have children; "
                f"hang them from {self.label(above)}"
            )

    def refuse_lost_classes(self) -> None:
        """Raise when a class has no leaf left; only synsets deleted since the last call can have been one."""
        gone, self._deleted = self._deleted, []
        lost = [label for label in (self._class_of.get(s, s) for s in gone) if label in self.classes]
        lost = [label for label in lost if self.own_leaves.get(label, label) not in self.parents]
        if lost:
            raise HierarchyError(
                f"class {quoted(lost)} would be lost: images with this label would have no leaf. Keep the synset, or "
                "relabel the images and give the classes that are left"
            )

    def hierarchy(self) -> Hierarchy:
        ids = list(self.parents)
        place = {synset: i for i, synset in enumerate(ids)}
        parents = [[place[p] for p in self.parents[synset]] for synset in ids]
        return Hierarchy(ids, parents, self.names, self.merged, self.own_leaves)
