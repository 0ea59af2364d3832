"""A wrong hierarchy: support and accuracy when a share of the tree is corrupted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from experiments.claims import Verdict, ahead, by_method, labels_of
from experiments.experiment import described
from experiments.figures import curves
from experiments.measuring import CONTROLS, OUR_LABEL, Cell, measured, method_cell
from experiments.records import OF_IMAGES, Row, packed
from experiments.tasks import Task
from hcep.errors import HCEPError
from hcep.evaluate import score_images
from hcep.hierarchy import Hierarchy

Parents = dict[str, str]


@dataclass(frozen=True)
class Config:
    """Kinds and shares of corruption of WordNet's first-hypernym tree.

    A wholly random tree (the last share of "random") is drawn `n_random` times, any other wrong one once per seed.
    """

    kinds: tuple[str, ...] = ("leaves", "subtrees", "random")
    shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    methods: tuple[str, ...] = ("omp", "hnn", "hb-omp", "nn", "tree-l1", "anchored", "hcep")
    once: tuple[str, ...] = ("nn", "tree-l1")
    beam: int = 32
    shots: int | None = 12
    seeds: tuple[int, ...] = (0, 1, 2)
    n_random: int = 10
    n_val: int | None = 2000


def cells(config: Config, task: Task) -> Iterator[Cell]:
    """Yield a cell per method, kind, share and seed; the true tree is the same for all kinds and seeds."""
    for name in (*config.methods, *CONTROLS):
        for share in config.shares if name not in CONTROLS else config.shares[:1]:
            for kind in config.kinds if share else config.kinds[:1]:
                seeds = tuple(range(config.n_random)) if (kind, share) == ("random", 1.0) else config.seeds
                for seed in seeds if share and name not in config.once else config.seeds[:1]:
                    yield method_cell(name, config.beam, shots=config.shots, kind=kind, share=share, seed=seed)


def measure(config: Config, task: Task, cell: Cell) -> Iterator[Row]:
    """Measure support F1 and the distance of mistakes, in the corrupted tree and in the true one."""
    true = task.hierarchy.as_tree().collapse()
    drawn = task.shots(config.shots, 0).first_images(config.n_val)
    wrong = corrupt(true, cell["kind"], cell["share"], cell["seed"])
    row, graded = measured(cell, drawn.under(wrong))
    honest = score_images(graded.result, drawn.y_val, true, predicted=graded.scores.predicted)
    means = honest.summary()
    row |= {"true_support_f1": means["support_f1"], "true_tree_distance": means["tree_distance"]}
    row[OF_IMAGES] = packed(honest)
    for kind in config.kinds if not cell["share"] else (cell["kind"],):
        yield {**row, "kind": kind}


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Compare the true tree with a random one for each method, and ours with the controls."""
    shuffled = [r for r in rows if r["kind"] == "random"]
    worst = max((r["share"] for r in shuffled), default=0.0)
    checked = []
    for label in labels_of(shuffled):
        mine = [r for r in shuffled if r["label"] == label]
        random = [{**r, "label": "a random tree"} for r in mine if r["share"] == worst and worst > 0]
        true = [{**r, "label": "the true tree"} for r in mine if r["share"] == 0]
        # The true tree does not depend on the draw, so its row is paired with every random tree.
        pairs = [{**true[0], "seed": r["seed"]} for r in random] + random if true else []
        for metric in ("accuracy", "true_tree_distance"):
            checked += ahead(pairs, label, "the true tree", ["a random tree"], metric)
    untouched = [r for r in shuffled if r["share"] == 0]
    for metric in ("accuracy", "true_tree_distance"):
        for name in CONTROLS:
            control = [r["label"] for r in untouched if r["method"] == name]
            checked += ahead(untouched, "the true tree", OUR_LABEL, control, metric)
    return checked


def table(rows: list[Row]) -> str:
    """Return tables of accuracy, support F1 in both trees and distance of mistakes, by share."""
    text = ""
    for kind in dict.fromkeys(r["kind"] for r in rows):
        heads = "accuracy / support F1 in the corrupted tree / in the true tree / distance of mistakes in the true tree"
        table = by_method([r for r in rows if r["kind"] == kind], "share", METRICS)
        text += f"{TITLES[kind]}: {heads}, by share:\n\n{table}\n"
    return text


def corrupt(hierarchy: Hierarchy, kind: str, share: float, seed: int) -> Hierarchy:
    """Return a tree with the same classes of which a share, 0 to 1, is wrong.

    "leaves" hangs a share of the leaves from another parent of leaves; "subtrees" swaps a share of the inner synsets
    with another that is neither above nor below; "random" shuffles a share of the classes over their places, so that
    at 1 only the shape of the tree is left.
    """
    if kind not in KINDS:
        raise HCEPError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    if not 0.0 <= share <= 1.0:
        raise HCEPError(f"share must be between 0 and 1, got {share!r}")
    if not hierarchy.is_tree:
        raise HCEPError("only trees can be corrupted; take hierarchy.as_tree() first")
    parent = {child: hierarchy.parents(child)[0] for child in hierarchy.ids[1:]}
    parent = KINDS[kind](hierarchy, parent, share, np.random.default_rng(seed))
    names = {synset: hierarchy.name(synset) for synset in hierarchy.ids}
    edges = [(above, child) for child, above in parent.items()]
    return Hierarchy.from_edges(edges, names, root=hierarchy.root).restrict(hierarchy.leaves).collapse()


def _chosen(synsets: list[str], share: float, rng: np.random.Generator) -> list[str]:
    n = round(share * len(synsets))
    return [synsets[i] for i in rng.permutation(len(synsets))[:n]]


def _move_leaves(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    homes = sorted({parent[leaf] for leaf in hierarchy.leaves})
    moved = dict(parent)
    for leaf in _chosen(list(hierarchy.leaves), share, rng):
        others = [home for home in homes if home != parent[leaf]]
        if others:
            moved[leaf] = others[rng.integers(len(others))]
    return moved


def _swap_subtrees(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    inner = [s for s in hierarchy.ids[1:] if not hierarchy.is_leaf(s)]
    moved, waiting = dict(parent), _chosen(inner, share, rng)
    while waiting:
        first = waiting.pop()
        # A synset cannot be swapped with one above or below it, and swapping siblings would change nothing.
        free = (s for s in reversed(waiting) if moved[first] != moved[s])
        partner = next((s for s in free if first not in _above(moved, s) and s not in _above(moved, first)), None)
        if partner is not None:
            waiting.remove(partner)
            moved[first], moved[partner] = moved[partner], moved[first]
    return moved


def _above(parent: Parents, synset: str) -> set[str]:
    return {parent[synset], *_above(parent, parent[synset])} if synset in parent else set()


def _shuffle_classes(hierarchy: Hierarchy, parent: Parents, share: float, rng: np.random.Generator) -> Parents:
    chosen = _chosen(list(hierarchy.leaves), share, rng)
    places = [parent[leaf] for leaf in chosen]
    return parent | {leaf: places[i] for leaf, i in zip(chosen, rng.permutation(len(chosen)), strict=True)}


KINDS: dict[str, Callable[[Hierarchy, Parents, float, np.random.Generator], Parents]] = {
    "leaves": _move_leaves,
    "subtrees": _swap_subtrees,
    "random": _shuffle_classes,
}
METRICS = ("accuracy", "support_f1", "true_support_f1", "true_tree_distance")
TITLES = {"leaves": "Leaves moved", "subtrees": "Subtrees swapped", "random": "Classes shuffled"}
FEW = ("omp", "anchored", "hcep")
SMOKE = Config(kinds=("random",), shares=(0.0, 1.0), methods=FEW, shots=5, seeds=(0,), n_random=3, n_val=300)
draw = curves("share", METRICS, "share of the hierarchy corrupted", by="kind")
EXPERIMENT = described("wrong-tree", cells, measure, draw, verdicts, table, Config(), SMOKE)
