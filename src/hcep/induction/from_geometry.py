"""A hierarchy from the embeddings themselves: classes that lie together hang together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_share
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError
from hcep.hierarchy.graph import Hierarchy
from hcep.induction.clustering import Cluster, Linkage, binary_tree, cut
from hcep.induction.induced import Fault, Induced
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

    Raises HCEPError: shapes that do not fit, numbers that are not finite, options out of range.

    Parameters
    ----------
    class_embeddings : (n_classes, n_dims) array; as a rule the mean embedding of each class's training images
    linkage : {"ward", "average"}; how groups are merged: the least increase of variance, or the least mean distance
    gap : from 0, a binary tree, to 1, no groups at all. A group stays where its merge is at least this much lower than
        that of the group above it: ``height <= (1 - gap) * height above``.
    max_branching : groups are dissolved into the one above only while that has at most so many parts
    unit_norm : scale embeddings to norm 1 first, so that angles decide
    names_from : (phrases, (n_phrases, n_dims) array), optional
        Candidate names and their embeddings in the same space (the text tower's): each group gets the nearest.
    chat : a language model that names each group from its members; it comes before `names_from`
    root : name of the root

    Returns
    -------
    Induced
        Always complete. A group that gets no name is called after its members: "cat + dog + 3 more".

    References
    ----------
    Ward, J. H. (1963). Hierarchical grouping to optimize an objective function. *Journal of the American Statistical
    Association*, 58.

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
    require_share("gap", gap)
    if max_branching is not None and (not isinstance(max_branching, int) or max_branching < 2):
        raise HCEPError(f"max_branching must be None or a whole number of at least 2, got {max_branching!r}")
    names = LeafNames(class_names, root)
    vectors = _checked(class_embeddings, len(names.leaves), unit_norm)
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
    problems: list[Fault] = []
    transcript: list[dict[str, Any]] = []
    ids = {(i,): leaf for i, leaf in enumerate(names.leaves)} | {tree.members: names.root}
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
    edges = [(ids[group.members], ids[part.members]) for group in tree.groups() for part in group.children]
    return Induced(
        Hierarchy.from_edges(edges, root=names.root),
        True,
        (),
        tuple(problems),
        rounds=len(transcript),
        usage=chat.usage - before if chat is not None and before is not None else None,
        transcript=tuple(transcript),
    )


def class_means(X: ArrayLike, y: ArrayLike) -> tuple[list[str], NDArray[np.float64]]:
    """The classes in order of their names and the mean embedding of each, (n_classes, n_dims)."""
    images = np.asarray(X)
    names, index = np.unique(np.asarray(y), return_inverse=True)
    means = np.stack([images[index == i].mean(axis=0, dtype=np.float64) for i in range(len(names))])
    return [str(name) for name in names], means


def _checked(class_embeddings: ArrayLike, n_classes: int, unit_norm: bool) -> NDArray[np.float64]:
    """Class embeddings as a finite (n_classes, d) array, its rows of norm 1 where that is asked."""
    vectors = np.asarray(class_embeddings, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != n_classes or vectors.shape[1] == 0:
        raise HCEPError(
            f"class_embeddings must have one row per class, ({n_classes:,}, n_dims); got shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise HCEPError(f"class_embeddings must be finite; row {row} is not")
    if unit_norm and not vectors.any(axis=1).all():
        row = int(np.flatnonzero(~vectors.any(axis=1))[0])
        raise HCEPError(f"class_embeddings must not be zero; row {row} is (or pass unit_norm=False)")
    return unit_rows(vectors) if unit_norm else vectors
