"""Check (parent, child) pairs and turn them into a rooted DAG; unfold a DAG into the tree of its rooted paths."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HierarchyError, near_matches, quote, quoted

if TYPE_CHECKING:
    from hcep.hierarchy.graph import Hierarchy

VIRTUAL_ROOT = "(root)"
#: Concepts of a cycle that a message lists.
MAX_LOOP = 20
#: Deeper hierarchies are mistakes in a file; depth also bounds how much longer paths are than the file.
MAX_DEPTH = 1_000
#: Rooted paths above which a warning is due, and above which none are unfolded.
MANY_PATHS, MAX_PATHS = 50_000, 5_000_000
#: Entries of the largest table of paths and their steps that is built.
MAX_STEPS = 250_000_000
FEWER_PATHS = "hierarchy.as_tree(policy='shortest') (`hcep hierarchy convert --single-parent shortest`)"
N = TypeVar("N")
Names = Mapping[str, str] | Iterable[tuple[str, str]] | None


def read_edges(
    edges: Iterable[Sequence[str]], names: Names, root: str | None
) -> tuple[list[str], dict[str, str], list[list[int]]]:
    """Return ids, names and parent lists of a DAG with exactly one root, or raise an error that says what is wrong."""
    position: dict[str, int] = {}  # of each id, in the order of first appearance
    above: list[dict[int, None]] = []  # the positions of each concept's parents
    known: dict[str, str] = {}

    def place(synset: object, edge: tuple[object, ...]) -> int:
        if not isinstance(synset, str):
            raise HierarchyError(
                f"concept ids must be strings or integers, got {quoted([synset])} ({type(synset).__name__}) in the "
                f"edge ({quoted(edge)}); convert ids with str()"
            )
        if not synset:
            raise HierarchyError(f"a concept id is the empty string in the edge ({quoted(edge)}); give it an id")
        # np.str_ is a string, too; ids are plain strings, so that they print and pickle as such.
        at = position.setdefault(str.__str__(synset), len(above))
        if at == len(above):
            above.append({})
        return at

    def set_name(synset: str, name: str) -> None:
        if not isinstance(name, str):
            raise HierarchyError(f"the name of concept {quote(synset)} must be a string, got {quote(name)}")
        if known.setdefault(synset, str.__str__(name)) != name:
            raise HierarchyError(
                f"concept {quote(synset)} has two names, {quote(known[synset])} and {quote(name)}; keep one of them, "
                "or give each meaning its own id"
            )

    for edge in edges:
        parts = _parts(edge)
        if len(parts) not in (2, 3):
            message = f"edges must be (parent, child) pairs, or (parent, child, name of the child); got {quote(edge)}"
            raise HierarchyError(message)
        parts = (*map(as_id, parts[:2]), *parts[2:])
        parent, child = place(parts[0], parts), place(parts[1], parts)
        if parent == child:
            raise HierarchyError(f"concept {quoted(parts[:1])} is its own parent (a self-loop); remove this edge")
        above[child][parent] = None
        if len(parts) == 3:
            set_name(parts[1], parts[2])
    if not above:
        raise HierarchyError("the hierarchy is empty: edges must have at least one (parent, child) pair")
    named: Any = () if names is None else names
    for pair in named.items() if hasattr(named, "items") else named:
        parts = _parts(pair)
        if len(parts) != 2:
            raise HierarchyError(f"names must map concept ids to names, or be (id, name) pairs; got {quote(pair)}")
        set_name(as_id(parts[0]), parts[1])
    unconnected = [s for s in known if s not in position]
    if unconnected:
        raise HierarchyError(
            f"names has concepts that no edge mentions: {quoted(unconnected)}; add edges for them, or remove them"
        )
    ids, parents = list(position), list(map(list, above))
    roots = [i for i, higher in enumerate(parents) if not higher]
    if root is not None and root not in position:
        raise HierarchyError(f"root {quote(root)} does not occur in any edge.{near_matches(root, ids)}")
    strays = [ids[i] for i in roots if ids[i] != root]
    if root is not None and strays:
        raise HierarchyError(
            f"unreachable from root {quote(root)}: {quoted(strays)} and everything below; add an edge from the root, "
            "or leave out root= to join them under a common root"
        )
    if len(roots) > 1:  # if there is no root, there is a cycle, which `longest_levels` reports
        for i in roots:
            parents[i].append(len(ids))
        ids, parents = [*ids, virtual_root(position)], [*parents, []]
    return ids, known, parents


def as_id(value: Any) -> Any:
    """An id that is an integer, such as the number of a class, as a string; anything else as it is."""
    return str(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else value


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
        raise HierarchyError(f"the hierarchy has a cycle: {loop([ids[i] for i in cycle])}; remove one of these edges")
    if max(levels, default=0) > MAX_DEPTH:
        deepest = ids[levels.index(max(levels))]
        raise HierarchyError(
            f"the hierarchy is {max(levels):,} levels deep, more than {MAX_DEPTH:,}, down to concept {quote(deepest)}; "
            "check whether each row has the previous row as its parent"
        )
    return levels


def loop(cycle: Sequence[str]) -> str:
    """A cycle for a message, its first concepts and the one that closes it."""
    more = [] if len(cycle) <= MAX_LOOP else [f"... {len(cycle) - MAX_LOOP:,} more"]
    return " → ".join([*map(quote, cycle[:MAX_LOOP]), *more, quote(cycle[0])])


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

    def ancestors(self) -> NDArray[np.int32]:
        """Nodes along each path, (n_nodes, depth), position l - 1 holding the one at level l; -1 beyond the path."""
        if self.n_nodes * self.depth > MAX_STEPS:
            raise HierarchyError(
                f"the hierarchy has {self.n_nodes - 1:,} rooted paths of up to {self.depth:,} steps, too many for "
                "memory; remove concepts between the root and the classes"
            )
        table = np.full((self.n_nodes, self.depth), -1, dtype=np.int32)
        starts = np.searchsorted(self.level, np.arange(self.depth + 2))  # nodes are ordered by level
        for level, (start, end) in enumerate(pairwise(starts[1:].tolist())):
            table[start:end, :level] = table[self.parent[start:end], :level]
            table[start:end, level] = np.arange(start, end)
        return table


def count_paths(hierarchy: "Hierarchy") -> NDArray[np.float64]:
    """The number of rooted paths to each concept, (n_synsets,); floats, as integers would overflow."""
    n_paths = np.zeros(len(hierarchy))
    n_paths[0] = 1.0
    starts = np.searchsorted(hierarchy.levels, np.arange(hierarchy.depth + 2))  # concepts are ordered by level
    for start, end in pairwise(starts[1:].tolist()):
        owner, edge = _entries(hierarchy.parent_pointer, np.arange(start, end))
        np.add.at(n_paths, start + owner, n_paths[hierarchy.parent_index[edge]])
    return n_paths


def many_paths(hierarchy: "Hierarchy") -> str:
    """A warning that a DAG has many rooted paths, and how to have fewer; empty if it does not, and for a tree."""
    if hierarchy.is_tree or hierarchy.n_paths <= MANY_PATHS:
        return ""
    count = f"the hierarchy has {hierarchy.n_paths:,} rooted paths, which need much time and memory"
    return f"{count}; {FEWER_PATHS} keeps one path per concept"


def refuse_many_paths(hierarchy: "Hierarchy") -> None:
    """Raise HierarchyError if a hierarchy has more rooted paths than can be unfolded; counting them takes no time."""
    if hierarchy.is_tree or hierarchy.n_paths <= MAX_PATHS:
        return
    n_paths = count_paths(hierarchy)
    worst = quote(hierarchy.ids[int(np.argmax(n_paths))])
    raise HierarchyError(
        f"the hierarchy has {n_paths.sum() - 1.0:.3g} rooted paths, more than {MAX_PATHS:,}; concept {worst} alone has "
        f"{n_paths.max():.3g}. Give concepts fewer parents, or keep one parent each: {FEWER_PATHS}"
    )


def unfold(hierarchy: "Hierarchy") -> PathTree:
    """Unfold a DAG into its tree of rooted paths, one level at a time."""
    refuse_many_paths(hierarchy)
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
