"""A hierarchy from the class embeddings: classes that lie close together form groups, and groups get names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep._checks import require_share
from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError, quote
from hcep.hierarchy.graph import Hierarchy
from hcep.taxonomy.induction.induced import Induced, LeafNames, free_name, normal_form

Linkage = Literal["ward", "average"]


def induce_from_embeddings(
    class_embeddings: ArrayLike,
    class_names: Sequence[str],
    *,
    linkage: Linkage = "ward",
    gap: float = 0.1,
    max_branching: int | None = None,
    unit_norm: bool = True,
    names_from: tuple[Sequence[str], ArrayLike] | None = None,
    root: str = "entity",
) -> Induced:
    """Group class embeddings into a hierarchy, in which every class has a place.

    A group without a name is called after its members: "cat + dog + 3 more".

    Parameters
    ----------
    class_embeddings : (n_classes, n_dims) array, usually the mean embedding of each class's training images
    class_names : the class of each row
    linkage : "ward" merges the groups with the least increase of variance (Ward, *J. Am. Stat. Assoc.* 58, 1963),
        "average" those with the least mean distance
    gap : from 0 (a binary tree) to 1 (no groups). A group is kept if its merge is at least this much lower than that of
        the group above: ``height <= (1 - gap) * height above``.
    max_branching : groups are dissolved only while the group above has at most this many parts
    unit_norm : first scale embeddings to norm 1, so that angles decide
    names_from : (phrases, (n_phrases, n_dims) array); candidate names and their text embeddings: each group gets the
        nearest
    root : a name for what all classes are
    """
    if linkage not in ("ward", "average"):
        raise HCEPError(f"linkage must be 'ward' or 'average', got {quote(linkage)}")
    require_share("gap", gap)
    if max_branching is not None and (not isinstance(max_branching, int) or max_branching < 2):
        raise HCEPError(f"max_branching must be None or an integer of at least 2, got {quote(max_branching)}")
    names = LeafNames(class_names, root)
    vectors, n_classes = np.asarray(class_embeddings, dtype=np.float64), len(names.leaves)
    if vectors.ndim != 2 or len(vectors) != n_classes or vectors.shape[1] == 0:
        message = f"class_embeddings must have one row per class, ({n_classes:,}, n_dims); got shape {vectors.shape}"
        raise HCEPError(message)
    infinite, zero = np.flatnonzero(~np.isfinite(vectors).all(axis=1)), np.flatnonzero(~vectors.any(axis=1))
    if len(infinite):
        raise HCEPError(f"class_embeddings must be finite; row {infinite[0]} is not")
    if unit_norm and len(zero):
        raise HCEPError(f"class_embeddings must not be zero, as row {zero[0]} is; or pass unit_norm=False")
    vectors = unit_rows(vectors) if unit_norm else vectors
    tree = cut(binary_tree(vectors, linkage), gap, max_branching)
    groups = list(tree.groups())[1:]  # the root has a name
    phrases: list[str | None] = [None] * len(groups)
    if names_from is not None and groups:
        phrases = _nearest_phrases(groups, vectors, names, *names_from)
    ids = {(i,): leaf for i, leaf in enumerate(names.leaves)} | {tree.members: names.root}
    taken = {names.root, *names.leaves, *(name for name in phrases if name)}
    for group, name in zip(groups, phrases, strict=True):
        members = [names.leaves[i] for i in group.members]
        ids[group.members] = name or members_name(members, taken)
        taken.add(ids[group.members])
    edges = [(ids[group.members], ids[part.members]) for group in tree.groups() for part in group.children]
    return Induced(Hierarchy.from_edges(edges, root=names.root), True, ())


def class_means(X: ArrayLike, y: ArrayLike) -> tuple[list[str], NDArray[np.float64]]:
    """The sorted class names, and the mean embedding of each class, (n_classes, n_dims)."""
    images = np.asarray(X)
    names, index = np.unique(np.asarray(y), return_inverse=True)
    means = np.stack([images[index == i].mean(axis=0, dtype=np.float64) for i in range(len(names))])
    return [str(name) for name in names], means


class ClassGroup(NamedTuple):
    """A group of classes, or a single class; `height` is the distance of its parts, 0 for a single class."""

    members: tuple[int, ...]
    height: float
    children: tuple[ClassGroup, ...] = ()

    def groups(self) -> Iterator[ClassGroup]:
        """This group and all groups below it, parents before children."""
        waiting = [self]
        while waiting:
            cluster = waiting.pop()
            if cluster.children:
                yield cluster
            waiting += cluster.children[::-1]


def binary_tree(vectors: NDArray[np.float64], linkage: Linkage) -> ClassGroup:
    """The dendrogram of vectors (n, d) by SciPy's linkage on Euclidean distances."""
    from scipy.cluster.hierarchy import linkage as merges
    from scipy.spatial.distance import pdist

    clusters = [ClassGroup((i,), 0.0) for i in range(len(vectors))]
    for a, b, height, _ in merges(pdist(vectors), method=linkage).tolist():
        pair = sorted((clusters[int(a)], clusters[int(b)]), key=lambda cluster: min(cluster.members))
        clusters.append(ClassGroup(tuple(sorted((*pair[0].members, *pair[1].members))), height, tuple(pair)))
    return clusters[-1]


def cut(tree: ClassGroup, gap: float, max_branching: int | None = None) -> ClassGroup:
    """Dissolve groups whose merge is hardly lower than that of the group above them.

    A group is kept if its height is at most ``(1 - gap)`` times that of the group above. Otherwise its parts go to the
    group above, the highest first, as long as that has at most `max_branching` parts.
    """
    order = [(tree, _parts(tree, gap, max_branching))]
    for _, parts in order:  # grows while it is walked; no recursion, since a thousand classes may merge one by one
        order += [(part, _parts(part, gap, max_branching)) for part in parts if part.children]
    built: dict[tuple[int, ...], ClassGroup] = {}
    for group, parts in order[::-1]:
        built[group.members] = group._replace(children=tuple(built.get(part.members, part) for part in parts))
    return built[tree.members]


def _parts(group: ClassGroup, gap: float, max_branching: int | None) -> list[ClassGroup]:
    parts = list(group.children)
    while max_branching is None or len(parts) < max_branching:
        at = max(range(len(parts)), key=lambda i: parts[i].height)
        if not parts[at].children or parts[at].height <= (1 - gap) * group.height:
            break
        parts[at : at + 1] = parts[at].children
    return sorted(parts, key=lambda part: min(part.members))


def members_name(members: Sequence[str], taken: set[str]) -> str:
    """``cat + dog + 3 more``: the first members, or one more of them if the name is taken."""
    n_all = len(members)
    shown = [" + ".join(members[:n]) + f" + {n_all - n} more" * (n < n_all) for n in range(2, n_all + 1)]
    return free_name(taken, *shown, shown[-1].replace("{", "{{").replace("}", "}}") + " ({})")


def _nearest_phrases(
    groups: Sequence[ClassGroup],
    vectors: NDArray[np.float64],
    names: LeafNames,
    phrases: Sequence[str],
    embeddings: Any,
) -> list[str | None]:
    """The nearest phrase to the mean of each group's classes, None if no phrases are left.

    No phrase is used twice, and no class name or root. Groups are centred on the mean class and phrases on the mean
    phrase: images and texts of an encoder lie in two distant cones, and what all classes share names none of them. The
    pairs with the highest cosine choose first.
    """
    texts = np.asarray(embeddings, dtype=np.float64)
    if texts.shape != (len(phrases), vectors.shape[1]) or not len(phrases):
        raise HCEPError(
            "names_from must be (phrases, embeddings) with one row per phrase, of as many dimensions as "
            f"class_embeddings ({vectors.shape[1]:,}); got {len(phrases):,} phrases and an array of shape {texts.shape}"
            " (--vocabulary on the command line: embed it with the encoder of the images)"
        )
    means = np.stack([vectors[list(group.members)].mean(axis=0) for group in groups])
    cosine = unit_rows(means - vectors.mean(axis=0)) @ unit_rows(texts - texts.mean(axis=0)).T
    nearest: list[str | None] = [None] * len(groups)
    used = {normal_form(name) for name in (*names.leaves, names.root)}
    for flat in np.argsort(-cosine, axis=None, kind="stable"):
        group, phrase = divmod(int(flat), len(phrases))
        form = normal_form(phrases[phrase])
        if nearest[group] is None and form and form not in used:
            nearest[group] = str(phrases[phrase])
            used.add(form)
    return nearest
