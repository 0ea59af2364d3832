"""The hierarchy: an immutable rooted DAG of concepts, stored in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from hcep._checks import escape_html as escape, require
from hcep._files import write_bytes
from hcep.errors import HCEPError, HierarchyError, near_matches, quote, quoted
from hcep.hierarchy import serial
from hcep.hierarchy.columns import Columns
from hcep.hierarchy.drawing import draw_tree
from hcep.hierarchy.edges import Names, PathTree, as_id, count_paths, longest_levels, reach, read_edges, unfold
from hcep.hierarchy.names import spelling_key

TreePolicy = Literal["first", "shortest", "longest"]
Merged = tuple[tuple[str, str], ...]
#: What the id of a leaf that `Hierarchy.with_classes` adds has after the id of its class.
OWN_LEAF = " (unspecified)"
T = TypeVar("T", bound=np.generic)


class Hierarchy:
    """A rooted DAG of synsets whose leaves are the classes. Build one with `from_edges` or `hcep.read_hierarchy`.

    Synsets have string ids. Internally they are numbered: the root is 0, and every parent comes before its children.
    `edges`, and with them the atoms of a dictionary, are ordered by parent, then by child. A hierarchy never changes:
    `restrict`, `collapse` and `as_tree` return new ones.

    Attributes
    ----------
    ids : the synset ids, in index order
    levels : (n_synsets,) int32; the length of the longest rooted path to each synset
    child_pointer, child_index, parent_pointer, parent_index : int32
        Children and parents as compressed rows: the children of synset i are
        ``child_index[child_pointer[i] : child_pointer[i + 1]]``.
    columns : the columns of the table it was read from, with its common names; None if it is from something else

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> h = Hierarchy.from_edges([("animal", "cat"), ("animal", "dog"), ("entity", "animal"), ("entity", "car")])
    >>> h
    Hierarchy(5 synsets, 3 leaves, 4 edges, depth 2, branching at most 2, root 'entity')
    >>> h.paths("cat")
    (('animal', 'cat'),)
    >>> h.lca("cat", "car")
    'entity'
    """

    ids: tuple[str, ...]
    levels: NDArray[np.int32]
    child_pointer: NDArray[np.int32]
    child_index: NDArray[np.int32]
    parent_pointer: NDArray[np.int32]
    parent_index: NDArray[np.int32]
    _index: dict[str, int]
    _names: dict[str, str]
    _merged: dict[str, Merged]
    _own_leaf: dict[str, str]
    _class_of: dict[str, str]
    _ranks: dict[str, str]
    columns: Columns | None

    def __init__(
        self,
        ids: Sequence[str],
        parents: Sequence[Sequence[int]],
        names: Mapping[str, str],
        merged: Mapping[str, Merged] | None = None,
        own_leaf: Mapping[str, str] | None = None,
        ranks: Mapping[str, str] | None = None,
        columns: Columns | None = None,
    ) -> None:
        # Trusted arguments: `parents` are positions in `ids`, one root. Users come in through from_edges.
        levels = longest_levels(ids, parents)
        order = sorted(range(len(ids)), key=levels.__getitem__)  # stable: ties stay in order of appearance
        place = np.empty(len(ids), dtype=np.int32)
        place[order] = np.arange(len(ids), dtype=np.int32)
        n_parents = np.array([len(parents[i]) for i in order], dtype=np.int32)
        parent_index = place[np.array([p for i in order for p in parents[i]], dtype=np.intp)]
        child = np.repeat(np.arange(len(ids), dtype=np.int32), n_parents)
        index = {ids[i]: k for k, i in enumerate(order)}
        own = {c: s for c, s in (own_leaf or {}).items() if s in index and c != s}
        class_of = {leaf: label for label, leaf in own.items()}
        chains = {s: m for s, m in (merged or {}).items() if s in index and m}
        absorbed = [s for chain in chains.values() for s, _ in chain] if ranks or columns else []
        known = {**index, **dict.fromkeys(absorbed)}  # what was merged keeps its rank and its cells
        self.__dict__.update(
            ids=tuple(index),
            levels=_frozen(np.array([levels[i] for i in order], dtype=np.int32)),
            parent_pointer=_pointer(n_parents),
            parent_index=_frozen(parent_index),
            child_pointer=_pointer(np.bincount(parent_index, minlength=len(ids))),
            child_index=_frozen(child[np.lexsort((child, parent_index))]),
            _index=index,
            _names={s: n for s, n in names.items() if s in index and n != s and class_of.get(s) not in index},
            _merged=chains,
            _own_leaf=own,
            _class_of=class_of,
            _ranks={s: rank for s, rank in (ranks or {}).items() if s in known},
            columns=columns and Columns(columns.roles, {s: c for s, c in columns.rows.items() if s in known}),
        )

    @classmethod
    def from_edges(cls, edges: Iterable[Sequence[str]], names: Names = None, *, root: str | None = None) -> Hierarchy:
        """Build a hierarchy from (parent, child) or (parent, child, name of the child) tuples.

        Ids are strings; integers, such as the numbers of classes, become strings.

        Parameters
        ----------
        edges : repeated edges count once; the first edge to a child names its first parent
        names : display names by id; the id is the name by default
        root : the only root, which is checked; by default several roots are joined under a virtual root ``"(root)"``

        Raises
        ------
        HierarchyError : the edges are not a rooted DAG; the message names the concept
        """
        ids, known, parents = read_edges(edges, names, root)
        return cls(ids, parents, known)

    @property
    def root(self) -> str:
        """The id of the root. Its embedding is zero, and no path contains it."""
        return self.ids[0]

    @property
    def leaves(self) -> tuple[str, ...]:
        """Ids of the synsets without children, in index order."""
        return tuple(self.ids[i] for i in self.leaf_index)

    @property
    def leaf_index(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.diff(self.child_pointer) == 0)

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every (parent, child), ordered by parent, then by child; atom k of a dictionary belongs to edge k."""
        parents = np.repeat(np.arange(len(self)), np.diff(self.child_pointer))
        return tuple(zip(self._ids(parents), self._ids(self.child_index), strict=True))

    @property
    def n_edges(self) -> int:
        return len(self.child_index)

    @property
    def depth(self) -> int:
        """The number of synsets on the longest rooted path, without the root."""
        return int(self.levels[-1])

    @property
    def max_branching(self) -> int:
        """The largest number of children of a synset."""
        return int(np.diff(self.child_pointer).max())

    @property
    def is_tree(self) -> bool:
        """Whether every synset except the root has exactly one parent."""
        return self.n_edges == len(self) - 1

    @cached_property
    def n_paths(self) -> int:
        """The number of rooted paths, without the empty one; in a tree, that of the synsets below the root."""
        return len(self) - 1 if self.is_tree else int(count_paths(self).sum()) - 1

    @cached_property
    def path_tree(self) -> PathTree:
        """The tree of rooted paths, unfolded on first use."""
        return unfold(self)

    def index(self, synset: str) -> int:
        """The index of a synset id; the error for an unknown id lists near matches."""
        try:
            return self._index[synset]
        except (KeyError, TypeError):
            close = near_matches(synset, self.ids)
            raise HierarchyError(f"{quoted([synset])} is not a concept of this hierarchy.{close}") from None

    def find(self, name: str) -> str:
        """The id of a concept by its id, its name, a name merged into it, or a WordNet synonym.

        Case, plurals and the way words are joined do not matter. Synonyms are known for the synsets above ImageNet's
        classes. Raises HierarchyError where no concept has the name, or several have it.

        >>> from hcep.hierarchy.imagenet import imagenet_hierarchy
        >>> imagenet_hierarchy(["garbage truck", "tench"]).find("dustcart")
        'n03417042'
        """
        if name in self:
            return name
        key = spelling_key(name)
        by_name = [i for i in self if spelling_key(self.name(i)) == key]
        if len(by_name) > 1:  # a class and its own leaf have one name, which means the class
            by_name = [i for i in by_name if self.class_of(i) not in by_name or self.class_of(i) == i]
        merged = [i for i in self if any(name == m or spelling_key(called) == key for m, called in self.merged(i))]
        by_id = [i for i in self if spelling_key(i) == key]
        matches = by_name or by_id or merged or self._by_synonym(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            message = f"{quote(name)} is the name of {len(matches)} concepts; give one of the ids {quoted(matches)}"
            raise HierarchyError(message)
        close = near_matches(name, dict.fromkeys([*self.ids, *map(self.name, self)]))
        raise HierarchyError(f"{quote(name)} is not a concept of this hierarchy.{close}")

    def _by_synonym(self, name: str) -> list[str]:
        from hcep.hierarchy.imagenet import imagenet_wnid

        try:
            wnid = imagenet_wnid(name)
        except HCEPError:
            return []
        return [i for i in self if wnid == i or any(wnid == other for other, _ in self.merged(i))]

    def children(self, synset: str) -> tuple[str, ...]:
        """Ids of the children of a synset."""
        return self._ids(self._children(self.index(synset)))

    def parents(self, synset: str) -> tuple[str, ...]:
        """Ids of the parents of a synset, the first parent first."""
        return self._ids(self._parents(self.index(synset)))

    def ancestors(self, synset: str) -> tuple[str, ...]:
        """Ids of all synsets above this one, the root first."""
        return self._ids(sorted(reach([self.index(synset)], self._parents)))

    def descendants(self, synset: str) -> tuple[str, ...]:
        """Ids of all synsets below this one, in index order."""
        return self._ids(sorted(reach([self.index(synset)], self._children)))

    def level(self, synset: str) -> int:
        """Length of the longest rooted path to a synset; 0 at the root."""
        return int(self.levels[self.index(synset)])

    def is_leaf(self, synset: str) -> bool:
        return len(self._children(self.index(synset))) == 0

    def paths(self, synset: str) -> tuple[tuple[str, ...], ...]:
        """Every rooted path to a synset, without the root."""
        paths: list[tuple[str, ...]] = []
        path: list[int] = []  # from the synset upwards
        waiting = [(self.index(synset), 0)]  # with the length of the path below
        while waiting:
            i, n_below = waiting.pop()
            if i == 0:
                paths.append(self._ids(path[n_below - 1 :: -1] if n_below else ()))
                continue
            path[n_below:] = [i]
            waiting += [(p, n_below + 1) for p in self._parents(i)[::-1]]
        return tuple(paths)

    def lca(self, a: str, b: str) -> str:
        """The deepest synset that is above (or equal to) both; of several, the one with the lowest index."""
        above = [{i, *reach([i], self._parents)} for i in (self.index(a), self.index(b))]
        return self.ids[max(above[0] & above[1], key=lambda i: (self.levels[i], -i))]

    def name(self, synset: str) -> str:
        """The display name of a synset, by default its id; the own leaf of a class has the name of the class."""
        known = self.ids[self.index(synset)]
        if known not in self._class_of:
            return self._names.get(known, known)
        label = self._class_of[known]
        if label in self._index:
            return self._names.get(label, label)
        # The class itself is gone, as it was merged into its leaf or removed.
        return self._names.get(known) or dict(self.merged(known)).get(label, label)

    def merged(self, synset: str) -> Merged:
        """The (id, name) pairs that `collapse` merged into a synset, highest first."""
        return self._merged.get(self.ids[self.index(synset)], ())

    def shown_path(self, synsets: Iterable[str]) -> tuple[str, ...]:
        """The names along a path as people read it: with merged concepts that have a rank, and no name twice in a row.

        >>> h = Hierarchy.from_edges([("animal", "fish"), ("fish", "tench"), ("animal", "dog"), ("dog", "pug")])
        >>> h = h.with_ranks({"fish": "group", "tench": "class"}).collapse()
        >>> h.shown_path(["tench"]), h.shown_path(["pug"])
        (('fish', 'tench'), ('pug',))
        """
        merged = ((one, name) for synset in synsets for one, name in (*self.merged(synset), (None, self.name(synset))))
        return tuple(name for name, _ in groupby(name for one, name in merged if one is None or self.rank(one)))

    def called(self, name: str) -> str:
        """The display name of the concept that `find` finds; of a merged concept its own, not that of its child."""
        synset, key = self.find(name), spelling_key(name)
        if name in self or key in map(spelling_key, (synset, self.name(synset))):
            return self.name(synset)
        merged = (called for one, called in self.merged(synset) if name == one or spelling_key(called) == key)
        return next(merged, self.name(synset))

    def rank(self, synset: str) -> str | None:
        """The rank of a synset, such as "family", or of one that was merged; None if it has no rank."""
        if synset in self._ranks or synset in self._absorbed:
            return self._ranks.get(synset)
        return self._ranks.get(self.class_of(synset))

    @property
    def ranks(self) -> Mapping[str, str]:
        """The rank of every concept that has one, also of those that `collapse` merged; the highest ranks first."""
        return MappingProxyType(self._ranks)

    @property
    def rank_names(self) -> tuple[str, ...]:
        """The ranks, such as ``("kingdom", ..., "species")``, the highest first; empty if there are none."""
        return tuple(dict.fromkeys(self._ranks.values()))

    def with_ranks(self, ranks: Mapping[str, str]) -> Hierarchy:
        """Give concepts a rank, such as "family", by their ids; other concepts have none.

        The order of the ranks is that in which they first appear here: give the concepts of the highest rank first.

        >>> h = Hierarchy.from_edges([("animal", "Felidae"), ("Felidae", "Lynx"), ("animal", "Canidae")])
        >>> h = h.with_ranks({"Felidae": "family", "Canidae": "family", "Lynx": "genus"})
        >>> h.rank("Lynx"), h.rank("animal"), h.rank_names
        ('genus', None, ('family', 'genus'))
        """
        known = {*self, *(merged for chain in self._merged.values() for merged, _ in chain)}
        for synset, rank in ranks.items():
            if synset not in known:
                close = near_matches(synset, known)
                raise HierarchyError(f"ranks: {quoted([synset])} is not a concept of this hierarchy.{close}")
            if not isinstance(rank, str) or not rank.strip():
                raise HierarchyError(
                    f"the rank of concept {quote(synset)} must be a word such as 'family', got {quote(rank)}"
                )
        return self._with(ranks=ranks)

    def with_columns(self, columns: Columns | None) -> Hierarchy:
        """The hierarchy with the columns of a table, which it is written with."""
        return self._with(columns=columns)

    def rank_of_place(self, parent: str, children: Iterable[str] = ()) -> str | None:
        """The rank that a new concept gets below `parent` and above `children`; None if the place does not tell it.

        This is the rank of its siblings if they agree, for a class also that of all other classes, or else the next
        rank below that of the parent.

        >>> h = Hierarchy.from_edges([("animal", "Felidae"), ("Felidae", "Lynx"), ("animal", "Canidae")])
        >>> h = h.with_ranks({"Felidae": "family", "Canidae": "family", "Lynx": "genus"})
        >>> h.rank_of_place("Felidae"), h.rank_of_place("animal"), h.rank_of_place("animal", ["Lynx"])
        ('genus', 'family', 'family')
        """
        order, below = list(self.rank_names), list(children)
        above = [order.index(rank) for s in (parent, *self.ancestors(parent)) if (rank := self.rank(s))]
        lower = [order.index(rank) for s in below if (rank := self.rank(s))]
        possible = order[max(above, default=-1) + 1 : min(lower, default=len(order))]
        siblings = {self.rank(s) for s in self.children(parent) if s not in below} - {None}
        classes = {self.rank(s) for s in self.leaves} - {None} if not below and not siblings else set()
        agreed = [rank for ranks in (siblings, classes) if len(ranks) == 1 for rank in ranks if rank in possible]
        return next(iter(agreed or (possible if above or lower else [])), None)

    def find_rank(self, rank: str) -> str:
        """The rank that a user means: one of `rank_names`, in upper or lower case."""
        matches = [name for name in self.rank_names if name.casefold() == rank.casefold()]
        if matches:
            return rank if rank in matches else matches[0]
        if not self.ranks:
            raise HierarchyError(
                f"rank {quote(rank)}: the hierarchy has no ranks, which come from the titles of level columns"
            )
        close = near_matches(rank, self.rank_names)
        raise HierarchyError(
            f"{quote(rank)} is not a rank of this hierarchy, which has {quoted(self.rank_names, 12)}.{close}"
        )

    def at_rank(self, concept: str, rank: str) -> tuple[str, str] | None:
        """The most specific concept at a rank or above it, of a concept and those above it; None if there is none.

        Returned are its id, and the synset it is merged into, or its id again. A concept without a rank counts as above
        the rank until the path reaches the rank. Of several parents, the first counts.

        >>> h = Hierarchy.from_edges([("animal", "Felidae"), ("Felidae", "Lynx"), ("animal", "Canidae")])
        >>> h = h.with_ranks({"Felidae": "family", "Canidae": "family", "Lynx": "genus"}).collapse()
        >>> h.at_rank("Lynx", "family"), h.lineage("Lynx")
        (('Felidae', 'Lynx'), {'family': 'Felidae', 'genus': 'Lynx'})
        """
        order = {name: i for i, name in enumerate(self.rank_names)}
        limit, found, reached = order[self.find_rank(rank)], None, False
        for one, _, synset in self.trail(concept):
            own = order.get(self._ranks.get(one, ""))
            if (reached and own is None) or (own is not None and own > limit):
                break
            found, reached = (one, synset), reached or own == limit
        return found

    def lineage(self, concept: str) -> dict[str, str]:
        """The name of the concept of each rank, of a concept and those above it; also for one that was merged."""
        return {self._ranks[one]: name for one, name, _ in self.trail(concept, root=True) if one in self._ranks}

    def path_names(self, concept: str) -> tuple[str, ...]:
        """The names on the way to a concept, the highest first, with merged ones; of several parents the first counts.

        >>> Hierarchy.from_edges([("thing", "animal"), ("animal", "cat")]).path_names("cat")
        ('animal', 'cat')
        """
        return tuple(dict.fromkeys(name for _, name, _ in self.trail(concept)))

    def trail(self, concept: str, *, root: bool = False) -> list[tuple[str, str, str]]:
        """Id, name and synset of a concept and everything above it, the highest first, with what was merged.

        Of several parents, the first counts. The root is left out unless `root` is True.
        """
        path, i = [], self.index(self.merged_into(concept))
        while i:
            path.append(i)
            i = self._parents(i)[0]
        path += [0] if root else []
        trail = [(one, name, s) for s in self._ids(path[::-1]) for one, name in (*self.merged(s), (s, self.name(s)))]
        trail = [(self._class_of.get(one, one), name, s) for one, name, s in trail]
        ends = [k for k, (one, *_) in enumerate(trail) if one == self._class_of.get(concept, concept)]
        return trail[: ends[0] + 1] if ends else trail

    def merged_into(self, concept: str) -> str:
        """The synset that a concept is merged into; the concept itself if it is not merged."""
        return concept if concept in self._index else self._absorbed.get(concept, concept)

    @cached_property
    def _absorbed(self) -> dict[str, str]:
        """The synset that each merged concept is merged into."""
        return {one: synset for synset, chain in self._merged.items() for one, _ in chain}

    def leaf_of(self, label: str) -> str:
        """The leaf of a class: the class itself, or its own leaf if it is an inner synset."""
        if label in self._own_leaf:
            return self._own_leaf[label]
        if not self.is_leaf(label):
            raise HierarchyError(
                f"class {quoted([label])} is an inner concept, above {quoted(self.children(label), 3)}; "
                f"use hierarchy.with_classes([{quoted([label])}]) to give the class a leaf of its own below it"
            )
        return self.ids[self._index[label]]

    @property
    def own_leaves(self) -> Mapping[str, str]:
        """The classes that are inner synsets, and the leaf that `with_classes` added below each."""
        return MappingProxyType(self._own_leaf)

    def class_of(self, leaf: str) -> str:
        """The class of a leaf; the inverse of `leaf_of`."""
        known = self.ids[self.index(leaf)]
        return self._class_of.get(known, known)

    def with_classes(self, classes: Iterable[str]) -> Hierarchy:
        """Make every class a leaf: a class that is an inner synset gets a leaf of its own below it.

        The inner synset keeps its id. The new leaf has the id ``"cat (unspecified)"`` and the name of the class;
        `leaf_of` finds it by the class.
        """
        inner = [c for c in dict.fromkeys(classes) if c not in self._own_leaf and not self.is_leaf(c)]
        if not inner:
            return self
        ids, parents = list(self.ids), self._parent_lists()
        own_leaf = dict(self._own_leaf)
        for c in inner:
            leaf = f"{c}{OWN_LEAF}"
            while leaf in self._index:
                leaf += "'"
            ids.append(leaf)
            parents.append([self._index[c]])
            own_leaf[c] = leaf
        return self._with(ids=ids, parents=parents, own_leaf=own_leaf)

    def without_own_leaves(self) -> Hierarchy:
        """The hierarchy without the leaves that `with_classes` added; a leaf whose class is gone stands for it."""
        kept = [i for i, s in enumerate(self.ids) if s not in self._class_of or self._class_of[s] not in self._index]
        rest = self._on(kept, self._parent_lists())
        names = rest._names | {self._class_of[s]: self.name(s) for s in rest if s in self._class_of}
        merged = {
            self._class_of.get(s, s): tuple(pair for pair in chain if pair[0] != self._class_of.get(s))
            for s, chain in rest._merged.items()
        }
        ids = [self._class_of.get(s, s) for s in rest]
        return rest._with(ids=ids, names=names, merged=merged, own_leaf=None)

    def restrict(self, leaves: Iterable[str]) -> Hierarchy:
        """Keep some classes and everything above them.

        A class that is also an ancestor of another class stays an inner synset and gets a leaf of its own (see
        `with_classes`); an inner synset without another class below it becomes a leaf.
        """
        wanted = list(dict.fromkeys(leaves))
        unknown = [c for c in wanted if c not in self._index and c not in self._own_leaf]
        if unknown:
            raise HierarchyError(
                f"{len(unknown):,} of {len(wanted):,} leaves are not concepts of this hierarchy: {quoted(unknown)}."
                + near_matches(unknown[0], self.ids)
            )
        targets = [self._index[self._own_leaf.get(c, c)] for c in wanted]
        if not any(targets):
            raise HierarchyError("restrict needs at least one concept below the root")
        above = reach(targets, self._parents)
        kept = self._on(sorted(above | set(targets)), self._parent_lists())
        return kept.with_classes(c for c, t in zip(wanted, targets, strict=True) if t in above)

    def collapse(self) -> Hierarchy:
        """Merge chains: an inner synset with one child is merged into that child.

        The embedding of such a synset equals its child's, so the atom between them would be zero. The lowest synset
        of a chain keeps its id and name; `merged` has the others. A root with one inner child is replaced by it.
        """
        parents = self._parent_lists()
        children = [set(self._children(i)) for i in range(len(self))]
        absorbed: dict[int, list[int]] = {}  # the synsets that are merged into another, lowest first
        for i in range(len(self) - 1, 0, -1):
            if len(children[i]) == 1:
                (child,) = children[i]
                for grandparent in parents[i]:
                    children[grandparent].remove(i)
                    children[grandparent].add(child)
                at = parents[child].index(i)  # in its place, so that the first parent stays the first
                parents[child][at : at + 1] = parents[i]
                parents[child] = list(dict.fromkeys(parents[child]))
                absorbed.setdefault(child, []).append(i)
        top, *others = children[0]
        if not others and children[top]:  # once is enough: every inner synset below the root now has several children
            parents[top] = []
            absorbed.setdefault(top, []).append(0)
        gone = {i for synsets in absorbed.values() for i in synsets}
        merged = {}
        for i, synsets in absorbed.items():  # highest first: what was merged before, and all but the last
            chain = self._ids([*synsets[::-1], i])
            merged[chain[-1]] = tuple([pair for s in chain for pair in (*self.merged(s), (s, self.name(s)))][:-1])
        return self._on([i for i in range(len(self)) if i not in gone], parents, merged)

    def as_tree(self, policy: TreePolicy = "first") -> Hierarchy:
        """Keep one parent per synset: the first, or the one on the "shortest" or "longest" rooted path (ties: first).

        An inner synset that loses all its children is dropped, so that the leaves stay the same.
        """
        if policy not in ("first", "shortest", "longest"):
            expected = "policy must be 'first', 'shortest' or 'longest'"
            raise HierarchyError(f"{expected}, got {quote(policy)} (--single-parent on the command line)")
        length = [0] * len(self)
        parents: list[list[int]] = [[]]
        choose: Any = {"first": lambda above, key: above[0], "shortest": min, "longest": max}[policy]
        for i, above in enumerate(self._parent_lists()[1:], 1):
            parent = choose(above, key=length.__getitem__)
            length[i] = length[parent] + 1
            parents.append([parent])
        return self._with(parents=parents).restrict(self.class_of(leaf) for leaf in self.leaves)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the hierarchy as versioned JSON (format in docs/hierarchy.md), and write it to `path` if given."""
        text = serial.dumps(self)
        if path is not None:
            write_bytes(path, text.encode(), HierarchyError)
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> Hierarchy:
        """Read what `to_json` wrote, from a path or from the text itself, which starts with ``{``."""
        record = serial.loads(source)
        read_edges([(parent, synset.id) for synset in record.synsets for parent in synset.parents], None, record.root)
        place = {synset.id: i for i, synset in enumerate(record.synsets)}
        parents = [[place[parent] for parent in dict.fromkeys(synset.parents)] for synset in record.synsets]
        names = {synset.id: synset.name for synset in record.synsets if synset.name is not None}
        merged = {synset.id: tuple(synset.merged) for synset in record.synsets}
        hierarchy = cls(list(place), parents, names, merged, record.classes, None, record.columns)
        return hierarchy.with_ranks(record.ranks)

    @classmethod
    def from_networkx(cls, graph: Any, *, root: str | None = None) -> Hierarchy:
        """Build a hierarchy from a networkx DiGraph: edges from parent to child, attributes ``name`` and ``rank``."""
        if not hasattr(graph, "is_directed") or not graph.is_directed():
            expected = "expected a directed networkx graph with edges from parent to child"
            raise HierarchyError(f"{expected}, got {type(graph).__name__}")
        alone = [node for node in graph.nodes if not graph.degree(node)]
        if alone:
            raise HierarchyError(f"node {quote(alone[0])} has no edge; connect it to its parent, or remove it")
        # By child, in the order of a hierarchy's synsets: a graph from to_networkx gives the same hierarchy.
        edges = [(parent, child) for child in graph.nodes for parent in graph.predecessors(child)]
        names = {node: str(name) for node, name in graph.nodes(data="name") if name is not None}
        ranks = {as_id(node): rank for node, rank in graph.nodes(data="rank") if rank is not None}
        return cls.from_edges(edges, names, root=root).with_ranks(ranks)

    def to_networkx(self) -> Any:
        """The hierarchy as a networkx DiGraph in index order, without merged chains and inner classes."""
        graph = require("networkx", "formats", "a networkx graph").DiGraph()
        graph.add_nodes_from((synset, {"name": self.name(synset)}) for synset in self)
        graph.add_edges_from((parent, child) for child in self for parent in self.parents(child))
        for synset in self:
            if rank := self._ranks.get(synset):
                graph.nodes[synset]["rank"] = rank
        return graph

    def format_tree(self, max_depth: int | None = None, max_children: int | None = None) -> str:
        """Draw the hierarchy with box characters, one synset per line; a synset drawn before is marked ``↑``."""
        return draw_tree(self, max_depth, max_children)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, synset: object) -> bool:
        return synset in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __repr__(self) -> str:
        return (
            f"Hierarchy({len(self):,} synsets, {len(self.leaf_index):,} leaves, {self.n_edges:,} edges, "
            f"depth {self.depth}, branching at most {self.max_branching}, root {quote(self.root)})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p><pre>{escape(self.format_tree(max_depth=4, max_children=8))}</pre>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return {**self._parts(), "columns": None} == {**other._parts(), "columns": None}

    def __hash__(self) -> int:
        return hash((self.ids, self.n_edges))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Hierarchy is immutable; {quote(name)} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Hierarchy is immutable; {quote(name)} cannot be deleted")

    def __copy__(self, memo: object = None) -> Hierarchy:
        return self

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        return Hierarchy, tuple(self._parts().values())

    def _parts(self) -> dict[str, Any]:
        """The arguments that make this hierarchy, in their order."""
        rest = {"own_leaf": self._own_leaf, "ranks": self._ranks, "columns": self.columns}
        return {"ids": self.ids, "parents": self._parent_lists(), "names": self._names, "merged": self._merged, **rest}

    def _with(self, **changes: Any) -> Hierarchy:
        """The hierarchy with some arguments changed."""
        return Hierarchy(**{**self._parts(), **changes})

    def _ids(self, indices: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.ids[i] for i in indices)

    def _children(self, i: int) -> list[int]:
        return _row(self.child_pointer, self.child_index, i)

    def _parents(self, i: int) -> list[int]:
        return _row(self.parent_pointer, self.parent_index, i)

    def _parent_lists(self) -> list[list[int]]:
        flat, pointer = self.parent_index.tolist(), self.parent_pointer.tolist()
        return [flat[a:b] for a, b in pairwise(pointer)]

    def _on(
        self, kept: Sequence[int], parents: Sequence[Sequence[int]], merged: Mapping[str, Merged] | None = None
    ) -> Hierarchy:
        """The hierarchy of some of the synsets, with the parents of each."""
        place = {i: k for k, i in enumerate(kept)}
        rows = [[place[p] for p in parents[i]] for i in kept]
        chains = {**self._merged, **(merged or {})}
        return self._with(ids=self._ids(kept), parents=rows, merged=chains)


def _row(pointer: NDArray[np.int32], index: NDArray[np.int32], i: int) -> list[int]:
    row: list[int] = index[pointer[i] : pointer[i + 1]].tolist()
    return row


def _frozen(array: NDArray[T]) -> NDArray[T]:
    array.setflags(write=False)
    return array


def _pointer(counts: NDArray[Any]) -> NDArray[np.int32]:
    return _frozen(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
