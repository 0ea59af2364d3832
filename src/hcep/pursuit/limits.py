"""Which rooted paths an image may take: concepts that must be on its path, and concepts that must not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.path_problem import CLOSED, ON_THE_WAY, OPEN, REACHED
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy, PathTree

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
    state : (n_rows, n_nodes) int8; each OPEN, CLOSED, ON_THE_WAY or REACHED, see `hcep.dictionary.path_problem`
    rows : (n_images,) int32, or None; the row that holds for each image; the first for all where None
    """

    state: NDArray[np.int8]
    rows: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = ()) -> "PathLimits | None":
        """The same for all images; None where nothing is asked.

        Raises HierarchyError: a concept that is unknown or ambiguous, or a request that no path can meet.

        >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
        >>> PathLimits.of(h, force="animal", forbid="dog").state.tolist()  # root, animal, car, cat, dog
        [[2, 3, 1, 0, 1]]
        """
        found = cls.of_images(hierarchy, [Request.of(force, forbid)])
        return found and cls(found.state)

    @classmethod
    def of_images(cls, hierarchy: Hierarchy, requests: Sequence[Request]) -> "PathLimits | None":
        """A request for each image; None where nothing is asked of any. Raises as `of`."""
        if not any(map(any, requests)):
            return None
        place = {request: i for i, request in enumerate(dict.fromkeys(requests))}
        above = _above(hierarchy.path_tree)
        state = np.stack([_asked(hierarchy, above, request) for request in place])
        return cls(state, np.array([place[request] for request in requests], dtype=np.int32))

    @classmethod
    def through(cls, hierarchy: Hierarchy, nodes: Sequence[NDArray[np.intp]], rows: NDArray[Any]) -> "PathLimits":
        """For each row a set of path-tree nodes, one of which every path has to pass."""
        above = _above(hierarchy.path_tree)
        state = np.stack([_passing(hierarchy.path_tree, above, [some], []) for some in nodes])
        return cls(state, rows.astype(np.int32))

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


def _above(tree: PathTree) -> NDArray[np.int32]:
    """Nodes along each path, the root's in the place of those beyond its end."""
    return np.maximum(tree.ancestors(), 0)


def _asked(hierarchy: Hierarchy, above: NDArray[np.int32], request: Request) -> NDArray[np.int8]:
    """The states that a request leaves, or the error that says why it cannot be met."""
    tree, ids = hierarchy.path_tree, [[hierarchy.find(name) for name in names] for names in request]
    force, forbid = ([np.flatnonzero(tree.synset == hierarchy.index(i)) for i in part] for part in ids)
    found = _passing(tree, above, force, forbid)
    if found[0] != CLOSED:
        return found
    names = [quoted(map(hierarchy.name, part)) for part in ids]
    if force and _passing(tree, above, force, [])[0] == CLOSED:
        raise HierarchyError(f"force: no path has {names[0]} together; force concepts of one path")
    left = f"no path has {names[0]}" if force else "no path is left"
    raise HierarchyError(f"forbid: {left} without {names[1]}; forbid fewer concepts")


def _passing(
    tree: PathTree, above: NDArray[np.int32], force: Sequence[NDArray[np.intp]], forbid: Sequence[NDArray[np.intp]]
) -> NDArray[np.int8]:
    """States where a path passes one node of each set of `force` and none of `forbid`; all closed where none can.

    Every open node is on a complete path that is open.
    """

    def met(sets: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
        """How many of the sets the path to each node has a node of."""
        chosen = np.zeros((tree.n_nodes, len(sets)), dtype=bool)
        for k, some in enumerate(sets):
            chosen[some, k] = True
        return np.asarray((chosen[above].any(axis=1) | chosen[0]).sum(axis=1))

    n_met, leaves, state = met(force), tree.leaf_nodes, np.full(tree.n_nodes, CLOSED, dtype=np.int8)
    ends = leaves[((n_met == len(force)) & (met(forbid) == 0))[leaves]]
    if not len(ends):
        return state
    kept = np.unique(np.concatenate([above[ends].ravel(), [0]]))
    done = n_met[kept] == len(force)
    just = done & (np.where(kept > 0, n_met[tree.parent[kept]], -1) < len(force)) & bool(force)
    state[kept] = np.where(just, REACHED, np.where(done, OPEN, ON_THE_WAY))
    return state
