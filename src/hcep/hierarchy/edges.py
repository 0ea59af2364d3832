"""Reading (parent, child) pairs into ids, names and parent lists, and refusing what is not a rooted DAG."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from hcep.errors import HierarchyError, near_matches, quoted

VIRTUAL_ROOT = "(root)"
N = TypeVar("N")


def read_edges(
    edges: Iterable[Sequence[str]], names: Mapping[str, str] | Iterable[tuple[str, str]] | None, root: str | None
) -> tuple[list[str], dict[str, str], list[list[int]]]:
    """Return ids, names and parent lists of a DAG with exactly one root, or say what is wrong."""
    position: dict[str, int] = {}  # of ids in order of first appearance
    parents: list[list[int]] = []  # positions
    known: dict[str, str] = {}

    def place(synset: object, edge: tuple[object, ...]) -> int:
        if not isinstance(synset, str):
            raise HierarchyError(
                f"concept ids must be strings, got {quoted([synset])} ({type(synset).__name__}) in the edge "
                f"({quoted(edge)}); convert ids with str()"
            )
        if not synset:
            raise HierarchyError(f"a concept id is the empty string in the edge ({quoted(edge)}); give it a name")
        # np.str_ is a string too; ids are plain ones, so that they print and pickle as such.
        found = position.setdefault(str.__str__(synset), len(parents))
        if found == len(parents):
            parents.append([])
        return found

    def call(synset: str, name: str) -> None:
        if not isinstance(name, str):
            raise HierarchyError(f"the name of concept {synset!r} must be a string, got {name!r}")
        if known.setdefault(synset, str.__str__(name)) != name:
            raise HierarchyError(
                f"concept {synset!r} is given two names, {known[synset]!r} and {name!r}; keep one of them, "
                "or give the two meanings ids of their own"
            )

    for edge in edges:
        parts = _parts(edge)
        if len(parts) not in (2, 3):
            told = f"edges must be (parent, child) pairs, or (parent, child, name of the child); got {edge!r}"
            raise HierarchyError(told)
        parent, child = place(parts[0], parts), place(parts[1], parts)
        if parent == child:
            raise HierarchyError(f"concept {quoted(parts[:1])} is its own parent (a self-loop); remove this edge")
        if parent not in parents[child]:
            parents[child].append(parent)
        if len(parts) == 3:
            call(parts[1], parts[2])
    if not parents:
        raise HierarchyError("the hierarchy is empty: edges must hold at least one (parent, child) pair")
    named: Any = () if names is None else names
    for pair in named.items() if hasattr(named, "items") else named:
        parts = _parts(pair)
        if len(parts) != 2:
            raise HierarchyError(f"names must map concept ids to names, or hold (id, name) pairs; got {pair!r}")
        call(*parts)
    unconnected = [s for s in known if s not in position]
    if unconnected:
        raise HierarchyError(
            f"names has concepts that no edge reaches: {quoted(unconnected)}; add an edge (parent, {unconnected[0]!r}) "
            "or leave the concept out of names"
        )
    ids = list(position)
    roots = [i for i, above in enumerate(parents) if not above]
    if root is not None and root not in position:
        raise HierarchyError(f"root {root!r} is in no edge.{near_matches(root, ids)}")
    strays = [ids[i] for i in roots if ids[i] != root]
    if root is not None and strays:
        raise HierarchyError(
            f"unreachable from root {root!r}: {quoted(strays)} and what is below; add an edge from the root, "
            "or leave root out so that all of them get one virtual root"
        )
    if len(roots) > 1:  # no root at all is a cycle; the level pass names it
        for i in roots:
            parents[i].append(len(ids))
        ids, parents = [*ids, virtual_root(position)], [*parents, []]
    return ids, known, parents


def virtual_root(taken: Container[str]) -> str:
    """An id for the root above several, in more brackets where it is taken."""
    virtual = VIRTUAL_ROOT
    while virtual in taken:
        virtual = f"({virtual})"
    return virtual


def _parts(given: Any) -> tuple[Any, ...]:
    """The parts of a pair in their order; nothing where there is none: of a string, a set, a number."""
    ordered = isinstance(given, Iterable) and not isinstance(given, str | Mapping | Set)
    return tuple(given) if ordered else ()


def with_lone_tops(edges: list[tuple[str, str]], ids: Iterable[str]) -> list[tuple[str, str]]:
    """The edges, and where ids are in none of them, edges from a virtual root to those and to every other top."""
    below = {child for _, child in edges}
    lone = set(ids) - below - {parent for parent, _ in edges}
    tops = dict.fromkeys(i for i in (*ids, *(parent for parent, _ in edges)) if i not in below)
    return [*((VIRTUAL_ROOT, top) for top in tops), *edges] if lone else edges


def is_virtual(root: str) -> bool:
    """Whether a root was put above several: their virtual one, in more brackets where that id was taken."""
    return root.startswith("(") and root.strip("()") == VIRTUAL_ROOT.strip("()")


def longest_levels(ids: Sequence[str], parents: Sequence[Sequence[int]]) -> list[int]:
    """Length of the longest rooted path to each synset; a cycle is an error that spells it out."""
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
        # A synset still waiting has a parent still waiting: walking up must come round.
        trail: dict[int, int] = {}
        synset = next(i for i, n in enumerate(waiting) if n)
        while synset not in trail:
            trail[synset] = len(trail)
            synset = next(p for p in parents[synset] if waiting[p])
        cycle = list(trail)[trail[synset] :][::-1]
        loop = " → ".join(repr(ids[i]) for i in [*cycle, cycle[0]])
        raise HierarchyError(f"the hierarchy has a cycle: {loop}; remove one of these edges")
    return levels


def reach(starts: Iterable[N], step: Callable[[N], Iterable[N]]) -> set[N]:
    """All that steps lead to from any of the starts; a start is among them where another leads to it."""
    seen: set[N] = set()
    waiting = list(starts)
    while waiting:
        found = [node for node in step(waiting.pop()) if node not in seen]
        seen.update(found)
        waiting += found
    return seen
