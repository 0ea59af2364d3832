"""A hierarchy from the embeddings themselves: classes that lie together hang together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError
from hcep.hierarchy.graph import Hierarchy
from hcep.induction.clustering import Cluster, Linkage, binary_tree, checked_vectors, cut
from hcep.induction.induced import Induced, Problem
from hcep.induction.leaf_names import LeafNames
from hcep.induction.naming import members_name, name_by_llm, names_from_vocabulary
from hcep.llm.chat import ChatModel


def induce_from_embeddings(
    class_embeddings: ArrayLike,
    class_names: Sequence[str],
    *,
    linkage: Linkage = "ward",
    gap: float = 0.1,
    max_branching: int | None = None,
    unit_norm: bool = True,
    names_from: tuple[Sequence[str], ArrayLike] | None = None,
    chat: ChatModel | None = None,
    root: str = "entity",
) -> Induced:
    """Cluster class embeddings into a hierarchy.

    Parameters
    ----------
    class_embeddings : (n_classes, n_dims) array
        As a rule the mean embedding of each class's training images.
    class_names : sequence of str
    linkage : {"ward", "average"}
        How groups are merged: the least increase of variance, or the least mean distance.
    gap : float
        From 0, a binary tree, to 1, no groups at all. A group stays where its merge is at least this much lower than
        that of the group above it: ``height <= (1 - gap) * height above``.
    max_branching : int, optional
        Groups are dissolved into the one above only while that has at most so many parts.
    unit_norm : bool
        Scale embeddings to norm 1 first, so that angles decide.
    names_from : (phrases, (n_phrases, n_dims) array), optional
        Candidate names and their embeddings in the same space (the text tower's): each group gets the nearest.
    chat : ChatModel, optional
        A language model that names each group from its members; it comes before `names_from`.
    root : str
        Name of the root.

    Returns
    -------
    Induced
        Always complete. A group that gets no name is called after its members: "cat + dog + 3 more".

    Raises
    ------
    HCEPError
        Shapes that do not fit, numbers that are not finite, options out of range.

    Examples
    --------
    >>> from hcep.induction import induce_from_embeddings
    >>> points = [[1, 0.1], [1, 0.2], [0.1, 1], [0, 1], [0, 0.9]]
    >>> induce_from_embeddings(points, ["cat", "dog", "car", "bus", "van"]).hierarchy.print_tree()
    entity
    ├── cat + dog
    │   ├── cat
    │   └── dog
    └── car + bus + 1 more
        ├── car
        └── bus + van
            ├── bus
            └── van
    """
    if linkage not in ("ward", "average"):
        raise HCEPError(f"linkage must be 'ward' or 'average', got {linkage!r}")
    if not 0 <= gap <= 1:
        raise HCEPError(f"gap must be a number from 0 to 1, got {gap!r}")
    if max_branching is not None and (not isinstance(max_branching, int) or max_branching < 2):
        raise HCEPError(f"max_branching must be None or a whole number of at least 2, got {max_branching!r}")
    names = LeafNames(class_names, root)
    vectors = checked_vectors(class_embeddings, len(names.leaves))
    if unit_norm:
        vectors = _unit_rows(vectors)
    tree = cut(binary_tree(vectors, linkage), gap, max_branching)
    return _named(tree, vectors, names, names_from, chat)


def _named(
    tree: Cluster,
    vectors: NDArray[np.float64],
    names: LeafNames,
    names_from: tuple[Sequence[str], ArrayLike] | None,
    chat: ChatModel | None,
) -> Induced:
    groups = list(tree.groups())[1:]  # the root has its name
    before = None if chat is None else chat.usage
    found: list[str | None] = [None] * len(groups)
    if names_from is not None and groups:
        found = names_from_vocabulary(groups, vectors, names.leaves, *names_from, names.root)
    problems: list[Problem] = []
    transcript: list[dict[str, Any]] = []
    ids = {tree.members: names.root}
    taken = {names.root, *names.leaves, *(name for name in found if name)}
    for group, name in zip(groups, found, strict=True):
        members = [names.leaves[i] for i in group.members]
        if chat is not None:
            others = [leaf for i, leaf in enumerate(names.leaves) if i not in set(group.members)]
            asked, problem = name_by_llm(members, others, chat, taken - {name or ""}, transcript)
            name = asked or name
            problems += [problem] if problem else []
        ids[group.members] = name or members_name(members, taken)
        taken.add(ids[group.members])
    return Induced(
        Hierarchy.from_edges(_edges(tree, ids, names.leaves), root=names.root),
        True,
        (),
        tuple(problems),
        rounds=len(transcript),
        usage=chat.usage - before if chat is not None and before is not None else None,
        transcript=tuple(transcript),
    )


def _edges(tree: Cluster, ids: dict[tuple[int, ...], str], leaves: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (ids[group.members], ids[part.members] if part.children else leaves[part.members[0]])
        for group in tree.groups()
        for part in group.children
    ]


def _unit_rows(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not norms.all():
        row = int(np.flatnonzero(norms == 0)[0])
        raise HCEPError(f"class_embeddings must not be zero; row {row} is (or pass unit_norm=False)")
    units: NDArray[np.float64] = vectors / norms
    return units
