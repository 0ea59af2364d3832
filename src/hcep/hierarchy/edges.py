"""Check (parent, child) pairs and turn them into a rooted DAG; unfold a DAG into the tree of its rooted paths."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HierarchyError, near_matches, quoted

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

VIRTUAL_ROOT = "(root)"
MAX_NODES = 5_000_000
N = TypeVar("N")
Names = Mapping[str, str] | Iterable[tuple[str, str]] | None


def read_edges(
    edges: Iterable[Sequence[str]], names: Names, root: str | None
) -> tuple[list[str], dict[str, str], list[list[int]]]:
    """Return ids, names and parent lists of a DAG with exactly one root, or raise an error that says what is wrong."""
    position: dict[str, int] = {}  # of each id, in the order of first appearance
    parents: list[list[int]] = []  # the positions of each concept's parents
    known: dict[str, str] = {}

    def place(synset: object, edge: tuple[object, ...]) -> int:
        if not isinstance(synset, str):
            raise HierarchyError(
                f"concept ids must be strings, got {quoted([synset])} ({type(synset).__name__}) in the edge "
                f"({quoted(edge)}); convert ids with str()"
            )
        if not synset:
            raise HierarchyError(f"a concept id is the empty string in the edge ({quoted(edge)}); give it an id")
        # np.str_ is a string, too; ids are plain strings, so that they print and pickle as such.
        at = position.setdefault(str.__str__(synset), len(parents))
        if at == len(parents):
            parents.append([])
        return at

    def set_name(synset: str, name: str) -> None:
        if not isinstance(name, str):
            raise HierarchyError(f"the name of concept {synset!r} must be a string, got {name!r}")
        if known.setdefault(synset, str.__str__(name)) != name:
            raise HierarchyError(
                f"concept {synset!r} has two names, {known[synset]!r} and {name!r}; keep one of them, "
                "or give each meaning its own id"
            )

    for edge in edges:
        parts = _parts(edge)
        if len(parts) not in (2, 3):
            message = f"edges must be (parent, child) pairs, or (parent, child, name of the child); got {edge!r}"
            raise HierarchyError(message)
        parent, child = place(parts[0], parts), place(parts[1], parts)
        if parent == child:
            raise HierarchyError(f"concept {quoted(parts[:1])} is its own parent (a self-loop); remove this edge")
        if parent not in parents[child]:
            parents[child].append(parent)
        if len(parts) == 3:
            set_name(parts[1], parts[2])
    if not parents:
        raise HierarchyError("the hierarchy is empty: edges must have at least one (parent, child) pair")
    named: Any = () if names is None else names
    for pair in named.items() if hasattr(named, "items") else named:
        parts = _parts(pair)
        if len(parts) != 2:
            raise HierarchyError(f"names must map concept ids to names, or be (id, name) pairs; got {pair!r}")
        set_name(*parts)
    unconnected = [s for s in known if s not in position]
    if unconnected:
        raise HierarchyError(
            f"names has concepts that are in no edge: {quoted(unconnected)}; add an edge (parent, {unconnected[0]!r}) "
            "or remove the concept from names"
        )
    ids = list(position)
    roots = [i for i, above in enumerate(parents) if not above]
    if root is not None and root not in position:
        raise HierarchyError(f"root {root!r} is in no edge.{near_matches(root, ids)}")
    strays = [ids[i] for i in roots if ids[i] != root]
    if root is not None and strays:
        raise HierarchyError(
            f"unreachable from root {root!r}: {quoted(strays)} and everything below; add an edge from the root, "
            "or leave out root= to join them under a virtual root"
        )
    if len(roots) > 1:  # if there is no root, there is a cycle, which `longest_levels` reports
        for i in roots:
            parents[i].append(len(ids))
        ids, parents = [*ids, virtual_root(position)], [*parents, []]
    return ids, known, parents


def virtual_root(taken: Container[str]) -> str:
    """An id for the root above several roots, with more brackets if it is taken."""
    virtual = VIRTUAL_ROOT
    while virtual in taken:
        virtual = f"({virtual})"
    return virtual


def _parts(pair: Any) -> tuple[Any, ...]:
    """The parts of a pair; nothing if they have no order, as in a string, a set or a number."""
    ordered = isinstance(pair, Iterable) and not isinstance(pair, str | Mapping | Set)
    return tuple(pair) if ordered else ()


def with_lone_tops(edges: list[tuple[str, str]], ids: Iterable[str]) -> list[tuple[str, str]]:
    """The edges; if some ids are in none of them, also edges from a virtual root to those and to every other root."""
    below = {child for _, child in edges}
    lone = set(ids) - below - {parent for parent, _ in edges}
    tops = dict.fromkeys(i for i in (*ids, *(parent for parent, _ in edges)) if i not in below)
    return [*((VIRTUAL_ROOT, top) for top in tops), *edges] if lone else edges


def is_virtual(root: str) -> bool:
    """Whether a root is a virtual one, with any number of brackets."""
    return root.startswith("(") and root.strip("()") == VIRTUAL_ROOT.strip("()")


def longest_levels(ids: Sequence[str], parents: Sequence[Sequence[int]]) -> list[int]:
    """The length of the longest rooted path to each concept; the error for a cycle spells it out."""
    children: list[list[int]] = [[] for _ in ids]
    for child, above in enumerate(parents):
        for parent in above:
            children[parent].append(child)
    waiting = [len(above) for above in parents]
    levels = [0] * len(ids)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    n_done = 0
    while ready:
        synset = ready.pop()
        n_done += 1
        below = levels[synset] + 1
        for child in children[synset]:
            levels[child] = max(levels[child], below)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if n_done < len(ids):
        cycle = next(find_cycles(sorted((p, child) for child, above in enumerate(parents) for p in above)))
        loop = " → ".join(repr(ids[i]) for i in [*cycle, cycle[0]])
        raise HierarchyError(f"the hierarchy has a cycle: {loop}; remove one of these edges")
    return levels


def find_cycles(edges: Iterable[tuple[N, N]]) -> Iterator[list[N]]:
    """One cycle for every edge that leads back to a concept above it in a depth-first walk.

    Without these edges there is no cycle. The number of all cycles could be exponential.
    """
    children: dict[N, dict[N, None]] = {}
    for parent, child in edges:
        children.setdefault(parent, {})[child] = None
        children.setdefault(child, {})
    below = {child for lower in children.values() for child in lower}
    done: set[N] = set()
    for start in [*(s for s in children if s not in below), *children]:
        trail = [] if start in done else [start]
        place = {synset: i for i, synset in enumerate(trail)}
        waiting = [iter(children[synset]) for synset in trail]
        while trail:
            lower = next(waiting[-1], None)
            if lower is None:
                done.add(trail[-1])
                del place[trail.pop()], waiting[-1]
            elif lower in place:
                yield trail[place[lower] :]
            elif lower not in done:
                place[lower] = len(trail)
                trail.append(lower)
                waiting.append(iter(children[lower]))


def reach(starts: Iterable[N], step: Callable[[N], Iterable[N]]) -> set[N]:
    """Everything that can be reached from the starts by at least one step."""
    seen: set[N] = set()
    waiting = list(starts)
    while waiting:
        fresh = [node for node in step(waiting.pop()) if node not in seen]
        seen.update(fresh)
        waiting += fresh
    return seen


@dataclass(frozen=True, slots=True, eq=False)
class PathTree:
    """Every rooted path of a hierarchy as one node, in breadth-first order.

    Node 0 is the empty path at the root. Siblings and levels are contiguous and parents come before children, so that
    the kernels can run over slices.

    Attributes
    ----------
    synset : (n_nodes,) int32; index of the path's last synset in the hierarchy
    edge : (n_nodes,) int32; index of the path's last edge, and so of its atom; -1 at node 0
    parent : (n_nodes,) int32; node of the path without its last synset; -1 at node 0
    level : (n_nodes,) int32; number of synsets on the path, the root left out
    first_child, n_children : (n_nodes,) int32; children of v are ``first_child[v] : first_child[v] + n_children[v]``
    """

    synset: NDArray[np.int32]
    edge: NDArray[np.int32]
    parent: NDArray[np.int32]
    level: NDArray[np.int32]
    first_child: NDArray[np.int32]
    n_children: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        return len(self.synset)

    @property
    def depth(self) -> int:
        return int(self.level[-1])

    @property
    def leaf_nodes(self) -> NDArray[np.intp]:
        """Nodes whose path is complete: it ends in a leaf of the hierarchy."""
        return np.flatnonzero(self.n_children == 0)

    def cut(self, nodes: NDArray[np.intp], max_steps: int | None) -> NDArray[np.intp]:
        """Each path after at most `max_steps` steps."""
        while max_steps is not None and (self.level[nodes] > max_steps).any():
            nodes = np.where(self.level[nodes] > max_steps, self.parent[nodes], nodes)
        return nodes

    def node_along(self, edges: Iterable[int]) -> int:
        """The node at the end of a rooted path, by its edges from the root down."""
        node, path = 0, [int(edge) for edge in edges]
        for edge in path:
            first = int(self.first_child[node])
            below = np.flatnonzero(self.edge[first : first + int(self.n_children[node])] == edge)
            if not len(below):
                raise HierarchyError(f"edges {path} are not a rooted path: {edge} does not start where the path ends")
            node = first + int(below[0])
        return node

    def ancestors(self) -> NDArray[np.int32]:
        """Nodes along each path, (n_nodes, depth), position l - 1 holding the one at level l; -1 beyond the path."""
        table = np.full((self.n_nodes, self.depth), -1, dtype=np.int32)
        for level in range(1, self.depth + 1):
            nodes = np.flatnonzero(self.level == level)
            table[nodes] = table[self.parent[nodes]]
            table[nodes, level - 1] = nodes
        return table


def unfold(hierarchy: "Hierarchy") -> PathTree:
    """Unfold a DAG into its tree of rooted paths, one level at a time."""
    if not hierarchy.is_tree:
        n_paths = np.zeros(len(hierarchy))  # floats: the count itself may overflow an integer
        n_paths[0] = 1.0
        for n in range(1, hierarchy.depth + 1):
            at = np.flatnonzero(hierarchy.levels == n)
            owner, edge = _entries(hierarchy.parent_pointer, at)
            np.add.at(n_paths, at[owner], n_paths[hierarchy.parent_index[edge]])
        if n_paths.sum() > MAX_NODES:
            worst = hierarchy.ids[int(np.argmax(n_paths))]
            raise HierarchyError(
                f"the hierarchy has {n_paths.sum():.3g} rooted paths, more than {MAX_NODES:,}; concept {worst!r} alone "
                f"has {n_paths.max():.3g}. Give concepts fewer parents, or use hierarchy.as_tree(policy='shortest')"
            )
    pointer, below = hierarchy.child_pointer, hierarchy.child_index
    synsets = [np.zeros(1, dtype=np.int32)]
    edges = [np.full(1, -1, dtype=np.int32)]
    parents = [np.full(1, -1, dtype=np.int32)]
    start = 0
    while len(synsets[-1]):
        owner, edge = _entries(pointer, synsets[-1])
        parents.append((owner + start).astype(np.int32))
        start += len(synsets[-1])
        synsets.append(below[edge])
        edges.append(edge)
    synset = np.concatenate(synsets)
    n_children = (pointer[synset + 1] - pointer[synset]).astype(np.int32)
    level = np.repeat(np.arange(len(synsets), dtype=np.int32), [len(s) for s in synsets])
    first_child = (1 + np.cumsum(n_children) - n_children).astype(np.int32)
    arrays = (synset, np.concatenate(edges), np.concatenate(parents), level, first_child, n_children)
    for array in arrays:
        array.setflags(write=False)
    return PathTree(*arrays)


def _entries(pointer: NDArray[np.int32], rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The entries of some compressed rows: the row that each belongs to, and its position."""
    counts = pointer[rows + 1] - pointer[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, (pointer[rows][owner] + rank).astype(np.int32)
