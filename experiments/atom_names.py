"""Names for atoms: how often the words nearest to an atom name the concept that the atom leads to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.words import Vocabulary
from experiments.claims import Verdict, by_data, outcome, threshold, verdicts_by_data
from experiments.experiment import described
from experiments.figures import Figure, canvas
from experiments.measuring import Cell
from experiments.records import Row
from experiments.tables import markdown, number
from experiments.tasks import CLASS_NAMES, LVIS_NAMES, Task
from hcep import HCEPClassifier, Hierarchy
from hcep.dictionary import ConceptDictionary
from hcep.evaluate import paired_draws
from hcep.hierarchy.imagenet import imagenet_hierarchy, synset_lemmas
from hcep.taxonomy.naming import name_atoms

OURS, MEANS = "ours", "class means"
TOP = (1, 5, 10)
#: Which name is looked for at which atom.
OWN, PARENT_NAME, PARENT_ATOM = "own name", "parent's name", "own name at the parent's atom"
NAMES = (OWN, PARENT_NAME, PARENT_ATOM)
#: The examples of the paper.
EXAMPLES = (("bear", "polar bear"), ("container", "basket"), ("citrus", "orange"))


@dataclass(frozen=True)
class Config:
    """Vocabularies, dictionaries, and whether the mean of the texts is subtracted."""

    vocabularies: tuple[str, ...] = (CLASS_NAMES, LVIS_NAMES)
    dictionaries: tuple[str, ...] = (OURS, MEANS)
    centers: tuple[bool, ...] = (True, False)


def cells(config: Config, task: Task) -> Iterator[Cell]:
    for words in config.vocabularies:
        for dictionary in config.dictionaries:
            yield from ({"vocabulary": words, "dictionary": dictionary, "center": center} for center in config.centers)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Yield a row with the ranks of names at all atoms that lead to classes, one for groups, and one per example."""
    vocabulary, hierarchy = task.vocabularies[cell["vocabulary"]].within(task.hierarchy), task.hierarchy
    if cell["dictionary"] == OURS:
        dictionary = HCEPClassifier(hierarchy).fit(task.X, task.y).dictionary_
    else:
        dictionary = ConceptDictionary.from_images(hierarchy, task.X, task.y)
    vectors = vocabulary.vectors.astype(np.float64)
    atoms = name_atoms(dictionary, vocabulary.words, vectors, top_k=max(TOP), center=cell["center"])
    nearest = {(atom.parent, atom.child): [phrase.text for phrase in atom.phrases] for atom in atoms}
    names = names_in(vocabulary, hierarchy)
    for leaf in (True, False):
        edges = [edge for edge in nearest if edge[1] in names and hierarchy.is_leaf(edge[1]) == leaf]
        ranks: dict[str, list[int | None]] = {name: [] for name in NAMES}
        for parent, child in edges:
            above = [nearest[p, parent] for p in hierarchy.parents(parent)]
            of_parent = rank_of(names[parent], nearest[parent, child]) if parent in names else None
            ranks[OWN].append(rank_of(names[child], nearest[parent, child]))
            ranks[PARENT_NAME].append(of_parent)
            ranks[PARENT_ATOM].append(min((rank_of(names[child], phrases) for phrases in above), default=None))
        drawn = [[1.0 - (1.0 - len(names[child]) / len(vocabulary.words)) ** k for _, child in edges] for k in TOP]
        chances = {f"chance_{k}": float(np.mean(shares)) for k, shares in zip(TOP, drawn, strict=True) if shares}
        if edges:
            yield {**cell, "leaf": leaf, "n_atoms": len(edges), **ranks, **chances}
    for parent, child in example_edges(hierarchy):
        words = [hierarchy.name(word) if vocabulary.are_synsets else word for word in nearest[parent, child][:5]]
        text = f"{hierarchy.name(parent)} → {hierarchy.name(child)}"
        yield {**cell, "example": text, "phrases": ", ".join(word.replace("_", " ") for word in words)}


def names_in(vocabulary: Vocabulary, hierarchy: Hierarchy) -> dict[str, set[str]]:
    """Return the words that name each concept: the concept itself, or every lemma that the vocabulary has."""
    if vocabulary.are_synsets:
        return {leaf: {hierarchy.class_of(leaf)} for leaf in hierarchy.leaves}
    by_name: dict[str, set[str]] = {}
    for word in vocabulary.words:  # LVIS writes "bear" or "bow_(weapon)"
        by_name.setdefault(word.split("_(")[0].replace("_", " ").casefold(), set()).add(word)
    wordnet, names = imagenet_hierarchy(), {}
    for concept in hierarchy.ids[1:]:
        wnid = hierarchy.class_of(concept)
        lemmas = [lemma.replace("_", " ").casefold() for lemma in synset_lemmas(wnid)] if wnid in wordnet else []
        if words := set().union(*(by_name.get(lemma, set()) for lemma in lemmas)):
            names[concept] = words
    return names


def rank_of(names: set[str], phrases: Sequence[str]) -> int:
    """Return the place of the first of some names among the nearest phrases, from 1; one more than all if none is."""
    return next((i for i, phrase in enumerate(phrases, start=1) if phrase in names), len(phrases) + 1)


def example_edges(hierarchy: Hierarchy) -> Iterator[tuple[str, str]]:
    """Yield the edges of the paper's examples that a hierarchy has."""
    for parent, child in EXAMPLES:
        for above, below in hierarchy.edges:
            if _is_called(hierarchy, above, parent) and _is_called(hierarchy, below, child):
                yield above, below
                break


def _is_called(hierarchy: Hierarchy, concept: str, name: str) -> bool:
    wnid = hierarchy.class_of(concept)
    lemmas = synset_lemmas(wnid) if wnid in imagenet_hierarchy() else ()
    return any(lemma.replace("_", " ").casefold() == name for lemma in lemmas)


def ranks(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """Return the ranks of a name at all atoms of some rows; NaN where there is no such name."""
    return np.array([np.nan if rank is None else rank for row in rows for rank in row[name]])


def share(rows: Sequence[Row], name: str, k: int) -> float:
    """Return how often a name is among the k nearest words of an atom; NaN without such names."""
    known = ranks(rows, name)[~np.isnan(ranks(rows, name))]
    return float(np.mean(known <= k)) if len(known) else float("nan")


def chance(rows: Sequence[Row], k: int) -> float:
    """Return how often a name of the child would be among k words drawn at random."""
    return float(np.average([row[f"chance_{k}"] for row in rows], weights=[row["n_atoms"] for row in rows]))


def graded(rows: Sequence[Row], **settings: object) -> list[Row]:
    """Return the rows with ranks that have these settings."""
    return [r for r in rows if r.get("n_atoms") and all(r[k] == v for k, v in settings.items())]


def draw(rows: list[Row]) -> Figure:
    figure = canvas(9, 3)
    for words, axes in zip((CLASS_NAMES, LVIS_NAMES), figure.subplots(1, 2, sharey=True), strict=True):
        mine = graded(rows, vocabulary=words, dictionary=OURS, center=True)
        n_atoms = sum(r["n_atoms"] for r in mine)
        for name, marker in zip(NAMES, "osv", strict=True):
            axes.plot(range(3), [share(mine, name, k) for k in TOP], f"{marker}-", label=name)
        axes.plot(range(3), [chance(mine, k) for k in TOP], "k:", label="chance")
        axes.set(title=f"{words}, {n_atoms:,} atoms", xlabel="among the nearest words", ylim=(0, 1))
        axes.set_xticks(range(3), [str(k) for k in TOP])
        axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


@verdicts_by_data
def verdicts(data: str, rows: list[Row]) -> Iterator[Verdict]:
    """Compare a child's name with chance, with the parent's name and atom, and with the mean of the texts kept."""
    for words in (CLASS_NAMES, LVIS_NAMES):
        mine, raw = (graded(rows, vocabulary=words, dictionary=OURS, center=center) for center in (True, False))
        where, own = f"{data}, {words}", share(mine, OWN, 10)
        claim = f"{where}: the child's name is among the ten nearest words more often than by chance"
        yield threshold(claim, own - chance(mine, 10), f"{number(own)} against {number(chance(mine, 10))}")
        first = ranks(mine, OWN)
        others = {
            "its own atom more often than of the parent's atom": ranks(mine, PARENT_ATOM),
            "its atom more often than the parent's name": ranks(mine, PARENT_NAME),
            "its atom more often than if the mean of the texts is kept": ranks(raw, OWN),
        }
        for claim, second in others.items():
            both = ~np.isnan(second) if len(second) else np.zeros(0, dtype=bool)
            if both.any():
                pair = (first[both] == 1).astype(float), (second[both] == 1).astype(float)
                gap = paired_draws([pair[0]], [pair[1]])
                text = f"{number(pair[0].mean())} against {number(pair[1].mean())} (difference {number(gap.low)} to "
                text += f"{number(gap.high)} over {both.sum():,} atoms)"
                claim = f"{where}: the child's name is the nearest word of {claim}"
                yield Verdict(claim, outcome(gap, "accuracy"), text)


def table(rows: list[Row]) -> str:
    """Return how often names are among the nearest words, and the words of the paper's examples."""
    text = ""
    for data, whole in by_data(rows).items():
        lines = []
        settings = dict.fromkeys((r["vocabulary"], r["dictionary"], r["center"]) for r in whole)
        for words, dictionary, center in settings:
            for leaf in (True, False):
                mine = graded(whole, vocabulary=words, dictionary=dictionary, center=center, leaf=leaf)
                if mine:
                    shares = (" / ".join(number(share(mine, name, k)) for k in TOP) for name in NAMES)
                    random = " / ".join(number(chance(mine, k)) for k in TOP)
                    about = (words, dictionary, "subtracted" if center else "kept", "class" if leaf else "group")
                    lines.append((*about, str(mine[0]["n_atoms"]), *shares, random))
        heads = ("words", "dictionary", "mean of the texts", "child", "atoms", *NAMES, "own name by chance")
        text += f"**{data}**: how often a name is the nearest word / among 5 / among 10 of an atom:\n\n"
        text += markdown(heads, lines) + "\nThe paper's examples, with our dictionary and the mean subtracted:\n\n"
        shown = [r for r in whole if r.get("example") and r["dictionary"] == OURS and r["center"]]
        lines = [(r["example"], r["vocabulary"], r["phrases"]) for r in shown]
        text += markdown(("step", "words", "the five nearest words"), lines) + "\n"
    return text


SMOKE = Config(dictionaries=(OURS,), centers=(True,))
EXPERIMENT = described("atom-names", cells, measure, draw, verdicts, table, Config(), SMOKE)
