"""Limits on the rooted paths of an image: concepts that must be on its path, that must not, and that can be at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.path_problem import CLOSED, ON_THE_WAY, OPEN, REACHED
from hcep.errors import HierarchyError, quoted
from hcep.hierarchy import Hierarchy, PathTree

#: One or several concepts, by id, name or synonym.
Concepts = str | Iterable[str]


class Request(NamedTuple):
    """Concepts that must be on a path, and that must not; and the only possible ones, if not all are possible.

    An image can only be of the classes `only` and of those below concepts in `only`. All are ids, names or synonyms.
    """

    force: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    @classmethod
    def of(cls, force: Concepts = (), forbid: Concepts = (), only: Concepts = ()) -> "Request":
        """Build a request from one concept, or several, of each kind."""
        return cls(*((each,) if isinstance(each, str) else tuple(map(str, each)) for each in (force, forbid, only)))


@dataclass(frozen=True, eq=False)
class PathLimits:
    """Which nodes of the tree of rooted paths are open to each image.

    Attributes
    ----------
    state : int8 array of shape (n_rows, n_nodes)
        OPEN, CLOSED, ON_THE_WAY or REACHED, as defined in `hcep.dictionary.path_problem`.
    rows : int32 array of shape (n_images,), optional
        The row of `state` that applies to each image. If None, the first row applies to all images.
    """

    state: NDArray[np.int8]
    rows: NDArray[np.int32] | None = None

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = (), only: Concepts = ()
    ) -> "PathLimits | None":
        """Build the same limits for all images (see `Request`); None if there are none.

        Raises
        ------
        HierarchyError
            A concept is unknown or ambiguous, or no path meets the request.

        Examples
        --------
        >>> from hcep import Hierarchy
        >>> from hcep.pursuit.limits import PathLimits
        >>> h = Hierarchy.from_edges([("thing", "animal"), ("animal", "cat"), ("animal", "dog"), ("thing", "car")])
        >>> PathLimits.of(h, force="animal", forbid="dog").state.tolist()  # root, animal, car, cat, dog
        [[2, 3, 1, 0, 1]]
        """
        limits = cls.of_images(hierarchy, [Request.of(force, forbid, only)])
        return limits and cls(limits.state)

    @classmethod
    def of_images(cls, hierarchy: Hierarchy, requests: Sequence[Request]) -> "PathLimits | None":
        """Build limits from one request per image; None if all requests are empty. Raises the errors of `of`."""
        if not any(map(any, requests)):
            return None
        place = {request: i for i, request in enumerate(dict.fromkeys(requests))}
        above = _above(hierarchy.path_tree)
        state = np.stack([_states_of(hierarchy, above, request) for request in place])
        return cls(state, np.array([place[request] for request in requests], dtype=np.int32))

    @classmethod
    def through(cls, hierarchy: Hierarchy, nodes: Sequence[NDArray[np.intp]], rows: NDArray[Any]) -> "PathLimits":
        """Build one row of limits per set of path-tree nodes, so that every path passes one node of the set."""
        above = _above(hierarchy.path_tree)
        state = np.stack([_passing(hierarchy.path_tree, above, [required], []) for required in nodes])
        return cls(state, rows.astype(np.int32))

    def at(self, images: slice | NDArray[np.intp]) -> "PathLimits":
        """Return the limits of some of the images."""
        return self if self.rows is None else PathLimits(self.state, self.rows[images])

    def limit(self, block: slice) -> NDArray[np.int32]:
        """Return the row of `state` for each image of a block."""
        return np.zeros(block.stop - block.start, np.int32) if self.rows is None else self.rows[block]

    def open_at(self, nodes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether some nodes are open, shape (n_images, n_nodes), or one row for all images."""
        is_open: NDArray[np.bool_] = self.state[:, nodes] != CLOSED
        return is_open if self.rows is None else is_open[self.rows]


def _above(tree: PathTree) -> NDArray[np.int32]:
    """Return the nodes along each path, padded with the root."""
    return np.maximum(tree.ancestors(), 0)


def _states_of(hierarchy: Hierarchy, above: NDArray[np.int32], request: Request) -> NDArray[np.int8]:
    """Return the state of every node under a request, or raise an error that says why no path meets it."""
    tree, ids = hierarchy.path_tree, [[hierarchy.find(name) for name in names] for names in request]
    force, forbid = ([np.flatnonzero(tree.synset == hierarchy.index(i)) for i in part] for part in ids[:2])
    others = [_impossible(tree, above, np.array([hierarchy.index(i) for i in ids[2]]))] if ids[2] else []
    states = _passing(tree, above, force, forbid + others)
    if states[0] != CLOSED:
        return states
    names = [quoted(map(hierarchy.called, part)) for part in request]
    if others and _passing(tree, above, force, forbid)[0] != CLOSED:
        raise HierarchyError(f"only: no path is left by force and forbid among {names[2]}; add what is possible here")
    if force and _passing(tree, above, force, [])[0] == CLOSED:
        raise HierarchyError(f"force: no path has all of {names[0]}; force concepts that are on the same path")
    problem = f"no path has {names[0]}" if force else "no path is left"
    raise HierarchyError(f"forbid: {problem} without {names[1]}; forbid fewer concepts")


def _impossible(tree: PathTree, above: NDArray[np.int32], possible: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the ends of all paths to classes that are neither possible synsets nor below one, by any path."""
    is_possible, leaves = np.asarray(np.isin(tree.synset, possible)), tree.leaf_nodes
    is_below = np.asarray(is_possible[above].any(axis=1) | is_possible[0])
    return np.asarray(leaves[~np.isin(tree.synset[leaves], tree.synset[leaves[is_below[leaves]]])])


def _passing(
    tree: PathTree, above: NDArray[np.int32], force: Sequence[NDArray[np.intp]], forbid: Sequence[NDArray[np.intp]]
) -> NDArray[np.int8]:
    """Return the states that let a path pass one node of each set of `force` and none of `forbid`.

    Every open node is on a complete open path. If no path is possible, all nodes are closed.
    """

    def met(sets: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
        """Return how many of the sets have a node on the path to each node."""
        chosen = np.zeros((tree.n_nodes, len(sets)), dtype=bool)
        for k, nodes in enumerate(sets):
            chosen[nodes, k] = True
        return np.asarray((chosen[above].any(axis=1) | chosen[0]).sum(axis=1))

    n_met, leaves, state = met(force), tree.leaf_nodes, np.full(tree.n_nodes, CLOSED, dtype=np.int8)
    ends = leaves[((n_met == len(force)) & (met(forbid) == 0))[leaves]]
    if not len(ends):
        return state
    usable = np.unique(np.concatenate([above[ends].ravel(), [0]]))
    done = n_met[usable] == len(force)
    just_done = done & (np.where(usable > 0, n_met[tree.parent[usable]], -1) < len(force)) & bool(force)
    state[usable] = np.where(just_done, REACHED, np.where(done, OPEN, ON_THE_WAY))
    return state
