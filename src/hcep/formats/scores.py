"""Scores that other classifiers wrote, as one table, and the tree above their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hcep.errors import HCEPError, counted, quote
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.edges import virtual_root

if TYPE_CHECKING:
    import pyarrow as pa

#: Ranks of the columns and labels of taxonomic classifiers, the highest first.
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


class Lineage(NamedTuple):
    """The concepts from the highest to a class, as (rank or "", name) pairs, and the common name of the class."""

    steps: tuple[tuple[str, str], ...]
    name: str = ""


class Scores(NamedTuple):
    """Scores of images: a table with the columns image, file, class and score.

    Attributes
    ----------
    hierarchy : above the classes, from their lineages; None if the file has no lineages
    notes : sentences about what was not read
    """

    table: pa.Table
    hierarchy: Hierarchy | None
    notes: tuple[str, ...]


class ClassScores(NamedTuple):
    """The scores of an image or of a box in it, by the labels of the file."""

    id: str
    file: str
    scores: Sequence[tuple[str, float]]


def scores_of(
    source: Path, images: Iterable[ClassScores], lineages: Mapping[str, Lineage], notes: Sequence[str] = ()
) -> Scores:
    """The table and the tree of all images; labels without a lineage are classes as they are.

    A label whose lineage has no steps stands for no answer, and its score is left out.
    """
    import pyarrow as pa  # here, because writers of other formats need no tables

    ids, hierarchy = tree_of(lineages) if lineages else ({}, None)
    rows: list[tuple[str, str, str, float]] = []
    seen, empty = set[str](), 0
    for image in images:
        if image.id in seen:
            raise HCEPError(f"{source.name}: image {quote(image.id)} occurs twice")
        seen.add(image.id)
        scores: dict[str, float] = {}
        twice = next((label for label, n in Counter(label for label, _ in image.scores).items() if n > 1), None)
        if twice is not None:
            raise HCEPError(f"{source.name}: image {quote(image.id)} has two scores for {quote(twice)}")
        for label, score in image.scores:
            concept = ids.get(label, "" if label in lineages else label)
            if concept:  # two labels may be one concept
                scores[concept] = scores.get(concept, 0.0) + score
        empty += not scores
        rows += [(image.id, image.file, concept, score) for concept, score in scores.items()]
    if not rows:
        raise HCEPError(f"{source.name} has no scores of classes for any of its {counted(len(seen), 'image')}")
    more = [f"{source.name}: {empty:,} of {counted(len(seen), 'image')} have no scores and get no answer"]
    table = pa.table(list(map(pa.array, zip(*rows, strict=True))), ["image", "file", "class", "score"])
    return Scores(table, hierarchy, (*notes, *(more if empty else [])))


def tree_of(lineages: Mapping[str, Lineage]) -> tuple[dict[str, str], Hierarchy]:
    """The concept of each label, and the tree of all concepts, whose ids are their names.

    Equal names below different concepts are different concepts; the name of the concept above is added to theirs.
    """
    paths = {line.steps[:n]: line.steps[n - 1][1] for line in lineages.values() for n in range(1, len(line.steps) + 1)}
    alike: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for path, name in paths.items():
        alike.setdefault(name, []).append(path)
    ids = {path: _unique(path, len(alike[name]) > 1) for path, name in paths.items()}
    root = virtual_root(set(ids.values()))
    edges = [(ids.get(path[:-1], root), concept) for path, concept in ids.items()]
    names = {ids[line.steps]: line.name for line in lineages.values() if line.steps and line.name}
    ranks = {ids[path]: path[-1][0] for path in ids if path[-1][0]}
    order = {rank: i for i, rank in enumerate(RANKS)}
    ranks = dict(sorted(ranks.items(), key=lambda pair: order.get(pair[1], 0)))
    tree = Hierarchy.from_edges(edges, names).with_ranks(ranks)
    return {label: ids[line.steps] for label, line in lineages.items() if line.steps}, tree


def _unique(path: tuple[tuple[str, str], ...], is_shared: bool) -> str:
    above = " > ".join(name for _, name in path[:-1])
    return f"{path[-1][1]} ({above})" if is_shared and above else path[-1][1]
