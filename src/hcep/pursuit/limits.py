"""Which rooted paths an image may take: concepts that must be on its path, and concepts that must not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, HierarchyError, near_matches, quoted
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import spelling_key
from hcep.pursuit.tables import CLOSED, ON_THE_WAY, OPEN, REACHED

#: A concept by id, name or synonym, or several.
Concepts = str | Iterable[str]


class Request(NamedTuple):
    """Concepts that must be on a path, and concepts that must not, by id, name or synonym."""

    force: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    @classmethod
    def of(cls, force: Concepts = (), forbid: Concepts = ()) -> "Request":
        """From one concept or several of each."""
        return cls(*((each,) if isinstance(each, str) else tuple(map(str, each)) for each in (force, forbid)))


@dataclass(frozen=True, eq=False)
class PathLimits:
    """Which nodes of the tree of rooted paths are open to each image.

    Attributes
    ----------
    state : (n_rows, n_nodes) int8; each OPEN, CLOSED, ON_THE_WAY or REACHED, see `hcep.pursuit.tables`
    rows : (n_images,) int32, or None; the row that holds for each image; the first for all where None
    """

    state: NDArray[np.int8]
    rows: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = ()) -> "PathLimits | None":
        """The same for all images; None where nothing is asked.

        Raises HierarchyError: a concept that is unknown or ambiguous, or a request that no path can meet.

        Examples
        --------
        >>> from hcep import Hierarchy
        >>> from hcep.pursuit.limits import PathLimits
        >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
        >>> PathLimits.of(h, force="animal", forbid="dog").state.tolist()  # root, animal, car, cat, dog
        [[2, 3, 1, 0, 1]]
        """
        asked = Request.of(force, forbid)
        return cls(_States(hierarchy).row(asked)[None]) if any(asked) else None

    @classmethod
    def of_images(cls, hierarchy: Hierarchy, requests: Sequence[Request]) -> "PathLimits | None":
        """A request for each image; None where nothing is asked of any. Raises as `of`."""
        if not any(map(any, requests)):
            return None
        states, distinct = _States(hierarchy), list(dict.fromkeys(requests))
        place = {request: i for i, request in enumerate(distinct)}
        rows = np.array([place[request] for request in requests], dtype=np.int32)
        return cls(np.stack([states.row(request) for request in distinct]), rows)

    @classmethod
    def through(cls, hierarchy: Hierarchy, nodes: Sequence[NDArray[np.intp]], rows: NDArray[Any]) -> "PathLimits":
        """For each row a set of path-tree nodes, one of which every path has to pass."""
        states = _States(hierarchy)
        return cls(np.stack([states.passing([some], []) for some in nodes]), rows.astype(np.int32))

    def at(self, images: slice | NDArray[np.intp]) -> "PathLimits":
        """Those of some images."""
        return self if self.rows is None else PathLimits(self.state, self.rows[images])

    def limit(self, block: slice) -> NDArray[np.int32]:
        """The row of each image of a block."""
        return np.zeros(block.stop - block.start, np.int32) if self.rows is None else self.rows[block]

    def open_at(self, nodes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether some nodes are open, (n_images, n_nodes), or one row for all images."""
        is_open: NDArray[np.bool_] = self.state[:, nodes] != CLOSED
        return is_open if self.rows is None else is_open[self.rows]


class _States:
    """Maker of the rows of `PathLimits` for one hierarchy."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy, self.tree = hierarchy, hierarchy.path_tree

    @cached_property
    def _above(self) -> NDArray[np.int32]:
        """Nodes along each path, the root's in the place of those beyond its end."""
        return np.maximum(self.tree.ancestors(), 0)

    def row(self, request: Request) -> NDArray[np.int8]:
        ids = [[find_concept(self.hierarchy, name) for name in names] for names in request]
        force, forbid = ([np.flatnonzero(self.tree.synset == self.hierarchy.index(i)) for i in part] for part in ids)
        found = self.passing(force, forbid)
        if found[0] != CLOSED:
            return found
        names = [quoted(map(self.hierarchy.name, part)) for part in ids]
        if force and self.passing(force, [])[0] == CLOSED:
            raise HierarchyError(f"force: no path has {names[0]} together; force concepts of one path")
        left = f"no path has {names[0]}" if force else "no path is left"
        raise HierarchyError(f"forbid: {left} without {names[1]}; forbid fewer concepts")

    def passing(self, force: Sequence[NDArray[np.intp]], forbid: Sequence[NDArray[np.intp]]) -> NDArray[np.int8]:
        """States where a path passes one node of each set of `force` and none of `forbid`; all closed where none can.

        Every open node is on a complete path that is open.
        """
        n_met = np.zeros(self.tree.n_nodes, dtype=np.intp)
        for some in force:
            n_met += self._on_path(some)
        fits = n_met == len(force)
        for some in forbid:
            fits &= ~self._on_path(some)
        leaves = self.tree.leaf_nodes
        state = np.full(self.tree.n_nodes, CLOSED, dtype=np.int8)
        ends = leaves[fits[leaves]]
        if not len(ends):
            return state
        kept = np.unique(np.concatenate([self._above[ends].ravel(), [0]]))
        done = n_met[kept] == len(force)
        just = done & (np.where(kept > 0, n_met[self.tree.parent[kept]], -1) < len(force)) & bool(force)
        state[kept] = np.where(just, REACHED, np.where(done, OPEN, ON_THE_WAY))
        return state

    def _on_path(self, nodes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the path to each node has one of some nodes."""
        chosen = np.zeros(self.tree.n_nodes, dtype=bool)
        chosen[nodes] = True
        on_path: NDArray[np.bool_] = chosen[self._above].any(axis=1) | chosen[0]
        return on_path


def find_concept(hierarchy: Hierarchy, name: str) -> str:
    """The id of a concept by its id, its name, a name that was merged into it, or WordNet's synonyms.

    Raises HierarchyError: a name that no concept has, or several; near matches, or their ids, are listed.
    """
    if name in hierarchy:
        return name
    key = spelling_key(name)
    by_name = [i for i in hierarchy if spelling_key(hierarchy.name(i)) == key]
    merged = [
        i for i in hierarchy if any(name == m or spelling_key(called) == key for m, called in hierarchy.merged(i))
    ]
    found = by_name or merged or _by_synonym(hierarchy, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise HierarchyError(f"{name!r} is the name of {len(found)} concepts; give the id of one: {quoted(found)}")
    known = [*hierarchy.ids, *map(hierarchy.name, hierarchy)]
    raise HierarchyError(f"{name!r} is no concept of this hierarchy.{near_matches(name, dict.fromkeys(known))}")


def _by_synonym(hierarchy: Hierarchy, name: str) -> list[str]:
    from hcep.datasets.wordnet import imagenet_wnid

    try:
        wnid = imagenet_wnid(name)
    except HCEPError:
        return []
    return [i for i in hierarchy if wnid == i or any(wnid == other for other, _ in hierarchy.merged(i))]
