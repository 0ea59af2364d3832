"""The WordNet DAG above ImageNet-1k's classes, which is part of the package (folder wordnet/, with its licence)."""

import gzip
import json
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from hcep.errors import DatasetError, near_matches, quote
from hcep.hierarchy.graph import Hierarchy


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The WordNet ids of ImageNet-1k's classes, in the order of a classifier's outputs."""
    return tuple(_content()["classes"])


def imagenet_hierarchy(classes: Iterable[str] | None = None) -> Hierarchy:
    """The WordNet DAG above ImageNet's classes, or above some of them.

    Ids are WordNet ids, names the first lemmas. Chains are not collapsed: see `Hierarchy.collapse`.

    Parameters
    ----------
    classes : WordNet ids, or names as in `imagenet_wnid`; all of ImageNet-1k by default. An inner synset (``"dog"``)
        may be a class, too.

    Examples
    --------
    >>> from hcep.hierarchy.imagenet import imagenet_hierarchy
    >>> imagenet_hierarchy()
    Hierarchy(1,860 synsets, 1,000 leaves, 1,937 edges, depth 18, branching at most 29, root 'n00001740')
    """
    if classes is None:
        return _whole_hierarchy()
    wnids = [imagenet_wnid(c) for c in classes]
    if not wnids:
        raise DatasetError("classes is empty; give WordNet ids or names, or leave it out for all of ImageNet-1k")
    return _whole_hierarchy().restrict(wnids)


def everyday_hierarchy(classes: Iterable[str] | None = None) -> Hierarchy:
    """The WordNet DAG above ImageNet's classes, starting where words mean something to most people.

    It leaves out the top of WordNet (physical entity, object, whole, artifact), so that paths start with animal, food
    or vehicle. The file wordnet/everyday.toml lists every difference from `imagenet_hierarchy`, with the reason.

    Parameters
    ----------
    classes : as for `imagenet_hierarchy`

    Examples
    --------
    >>> from hcep.hierarchy.imagenet import everyday_hierarchy, imagenet_hierarchy
    >>> wordnet, everyday = imagenet_hierarchy(["church"]), everyday_hierarchy(["church"])
    >>> [wordnet.name(s) for s in wordnet.paths("n03028079")[0]][:6]
    ['physical entity', 'object', 'whole', 'artifact', 'structure', 'building']
    >>> [everyday.name(s) for s in everyday.paths("n03028079")[0]]
    ['structure', 'building', 'place of worship', 'church']
    """
    return _everyday() if classes is None else _everyday().restrict(map(imagenet_wnid, classes))


def imagenet_wnid(name: str) -> str:
    """The WordNet id of a class or synset, given by id or name.

    Case does not matter, nor whether words are joined by spaces, underscores or hyphens. Synsets whose first lemma is
    the name come before those with the name among their lemmas, and ImageNet's classes come before the synsets above.

    >>> from hcep.hierarchy.imagenet import imagenet_wnid
    >>> imagenet_wnid("tench"), imagenet_wnid("golf_ball"), imagenet_wnid("dog"), imagenet_wnid("n01440764")
    ('n01440764', 'n03445777', 'n02084071', 'n01440764')
    """
    candidates = imagenet_wnids(name)
    if not candidates:
        raise DatasetError(
            f"{quote(name)} is neither a WordNet id nor a name in the hierarchy of ImageNet-1k."
            + near_matches(_plain(name), _names()[1])
            + " Give a WordNet id, such as 'n01440764', or your own hierarchy."
        )
    if len(candidates) > 1:
        meanings = "; ".join(f"{wnid}: {_synsets()[wnid].gloss}" for wnid in candidates)
        raise DatasetError(f"{quote(name)} is the name of {len(candidates)} synsets; give one of the ids ({meanings})")
    return candidates[0]


def imagenet_wnids(name: str) -> list[str]:
    """The WordNet ids that a name may mean, as `imagenet_wnid` reads it; none for an unknown name."""
    if name in _synsets():
        return [name]
    by_first, by_any = _names()
    wnids = by_first.get(_plain(name)) or by_any.get(_plain(name)) or []
    return [wnid for wnid in wnids if wnid in imagenet_classes()] or wnids


def synset_gloss(wnid: str) -> str:
    """WordNet's definition of a synset, given by id or by an unambiguous name."""
    return _synsets()[imagenet_wnid(wnid)].gloss


def synset_lemmas(wnid: str) -> tuple[str, ...]:
    """WordNet's names of a synset, given by id or by an unambiguous name; the usual name first."""
    return tuple(lemma.replace("_", " ") for lemma in _synsets()[imagenet_wnid(wnid)].lemmas)


class _Synset(NamedTuple):
    lemmas: list[str]
    gloss: str
    hypernyms: list[str]


@cache
def _synsets() -> dict[str, _Synset]:
    return {wnid: _Synset(*entry) for wnid, entry in _content()["synsets"].items()}


@cache
def _content() -> dict[str, Any]:
    packed = (files("hcep.hierarchy") / "wordnet" / "imagenet1k.json.gz").read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(packed))
    return content


@cache
def _whole_hierarchy() -> Hierarchy:
    synsets = _synsets()
    edges = [(parent, child) for child, synset in synsets.items() for parent in synset.hypernyms]
    return Hierarchy.from_edges(edges, {wnid: s.lemmas[0].replace("_", " ") for wnid, s in synsets.items()})


def everyday_changes() -> str:
    """The file with everything in which the everyday hierarchy differs from WordNet."""
    return (files("hcep.hierarchy") / "wordnet" / "everyday.toml").read_text("utf-8")


@cache
def _everyday() -> Hierarchy:
    changes: dict[str, dict[str, str]] = tomllib.loads(everyday_changes())
    skipped, moved, merged = changes["skipped"], changes["moved"], changes["merged"]
    synsets = {wnid: s for wnid, s in _synsets().items() if wnid not in skipped and wnid not in merged}

    def parents(wnid: str) -> list[str]:
        above = [moved[wnid]] if wnid in moved else _synsets()[wnid].hypernyms
        return [p for one in above for p in (parents(one) if one in skipped else [merged.get(one, one)])]

    edges = list(dict.fromkeys((parent, wnid) for wnid in synsets for parent in parents(wnid)))
    names = {wnid: changes["names"].get(wnid, s.lemmas[0].replace("_", " ")) for wnid, s in synsets.items()}
    hierarchy = Hierarchy.from_edges(edges, names)
    # Where a concept was left out, its child may have a parent that is also above another of its parents.
    shortcuts = {
        (parent, wnid)
        for wnid in hierarchy
        for parent in hierarchy.parents(wnid)
        if any(parent in hierarchy.ancestors(other) for other in hierarchy.parents(wnid) if other != parent)
    }
    return Hierarchy.from_edges([edge for edge in edges if edge not in shortcuts], names)


@cache
def _names() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    by_first: dict[str, list[str]] = {}
    by_any: dict[str, list[str]] = {}
    for wnid, synset in _synsets().items():
        by_first.setdefault(_plain(synset.lemmas[0]), []).append(wnid)
        for name in dict.fromkeys(map(_plain, synset.lemmas)):
            by_any.setdefault(name, []).append(wnid)
    return by_first, by_any


def _plain(name: str) -> str:
    """A name for comparison: lower case, words separated by spaces."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())
