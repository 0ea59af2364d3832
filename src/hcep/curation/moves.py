"""Children nearer to another parent than to their own, and which moves hold what they promise."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from hcep.curation.edits import Move
from hcep.curation.what_if import Effect, Floats, HeldOut, what_if
from hcep.dictionary import ConceptDictionary
from hcep.errors import HierarchyError
from hcep.evaluate.statistics import Difference
from hcep.hierarchy import Hierarchy

#: Metrics that a hierarchy cannot raise by sharing more of its paths; a move that lowers one does not help.
UNBIASED = ("accuracy", "f1_above_chance", "class_f1_before")


class Proposal(NamedTuple):
    """A move that would bring a child to a nearer parent, in terms of the hierarchy as given, not of the collapsed one.

    The distances are from the child to the other and to its own parent, each averaged without the child; the ratio is
    the square root of the scatter that joining the other parent adds, over that of joining its own; below 1.
    """

    move: Move
    distance: float
    own_distance: float
    ratio: float


@dataclass(frozen=True, eq=False)
class MeasuredMove:
    """A proposal and what it does to held-out images, one of `n_tried` that were measured on them."""

    proposal: Proposal
    effect: Effect
    n_tried: int = 1

    @property
    def move(self) -> Move:
        return self.proposal.move

    def gain(self, metric: str = "support_f1") -> Difference:
        """Paired difference with its 95% interval, corrected for the number of moves tried (Bonferroni)."""
        return self.effect.interval(metric, 1.0 - 0.05 / self.n_tried)

    @property
    def helps(self) -> bool:
        """Whether support F1 rises clearly, also above chance, and no unbiased metric falls by its standard error.

        Clearly: the interval of `gain` lies above zero.
        """
        metrics = self.effect.metrics
        return all(self.gain(name).low > 0 for name in ("support_f1", "f1_above_chance")) and all(
            metrics[name].difference >= -metrics[name].error for name in UNBIASED
        )


def propose_moves(held_out: HeldOut, n_per_child: int = 2) -> list[Proposal]:
    """Children nearer to another inner synset than to a parent of theirs, the clearest case first.

    `n_per_child` other parents are considered for each. A parent's embedding is the mean of its children's, so it is
    near each of them by construction. Distances are therefore to what each parent's embedding would be *without the
    child*: its own parents and all synsets above them are averaged again. Neither the root (its embedding is zero) nor
    a synset below the child is a candidate, and a parent that would be left without children has nothing to compare
    with.

    The mean of many children lies near the middle of everything and so near every child. A proposal must therefore also
    lower the scatter of children about their parents, which is the squared length of the atoms: joining n children at
    distance d adds ``n / (n + 1) d**2`` (Hartigan's rule for k-means; *Clustering Algorithms*, Wiley 1975, chapter 4).
    """
    hierarchy = held_out.dictionary.hierarchy
    n_children = np.diff(hierarchy.child_pointer).tolist()
    proposals: list[Proposal] = []
    for child in range(1, len(hierarchy)):
        distances = distances_to_parents(held_out.dictionary, child)
        parents = list(map(hierarchy.index, hierarchy.parents(hierarchy.ids[child])))
        n_others = {p: n_children[p] - (p in parents) for p in distances}
        scatter = {p: n_others[p] / (n_others[p] + 1) * distance**2 for p, distance in distances.items()}
        others = sorted((p for p in distances if p not in parents), key=scatter.__getitem__)[:n_per_child]
        for own in (p for p in parents if p in distances):
            for other in others:
                if distances[other] < distances[own] and scatter[other] < scatter[own]:
                    move = Move(hierarchy.ids[child], hierarchy.ids[other], hierarchy.ids[own])
                    move = in_whole(held_out.hierarchy, hierarchy, move)
                    ratio = float(np.sqrt(scatter[other] / scatter[own]))
                    proposals.append(Proposal(move, distances[other], distances[own], ratio))
    return sorted(proposals, key=lambda proposal: proposal.ratio)


def distances_to_parents(dictionary: ConceptDictionary, child: int) -> dict[int, float]:
    """Distance of a synset to every inner synset, by index, that could be its parent, each averaged without the child.

    A parent that the child leaves empty is not among them.
    """
    hierarchy, embeddings = dictionary.hierarchy, dictionary.synset_embeddings
    # Of the synsets above a child after it is taken out; None for one that is left without children.
    without: dict[int, Floats | None] = {child: None}
    for synset in reversed(hierarchy.ancestors(hierarchy.ids[child])):  # the root comes first there
        children = map(hierarchy.index, hierarchy.children(synset))
        left = [v for c in children if (v := without.get(c, embeddings[c])) is not None]
        without[hierarchy.index(synset)] = np.mean(left, axis=0) if left else None
    barred = {0, child, *map(hierarchy.index, hierarchy.descendants(hierarchy.ids[child]))}
    inner = np.flatnonzero(np.diff(hierarchy.child_pointer) > 0).tolist()
    vectors = {i: without.get(i, embeddings[i]) for i in inner if i not in barred}
    known = {i: vector for i, vector in vectors.items() if vector is not None}
    if not known:
        return {}
    distances = np.linalg.norm(np.stack(list(known.values())) - embeddings[child], axis=1)
    return dict(zip(known, distances.tolist(), strict=True))


def in_whole(whole: Hierarchy, collapsed: Hierarchy, move: Move) -> Move:
    """A move between synsets of a restricted and collapsed hierarchy, as one of the hierarchy that it was made from.

    An edge there may be a chain here, p → m → c. What moves is the highest synset of the chain that has no other child:
    names stay together, and nothing moves that was not measured.
    """

    @cache
    def next_above(synset: str) -> frozenset[str]:
        if synset in collapsed:
            return frozenset([synset])
        return frozenset(top for parent in whole.parents(synset) for top in next_above(parent))

    synset = move.synset
    while True:
        parent = next(p for p in whole.parents(synset) if move.from_parent in next_above(p))
        shared = len(next_above(parent)) > 1  # the chain comes from several parents: leave this one only
        if parent == move.from_parent or not (shared or len(whole.children(parent)) == 1):
            return Move(synset, move.to_parent, parent)
        synset = parent


def measure_moves(
    held_out: HeldOut, proposals: Sequence[Proposal], step: Callable[[], object] = lambda: None
) -> list[MeasuredMove]:
    """Measure each proposal alone, the best first: by support F1 above chance, which a longer path does not raise.

    `step` is called after each, for a progress bar.
    """
    measured = []
    for proposal in proposals:
        measured.append(MeasuredMove(proposal, what_if(held_out, [proposal.move]), len(proposals)))
        step()
    return sorted(measured, key=lambda m: -m.effect.metrics["f1_above_chance"].difference)


def best_moves(held_out: HeldOut, measured: Iterable[MeasuredMove], n_moves: int) -> Effect:
    """The effect of up to `n_moves` moves that help together; they are its ``edits``.

    Moves meet: two may concern one synset, or one may change what another was measured against. So each, the best alone
    first, is measured again on top of those already taken, and kept only if it still adds to them.
    """
    effect = what_if(held_out, [])
    for candidate in (m for m in measured if m.helps):
        if len(effect.edits) == n_moves:
            break
        try:
            together = what_if(held_out, [*effect.edits, candidate.move])
        except HierarchyError:  # a move taken before has removed the edge, or made this one close a cycle
            continue
        gains = [together.metrics[m].after - effect.metrics[m].after for m in ("support_f1", "f1_above_chance")]
        if min(gains) > 0 and together.accuracy.difference >= -together.accuracy.error:
            effect = together
    return effect
